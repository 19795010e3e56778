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

/// `rope_scaling` of a llama GGUF. Llama 3's scaling is not in its metadata: the converter stores the divisors
/// of the frequencies as a tensor.
///
/// `theta`: base; `head_dim`: rotary dimensions; `context`: the model's own.
pub(super) fn scaling_from_gguf(
    model: &GgufModel,
    theta: f64,
    head_dim: u32,
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
    let Some((part, tensor)) = model.tensor("rope_freqs.weight") else {
        return Ok(scaling);
    };
    if scaling.is_some() {
        let problem = "has both `rope_freqs.weight` and `llama.rope.scaling.type`";
        return Err(CheckpointError::malformed(gguf.path(), problem));
    }
    llama3(&part.read_f32_tensor(tensor)?, theta, head_dim)
        .map(Some)
        .ok_or_else(|| {
            let what = "tensor `rope_freqs.weight` (its numbers are not those of a llama3 scaling)";
            CheckpointError::unsupported(part.path(), what)
        })
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

/// The llama3 parameters whose divisors these are, if there are any. All published models use low 1 and
/// high 4 over 8,192 tokens; other original lengths that are powers of two are tried too.
fn llama3(divisors: &[f32], theta: f64, head_dim: u32) -> Option<Value> {
    if u32::try_from(divisors.len()) != Ok(head_dim / 2) {
        return None;
    }
    let factor = f64::from(*divisors.last()?);
    let fits = |original: u32| {
        (0_u32..).zip(divisors).all(|(index, divisor)| {
            let wavelength =
                std::f64::consts::TAU * theta.powf(2.0 * f64::from(index) / f64::from(head_dim));
            let expected = llama3_divisor(wavelength, factor, f64::from(original));
            (f64::from(*divisor) - expected).abs() <= 1e-4 * expected
        })
    };
    let original = (9..=20)
        .map(|power| 1_u32 << power)
        .find(|original| fits(*original))?;
    Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }))
}

/// What llama3 scaling divides the frequency of this wavelength by (transformers,
/// `_compute_llama3_parameters`).
fn llama3_divisor(wavelength: f64, factor: f64, original: f64) -> f64 {
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    if wavelength < original / HIGH {
        1.0
    } else if wavelength > original / LOW {
        factor
    } else {
        let smooth = (original / wavelength - LOW) / (HIGH - LOW);
        1.0 / ((1.0 - smooth) / factor + smooth)
    }
}
