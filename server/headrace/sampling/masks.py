"""Grammar masks: which ids a row may sample.

Shapes: V = vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt


class MaskError(ValueError):
    """A mask names ids that do not exist, or comes for another position than its row samples."""


@dataclass(frozen=True, slots=True)
class TokenMask:
    """One mask.

    Attributes:
        kind: How `data` is read.
        data: "bitset": uint8, bit i % 8 of byte i // 8 allows id i; ids past its end are not allowed.
            "allow" and "deny": int64 ids.
    """

    kind: Literal["bitset", "allow", "deny"]
    data: npt.NDArray[np.uint8] | npt.NDArray[np.int64]

    @classmethod
    def from_bitset(cls, words: bytes) -> TokenMask:
        """A mask of little-endian 32-bit words; bit i allows id i."""
        return cls("bitset", np.frombuffer(words, np.uint8))

    @classmethod
    def from_ids(cls, kind: Literal["allow", "deny"], ids: npt.NDArray[np.int64]) -> TokenMask:
        """A mask that allows only `ids`, or all but `ids`."""
        return cls(kind, ids)

    def allowed(self, vocab_size: int) -> torch.Tensor:
        """The mask as a [V] bool tensor on the host; True allows.

        Raises:
            MaskError: A listed id is outside the vocabulary.
        """
        if self.kind == "bitset":
            bits = np.unpackbits(self.data.astype(np.uint8, copy=False), bitorder="little")
            allowed = np.zeros(vocab_size, np.bool_)
            count = min(vocab_size, bits.size)
            allowed[:count] = bits[:count]
            return torch.from_numpy(allowed)
        ids = self.data.astype(np.int64, copy=False)
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
            raise MaskError(f"the mask names an id outside the vocabulary of {vocab_size}")
        allowed = np.full(vocab_size, self.kind == "deny", np.bool_)
        allowed[ids] = self.kind == "allow"
        return torch.from_numpy(allowed)
