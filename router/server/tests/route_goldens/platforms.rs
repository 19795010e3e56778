//! Vertex AI's and `KServe`'s routes.

use crate::routes_support::{Server, config, greeting, says};
use crate::{get, post, tensor};
use serde_json::json;

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
