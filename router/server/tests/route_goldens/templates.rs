//! Chat templates: what they get, and what they make of it.

use crate::post;
use crate::routes_support::{Server, config, greeting, says};
use serde_json::{Value, json};

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

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello"}])
}
