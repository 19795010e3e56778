//! Every field that vLLM, `SGLang`, TGI and the SDKs of today name for `/v1`'s generation routes is in one class: honoured,
//! advisory, or refused unless it asks for nothing. What is in none is named in `x-headrace-ignored`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "a test ends by panicking, and its tables are read from top to bottom"
)]

mod advisory;
mod honoured;
mod refused;

use headrace_dialect::bounds::{Bounds, Flags};
use headrace_dialect::json::Json;
use headrace_dialect::openai::{read_chat, read_completion};
use headrace_dialect::refusal::{Dialect, Refusal};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Completion,
    Chat,
}
use Route::{Chat, Completion};

/// Where a field is known.
const BOTH: &[Route] = &[Completion, Chat];
const TEXT: &[Route] = &[Completion];
const CHATS: &[Route] = &[Chat];

enum Class {
    /// A value that does something, and one that is refused by the field's name.
    Honoured(Value, Value),
    /// Any value passes and changes nothing.
    Advisory,
    /// A value that asks for something, and values that do not.
    Refused(Value, Vec<Value>),
}
use Class::{Advisory, Honoured, Refused};

struct Row {
    name: &'static str,
    routes: &'static [Route],
    class: Class,
    why: &'static str,
}

fn rows() -> Vec<Row> {
    let mut rows = honoured::rows();
    rows.extend(advisory::rows());
    rows.extend(refused::rows());
    rows
}

/// What is read of a body: the ignored keys, or the refusal.
fn read(route: Route, name: &str, value: &Value) -> Result<Vec<String>, Refusal> {
    let mut body = match route {
        Completion => json!({"prompt": "x"}),
        Chat => json!({"messages": [{"role": "user", "content": "x"}]}),
    };
    body[name] = value.clone();
    let flags = Flags::default();
    let bounds = Bounds::of(Dialect::OpenAi, flags);
    let json = Json::parse(body.to_string().as_bytes())?;
    let ignored = match route {
        Completion => read_completion(&json, &bounds, None)?.ignored,
        Chat => read_chat(&json, &bounds)?.ignored,
    };
    Ok(ignored.keys().to_vec())
}

fn passes(route: Route, row: &Row, value: &Value) {
    match read(route, row.name, value) {
        Ok(ignored) => assert_eq!(ignored, [""; 0], "{route:?} {}: {}", row.name, row.why),
        Err(refusal) => panic!("{route:?} {} {value}: {refusal}", row.name),
    }
}

fn is_refused(route: Route, row: &Row, value: &Value) {
    let name = row.name;
    let Err(refusal) = read(route, name, value) else {
        panic!("{route:?} {name} {value}");
    };
    assert_eq!(refusal.status(Dialect::OpenAi), 400);
    let param = refusal.param().unwrap();
    let is_named = param == name
        || param
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['[', '.']));
    assert!(is_named, "{name}: {param}");
    assert!(refusal.message().contains(name), "{refusal}");
}

#[test]
fn every_field_does_what_its_class_says() {
    for row in rows() {
        assert!(!row.why.is_empty());
        for &route in row.routes {
            if !["prompt", "messages"].contains(&row.name) {
                passes(route, &row, &Value::Null);
            }
            match &row.class {
                Honoured(sample, wrong) => {
                    passes(route, &row, sample);
                    is_refused(route, &row, wrong);
                }
                Advisory => {
                    for value in [
                        json!(1),
                        json!("x"),
                        json!(true),
                        json!({"a": [1]}),
                        json!(["x"]),
                    ] {
                        passes(route, &row, &value);
                    }
                }
                Refused(asks, neutral) => {
                    is_refused(route, &row, asks);
                    for value in neutral {
                        passes(route, &row, value);
                    }
                }
            }
        }
    }
}

#[test]
fn every_field_is_in_one_class_on_a_route() {
    for route in BOTH {
        let mut seen = BTreeSet::new();
        for row in rows() {
            if row.routes.contains(route) {
                assert!(seen.insert(row.name), "{route:?}: {} twice", row.name);
            }
        }
    }
}

/// As their documentation lists them for completions and chats, but for what only their own Python code can set.
const VLLM: &str = "model prompt echo frequency_penalty presence_penalty logit_bias logprobs max_tokens n seed stop stream \
    stream_options suffix temperature top_p user messages top_logprobs max_completion_tokens response_format tools \
    tool_choice parallel_tool_calls reasoning_effort thinking_token_budget include_reasoning use_beam_search length_penalty \
    top_k min_p repetition_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens \
    spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids \
    bad_words repetition_detection watermarking prompt_embeds structured_outputs priority request_id cache_salt \
    return_token_ids return_tokens_as_token_ids return_prompt_text return_token_offsets return_weight_versions \
    stream_interval kv_transfer_params ec_transfer_params vllm_xargs mm_processor_kwargs media_io_kwargs mm_payload \
    routed_experts_prompt_start add_generation_prompt continue_final_message add_special_tokens documents chat_template \
    chat_template_kwargs guided_json guided_regex guided_choice guided_grammar";

const SGLANG: &str = "top_k min_p min_tokens regex ebnf json_schema structural_tag repetition_penalty stop_token_ids \
    stop_regex no_stop_trim ignore_eos continue_final_message separate_reasoning stream_reasoning chat_template_kwargs \
    reasoning_effort reasoning input_ids return_token_ids return_prompt_token_ids return_meta_info rid extra_key cache_salt \
    priority lora_path echo best_of suffix logprobs skip_special_tokens spaces_between_special_tokens logit_bias \
    stream_interval custom_params beam_width token_ids_logprob return_hidden_states return_routed_experts \
    custom_logit_processor routing_key conversation_id max_thinking_tokens no_logs custom_labels mm_hashes kv_router_hint \
    background bootstrap_host bootstrap_port bootstrap_room";

const SDKS: &str = "messages model audio frequency_penalty function_call functions logit_bias logprobs \
    max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty \
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed \
    service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity \
    web_search_options best_of echo prompt suffix";

/// What TGI's chats and completions add to them.
const TGI: &str = "tool_prompt watermark adapter_id truncate typical_p";

/// Told of the prompt and of ids, or a template of the request's own: `scoring.rs` and `template_fields.rs` have their
/// tests.
const ELSEWHERE: &str =
    "echo suffix prompt_logprobs return_token_ids return_tokens_as_token_ids chat_template";

#[test]
fn every_listed_field_has_a_class() {
    let rows = rows();
    let known: BTreeSet<&str> = rows
        .iter()
        .map(|row| row.name)
        .chain(ELSEWHERE.split_whitespace())
        .collect();
    for list in [VLLM, SGLANG, SDKS, TGI] {
        for name in list.split_whitespace() {
            assert!(known.contains(name), "{name} has no class");
        }
    }
    // Those, too, are known to both routes: refused by name or taken, never passed over.
    for name in ELSEWHERE.split_whitespace() {
        let routes = if name == "suffix" { TEXT } else { BOTH };
        for &route in routes {
            let said = read(route, name, &Value::Null);
            assert_eq!(said.unwrap(), [""; 0], "{route:?} {name}");
        }
    }
}

#[test]
fn what_has_no_class_is_named() {
    for route in BOTH {
        assert_eq!(
            read(*route, "unheard_of", &json!(1)).unwrap(),
            ["unheard_of"]
        );
    }
    // A known key in the other dialect's place is named, too.
    assert_eq!(
        read(Completion, "messages", &json!([])).unwrap(),
        ["messages"]
    );
    assert_eq!(read(Chat, "prompt", &json!("x")).unwrap(), ["prompt"]);
}
