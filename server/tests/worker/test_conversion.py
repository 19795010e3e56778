"""The protocol's sampling parameters as the sampler's."""

import numpy as np
from headrace.pb import worker_pb2 as pb
from headrace.worker.conversion import sampling_of


def test_allowed_ids_and_bad_words_arrive():
    message = pb.SamplingParams(
        allowed_token_ids=[7, 3], bad_words=[pb.TokenIds(ids=[5]), pb.TokenIds(ids=[1, 2, 1])]
    )
    parameters = sampling_of(pb.SamplingParams.FromString(message.SerializeToString()))
    assert parameters.allowed_ids.tolist() == [7, 3]
    assert [word.tolist() for word in parameters.bad_words] == [[5], [1, 2, 1]]
    assert parameters.allowed_ids.dtype == np.int64
    assert parameters.changes_scores


def test_absent_rules_change_nothing():
    parameters = sampling_of(pb.SamplingParams())
    assert parameters.allowed_ids.size == 0
    assert parameters.bad_words == ()
    assert not parameters.changes_scores
