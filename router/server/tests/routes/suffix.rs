//! `suffix` over a real vocabulary with fill-in-the-middle tokens: the ids that reach the model are those that its
//! documentation has, and what is no text of the gap ends it.

use crate::routes_support::{Server, config, says};
use headrace_control::RouterConfig;
use headrace_fake_worker::{LiteralOutputs, Script};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Ids of the model; its tokenizer has some hundred fewer.
const VOCAB: u32 = 151_936;

const FIM_PREFIX: u32 = 151_659;
const FIM_SUFFIX: u32 = 151_661;
const FIM_PAD: u32 = 151_662;
const FILE_SEP: u32 = 151_664;

/// Qwen's, out of the test data (`make test-data`).
fn tokenizer() -> PathBuf {
    let data = std::env::var_os("HEADRACE_TEST_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data"),
        PathBuf::from,
    );
    let folder = data.join("tokenizers/qwen3");
    assert!(
        folder.is_dir(),
        "{}: not there; run `make test-data`",
        folder.display()
    );
    folder
}

/// As transformers encodes the prompt of the model's documentation (`infill_golden.py`).
fn golden() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/golden/infill.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    document["qwen3"].as_array().unwrap().clone()
}

fn ending_with(end_id: u32) -> Script {
    // `total`, ` =`, ` a`, ` +`, ` b` by the tokenizer.
    let ids = vec![5035, 284, 264, 488, 293];
    Script {
        literal: Some(LiteralOutputs {
            otherwise: Some(ids),
            end_id,
            ..LiteralOutputs::default()
        }),
        ..says(Vec::new())
    }
}

async fn start(end_id: u32) -> Server {
    let config = RouterConfig {
        max_total_tokens: Some(256),
        ..config()
    };
    let folder = tokenizer();
    Server::start_with_tokenizer(config, ending_with(end_id), (&folder, VOCAB)).await
}

#[tokio::test]
async fn the_models_ids_are_those_of_its_documentation_stream_and_not() {
    let server = start(FIM_PAD).await;
    for row in golden() {
        let (prefix, suffix) = (&row["prefix"], &row["suffix"]);
        // An empty suffix is none.
        let has_gap = suffix != "";
        let body =
            json!({"prompt": prefix, "suffix": suffix, "return_token_ids": true, "max_tokens": 9});
        let answer = server.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let choice = &answer.json()["choices"][0];
        assert_eq!(choice["prompt_token_ids"] == row["ids"], has_gap, "{body}");
        assert_eq!(
            answer.json()["usage"]["prompt_tokens"],
            choice["prompt_token_ids"].as_array().unwrap().len()
        );
        if !has_gap {
            continue;
        }
        assert_eq!(choice["text"], "total = a + b");
        assert_eq!(choice["finish_reason"], "stop");
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        let chunks = server.post("/v1/completions", &streamed).await.event_json();
        assert_eq!(chunks[0]["choices"][0]["prompt_token_ids"], row["ids"]);
        let text: String = chunks
            .iter()
            .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap())
            .collect();
        assert_eq!(text, "total = a + b");
    }
    server.wait_idle().await;
}

#[tokio::test]
async fn what_is_no_text_of_a_gap_ends_it_and_one_suffix_is_for_all_prompts() {
    for end_id in [FILE_SEP, FIM_PREFIX] {
        let server = start(end_id).await;
        let body =
            json!({"prompt": ["x = ", "y = "], "suffix": " + 1", "n": 2, "return_token_ids": true});
        let answer = server.post("/v1/completions", &body).await.json();
        let choices = answer["choices"].as_array().unwrap();
        assert_eq!(choices.len(), 4);
        for choice in choices {
            assert_eq!(choice["text"], "total = a + b", "{end_id}");
            assert_eq!(choice["finish_reason"], "stop", "{end_id}");
        }
        // Where there is no gap, a control token of the family is an id like another.
        let plain = json!({"prompt": "x = ", "max_tokens": 8});
        let plain = server.post("/v1/completions", &plain).await.json();
        assert_eq!(plain["choices"][0]["finish_reason"], "length", "{end_id}");
        server.wait_idle().await;
    }
}

#[tokio::test]
async fn control_tokens_of_either_text_stay_letters() {
    let server = start(FIM_PAD).await;
    let body = json!({"prompt": "a<|fim_suffix|>b", "suffix": "<|fim_middle|>c", "return_token_ids": true});
    let answer = server.post("/v1/completions", &body).await.json();
    let ids = answer["choices"][0]["prompt_token_ids"].as_array().unwrap();
    let control = |id: &&Value| id.as_u64().unwrap() >= 151_643;
    let control: Vec<&Value> = ids.iter().filter(control).collect();
    assert_eq!(
        control,
        [&json!(FIM_PREFIX), &json!(FIM_SUFFIX), &json!(151_660)]
    );
    for (more, words) in [
        (
            json!({"echo": true}),
            "`suffix` is not supported together with `echo`",
        ),
        (
            json!({"prompt": [1, 2]}),
            "`suffix` needs prompts that are text",
        ),
        (json!({"truncate": 5}), "together with a truncated prompt"),
    ] {
        let mut body = json!({"prompt": "a", "suffix": "b"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let answer = server.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains(words), "{}", answer.body);
    }
    server.wait_idle().await;
}
