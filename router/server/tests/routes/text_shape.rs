//! What the text of a `/v1` answer shows: stops, special tokens, the cut prompt; and what is said about its end.

use crate::routes_support::tiny_tokenizer::{BYTES, END, EOS, START, bytes_of};
use crate::routes_support::{Answer, Server, config, greeting, says};
use headrace_control::RouterConfig;
use headrace_fake_worker::Script;
use serde_json::{Value, json};

const PATHS: [&str; 2] = ["/v1/completions", "/v1/chat/completions"];

fn body(path: &str, fields: &Value) -> Value {
    let mut body = if path == "/v1/completions" {
        json!({"prompt": "Hello"})
    } else {
        json!({"messages": [{"role": "user", "content": "Hello"}]})
    };
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body
}

/// Text, finish reason and stop reason of a choice or of a stream's chunks; every chunk has the keys.
fn told(answer: &Answer, stream: bool) -> (String, Value, Value) {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let parts = if stream {
        answer.event_json()
    } else {
        vec![answer.json()]
    };
    let mut text = String::new();
    let mut ends = Vec::new();
    for part in &parts {
        let choice = &part["choices"][0];
        let members = choice.as_object().unwrap();
        // Bug case 1.6: the keys are in every chunk, null until the one that ends the choice.
        assert!(members.contains_key("finish_reason") && members.contains_key("stop_reason"));
        let piece = [
            &choice["text"],
            &choice["delta"]["content"],
            &choice["message"]["content"],
        ];
        text.push_str(piece.iter().find_map(|piece| piece.as_str()).unwrap());
        if choice["finish_reason"].is_null() {
            assert!(choice["stop_reason"].is_null());
        } else {
            let keys = ["finish_reason", "stop_reason"];
            ends.push(keys.map(|key| choice[key].clone()));
        }
    }
    assert_eq!(ends.len(), 1, "exactly one end");
    let [finish, stop] = ends.remove(0);
    (text, finish, stop)
}

async fn expect(server: &Server, fields: Value, text: &str, finish: &str, stop: Value) {
    for path in PATHS {
        for stream in [false, true] {
            let mut body = body(path, &fields);
            body["stream"] = json!(stream);
            let answer = server.post(path, &body).await;
            let told = told(&answer, stream);
            let expected = (text.to_owned(), json!(finish), stop.clone());
            assert_eq!(told, expected, "{path} {body}");
            server.wait_idle().await;
        }
    }
}

#[tokio::test]
async fn case_2_2_and_2_5_the_stop_is_named_and_shown_only_if_asked_for() {
    let server = Server::start(config(), says(greeting())).await;
    let d = BYTES + u32::from(b'd');
    let show = "include_stop_str_in_output";
    expect(&server, json!({}), "Hello wörld!", "stop", Value::Null).await;
    expect(
        &server,
        json!({"max_tokens": 2}),
        "Hello w",
        "length",
        Value::Null,
    )
    .await;
    expect(
        &server,
        json!({"stop": ["zz", "rl"]}),
        "Hello wö",
        "stop",
        json!("rl"),
    )
    .await;
    expect(
        &server,
        json!({"stop": "rl", show: true}),
        "Hello wörl",
        "stop",
        json!("rl"),
    )
    .await;
    // A stop inside a token ends the text inside it.
    expect(
        &server,
        json!({"stop": ["ell"], show: true}),
        "Hell",
        "stop",
        json!("ell"),
    )
    .await;
    expect(
        &server,
        json!({"stop_token_ids": [d]}),
        "Hello wörl",
        "stop",
        json!(d),
    )
    .await;
    expect(
        &server,
        json!({"stop_token_ids": [d], show: true}),
        "Hello wörld",
        "stop",
        json!(d),
    )
    .await;
}

/// As in vLLM: what is complete within `min_tokens` ends nothing, what becomes complete later does.
#[tokio::test]
async fn stop_strings_wait_for_min_tokens() {
    // `Hello`, ` w`, the two bytes of `ö`, `r`, `l`, `d`, `!`.
    let server = Server::start(config(), says(greeting())).await;
    for (stop, min_tokens, text, reason) in [
        (json!(" w"), 0, "Hello", json!(" w")),
        (json!(" w"), 1, "Hello", json!(" w")),
        (json!(" w"), 2, "Hello wörld!", Value::Null),
        // It begins in the second token and ends in the fourth.
        (json!("wö"), 3, "Hello ", json!("wö")),
        (json!("wö"), 4, "Hello wörld!", Value::Null),
        (json!([" w", "d"]), 2, "Hello wörl", json!("d")),
    ] {
        let fields = json!({"stop": stop, "min_tokens": min_tokens});
        expect(&server, fields, text, "stop", reason).await;
    }
    server.wait_idle().await;
}

#[tokio::test]
async fn case_2_6_a_stop_ends_the_work_and_the_count() {
    // Without the stop it would go on for 900 steps, which is more than four seconds.
    let config = RouterConfig {
        max_total_tokens: Some(1024),
        ..config()
    };
    let script = Script {
        step_micros: 5_000,
        ..says(bytes_of(&"abc".repeat(300)))
    };
    let server = Server::start(config, script).await;
    for path in PATHS {
        let before = server.stats().steps_completed;
        let answer = server.post(path, &body(path, &json!({"stop": "bc"}))).await;
        assert_eq!(answer.json()["usage"]["completion_tokens"], 3, "{path}");
        server.wait_idle().await;
        // A few steps may have been under way; on a busy machine more than a few.
        let steps = server.stats().steps_completed - before;
        assert!(steps < 450, "{path}: {steps}");
    }
}

#[tokio::test]
async fn special_tokens_are_text_if_asked_for() {
    // Half a character before the special token: it cannot be completed any more.
    let mut ids = bytes_of("a");
    ids.extend([START, BYTES + 0xC3, START]);
    ids.extend(bytes_of("b"));
    let server = Server::start(config(), says(ids)).await;
    let all = json!({"skip_special_tokens": false, "spaces_between_special_tokens": true});
    let shown = "a<|im_start|>\u{fffd}<|im_start|>b";
    expect(&server, json!({}), "a\u{fffd}b", "stop", Value::Null).await;
    expect(&server, all.clone(), shown, "stop", Value::Null).await;
    // The end id is a stop: shown with the stop, as in vLLM.
    let mut ended = all.clone();
    ended["include_stop_str_in_output"] = json!(true);
    expect(
        &server,
        ended,
        &format!("{shown}<|eos|>"),
        "stop",
        Value::Null,
    )
    .await;
    // A stop string finds it as text.
    let mut cut = all;
    cut["stop"] = json!(["start|>"]);
    expect(&server, cut, "a<|im_", "stop", json!("start|>")).await;
}

#[tokio::test]
async fn ignored_end_ids_are_text_if_special_tokens_are() {
    let mut ids = bytes_of("a");
    ids.extend([END, EOS]);
    ids.extend(bytes_of("b"));
    let server = Server::start(config(), says(ids)).await;
    let fields = json!({"ignore_eos": true, "max_tokens": 4, "skip_special_tokens": false});
    expect(
        &server,
        fields,
        "a<|im_end|><|eos|>b",
        "length",
        Value::Null,
    )
    .await;
    let fields = json!({"ignore_eos": true, "max_tokens": 4});
    expect(&server, fields, "ab", "length", Value::Null).await;
}

#[tokio::test]
async fn prompts_are_cut_from_either_end_and_to_what_fits() {
    let server = Server::start(config(), says(greeting())).await;
    // One token a byte, and one for the beginning of the sequence.
    let prompt = "x".repeat(80);
    for (fields, prompt_tokens) in [
        (json!({"truncate_prompt_tokens": 7}), 7),
        (
            json!({"truncate_prompt_tokens": 7, "truncation_side": "right"}),
            7,
        ),
        (json!({"truncate": 7, "truncation_side": "right"}), 7),
        // 64 in all.
        (json!({"truncate_prompt_tokens": -1, "max_tokens": 20}), 44),
        (json!({"truncate_prompt_tokens": -1}), 63),
    ] {
        let mut body = body("/v1/completions", &fields);
        body["prompt"] = json!(prompt);
        let answer = server.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(
            answer.json()["usage"]["prompt_tokens"],
            prompt_tokens,
            "{fields}"
        );
    }
    // What asks for more than there is is refused however the prompt is cut.
    let body = json!({"prompt": prompt, "truncate_prompt_tokens": -1, "max_tokens": 64});
    let answer = server.post("/v1/completions", &body).await;
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    server.wait_idle().await;
}

#[tokio::test]
async fn a_named_tier_is_answered_by_the_one_there_is() {
    let server = Server::start(config(), says(greeting())).await;
    for path in PATHS {
        for tier in ["auto", "flex", "priority"] {
            let fields = json!({"service_tier": tier});
            let answer = server.post(path, &body(path, &fields)).await.json();
            assert_eq!(answer["service_tier"], "default");
            let fields = json!({"service_tier": tier, "stream": true});
            for chunk in server.post(path, &body(path, &fields)).await.event_json() {
                assert_eq!(chunk["service_tier"], "default");
            }
        }
        let answer = server.post(path, &body(path, &json!({}))).await.json();
        assert!(answer.get("service_tier").is_none());
        let answer = server
            .post(path, &body(path, &json!({"service_tier": 1})))
            .await;
        assert_eq!(answer.json()["error"]["param"], "service_tier");
    }
    server.wait_idle().await;
}

#[tokio::test]
async fn case_1_7_and_1_8_streamed_usage_grows_and_ends_with_the_sum_over_choices() {
    let server = Server::start(config(), says(greeting())).await;
    for path in PATHS {
        let fields = json!({"n": 3, "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
        let chunks = server.post(path, &body(path, &fields)).await.event_json();
        let mut before = 0;
        for chunk in &chunks {
            let usage = &chunk["usage"];
            let completion = usage["completion_tokens"].as_u64().unwrap();
            assert!(completion >= before, "cumulative");
            before = completion;
            let prompt = usage["prompt_tokens"].as_u64().unwrap();
            assert_eq!(usage["total_tokens"], prompt + completion);
            assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64());
            assert!(usage["completion_tokens_details"]["reasoning_tokens"].is_u64());
        }
        let last = chunks.last().unwrap();
        assert_eq!(last["choices"], json!([]));
        // Nine ids each, the end id counted.
        assert_eq!(last["usage"]["completion_tokens"], 27, "{path}");
        let ends = chunks.iter().filter(|chunk| {
            let choice = &chunk["choices"][0];
            choice.is_object() && !choice["finish_reason"].is_null()
        });
        assert_eq!(ends.count(), 3, "one end a choice");
        server.wait_idle().await;
        // The second time the prompt is in the cache, and the stream says so like the whole answer.
        let again = server.post(path, &body(path, &fields)).await.event_json();
        let mut whole = fields.clone();
        whole["stream"] = json!(false);
        whole["stream_options"] = Value::Null;
        let whole = server.post(path, &body(path, &whole)).await.json();
        let cached = |usage: &Value| usage["prompt_tokens_details"]["cached_tokens"].clone();
        assert_eq!(
            cached(&again.last().unwrap()["usage"]),
            cached(&whole["usage"])
        );
        server.wait_idle().await;
    }
}
