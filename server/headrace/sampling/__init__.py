"""Sampling on the device for the whole batch; every row is a function of its own logits and state alone.

Order of one row (transformers' where it has the step; `GenerationMixin._get_logits_processor`):

1. `logit_bias` is added (transformers: sequence_bias);
2. repetition penalty over prompt and output ids;
3. frequency and presence penalties over output ids, OpenAI's additive formula;
4. suppressed ids become impossible while fewer than `min_tokens` are out (transformers: min_new_tokens);
5. allowed ids, bad words and the grammar mask: what any of them forbids is impossible (transformers:
   prefix_allowed_tokens_fn, bad_words_ids);
6. greedy rows: the largest score, the lowest id on ties. Sampling rows: temperature, top-k, top-p, min-p,
   typical-p, then one draw.

Reported logprobs are the log-softmax of the model's own logits, before all of that.

A file's torch operations are chosen so that a row's bits do not depend on the rows beside it: comparisons,
sorts, single IEEE operations an element, softmax and cumulative sums along the last dimension (each row is
handled alone, in one order). Not used on whole rows: `sum`, `logsumexp`, `exp`, `log`, whose vector and scalar
tails differ in the last bit and fall where the batch puts them.
"""

from headrace.sampling.masks import MaskError, TokenMask
from headrace.sampling.parameters import ParameterError, SamplingParameters
from headrace.sampling.sampler import SampledRows, Sampler
from headrace.sampling.token_logprobs import TokenLogprobs, rank_logprobs

__all__ = [
    "MaskError",
    "ParameterError",
    "SampledRows",
    "Sampler",
    "SamplingParameters",
    "TokenLogprobs",
    "TokenMask",
    "rank_logprobs",
]
