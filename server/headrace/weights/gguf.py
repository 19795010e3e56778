"""Tensors out of a GGUF file or its split parts, under Hugging Face's names.

Shape legend: N rows (out), K columns (in), H heads, D head size.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np
import torch

from headrace.errors import WeightsError
from headrace.weights.gguf_blocks import dequantise
from headrace.weights.gguf_header import GgufHeader, GgufTensor, Scalar, read_header
from headrace.weights.gguf_names import HEAD_INTERLEAVED, huggingface_name
from headrace.weights.source import TensorInfo, WeightSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor


class GgufSource(WeightSource):
    """Memory-mapped; dequantises to float32 only the rows and blocks that are asked for."""

    has_authoritative_output = True

    def __init__(self, files: Sequence[Path]) -> None:
        """Maps the files and reads their headers.

        Raises:
            WeightsError: A file is missing, broken, out of order or of an unknown architecture.
        """
        self._maps: list[mmap.mmap] = []
        self._entries: dict[str, tuple[GgufTensor, memoryview]] = {}
        tensors: dict[str, TensorInfo] = {}
        metadata: Mapping[str, Scalar] = {}
        for index, path in enumerate(files):
            data = self._map(path)
            header = read_header(data, path.name)
            _check_part(header, index, len(files), path.name)
            if index == 0:
                metadata = header.metadata
                self._architecture = _architecture(metadata, path.name)
            for gguf_name, tensor in header.tensors.items():
                name = huggingface_name(gguf_name)
                if name in tensors:
                    raise WeightsError(
                        f"tensor `{gguf_name}` is in both {tensors[name].file} and {path.name}"
                    )
                tensors[name] = TensorInfo(
                    tensor.shape, tensor.num_bytes, tensor.block_type.name, path.name
                )
                self._entries[name] = (tensor, data)
        _check_total(metadata, len(tensors), files[0].name)
        self._num_heads = _head_counts(metadata, self._architecture, files[0].name)
        self.tensors = tensors

    def read(self, name: str, rows: range | None = None, columns: range | None = None) -> Tensor:
        """See `WeightSource.read`."""
        tensor, data = self._entries[name]
        if self._is_interleaved(name):
            return self._read_interleaved(name, rows, columns)
        return _read(tensor, data, rows, columns)

    def close(self) -> None:
        """See `WeightSource.close`."""
        for _, data in self._entries.values():
            data.release()
        self._entries.clear()
        for mapping in self._maps:
            mapping.close()
        self._maps.clear()

    def _map(self, path: Path) -> memoryview:
        try:
            with path.open("rb") as file:
                mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise WeightsError(f"{path}: not a readable GGUF file: {error}") from error
        self._maps.append(mapping)
        return memoryview(mapping)

    def _is_interleaved(self, name: str) -> bool:
        return self._architecture in HEAD_INTERLEAVED and any(
            part in name for part in (".q_proj.", ".k_proj.")
        )

    def _read_interleaved(self, name: str, rows: range | None, columns: range | None) -> Tensor:
        """Undoes the order in which llama files keep the rows of the query and key projections.

        There the two values that one rotation turns lie side by side; here (as in Hugging Face's
        checkpoints) the first halves of all pairs of a head come before the second halves.
        """
        tensor, data = self._entries[name]
        num_heads, num_kv_heads = self._num_heads
        heads = num_heads if ".q_proj." in name else num_kv_heads
        if tensor.shape[0] % (2 * heads):
            raise WeightsError(
                f"tensor `{name}` has {tensor.shape[0]} rows, which are not {heads} heads"
            )
        head_dim = tensor.shape[0] // heads
        wanted = range(tensor.shape[0]) if rows is None else rows
        first = wanted.start // head_dim * head_dim
        end = -(-wanted.stop // head_dim) * head_dim
        stored = _read(tensor, data, range(first, end), columns)
        pairs = stored.view(-1, head_dim // 2, 2, *stored.shape[1:])
        ordered = pairs.transpose(1, 2).reshape(stored.shape)
        return ordered[wanted.start - first : wanted.stop - first].contiguous()


def _read(
    tensor: GgufTensor, data: memoryview, rows: range | None, columns: range | None
) -> Tensor:
    """A slice of a vector or matrix, as stored."""
    if len(tensor.shape) == 1:
        wanted = range(tensor.shape[0]) if rows is None else rows
        packed = _bytes(tensor, data).reshape(1, -1)
        return torch.from_numpy(dequantise(packed, tensor.block_type, wanted)[0])
    width = tensor.shape[-1]
    packed = _bytes(tensor, data).reshape(
        -1, width // tensor.block_type.block_size * tensor.block_type.num_bytes
    )
    if rows is not None:
        packed = packed[rows.start : rows.stop]
    values = dequantise(packed, tensor.block_type, range(width) if columns is None else columns)
    return torch.from_numpy(values)


def _bytes(tensor: GgufTensor, data: memoryview) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, dtype=np.uint8, count=tensor.num_bytes, offset=tensor.start)


def _architecture(metadata: Mapping[str, Scalar], file: str) -> str:
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise WeightsError(f"{file}: `general.architecture` is missing")
    return name


def _head_counts(metadata: Mapping[str, Scalar], architecture: str, file: str) -> tuple[int, int]:
    """Query and KV heads, by the file itself: the order of its rows depends on them."""
    key = f"{architecture}.attention.head_count"
    heads = metadata.get(key)
    kv_heads = metadata.get(f"{key}_kv", heads)
    for count in (heads, kv_heads):
        if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
            raise WeightsError(f"{file}: `{key}` or `{key}_kv` is not a positive integer")
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    return heads, kv_heads


def _check_part(header: GgufHeader, index: int, num_files: int, file: str) -> None:
    """A part of a split file says which it is, and of how many."""
    count = header.metadata.get("split.count", 0)
    number = header.metadata.get("split.no", 0)
    if count in (0, 1) and num_files == 1:
        return
    if count != num_files or number != index:
        raise WeightsError(
            f"{file}: says it is part {number} of {count} (from 0), "
            f"but it was given as part {index} of {num_files}"
        )


def _check_total(metadata: Mapping[str, Scalar], num_tensors: int, file: str) -> None:
    promised = metadata.get("split.tensors.count", num_tensors)
    if promised != num_tensors:
        raise WeightsError(f"{file}: promises {promised} tensors, the parts hold {num_tensors}")
