//! What a person sees who starts the server wrongly: one line on standard error that names the flag, the variable or the
//! file, before anything listens.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]
#![allow(clippy::too_many_lines, reason = "tables of cases")]

mod stage;

use stage::{Stage, assert_fault};

#[test]
fn variables_are_flags() {
    let stage = Stage::new();
    for (name, value, part) in [
        ("PORT", "many", "--port many: "),
        ("QUANTIZE", "awq", "--quantize awq: "),
        ("MAX_TOTAL_TOKENS", "0", "--max-total-tokens 0: "),
        ("TRUST_REMOTE_CODE", "true", "--trust-remote-code: "),
        (
            "JSON_OUTPUT",
            "maybe",
            "--json-output maybe: must be true or false",
        ),
        (
            "SHARDED",
            "maybe",
            "--sharded maybe: must be one of true, false",
        ),
        ("DEVICE", "tpu", "--device tpu: "),
        ("KV_CACHE_MEMORY", "lots", "--kv-cache-memory lots: "),
        ("MODEL_ID", "/no/model", "--model-id /no/model: "),
        ("API_KEY_FILE", "/no/keys", "--api-key-file /no/keys: "),
        ("HEADRACE_PYTHON", "/no/python", "--python /no/python: "),
        ("AIP_HTTP_PORT", "x", "--port x: "),
        (
            "HUGGINGFACE_HUB_CACHE",
            "/dev/null",
            "--huggingface-hub-cache /dev/null: not a directory",
        ),
    ] {
        let variable = format!("is set by the variable {name})");
        assert_fault(&stage, &[], &[(name, value)], &[part, &variable]);
    }
    for (name, value, part) in [
        ("PREFIX_CACHING", "2", "PREFIX_CACHING 2: must be 1 or 0"),
        (
            "HEADRACE_KERNEL_SET",
            "sse",
            "must be avx512, avx2 or scalar",
        ),
        (
            "COMPUTE_TYPE",
            "a\nb",
            "COMPUTE_TYPE ab: must be plain ASCII",
        ),
        ("TMPDIR", "/no/folder", "TMPDIR /no/folder: "),
    ] {
        let model = stage.model();
        let flags = ["--model-id", model.to_str().unwrap()];
        assert_fault(&stage, &flags, &[(name, value)], &[part]);
    }
    // Set to nothing is not set.
    assert_fault(
        &stage,
        &["--model-id", "/x"],
        &[("PORT", ""), ("QUANTIZE", "")],
        &["/x"],
    );
    let sagemaker = [("HF_MODEL_ID", "/no/hf-model"), ("SM_NUM_GPUS", "1")];
    assert_fault(&stage, &["serve"], &sagemaker, &["/no/hf-model"]);
}

/// Also for a model of the hub: nothing is asked of the network first.
#[test]
fn paths() {
    let stage = Stage::new();
    let file = |name: &str, text: &str| {
        std::fs::write(stage.path(name), text).unwrap();
        stage.path(name).to_str().unwrap().to_owned()
    };
    let broken = file("broken.json", "{");
    let list = file("list.json", "[]");
    let plain = file("plain", "no program");
    let below = format!("{plain}/cache");
    let empty = stage.empty();
    let empty = empty.to_str().unwrap();
    for (flag, value, due) in [
        ("--tokenizer-config-path", "/no/t.json", "No such file"),
        ("--tokenizer-config-path", "/no/t.jinja", "No such file"),
        ("--tokenizer-config-path", empty, "not a file"),
        ("--tokenizer-config-path", &*broken, "nor a JSON object"),
        ("--tokenizer-config-path", &*list, "nor a JSON object"),
        (
            "--weights-cache-override",
            "/no/weights",
            "no such directory",
        ),
        ("--weights-cache-override", &*plain, "not a directory"),
        ("--huggingface-hub-cache", &*plain, "not a directory"),
        ("--huggingface-hub-cache", &*below, "not a directory"),
        ("--api-key-file", empty, "directory"),
        ("--python", "/no/python", "no such file"),
        ("--python", empty, "not a file"),
        ("--python", &*plain, "cannot be run: "),
        ("--python", "/bin/false", "ended with exit status: 1"),
        ("--python", "/bin/true", "does not answer as a Python does"),
    ] {
        let named = format!("{flag} {value}: ");
        let flags = ["--model-id", "org/name", flag, value];
        assert_fault(&stage, &flags, &[], &[&named, due]);
    }
    for (answer, due) in [
        ("headrace-python 3.9", "it is Python 3.9"),
        ("headrace-python 3.12\ntorch", "it lacks torch"),
    ] {
        let python = stage.path("bin/python");
        let python = python.to_str().unwrap();
        let flags = ["--model-id", "org/name", "--python", python];
        let answer = [("FAKE_CHECK", answer)];
        assert_fault(
            &stage,
            &flags,
            &answer,
            &[&format!("--python {python}: "), due],
        );
    }
}

/// Nobody listens, and no weight is downloaded, for a model that the flags do not fit.
#[test]
fn what_a_hub_model_cannot_do() {
    let stage = Stage::new();
    let model = stage.model();
    let folder = model.to_str().unwrap();
    let cases: [(&[&str], &[&str]); 4] = [
        (
            &["--kv-cache-memory", "511"],
            &["--kv-cache-memory 511", "512 bytes"],
        ),
        (
            &["--max-total-tokens", "65"],
            &["--max-total-tokens 65", "64"],
        ),
        (&["--num-shard", "3"], &["--num-shard 3", "2 query heads"]),
        (&["--dtype", "float16"], &["--dtype float16", "float32"]),
    ];
    for (flags, parts) in cases {
        let flags = [&["--model-id", "org/name", "--device", "cpu"], flags].concat();
        // The small files came, and the weights would take for ever.
        let coming = [("FAKE_DOWNLOAD", "hang"), ("FAKE_CONFIGURED", folder)];
        assert_fault(&stage, &flags, &coming, parts);
        assert!(stage.pids("headrace.worker").is_empty());
    }
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let repository = stage.path(".cache/huggingface/hub/models--org--name");
    std::fs::create_dir_all(repository.join("snapshots")).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), commit).unwrap();
    std::fs::rename(&model, repository.join("snapshots").join(commit)).unwrap();
    for (flags, parts) in cases {
        let flags = [&["--model-id", "org/name", "--device", "cpu"], flags].concat();
        std::fs::remove_file(stage.path("pids")).ok();
        // A downloader would not answer.
        assert_fault(&stage, &flags, &[("FAKE_DOWNLOAD", "hang")], parts);
        assert_eq!(stage.read("pids"), "", "no child was started");
        assert!(stage.heard().is_empty() || stage.heard_of("model").is_empty());
    }
}

#[test]
fn flags_of_other_servers() {
    let stage = Stage::new();
    for (flags, parts) in [
        (
            &["--model", "org/name", "--max-model-len", "4096", "-tp", "2"][..],
            &[
                "--model org/name: here it is --model-id org/name; ",
                "--max-model-len 4096: here it is --max-total-tokens 4096; ",
                "-tp 2: here it is --num-shard 2",
            ][..],
        ),
        (
            &["serve", "org/name", "--gpu-memory-utilization=0.9"],
            &["--model-id org/name", "here it is --kv-cache-memory, "],
        ),
        (
            &["org/name"],
            &["org/name: a model is given with a flag: --model-id org/name"],
        ),
        (
            &["-m", "m.gguf", "-c", "0", "-ngl", "99"],
            &["--model-id m.gguf", "-ngl: here it is --device"],
        ),
        (&["-hf", "org/name"], &["-hf: here it is --model-id"]),
    ] {
        assert_fault(&stage, flags, &[], parts);
    }
}

/// The log's variables are set by platforms for their own sake: nobody is kept from starting by them.
#[test]
fn variables_that_say_nothing_are_warned_of() {
    let stage = Stage::new();
    let model = stage.model();
    let flags = ["--model-id", model.to_str().unwrap()];
    let variables = [
        ("LOG_FORMAT", "yaml"),
        ("LOG_COLORIZE", "blue"),
        ("LOG_LEVEL", "loud"),
        ("NGROK", "1"),
        ("CORS_ALLOW_ORIGIN", "example.org"),
        ("FAKE_WORKER", "refuse"),
    ];
    let ended = stage.run(&flags, &variables);
    for part in [
        "LOG_FORMAT yaml: names no format (json or text)",
        "LOG_COLORIZE blue: must be 1 or 0",
        "LOG_LEVEL loud: names no level (trace, debug, info, warn or error)",
        "--cors-allow-origin example.org: no browser is let in by it",
        "--ngrok has no effect: no tunnel is opened (--ngrok is set by the variable NGROK)",
    ] {
        let lines = ended.stdout.lines().filter(|line| line.contains(part));
        assert_eq!(lines.count(), 1, "{part}: {}", ended.stdout);
    }
}

#[test]
fn a_python_that_was_found_is_named_with_where_it_should_have_been() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    std::fs::remove_file(stage.path("bin/python")).unwrap();
    let none = [("PATH", "/no/path")];
    assert_fault(&stage, &[], &none, &["no Python found: give --python"]);
    let found = stage.empty().join("python3");
    std::fs::write(&found, "#!/bin/sh\nexit 7\n").unwrap();
    std::fs::set_permissions(&found, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = stage.empty();
    let variables = [
        ("PATH", path.to_str().unwrap()),
        ("VIRTUAL_ENV", "/no/environment"),
    ];
    let ended = stage.run(&[], &variables);
    let python = found.display();
    assert_eq!(
        ended.stderr,
        format!(
            "error: {python}: it ended with exit status: 7 instead of answering; --python names another one\n"
        )
    );
    let warning =
        format!("VIRTUAL_ENV /no/environment: there is no bin/python in it; {python} is used");
    assert!(ended.stdout.contains(&warning), "{}", ended.stdout);
}

/// A switch on the command line goes before its variable, either way.
#[test]
fn switches_take_true_and_false() {
    let stage = Stage::new();
    let none = ["--model-id", "/no/model"];
    for (flag, variable, is_json) in [
        ("--json-output", "", true),
        ("--json-output=true", "", true),
        ("--json-output=TRUE", "0", true),
        ("--json-output=false", "1", false),
        ("--json-output=false", "", false),
    ] {
        let ended = stage.run(&[&none[..], &[flag]].concat(), &[("JSON_OUTPUT", variable)]);
        assert_eq!(
            ended.stderr.starts_with('{'),
            is_json,
            "{flag}: {}",
            ended.stderr
        );
    }
    let off = [
        "--trust-remote-code=false",
        "--ngrok=0",
        "--disable-grammar-support=off",
    ];
    assert_fault(
        &stage,
        &[&none[..], &off].concat(),
        &[("TRUST_REMOTE_CODE", "1")],
        &["/no/model"],
    );
}
