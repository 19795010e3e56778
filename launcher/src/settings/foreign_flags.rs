//! The names that vLLM, `SGLang` and llama.cpp have for what is a flag here, or is not.

use Here::{Is, Near, Not};

/// What a flag of another server is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// The same under another name, with the same value.
    Is(&'static str),
    /// Something near it: the flag, then how it differs.
    Near(&'static str, &'static str),
    /// Nothing: why.
    Not(&'static str),
}

const LOG_LEVEL: Here = Not("the variable LOG_LEVEL says how much is logged");
const ONE_MACHINE: Here = Not("all workers are on this machine; --num-shard says how many");
const ONE_MODEL: Here =
    Not("each worker holds its part of every layer (--num-shard); there is no other split");
const NO_ADAPTERS: Here = Not("adapters are not supported");
const NO_DRAFTS: Here = Not("speculative decoding is not supported");
const NO_GRAPHS: Here = Not("not needed: there are no CUDA graphs and nothing is compiled");
const NO_QUANTISING: Here = Not("weights are served in the types that their files have");
const KV_TYPE: Here = Not("the KV cache has the type that the workers compute in");
const OWN_TOKENIZER: Here = Not("the model's own tokenizer is used");
const ONE_NAME: Here = Not(
    "the name is that of --model-id; requests may name any model unless --strict-model-name is given",
);
const PER_REQUEST: Here =
    Not("a request brings its own, and generation_config.json the defaults of /v1");
const TEXT_ONLY: Here = Not("text in and text out alone are served");
const NO_TLS: Here = Not("TLS is the business of a proxy in front");
const NO_OFFLOAD: Here = Not("weights and KV cache stay where --device computes");
const ALWAYS_PIECES: Here = Not("prompts are always computed in pieces");
const ALWAYS: Here = Not("not needed: it is always so");
const NO_TOOLS: Here = Not("answers are not parsed for tool calls or reasoning");
const OWN_KERNELS: Here = Not("kernels are chosen for the machine");
const GRAMMARS: Here = Not("not needed: grammars have one engine");
const FLAGS_ONLY: Here = Not("there is no such file; each flag is also an environment variable");
const NO_HIDING: Here = Not("/metrics and /server_info are always there");
const NO_SUCH_WORKERS: Here = Not("prompts and answers are computed by the same workers");

/// In each row the names of vLLM, of `SGLang`, of llama.cpp.
pub(super) const TABLE: [(&str, Here); 67] = [
    ("--model --model-path --model-tag -m", Is("--model-id")),
    (
        "--hf-repo -hf -hfr",
        Near("--model-id", "which takes a hub id too"),
    ),
    (
        "--hf-file -hff --model-url -mu",
        Near("--model-id", "with the path of a downloaded .gguf file"),
    ),
    ("--hf-token -hft", Not("the variable HF_TOKEN holds it")),
    ("--host", Is("--hostname")),
    ("--served-model-name --alias -a", ONE_NAME),
    (
        "--max-model-len --context-length --ctx-size -c",
        Is("--max-total-tokens"),
    ),
    (
        "--tensor-parallel-size --tp-size --tp -tp",
        Is("--num-shard"),
    ),
    (
        "--pipeline-parallel-size --pp-size --pp -pp --data-parallel-size --dp-size --dp -dp \
         --expert-parallel-size --ep-size --ep --enable-expert-parallel --enable-dp-attention \
         --decode-context-parallel-size -dcp --prefill-context-parallel-size --split-mode -sm \
         --tensor-split -ts --main-gpu -mg",
        ONE_MODEL,
    ),
    (
        "--nnodes --node-rank --dist-init-addr --nccl-port --headless --data-parallel-address \
         --distributed-executor-backend --rpc",
        ONE_MACHINE,
    ),
    (
        "--gpu-memory-utilization --mem-fraction-static",
        Near(
            "--kv-cache-memory",
            "as an amount (`4GiB`) and not as a share",
        ),
    ),
    ("--kv-cache-memory-bytes", Is("--kv-cache-memory")),
    (
        "--max-num-seqs --max-running-requests --parallel -np",
        Is("--max-batch-size"),
    ),
    (
        "--max-num-batched-tokens --chunked-prefill-size --max-prefill-tokens --batch-size -b \
         --ubatch-size -ub",
        Is("--max-batch-prefill-tokens"),
    ),
    (
        "--max-queued-requests",
        Near(
            "--max-concurrent-requests",
            "which counts those that run too",
        ),
    ),
    (
        "--enable-prefix-caching --cache-prompt",
        Not("not needed: prefixes are cached unless --disable-prefix-caching is given"),
    ),
    (
        "--no-enable-prefix-caching --disable-radix-cache --no-cache-prompt",
        Is("--disable-prefix-caching"),
    ),
    ("--page-size", Is("--block-size")),
    (
        "--enable-chunked-prefill --no-enable-chunked-prefill --enable-mixed-chunk",
        ALWAYS_PIECES,
    ),
    (
        "--max-num-partial-prefills --max-long-partial-prefills --long-prefill-token-threshold",
        Near(
            "--target-itl-ms",
            "which bounds what long prompts may do to running streams",
        ),
    ),
    (
        "--scheduling-policy",
        Near(
            "--schedule-policy",
            "of fcfs and lpm; priorities always count",
        ),
    ),
    (
        "--schedule-conservativeness --stream-interval --async-scheduling --num-scheduler-steps",
        ALWAYS,
    ),
    (
        "--enforce-eager --disable-cuda-graph --cuda-graph-max-bs --cuda-graph-bs --compilation-config \
         -cc -O -O0 -O1 -O2 -O3 --enable-torch-compile --max-seq-len-to-capture",
        NO_GRAPHS,
    ),
    (
        "--swap-space --cpu-offload-gb --kv-offloading-size --cpu-moe --n-cpu-moe --no-kv-offload -nkvo \
         --override-tensor -ot --cache-ram",
        NO_OFFLOAD,
    ),
    (
        "--gpu-layers --n-gpu-layers -ngl",
        Near("--device", "cuda, which computes all layers there"),
    ),
    ("-dev", Is("--device")),
    ("--seed --random-seed -s", PER_REQUEST),
    ("--download-dir", Is("--huggingface-hub-cache")),
    (
        "--load-format --safetensors-load-strategy --mmap --no-mmap --mlock",
        ALWAYS,
    ),
    ("--quantization -q --torchao-config", NO_QUANTISING),
    ("--cache-type-k -ctk --cache-type-v -ctv", KV_TYPE),
    (
        "--tokenizer --tokenizer-path --tokenizer-mode --skip-tokenizer-init --tokenizer-revision",
        OWN_TOKENIZER,
    ),
    (
        "--code-revision --hf-config-path --hf-overrides --json-model-override-args --override-kv",
        Not("the model's own config.json is used, but for --rope-scaling and --rope-factor"),
    ),
    (
        "--chat-template --chat-template-file",
        Near("--tokenizer-config-path", "which takes a .jinja file too"),
    ),
    (
        "--chat-template-content-format --response-role --jinja --no-jinja --completion-template",
        Not("not needed: the template decides"),
    ),
    (
        "--ssl-keyfile --ssl-certfile --ssl-ca-certs --ssl-key-file --ssl-cert-file",
        NO_TLS,
    ),
    (
        "--root-path --api-prefix",
        Not("a path in front is the business of a proxy"),
    ),
    (
        "--allowed-origins",
        Near("--cors-allow-origin", "one origin each time it is given"),
    ),
    (
        "--allow-credentials --allowed-methods --allowed-headers",
        Not("CORS allows what is asked for, from the origins of --cors-allow-origin"),
    ),
    (
        "--middleware --enable-ssl-refresh",
        Not("there is nothing to plug in"),
    ),
    (
        "--uvicorn-log-level --log-level --log-level-http --disable-log-requests --enable-log-requests \
         --disable-log-stats --log-requests --log-requests-level --disable-uvicorn-access-log --verbose \
         -v --log-verbosity -lv --verbosity",
        LOG_LEVEL,
    ),
    (
        "--log-disable --log-file --max-log-len",
        Not("logs go to standard output; prompts are never logged"),
    ),
    (
        "--max-logprobs",
        Near(
            "--max-top-n-tokens",
            "on TGI's routes; /v1 takes 20 at least",
        ),
    ),
    (
        "--reasoning-parser --enable-auto-tool-choice --tool-call-parser --reasoning-format --tool-server",
        NO_TOOLS,
    ),
    (
        "--guided-decoding-backend --structured-outputs-config --grammar-backend --grammar --json-schema",
        GRAMMARS,
    ),
    (
        "--speculative-config --speculative-model --num-speculative-tokens --speculative-algorithm \
         --speculative-draft-model-path --speculative-num-steps --model-draft -md --draft-max --draft",
        NO_DRAFTS,
    ),
    (
        "--enable-lora --lora-modules --lora-paths --max-loras --max-lora-rank --max-loras-per-batch \
         --lora",
        NO_ADAPTERS,
    ),
    (
        "--kv-transfer-config --disaggregation-mode --disaggregation-transfer-backend",
        NO_SUCH_WORKERS,
    ),
    (
        "--enable-metrics --metrics --props --slots --no-slots --enable-server-load-tracking",
        NO_HIDING,
    ),
    (
        "--enable-prompt-tokens-details --enable-cache-report",
        Not("not needed: `usage` always has the cached tokens"),
    ),
    (
        "--api-server-count --tokenizer-worker-num --renderer-num-workers --threads-http",
        Near("--validation-workers", "the threads that tokenise"),
    ),
    (
        "--limit-mm-per-prompt --mm-processor-kwargs --mmproj --enable-multimodal --task --runner \
         --convert --is-embedding --embedding --embeddings --pooling --reranking --vocoder",
        TEXT_ONLY,
    ),
    (
        "--generation-config --override-generation-config --sampling-defaults --temp --temperature \
         --top-k --top-p --min-p --repeat-penalty --samplers --logits-processors",
        PER_REQUEST,
    ),
    ("--config", FLAGS_ONLY),
    (
        "--attention-backend --sampling-backend --flash-attn -fa --disable-custom-all-reduce",
        OWN_KERNELS,
    ),
    (
        "--watchdog-timeout",
        Not("a worker that is stuck is found by itself"),
    ),
    (
        "--enable-sleep-mode --enable-memory-saver",
        Not("workers do not sleep"),
    ),
    ("--threads -t --threads-batch -tb", Is("--compute-threads")),
    (
        "--predict --n-predict -n",
        Near("--completions-default-max-tokens", "for /v1/completions"),
    ),
    (
        "--keep",
        Not("a prompt that is too long is refused, or cut by a request's own `truncate`"),
    ),
    (
        "--context-shift --no-context-shift",
        Not("a text ends where the context ends"),
    ),
    ("--cont-batching -cb --no-cont-batching -nocb", ALWAYS),
    ("--rope-scale", Is("--rope-factor")),
    (
        "--rope-freq-base --rope-freq-scale --yarn-orig-ctx",
        Near("--rope-factor", "with --rope-scaling"),
    ),
    (
        "--timeout -to",
        Near("--stall-timeout", "for clients that do not read"),
    ),
    ("--no-webui --webui", Not("there is no page but /docs")),
    (
        "--numa --prio --cpu-mask -C --cpu-range",
        Not("`taskset` and `numactl` hold for the workers too"),
    ),
];
