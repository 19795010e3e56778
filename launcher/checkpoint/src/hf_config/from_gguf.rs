//! GGUF metadata in the keys of a `config.json`.

use super::{HfConfig, rope};
use crate::CheckpointError;
use crate::gguf::{Gguf, GgufModel};
use serde_json::{Map, Value};

/// Keys that change what a llama computes and that the workers do not implement: refused unless neutral.
const REFUSED_SCALES: [&str; 5] = [
    "llama.attention.scale",
    "llama.logit_scale",
    "llama.embedding_scale",
    "llama.residual_scale",
    "llama.attention.clamp_kqv",
];

/// Makes a config. Only the `llama` architecture is known; others are refused by name.
pub fn config_from_gguf(model: &GgufModel) -> Result<HfConfig, CheckpointError> {
    let gguf = model.first();
    let architecture = gguf.string("general.architecture")?;
    if architecture != "llama" {
        let what = format!("architecture `{architecture}` (only llama)");
        return Err(CheckpointError::unsupported(gguf.path(), what));
    }
    refuse_unknown_arithmetic(gguf)?;

    let embedding = gguf.u32("llama.embedding_length")?;
    let num_heads = gguf.u32("llama.attention.head_count")?;
    let num_kv_heads = gguf
        .optional_u32("llama.attention.head_count_kv")?
        .unwrap_or(num_heads);
    let context = gguf.u32("llama.context_length")?;
    let head_dim = head_dim(gguf, embedding, num_heads)?;
    if let Some(rotary) = gguf.optional_u32("llama.rope.dimension_count")?
        && rotary != head_dim
    {
        let what = format!("key `llama.rope.dimension_count` = {rotary} for heads of {head_dim}");
        return Err(CheckpointError::unsupported(gguf.path(), what));
    }
    let theta = gguf
        .optional_f64("llama.rope.freq_base")?
        .unwrap_or(10_000.0);

    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
    put("architectures", vec!["LlamaForCausalLM"].into());
    put("model_type", "llama".into());
    put("hidden_act", "silu".into());
    put("hidden_size", embedding.into());
    put(
        "intermediate_size",
        gguf.u32("llama.feed_forward_length")?.into(),
    );
    put("num_hidden_layers", gguf.u32("llama.block_count")?.into());
    put("num_attention_heads", num_heads.into());
    put("num_key_value_heads", num_kv_heads.into());
    put("head_dim", head_dim.into());
    put(
        "rms_norm_eps",
        gguf.f64("llama.attention.layer_norm_rms_epsilon")?.into(),
    );
    put("max_position_embeddings", context.into());
    put("rope_theta", theta.into());
    put(
        "rope_scaling",
        rope::scaling_from_gguf(model, context)?.unwrap_or(Value::Null),
    );
    put_tensor_facts(model, &mut keys)?;
    put_special_ids(gguf, &mut keys)?;
    HfConfig::from_value(gguf.path(), Value::Object(keys))
}

/// What the list of tensors tells.
fn put_tensor_facts(
    model: &GgufModel,
    keys: &mut Map<String, Value>,
) -> Result<(), CheckpointError> {
    let has = |name: &str| Value::Bool(model.tensor(name).is_some());
    keys.insert("vocab_size".to_owned(), vocabulary(model)?.into());
    keys.insert(
        "tie_word_embeddings".to_owned(),
        model.tensor("output.weight").is_none().into(),
    );
    keys.insert("attention_bias".to_owned(), has("blk.0.attn_q.bias"));
    keys.insert("mlp_bias".to_owned(), has("blk.0.ffn_gate.bias"));
    Ok(())
}

fn put_special_ids(gguf: &Gguf, keys: &mut Map<String, Value>) -> Result<(), CheckpointError> {
    for (key, name) in [
        ("tokenizer.ggml.bos_token_id", "bos_token_id"),
        ("tokenizer.ggml.padding_token_id", "pad_token_id"),
    ] {
        if let Some(id) = gguf.optional_u32(key)? {
            keys.insert(name.to_owned(), id.into());
        }
    }
    if let Some(ids) = end_ids(gguf)? {
        keys.insert("eos_token_id".to_owned(), ids);
    }
    Ok(())
}

fn refuse_unknown_arithmetic(gguf: &Gguf) -> Result<(), CheckpointError> {
    let counts = [
        "llama.expert_count",
        "llama.expert_used_count",
        "llama.attention.sliding_window",
    ];
    for key in counts {
        if let Some(count) = gguf.optional_u32(key)?
            && count > 0
        {
            return Err(CheckpointError::unsupported(
                gguf.path(),
                format!("key `{key}` = {count}"),
            ));
        }
    }
    for key in REFUSED_SCALES {
        if let Some(scale) = gguf.optional_f64(key)?
            && scale != 0.0
        {
            return Err(CheckpointError::unsupported(
                gguf.path(),
                format!("key `{key}` = {scale}"),
            ));
        }
    }
    Ok(())
}

fn head_dim(gguf: &Gguf, embedding: u32, num_heads: u32) -> Result<u32, CheckpointError> {
    let key_length = gguf.optional_u32("llama.attention.key_length")?;
    let value_length = gguf.optional_u32("llama.attention.value_length")?;
    if let (Some(key), Some(value)) = (key_length, value_length)
        && key != value
    {
        let what = format!("key `llama.attention.value_length` = {value} beside keys of {key}");
        return Err(CheckpointError::unsupported(gguf.path(), what));
    }
    if num_heads == 0 || (key_length.is_none() && !embedding.is_multiple_of(num_heads)) {
        let problem = format!("is {num_heads}, the embedding has {embedding} numbers");
        return Err(CheckpointError::bad_key(
            gguf.path(),
            "llama.attention.head_count",
            problem,
        ));
    }
    Ok(key_length.unwrap_or(embedding / num_heads))
}

/// Rows of the embedding; the metadata may say less or nothing.
fn vocabulary(model: &GgufModel) -> Result<u64, CheckpointError> {
    let gguf = model.first();
    let Some((_, embedding)) = model.tensor("token_embd.weight") else {
        return Err(CheckpointError::MissingTensor {
            path: gguf.path().to_owned(),
            tensor: "token_embd.weight".to_owned(),
        });
    };
    let rows = embedding.shape().first().copied().unwrap_or(0);
    let num_tokens = gguf.strings("tokenizer.ggml.tokens")?.len() as u64;
    if num_tokens > rows {
        let problem = format!("has {num_tokens} tokens, `token_embd.weight` has {rows} rows");
        return Err(CheckpointError::bad_key(
            gguf.path(),
            "tokenizer.ggml.tokens",
            problem,
        ));
    }
    Ok(rows)
}

/// Ids that end an answer: end of text, of turn, of message. One id stays a number, as in `config.json`.
fn end_ids(gguf: &Gguf) -> Result<Option<Value>, CheckpointError> {
    let mut ids = Vec::new();
    for name in ["eos", "eot", "eom"] {
        if let Some(id) = gguf.optional_u32(&format!("tokenizer.ggml.{name}_token_id"))?
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    Ok(match ids.as_slice() {
        [] => None,
        [id] => Some((*id).into()),
        several => Some(several.into()),
    })
}
