"""Which files of a repository are needed: pure functions over names."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INDEX = "model.safetensors.index.json"

_SMALL = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tokenizer.model.v*",
    "tekken.json",
    "tiktoken.model",
    "*.tiktoken",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
    INDEX,
)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_PART = re.compile(r"^(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})(?P<end>\.[a-z]+)$")


class SelectionError(ValueError):
    """A repository has no weights that can be served; the message says what it has."""


def small_files(names: Iterable[str]) -> list[str]:
    """Configuration, tokenizer, templates and the index of the weights."""
    return sorted(
        name
        for name in names
        if any(fnmatchcase(name, p) and name.count("/") == p.count("/") for p in _SMALL)
    )


def weight_files(names: Iterable[str], read_index: Callable[[], str]) -> list[str]:
    """The weight files, safetensors before GGUF.

    Args:
        names: All files of the repository.
        read_index: Gives the text of `INDEX`, if the repository has that file.

    Raises:
        SelectionError: There are none, or it is not clear which.
    """
    every = sorted(names)
    top = [name for name in every if "/" not in name]
    safetensors = [name for name in top if name.endswith(".safetensors")]
    if INDEX in top:
        shards = indexed_files(read_index())
        missing = [name for name in shards if name not in every]
        if missing:
            raise SelectionError(f"{INDEX} names {missing[0]}, which the repository does not have")
        return shards
    if "model.safetensors" in safetensors:
        return ["model.safetensors"]
    if safetensors:
        return _one_set(safetensors, "safetensors")
    # Split GGUF files often lie in a folder of their own.
    gguf = [name for name in every if name.endswith(".gguf")]
    if gguf:
        return _one_set(gguf, "GGUF")
    pickles = [name for name in every if name.endswith(_PICKLES)]
    if pickles:
        raise SelectionError(
            f"it has no safetensors or GGUF weights, only {_listed(pickles)}; "
            "pickled weights are not loaded: convert them to safetensors"
        )
    raise SelectionError("it has no safetensors or GGUF weights")


def indexed_files(text: str) -> list[str]:
    """The shards that an index names.

    Raises:
        SelectionError: The index is not one.
    """
    try:
        shards = sorted(set(json.loads(text)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SelectionError(f"{INDEX} is not an index of shards") from error
    if not shards or not all(isinstance(name, str) for name in shards):
        raise SelectionError(f"{INDEX} names no shards")
    return shards


def _one_set(names: list[str], kind: str) -> list[str]:
    """The names, if they are one file or all the parts of one."""
    if len(names) == 1 and _PART.match(names[0]) is None:
        return names
    parts = [match for name in names if (match := _PART.match(name))]
    heads = {(match["stem"], match["count"], match["end"]) for match in parts}
    if len(parts) == len(names) and len(heads) == 1:
        count = int(parts[0]["count"])
        if len(parts) != count:
            raise SelectionError(f"it has {len(parts)} of {count} {kind} parts of {names[0]}")
        return names
    raise SelectionError(
        f"it has several {kind} models ({_listed(names)}): download one and give its path"
    )


def _listed(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
