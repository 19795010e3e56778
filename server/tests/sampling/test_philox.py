"""The generator against the known answers that Random123 publishes, and its independence of the batch."""

import numpy as np
import pytest
from headrace.sampling.philox import philox4x32, uniforms

# From the file `kat_vectors` of Random123: counter, key, result of philox4x32 with 10 rounds.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    words = philox4x32(
        tuple(np.array([c], np.uint64) for c in counter),
        tuple(np.array([k], np.uint64) for k in key),
    )
    assert tuple(int(word[0]) for word in words) == expected


def test_uniforms_are_a_function_of_their_arguments():
    seeds = np.array([0, 1, 2**64 - 1, 12345], np.uint64)
    indexes = np.array([0, 7, 2**40, 3], np.int64)
    together = uniforms(seeds, indexes, 0)
    alone = [uniforms(seeds[n : n + 1], indexes[n : n + 1], 0)[0] for n in range(4)]
    assert together.tolist() == alone
    assert uniforms(seeds, indexes, 1).tolist() != together.tolist()


def test_uniforms_are_uniform():
    numbers = uniforms(np.full(20000, 42, np.uint64), np.arange(20000), 0)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, 20, (0, 1))
    # Chi-square with 19 degrees of freedom: 43.8 is the 0.1 % point.
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03
