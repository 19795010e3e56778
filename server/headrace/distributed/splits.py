"""What each rank holds of a model: query heads by KV group, slices of the MLP and of the vocabulary.

Everything is split as evenly as it goes; the first ranks take what is left over.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ShardingError


def even_ranges(total: int, num_parts: int) -> list[range]:
    """Splits `range(total)` into contiguous parts whose sizes differ by one at most."""
    size, extra = divmod(total, num_parts)
    ranges = []
    start = 0
    for part in range(num_parts):
        end = start + size + (part < extra)
        ranges.append(range(start, end))
        start = end
    return ranges


@dataclass(frozen=True)
class HeadSplit:
    """The heads of one rank.

    Attributes:
        query_heads: Contiguous, of the whole model.
        kv_heads: Those that the query heads attend to; may be held by other ranks too.
    """

    query_heads: range
    kv_heads: range


def split_heads(num_query_heads: int, num_kv_heads: int, world_size: int) -> list[HeadSplit]:
    """Splits attention by KV group (a KV head and the query heads that share it).

    Up to one rank a group, ranks take whole groups (3 groups over 2 ranks: 2 and 1). With more ranks, a
    group's KV head is replicated on several ranks, which share its query heads.

    Args:
        num_query_heads: Of the model; a multiple of `num_kv_heads`.
        num_kv_heads: Of the model.
        world_size: How many ranks.

    Returns:
        One split a rank.

    Raises:
        ShardingError: A rank would have no query head.
    """
    group_size = num_query_heads // num_kv_heads
    if world_size <= num_kv_heads:
        return [
            HeadSplit(range(groups.start * group_size, groups.stop * group_size), groups)
            for groups in even_ranges(num_kv_heads, world_size)
        ]
    splits = []
    for group, ranks in enumerate(even_ranges(world_size, num_kv_heads)):
        if len(ranks) > group_size:
            raise ShardingError(
                f"--num-shard {world_size}: {num_query_heads} attention heads in {num_kv_heads} "
                f"key-value groups cannot be split over {world_size} ranks; "
                f"at most {num_query_heads} ranks, {group_size} a group"
            )
        for part in even_ranges(group_size, len(ranks)):
            first = group * group_size
            splits.append(
                HeadSplit(range(first + part.start, first + part.stop), range(group, group + 1))
            )
    return splits


def split_dimension(name: str, total: int, world_size: int) -> list[range]:
    """Splits a dimension of the model.

    Raises:
        ShardingError: A rank would have nothing of it; names the dimension.
    """
    if total < world_size:
        raise ShardingError(
            f"--num-shard {world_size}: {name} {total} cannot be split over {world_size} ranks"
        )
    return even_ranges(total, world_size)
