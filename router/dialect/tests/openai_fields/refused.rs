//! Fields that cannot be honoured: a value that asks for something, and those that do not.

use crate::{BOTH, Class, Row};
use serde_json::{Value, json};

fn refused(name: &'static str, asks: Value, neutral: &[Value], why: &'static str) -> Row {
    Row {
        name,
        routes: BOTH,
        class: Class::Refused(asks, neutral.to_vec()),
        why,
    }
}

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    let object = || json!({"a": 1});
    let text = || json!("x");
    let off = [json!(false)];
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    vec![
        refused("tools", tools.clone(), &[json!([])], "to come"),
        refused(
            "tool_choice",
            json!("required"),
            &[json!("none"), json!("auto")],
            "to come",
        ),
        refused("functions", tools, &[json!([])], "to come, as tools"),
        refused(
            "function_call",
            json!({"name": "f"}),
            &[json!("none"), json!("auto")],
            "the same",
        ),
        refused(
            "modalities",
            json!(["text", "audio"]),
            &[json!(["text"])],
            "text only",
        ),
        refused("audio", object(), &[], "text only"),
        refused("web_search_options", object(), &[json!({})], "no search"),
        refused(
            "reasoning_effort",
            json!("low"),
            &[],
            "to come with reasoning",
        ),
        refused("reasoning", object(), &[json!({})], "the same"),
        refused("thinking", object(), &[json!({})], "the same"),
        refused("thinking_token_budget", json!(5), &[], "the same"),
        refused("max_thinking_tokens", json!(5), &[], "the same"),
        refused(
            "include_reasoning",
            json!(false),
            &[json!(true)],
            "it cannot be left out yet",
        ),
        refused(
            "separate_reasoning",
            json!(true),
            &off,
            "it is not told apart yet",
        ),
        refused("structured_outputs", object(), &[json!({})], "to come"),
        refused("guided_json", object(), &[], "vLLM's older names"),
        refused("guided_regex", text(), &[], "the same"),
        refused("guided_choice", json!(["a"]), &[json!([])], "the same"),
        refused("guided_grammar", text(), &[], "the same"),
        refused("guided_decoding_backend", text(), &[], "the same"),
        refused("guided_whitespace_pattern", text(), &[], "the same"),
        refused("structural_tag", text(), &[], "to come"),
        refused("grammar", text(), &[json!("")], "native routes have it"),
        refused(
            "regex",
            text(),
            &[json!("")],
            "SGLang's; response_format has it",
        ),
        refused("ebnf", text(), &[], "SGLang's"),
        refused(
            "json_schema",
            text(),
            &[],
            "SGLang's; response_format has it",
        ),
        refused("use_beam_search", json!(true), &off, "no beams"),
        refused("beam_width", json!(4), &[json!(1)], "no beams"),
        refused(
            "length_penalty",
            json!(0.5),
            &[json!(1), json!(1.0)],
            "of beams",
        ),
        refused("early_stopping", json!(true), &off, "of beams"),
        refused(
            "logprob_token_ids",
            json!([1]),
            &[json!([])],
            "top_logprobs only",
        ),
        refused(
            "token_ids_logprob",
            json!([1]),
            &[json!([])],
            "SGLang's; the same",
        ),
        refused(
            "repetition_detection",
            object(),
            &[json!({})],
            "would end texts",
        ),
        refused("stop_regex", text(), &[json!([])], "stop strings only"),
        refused(
            "no_stop_trim",
            json!(true),
            &off,
            "include_stop_str_in_output has it",
        ),
        refused("input_ids", json!([1]), &[json!([])], "prompt takes ids"),
        refused("prompt_embeds", text(), &[], "no embeddings as input"),
        refused("mm_payload", text(), &[], "text only"),
        refused(
            "return_prompt_token_ids",
            json!(true),
            &off,
            "SGLang's; not given",
        ),
        refused("return_prompt_text", json!(true), &off, "not given"),
        refused("return_token_offsets", json!(true), &off, "not given"),
        refused(
            "return_weight_versions",
            json!(true),
            &off,
            "weights do not change",
        ),
        refused("return_meta_info", json!(true), &off, "SGLang's own shape"),
        refused("return_hidden_states", json!(true), &off, "not given"),
        refused("return_routed_experts", json!(true), &off, "not given"),
        refused(
            "routed_experts_prompt_start",
            json!(4),
            &[json!(0)],
            "not given",
        ),
        refused(
            "kv_transfer_params",
            object(),
            &[json!({})],
            "no transfer between servers",
        ),
        refused("ec_transfer_params", object(), &[json!({})], "the same"),
        refused("bootstrap_host", text(), &[], "the same"),
        refused("bootstrap_port", json!(1), &[], "the same"),
        refused("bootstrap_room", json!(1), &[], "the same"),
        refused("vllm_xargs", object(), &[json!({})], "unknown meaning"),
        refused("custom_params", object(), &[json!({})], "the same"),
        refused("custom_logit_processor", text(), &[], "no code in requests"),
        refused(
            "extra_key",
            text(),
            &[json!("")],
            "cache_salt keeps prefixes apart",
        ),
        refused(
            "background",
            json!(true),
            &off,
            "nothing runs on after its client",
        ),
        refused("watermark", json!(true), &off, "TGI's"),
        refused("watermarking", json!(true), &off, "vLLM's"),
        refused("adapter_id", text(), &[json!("")], "no adapters"),
        refused("lora_path", text(), &[json!("")], "no adapters"),
    ]
}
