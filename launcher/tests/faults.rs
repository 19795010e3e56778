//! Faults at the start: one line on standard error that names the thing, soon, and nothing left.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]
#![allow(clippy::too_many_lines, reason = "tables of cases")]

mod stage;

use serde_json::json;
use stage::{Stage, assert_fault, fixtures};
use std::path::Path;

#[test]
fn flags() {
    let stage = Stage::new();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--no-such-flag"], &["--no-such-flag"]),
        (
            &["--model-ID", "x"],
            &["--model-ID", "did you mean --model-id"],
        ),
        (&["--port", "many"], &["--port", "many"]),
        (&["--port", "70000"], &["--port", "70000"]),
        (&["--port", "-1"], &["--port -1: "]),
        (&["--max-total-tokens", "-5"], &["--max-total-tokens -5: "]),
        (&["--hostname", "my-host"], &["--hostname my-host"]),
        (&["--max-total-tokens", "many"], &["--max-total-tokens"]),
        (&["--max-total-tokens", "0"], &["--max-total-tokens 0"]),
        (
            &["--max-input-length", "5", "--max-input-tokens", "5"],
            &["--max-input-length", "--max-input-tokens"],
        ),
        (
            &["--max-input-tokens", "5", "--max-total-tokens", "5"],
            &["--max-input-tokens 5", "--max-total-tokens 5"],
        ),
        (
            &["--max-total-tokens", "9", "--max-batch-total-tokens", "8"],
            &["--max-total-tokens 9", "--max-batch-total-tokens 8"],
        ),
        (&["--validation-workers", "0"], &["--validation-workers 0"]),
        (&["--quantize", "gptq"], &["--quantize gptq"]),
        (
            &["--kv-cache-dtype", "fp8_e5m2"],
            &["--kv-cache-dtype fp8_e5m2"],
        ),
        (&["--speculate", "2"], &["--speculate 2"]),
        (&["--lora-adapters", "a=b"], &["--lora-adapters a=b"]),
        (&["--trust-remote-code"], &["--trust-remote-code"]),
        (&["--dtype", "int4"], &["--dtype", "int4", "float32"]),
        (
            &["--rope-scaling", "linear"],
            &["--rope-scaling", "--rope-factor"],
        ),
        (
            &["--rope-factor", "2"],
            &["--rope-factor", "--rope-scaling"],
        ),
        (
            &["--kv-cache-memory", "4 parsecs"],
            &["--kv-cache-memory", "parsecs"],
        ),
        (&["--block-size", "0"], &["--block-size"]),
        (
            &["--max-total-tokens", "1"],
            &["--max-total-tokens 1", "at least 2"],
        ),
        (
            &["--max-batch-total-tokens", "1", "--block-size", "1"],
            &["--max-batch-total-tokens 1", "at least 2"],
        ),
        (
            &["--max-input-tokens", "32", "--max-batch-total-tokens", "32"],
            &["--max-input-tokens 32", "--max-batch-total-tokens 32"],
        ),
        (
            &["--block-size", "7", "--device", "cpu"],
            &["--block-size 7", "multiple of 8"],
        ),
        (
            &["--kv-cache-memory", "900TiB", "--device", "cpu"],
            &["--kv-cache-memory 989560464998400: more than the ", "bytes"],
        ),
        (
            &[
                "--kv-cache-memory",
                "8000000TiB",
                "--num-shard",
                "4",
                "--device",
                "cpu",
            ],
            &["--kv-cache-memory", "each of 4 workers"],
        ),
        (
            &["--num-shard", "2", "--sharded", "false"],
            &["--num-shard 2", "--sharded false"],
        ),
        (&["--model-id", ""], &["--model-id: is empty"]),
        (&["--model-id", " "], &["--model-id: is empty"]),
        (&["--num-shard", "0"], &["--num-shard 0"]),
        (&["--sharded", "true"], &["--sharded true", "--num-shard"]),
        (
            &["--sharded", "true", "--num-shard", "1"],
            &["--sharded true"],
        ),
        (&["--api-key", ""], &["--api-key"]),
        (&["--admin-api-key", ""], &["--admin-api-key"]),
        (
            &["--api-key", "same", "--admin-api-key", "same"],
            &["--admin-api-key", "--api-key too"],
        ),
        (
            &["--schedule-policy", "best"],
            &["--schedule-policy", "best", "fcfs", "lpm"],
        ),
        (&["--target-itl-ms", "soon"], &["--target-itl-ms", "auto"]),
        (&["--target-itl-ms", "1.5"], &["--target-itl-ms", "auto"]),
        (&["--stall-timeout", "0"], &["--stall-timeout 0"]),
        (&["--stall-timeout", "1s"], &["--stall-timeout", "1s"]),
        (&["--max-queued-tokens", "0"], &["--max-queued-tokens 0"]),
        (
            &["--lenient-grammar", "--disable-grammar-support"],
            &["--lenient-grammar", "--disable-grammar-support"],
        ),
        (
            &["--guard-info-and-metrics"],
            &["--guard-info-and-metrics", "--api-key"],
        ),
        (
            &["--api-key-file", "/no/keys"],
            &["--api-key-file /no/keys"],
        ),
        (&["--prometheus-port", "3000"], &["--prometheus-port 3000"]),
        (&["--python", "/no/python"], &["--python /no/python"]),
        (
            &["--cors-allow-origin", "a b"],
            &["--cors-allow-origin a b: "],
        ),
        (&["--usage-stats", "maybe"], &["--usage-stats", "maybe"]),
        (&["dance"], &["dance"]),
    ];
    for (flags, parts) in cases {
        assert_fault(&stage, flags, &[], parts);
    }
}

#[test]
fn a_device_that_is_not_there() {
    let stage = Stage::new();
    if Path::new("/dev/dxg").exists() || Path::new("/dev/nvmap").exists() {
        return;
    }
    let hidden = [("CUDA_VISIBLE_DEVICES", "")];
    assert_fault(&stage, &["--device", "cuda"], &hidden, &["--device cuda"]);
}

#[test]
fn models() {
    let stage = Stage::new();
    let model = stage.model();
    let folder = model.to_str().unwrap();
    let faulty = |parts: &[&str]| assert_fault(&stage, &["--model-id", folder], &[], parts);
    let with_file = |name: &str, content: Option<&[u8]>, parts: &[&str]| {
        let path = model.join(name);
        let before = std::fs::read(&path).ok();
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        faulty(parts);
        match before {
            Some(before) => std::fs::write(&path, before).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    };
    let mut config = fixtures::tiny_llama_config();
    config["hidden_size"] = json!("wide");
    with_file(
        "config.json",
        Some(config.to_string().as_bytes()),
        &["config.json", "`hidden_size`"],
    );
    let mut config = fixtures::tiny_llama_config();
    config.as_object_mut().unwrap().remove("num_hidden_layers");
    with_file(
        "config.json",
        Some(config.to_string().as_bytes()),
        &["config.json", "`num_hidden_layers` is missing"],
    );
    let mut config = fixtures::tiny_llama_config();
    config["architectures"] = json!(["Own"]);
    config["auto_map"] = json!({});
    with_file(
        "config.json",
        Some(config.to_string().as_bytes()),
        &["config.json", "`auto_map`"],
    );
    with_file(
        "config.json",
        Some(b"{"),
        &["config.json", "not valid JSON"],
    );
    with_file(
        "config.json",
        None,
        &[
            &format!("--model-id {folder}: holds no model: "),
            "config.json",
        ],
    );
    with_file("tokenizer.json", None, &["tokenizer.json", "no such file"]);
    let tokenizer = std::fs::read(model.join("tokenizer.json")).unwrap();
    std::fs::remove_file(model.join("tokenizer.json")).unwrap();
    for (name, content, why) in [
        ("tokenizer.model", &b""[..], "neither a SentencePiece model"),
        ("tokenizer.model", b"hello", "neither a SentencePiece model"),
        (
            "tokenizer.model",
            b"\n\xff\xff",
            "not a SentencePiece model",
        ),
        (
            "tokenizer.model",
            b"\n\x03\n\x01a",
            "no piece is for what is unknown",
        ),
        (
            "tokenizer.model",
            b"version https://git-lfs.github.com/spec/v1\n",
            "a Git LFS pointer",
        ),
        ("tokenizer.model.v3", b"IQ== 1\n", "line 1 has the rank 1"),
        ("tiktoken.model", b"IQ== 0\n", "is of no known family"),
        ("qwen.tiktoken", b"IQ== 0\n", "the byte 0 has no token"),
        ("tekken.json", b"{}", "not a tekken vocabulary"),
        ("vocab.json", b"{}", "merges.txt is not beside it"),
    ] {
        std::fs::write(model.join(name), content).unwrap();
        faulty(&[name, "cannot be converted to tokenizer.json", why]);
        std::fs::remove_file(model.join(name)).unwrap();
    }
    std::fs::write(model.join("vocab.txt"), "[PAD]\n").unwrap();
    faulty(&["tokenizer.json", "no such file", "vocab.txt", "WordPiece"]);
    std::fs::remove_file(model.join("vocab.txt")).unwrap();
    std::fs::write(model.join("tokenizer.json"), tokenizer).unwrap();
    with_file(
        "tokenizer_config.json",
        Some(b"nonsense"),
        &["tokenizer_config.json"],
    );
    with_file(
        "generation_config.json",
        Some(b"[]"),
        &["generation_config.json"],
    );
    let weights = std::fs::read(model.join("model.safetensors")).unwrap();
    with_file(
        "model.safetensors",
        Some(&weights[..weights.len() - 1]),
        &["model.safetensors", "truncated"],
    );
    with_file(
        "model.safetensors",
        Some(b"short"),
        &["model.safetensors", "truncated"],
    );

    std::fs::rename(
        model.join("model.safetensors"),
        model.join("pytorch_model.bin"),
    )
    .unwrap();
    faulty(&["pytorch_model.bin", "pickled"]);
    std::fs::remove_file(model.join("pytorch_model.bin")).unwrap();
    faulty(&["no *.safetensors file"]);
    let cached = stage.path("models--org--name");
    let snapshot = cached.join("snapshots/abc");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(snapshot.join("config.json"), "{}").unwrap();
    let snapshot = snapshot.to_str().unwrap();
    assert_fault(
        &stage,
        &["--model-id", cached.to_str().unwrap()],
        &[],
        &["--model-id ", "give the snapshot ", snapshot],
    );

    let broken = stage.path("broken.gguf");
    let bytes = fixtures::tiny_llama().bytes();
    std::fs::write(&broken, &bytes[..bytes.len() - 8]).unwrap();
    let path = broken.to_str().unwrap();
    assert_fault(
        &stage,
        &["--model-id", path],
        &[],
        &["broken.gguf", "truncated"],
    );
    std::fs::write(&broken, [b"GGUF".as_slice(), &[0xa7; 200]].concat()).unwrap();
    assert_fault(
        &stage,
        &["--model-id", path],
        &[],
        &["broken.gguf", "version"],
    );
    let missing = ["--model-id", "/no/such/model"];
    assert_fault(
        &stage,
        &missing,
        &[],
        &["/no/such/model: no such file or directory"],
    );
}

#[test]
fn what_the_model_cannot_do() {
    let stage = Stage::new();
    let model = stage.model();
    let folder = model.to_str().unwrap();
    let empty = stage.empty();
    let cases: [(&[&str], &[&str]); 7] = [
        (&["--dtype", "bfloat16"], &["--dtype bfloat16", "float32"]),
        (
            &["--max-total-tokens", "65"],
            &["--max-total-tokens 65", "64"],
        ),
        // One layer, one KV head of 4 numbers, 16 tokens, 4 bytes each, keys and values.
        (
            &["--kv-cache-memory", "511"],
            &["--kv-cache-memory 511", "16 tokens", "512 bytes"],
        ),
        (
            &[
                "--kv-cache-memory",
                "2047",
                "--block-size",
                "64",
                "--num-shard",
                "2",
            ],
            &["--kv-cache-memory 2047", "64 tokens", "2048 bytes"],
        ),
        (
            &["--kv-cache-memory", "512", "--max-total-tokens", "17"],
            &["--max-total-tokens 17", "holds 16 tokens", "1024 bytes"],
        ),
        (&["--num-shard", "3"], &["--num-shard 3", "2 query heads"]),
        (
            &["--weights-cache-override", empty.to_str().unwrap()],
            &["--weights-cache-override /", "no *.safetensors file"],
        ),
    ];
    for (flags, parts) in cases {
        let flags = [&["--model-id", folder, "--device", "cpu"], flags].concat();
        assert_fault(&stage, &flags, &[], parts);
    }
}

#[test]
fn processes() {
    let stage = Stage::new();
    let model = stage.model();
    let flags = ["--model-id", model.to_str().unwrap()];
    let busy = [("FAKE_ROUTER", "busy")];
    assert_fault(
        &stage,
        &flags,
        &busy,
        &["0.0.0.0:3000: address already in use"],
    );
    let refusing = [("FAKE_WORKER", "refuse")];
    assert_fault(
        &stage,
        &flags,
        &refusing,
        &["worker rank 0", "config: `hidden_size` is odd"],
    );
    let hub = ["--model-id", "some/model"];
    let offline = [("FAKE_DOWNLOAD", "fail")];
    assert_fault(
        &stage,
        &hub,
        &offline,
        &[
            "error: some/model: the hub cannot be reached",
            "there is no ./some/model here",
        ],
    );
    std::fs::remove_file(stage.path("bin/router")).unwrap();
    assert_fault(&stage, &flags, &[], &["router: no such file"]);
    assert!(!Path::new(&stage.path("tmp/headrace")).exists());
}
