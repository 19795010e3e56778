"""Block types of GGUF tensors and how they become float32.

A row of values is a row of blocks; each block has `num_bytes` bytes for `block_size` values.

Shape legend: B blocks; the last dimension of `blocks` is bytes. Outputs are float32 [B, block_size].
Multi-byte fields are little endian, and so is every machine this runs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Floats = NDArray[np.float32]

_NIBBLE = np.uint8(0x0F)
_BITS = np.arange(8, dtype=np.uint8)


@dataclass(frozen=True)
class BlockType:
    """How the values of a tensor are packed.

    Attributes:
        name: As llama.cpp names it.
        block_size: Values a block.
        num_bytes: Bytes a block.
        unpack: uint8 [B, num_bytes] to float32 [B, block_size].
    """

    name: str
    block_size: int
    num_bytes: int
    unpack: Callable[[Bytes], Floats]


def _half(blocks: Bytes, start: int) -> Floats:
    """The float16 at byte `start` of each block: [B, 1]."""
    field = np.ascontiguousarray(blocks[:, start : start + 2])
    return field.view("<f2").astype(np.float32)


def _unpack_f32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32, copy=False)


def _unpack_f16(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def _unpack_bf16(blocks: Bytes) -> Floats:
    high = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (high << np.uint32(16)).view(np.float32)


def _unpack_q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:34].view(np.int8)


def _nibbles(packed: Bytes) -> Bytes:
    """16 bytes to 32 values: all low halves, then all high halves."""
    out = np.empty((packed.shape[0], 32), dtype=np.uint8)
    np.bitwise_and(packed, _NIBBLE, out=out[:, :16])
    np.right_shift(packed, 4, out=out[:, 16:])
    return out


def _fifth_bits(packed: Bytes) -> Bytes:
    """4 bytes, bit i for value i, to 32 values that are 0 or 16."""
    bits = (packed[:, :, None] >> _BITS) & np.uint8(1)
    return bits.reshape(packed.shape[0], 32) << np.uint8(4)


def _unpack_q4_0(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 2:18]).view(np.int8) - np.int8(8)
    return _half(blocks, 0) * values


def _unpack_q4_1(blocks: Bytes) -> Floats:
    out = _half(blocks, 0) * _nibbles(blocks[:, 4:20])
    out += _half(blocks, 2)
    return out


def _unpack_q5_0(blocks: Bytes) -> Floats:
    values = _nibbles(blocks[:, 6:22]) | _fifth_bits(blocks[:, 2:6])
    return _half(blocks, 0) * (values.view(np.int8) - np.int8(16))


def _unpack_q5_1(blocks: Bytes) -> Floats:
    out = _half(blocks, 0) * (_nibbles(blocks[:, 8:24]) | _fifth_bits(blocks[:, 4:8]))
    out += _half(blocks, 2)
    return out


def _scales_and_mins(packed: Bytes) -> tuple[Bytes, Bytes]:
    """12 bytes to eight 6-bit scales and eight 6-bit mins, each [B, 8].

    Bytes 0-3 hold scales 0-3 and bytes 4-7 mins 0-3 in their low six bits; bytes 8-11 hold the low
    four bits of scales 4-7 (low half) and of mins 4-7 (high half), whose upper two bits are the upper
    two bits of bytes 0-3 and 4-7.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    six_bits = np.uint8(0x3F)
    scales = np.concatenate(
        [first & six_bits, (third & _NIBBLE) | ((first >> 6) << np.uint8(4))], axis=1
    )
    mins = np.concatenate(
        [second & six_bits, (third >> 4) | ((second >> 6) << np.uint8(4))], axis=1
    )
    return scales, mins


def _scaled_groups(blocks: Bytes, values: Bytes) -> Floats:
    """Eight groups of 32 values with the scales and mins of a K block: [B, 256]."""
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    out = (_half(blocks, 0) * scales)[:, :, None] * values
    out -= (_half(blocks, 2) * mins)[:, :, None]
    return out.reshape(-1, 256)


def _group_nibbles(packed: Bytes) -> Bytes:
    """128 bytes to [B, 8, 32]: of each 32 bytes the low halves, then the high halves."""
    runs = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([runs & _NIBBLE, runs >> 4], axis=2).reshape(-1, 8, 32)


def _unpack_q4_k(blocks: Bytes) -> Floats:
    return _scaled_groups(blocks, _group_nibbles(blocks[:, 16:144]))


def _unpack_q5_k(blocks: Bytes) -> Floats:
    # Bit g of byte i is the fifth bit of value i of group g.
    fifth = ((blocks[:, None, 16:48] >> _BITS[None, :, None]) & np.uint8(1)) << np.uint8(4)
    return _scaled_groups(blocks, _group_nibbles(blocks[:, 48:176]) | fifth)


def _unpack_q6_k(blocks: Bytes) -> Floats:
    # Each half of the block: 64 bytes of low nibbles, 32 bytes of upper bit pairs, 128 values.
    low = blocks[:, 0:128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & _NIBBLE, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    pairs = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    values = low | ((pairs & np.uint8(3)) << np.uint8(4))
    signed = values.reshape(-1, 16, 16).view(np.int8) - np.int8(32)
    scales = _half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return (scales[:, :, None] * signed).reshape(-1, 256)


BLOCK_TYPES: dict[int, BlockType] = {
    0: BlockType("F32", 1, 4, _unpack_f32),
    1: BlockType("F16", 1, 2, _unpack_f16),
    2: BlockType("Q4_0", 32, 18, _unpack_q4_0),
    3: BlockType("Q4_1", 32, 20, _unpack_q4_1),
    6: BlockType("Q5_0", 32, 22, _unpack_q5_0),
    7: BlockType("Q5_1", 32, 24, _unpack_q5_1),
    8: BlockType("Q8_0", 32, 34, _unpack_q8_0),
    12: BlockType("Q4_K", 256, 144, _unpack_q4_k),
    13: BlockType("Q5_K", 256, 176, _unpack_q5_k),
    14: BlockType("Q6_K", 256, 210, _unpack_q6_k),
    30: BlockType("BF16", 1, 2, _unpack_bf16),
}
"""By the number that GGML gives the type in a file."""


# Blocks unpacked at once are bounded so that the temporaries stay in a core's cache.
_CHUNK_VALUES = 1 << 16


def dequantise(rows: Bytes, block_type: BlockType, columns: range) -> Floats:
    """Unpacks some columns of some rows.

    Args:
        rows: uint8 [R, bytes of a row], rows contiguous in themselves.
        block_type: How they are packed.
        columns: The values wanted of each row; only the blocks that hold them are unpacked.

    Returns:
        float32 [R, len(columns)], contiguous.
    """
    size, num_bytes = block_type.block_size, block_type.num_bytes
    first_block, end_block = columns.start // size, -(-columns.stop // size)
    packed = rows[:, first_block * num_bytes : end_block * num_bytes]
    num_rows, width = packed.shape[0], (end_block - first_block) * size
    lead = columns.start - first_block * size
    out = np.empty((num_rows, len(columns)), dtype=np.float32)
    rows_at_once = max(1, _CHUNK_VALUES // max(1, width))
    for start in range(0, num_rows, rows_at_once):
        chunk = packed[start : start + rows_at_once]
        if size == 1:
            out[start : start + rows_at_once] = block_type.unpack(chunk)
            continue
        # Arithmetic on garbage (infinite scales in a broken file) gives NaN, not a warning: the
        # numeric flags of a step report it.
        with np.errstate(all="ignore"):
            values = block_type.unpack(chunk.reshape(-1, num_bytes)).reshape(-1, width)
        out[start : start + rows_at_once] = values[:, lead : lead + len(columns)]
    return out
