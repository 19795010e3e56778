"""Native fp32 CPU kernels beside torch, in one run: products, attention, small ops.

Each figure is the best of many calls (the median in brackets); weights rotate over copies, so that they
come from memory as they do in a model. ``cargo run -p headrace-kernels --example limits 2`` says what
the machine could do at most.

Usage: PYTHONPATH=server python bench/kernels.py [threads]
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import torch
from headrace.ops import AttentionMetadata
from headrace.ops.native import NativeOpSet, set_compute_threads
from torch.nn.functional import linear, scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable

#: (out features, in features, copies of the weight)
PRODUCTS = [(1536, 576, 100), (576, 1536, 100), (49152, 576, 3)]
ROWS = [1, 4, 16, 64, 256]
#: SmolLM2-135M: query heads, key-value heads, head dimension.
HEADS = (9, 3, 64)
BLOCK_SIZE = 16


def measure(call: Callable[[int], object], runs: int) -> tuple[float, float]:
    """Seconds of the fastest and of the median call."""
    call(0)
    times = []
    for run in range(runs):
        start = time.perf_counter()
        call(run)
        times.append(time.perf_counter() - start)
    times.sort()
    return times[0], times[len(times) // 2]


def figure(seconds: tuple[float, float], amount: float) -> str:
    """Amount per second, best (median)."""
    return f"{amount / seconds[0]:6.1f} ({amount / seconds[1]:6.1f})"


def products(ops: NativeOpSet) -> None:
    """GFLOP/s and GB/s of weights."""
    print("product         rows   native GFLOP/s   native GB/s      torch GFLOP/s")
    for n, k, copies in PRODUCTS:
        weights = [torch.randn(n, k) for _ in range(copies)]
        packed = [ops.pack_linear(weight) for weight in weights]
        runs = 400 if copies > 3 else 12
        for rows in ROWS:
            x = torch.randn(rows, k)
            native = measure(lambda i: ops.linear(x, packed[i % copies], None), runs)  # noqa: B023
            other = measure(lambda i: linear(x, weights[i % copies]), runs)  # noqa: B023
            flops, size = 2e-9 * rows * n * k, 4e-9 * n * k
            print(
                f"{n:>6} x {k:<5} {rows:>6} {figure(native, flops)}  {figure(native, size)} "
                f" {figure(other, flops)}"
            )


def dense_attention(rows: int, tokens: int, context: int) -> Callable[[int], object]:
    """Attention of torch over contiguous keys."""
    q_heads, kv_heads, dim = HEADS
    q = torch.randn(rows, q_heads, tokens, dim)
    k, v = (torch.randn(rows, kv_heads, context, dim) for _ in range(2))
    mask = torch.ones(tokens, context, dtype=torch.bool).tril(context - tokens)
    return lambda _: scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def attention(ops: NativeOpSet) -> None:
    """Microseconds of one layer; torch gets contiguous keys, without paging."""
    q_heads, kv_heads, dim = HEADS
    print("attention                      native us            torch SDPA us")
    for rows, tokens, context in [
        (1, 1, 128), (1, 1, 1024), (16, 1, 256), (32, 1, 256), (1, 512, 512), (1, 512, 2048),
    ]:  # fmt: skip
        blocks = -(-context // BLOCK_SIZE)
        kv = ops.attention.allocate(rows * blocks, kv_heads, dim, BLOCK_SIZE)
        kv.keys.normal_()
        kv.values.normal_()
        tables = [list(range(r * blocks, (r + 1) * blocks)) for r in range(rows)]
        metadata = AttentionMetadata.from_rows(
            [tokens] * rows, [context - tokens] * rows, tables, BLOCK_SIZE
        )
        q = torch.randn(rows * tokens, q_heads, dim)
        native = measure(lambda _: ops.attention.attend(q, kv, metadata, 0.125, None), 60)  # noqa: B023
        other = measure(dense_attention(rows, tokens, context), 60)
        name = f"{rows} x {tokens} tokens at {context}"
        print(
            f"{name:<28} {native[0] * 1e6:8.0f} ({native[1] * 1e6:8.0f}) "
            f"{other[0] * 1e6:8.0f} ({other[1] * 1e6:8.0f})"
        )


def small_ops(ops: NativeOpSet) -> None:
    """Microseconds of a call with few rows, Python included."""
    print("op                       us")
    weight, x, gate_up = torch.randn(576), torch.randn(1, 576), torch.randn(1, 3072)
    logits, wide = torch.randn(1, 49152), torch.randn(32, 3072)
    for name, call in [
        ("add_rms_norm 1 x 576", lambda _: ops.add_rms_norm(x, x, weight, 1e-5)),
        ("silu_mul 1 x 1536", lambda _: ops.silu_mul(gate_up)),
        ("silu_mul 32 x 1536", lambda _: ops.silu_mul(wide)),
        ("argmax_logsumexp 1 x 49152", lambda _: ops.argmax_logsumexp(logits)),
        ("non_finite 1 x 576", lambda _: ops.non_finite(x)),
    ]:
        best, median = measure(call, 500)
        print(f"{name:<28} {best * 1e6:6.1f} ({median * 1e6:6.1f})")


def main() -> None:
    """Runs everything."""
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    set_compute_threads(threads)
    torch.set_num_threads(threads)
    ops = NativeOpSet()
    print(f"{ops.name}, {threads} threads")
    small_ops(ops)
    attention(ops)
    products(ops)


if __name__ == "__main__":
    main()
