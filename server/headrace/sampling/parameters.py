"""How one sequence is sampled, and the checks that a worker repeats."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


class ParameterError(ValueError):
    """A sampling parameter is out of range; the message names it."""


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """`SamplingParams` of the step protocol; None means that the step is left out.

    Attributes:
        do_sample: False: the largest score wins.
        temperature: Scores are divided by it; > 0.
        top_k: Keep the k best (and what ties with the k-th); >= 1.
        top_p: Keep the best ids whose probabilities sum up to it; (0, 1].
        min_p: Drop ids below this share of the best one's probability; [0, 1].
        typical_p: Keep the most typical ids up to this mass; (0, 1).
        repetition_penalty: > 0, over prompt and output ids.
        frequency_penalty: [-2, 2], for each time an id is in the output.
        presence_penalty: [-2, 2], once for an id that is in the output.
        seed: Unsigned 64 bits.
        top_n: How many of the best logprobs are reported beside the sampled one.
        logprobs: Report the sampled id's logprob.
        bias_ids: int64 ids of `logit_bias`, each once.
        bias_values: float32 addends, one for each of `bias_ids`.
        suppressed_ids: int64 ids, never sampled while fewer than `min_tokens` are out.
        min_tokens: Output tokens.
        allowed_ids: int64 ids; if there are any, nothing else is ever sampled.
        bad_words: int64 ids each: the last one is not sampled where the output ids before it are the others.
        prompt_top_n: How many of the best logprobs are reported beside a prompt id's.
    """

    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int = 0
    top_n: int = 0
    logprobs: bool = False
    bias_ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    bias_values: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    suppressed_ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    min_tokens: int = 0
    allowed_ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    bad_words: tuple[npt.NDArray[np.int64], ...] = ()
    prompt_top_n: int = 0

    def check(self, vocab_size: int) -> None:
        """Checks every bound.

        Raises:
            ParameterError: The first field that is out of range, by name.
        """
        bounds = (
            ("temperature", self.temperature, 0.0, math.inf, True),
            ("top_p", self.top_p, 0.0, 1.0, True),
            ("min_p", self.min_p, 0.0, 1.0, False),
            ("typical_p", self.typical_p, 0.0, 1.0, True),
            ("repetition_penalty", self.repetition_penalty, 0.0, math.inf, True),
            ("frequency_penalty", self.frequency_penalty, -2.0, 2.0, False),
            ("presence_penalty", self.presence_penalty, -2.0, 2.0, False),
        )
        for name, value, low, high, is_open in bounds:
            if value is None:
                continue
            # NaN fails the comparisons and infinity the finiteness test.
            in_range = low < value <= high if is_open else low <= value <= high
            if not (in_range and math.isfinite(value)):
                raise ParameterError(f"{name} is {value}")
        if self.top_k is not None and self.top_k < 1:
            raise ParameterError(f"top_k is {self.top_k}")
        for name, count in (("top_n", self.top_n), ("prompt_top_n", self.prompt_top_n)):
            if count > vocab_size:
                raise ParameterError(f"{name} is {count}, the vocabulary has {vocab_size} ids")
        if not bool(np.isfinite(self.bias_values).all()):
            raise ParameterError("logit_bias is not finite")
        for name, ids in (
            ("logit_bias", self.bias_ids),
            ("suppressed_token_ids", self.suppressed_ids),
            ("allowed_token_ids", self.allowed_ids),
            *(("bad_words", word) for word in self.bad_words),
        ):
            if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
                raise ParameterError(f"{name} names an id outside the vocabulary of {vocab_size}")
        if not all(word.size for word in self.bad_words):
            raise ParameterError("bad_words has a word of no ids")

    @property
    def has_penalties(self) -> bool:
        """Whether earlier ids change the scores."""
        return (
            self.repetition_penalty not in (None, 1.0)
            or self.frequency_penalty not in (None, 0.0)
            or self.presence_penalty not in (None, 0.0)
        )

    @property
    def changes_scores(self) -> bool:
        """Whether scores differ from the model's logits even without a mask."""
        suppresses = self.min_tokens > 0 and self.suppressed_ids.size > 0
        restricts = self.allowed_ids.size > 0 or bool(self.bad_words)
        return self.has_penalties or self.bias_ids.size > 0 or suppresses or restricts

    @property
    def wants_logprobs(self) -> bool:
        """Whether anything beside the id is reported."""
        return self.logprobs or self.top_n > 0
