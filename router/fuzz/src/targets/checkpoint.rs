//! Headers of model files: an error of one line, or what the launcher and the router make of them.

use crate::Target;
use crate::random::{Random, kind_of, mix};
use fixtures::{safetensors_zeros, tiny_llama, tiny_llama_config, tiny_llama_tensors};
use headrace_checkpoint::CheckpointError;
use headrace_checkpoint::gguf::GgufModel;
use headrace_checkpoint::hf_config::{HfConfig, config_from_gguf};
use headrace_checkpoint::layout::{check_gguf, check_safetensors, vocab_size_of_safetensors};
use headrace_checkpoint::safetensors::SafetensorsModel;
use headrace_text::Tokenizer;
use std::path::{Path, PathBuf};

#[path = "../../../../launcher/checkpoint/tests/fixtures/mod.rs"]
mod fixtures;

pub(super) const GGUF: Target = Target {
    name: "gguf",
    seeds: gguf_seeds,
    fresh: |random| damaged(random, &tiny_llama().bytes()),
    run: run_gguf,
    words: &[
        "GGUF",
        "general.alignment",
        "general.architecture",
        "split.count",
        "llama.rope.freq_base",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.token_type",
        "blk.0.attn_q.bias",
        "gpt2",
        "llama",
    ],
    short: 8_000,
};

pub(super) const SAFETENSORS: Target = Target {
    name: "safetensors",
    seeds: || vec![safetensors_zeros(&tiny_llama_tensors())],
    fresh: |random| damaged(random, &safetensors_zeros(&tiny_llama_tensors())),
    run: run_safetensors,
    words: &[
        "\"dtype\":",
        "\"F32\"",
        "\"F4\"",
        "\"shape\":[]",
        "\"data_offsets\":[0,0]",
        "__metadata__",
        "18446744073709551615",
    ],
    short: 8_000,
};

pub(super) const CONFIG: Target = Target {
    name: "config",
    seeds: || vec![tiny_llama_config().to_string().into_bytes()],
    fresh: |random| {
        let (key, value) = (*random.pick(&KEYS), super::json_text::value(random, 2));
        let rest = tiny_llama_config().to_string();
        format!("{{{}:{value},{}", serde_json::Value::from(key), &rest[1..]).into_bytes()
    },
    run: run_config,
    words: &KEYS,
    short: 40_000,
};

const KEYS: [&str; 20] = [
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "rope_scaling",
    "rope_theta",
    "rope_type",
    "factor",
    "quantization_config",
    "sliding_window",
    "attention_bias",
    "mlp_bias",
];

fn gguf_seeds() -> Vec<Vec<u8>> {
    let scores: Vec<u8> = [0.0_f32, -1.0, -2.0, -3.0]
        .iter()
        .flat_map(|score| score.to_le_bytes())
        .collect();
    vec![
        tiny_llama().bytes(),
        tiny_llama().version(2).bytes(),
        tiny_llama()
            .strings("tokenizer.ggml.merges", &["a b"])
            .bytes(),
        tiny_llama()
            .string("tokenizer.ggml.model", "llama")
            .array("tokenizer.ggml.scores", 6, 4, &scores)
            .bytes(),
        tiny_llama()
            .u32("split.count", 1)
            .u32("general.alignment", 64)
            .bytes(),
    ]
}

/// A good file with one word of its header replaced, or cut.
fn damaged(random: &mut Random, good: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let place = random.below(bytes.len().min(2400));
    if random.percent(20) {
        bytes.truncate(place);
        return bytes;
    }
    let word = match random.below(4) {
        0 => random.number(),
        1 => u64::MAX >> random.below(64),
        2 => 1 << random.below(64),
        _ => random.below(70) as u64,
    };
    for (byte, new) in bytes.iter_mut().skip(place).zip(word.to_le_bytes()) {
        *byte = new;
    }
    bytes
}

/// Writes the file anew and reads it; an error must be one line that names the file.
fn read<T>(
    name: &str,
    bytes: &[u8],
    read: impl FnOnce(&Path, &Path) -> Result<T, CheckpointError>,
) -> Result<T, u64> {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a temporary folder");
    }
    FOLDER.with(|folder| {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, bytes).expect("room for a small file");
        let outcome = read(folder.path(), &path).map_err(|error| {
            let text = error.to_string();
            assert!(!text.contains('\n'), "two lines: {text:?}");
            assert!(
                text.contains(&folder.path().display().to_string()),
                "no file: {text}"
            );
            assert!(text.len() < 3000, "{} bytes of error", text.len());
            kind_of(&text.replace(&folder.path().display().to_string(), ""))
        });
        std::fs::remove_file(&path).expect("it was just written");
        outcome
    })
}

fn run_gguf(input: &[u8]) -> u64 {
    let outcome = read("model.gguf", input, |_, path| {
        let model = GgufModel::open(path)?;
        let file_bytes = input.len() as u64;
        for (_, tensor) in model.tensors() {
            assert!(
                tensor
                    .start
                    .checked_add(tensor.num_bytes)
                    .is_some_and(|end| end <= file_bytes)
            );
        }
        // The router's part: ids and texts.
        let tokens = match Tokenizer::from_gguf(path) {
            Ok(tokenizer) => u64::from(tokenizer.vocab_size()),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains('\n'), "two lines: {text:?}");
                kind_of(&text)
            }
        };
        let config = config_from_gguf(&model)?;
        let shape = config.decoder_shape()?;
        check_gguf(&model, &shape)?;
        Ok(tokens)
    });
    outcome.unwrap_or_else(|kind| mix(kind, 1))
}

fn run_safetensors(input: &[u8]) -> u64 {
    let config =
        HfConfig::from_value(Path::new("config.json"), tiny_llama_config()).expect("an object");
    let shape = config.decoder_shape().expect("a good config");
    let outcome = read("model.safetensors", input, |folder, _| {
        let model = SafetensorsModel::open(folder)?.expect("there is one");
        for (_, tensor) in model.tensors() {
            let end = tensor.start.checked_add(tensor.num_bytes);
            assert!(end.is_some_and(|end| end <= input.len() as u64));
            let numbers = tensor
                .shape
                .iter()
                .try_fold(1_u64, |product, size| product.checked_mul(*size));
            let bits = numbers.and_then(|numbers| numbers.checked_mul(tensor.dtype.bits()));
            assert_eq!(bits, Some(tensor.num_bytes * 8), "{tensor:?}");
        }
        check_safetensors(&model, &shape)?;
        Ok(model.tensors().count() as u64)
    });
    let rows = read("model.safetensors", input, |folder, _| {
        let model = SafetensorsModel::open(folder)?.expect("there is one");
        Ok(vocab_size_of_safetensors(&model, &config).is_ok())
    });
    mix(
        outcome.unwrap_or_else(|kind| kind),
        u64::from(rows == Ok(true)),
    )
}

fn run_config(input: &[u8]) -> u64 {
    let outcome = read("config.json", input, |_, path| {
        let shape = HfConfig::open(path)?.decoder_shape()?;
        assert!(shape.num_heads % shape.num_kv_heads == 0 && shape.num_layers > 0);
        assert!(shape.hidden_size > 0 && shape.head_dim > 0 && shape.vocab_size > 0);
        Ok(mix(shape.num_heads, shape.head_dim))
    });
    outcome.unwrap_or_else(|kind| kind)
}
