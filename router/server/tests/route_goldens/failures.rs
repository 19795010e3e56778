//! Failures after a request was taken, in every dialect.

use crate::routes_support::{Server, config, greeting, says};
use crate::{post, tensor};
use headrace_fake_worker::{Fault, FaultKind, Script, Trigger};
use serde_json::json;

#[tokio::test]
async fn failures_after_admission() {
    let cases = [
        ("failed_generate", "/generate", json!({"inputs": "Hello"})),
        (
            "failed_generate_stream",
            "/generate_stream",
            json!({"inputs": "Hello"}),
        ),
        ("failed_compat", "/", json!({"inputs": "Hello"})),
        (
            "failed_compat_stream",
            "/",
            json!({"inputs": "Hello", "stream": true}),
        ),
        (
            "failed_vertex",
            "/vertex",
            json!({"instances": [{"inputs": "Hello"}]}),
        ),
        (
            "failed_kserve",
            "/v2/models/any/infer",
            json!({"inputs": [tensor("Hello")]}),
        ),
        (
            "failed_chat",
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "x"}]}),
        ),
        (
            "failed_chat_stream",
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "x"}], "stream": true}),
        ),
        (
            "failed_completion_stream",
            "/v1/completions",
            json!({"prompt": "Hello", "stream": true}),
        ),
    ];
    for (name, path, body) in cases {
        let script = fails_late(3..=3, &FaultKind::RowError(0));
        let server = Server::start(config(), script).await;
        post(&server, name, path, body).await;
    }
}

/// Each failure's code, and that it need not be tried again, in every dialect.
#[tokio::test]
async fn failures_of_a_kind() {
    for (kind, steps, what) in [
        ("numeric", 3..=3, FaultKind::RowNotFinite(0)),
        // Tried again, smaller and alone, before it is given up.
        ("memory", 3..=12, FaultKind::OutOfMemory),
    ] {
        for (name, path, body) in [
            ("generate", "/generate", json!({"inputs": "Hello"})),
            (
                "generate_stream",
                "/generate_stream",
                json!({"inputs": "Hello"}),
            ),
            ("completion", "/v1/completions", json!({"prompt": "Hello"})),
            (
                "chat_stream",
                "/v1/chat/completions",
                json!({"messages": [{"role": "user", "content": "x"}], "stream": true}),
            ),
        ] {
            let script = fails_late(steps.clone(), &what);
            let server = Server::start(config(), script).await;
            post(&server, &format!("failed_{kind}_{name}"), path, body).await;
        }
    }
}

/// Steps go wrong from the third on: after two tokens have been sent.
fn fails_late(steps: std::ops::RangeInclusive<u64>, what: &FaultKind) -> Script {
    let fault = |step| Fault {
        when: Trigger::Step(step),
        what: what.clone(),
    };
    Script {
        faults: steps.map(fault).collect(),
        ..says(greeting())
    }
}
