//! The tensors that a decoder's config promises, with their shapes, in both formats' names.

use crate::CheckpointError;
use crate::gguf::GgufModel;
use crate::hf_config::{DecoderShape, HfConfig};
use crate::safetensors::SafetensorsModel;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One tensor as found, whatever the format.
struct Found<'a> {
    path: &'a Path,
    shape: Vec<u64>,
}

/// The two formats' names for the same tensors.
struct Names {
    embedding: &'static str,
    norm: &'static str,
    output: &'static str,
    layers: &'static str,
    in_layer: [&'static str; 9],
    /// In a layer and without a meaning to the workers.
    ignored: &'static str,
}

const HUGGING_FACE: Names = Names {
    embedding: "model.embed_tokens.weight",
    norm: "model.norm.weight",
    output: "lm_head.weight",
    layers: "model.layers.",
    in_layer: [
        "input_layernorm",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "post_attention_layernorm",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ],
    ignored: "self_attn.rotary_emb.inv_freq",
};

const GGUF: Names = Names {
    embedding: "token_embd.weight",
    norm: "output_norm.weight",
    output: "output.weight",
    layers: "blk.",
    in_layer: [
        "attn_norm",
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_output",
        "ffn_norm",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    ],
    ignored: "attn_rot_embd.weight",
};

/// Checks that every tensor is there in a number format that workers read and with the config's shape.
pub fn check_safetensors(
    model: &SafetensorsModel,
    shape: &DecoderShape,
) -> Result<(), CheckpointError> {
    let mut found = HashMap::new();
    for (file, tensor) in model.tensors() {
        if !tensor.dtype.is_readable() && !tensor.name.ends_with(HUGGING_FACE.ignored) {
            let what = format!("tensor `{}` of type {:?}", tensor.name, tensor.dtype);
            return Err(CheckpointError::unsupported(file.path(), what));
        }
        let place = Found {
            path: file.path(),
            shape: tensor.shape.clone(),
        };
        found.insert(tensor.name.as_str(), place);
    }
    let place = match model.files() {
        [only] => only.path(),
        _ => model.folder(),
    };
    check(&HUGGING_FACE, place, &found, shape)
}

/// The same for GGUF.
pub fn check_gguf(model: &GgufModel, shape: &DecoderShape) -> Result<(), CheckpointError> {
    let mut found = HashMap::new();
    for (part, tensor) in model.tensors() {
        if !tensor.tensor_type.is_readable() {
            let what = format!(
                "tensor `{}` of type {}",
                tensor.name,
                tensor.tensor_type.name()
            );
            return Err(CheckpointError::unsupported(part.path(), what));
        }
        let place = Found {
            path: part.path(),
            shape: tensor.shape(),
        };
        found.insert(tensor.name.as_str(), place);
    }
    check(&GGUF, model.first().path(), &found, shape)
}

/// Rows of the embedding, which `config.json` must agree with.
pub fn vocab_size_of_safetensors(
    model: &SafetensorsModel,
    config: &HfConfig,
) -> Result<u64, CheckpointError> {
    let Some((_, tensor)) = model
        .tensors()
        .find(|(_, tensor)| tensor.name == HUGGING_FACE.embedding)
    else {
        return Err(missing(model.folder(), HUGGING_FACE.embedding));
    };
    let rows = tensor.shape.first().copied().unwrap_or(0);
    let promised = config.decoder_shape()?.vocab_size;
    if rows != promised {
        let problem = format!(
            "is {promised}, `{}` has {rows} rows",
            HUGGING_FACE.embedding
        );
        return Err(CheckpointError::bad_key(
            config.path(),
            "vocab_size",
            problem,
        ));
    }
    Ok(rows)
}

fn check(
    names: &Names,
    place: &Path,
    found: &HashMap<&str, Found<'_>>,
    shape: &DecoderShape,
) -> Result<(), CheckpointError> {
    let expect = |name: &str, expected: &[u64]| {
        let Some(tensor) = found.get(name) else {
            return Err(missing(place, name));
        };
        if tensor.shape == expected {
            return Ok(());
        }
        let problem = format!(
            "tensor `{name}` has shape {:?}, the config says {expected:?}",
            tensor.shape
        );
        Err(CheckpointError::malformed(tensor.path, problem))
    };
    let hidden = shape.hidden_size;
    expect(names.embedding, &[shape.vocab_size, hidden])?;
    expect(names.norm, &[hidden])?;
    if !shape.ties_embeddings {
        expect(names.output, &[shape.vocab_size, hidden])?;
    }
    // A config with more layers than the file has tensors ends at the first missing one.
    let in_layer = layer_tensors(names, shape);
    for layer in 0..shape.num_layers {
        for (name, expected) in &in_layer {
            expect(&format!("{}{layer}.{name}", names.layers), expected)?;
        }
    }
    for (name, tensor) in found {
        let Some((layer, rest)) = name
            .strip_prefix(names.layers)
            .and_then(|rest| rest.split_once('.'))
        else {
            continue;
        };
        let is_known = rest == names.ignored
            || layer
                .parse::<u64>()
                .is_ok_and(|layer| layer < shape.num_layers)
                && in_layer.iter().any(|(known, _)| known == rest);
        if !is_known {
            let problem =
                format!("tensor `{name}` has no place in the model that the config describes");
            return Err(CheckpointError::malformed(tensor.path, problem));
        }
    }
    Ok(())
}

/// Names within a layer and shapes, biases included where the config asks for them.
fn layer_tensors(names: &Names, shape: &DecoderShape) -> Vec<(String, Vec<u64>)> {
    let (hidden, inner) = (shape.hidden_size, shape.intermediate_size);
    let queries = shape.num_heads * shape.head_dim;
    let keys = shape.num_kv_heads * shape.head_dim;
    let (attention, output) = (shape.has_qkv_bias, shape.has_attention_output_bias);
    let mlp = shape.has_mlp_bias;
    let shapes: [(Vec<u64>, bool); 9] = [
        (vec![hidden], false),
        (vec![queries, hidden], attention),
        (vec![keys, hidden], attention),
        (vec![keys, hidden], attention),
        (vec![hidden, queries], output),
        (vec![hidden], false),
        (vec![inner, hidden], mlp),
        (vec![inner, hidden], mlp),
        (vec![hidden, inner], mlp),
    ];
    let mut tensors = Vec::new();
    for (name, (weight, has_bias)) in names.in_layer.iter().zip(shapes) {
        if has_bias {
            tensors.push((
                format!("{name}.bias"),
                weight.iter().take(1).copied().collect(),
            ));
        }
        tensors.push((format!("{name}.weight"), weight));
    }
    tensors
}

fn missing(place: &Path, name: &str) -> CheckpointError {
    CheckpointError::MissingTensor {
        path: PathBuf::from(place),
        tensor: name.to_owned(),
    }
}
