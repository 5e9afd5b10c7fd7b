"""The hash that all randomness comes from. A change would change every result."""

from itertools import pairwise

from fadas import rng
from fadas.rng import mix

PURPOSES = ("CHOICE", "TIER", "DURATION", "DROPOUT", "INIT", "BATCHES", "PARTITION", "HOLDOUT", "FAULT", "NOISE")


def test_hash_is_splitmix64():
    """The first values are those of the reference implementation by Vigna, for the states 0 and 1234567."""
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(1234567) == 6457827717110365317
    assert mix(0, 0) == mix(0xE220A8397B1DCDAF), "words are chained"
    assert mix() == 0


def test_hash_has_64_bits_for_any_integers():
    values = [mix(seed, purpose, index) for seed in (0, 1, 2**40) for purpose in (1, 10) for index in (0, 5, -1)]
    assert len(set(values)) == len(values)
    assert all(0 <= value < 2**64 for value in values)
    assert sum(value >= 2**63 for value in values) not in (0, len(values))
    assert mix(2**64 + 5) == mix(5)


def test_every_bit_of_the_hash_is_fair():
    values = [mix(7, index) for index in range(4000)]
    for bit in range(64):
        assert abs(sum(value >> bit & 1 for value in values) - 2000) < 5 * 1000**0.5
    assert all(mix(7, one) != mix(7, other) for one, other in pairwise(range(100)))


def test_every_purpose_keeps_its_number():
    assert [getattr(rng, name) for name in PURPOSES] == list(range(1, 11))
