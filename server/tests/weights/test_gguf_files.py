"""GGUF files: parts, slices, and every way a header can lie."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from headrace.errors import WeightsError
from headrace.weights.gguf import GgufSource
from headrace.weights.gguf_header import read_header

TENSORS = {
    "token_embd.weight": (48, 64),
    "output_norm.weight": (64,),
    "blk.0.ffn_down.weight": (64, 96),
    "blk.0.attn_v.weight": (32, 64),
}


def write(path, architecture="llama", tensors=TENSORS, extra=None, **options):
    """A file of random tensors; returns them."""
    writer = gguf.GGUFWriter(path, architecture, **options)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_token_list([f"token {i}" for i in range(48)])
    writer.add_token_scores([0.5] * 48)
    writer.add_bool("a.flag", True)
    for key, value in (extra or {}).items():
        writer.add_uint16(key, value)
    random = np.random.default_rng(0)
    values = {}
    for name, shape in tensors.items():
        values[name] = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quantize(values[name], kind)
            values[name] = gguf.dequantize(packed, kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
        else:
            writer.add_tensor(name, values[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def refusal(files):
    with pytest.raises(WeightsError) as caught:
        GgufSource(files)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_whole_tensors_and_slices(tmp_path):
    values = write(tmp_path / "m.gguf")
    source = GgufSource([tmp_path / "m.gguf"])
    assert source.tensors["model.embed_tokens.weight"].shape == (48, 64)
    down = torch.from_numpy(values["blk.0.ffn_down.weight"])
    name = "model.layers.0.mlp.down_proj.weight"
    assert torch.equal(source.read(name), down)
    assert torch.equal(source.read(name, rows=range(3, 9)), down[3:9])
    assert torch.equal(source.read(name, columns=range(33, 96)), down[:, 33:96])
    part = source.read(name, range(60, 64), range(5))
    assert torch.equal(part, down[60:64, :5])
    assert part.is_contiguous()
    norm = torch.from_numpy(values["output_norm.weight"])
    assert torch.equal(source.read("model.norm.weight"), norm)
    assert torch.equal(source.read("model.norm.weight", rows=range(5, 7)), norm[5:7])
    source.close()
    # Memory of their own: they outlive the mapping.
    assert part.sum().isfinite()


def test_split_files(tmp_path):
    values = write(tmp_path / "m.gguf", split_max_tensors=2)
    files = sorted(tmp_path.glob("m-*.gguf"))
    assert len(files) == 2
    source = GgufSource(files)
    assert len(source.tensors) == len(TENSORS)
    v = torch.from_numpy(values["blk.0.attn_v.weight"])
    assert torch.equal(source.read("model.layers.0.self_attn.v_proj.weight"), v)
    assert files[1].name in refusal(files[::-1])
    assert files[0].name in refusal(files[:1])


def test_version_2(tmp_path):
    write(tmp_path / "m.gguf")
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    data[4:8] = struct.pack("<I", 2)
    header = read_header(memoryview(data), "m.gguf")
    assert header.version == 2
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["a.flag"] is True
    assert set(header.tensors) == set(TENSORS)


def test_every_truncation_is_one_line(tmp_path):
    write(tmp_path / "m.gguf")
    data = (tmp_path / "m.gguf").read_bytes()
    for length in [*range(4000), len(data) - 1]:
        with pytest.raises(WeightsError, match=r"^m\.gguf: .*"):
            read_header(memoryview(data)[:length], "m.gguf")


def test_flipped_bytes_never_raise_anything_else(tmp_path):
    write(tmp_path / "m.gguf")
    data = (tmp_path / "m.gguf").read_bytes()
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(3000):
        broken = bytearray(data)
        for position in random.integers(4, 2600, random.integers(1, 4)):
            broken[position] = random.integers(0, 256)
        try:
            header = read_header(memoryview(broken), "m.gguf")
        except WeightsError:
            refused += 1
            continue
        for tensor in header.tensors.values():
            assert 0 <= tensor.start <= tensor.start + tensor.num_bytes <= len(data)
    assert refused > 300


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "truncated"),
        (b"GGML" + b"\0" * 60, "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + b"\0" * 60, "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + b"\0" * 60, "big endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0), "number of tensors is 18446744073709551615"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE), "number of metadata pairs"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, HUGE) + b"\0" * 99, "length of metadata key"),
        (b"GGUF" + struct.pack("<IQQQsI", 3, 0, 1, 1, b"k", 77) + b"\0" * 99, "unknown type 77"),
        (
            b"GGUF" + struct.pack("<IQQQsIIQ", 3, 0, 1, 1, b"k", 9, 10, 1 << 61) + b"\0" * 99,
            "length of `k` is",
        ),
        (
            b"GGUF" + struct.pack("<IQQQsI", 3, 0, 1, 1, b"k", 9) + struct.pack("<IQ", 9, 1) * 9,
            "nests",
        ),
        (
            b"GGUF" + struct.pack("<IQQQsIQQIQ", 3, 1, 0, 1, b"t", 2, 1 << 63, 1 << 63, 0, 0),
            "tensor `t` ends at byte",
        ),
        (b"GGUF" + struct.pack("<IQQQsI", 3, 1, 0, 1, b"t", 9) + b"\0" * 99, "9 dimensions"),
        (b"GGUF" + struct.pack("<IQQQsIQIQ", 3, 1, 0, 1, b"t", 1, 32, 77, 0), "GGML type 77"),
        (b"GGUF" + struct.pack("<IQQQsIQIQ", 3, 1, 0, 1, b"t", 1, 33, 8, 0), "Q8_0"),
        (b"GGUF" + struct.pack("<IQQQsIQIQ", 3, 1, 0, 1, b"t", 1, 0, 0, 0), "empty"),
        (b"GGUF" + struct.pack("<IQQQsIQIQ", 3, 1, 0, 1, b"t", 1, 1, 0, HUGE), "not aligned"),
    ],
)
def test_absurd_headers(data, words):
    with pytest.raises(WeightsError, match=r"^m\.gguf: ") as caught:
        read_header(memoryview(data), "m.gguf")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_empty_files(tmp_path):
    assert "gone.gguf" in refusal([tmp_path / "gone.gguf"])
    Path(tmp_path / "empty.gguf").touch()
    assert "empty.gguf" in refusal([tmp_path / "empty.gguf"])


def test_one_tensor_in_two_parts(tmp_path):
    files = [tmp_path / "first.gguf", tmp_path / "second.gguf"]
    for number, path in enumerate(files):
        write(path, extra={"split.no": number, "split.count": 2})
    message = refusal(files)
    assert "`token_embd.weight` is in both first.gguf and second.gguf" in message


def test_parts_that_hold_less_than_promised(tmp_path):
    write(tmp_path / "m.gguf", extra={"split.tensors.count": 5})
    assert "m.gguf: promises 5 tensors, the parts hold 4" in refusal([tmp_path / "m.gguf"])


def test_no_architecture(tmp_path):
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
    (tmp_path / "m.gguf").write_bytes(header)
    assert "`general.architecture` is missing" in refusal([tmp_path / "m.gguf"])
