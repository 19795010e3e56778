//! safetensors headers, shards, `config.json` and the tensors it promises.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::too_many_lines,
    reason = "what a test needs and lacks fails it"
)]

mod fixtures;

use fixtures::{safetensors, safetensors_zeros, tiny_llama_config, tiny_llama_tensors};
use headrace_checkpoint::CheckpointError;
use headrace_checkpoint::hf_config::HfConfig;
use headrace_checkpoint::layout::{check_safetensors, vocab_size_of_safetensors};
use headrace_checkpoint::safetensors::{Dtype, SafetensorsFile, SafetensorsModel};
use serde_json::{Value, json};
use std::path::Path;

fn open(bytes: &[u8]) -> Result<SafetensorsFile, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    std::fs::write(&path, bytes).unwrap();
    SafetensorsFile::open(&path)
}

fn fault(header: &str, data: &[u8]) -> String {
    let text = open(&safetensors(header, data)).unwrap_err().to_string();
    assert!(!text.contains('\n'), "{text}");
    text.split_once(".safetensors: ")
        .expect("names the file")
        .1
        .to_owned()
}

#[test]
fn a_sound_header_is_read() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},
        "a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
    let file = open(&safetensors(header, &[0; 16])).unwrap();
    let tensors: Vec<_> = file
        .tensors()
        .iter()
        .map(|t| {
            (
                t.name.as_str(),
                t.dtype,
                t.shape.clone(),
                t.start - 8 - header.len() as u64,
                t.num_bytes,
            )
        })
        .collect();
    assert_eq!(
        tensors,
        [
            ("a", Dtype::BF16, vec![2, 3], 0, 12),
            ("b", Dtype::F32, vec![], 12, 4)
        ]
    );
}

#[test]
fn faults_are_named() {
    let one = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert_eq!(
        fault(one, &[0; 7]),
        "file is truncated: tensor `a` needs bytes up to 70, the file has 69"
    );
    assert_eq!(fault(one, &[0; 9]), "has 71 bytes, its header describes 70");
    assert_eq!(
        fault(
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#,
            &[0; 4]
        ),
        "tensor `a` is F32 [2] but has 4 bytes"
    );
    let two = |first: &str, second: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{first}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{second}}}}}"#
        )
    };
    assert_eq!(
        fault(&two("[0,4]", "[2,6]"), &[0; 6]),
        "tensor `b` overlaps another: its bytes are 2 to 6"
    );
    assert_eq!(
        fault(&two("[0,4]", "[6,10]"), &[0; 10]),
        "tensor `b` leaves a gap: its bytes are 6 to 10"
    );
    assert_eq!(
        fault(
            r#"{"a":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,0]}}"#,
            &[]
        ),
        "tensor `a` is U8 [18446744073709551615, 2] but has 0 bytes"
    );
    assert!(fault("{", &[]).starts_with("header is not valid: EOF"));
    let twice = r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
    assert!(fault(twice, &[]).starts_with("header is not valid: `a` is given twice"));
    let unknown = r#"{"a":{"dtype":"Q9","shape":[0],"data_offsets":[0,0]}}"#;
    assert!(fault(unknown, &[]).contains("`a`: unknown variant `Q9`"));

    let text = open(b"123").unwrap_err().to_string();
    assert!(
        text.ends_with(
            "file is truncated: the header's length needs bytes up to 8, the file has 3"
        )
    );
    let text = open(&[0xff; 64]).unwrap_err().to_string();
    assert!(text.ends_with("not a safetensors file (a header of 18446744073709551615 bytes)"));
    let text = open(&[100, 0, 0, 0, 0, 0, 0, 0, b'{'])
        .unwrap_err()
        .to_string();
    assert!(text.ends_with("file is truncated: the header needs bytes up to 108, the file has 9"));
}

/// Checks a folder as the launcher does.
fn check(folder: &Path) -> Result<u64, CheckpointError> {
    let model = SafetensorsModel::open(folder)?.expect("has safetensors");
    let config = HfConfig::open(folder.join("config.json"))?;
    let rows = vocab_size_of_safetensors(&model, &config)?;
    check_safetensors(&model, &config.decoder_shape()?)?;
    Ok(rows)
}

fn folder(config: &Value, tensors: &[(String, Vec<u64>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(
        folder.path().join("model.safetensors"),
        safetensors_zeros(tensors),
    )
    .unwrap();
    folder
}

#[test]
fn a_sound_folder_passes() {
    assert_eq!(
        check(folder(&tiny_llama_config(), &tiny_llama_tensors()).path()).unwrap(),
        5
    );
}

#[test]
fn configs_are_checked_by_key() {
    let cases = [
        (
            "architectures",
            Value::Null,
            "key `architectures` is missing",
        ),
        (
            "architectures",
            json!("x"),
            "key `architectures` must be a list of names",
        ),
        (
            "architectures",
            json!(["GPT2LMHeadModel"]),
            "architecture `GPT2LMHeadModel` (only LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM) is not supported",
        ),
        ("hidden_size", Value::Null, "key `hidden_size` is missing"),
        (
            "hidden_size",
            json!("8"),
            "key `hidden_size` must be a positive integer below 2^32, not \"8\"",
        ),
        (
            "hidden_size",
            json!(-8),
            "key `hidden_size` must be a positive integer below 2^32, not -8",
        ),
        (
            "num_key_value_heads",
            json!(3),
            "key `num_key_value_heads` is 3, which does not divide 2 heads",
        ),
        (
            "num_attention_heads",
            json!(3),
            "key `num_key_value_heads` is 1, which does not divide 3 heads",
        ),
        (
            "vocab_size",
            json!(6),
            "key `vocab_size` is 6, `model.embed_tokens.weight` has 5 rows",
        ),
        (
            "hidden_act",
            json!("gelu"),
            "key `hidden_act` = \"gelu\" is not supported",
        ),
        (
            "quantization_config",
            json!({"quant_method": "gptq"}),
            "key `quantization_config` (quant_method `gptq`) is not supported",
        ),
        (
            "rope_scaling",
            json!({"type": "su"}),
            "key `rope_scaling.rope_type` = \"su\" is not supported",
        ),
        (
            "rope_scaling",
            json!({"type": "linear", "factor": 0}),
            "key `rope_scaling.factor` must be a number of at least 1, not 0",
        ),
        (
            "attention_bias",
            json!(true),
            "tensor `model.layers.0.self_attn.q_proj.bias` is missing",
        ),
        (
            "num_hidden_layers",
            json!(2),
            "tensor `model.layers.1.input_layernorm.weight` is missing",
        ),
    ];
    for (key, value, expected) in cases {
        let mut config = tiny_llama_config();
        config[key] = value;
        let text = check(folder(&config, &tiny_llama_tensors()).path())
            .unwrap_err()
            .to_string();
        if key == "num_attention_heads" {
            // 1 divides 3; the heads do not divide the width.
            assert!(
                text.ends_with("key `num_attention_heads` is 3, which does not divide 8"),
                "{text}"
            );
        } else {
            assert!(text.ends_with(expected), "{key}: {text}");
        }
    }
    let mut remote = tiny_llama_config();
    remote["architectures"] = json!(["Custom"]);
    remote["auto_map"] = json!({"AutoModelForCausalLM": "modeling.Custom"});
    let text = check(folder(&remote, &tiny_llama_tensors()).path())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("`auto_map`") && text.contains("never run"),
        "{text}"
    );
}

#[test]
fn qwen2_has_biases_on_queries_keys_and_values_alone() {
    let mut config = tiny_llama_config();
    config["architectures"] = json!(["Qwen2ForCausalLM"]);
    let mut tensors = tiny_llama_tensors();
    let text = check(folder(&config, &tensors).path())
        .unwrap_err()
        .to_string();
    assert!(
        text.ends_with("tensor `model.layers.0.self_attn.q_proj.bias` is missing"),
        "{text}"
    );
    for (name, rows) in [("q", 8), ("k", 4), ("v", 4)] {
        tensors.push((
            format!("model.layers.0.self_attn.{name}_proj.bias"),
            vec![rows],
        ));
    }
    check(folder(&config, &tensors).path()).unwrap();
}

#[test]
fn tensors_are_checked_by_name() {
    let mut tensors = tiny_llama_tensors();
    tensors.retain(|(name, _)| name != "lm_head.weight");
    let text = check(folder(&tiny_llama_config(), &tensors).path())
        .unwrap_err()
        .to_string();
    assert!(
        text.ends_with("model.safetensors: tensor `lm_head.weight` is missing"),
        "{text}"
    );
    let mut tied = tiny_llama_config();
    tied["tie_word_embeddings"] = json!(true);
    check(folder(&tied, &tensors).path()).unwrap();

    let mut tensors = tiny_llama_tensors();
    tensors.push(("model.layers.1.input_layernorm.weight".into(), vec![8]));
    let text = check(folder(&tiny_llama_config(), &tensors).path())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("`model.layers.1.input_layernorm.weight` has no place"),
        "{text}"
    );

    let mut tensors = tiny_llama_tensors();
    tensors[4].1 = vec![8, 9];
    let text = check(folder(&tiny_llama_config(), &tensors).path())
        .unwrap_err()
        .to_string();
    assert!(
        text.ends_with("has shape [8, 9], the config says [8, 8]"),
        "{text}"
    );
}

#[test]
fn shards_must_hold_what_the_index_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let tensors = tiny_llama_tensors();
    let (first, second) = tensors.split_at(5);
    std::fs::write(at("config.json"), tiny_llama_config().to_string()).unwrap();
    std::fs::write(at("model-1.safetensors"), safetensors_zeros(first)).unwrap();
    std::fs::write(at("model-2.safetensors"), safetensors_zeros(second)).unwrap();
    let index = |edit: &dyn Fn(&mut Value)| {
        let mut map = serde_json::Map::new();
        for (name, _) in first {
            map.insert(name.clone(), "model-1.safetensors".into());
        }
        for (name, _) in second {
            map.insert(name.clone(), "model-2.safetensors".into());
        }
        let mut index = json!({"metadata": {}, "weight_map": map});
        edit(&mut index);
        std::fs::write(at("model.safetensors.index.json"), index.to_string()).unwrap();
        check(folder.path()).map_err(|error| error.to_string())
    };
    let text = check(folder.path()).unwrap_err().to_string();
    assert!(
        text.ends_with("2 safetensors files and no model.safetensors.index.json"),
        "{text}"
    );

    assert_eq!(index(&|_| ()), Ok(5));
    let text = index(&|index| index["weight_map"]["lm_head.weight"] = "model-2.safetensors".into());
    assert!(
        text.unwrap_err().ends_with(
            "says that tensor `lm_head.weight` is in model-2.safetensors, but it is not"
        )
    );
    let text = index(&|index| index["weight_map"]["x"] = "../model-2.safetensors".into());
    assert!(
        text.unwrap_err()
            .ends_with("names `../model-2.safetensors`, which is not a file of this folder")
    );
    let text = index(&|index| index["weight_map"]["x"] = "model-3.safetensors".into()).unwrap_err();
    assert!(
        text.contains("model-3.safetensors: ") && text.contains("No such file"),
        "{text}"
    );
    let text = index(&|index| index["weight_map"] = json!({})).unwrap_err();
    assert!(text.ends_with("key `weight_map` is empty"), "{text}");
    let text = index(&|index| *index = json!({})).unwrap_err();
    assert!(text.contains("missing field `weight_map`"), "{text}");
}

#[test]
fn a_folder_without_safetensors_is_none() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pytorch_model.bin"), b"pickle").unwrap();
    assert!(SafetensorsModel::open(folder.path()).unwrap().is_none());
}
