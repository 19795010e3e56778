//! `config.json`, its checks, and the same keys made from GGUF metadata.

mod from_gguf;
mod rope;

pub use from_gguf::config_from_gguf;

use crate::CheckpointError;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// What the workers implement.
pub const ARCHITECTURES: [&str; 3] = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"];

/// The numbers of a decoder that its tensors must agree with, and what else the launcher reads from a config.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts about a checkpoint, not states"
)]
pub struct DecoderShape {
    /// One of [`ARCHITECTURES`].
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width of the feed-forward layer.
    pub intermediate_size: u64,
    /// Layers.
    pub num_layers: u64,
    /// Query heads.
    pub num_heads: u64,
    /// Key and value heads.
    pub num_kv_heads: u64,
    /// Numbers a head.
    pub head_dim: u64,
    /// Rows of the embedding.
    pub vocab_size: u64,
    /// The output projection is the embedding.
    pub ties_embeddings: bool,
    /// The projections to queries, keys and values have biases.
    pub has_qkv_bias: bool,
    /// The attention's output projection has a bias.
    pub has_attention_output_bias: bool,
    /// The feed-forward's projections have biases.
    pub has_mlp_bias: bool,
    /// The model's context length.
    pub max_position_embeddings: u32,
}

/// A config with the file that it came from, for messages.
#[derive(Clone, Debug)]
pub struct HfConfig {
    path: PathBuf,
    keys: Map<String, Value>,
}

impl HfConfig {
    /// Reads a `config.json`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let text = std::fs::read(path).map_err(|source| CheckpointError::io(path, source))?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| {
            CheckpointError::malformed(path, format!("not valid JSON: {error}"))
        })?;
        Self::from_value(path, value)
    }

    /// Wraps keys that were made from `path`'s metadata.
    pub fn from_value(path: &Path, value: Value) -> Result<Self, CheckpointError> {
        match value {
            Value::Object(keys) => Ok(Self {
                path: path.to_owned(),
                keys,
            }),
            _ => Err(CheckpointError::malformed(path, "not a JSON object")),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One key; `null` counts as absent, as in transformers.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// All keys.
    pub fn into_value(self) -> Value {
        Value::Object(self.keys)
    }

    /// Checks everything that can be told without the tensors.
    pub fn decoder_shape(&self) -> Result<DecoderShape, CheckpointError> {
        let architecture = self.architecture()?;
        if let Some(quantization) = self.get("quantization_config") {
            let method = quantization
                .get("quant_method")
                .and_then(Value::as_str)
                .unwrap_or("?");
            let what = format!("key `quantization_config` (quant_method `{method}`)");
            return Err(CheckpointError::unsupported(&self.path, what));
        }
        if let Some(activation) = self.get("hidden_act")
            && !matches!(activation.as_str(), Some("silu" | "swish"))
        {
            let what = format!("key `hidden_act` = {activation}");
            return Err(CheckpointError::unsupported(&self.path, what));
        }
        let hidden_size = self.size("hidden_size")?;
        let num_heads = self.size("num_attention_heads")?;
        let num_kv_heads = self
            .optional_size("num_key_value_heads")?
            .unwrap_or(num_heads);
        if num_heads % num_kv_heads != 0 {
            let problem = format!("is {num_kv_heads}, which does not divide {num_heads} heads");
            return Err(CheckpointError::bad_key(
                &self.path,
                "num_key_value_heads",
                problem,
            ));
        }
        let head_dim = match self.optional_size("head_dim")? {
            Some(head_dim) => head_dim,
            None if hidden_size % num_heads == 0 => hidden_size / num_heads,
            None => {
                let problem = format!("is {num_heads}, which does not divide {hidden_size}");
                return Err(CheckpointError::bad_key(
                    &self.path,
                    "num_attention_heads",
                    problem,
                ));
            }
        };
        rope::check(self)?;
        let context = self.size("max_position_embeddings")?;
        let max_position_embeddings = u32::try_from(context).map_err(|_| {
            CheckpointError::bad_key(&self.path, "max_position_embeddings", "is above 2^32")
        })?;
        let is_llama = architecture == "LlamaForCausalLM";
        let has_attention_bias = is_llama && self.flag("attention_bias")?;
        Ok(DecoderShape {
            has_qkv_bias: has_attention_bias || architecture == "Qwen2ForCausalLM",
            has_attention_output_bias: has_attention_bias,
            has_mlp_bias: is_llama && self.flag("mlp_bias")?,
            architecture,
            hidden_size,
            intermediate_size: self.size("intermediate_size")?,
            num_layers: self.size("num_hidden_layers")?,
            num_heads,
            num_kv_heads,
            head_dim,
            vocab_size: self.size("vocab_size")?,
            ties_embeddings: self.flag("tie_word_embeddings")?,
            max_position_embeddings,
        })
    }

    fn architecture(&self) -> Result<String, CheckpointError> {
        let architectures = self
            .get("architectures")
            .ok_or_else(|| CheckpointError::missing_key(&self.path, "architectures"))?;
        let name = architectures
            .get(0)
            .and_then(Value::as_str)
            .ok_or_else(|| {
                let problem = "must be a list of names";
                CheckpointError::bad_key(&self.path, "architectures", problem)
            })?;
        if ARCHITECTURES.contains(&name) {
            return Ok(name.to_owned());
        }
        let known = ARCHITECTURES.join(", ");
        let reason = if self.get("auto_map").is_some() {
            format!(
                "architecture `{name}`, whose code comes with the checkpoint (`auto_map`) and is never run,"
            )
        } else {
            format!("architecture `{name}` (only {known})")
        };
        Err(CheckpointError::unsupported(&self.path, reason))
    }

    /// A positive integer that must be there. Far below 2^40, so products of two cannot wrap.
    fn size(&self, key: &str) -> Result<u64, CheckpointError> {
        self.optional_size(key)?
            .ok_or_else(|| CheckpointError::missing_key(&self.path, key))
    }

    fn optional_size(&self, key: &str) -> Result<Option<u64>, CheckpointError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        if let Some(size @ 1..=0xffff_ffff) = value.as_u64() {
            return Ok(Some(size));
        }
        let problem = format!("must be a positive integer below 2^32, not {value}");
        Err(CheckpointError::bad_key(&self.path, key, problem))
    }

    /// A boolean, `false` if absent (transformers' default for these architectures).
    fn flag(&self, key: &str) -> Result<bool, CheckpointError> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => {
                let problem = format!("must be true or false, not {other}");
                Err(CheckpointError::bad_key(&self.path, key, problem))
            }
        }
    }
}
