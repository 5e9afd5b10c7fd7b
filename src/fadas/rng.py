"""Randomness as a function of (seed, purpose, index): nothing depends on the order in which things run."""

from functools import lru_cache

_MASK = (1 << 64) - 1

# One number for each purpose that draws randomness from the run's seed, so that no two of them share a stream.
CHOICE, TIER, DURATION, DROPOUT, INIT, BATCHES, PARTITION, HOLDOUT, FAULT, NOISE, WORK, SEARCH = range(1, 13)


def mix(*words: int) -> int:
    """Hash integers to 64 well-mixed bits (SplitMix64, chained over the words)."""
    if not words:
        return 0
    *prefix, last = words
    z = (_state_after(*prefix) + last + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


@lru_cache(maxsize=64)  # a run hashes many indices with the same seed and purpose
def _state_after(*words: int) -> int:
    return mix(*words)
