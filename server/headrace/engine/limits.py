"""What `Prepare` asks for."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import HeadraceError

MAX_BLOCKS = 1 << 20
"""Most blocks of a measured pool: a small model on a large machine would have more than anyone can use."""


class PreparationError(HeadraceError):
    """What was asked for cannot be had on this rank; the message names it. Trying again is no use."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes that stay for the life of an engine.

    Attributes:
        block_size: Tokens a block.
        max_batch_tokens: Most tokens computed in one step.
        max_sequences: Slots.
        max_total_tokens: Longest sequence.
        kv_cache_bytes: On this rank; None: measured.
        required_blocks: Exactly this many; None: as many as fit.
        poison_fresh_blocks: Fill the blocks with NaN when a stream opens (tests).
    """

    block_size: int
    max_batch_tokens: int
    max_sequences: int
    max_total_tokens: int
    kv_cache_bytes: int | None = None
    required_blocks: int | None = None
    poison_fresh_blocks: bool = False

    def check(self) -> None:
        """Checks that every size is there.

        Raises:
            PreparationError: A size is 0 or too small; the message names it.
        """
        for name in ("block_size", "max_batch_tokens", "max_sequences", "max_total_tokens"):
            if getattr(self, name) < 1:
                raise PreparationError(f"{name} is {getattr(self, name)}")

    @property
    def blocks_of_longest(self) -> int:
        """Blocks of the longest sequence."""
        return -(-self.max_total_tokens // self.block_size)
