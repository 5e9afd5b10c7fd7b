"""Randomness as a function of (seed, purpose, index): nothing depends on the order in which things run."""

_MASK = (1 << 64) - 1

# One number for each purpose that draws randomness from the run's seed, so that no two of them share a stream.
CHOICE, TIER, DURATION, DROPOUT, INIT, BATCHES, PARTITION, HOLDOUT, FAULT, NOISE, WORK = range(1, 12)


def mix(*words: int) -> int:
    """Hash integers to 64 well-mixed bits (SplitMix64, chained over the words)."""
    state = 0
    for word in words:
        z = (state + word + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        state = z ^ (z >> 31)
    return state
