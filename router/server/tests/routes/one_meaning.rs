//! One meaning has one verdict: the same thing is asked for on every generation route, in each dialect's words, and the
//! bounds table says what comes of it. Bounds that the dialects do not share are taken from the table itself.

mod asking;

use crate::routes_support::tiny_tokenizer::vocab_size;
use crate::routes_support::{Server, config, greeting, says};
use asking::Said::{Nothing, Passes, Refused};
use asking::{bounds, check, passes, refused, refused_on_v1};
use headrace_dialect::refusal::Dialect;
use serde_json::json;

#[tokio::test]
async fn case_6_4_greedy_and_off_are_values_everywhere() {
    check(vec![
        passes("temperature 0 is greedy", &json!({"temperature": 0})),
        passes("top_p 1 is off", &json!({"top_p": 1.0, "temperature": 0.5})),
        passes("typical_p 1 is off", &json!({"typical_p": 1.0})),
        passes(
            "nothing said",
            &json!({"temperature": null, "top_p": null, "stop": null}),
        ),
        refused("temperature -1", &json!({"temperature": -1}), "temperature"),
        refused(
            "temperature hot",
            &json!({"temperature": "hot"}),
            "temperature",
        ),
        refused(
            "temperature beyond f32",
            &json!({"temperature": 1e39}),
            "temperature",
        ),
        refused("top_p 0", &json!({"top_p": 0}), "top_p"),
        refused("top_p 1.1", &json!({"top_p": 1.1}), "top_p"),
        refused("typical_p 0", &json!({"typical_p": 0.0}), "typical_p"),
        refused("typical_p 1.1", &json!({"typical_p": 1.1}), "typical_p"),
        refused_on_v1("min_p 1.5", &json!({"min_p": 1.5}), "min_p"),
        (
            "top_k 0: TGI refuses it, to vLLM it is off",
            Refused(json!({"top_k": 0}), "top_k"),
            Passes(json!({"top_k": 0})),
            Passes(json!({"top_k": -1})),
        ),
        refused("top_k -2", &json!({"top_k": -2}), "top_k"),
        refused(
            "top_k beyond 31 bits",
            &json!({"top_k": 2_147_483_648_u32}),
            "top_k",
        ),
    ])
    .await;
}

#[tokio::test]
async fn case_6_5_penalties_have_openais_range() {
    check(vec![
        passes("frequency_penalty 2", &json!({"frequency_penalty": 2.0})),
        refused(
            "frequency_penalty 2.1",
            &json!({"frequency_penalty": 2.1}),
            "frequency_penalty",
        ),
        refused(
            "repetition_penalty 0",
            &json!({"repetition_penalty": 0}),
            "repetition_penalty",
        ),
        refused_on_v1(
            "presence_penalty -2.5",
            &json!({"presence_penalty": -2.5}),
            "presence_penalty",
        ),
    ])
    .await;
}

#[tokio::test]
async fn case_6_1_ids_beyond_the_vocabulary_are_refused_in_every_list() {
    let id = vocab_size();
    let key = id.to_string();
    check(vec![
        refused_on_v1(
            "logit_bias",
            &json!({"logit_bias": {key.as_str(): 1.0}}),
            "logit_bias",
        ),
        refused_on_v1(
            "stop_token_ids",
            &json!({"stop_token_ids": [id]}),
            "stop_token_ids",
        ),
        refused_on_v1(
            "allowed_token_ids",
            &json!({"allowed_token_ids": [id]}),
            "allowed_token_ids",
        ),
        (
            "prompt ids",
            Nothing,
            Refused(json!({"prompt": [1, id]}), "prompt"),
            Nothing,
        ),
    ])
    .await;
}

#[tokio::test]
async fn case_6_2_stop_ids_beyond_the_vocabulary_with_min_tokens() {
    let fields = json!({"stop_token_ids": [vocab_size()], "min_tokens": 1});
    check(vec![
        refused_on_v1("stop_token_ids and min_tokens", &fields, "stop_token_ids"),
        refused_on_v1(
            "beyond 32 bits",
            &json!({"stop_token_ids": [1_u64 << 33]}),
            "stop_token_ids[0]",
        ),
        refused_on_v1(
            "too many",
            &json!({"stop_token_ids": vec![1; 129]}),
            "stop_token_ids",
        ),
        refused_on_v1(
            "min_tokens over max_tokens",
            &json!({"min_tokens": 5, "max_tokens": 4}),
            "min_tokens",
        ),
    ])
    .await;
}

#[tokio::test]
async fn case_6_3_and_6_11_every_count_is_bounded_by_the_table() {
    let (native, v1) = (bounds(Dialect::Native), bounds(Dialect::OpenAi));
    let top = |count: u32| json!({"logprobs": true, "top_logprobs": count});
    let choices = |n: u32| json!({"n": n, "max_tokens": 1});
    let sampled =
        |best_of: u32| json!({"best_of": best_of, "do_sample": true, "max_new_tokens": 1});
    check(vec![
        (
            "as many top logprobs as may be",
            Passes(json!({"top_n_tokens": native.top_n})),
            Passes(json!({"logprobs": v1.top_n})),
            Passes(top(v1.top_n)),
        ),
        (
            "one more",
            Refused(json!({"top_n_tokens": native.top_n + 1}), "top_n_tokens"),
            Refused(json!({"logprobs": v1.top_n + 1}), "logprobs"),
            Refused(top(v1.top_n + 1), "top_logprobs"),
        ),
        (
            "as many choices as may be",
            // TGI streams no best_of.
            Nothing,
            Passes(choices(v1.choices)),
            Passes(choices(v1.choices)),
        ),
        (
            "one more",
            Refused(sampled(native.choices + 1), "best_of"),
            Refused(choices(v1.choices + 1), "n"),
            Refused(choices(v1.choices + 1), "n"),
        ),
        (
            "none",
            Refused(sampled(0), "best_of"),
            Refused(choices(0), "n"),
            Refused(choices(0), "n"),
        ),
        (
            "five million",
            Refused(sampled(5_000_000), "best_of"),
            Refused(choices(5_000_000), "n"),
            Refused(choices(5_000_000), "n"),
        ),
        (
            "too many prompts",
            Nothing,
            Refused(json!({"prompt": vec!["a"; v1.prompts + 1]}), "prompt"),
            Nothing,
        ),
        (
            "a seed of more than 64 bits",
            Refused(json!({"seed": 18_446_744_073_709_551_616.0}), "seed"),
            Refused(json!({"seed": 18_446_744_073_709_551_616.0}), "seed"),
            Refused(json!({"seed": 18_446_744_073_709_551_616.0}), "seed"),
        ),
        passes("the largest seed", &json!({"seed": u64::MAX})),
        (
            "a seed below 0: TGI's is unsigned",
            Refused(json!({"seed": -1}), "seed"),
            Passes(json!({"seed": -1})),
            Passes(json!({"seed": i64::MIN})),
        ),
    ])
    .await;
}

#[tokio::test]
async fn stops_are_bounded_by_the_table_and_never_empty() {
    let stops =
        |count: usize| json!({"stop": (0..count).map(|n| n.to_string()).collect::<Vec<_>>()});
    let (native, v1) = (bounds(Dialect::Native).stops, bounds(Dialect::OpenAi).stops);
    check(vec![
        (
            "as many as may be",
            Passes(stops(native)),
            Passes(stops(v1)),
            Passes(stops(v1)),
        ),
        (
            "one more",
            Refused(stops(native + 1), "stop"),
            Refused(stops(v1 + 1), "stop"),
            Refused(stops(v1 + 1), "stop"),
        ),
        passes("one string", &json!({"stop": "never"})),
        refused("an empty one", &json!({"stop": ["a", ""]}), "stop"),
        refused("a long one", &json!({"stop": ["a".repeat(4097)]}), "stop"),
    ])
    .await;
}

#[tokio::test]
async fn case_6_7_and_6_8_lengths_are_exact_and_refused_before_a_stream_opens() {
    let long = "x".repeat(70);
    check(vec![
        (
            "no output",
            Refused(json!({"max_new_tokens": 0}), "max_new_tokens"),
            Refused(json!({"max_tokens": 0}), "max_tokens"),
            Refused(json!({"max_tokens": 0}), "max_tokens"),
        ),
        (
            "no output, by its new name",
            Nothing,
            Nothing,
            Refused(json!({"max_completion_tokens": 0}), "max_completion_tokens"),
        ),
        (
            "more output than the context has",
            Refused(json!({"max_new_tokens": 63}), "max_new_tokens"),
            Refused(json!({"max_tokens": 63}), "max_tokens"),
            Refused(json!({"max_tokens": 60}), "max_tokens"),
        ),
        (
            "a prompt that is too long",
            Refused(json!({"inputs": long}), "inputs"),
            Refused(json!({"prompt": long}), "prompt"),
            Refused(
                json!({"messages": [{"role": "user", "content": long}]}),
                "messages",
            ),
        ),
        (
            "no prompt",
            Refused(json!({"inputs": ""}), "inputs"),
            Refused(json!({"prompt": ""}), "prompt"),
            Refused(json!({"messages": []}), "messages"),
        ),
        (
            "to the context limit",
            Passes(json!({"max_new_tokens": null})),
            Passes(json!({"max_tokens": null})),
            Passes(json!({"max_tokens": null, "max_completion_tokens": null})),
        ),
    ])
    .await;
}

#[tokio::test]
async fn case_6_10_prompts_are_cut_on_every_route() {
    let long = "x".repeat(70);
    let messages = json!([{"role": "user", "content": long}]);
    check(vec![
        (
            "cut to ten",
            Passes(json!({"inputs": long, "parameters": {"truncate": 10}})),
            Passes(json!({"prompt": long, "truncate": 10})),
            Passes(json!({"messages": messages, "truncate": 10})),
        ),
        (
            "cut to what fits",
            Nothing,
            Passes(json!({"prompt": long, "truncate_prompt_tokens": -1, "max_tokens": 40})),
            Passes(json!({"messages": messages, "truncate_prompt_tokens": -1, "truncation_side": "right"})),
        ),
        refused("cut to nothing", &json!({"truncate": 0}), "truncate"),
        refused("cut to more than fits", &json!({"truncate": 64}), "truncate"),
        refused_on_v1("cut to nothing", &json!({"truncate_prompt_tokens": 0}), "truncate_prompt_tokens"),
        refused_on_v1("cut to -2", &json!({"truncate_prompt_tokens": -2}), "truncate_prompt_tokens"),
        refused_on_v1(
            "cut twice",
            &json!({"truncate_prompt_tokens": 3, "truncate": 3}),
            "truncate_prompt_tokens",
        ),
        refused_on_v1("cut in the middle", &json!({"truncation_side": "middle"}), "truncation_side"),
    ])
    .await;
}

#[tokio::test]
async fn terms_and_grammars_have_the_same_bounds() {
    let regex = json!({"type": "regex", "value": "(a"});
    check(vec![
        refused("priority 101", &json!({"priority": 101}), "priority"),
        refused("an empty salt", &json!({"cache_salt": ""}), "cache_salt"),
        refused("no time", &json!({"timeout": -1}), "timeout"),
        (
            "a regex that is none",
            Refused(json!({"grammar": regex}), "grammar"),
            Refused(json!({"response_format": regex}), "response_format"),
            Refused(json!({"response_format": regex}), "response_format"),
        ),
        refused("a watermark", &json!({"watermark": true}), "watermark"),
        passes("no watermark", &json!({"watermark": false})),
        refused(
            "an adapter that is not there",
            &json!({"adapter_id": "x"}),
            "adapter_id",
        ),
        passes("the base model's empty name", &json!({"adapter_id": ""})),
    ])
    .await;
}

#[tokio::test]
async fn case_6_6_logit_bias_and_n_do_what_they_say() {
    let server = Server::start(config(), says(greeting())).await;
    let body = json!({"prompt": "Hello", "n": 3, "max_tokens": 1});
    let answer = server.post("/v1/completions", &body).await.json();
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    for bad in [json!({"5": 101}), json!({"x": 1}), json!([1])] {
        let body = json!({"prompt": "Hello", "logit_bias": bad});
        let answer = server.post("/v1/completions", &body).await;
        assert_eq!(answer.json()["error"]["param"], "logit_bias");
    }
    server.wait_idle().await;
}
