from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("rank", "world_size", "device", "compute_dtype", "vocab_size", "max_position_embeddings", "kv_groups", "max_steps_in_flight", "kernel_set", "prompt_logprobs", "attention_backend")
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_DTYPE_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_POSITION_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    KV_GROUPS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SET_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_BACKEND_FIELD_NUMBER: _ClassVar[int]
    rank: int
    world_size: int
    device: str
    compute_dtype: str
    vocab_size: int
    max_position_embeddings: int
    kv_groups: _containers.RepeatedCompositeFieldContainer[KvGroup]
    max_steps_in_flight: int
    kernel_set: str
    prompt_logprobs: bool
    attention_backend: str
    def __init__(self, rank: _Optional[int] = ..., world_size: _Optional[int] = ..., device: _Optional[str] = ..., compute_dtype: _Optional[str] = ..., vocab_size: _Optional[int] = ..., max_position_embeddings: _Optional[int] = ..., kv_groups: _Optional[_Iterable[_Union[KvGroup, _Mapping]]] = ..., max_steps_in_flight: _Optional[int] = ..., kernel_set: _Optional[str] = ..., prompt_logprobs: bool = ..., attention_backend: _Optional[str] = ...) -> None: ...

class KvGroup(_message.Message):
    __slots__ = ("num_layers", "sliding_window", "num_kv_heads", "head_dim", "bytes_per_token")
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    SLIDING_WINDOW_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    num_layers: int
    sliding_window: int
    num_kv_heads: int
    head_dim: int
    bytes_per_token: int
    def __init__(self, num_layers: _Optional[int] = ..., sliding_window: _Optional[int] = ..., num_kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., bytes_per_token: _Optional[int] = ...) -> None: ...

class PrepareRequest(_message.Message):
    __slots__ = ("block_size", "max_batch_tokens", "max_sequences", "max_total_tokens", "kv_cache_bytes", "required_blocks", "poison_fresh_blocks")
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    POISON_FRESH_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    block_size: int
    max_batch_tokens: int
    max_sequences: int
    max_total_tokens: int
    kv_cache_bytes: int
    required_blocks: int
    poison_fresh_blocks: bool
    def __init__(self, block_size: _Optional[int] = ..., max_batch_tokens: _Optional[int] = ..., max_sequences: _Optional[int] = ..., max_total_tokens: _Optional[int] = ..., kv_cache_bytes: _Optional[int] = ..., required_blocks: _Optional[int] = ..., poison_fresh_blocks: bool = ...) -> None: ...

class PrepareProgress(_message.Message):
    __slots__ = ("stage", "ready")
    class Stage(_message.Message):
        __slots__ = ("name", "done", "total", "unit")
        NAME_FIELD_NUMBER: _ClassVar[int]
        DONE_FIELD_NUMBER: _ClassVar[int]
        TOTAL_FIELD_NUMBER: _ClassVar[int]
        UNIT_FIELD_NUMBER: _ClassVar[int]
        name: str
        done: int
        total: int
        unit: str
        def __init__(self, name: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., unit: _Optional[str] = ...) -> None: ...
    class Ready(_message.Message):
        __slots__ = ("num_blocks", "kv_cache_bytes", "weight_bytes", "compute_threads")
        NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
        KV_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
        WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
        COMPUTE_THREADS_FIELD_NUMBER: _ClassVar[int]
        num_blocks: int
        kv_cache_bytes: int
        weight_bytes: int
        compute_threads: int
        def __init__(self, num_blocks: _Optional[int] = ..., kv_cache_bytes: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., compute_threads: _Optional[int] = ...) -> None: ...
    STAGE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    stage: PrepareProgress.Stage
    ready: PrepareProgress.Ready
    def __init__(self, stage: _Optional[_Union[PrepareProgress.Stage, _Mapping]] = ..., ready: _Optional[_Union[PrepareProgress.Ready, _Mapping]] = ...) -> None: ...

class RunMessage(_message.Message):
    __slots__ = ("open", "step", "mask", "mask_called_off")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    MASK_CALLED_OFF_FIELD_NUMBER: _ClassVar[int]
    open: Open
    step: Step
    mask: Mask
    mask_called_off: MaskCalledOff
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ..., mask: _Optional[_Union[Mask, _Mapping]] = ..., mask_called_off: _Optional[_Union[MaskCalledOff, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("epoch", "num_blocks")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    num_blocks: int
    def __init__(self, epoch: _Optional[int] = ..., num_blocks: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("step_id", "finished_slots", "new_sequences", "block_appends", "block_copies", "rows", "acknowledged_failure")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    FINISHED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NEW_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_APPENDS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_COPIES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FAILURE_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    finished_slots: _containers.RepeatedScalarFieldContainer[int]
    new_sequences: _containers.RepeatedCompositeFieldContainer[NewSequence]
    block_appends: _containers.RepeatedCompositeFieldContainer[BlockAppend]
    block_copies: _containers.RepeatedCompositeFieldContainer[BlockCopy]
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    acknowledged_failure: int
    def __init__(self, step_id: _Optional[int] = ..., finished_slots: _Optional[_Iterable[int]] = ..., new_sequences: _Optional[_Iterable[_Union[NewSequence, _Mapping]]] = ..., block_appends: _Optional[_Iterable[_Union[BlockAppend, _Mapping]]] = ..., block_copies: _Optional[_Iterable[_Union[BlockCopy, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., acknowledged_failure: _Optional[int] = ...) -> None: ...

class NewSequence(_message.Message):
    __slots__ = ("slot", "token_ids", "prompt_length", "computed_length", "blocks", "sampling", "adapter")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    slot: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt_length: int
    computed_length: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    sampling: SamplingParams
    adapter: str
    def __init__(self, slot: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., prompt_length: _Optional[int] = ..., computed_length: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[SamplingParams, _Mapping]] = ..., adapter: _Optional[str] = ...) -> None: ...

class BlockAppend(_message.Message):
    __slots__ = ("slot", "blocks")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class BlockCopy(_message.Message):
    __slots__ = ("source", "destination", "num_tokens")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    source: int
    destination: int
    num_tokens: int
    def __init__(self, source: _Optional[int] = ..., destination: _Optional[int] = ..., num_tokens: _Optional[int] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("slot", "num_tokens", "sample", "prompt_logprobs", "masked", "draft_token_ids")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    num_tokens: int
    sample: bool
    prompt_logprobs: bool
    masked: bool
    draft_token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[int] = ..., num_tokens: _Optional[int] = ..., sample: bool = ..., prompt_logprobs: bool = ..., masked: bool = ..., draft_token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed", "top_n", "logprobs", "logit_bias", "suppressed_token_ids", "min_tokens", "allowed_token_ids", "bad_words", "prompt_top_n")
    DO_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    TYPICAL_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    SUPPRESSED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BAD_WORDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOP_N_FIELD_NUMBER: _ClassVar[int]
    do_sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    top_n: int
    logprobs: bool
    logit_bias: _containers.RepeatedCompositeFieldContainer[LogitBias]
    suppressed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    min_tokens: int
    allowed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    bad_words: _containers.RepeatedCompositeFieldContainer[TokenIds]
    prompt_top_n: int
    def __init__(self, do_sample: bool = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., typical_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., top_n: _Optional[int] = ..., logprobs: bool = ..., logit_bias: _Optional[_Iterable[_Union[LogitBias, _Mapping]]] = ..., suppressed_token_ids: _Optional[_Iterable[int]] = ..., min_tokens: _Optional[int] = ..., allowed_token_ids: _Optional[_Iterable[int]] = ..., bad_words: _Optional[_Iterable[_Union[TokenIds, _Mapping]]] = ..., prompt_top_n: _Optional[int] = ...) -> None: ...

class LogitBias(_message.Message):
    __slots__ = ("token_id", "bias")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    bias: float
    def __init__(self, token_id: _Optional[int] = ..., bias: _Optional[float] = ...) -> None: ...

class Mask(_message.Message):
    __slots__ = ("step_id", "slot", "position", "bitset", "allow", "deny", "same_as", "mask_id")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BITSET_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    SAME_AS_FIELD_NUMBER: _ClassVar[int]
    MASK_ID_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    slot: int
    position: int
    bitset: bytes
    allow: TokenIds
    deny: TokenIds
    same_as: int
    mask_id: int
    def __init__(self, step_id: _Optional[int] = ..., slot: _Optional[int] = ..., position: _Optional[int] = ..., bitset: _Optional[bytes] = ..., allow: _Optional[_Union[TokenIds, _Mapping]] = ..., deny: _Optional[_Union[TokenIds, _Mapping]] = ..., same_as: _Optional[int] = ..., mask_id: _Optional[int] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class MaskCalledOff(_message.Message):
    __slots__ = ("step_id", "slot")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    slot: int
    def __init__(self, step_id: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class RunReply(_message.Message):
    __slots__ = ("opened", "step", "heartbeat")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    step: StepReply
    heartbeat: Heartbeat
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., step: _Optional[_Union[StepReply, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("steps_completed",)
    STEPS_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    steps_completed: int
    def __init__(self, steps_completed: _Optional[int] = ...) -> None: ...

class StepReply(_message.Message):
    __slots__ = ("step_id", "outcome", "error", "rows", "timings")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[StepReply.Outcome]
        OUTCOME_OK: _ClassVar[StepReply.Outcome]
        OUTCOME_FAILED: _ClassVar[StepReply.Outcome]
        OUTCOME_OUT_OF_MEMORY: _ClassVar[StepReply.Outcome]
        OUTCOME_SKIPPED: _ClassVar[StepReply.Outcome]
    OUTCOME_UNSPECIFIED: StepReply.Outcome
    OUTCOME_OK: StepReply.Outcome
    OUTCOME_FAILED: StepReply.Outcome
    OUTCOME_OUT_OF_MEMORY: StepReply.Outcome
    OUTCOME_SKIPPED: StepReply.Outcome
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    outcome: StepReply.Outcome
    error: str
    rows: _containers.RepeatedCompositeFieldContainer[RowResult]
    timings: Timings
    def __init__(self, step_id: _Optional[int] = ..., outcome: _Optional[_Union[StepReply.Outcome, str]] = ..., error: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[RowResult, _Mapping]]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ...) -> None: ...

class RowResult(_message.Message):
    __slots__ = ("slot", "status", "error", "tokens", "prompt_logprobs")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[RowResult.Status]
        STATUS_OK: _ClassVar[RowResult.Status]
        STATUS_NON_FINITE: _ClassVar[RowResult.Status]
        STATUS_FAILED: _ClassVar[RowResult.Status]
    STATUS_UNSPECIFIED: RowResult.Status
    STATUS_OK: RowResult.Status
    STATUS_NON_FINITE: RowResult.Status
    STATUS_FAILED: RowResult.Status
    SLOT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    slot: int
    status: RowResult.Status
    error: str
    tokens: _containers.RepeatedCompositeFieldContainer[SampledToken]
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[SampledToken]
    def __init__(self, slot: _Optional[int] = ..., status: _Optional[_Union[RowResult.Status, str]] = ..., error: _Optional[str] = ..., tokens: _Optional[_Iterable[_Union[SampledToken, _Mapping]]] = ..., prompt_logprobs: _Optional[_Iterable[_Union[SampledToken, _Mapping]]] = ...) -> None: ...

class SampledToken(_message.Message):
    __slots__ = ("id", "logprob", "top", "rank")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    id: int
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    rank: int
    def __init__(self, id: _Optional[int] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., rank: _Optional[int] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("id", "logprob")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    id: int
    logprob: float
    def __init__(self, id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("wait_ns", "apply_ns", "forward_ns", "sample_ns", "total_ns", "hand_over_ns", "decode_ns", "encode_ns", "mask_wait_ns")
    WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    APPLY_NS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_NS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_NS_FIELD_NUMBER: _ClassVar[int]
    DECODE_NS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_NS_FIELD_NUMBER: _ClassVar[int]
    MASK_WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    wait_ns: int
    apply_ns: int
    forward_ns: int
    sample_ns: int
    total_ns: int
    hand_over_ns: int
    decode_ns: int
    encode_ns: int
    mask_wait_ns: int
    def __init__(self, wait_ns: _Optional[int] = ..., apply_ns: _Optional[int] = ..., forward_ns: _Optional[int] = ..., sample_ns: _Optional[int] = ..., total_ns: _Optional[int] = ..., hand_over_ns: _Optional[int] = ..., decode_ns: _Optional[int] = ..., encode_ns: _Optional[int] = ..., mask_wait_ns: _Optional[int] = ...) -> None: ...
