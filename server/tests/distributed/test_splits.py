"""What each rank holds."""

import pytest
from headrace.distributed.splits import even_ranges, split_dimension, split_heads
from headrace.errors import ShardingError


@pytest.mark.parametrize("total", [1, 2, 7, 64])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_even_ranges_cover_everything_once(total, parts):
    ranges = even_ranges(total, parts)
    assert [i for part in ranges for i in part] == list(range(total))
    sizes = [len(part) for part in ranges]
    assert max(sizes) - min(sizes) <= 1


def test_three_groups_over_two_ranks():
    first, second = split_heads(9, 3, 2)
    assert (first.query_heads, first.kv_heads) == (range(6), range(2))
    assert (second.query_heads, second.kv_heads) == (range(6, 9), range(2, 3))


@pytest.mark.parametrize(
    ("queries", "kvs", "ranks"),
    [(9, 3, 1), (9, 3, 2), (9, 3, 3), (9, 3, 4), (9, 3, 9), (4, 2, 3), (8, 1, 3), (32, 8, 16)],
)
def test_every_query_head_is_computed_once_beside_its_kv_head(queries, kvs, ranks):
    splits = split_heads(queries, kvs, ranks)
    assert len(splits) == ranks
    assert [head for split in splits for head in split.query_heads] == list(range(queries))
    ratio = queries // kvs
    for split in splits:
        assert len(split.query_heads) % len(split.kv_heads) == 0
        local_ratio = len(split.query_heads) // len(split.kv_heads)
        for index, head in enumerate(split.query_heads):
            assert split.kv_heads[index // local_ratio] == head // ratio


@pytest.mark.parametrize(("queries", "kvs", "ranks"), [(4, 4, 5), (9, 3, 10), (14, 2, 15)])
def test_a_rank_without_a_head_is_refused_by_name(queries, kvs, ranks):
    with pytest.raises(ShardingError, match=f"--num-shard {ranks}.*{queries} attention heads"):
        split_heads(queries, kvs, ranks)


def test_a_dimension_smaller_than_the_group_is_refused_by_name():
    with pytest.raises(ShardingError, match="intermediate_size 3"):
        split_dimension("intermediate_size", 3, 4)
