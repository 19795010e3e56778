"""Tensors out of one or several safetensors files."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from headrace.errors import WeightsError
from headrace.weights.source import TensorInfo, WeightSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

# Bytes an element. Other dtypes (FP8, integers) are quantised checkpoints, which need their scales.
_ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


class SafetensorsSource(WeightSource):
    """Memory-mapped; a slice reads only its own bytes."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Opens the files and reads their headers.

        Raises:
            WeightsError: A file is missing, its header is broken or longer than the file, two
                files hold one tensor, or a dtype is not supported.
        """
        self._files = ExitStack()
        self._handles: dict[str, Any] = {}
        tensors: dict[str, TensorInfo] = {}
        for path in files:
            try:
                handle = self._files.enter_context(safe_open(path, framework="pt", device="cpu"))
            except (OSError, SafetensorError) as error:
                self._files.close()
                raise WeightsError(f"{path}: not a readable safetensors file: {error}") from error
            for name in handle.keys():  # noqa: SIM118 - the handle is no mapping
                if name in tensors:
                    raise WeightsError(
                        f"tensor `{name}` is in both {tensors[name].file} and {path.name}"
                    )
                tensors[name] = _info(handle, name, path)
                self._handles[name] = handle
        self.tensors = tensors

    def read(self, name: str, rows: range | None = None, columns: range | None = None) -> Tensor:
        """See `WeightSource.read`."""
        info = self.tensors[name]
        if info.dtype not in _ELEMENT_BYTES:
            raise WeightsError(
                f"tensor `{name}` in {info.file} has dtype {info.dtype}, "
                f"supported are {', '.join(_ELEMENT_BYTES)}"
            )
        try:
            view = self._handles[name].get_slice(name)
            if not info.shape:
                data = self._handles[name].get_tensor(name)
            elif columns is None:
                data = view[_slice(rows)]
            else:
                data = view[_slice(rows), _slice(columns)]
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"tensor `{name}` in {info.file}: {error}") from error
        # A float32 tensor of the file may share the mapping: the copy gives it memory of its own.
        tensor: Tensor = data
        return tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)

    def close(self) -> None:
        """See `WeightSource.close`."""
        self._handles.clear()
        self._files.close()


def _info(handle: Any, name: str, path: Path) -> TensorInfo:  # noqa: ANN401 - untyped library
    view = handle.get_slice(name)
    shape = tuple(view.get_shape())
    dtype = str(view.get_dtype())
    count = 1
    for size in shape:
        count *= size
    return TensorInfo(shape, count * _ELEMENT_BYTES.get(dtype, 1), dtype, path.name)


def _slice(indices: range | None) -> slice:
    return slice(None) if indices is None else slice(indices.start, indices.stop)
