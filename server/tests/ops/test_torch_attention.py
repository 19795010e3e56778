"""The oracle's own oracle: paged attention in torch against torch's SDPA over contiguous keys."""

from __future__ import annotations

import pytest
import torch
from headrace.ops import AttentionMetadata, TorchOpSet
from torch.nn.functional import scaled_dot_product_attention

BLOCK_SIZE = 16
HEAD_DIM = 32


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("heads", [(4, 4), (9, 3), (8, 1)])
def test_rows_equal_sdpa(heads: tuple[int, int], window: int | None) -> None:
    torch.manual_seed(0)
    query_heads, kv_heads = heads
    attention = TorchOpSet(torch.device("cpu"), torch.float32).attention
    kv = attention.allocate(12, kv_heads, HEAD_DIM, BLOCK_SIZE, poison=True)
    tables = [[3, 7, 1], [2], [11, 5]]
    lengths = [40, 9, 32]
    history = [
        (torch.randn(n, kv_heads, HEAD_DIM), torch.randn(n, kv_heads, HEAD_DIM)) for n in lengths
    ]
    computed = [0, 0, 0]
    # Row 0 in two chunks, row 1 one token at a time, row 2 whole: all mixed in the same steps.
    for counts in ([25, 8, 32], [15, 1]):
        rows = range(len(counts))
        metadata = AttentionMetadata.from_rows(
            counts, computed[: len(counts)], [tables[r] for r in rows], BLOCK_SIZE
        )
        q = torch.randn(sum(counts), query_heads, HEAD_DIM)
        k = torch.cat([history[r][0][computed[r] : computed[r] + counts[r]] for r in rows])
        v = torch.cat([history[r][1][computed[r] : computed[r] + counts[r]] for r in rows])
        attention.write(kv, k, v, metadata)
        out = attention.attend(q, kv, metadata, 0.2, window)
        for r in rows:
            start, end = metadata.row_starts[r : r + 2].tolist()
            length = computed[r] + counts[r]
            p = torch.arange(computed[r], length)[:, None]
            j = torch.arange(length)[None, :]
            mask = (j <= p) if window is None else (j <= p) & (p - j < window)
            expected = scaled_dot_product_attention(
                q[start:end].transpose(0, 1)[None],
                history[r][0][:length].transpose(0, 1)[None],
                history[r][1][:length].transpose(0, 1)[None],
                attn_mask=mask,
                scale=0.2,
                enable_gqa=True,
            )[0].transpose(0, 1)
            torch.testing.assert_close(out[start:end], expected, atol=1e-5, rtol=1e-5)
            computed[r] = length
