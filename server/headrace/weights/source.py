"""The one way models read tensors, whatever the file format.

Names and shapes are Hugging Face's ([out, in] for a linear layer). Values come as float32 copies in
memory of their own; the file stays memory-mapped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from torch import Tensor

    from headrace.document import WeightFiles

STAGE = "weights"
"""What progress calls this work: `progress("weights", 1024, 4096, "bytes")`."""


@dataclass(frozen=True)
class TensorInfo:
    """What a file's header says of a tensor.

    Attributes:
        shape: As Hugging Face names it: [out, in] for a linear layer.
        num_bytes: Bytes in the file, for progress.
        dtype: The file's word for the element or block type, for messages.
        file: Name of the file, for messages.
    """

    shape: tuple[int, ...]
    num_bytes: int
    dtype: str
    file: str


class WeightSource(ABC):
    """Tensors by name.

    Attributes:
        tensors: What the files hold, by Hugging Face name.
        has_authoritative_output: Whether an output projection in the file is used even when the
            configuration ties it to the embedding (GGUF has no such key; the tensor decides).
    """

    tensors: Mapping[str, TensorInfo]
    has_authoritative_output: bool = False

    @abstractmethod
    def read(self, name: str, rows: range | None = None, columns: range | None = None) -> Tensor:
        """Reads a tensor, or only some of its rows (dimension 0) and columns (dimension 1).

        Args:
            name: A key of `tensors`.
            rows: A contiguous range; absent: all.
            columns: A contiguous range, of a matrix only; absent: all.

        Returns:
            float32, contiguous, in memory of its own.

        Raises:
            WeightsError: The file is broken there.
        """

    @abstractmethod
    def close(self) -> None:
        """Unmaps the files."""


def open_weights(weights: WeightFiles) -> WeightSource:
    """Opens the files and reads their headers, nothing more.

    Raises:
        WeightsError: A file is missing or its header is broken; one line that names the file.
    """
    if weights.format == "gguf":
        from headrace.weights.gguf import GgufSource

        return GgufSource(weights.files)
    from headrace.weights.safetensors import SafetensorsSource

    return SafetensorsSource(weights.files)


def check_tensors(
    source: WeightSource,
    expected: Mapping[str, tuple[int, ...]],
    optional: Collection[str] = (),
    ignored: Callable[[str], bool] = lambda _: False,
) -> None:
    """Compares what the files hold with what the model needs, before anything is read.

    Args:
        source: The files.
        expected: Shape of each tensor, by name.
        optional: Names of `expected` that may be absent.
        ignored: Whether a tensor that is not expected is known and harmless.

    Raises:
        WeightsError: The first missing, mis-shaped or unexpected tensor, and its file.
    """
    files = _name_of(sorted({info.file for info in source.tensors.values()}))
    for name, shape in expected.items():
        info = source.tensors.get(name)
        if info is None:
            if name in optional:
                continue
            raise WeightsError(f"tensor `{name}` is missing from {files}")
        if info.shape != shape:
            raise WeightsError(
                f"tensor `{name}` in {info.file} has shape {list(info.shape)}, "
                f"the configuration asks for {list(shape)}"
            )
    for name, info in source.tensors.items():
        if name not in expected and not ignored(name):
            raise WeightsError(f"tensor `{name}` in {info.file} is not one of this model's")


class WeightReader:
    """Reads tensors of a source and reports how far it is."""

    def __init__(
        self,
        source: WeightSource,
        total_bytes: int,
        progress: Callable[[str, int, int, str], None],
    ) -> None:
        """Starts at zero of `total_bytes` (of the files, on this rank)."""
        self.source = source
        self._progress = progress
        self._total = total_bytes
        self._done = 0
        progress(STAGE, 0, total_bytes, "bytes")

    def read(self, name: str, rows: range | None = None, columns: range | None = None) -> Tensor:
        """Reads as `WeightSource.read` does, and reports."""
        info = self.source.tensors[name]
        tensor = self.source.read(name, rows, columns)
        share = _share(info, rows, columns)
        self._done = min(self._done + share, self._total)
        self._progress(STAGE, self._done, self._total, "bytes")
        return tensor

    def finish(self) -> None:
        """Reports that all is read: slices round, so the sum may be some bytes off."""
        self._progress(STAGE, self._total, self._total, "bytes")

    def __contains__(self, name: str) -> bool:
        """Whether the files hold the tensor."""
        return name in self.source.tensors


def _name_of(files: list[str]) -> str:
    if not files:
        return "the files, which hold no tensors"
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _share(info: TensorInfo, rows: range | None, columns: range | None) -> int:
    share = info.num_bytes
    if rows is not None and info.shape[0]:
        share = share * len(rows) // info.shape[0]
    if columns is not None and info.shape[1]:
        share = share * len(columns) // info.shape[1]
    return share
