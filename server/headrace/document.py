"""The model as the launcher resolved it: paths, and a configuration in Hugging Face's keys.

Mirrors `ModelDocument` of the crate `headrace-control`, which writes it as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from headrace.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

WeightsFormat = Literal["safetensors", "gguf"]
TokenizerKind = Literal["tokenizer_json", "gguf"]
ComputeType = Literal["float32", "bfloat16", "float16"]

_WEIGHTS_FORMATS = ("safetensors", "gguf")
_TOKENIZER_KINDS = ("tokenizer_json", "gguf")
_COMPUTE_TYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class WeightFiles:
    """Weight files, in shard order."""

    format: WeightsFormat
    files: tuple[Path, ...]


@dataclass(frozen=True)
class TokenizerSource:
    """What the tokenizer is built from; workers carry it and never read it."""

    kind: TokenizerKind
    path: Path


@dataclass(frozen=True)
class ModelDocument:
    """The model as the launcher resolved it.

    Attributes:
        model_id: As given to `--model-id`.
        revision: Commit of a hub snapshot.
        pipeline_tag: `pipeline_tag` of the hub, when known.
        weights: Where the tensors are.
        config: `config.json`, or the same keys made from GGUF metadata.
        tokenizer: Where ids and text come from.
        tokenizer_config: `tokenizer_config.json`, when there is one.
        chat_template: A template file.
        generation_config: `generation_config.json`.
        dtype: What workers compute in.
        max_position_embeddings: The context length in tokens.
        vocab_size: Rows of the output projection, from the header of the weights.
    """

    model_id: str
    revision: str | None
    pipeline_tag: str | None
    weights: WeightFiles
    config: Mapping[str, object]
    tokenizer: TokenizerSource
    tokenizer_config: Path | None
    chat_template: Path | None
    generation_config: Path | None
    dtype: ComputeType
    max_position_embeddings: int
    vocab_size: int

    @classmethod
    def from_mapping(cls, fields: Mapping[str, object]) -> ModelDocument:
        """Reads the document's JSON object.

        Raises:
            DocumentError: A key is missing or of another type; the message names it.
        """
        weights = _mapping(fields, "weights")
        tokenizer = _mapping(fields, "tokenizer")
        files = weights.get("files")
        if not isinstance(files, list) or not files or not all(isinstance(f, str) for f in files):
            raise DocumentError("model document: `weights.files` is not a list of paths")
        return cls(
            model_id=_string(fields, "model_id"),
            revision=_optional_string(fields, "revision"),
            pipeline_tag=_optional_string(fields, "pipeline_tag"),
            weights=WeightFiles(
                format=cast("WeightsFormat", _one_of(weights, "format", _WEIGHTS_FORMATS)),
                files=tuple(Path(file) for file in files),
            ),
            config=_mapping(fields, "config"),
            tokenizer=TokenizerSource(
                kind=cast("TokenizerKind", _one_of(tokenizer, "kind", _TOKENIZER_KINDS)),
                path=Path(_string(tokenizer, "path")),
            ),
            tokenizer_config=_optional_path(fields, "tokenizer_config"),
            chat_template=_optional_path(fields, "chat_template"),
            generation_config=_optional_path(fields, "generation_config"),
            dtype=cast("ComputeType", _one_of(fields, "dtype", _COMPUTE_TYPES)),
            max_position_embeddings=_count(fields, "max_position_embeddings"),
            vocab_size=_count(fields, "vocab_size"),
        )

    @classmethod
    def from_file(cls, path: Path) -> ModelDocument:
        """Reads the document from the file that the launcher wrote.

        Raises:
            DocumentError: The file cannot be read or is not a document; the message names it.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DocumentError(f"model document {path}: {error}") from error
        if not isinstance(fields, dict):
            raise DocumentError(f"model document {path}: not a JSON object")
        return cls.from_mapping(fields)


def _mapping(fields: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = fields.get(key)
    if not isinstance(value, dict):
        raise DocumentError(f"model document: `{key}` is not an object")
    return value


def _optional_string(fields: Mapping[str, object], key: str) -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise DocumentError(f"model document: `{key}` is not a string")
    return value


def _string(fields: Mapping[str, object], key: str) -> str:
    value = _optional_string(fields, key)
    if value is None:
        raise DocumentError(f"model document: `{key}` is missing")
    return value


def _optional_path(fields: Mapping[str, object], key: str) -> Path | None:
    value = _optional_string(fields, key)
    return None if value is None else Path(value)


def _one_of(fields: Mapping[str, object], key: str, allowed: tuple[str, ...]) -> str:
    value = _string(fields, key)
    if value not in allowed:
        raise DocumentError(
            f"model document: `{key}` is {value!r}, expected one of {', '.join(allowed)}"
        )
    return value


def _count(fields: Mapping[str, object], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise DocumentError(f"model document: `{key}` is not a positive integer")
    return value
