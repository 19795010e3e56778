//! Request bodies through every dialect's reader: no panic, every refusal one short line that names its field, every
//! call within its bounds, and JSON read as serde reads it.

use super::json_text::{list, number, object, oddity, string, value};
use super::made_up_text;
use crate::Target;
use crate::random::{Random, kind_of, mix};
use headrace_dialect::bounds::{Bounds, Flags};
use headrace_dialect::call::{Call, SamplingDefaults};
use headrace_dialect::ignored::Ignored;
use headrace_dialect::json::{Json, MAX_DEPTH, MAX_KEYS};
use headrace_dialect::native::{NativeRoute, read_generate};
use headrace_dialect::openai::{read_chat, read_chat_tokenize, read_completion, read_tokenize};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use serde_json::Value;

pub(super) const TARGET: Target = Target {
    name: "bodies",
    seeds,
    fresh,
    run,
    words: &made_up_text::WORDS,
    short: 40_000,
};

const FLAGS: Flags = Flags {
    max_best_of: 2,
    max_stop_sequences: 4,
    max_top_n_tokens: 5,
    max_client_batch_size: 4,
};

/// Keys that some route knows, and two that none does.
const KEYS: [&str; 92] = [
    "inputs",
    "parameters",
    "stream",
    "best_of",
    "temperature",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "do_sample",
    "max_new_tokens",
    "return_full_text",
    "stop",
    "truncate",
    "watermark",
    "details",
    "decoder_input_details",
    "seed",
    "top_n_tokens",
    "grammar",
    "adapter_id",
    "add_special_tokens",
    "model",
    "prompt",
    "suffix",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "stop_token_ids",
    "ignore_eos",
    "min_tokens",
    "user",
    "stream_options",
    "include_usage",
    "continuous_usage_stats",
    "response_format",
    "json_schema",
    "regex",
    "tools",
    "tool_choice",
    "tool_prompt",
    "tool_calls",
    "tool_call_id",
    "functions",
    "function_call",
    "function",
    "guideline",
    "echo",
    "role",
    "content",
    "name",
    "type",
    "text",
    "image_url",
    "audio",
    "modalities",
    "metadata",
    "cache_salt",
    "priority",
    "timeout",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "return_token_strs",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "prompt_logprobs",
    "allowed_token_ids",
    "bad_words",
    "length_penalty",
    "use_beam_search",
    "truncate_prompt_tokens",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "reasoning",
    "reasoning_effort",
    "nonsense",
    "",
];

fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"inputs":"x","parameters":{"best_of":2,"temperature":0.5,"repetition_penalty":1.1,"frequency_penalty":0.1,
            "top_k":5,"top_p":0.9,"typical_p":0.9,"do_sample":true,"max_new_tokens":5,"return_full_text":true,
            "stop":["a","b"],"truncate":3,"watermark":false,"details":true,"decoder_input_details":true,"seed":7,
            "top_n_tokens":2,"grammar":{"type":"json","value":{"type":"object"}}},"stream":false}"#,
        r#"{"inputs":"x","parameters":{"grammar":{"type":"regex","value":"a+"}},"stream":true}"#,
        r#"{"model":"m","prompt":["a","b"],"max_tokens":4,"n":2,"logprobs":3,"echo":false,"stop":"x","seed":-1,
            "logit_bias":{"5":-100},"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"prompt":[1,2,3],"min_p":0.1,"stop_token_ids":[7],"ignore_eos":true,"min_tokens":2}"#,
        r#"{"prompt":[[1,2],[3]]}"#,
        r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","name":"u","content":[{"type":"text",
            "text":"hi"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{
            "name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"4"}],"max_completion_tokens":9,
            "logprobs":true,"top_logprobs":2,"temperature":0,"response_format":{"type":"text"},"tools":[]}"#,
        r#"{"inputs":"x","add_special_tokens":false}"#,
        r#"{"prompt":"x","return_token_strs":true}"#,
        r#"{"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true,"add_generation_prompt":false}"#,
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect()
}

fn fresh(random: &mut Random) -> Vec<u8> {
    if random.percent(3) {
        return oddity(random).into_bytes();
    }
    let start = *random.pick(&["inputs", "prompt", "messages", ""]);
    let count = random.below(8);
    let mut body = object(random, count, |random| {
        let key = *random.pick(&KEYS);
        (format!("\"{key}\""), of_key(random, key, 2))
    });
    if !start.is_empty() {
        let first = format!("{{\"{start}\":{}", of_key(random, start, 2));
        let comma = if count > 0 { "," } else { "" };
        body = format!("{first}{comma}{}", &body[1..]);
    }
    body.into_bytes()
}

/// A value that the key may well have, or any.
fn of_key(random: &mut Random, key: &str, depth: usize) -> String {
    if random.percent(20) {
        return value(random, 2);
    }
    match key {
        "inputs" | "model" | "role" | "name" | "text" | "suffix" | "cache_salt" => {
            if key == "role" && random.percent(80) {
                return format!(
                    "\"{}\"",
                    random.pick(&["user", "assistant", "system", "tool"])
                );
            }
            string(random)
        }
        "prompt" | "stop" | "content" => match random.below(4) {
            0 => list(random, string),
            1 => list(random, number),
            2 if key == "content" => list(random, |random| {
                format!("{{\"type\":\"text\",\"text\":{}}}", string(random))
            }),
            _ => string(random),
        },
        "messages" if depth > 0 => list(random, |random| {
            let count = random.below(3);
            let rest = object(random, count, |random| {
                let key = *random.pick(&["name", "tool_calls", "tool_call_id", "text", "content"]);
                (format!("\"{key}\""), of_key(random, key, depth - 1))
            });
            let role = of_key(random, "role", 0);
            let content = of_key(random, "content", 0);
            let comma = if count > 0 { "," } else { "" };
            format!(
                "{{\"role\":{role},\"content\":{content}{comma}{}",
                &rest[1..]
            )
        }),
        "parameters" | "stream_options" | "response_format" | "grammar" | "metadata"
            if depth > 0 =>
        {
            let count = random.below(6);
            object(random, count, |random| {
                let key = *random.pick(&KEYS);
                (format!("\"{key}\""), of_key(random, key, depth - 1))
            })
        }
        "logit_bias" => {
            let count = random.below(4);
            object(random, count, |random| {
                (format!("\"{}\"", number(random)), number(random))
            })
        }
        "stop_token_ids" => list(random, number),
        "stream" | "details" | "do_sample" | "echo" | "ignore_eos" => {
            random.pick(&["true", "false"]).to_string()
        }
        _ => number(random),
    }
}

fn run(input: &[u8]) -> u64 {
    let parsed = Json::parse(input);
    check_json(input, parsed.as_ref());
    let json = match parsed {
        Ok(json) => json,
        Err(refusal) => return check_refusal(&refusal, Dialect::Native),
    };
    let native = Bounds::of(Dialect::Native, FLAGS);
    let openai = Bounds::of(Dialect::OpenAi, FLAGS);
    let mut met = 0;
    for route in [
        NativeRoute::Generate,
        NativeRoute::GenerateStream,
        NativeRoute::Compat,
    ] {
        let read = read_generate(&json, route, &native);
        if let Ok(request) = &read {
            assert_eq!(request.call.prompts.len(), 1);
            assert!(!request.inputs.is_empty());
        }
        let read = read.map(|request| (Some(request.call), request.ignored));
        met = mix(met, verdict(read, &native));
    }
    let read = read_completion(&json, &openai, None).map(|call| (Some(call.call), call.ignored));
    met = mix(met, verdict(read, &openai));
    let read = read_chat(&json, &openai).map(|call| (Some(call.call), call.ignored));
    met = mix(met, verdict(read, &openai));
    let read = read_tokenize(&json, &openai).map(|_| (None, Ignored::default()));
    met = mix(met, verdict(read, &openai));
    let read = read_chat_tokenize(&json, &openai).map(|(_, ignored)| (None, ignored));
    mix(met, verdict(read, &openai))
}

/// What a route says; all that it must not say is a panic.
fn verdict(read: Result<(Option<Call>, Ignored), Refusal>, bounds: &Bounds) -> u64 {
    match read {
        Err(refusal) => check_refusal(&refusal, bounds.dialect),
        Ok((call, ignored)) => {
            if let Some(header) = ignored.header() {
                let is_visible = header.bytes().all(|byte| (0x20..0x7F).contains(&byte));
                assert!(is_visible, "a header of {header:?}");
            }
            call.map_or(1, |call| check_call(&call, bounds))
        }
    }
}

fn check_refusal(refusal: &Refusal, dialect: Dialect) -> u64 {
    let message = refusal.message();
    assert!(!message.is_empty() && message.len() < 2000, "{message}");
    assert!(!message.contains('\n'), "two lines: {message:?}");
    let status = refusal.status(dialect);
    assert!((400..500).contains(&status), "{status} {message}");
    let body: Value = serde_json::from_str(&refusal.body(dialect)).expect("an error body is JSON");
    let openai: Value = serde_json::from_str(&refusal.body(Dialect::OpenAi)).expect("JSON");
    assert!(body.get("error").is_some());
    let names_a_field = openai["error"]["param"].is_string() || message.contains('`');
    let names_a_place = refusal.cause() == Cause::MalformedJson && message.contains(" column ");
    assert!(
        names_a_field || names_a_place,
        "neither a field nor a place: {message}"
    );
    kind_of(message)
}

fn check_call(call: &Call, bounds: &Bounds) -> u64 {
    assert!(!call.prompts.is_empty() && call.prompts.len() <= bounds.prompts);
    assert!(call.choices >= 1 && call.choices <= call.best_of && call.best_of <= bounds.choices);
    assert!(call.stops.len() <= bounds.stops && call.stops.iter().all(|stop| !stop.is_empty()));
    assert!(call.stop_token_ids.len() <= bounds.stop_ids);
    assert!(call.logit_bias.len() <= bounds.biased_ids);
    assert!(
        call.logit_bias
            .iter()
            .all(|(_, bias)| (-100.0..=100.0).contains(bias))
    );
    assert_ne!(call.max_new_tokens, Some(0));
    assert!(call.report.top_n <= bounds.top_n);
    let (do_sample, sampling) = call.sampling.resolve(&SamplingDefaults::default());
    let within = |value: Option<f32>, low: f32, high: f32| {
        value.is_none_or(|value| value >= low && value <= high)
    };
    assert!(within(sampling.temperature, 0.0, f32::MAX));
    assert!(within(sampling.top_p, f32::MIN_POSITIVE, 1.0) || sampling.top_p > Some(0.0));
    assert!(within(sampling.min_p, 0.0, 1.0));
    assert!(within(sampling.typical_p, 0.0, 1.0));
    assert!(within(sampling.repetition_penalty, 0.0, f32::MAX));
    assert!(within(sampling.frequency_penalty, -2.0, 2.0));
    assert!(within(sampling.presence_penalty, -2.0, 2.0));
    if do_sample {
        assert!(sampling.temperature.is_none_or(|value| value > 0.0));
    }
    for prompt in &call.prompts {
        let _ = (prompt.weight(), prompt.characters());
    }
    mix(
        u64::from(call.choices) << 8 | u64::from(call.stream),
        (call.stops.len() + call.logit_bias.len()) as u64,
    )
}

/// serde's own reader is the oracle, but for depth, number of keys and numbers beyond f64.
fn check_json(input: &[u8], parsed: Result<&Json, &Refusal>) {
    let serde: Result<Value, _> = serde_json::from_slice(input);
    match (serde, parsed) {
        (Ok(value), Ok(json)) => assert_eq!(json.to_value(), value),
        (Err(_), Err(_)) => {}
        (Ok(value), Err(refusal)) => {
            let deepest = depth(&value);
            let message = refusal.message();
            let bounded = (deepest > MAX_DEPTH && message.contains("nested deeper"))
                || message.contains(&format!("more than {MAX_KEYS} keys"));
            assert!(bounded, "serde takes it: {message}");
        }
        (Err(error), Ok(_)) => panic!("serde refuses it: {error}"),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
