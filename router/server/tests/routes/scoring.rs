//! Scored prompts over the routes while the workers go away: the answer is the undisturbed one.

use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Answer, Server, config, says};
use headrace_control::{RouterConfig, ToRouter};
use headrace_fake_worker::Script;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is told of the choices, without what differs from request to request.
fn told(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let parts = if answer.header("content-type") == "text/event-stream" {
        answer.event_json()
    } else {
        vec![answer.json()]
    };
    let keys = ["choices", "prompt_logprobs", "generated_text", "details"];
    let shown = parts.into_iter().map(|part| {
        let members = keys.map(|key| part.get(key).cloned());
        json!(members)
    });
    shown.collect()
}

#[tokio::test]
async fn a_restart_while_a_long_prompt_is_scored_changes_no_byte_of_the_answer() {
    let config = RouterConfig {
        max_total_tokens: Some(1024),
        // A prompt of 800 ids is 200 steps.
        max_batch_prefill_tokens: Some(4),
        ..config()
    };
    let script = Script {
        step_micros: 1_000,
        ..says(bytes_of("abcdefgh"))
    };
    let server = Arc::new(Server::start(config, script).await);
    let ids: Vec<u32> = (0..800).map(|at| 5 + at * 7 % 250).collect();
    let text = "Hello wor".repeat(60);
    let chat = json!([{"role": "user", "content": text}]);
    let mut epoch = 1;
    for (path, body) in [
        (
            "/v1/completions",
            json!({"prompt": ids, "echo": true, "logprobs": 3, "max_tokens": 4}),
        ),
        (
            "/v1/completions",
            json!({"prompt": ids, "echo": true, "logprobs": 2, "max_tokens": 0}),
        ),
        (
            "/v1/completions",
            json!({"prompt": ids, "echo": true, "logprobs": 2, "max_tokens": 4, "stream": true}),
        ),
        (
            "/v1/completions",
            json!({"prompt": ids, "prompt_logprobs": 3, "n": 2, "max_tokens": 4}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": chat, "prompt_logprobs": 1, "max_tokens": 4}),
        ),
        (
            "/generate",
            json!({"inputs": text, "parameters": {"decoder_input_details": true, "max_new_tokens": 4}}),
        ),
    ] {
        let undisturbed = told(&server.post(path, &body).await);
        server.wait_idle().await;
        let before = server.stats().steps_completed;
        let running = tokio::spawn({
            let (server, body) = (Arc::clone(&server), body.clone());
            async move { server.post(path, &body).await }
        });
        for steps in [40, 60] {
            server
                .wait("half way", |server| {
                    server.stats().steps_completed > before + steps
                })
                .await;
            server
                .control
                .send(ToRouter::GroupDown {
                    group: 0,
                    cause: "rank 0 was killed by signal 9".to_owned(),
                    is_final: false,
                })
                .unwrap();
            server
                .wait("down", |server| !server.state.engine().status().ready)
                .await;
            assert!(!running.is_finished(), "{path}: it was to be half way");
            epoch += 1;
            server.group_up(epoch);
            server.wait_ready().await;
        }
        assert_eq!(
            told(&running.await.unwrap()),
            undisturbed,
            "{path} {body:.200}"
        );
        server.wait_idle().await;
    }
}
