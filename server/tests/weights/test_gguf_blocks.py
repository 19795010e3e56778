"""Dequantised blocks equal the `gguf` package's, to the bit."""

import gguf
import numpy as np
import pytest
from headrace.weights.gguf_blocks import BLOCK_TYPES, dequantise

QUANTISED = sorted(set(BLOCK_TYPES) - {0})


def random_rows(type_id, num_rows, num_blocks, seed=0):
    """Random bytes: every scale, finite or not, and every value."""
    size = num_blocks * BLOCK_TYPES[type_id].num_bytes
    return np.random.default_rng(seed).integers(0, 256, (num_rows, size), dtype=np.uint8)


def oracle(rows, type_id):
    with np.errstate(all="ignore"):
        return gguf.dequantize(rows, gguf.GGMLQuantizationType(type_id))


@pytest.mark.parametrize("type_id", QUANTISED, ids=lambda t: BLOCK_TYPES[t].name)
def test_sizes_are_ggml_s(type_id):
    block = BLOCK_TYPES[type_id]
    assert gguf.GGMLQuantizationType(type_id).name == block.name
    sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type_id)]
    assert sizes == (block.block_size, block.num_bytes)


@pytest.mark.parametrize("type_id", QUANTISED, ids=lambda t: BLOCK_TYPES[t].name)
def test_whole_rows(type_id):
    block = BLOCK_TYPES[type_id]
    # More than one chunk of rows.
    rows = random_rows(type_id, 1100, max(4, 256 // block.block_size))
    width = rows.shape[1] // block.num_bytes * block.block_size
    values = dequantise(rows, block, range(width))
    expected = oracle(rows, type_id)
    assert np.isfinite(expected).mean() > 0.5
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("type_id", sorted(BLOCK_TYPES), ids=lambda t: BLOCK_TYPES[t].name)
@pytest.mark.parametrize("columns", [(0, 256), (256, 512), (31, 290), (100, 101)])
def test_columns_of_rows(type_id, columns):
    block = BLOCK_TYPES[type_id]
    rows = random_rows(type_id, 5, 768 // block.block_size)
    whole = dequantise(rows, block, range(768))
    part = dequantise(rows[1:4], block, range(*columns))
    assert part.flags.c_contiguous
    np.testing.assert_array_equal(part, whole[1:4, slice(*columns)])


def test_float32_is_itself():
    values = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_array_equal(
        dequantise(values.view(np.uint8), BLOCK_TYPES[0], range(8)), values
    )
