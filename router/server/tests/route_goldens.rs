//! Every route's answer, byte for byte, against files under `golden/`. `UPDATE_GOLDEN=1` writes them; they are then read
//! by a person against the reference.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

mod routes_support;

use headrace_fake_worker::{Fault, FaultKind, Script, Trigger};
use routes_support::golden::{check, show};
use routes_support::{Server, config, greeting, says};
use serde_json::{Value, json};

async fn post(server: &Server, name: &str, path: &str, body: Value) {
    let answer = server.post(path, &body).await;
    check(name, &show(&format!("POST {path}\n{body}"), &answer));
    server.wait_idle().await;
}

async fn get(server: &Server, name: &str, path: &str) {
    let mut answer = server.get(path).await;
    answer.headers.remove("x-request-id");
    check(name, &show(&format!("GET {path}"), &answer));
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of requests, read from top to bottom"
)]
async fn native_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let cases = [
        ("generate", "/generate", json!({"inputs": "Hello"})),
        (
            "generate_details",
            "/generate",
            json!({"inputs": "Hello and", "parameters": {"details": true, "decoder_input_details": true,
                "top_n_tokens": 2, "max_new_tokens": 3, "seed": 7, "do_sample": true}}),
        ),
        (
            "generate_best_of",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"details": true, "best_of": 2, "do_sample": true,
                "max_new_tokens": 1, "return_full_text": true, "unknown": 1}}),
        ),
        (
            "generate_stop",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"details": true, "stop": ["ör"]}}),
        ),
        (
            "generate_stream",
            "/generate_stream",
            json!({"inputs": "Hello", "parameters": {"details": true}}),
        ),
        (
            "generate_stream_stop",
            "/generate_stream",
            json!({"inputs": "Hello", "parameters": {"stop": ["wö"], "top_n_tokens": 1}}),
        ),
        (
            "compat",
            "/",
            json!({"inputs": "Hello", "parameters": {"max_new_tokens": 2}}),
        ),
        (
            "compat_stream",
            "/",
            json!({"inputs": "Hello", "stream": true,
                "parameters": {"max_new_tokens": 2, "return_full_text": true}}),
        ),
        (
            "compat_v1",
            "/v1",
            json!({"inputs": "Hello", "parameters": {"return_full_text": false}}),
        ),
        (
            "invocations",
            "/invocations",
            json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1}}),
        ),
        (
            "generate_invalid",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"temperature": -1}}),
        ),
        (
            "generate_stream_invalid",
            "/generate_stream",
            json!({"inputs": ""}),
        ),
        (
            "generate_too_long",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"max_new_tokens": 63}}),
        ),
        (
            "generate_prompt_too_long",
            "/generate",
            json!({"inputs": "x".repeat(70)}),
        ),
        (
            "generate_truncate_bound",
            "/generate",
            json!({"inputs": "x", "parameters": {"truncate": 64}}),
        ),
        (
            "generate_wrong_type",
            "/generate",
            json!({"inputs": "x", "parameters": {"stop": ["a", 1]}}),
        ),
        (
            "generate_grammar",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "regex", "value": "Hello( w){2}"}}}),
        ),
        (
            "generate_grammar_regex",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "regex", "value": "(a|b"}}}),
        ),
        (
            "generate_grammar_keyword",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "json",
                "value": {"properties": {"a": {"not": {}}}}}}}),
        ),
        (
            "generate_grammar_type",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "lark", "value": "x"}}}),
        ),
    ];
    for (name, path, body) in cases {
        post(&server, name, path, body).await;
    }
}

fn tensor(text: &str) -> Value {
    json!({"name": "in", "shape": [1, text.len()], "datatype": "BYTES", "data": text.as_bytes()})
}

#[tokio::test]
async fn platform_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let infer = "/v2/models/any/versions/1/infer";
    let cases = [
        (
            "vertex",
            "/vertex",
            json!({"instances": [
                {"inputs": "Hello", "parameters": {"max_new_tokens": 2, "return_full_text": true, "odd": 1}},
                {"messages": messages, "max_tokens": 4},
                {"inputs": "user", "parameters": {"stop": ["wö"]}},
            ]}),
        ),
        ("vertex_empty", "/vertex", json!({"instances": []})),
        (
            "vertex_invalid",
            "/vertex",
            json!({"instances": [{"inputs": "Hello"}, {"inputs": "Hello", "parameters": {"top_p": 2}}]}),
        ),
        (
            "vertex_too_long",
            "/vertex",
            json!({"instances": [{"inputs": "Hello"}, {"inputs": "Hello", "parameters": {"max_new_tokens": 63}}]}),
        ),
        (
            "kserve_infer",
            infer,
            json!({"id": "42", "parameters": {"max_new_tokens": 4},
                "inputs": [tensor("Hello"), tensor("user")], "outputs": [{"name": "a"}, {"name": "b"}]}),
        ),
        (
            "kserve_infer_strings",
            "/v2/models/any/infer",
            json!({"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["Hello", "user"]}]}),
        ),
        (
            "kserve_utf8",
            infer,
            json!({"id": "1", "outputs": [{"name": "a"}],
                "inputs": [{"name": "in", "shape": [1, 1], "datatype": "BYTES", "data": [255]}]}),
        ),
        (
            "kserve_mismatch",
            infer,
            json!({"id": "1", "inputs": [tensor("Hello")], "outputs": []}),
        ),
    ];
    for (name, path, body) in cases {
        post(&server, name, path, body).await;
    }
    for (name, path) in [
        ("kserve_server", "/v2"),
        ("kserve_live", "/v2/health/live"),
        ("kserve_ready", "/v2/health/ready"),
        ("kserve_model", "/v2/models/any/versions/7"),
        ("kserve_model_unversioned", "/v2/models/org%2Ftiny"),
        ("kserve_model_ready", "/v2/models/any/versions/7/ready"),
    ] {
        get(&server, name, path).await;
    }
}

#[tokio::test]
async fn invocations() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let cases = [
        (
            "invocations_stream",
            json!({"inputs": "Hello", "stream": true, "parameters": {"max_new_tokens": 1, "return_full_text": false}}),
        ),
        (
            "invocations_chat",
            json!({"messages": messages, "max_tokens": 1}),
        ),
        (
            "invocations_chat_stream",
            json!({"messages": messages, "max_tokens": 1, "stream": true}),
        ),
        (
            "invocations_completion",
            json!({"prompt": "Hello", "max_tokens": 1}),
        ),
        (
            "invocations_completion_stream",
            json!({"prompt": "Hello", "max_tokens": 1, "stream": true}),
        ),
        (
            "invocations_both",
            json!({"inputs": "Hello", "messages": messages}),
        ),
        ("invocations_none", json!({"stream": true})),
    ];
    for (name, body) in cases {
        post(&server, name, "/invocations", body).await;
    }
}

#[tokio::test]
async fn chat_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let cases = [
        ("chat", json!({"model": "tgi", "messages": messages})),
        (
            "chat_logprobs",
            json!({"model": "any/name", "messages": messages, "max_tokens": 3, "logprobs": true, "top_logprobs": 2}),
        ),
        (
            "chat_stop",
            json!({"messages": messages, "stop": "ö", "n": 2}),
        ),
        ("chat_stream", json!({"messages": messages, "stream": true})),
        (
            "chat_stream_usage",
            json!({"messages": messages, "stream": true, "logprobs": true, "stop": ["wör", "d!!"],
                "stream_options": {"include_usage": true}}),
        ),
        (
            "chat_stream_continuous",
            json!({"messages": messages, "stream": true, "max_tokens": 2,
                "stream_options": {"continuous_usage_stats": true}}),
        ),
        (
            "chat_tools",
            json!({"messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]}),
        ),
        (
            "chat_response_format",
            json!({"messages": messages, "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
        ),
        (
            "chat_image",
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        ),
        (
            "chat_too_long",
            json!({"messages": messages, "max_tokens": 60, "stream": true}),
        ),
        (
            "chat_completion_tokens_beyond",
            json!({"messages": messages, "max_completion_tokens": 2_147_483_648_u32}),
        ),
        (
            "chat_tier_stream",
            json!({"messages": messages, "stream": true, "max_tokens": 1, "service_tier": "flex", "stop": ["Hell"],
                "stream_options": {"include_usage": true}}),
        ),
        (
            "chat_prompt_too_long",
            json!({"messages": [{"role": "user", "content": "x".repeat(70)}]}),
        ),
        ("chat_missing", json!({"model": "x"})),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/chat/completions", body).await;
    }
}

#[tokio::test]
async fn chats_that_ask_about_tokens() {
    let server = Server::start(config(), says(greeting())).await;
    let user = json!([{"role": "user", "content": "Hi"}]);
    let begun =
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]);
    let cases = [
        (
            "chat_prompt_logprobs",
            json!({"messages": user, "prompt_logprobs": 1, "max_tokens": 1}),
        ),
        (
            "chat_token_ids",
            json!({"messages": user, "return_token_ids": true, "return_tokens_as_token_ids": true,
                "logprobs": true, "top_logprobs": 1, "max_tokens": 2}),
        ),
        (
            "chat_token_ids_stream",
            json!({"messages": user, "return_token_ids": true, "max_tokens": 4, "stream": true}),
        ),
        (
            "chat_echo",
            json!({"messages": begun, "echo": true, "max_tokens": 2}),
        ),
        (
            "chat_echo_stream",
            json!({"messages": begun, "echo": true, "max_tokens": 2, "stream": true}),
        ),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/chat/completions", body).await;
    }
}

#[tokio::test]
async fn completion_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let cases = [
        ("completion", json!({"model": "x", "prompt": "Hello"})),
        (
            "completion_prompts",
            json!({"prompt": ["Hello", "user"], "n": 2, "max_tokens": 2}),
        ),
        (
            "completion_ids",
            json!({"prompt": [[72, 73], [74]], "max_tokens": 1, "logprobs": 1}),
        ),
        (
            "completion_ignore_eos",
            json!({"prompt": [72], "max_tokens": 10, "ignore_eos": true}),
        ),
        (
            "completion_logprobs",
            json!({"prompt": "Hello", "logprobs": 1, "stop": ["ld"]}),
        ),
        (
            "completion_stream",
            json!({"prompt": "Hello", "stream": true}),
        ),
        (
            "completion_stream_usage",
            json!({"prompt": "Hello", "stream": true, "logprobs": 0, "max_tokens": 4,
                "stream_options": {"include_usage": true}}),
        ),
        (
            "completion_shape",
            json!({"prompt": "Hello", "stop": ["ld"], "include_stop_str_in_output": true, "service_tier": "auto",
                "user": "me", "unheard_of": 1}),
        ),
        (
            "completion_special_stream",
            json!({"prompt": "Hello", "stop_token_ids": [37], "skip_special_tokens": false, "stream": true,
                "include_stop_str_in_output": true}),
        ),
        (
            "completion_allowed_ids",
            json!({"prompt": "Hello", "allowed_token_ids": [37, 1], "bad_words": ["!"], "max_tokens": 3}),
        ),
        (
            "completion_allowed_none",
            json!({"prompt": "Hello", "allowed_token_ids": []}),
        ),
        (
            "completion_truncated",
            json!({"prompt": "x".repeat(70), "truncate_prompt_tokens": -1, "max_tokens": 4}),
        ),
        ("completion_bad_id", json!({"prompt": [1, 100_000]})),
        ("completion_too_long", json!({"prompt": vec![72; 70]})),
        (
            "completion_suffix",
            json!({"prompt": "Hello", "suffix": "x"}),
        ),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/completions", body).await;
    }
}

#[tokio::test]
async fn completions_that_ask_about_tokens() {
    let server = Server::start(config(), says(greeting())).await;
    let cases = [
        ("completion_echo", json!({"prompt": "Hello", "echo": true})),
        (
            "completion_echo_logprobs",
            json!({"prompt": "Hello w", "echo": true, "logprobs": 1, "max_tokens": 1}),
        ),
        (
            "completion_echo_only",
            json!({"prompt": "Hello w", "echo": true, "logprobs": 1, "max_tokens": 0}),
        ),
        (
            "completion_echo_only_stream",
            json!({"prompt": "Hello", "echo": true, "logprobs": 0, "max_tokens": 0, "stream": true,
                "stream_options": {"include_usage": true}}),
        ),
        (
            "completion_echo_ids",
            json!({"prompt": [[0, 72, 73], [74, 75]], "echo": true, "logprobs": 0, "max_tokens": 1, "n": 2}),
        ),
        (
            "completion_echo_stream",
            json!({"prompt": "Hello", "echo": true, "logprobs": 1, "max_tokens": 3, "stream": true}),
        ),
        (
            "completion_echo_truncate",
            json!({"prompt": "Hello wö", "echo": true, "logprobs": 0, "max_tokens": 1, "truncate": 3}),
        ),
        (
            "completion_max_tokens_0",
            json!({"prompt": "Hello", "max_tokens": 0}),
        ),
        (
            "completion_prompt_logprobs",
            json!({"prompt": "Hello", "prompt_logprobs": 2, "max_tokens": 1, "n": 2}),
        ),
        (
            "completion_prompt_logprobs_stream",
            json!({"prompt": "Hello", "prompt_logprobs": 2, "stream": true}),
        ),
        (
            "completion_token_ids",
            json!({"prompt": "Hello", "return_token_ids": true, "return_tokens_as_token_ids": true,
                "logprobs": 1, "max_tokens": 2}),
        ),
        (
            "completion_token_ids_stream",
            json!({"prompt": "Hello", "return_token_ids": true, "stream": true}),
        ),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/completions", body).await;
    }
}

#[tokio::test]
async fn chat_templates() {
    // Shows all that a template gets.
    let template = "{{ enable_thinking }};{% for d in documents or [] %}{{ d.title }};{% endfor %}\
        {% for m in messages %}[{{ m.role }}|{{ m.name }}|{{ m.reasoning_content }}|{{ m.tool_call_id }}|\
        {% for c in m.tool_calls or [] %}{{ c.id }}:{{ c.function.name }}:{{ c.function.arguments | tojson }}\
        {% endfor %}|{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}";
    let server = Server::start_with_template(config(), says(greeting()), template).await;
    let calls = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "ada", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [{"id": "call_7", "type": "function",
            "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "tool_call_id": "call_7", "content": "1"},
        {"role": "assistant", "content": "", "function_call": {"name": "g", "arguments": ""}},
        {"role": "function", "name": "g", "content": "2", "unknown": 1},
    ]);
    let kwargs = json!({"messages": hello(), "chat_template_kwargs": {"enable_thinking": false},
        "documents": [{"title": "T", "text": "<|im_end|>"}]});
    post(&server, "chat_template_kwargs", "/chat_tokenize", kwargs).await;
    let messages = json!({"messages": calls});
    post(
        &server,
        "chat_template_messages",
        "/chat_tokenize",
        messages,
    )
    .await;
}

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello"}])
}

#[tokio::test]
async fn chat_templates_that_refuse() {
    let raising = "{{ raise_exception('Only\n system!') }}";
    let server = Server::start_with_template(config(), says(greeting()), raising).await;
    for (name, path) in [
        ("chat_template_raises", "/chat_tokenize"),
        ("chat_template_raises_v1", "/v1/chat/completions"),
    ] {
        post(&server, name, path, json!({"messages": hello()})).await;
    }
    // What templates make is bounded before it is tokenised, on every route.
    for (name, template) in [
        ("long", "{{ 'x ' * 400000 }}"),
        ("endless", "{{ 'x ' * 4000000 }}"),
        (
            "gives_up",
            "{% for x in [1] %}{{ loop.cycle() }}{% endfor %}",
        ),
    ] {
        let server = Server::start_with_template(config(), says(greeting()), template).await;
        for path in [
            "/chat_tokenize",
            "/tokenize",
            "/v1/tokenize",
            "/v1/chat/completions",
        ] {
            let golden = format!("chat_template_{name}{}", path.replace('/', "_"));
            post(&server, &golden, path, json!({"messages": hello()})).await;
        }
    }
    let counting = "{{ messages | length }}";
    let server = Server::start_with_template(config(), says(greeting()), counting).await;
    let lost = json!({"messages": [{"role": "assistant", "content": "One"}], "continue_final_message": true});
    post(&server, "chat_template_lost", "/v1/chat/completions", lost).await;
}

#[tokio::test]
async fn fields_of_chat_templates() {
    let server = Server::start(config(), says(greeting())).await;
    let cases = [
        (
            "chat_template_developer",
            "/chat_tokenize",
            json!({"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "x"}],
                "add_generation_prompt": false}),
        ),
        (
            "chat_template_continue",
            "/chat_tokenize",
            json!({"messages": [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, "}],
                "continue_final_message": true}),
        ),
        (
            "chat_template_taken",
            "/v1/chat/completions",
            json!({"messages": hello(), "chat_template_kwargs": {"bos_token": "x"}}),
        ),
        (
            "chat_template_documents",
            "/v1/chat/completions",
            json!({"messages": hello(), "documents": ["x"]}),
        ),
        (
            "chat_template_own",
            "/v1/chat/completions",
            json!({"messages": hello(), "chat_template": "x"}),
        ),
    ];
    for (name, path, body) in cases {
        post(&server, name, path, body).await;
    }
}

#[tokio::test]
async fn other_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "é <|im_end|>"}]);
    let cases = [
        ("tokenize", "/tokenize", json!({"inputs": "Hello é<|eos|>"})),
        (
            "tokenize_prompt",
            "/tokenize",
            json!({"prompt": "Hello", "return_token_strs": true}),
        ),
        (
            "tokenize_messages",
            "/tokenize",
            json!({"messages": messages}),
        ),
        (
            "tokenize_both",
            "/tokenize",
            json!({"inputs": "a", "prompt": "b"}),
        ),
        (
            "chat_tokenize",
            "/chat_tokenize",
            json!({"messages": messages}),
        ),
        ("not_found", "/v1/nothing", json!({})),
        ("method_not_allowed", "/health", json!({})),
    ];
    for (name, path, body) in cases {
        post(&server, name, path, body).await;
    }
    for (name, path) in [
        ("info", "/info"),
        ("models", "/v1/models"),
        ("model", "/v1/models/org/tiny"),
        ("model_unknown", "/v1/models/other"),
        ("health", "/health"),
        ("root", "/"),
        ("ping", "/ping"),
        ("ready", "/ready"),
        ("native_not_found", "/nothing"),
    ] {
        get(&server, name, path).await;
    }
}

#[tokio::test]
async fn routes_of_peers() {
    let server = Server::start(config(), says(greeting())).await;
    for (name, path) in [
        ("version", "/version"),
        ("load", "/load"),
        ("server_info", "/server_info"),
        ("model_info", "/model_info"),
        ("tokenizer_info", "/tokenizer_info"),
    ] {
        get(&server, name, path).await;
    }
    for (name, path, body) in [
        ("detokenize", "/detokenize", json!({"tokens": [72, 101]})),
        (
            "detokenize_bad_id",
            "/v1/detokenize",
            json!({"tokens": [1, 9_999]}),
        ),
        (
            "tokenize_v1",
            "/v1/tokenize",
            json!({"prompt": "Hello", "return_token_strs": true}),
        ),
        ("abort", "/abort", json!({"request_id": "nobody"})),
        (
            "abort_request",
            "/abort_request",
            json!({"rid": "nobody", "abort_all": false}),
        ),
        (
            "abort_requests",
            "/abort_requests",
            json!({"request_ids": ["nobody"]}),
        ),
        ("abort_nothing", "/abort", json!({})),
    ] {
        post(&server, name, path, body).await;
    }
}

#[tokio::test]
async fn bodies() {
    let server = Server::start(config(), says(greeting())).await;
    for (name, path, body) in [
        ("malformed_native", "/generate", "{\"inputs\": "),
        ("malformed_v1", "/v1/completions", "nonsense"),
        (
            "duplicate_key",
            "/generate",
            r#"{"inputs":"a","inputs":"b"}"#,
        ),
    ] {
        let answer = server.post_text(path, body).await;
        check(name, &show(&format!("POST {path}\n{body}"), &answer));
    }
    let large = format!("{{\"inputs\":\"{}\"}}", "x".repeat(30_000));
    for (name, path) in [
        ("too_large", "/generate"),
        ("too_large_v1", "/v1/completions"),
    ] {
        let answer = server.post_text(path, &large).await;
        check(name, &show(&format!("POST {path}\n(30 kB)"), &answer));
    }
    for (name, path) in [
        ("media_type", "/v1/chat/completions"),
        ("media_type_native", "/generate"),
    ] {
        let request = http::Request::post(path)
            .header("content-type", "text/plain")
            .header("x-request-id", "test-id")
            .body(axum::body::Body::from("{}"))
            .unwrap();
        let answer = server.send(request).await;
        check(name, &show(&format!("POST {path}\n(text/plain)"), &answer));
    }
    let missing = server.post_text("/v1/completions", "{}").await;
    check("missing_v1", &show("POST /v1/completions\n{}", &missing));
    let request = http::Request::get("/chat_tokenize")
        .header("content-type", "application/json")
        .header("x-request-id", "test-id")
        .body(axum::body::Body::from(
            r#"{"messages":[{"role":"user","content":"a"}]}"#,
        ))
        .unwrap();
    let answer = server.send(request).await;
    check(
        "chat_tokenize_get",
        &show("GET /chat_tokenize\n(messages)", &answer),
    );
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
