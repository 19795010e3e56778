//! Asks for the same on every generation route.

use crate::routes_support::{Server, config, greeting, says};
use headrace_dialect::bounds::{Bounds, Flags};
use headrace_dialect::refusal::Dialect;
use serde_json::{Value, json};

/// What is asked for in one dialect, and what the table says.
pub(super) enum Said {
    /// The dialect has no words for it.
    Nothing,
    /// Answered.
    Passes(Value),
    /// Refused; the field that is named.
    Refused(Value, &'static str),
}
use Said::{Nothing, Passes, Refused};

/// A meaning on native routes (members of `parameters`, or `inputs`), in text completions and in chats.
pub(super) type Meaning = (&'static str, Said, Said, Said);

/// Refused everywhere, in the same words.
pub(super) fn refused(name: &'static str, fields: &Value, param: &'static str) -> Meaning {
    let said = || Refused(fields.clone(), param);
    (name, said(), said(), said())
}

/// Answered everywhere.
pub(super) fn passes(name: &'static str, fields: &Value) -> Meaning {
    let said = || Passes(fields.clone());
    (name, said(), said(), said())
}

/// Refused by `/v1`; TGI has no such field.
pub(super) fn refused_on_v1(name: &'static str, fields: &Value, param: &'static str) -> Meaning {
    let said = || Refused(fields.clone(), param);
    (name, Nothing, said(), said())
}

/// The table's row.
pub(super) fn bounds(dialect: Dialect) -> Bounds {
    let config = config();
    let flags = Flags {
        max_best_of: config.max_best_of,
        max_stop_sequences: config.max_stop_sequences,
        max_top_n_tokens: config.max_top_n_tokens,
        max_client_batch_size: config.max_client_batch_size,
    };
    Bounds::of(dialect, flags)
}

fn with(mut body: Value, fields: &Value) -> Value {
    let members = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(members);
    body
}

fn native_body(fields: &Value) -> Value {
    if fields.get("inputs").is_some() {
        return fields.clone();
    }
    json!({"inputs": "Hello", "parameters": fields})
}

/// The same in `KServe`'s form: the prompt as a string, and as the bytes that TGI takes.
fn tensor_bodies(body: &Value) -> [Value; 2] {
    let prompt = body["inputs"].as_str().unwrap();
    let parameters = body.get("parameters").cloned().unwrap_or(json!({}));
    let of = |shape: usize, data: Value| {
        let tensor = json!({"name": "a", "shape": [shape], "datatype": "BYTES", "data": data});
        json!({"inputs": [tensor], "parameters": parameters})
    };
    [
        of(1, json!([prompt])),
        of(prompt.len(), json!(prompt.as_bytes())),
    ]
}

/// A chat as an instance of `/vertex`, if it may be one: one choice.
fn chat_instance(body: &Value) -> Option<Value> {
    let is_single = body.get("n").is_none_or(|n| n == 1);
    is_single.then(|| json!({"instances": [body]}))
}

async fn expect(server: &Server, path: &str, body: &Value, said: &Said, dialect: Dialect) {
    let answer = server.post(path, body).await;
    let place = format!("{path} {body:.300}: {} {:.500}", answer.status, answer.body);
    match said {
        Nothing => {}
        Passes(_) => assert_eq!(answer.status, 200, "{place}"),
        Refused(_, param) => {
            let status = match dialect {
                Dialect::Native => 422,
                Dialect::OpenAi => 400,
            };
            // Also on streams: no event was sent (bug case 1.9).
            assert_eq!(answer.status, status, "{place}");
            let error = answer.json();
            match dialect {
                Dialect::Native => {
                    let message = error["error"].as_str().unwrap();
                    assert!(message.contains(param), "{place}");
                    assert_eq!(error["error_type"], "validation", "{place}");
                }
                Dialect::OpenAi => {
                    assert_eq!(error["error"]["param"], *param, "{place}");
                    assert_eq!(error["error"]["type"], "invalid_request_error", "{place}");
                    let message = error["error"]["message"].as_str().unwrap();
                    assert!(message.len() > 10, "{place}");
                }
            }
        }
    }
}

/// A chat's verdict on `/vertex`: the status is native, and the words are (which name some fields otherwise), with the place.
async fn expect_instance(server: &Server, body: &Value, said: &Said) {
    let answer = server.post("/vertex", body).await;
    let place = format!("{body:.300}: {} {:.500}", answer.status, answer.body);
    if let Refused(..) = said {
        assert_eq!(answer.status, 422, "{place}");
        let error = answer.json();
        assert_eq!(error["error_type"], "validation", "{place}");
        let message = error["error"].as_str().unwrap();
        assert!(message.ends_with("(instances[0])"), "{place}");
    } else {
        assert_eq!(answer.status, 200, "{place}");
    }
}

/// Asks for all of them on every route.
pub(super) async fn check(meanings: Vec<Meaning>) {
    let server = Server::start(config(), says(greeting())).await;
    for (name, native, completion, chat) in meanings {
        if let Passes(fields) | Refused(fields, _) = &native {
            let body = native_body(fields);
            for path in ["/", "/v1", "/generate", "/generate_stream", "/invocations"] {
                expect(&server, path, &body, &native, Dialect::Native).await;
            }
            let streamed = with(body.clone(), &json!({"stream": true}));
            expect(&server, "/", &streamed, &native, Dialect::Native).await;
            let instances = json!({"instances": [body]});
            expect(&server, "/vertex", &instances, &native, Dialect::Native).await;
            for body in tensor_bodies(&body) {
                for path in ["/v2/models/m/infer", "/v2/models/m/versions/1/infer"] {
                    expect(&server, path, &body, &native, Dialect::Native).await;
                }
            }
        }
        for (path, body, said) in [
            ("/v1/completions", json!({"prompt": "Hello"}), &completion),
            (
                "/v1/chat/completions",
                json!({"messages": [{"role": "user", "content": "Hello"}]}),
                &chat,
            ),
        ] {
            if let Passes(fields) | Refused(fields, _) = said {
                let body = with(body, fields);
                let streamed = with(body.clone(), &json!({"stream": true}));
                expect(&server, path, &body, said, Dialect::OpenAi).await;
                expect(&server, path, &streamed, said, Dialect::OpenAi).await;
                expect(&server, "/invocations", &body, said, Dialect::OpenAi).await;
                if path == "/v1/chat/completions"
                    && let Some(instances) = chat_instance(&body)
                {
                    expect_instance(&server, &instances, said).await;
                }
            }
        }
        assert!(!name.is_empty());
        server.wait_idle().await;
    }
}
