"""Counter-based random numbers: a pure function of (seed, output index, purpose).

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key is the
sequence's 64-bit seed; the counter is (output index, low and high words; purpose; 0). Nothing is carried from
one draw to the next, so a restart, a preemption or another batch changes nothing. Everything is integer
arithmetic until the last step, which is exact in float64.

Shapes: R = rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PURPOSE_SAMPLE = 0
"""The one draw that picks a row's id."""

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_WORD = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10

Words = npt.NDArray[np.uint64]


def philox4x32(counter: tuple[Words, ...], key: tuple[Words, Words]) -> tuple[Words, ...]:
    """Ten rounds of Philox4x32.

    Args:
        counter: Four arrays of one shape, each value below 2^32 (held in uint64).
        key: Two arrays of the same shape, likewise.

    Returns:
        Four arrays of that shape, each value below 2^32.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0 = c0 * _MULTIPLIERS[0]
        product1 = c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _WORD,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _WORD,
        )
        k0 = (k0 + _WEYL[0]) & _WORD
        k1 = (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def uniforms(
    seeds: npt.NDArray[np.uint64], indexes: npt.NDArray[np.int64], purpose: int
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) a row, a multiple of 2^-53.

    Args:
        seeds: [R] each sequence's seed.
        indexes: [R] index of the output id that is drawn.
        purpose: What the number is for; a small constant of this module.

    Returns:
        [R] float64.
    """
    index = indexes.astype(np.uint64)
    zero = np.zeros_like(index)
    counter = (index & _WORD, index >> _SHIFT, np.full_like(index, purpose), zero)
    key = (seeds & _WORD, seeds >> _SHIFT)
    high, low, _, _ = philox4x32(counter, key)
    # 27 + 26 bits make the 53 of a float64's mantissa.
    bits = ((high >> np.uint64(5)) << np.uint64(26)) | (low >> np.uint64(6))
    return bits.astype(np.float64) * 2.0**-53
