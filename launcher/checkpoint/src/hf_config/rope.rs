//! Scalings of the rotary embedding: which are known, and how GGUF says them.

use super::HfConfig;
use crate::CheckpointError;
use crate::gguf::{Gguf, GgufModel};
use serde_json::{Map, Value, json};

/// What the workers implement, by transformers' names.
const ROPE_TYPES: [&str; 5] = ["default", "linear", "dynamic", "yarn", "llama3"];

/// Refuses an unknown scaling by name. Reads `rope_scaling` and transformers 5's `rope_parameters`.
pub(super) fn check(config: &HfConfig) -> Result<(), CheckpointError> {
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(scaling) = config.get(key) else {
            continue;
        };
        let Value::Object(scaling) = scaling else {
            return Err(CheckpointError::bad_key(
                config.path(),
                key,
                "must be an object",
            ));
        };
        let Some(kind) = scaling.get("rope_type").or_else(|| scaling.get("type")) else {
            if key == "rope_parameters" {
                continue;
            }
            return Err(CheckpointError::missing_key(
                config.path(),
                "rope_scaling.rope_type",
            ));
        };
        if !kind.as_str().is_some_and(|kind| ROPE_TYPES.contains(&kind)) {
            let what = format!("key `{key}.rope_type` = {kind}");
            return Err(CheckpointError::unsupported(config.path(), what));
        }
        if kind.as_str() != Some("default")
            && let Some(factor) = scaling.get("factor")
            && !factor
                .as_f64()
                .is_some_and(|factor| factor >= 1.0 && factor.is_finite())
        {
            let problem = format!("must be a number of at least 1, not {factor}");
            return Err(CheckpointError::bad_key(
                config.path(),
                &format!("{key}.factor"),
                problem,
            ));
        }
    }
    Ok(())
}

/// `rope_scaling` of a llama GGUF whose own context length is `context`. Llama 3's scaling is not in the metadata:
/// the converter stores the divisors of the frequencies as a tensor, which the workers apply as it is.
pub(super) fn scaling_from_gguf(
    model: &GgufModel,
    context: u32,
) -> Result<Option<Value>, CheckpointError> {
    let gguf = model.first();
    let scaling = match gguf.optional_string("llama.rope.scaling.type")? {
        Some("none") => None,
        Some("linear") => Some(json!({ "rope_type": "linear", "factor": factor(gguf)? })),
        Some("yarn") => Some(yarn(gguf, context)?),
        Some(other) => {
            let what = format!("key `llama.rope.scaling.type` = `{other}`");
            return Err(CheckpointError::unsupported(gguf.path(), what));
        }
        // Files from before the key existed.
        None => match gguf.optional_f64("llama.rope.scale_linear")? {
            Some(factor) if (factor - 1.0).abs() > f64::EPSILON => {
                Some(json!({ "rope_type": "linear", "factor": factor }))
            }
            _ => None,
        },
    };
    if scaling.is_some() && model.tensor("rope_freqs.weight").is_some() {
        let what = "tensor `rope_freqs.weight` beside `llama.rope.scaling.type`";
        return Err(CheckpointError::unsupported(gguf.path(), what));
    }
    Ok(scaling)
}

fn factor(gguf: &Gguf) -> Result<f64, CheckpointError> {
    let factor = gguf.f64("llama.rope.scaling.factor")?;
    if factor < 1.0 {
        let problem = format!("must be at least 1, not {factor}");
        return Err(CheckpointError::bad_key(
            gguf.path(),
            "llama.rope.scaling.factor",
            problem,
        ));
    }
    Ok(factor)
}

fn yarn(gguf: &Gguf, context: u32) -> Result<Value, CheckpointError> {
    let neutral = [
        ("llama.rope.scaling.yarn_log_multiplier", 0.0),
        ("llama.rope.scaling.yarn_ext_factor", 1.0),
        ("llama.rope.scaling.yarn_attn_factor", 1.0),
    ];
    for (key, expected) in neutral {
        if let Some(value) = gguf.optional_f64(key)?
            && (value - expected).abs() > f64::EPSILON
        {
            return Err(CheckpointError::unsupported(
                gguf.path(),
                format!("key `{key}` = {value}"),
            ));
        }
    }
    let factor = factor(gguf)?;
    let original = gguf
        .optional_u32("llama.rope.scaling.original_context_length")?
        .unwrap_or(context);
    let mut scaling = Map::new();
    scaling.insert("rope_type".into(), "yarn".into());
    scaling.insert("factor".into(), factor.into());
    scaling.insert("original_max_position_embeddings".into(), original.into());
    for (key, name) in [
        ("llama.rope.scaling.yarn_beta_fast", "beta_fast"),
        ("llama.rope.scaling.yarn_beta_slow", "beta_slow"),
    ] {
        if let Some(value) = gguf.optional_f64(key)? {
            scaling.insert(name.into(), value.into());
        }
    }
    if let Some(multiplier) = gguf.optional_f64("llama.rope.scaling.attn_factor")? {
        // llama.cpp multiplies it with the paper's factor; transformers' key is the product.
        scaling.insert(
            "attention_factor".into(),
            (multiplier * (0.1 * factor.ln() + 1.0)).into(),
        );
    }
    Ok(Value::Object(scaling))
}
