"""The header of a GGUF file, read with suspicion: every size is bounded before it is used.

Layout (little endian, versions 2 and 3): magic "GGUF", u32 version, u64 number of tensors, u64 number
of metadata pairs; the pairs (string key, u32 type, value); the tensors (string name, u32 number of
dimensions, u64 dimensions fastest first, u32 block type, u64 offset); padding to the alignment; data.
A string is a u64 length and UTF-8 bytes. An array is a u32 type, a u64 count and the values.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import WeightsError
from headrace.weights.gguf_blocks import BLOCK_TYPES, BlockType

if TYPE_CHECKING:
    from collections.abc import Mapping

Scalar = int | float | bool | str

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT_BYTES = 32
_MAX_ALIGNMENT_BYTES = 1 << 20
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 1 << 16
_MAX_ARRAY_DEPTH = 4
# Least bytes that one entry takes: what a count must not promise beyond the end of the file.
_MIN_PAIR_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8

_STRING = 8
_ARRAY = 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32 = _SCALARS[4]
_U64 = _SCALARS[10]


@dataclass(frozen=True)
class GgufTensor:
    """One tensor of the file.

    Attributes:
        shape: Slowest dimension first, as Hugging Face has it.
        block_type: How its values are packed.
        start: First byte, from the start of the file.
        num_bytes: Bytes from there.
    """

    shape: tuple[int, ...]
    block_type: BlockType
    start: int
    num_bytes: int


@dataclass(frozen=True)
class GgufHeader:
    """What a file's header says.

    Attributes:
        version: 2 or 3.
        metadata: Scalars and strings; arrays (the vocabulary) are left out: workers know no text.
        tensors: By the file's own names.
    """

    version: int
    metadata: Mapping[str, Scalar]
    tensors: Mapping[str, GgufTensor]


def read_header(data: memoryview, file: str) -> GgufHeader:
    """Reads a header.

    Args:
        data: The whole file.
        file: Its name, for messages.

    Raises:
        WeightsError: One line that names the file and what is wrong.
    """
    cursor = _Cursor(data, file)
    if bytes(cursor.take(4, "magic")) != _MAGIC:
        raise WeightsError(f"{file}: not a GGUF file (it does not start with `GGUF`)")
    version = cursor.u32("version")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        reason = "big endian" if swapped in _VERSIONS else f"version {version}"
        raise WeightsError(f"{file}: GGUF {reason} is not supported, versions 2 and 3 are")
    num_tensors = cursor.count("number of tensors", _MIN_TENSOR_BYTES)
    num_pairs = cursor.count("number of metadata pairs", _MIN_PAIR_BYTES)
    metadata: dict[str, Scalar] = {}
    for _ in range(num_pairs):
        key = cursor.string("metadata key", _MAX_NAME_BYTES)
        value = cursor.value(key)
        if value is not None:
            metadata[key] = value
    return GgufHeader(version, metadata, _tensors(cursor, num_tensors, metadata))


def _tensors(
    cursor: _Cursor, num_tensors: int, metadata: Mapping[str, Scalar]
) -> dict[str, GgufTensor]:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT_BYTES)
    if (
        not isinstance(alignment, int)
        or not 0 < alignment <= _MAX_ALIGNMENT_BYTES
        or alignment & (alignment - 1)
    ):
        raise WeightsError(f"{cursor.file}: `general.alignment` is {alignment}, not a power of two")
    entries = [_tensor_entry(cursor) for _ in range(num_tensors)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, block_type, offset in entries:
        if name in tensors:
            raise WeightsError(f"{cursor.file}: tensor `{name}` appears twice")
        if offset % alignment:
            raise WeightsError(
                f"{cursor.file}: tensor `{name}` is not aligned to {alignment} bytes"
            )
        num_bytes = _num_bytes(shape, block_type, name, cursor.file)
        start = data_start + offset
        if start + num_bytes > len(cursor.data):
            raise WeightsError(
                f"{cursor.file}: tensor `{name}` ends at byte {start + num_bytes}, "
                f"the file at {len(cursor.data)}: it is truncated or broken"
            )
        tensors[name] = GgufTensor(shape, block_type, start, num_bytes)
    return tensors


def _tensor_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], BlockType, int]:
    name = cursor.string("tensor name", _MAX_NAME_BYTES)
    num_dimensions = cursor.u32(f"dimensions of `{name}`")
    if not 0 < num_dimensions <= _MAX_DIMENSIONS:
        raise WeightsError(
            f"{cursor.file}: tensor `{name}` has {num_dimensions} dimensions, "
            f"1 to {_MAX_DIMENSIONS} are allowed"
        )
    sizes = [cursor.u64(f"dimensions of `{name}`") for _ in range(num_dimensions)]
    type_id = cursor.u32(f"type of `{name}`")
    block_type = BLOCK_TYPES.get(type_id)
    if block_type is None:
        supported = ", ".join(kind.name for kind in BLOCK_TYPES.values())
        raise WeightsError(
            f"{cursor.file}: tensor `{name}` has GGML type {type_id}, supported are {supported}"
        )
    return name, tuple(reversed(sizes)), block_type, cursor.u64(f"offset of `{name}`")


def _num_bytes(shape: tuple[int, ...], block_type: BlockType, name: str, file: str) -> int:
    if shape[-1] % block_type.block_size:
        raise WeightsError(
            f"{file}: tensor `{name}` has rows of {shape[-1]} values, "
            f"not a multiple of {block_type.name}'s {block_type.block_size}"
        )
    count = 1
    for size in shape:
        count *= size
    if not count:
        raise WeightsError(f"{file}: tensor `{name}` is empty: {list(shape)}")
    return count // block_type.block_size * block_type.num_bytes


class _Cursor:
    """Reads forwards and never beyond the end."""

    def __init__(self, data: memoryview, file: str) -> None:
        self.data = data
        self.file = file
        self.position = 0

    def take(self, num_bytes: int, what: str) -> memoryview:
        """The next bytes."""
        end = self.position + num_bytes
        if end > len(self.data):
            raise WeightsError(
                f"{self.file}: the header ends in the middle of {what}: the file is truncated"
            )
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def u32(self, what: str) -> int:
        """An unsigned integer of 4 bytes."""
        return int(_U32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        """An unsigned integer of 8 bytes."""
        return int(_U64.unpack(self.take(8, what))[0])

    def count(self, what: str, min_bytes: int) -> int:
        """A count of entries, each of which takes `min_bytes` at least."""
        count = self.u64(what)
        room = (len(self.data) - self.position) // min_bytes
        if count > room:
            raise WeightsError(f"{self.file}: {what} is {count}, the file has room for {room}")
        return count

    def string(self, what: str, max_bytes: int | None = None) -> str:
        """A string, of `max_bytes` at most."""
        length = self.count(f"length of {what}", 1)
        if max_bytes is not None and length > max_bytes:
            raise WeightsError(f"{self.file}: {what} has {length} bytes, {max_bytes} are allowed")
        raw = bytes(self.take(length, what))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WeightsError(f"{self.file}: {what} is not UTF-8") from error

    def value(self, key: str) -> Scalar | None:
        """A metadata value; arrays are stepped over and give None."""
        kind = self.u32(f"type of `{key}`")
        if kind == _STRING:
            return self.string(f"`{key}`")
        if kind == _ARRAY:
            self._skip_array(key, depth=1)
            return None
        return self._scalar(kind, key)

    def _scalar(self, kind: int, key: str) -> Scalar:
        layout = _SCALARS.get(kind)
        if layout is None:
            raise WeightsError(f"{self.file}: `{key}` has the unknown type {kind}")
        value: Scalar = layout.unpack(self.take(layout.size, f"`{key}`"))[0]
        return value

    def _skip_array(self, key: str, depth: int) -> None:
        if depth > _MAX_ARRAY_DEPTH:
            raise WeightsError(f"{self.file}: `{key}` nests arrays too deeply")
        kind = self.u32(f"element type of `{key}`")
        if kind == _STRING:
            self._skip_strings(self.count(f"length of `{key}`", 8), key)
        elif kind == _ARRAY:
            for _ in range(self.count(f"length of `{key}`", 12)):
                self._skip_array(key, depth + 1)
        elif kind in _SCALARS:
            size = _SCALARS[kind].size
            self.take(self.count(f"length of `{key}`", size) * size, f"`{key}`")
        else:
            raise WeightsError(f"{self.file}: `{key}` is an array of the unknown type {kind}")

    def _skip_strings(self, count: int, key: str) -> None:
        # A vocabulary has hundreds of thousands: the loop does no more than it must.
        data, end, position = self.data, len(self.data), self.position
        read_length = _U64.unpack_from
        for _ in range(count):
            if position + 8 > end:
                break
            position += 8 + read_length(data, position)[0]
        else:
            if position <= end:
                self.position = position
                return
        raise WeightsError(
            f"{self.file}: the header ends in the middle of `{key}`: the file is truncated"
        )
