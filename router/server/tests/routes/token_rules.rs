//! `allowed_token_ids` and `bad_words` on both `/v1` routes.

use crate::routes_support::tiny_tokenizer::{BYTES, EOS, bytes_of, vocab_size, word};
use crate::routes_support::{Server, config, greeting, says};
use headrace_control::RouterConfig;
use headrace_fake_worker::Script;
use serde_json::{Value, json};

/// The same fields on both routes: the texts of all choices, or the refusal.
async fn ask(server: &Server, fields: &Value) -> Vec<Result<Vec<String>, Value>> {
    let mut answers = Vec::new();
    for (path, mut body) in [
        ("/v1/completions", json!({"prompt": "Hello"})),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "Hello"}]}),
        ),
    ] {
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        let answer = server.post(path, &body).await;
        let json = answer.json();
        answers.push(if answer.status == 200 {
            let choices = json["choices"].as_array().unwrap();
            Ok(choices
                .iter()
                .map(|choice| {
                    let text = choice["text"].as_str();
                    let text = text.or_else(|| choice["message"]["content"].as_str());
                    text.unwrap().to_owned()
                })
                .collect())
        } else {
            assert_eq!(answer.status, 400, "{}", answer.body);
            Err(json["error"].clone())
        });
        server.wait_idle().await;
    }
    answers
}

#[tokio::test]
async fn nothing_but_allowed_ids_comes_and_the_end_only_if_it_is_listed() {
    let server = Server::start(config(), Script::default()).await;
    let [a, b] = [b'a', b'b'].map(|byte| BYTES + u32::from(byte));
    let fields =
        json!({"allowed_token_ids": [b, a, a], "n": 2, "max_tokens": 20, "temperature": 1.5});
    for texts in ask(&server, &fields).await {
        let texts = texts.unwrap();
        assert_eq!(texts.len(), 2);
        for text in texts {
            assert_eq!(text.len(), 20, "no end id is in the list");
            assert!(text.bytes().all(|byte| byte == b'a' || byte == b'b'));
        }
    }
    let only_the_end = json!({"allowed_token_ids": [EOS]});
    for texts in ask(&server, &only_the_end).await {
        assert_eq!(texts.unwrap(), [""]);
    }
}

#[tokio::test]
async fn bad_words_come_neither_at_the_beginning_nor_after_a_space() {
    let server = Server::start(config(), says(greeting())).await;
    for (words, gone) in [
        (json!(["Hello"]), "Hello"),
        // The same with a space before it: vLLM strips it.
        (json!([" w"]), " w"),
        // Of several ids: only the last one is forbidden, and only there.
        (json!(["rld"]), "rld"),
        (json!(["not there", "ld!"]), "ld!"),
    ] {
        let fields = json!({"bad_words": words, "max_tokens": 20});
        for texts in ask(&server, &fields).await {
            let text = texts.unwrap().remove(0);
            assert!(!text.contains(gone), "{words}: {text}");
        }
    }
    let fields = json!({"bad_words": ["rld"], "max_tokens": 20});
    for texts in ask(&server, &fields).await {
        let text = texts.unwrap().remove(0);
        assert!(text.starts_with("Hello wörl"), "{text}");
    }
}

#[tokio::test]
async fn bad_words_hold_across_preemptions() {
    // Sixteen blocks of four tokens for four sequences of up to forty tokens.
    let tight = RouterConfig {
        max_batch_total_tokens: Some(64),
        ..config()
    };
    let server = Server::start(tight, says(bytes_of(&"ab".repeat(20)))).await;
    let fields = json!({"bad_words": ["bab"], "n": 4, "max_tokens": 30});
    for texts in ask(&server, &fields).await {
        for text in texts.unwrap() {
            assert!(text.starts_with("aba"), "{text}");
            assert!(!text.contains("bab"), "{text}");
        }
    }
    assert!(server.stats().preemptions > 0);
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_by_name() {
    let server = Server::start(config(), says(greeting())).await;
    let vocabulary = vocab_size();
    let a = BYTES + u32::from(b'a');
    let many: Vec<u32> = vec![1; 8193];
    let cases = [
        (json!({"allowed_token_ids": []}), "allowed_token_ids"),
        (json!({"allowed_token_ids": many}), "allowed_token_ids"),
        (
            json!({"allowed_token_ids": [a, vocabulary]}),
            "allowed_token_ids",
        ),
        (json!({"allowed_token_ids": [-1]}), "allowed_token_ids[0]"),
        (
            json!({"allowed_token_ids": [a], "response_format": {"type": "regex", "value": "a"}}),
            "allowed_token_ids",
        ),
        (
            json!({"allowed_token_ids": [EOS], "min_tokens": 2}),
            "allowed_token_ids",
        ),
        (
            json!({"allowed_token_ids": [word("Hello")], "bad_words": ["Hello"]}),
            "allowed_token_ids",
        ),
        (json!({"bad_words": [""]}), "bad_words"),
        (json!({"bad_words": "Hello"}), "bad_words"),
        (json!({"bad_words": ["a", 1]}), "bad_words[1]"),
        (json!({"bad_words": vec!["a"; 129]}), "bad_words"),
        (json!({"bad_words": ["a".repeat(16_385)]}), "bad_words"),
    ];
    for (fields, param) in cases {
        for refused in ask(&server, &fields).await {
            let error = refused.unwrap_err();
            assert_eq!(error["param"], param, "{error}");
            let field = param.split('[').next().unwrap();
            assert!(
                error["message"].as_str().unwrap().contains(field),
                "{error}"
            );
        }
    }
}
