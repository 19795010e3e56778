"""The native op set: near the torch oracle, and the same bits in any batch, chunks and threads."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from headrace import _kernels
from headrace.ops import AttentionMetadata, TorchOpSet, select_op_set
from headrace.ops.native import NativeOpSet, set_compute_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.ops import OpSet

ORACLE = TorchOpSet(torch.device("cpu"), torch.float32)
#: The scalar set emulates multiply-adds; the tests of the crate cover it.
VECTOR_SETS = [name for name in _kernels.kernel_sets() if name != "scalar"] or ["scalar"]


@pytest.fixture(params=VECTOR_SETS)
def native(request: pytest.FixtureRequest) -> Iterator[NativeOpSet]:
    before = _kernels.kernel_set()
    _kernels.set_kernel_set(request.param)
    set_compute_threads(2)
    torch.manual_seed(0)
    yield NativeOpSet()
    _kernels.set_kernel_set(before)


def test_linear_rows_are_near_the_oracle_and_have_the_same_bits(native: NativeOpSet) -> None:
    for out_features, in_features in [(1536, 576), (576, 1536), (100, 64), (3, 8)]:
        weight = torch.randn(out_features, in_features) / in_features**0.5
        bias = torch.randn(out_features)
        packed = native.pack_linear(weight)
        x = torch.randn(64, in_features)
        whole = native.linear(x, packed, bias)
        expected = ORACLE.linear(x, ORACLE.pack_linear(weight), bias)
        torch.testing.assert_close(whole, expected, atol=1e-4, rtol=1e-4)
        for threads in (1, 2, 3):
            set_compute_threads(threads)
            for rows in (1, 2, 16, 17, 64):
                assert torch.equal(native.linear(x[:rows], packed, bias), whole[:rows])
                assert torch.equal(native.linear(x[-rows:], packed, bias), whole[-rows:])


def test_row_ops_are_near_the_oracle_and_have_the_same_bits(native: NativeOpSet) -> None:
    x, residual, weight = torch.randn(64, 576), torch.randn(64, 576), torch.randn(576)
    gate_up = torch.randn(64, 2 * 1537) * 4
    normed, total = native.add_rms_norm(x, residual, weight, 1e-5)
    for actual, expected in [
        (native.rms_norm(x, weight, 1e-5), ORACLE.rms_norm(x, weight, 1e-5)),
        (normed, ORACLE.add_rms_norm(x, residual, weight, 1e-5)[0]),
        (total, x + residual),
        (native.silu_mul(gate_up), ORACLE.silu_mul(gate_up)),
    ]:
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    for rows in (1, 2, 16, 17):
        part = native.add_rms_norm(x[-rows:], residual[-rows:], weight, 1e-5)[0]
        assert torch.equal(part, normed[-rows:])
        assert torch.equal(native.silu_mul(gate_up[-rows:]), native.silu_mul(gate_up)[-rows:])


def test_strided_rows_are_the_same_as_contiguous_ones(native: NativeOpSet) -> None:
    fused = torch.randn(5, 3 * 32)
    q, k, v = fused.split(32, dim=1)
    weight = torch.randn(32)
    assert torch.equal(
        native.rms_norm(k, weight, 0.1), native.rms_norm(k.contiguous(), weight, 0.1)
    )
    packed = native.pack_linear(torch.randn(7, 32))
    assert torch.equal(native.linear(v, packed, None), native.linear(v.contiguous(), packed, None))
    cos, sin, positions = torch.randn(9, 4), torch.randn(9, 4), torch.tensor([8, 0, 3, 3, 1])
    expected_q, expected_k = q.reshape(5, 2, 16).clone(), k.reshape(5, 2, 16).clone()
    ORACLE.rotary(expected_q, expected_k, cos, sin, positions)
    native.rotary(q.unflatten(1, (2, 16)), k.unflatten(1, (2, 16)), cos, sin, positions)
    torch.testing.assert_close(q.reshape(5, 2, 16), expected_q, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(k.reshape(5, 2, 16), expected_k, atol=1e-6, rtol=1e-6)


def test_reductions_for_sampling(native: NativeOpSet) -> None:
    logits = torch.randn(17, 4999) * 5
    logits[3, 100] = logits[3, 4000] = 50.0
    logits[4] = float("-inf")
    logits[4, 4998] = -3.0
    index, logsumexp = native.argmax_logsumexp(logits)
    expected_index, expected_logsumexp = ORACLE.argmax_logsumexp(logits)
    assert torch.equal(index, expected_index)
    assert (index[3], index[4]) == (100, 4998)
    torch.testing.assert_close(logsumexp, expected_logsumexp, atol=1e-5, rtol=1e-6)
    assert torch.equal(native.argmax_logsumexp(logits[5:6])[1], logsumexp[5:6])
    logits[6, 4998] = float("nan")
    logits[7, 0] = float("inf")
    expected = torch.zeros(17, dtype=torch.bool)
    expected[[4, 6, 7]] = True
    assert torch.equal(native.non_finite(logits), expected)
    assert torch.equal(ORACLE.non_finite(logits), expected)


def _attend_in_chunks(
    ops: OpSet,
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    chunk: int,
    block_size: int,
    window: int | None,
) -> torch.Tensor:
    q, k, v = qkv
    length, heads, head_dim = k.shape
    blocks = -(-length // block_size)
    kv = ops.attention.allocate(blocks + 1, heads, head_dim, block_size, poison=True)
    table = list(range(blocks, 0, -1))
    out = []
    for start in range(0, length, chunk):
        end = min(length, start + chunk)
        metadata = AttentionMetadata.from_rows([end - start], [start], [table], block_size)
        ops.attention.write(kv, k[start:end], v[start:end], metadata)
        out.append(ops.attention.attend(q[start:end], kv, metadata, head_dim**-0.5, window))
    return torch.cat(out)


@pytest.mark.parametrize("window", [None, 48])
@pytest.mark.parametrize(
    ("q_heads", "kv_heads", "head_dim", "block_size"),
    [
        (4, 4, 16, 16),
        (9, 3, 64, 16),
        (8, 2, 32, 32),
        (14, 2, 64, 8),
        (8, 1, 128, 16),
        (3, 1, 80, 16),
    ],
)
def test_attention_is_near_the_oracle_with_the_same_bits_in_any_chunks(
    native: NativeOpSet,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    window: int | None,
) -> None:
    length = 530
    q = torch.randn(length, q_heads, head_dim) * 3
    k, v = (torch.randn(length, kv_heads, head_dim) for _ in range(2))
    whole = _attend_in_chunks(native, (q, k, v), 512, block_size, window)
    oracle = _attend_in_chunks(ORACLE, (q, k, v), length, block_size, window)
    torch.testing.assert_close(whole, oracle, atol=1e-5, rtol=1e-4)
    for threads, chunk in [(1, 64), (2, 16), (2, 1), (3, 530)]:
        set_compute_threads(threads)
        assert torch.equal(_attend_in_chunks(native, (q, k, v), chunk, block_size, window), whole)


def test_what_does_not_fit_is_refused_by_name(native: NativeOpSet) -> None:
    packed = native.pack_linear(torch.randn(7, 32))
    with pytest.raises(ValueError, match="x has 31 features"):
        native.linear(torch.randn(2, 31), packed, None)
    with pytest.raises(ValueError, match="float32"):
        native.linear(torch.randn(2, 32).bfloat16(), packed, None)
    with pytest.raises(ValueError, match="not contiguous"):
        native.linear(torch.randn(32, 2).T, packed, None)
    with pytest.raises(ValueError, match="packed as"):
        native.linear(torch.randn(2, 32), ORACLE.pack_linear(torch.randn(7, 32)), None)
    with pytest.raises(ValueError, match="block size 12"):
        native.attention.allocate(4, 1, 64, 12)
    with pytest.raises(ValueError, match="head_dim 20"):
        native.attention.allocate(4, 1, 20, 16)
    heads = torch.zeros(1, 1, 16)
    with pytest.raises(ValueError, match="outside the tables"):
        native.rotary(heads, heads.clone(), torch.ones(4, 8), torch.ones(4, 8), torch.tensor([4]))
    kv = native.attention.allocate(2, 1, 16, 16)
    metadata = AttentionMetadata.from_rows([1], [0], [[2]], 16)
    with pytest.raises(ValueError, match="a block outside"):
        native.attention.attend(torch.zeros(1, 1, 16), kv, metadata, 1.0, None)


def test_selection() -> None:
    assert select_op_set("cpu", torch.float32).name == f"native-{_kernels.kernel_set()}"
    assert select_op_set("cpu", torch.float32, "torch").name == "torch"
    assert select_op_set("cpu", torch.bfloat16).name == "torch"
    with pytest.raises(ValueError, match=r"not torch\.bfloat16"):
        select_op_set("cpu", torch.bfloat16, "native")


@pytest.mark.parametrize("name", [*_kernels.kernel_sets(), "sse9"])
def test_the_environment_forces_a_kernel_set(name: str) -> None:
    code = "from headrace import _kernels; print(_kernels.kernel_set())"
    environment = {**os.environ, "HEADRACE_KERNEL_SET": name}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if name == "sse9":
        assert done.returncode == 1
        assert "'sse9' is not one of" in done.stderr.replace('"', "'")
    else:
        assert done.stdout.strip() == name
