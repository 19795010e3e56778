"""Slices of safetensors files, in float32 and in memory of their own."""

import torch
from headrace.weights.safetensors import SafetensorsSource
from safetensors.torch import save_file


def test_slices(tmp_path):
    matrix = torch.randn(10, 8).to(torch.bfloat16)
    vector = torch.randn(6)
    save_file({"m": matrix}, tmp_path / "a.safetensors")
    save_file({"v": vector}, tmp_path / "b.safetensors")
    source = SafetensorsSource([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    assert source.tensors["m"].shape == (10, 8)
    assert source.tensors["m"].num_bytes == 160
    assert source.tensors["v"].file == "b.safetensors"
    read = {
        "whole": source.read("m"),
        "rows": source.read("m", rows=range(2, 5)),
        "columns": source.read("m", columns=range(3, 8)),
        "both": source.read("m", range(9, 10), range(1)),
        "vector": source.read("v", rows=range(1, 3)),
    }
    source.close()
    wide = matrix.float()
    assert torch.equal(read["whole"], wide)
    assert torch.equal(read["rows"], wide[2:5])
    assert torch.equal(read["columns"], wide[:, 3:8])
    assert torch.equal(read["both"], wide[9:10, :1])
    assert torch.equal(read["vector"], vector[1:3])
    assert all(t.dtype == torch.float32 and t.is_contiguous() for t in read.values())
