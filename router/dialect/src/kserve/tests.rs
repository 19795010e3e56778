//! Both forms of the infer request, and what is wrong in each.

use super::*;
use crate::bounds::Flags;
use crate::call::Prompt;
use crate::refusal::Dialect;
use serde_json::{Value, json};

fn read(body: &Value) -> Result<InferCall, Refusal> {
    let flags = Flags::default();
    let json = Json::parse(body.to_string().as_bytes())?;
    let native = Bounds::of(Dialect::Native, flags);
    read_infer(&json, &native, &Bounds::of(Dialect::OpenAi, flags))
}

fn texts(call: &InferCall) -> Vec<&str> {
    call.call
        .prompts
        .iter()
        .map(|prompt| match prompt {
            Prompt::Text { text, .. } => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn bytes(text: &str) -> Value {
    json!({"name": "in", "shape": [1, text.len()], "datatype": "BYTES", "data": text.as_bytes()})
}

#[test]
fn tgis_form_is_one_prompt_an_input() {
    let call = read(&json!({
        "id": "7", "inputs": [bytes("Hé"), bytes("b")], "outputs": [{"name": "x"}, {"name": "y"}],
        "parameters": {"max_new_tokens": 3, "top_k": 2, "odd": 1}, "more": 1
    }))
    .unwrap();
    assert_eq!(texts(&call), ["Hé", "b"]);
    assert_eq!(call.id.as_deref(), Some("7"));
    assert_eq!(call.call.max_new_tokens, Some(3));
    assert_eq!(call.call.sampling.top_k, Some(2));
    assert_eq!(call.ignored.keys(), ["more", "parameters.odd"]);
    let outputs = output_tensors(&call.tensors, vec!["Ja".to_owned(), "é".to_owned()]);
    assert_eq!(
        serde_json::to_value(outputs).unwrap(),
        json!([
            {"name": "x", "shape": [1, 2], "datatype": "BYTES", "data": [74, 97]},
            {"name": "y", "shape": [1, 2], "datatype": "BYTES", "data": [195, 169]},
        ])
    );
}

#[test]
fn kserves_own_form_is_a_prompt_a_string() {
    let call = read(&json!({"inputs": [
        {"name": "p", "shape": [2, 1], "datatype": "BYTES", "data": [["a"], ["b"]]},
        {"name": "q", "shape": [1], "datatype": "BYTES", "data": ["c"], "parameters": {}},
    ], "parameters": {"return_full_text": true, "binary_data_output": false}}))
    .unwrap();
    assert_eq!(texts(&call), ["a", "b", "c"]);
    assert_eq!(call.prefixes.as_deref().unwrap().concat(), "abc");
    assert_eq!(call.id, None);
    assert!(call.ignored.is_empty());
    let answers = ["1", "2", "3"].map(str::to_owned).to_vec();
    assert_eq!(
        serde_json::to_value(output_tensors(&call.tensors, answers)).unwrap(),
        json!([
            {"name": "p", "shape": [2], "datatype": "BYTES", "data": ["1", "2"]},
            {"name": "q", "shape": [1], "datatype": "BYTES", "data": ["3"]},
        ])
    );
}

#[test]
fn tgis_error_types() {
    for (body, error, error_type) in [
        (
            json!({"inputs": [{"name": "a", "shape": [1, 2], "datatype": "BYTES", "data": [72, 255]}]}),
            "invalid utf-8 sequence of 1 bytes from index 1 (`inputs[0].data`)",
            "utf8",
        ),
        (
            json!({"inputs": [bytes("a")], "outputs": []}),
            "Inputs and outputs length mismatch",
            "length mismatch",
        ),
    ] {
        let refusal = read(&body).unwrap_err();
        let body: Value = serde_json::from_str(&refusal.body(Dialect::Native)).unwrap();
        assert_eq!(body, json!({"error": error, "error_type": error_type}));
        assert_eq!(refusal.status(Dialect::Native), 422);
    }
}

/// A request of one string, with a member of its tensor replaced.
fn with(key: &str, value: Value) -> Value {
    let mut input = json!({"name": "a", "shape": [1], "datatype": "BYTES", "data": ["x"]});
    input[key] = value;
    json!({"inputs": [input]})
}

fn check_refused(cases: Vec<(Value, String)>) {
    for (request, message) in cases {
        let refusal = read(&request).unwrap_err();
        assert_eq!(refusal.message(), message, "{request}");
        assert_eq!(refusal.status(Dialect::Native), 422, "{message}");
    }
}

const SHAPE: &str = "Failed to deserialize the JSON body into the target type:";

#[test]
fn what_is_wrong_in_a_tensor_is_named() {
    let body = SHAPE;
    check_refused(vec![
        (json!({}), format!("{body} missing field `inputs`")),
        (
            json!({"inputs": [1]}),
            format!("{body} inputs[0]: invalid type: integer `1`, expected a map"),
        ),
        (
            json!({"inputs": []}),
            "Input validation error: `inputs` cannot be empty".to_owned(),
        ),
        (
            with("data", json!([])),
            "Input validation error: `inputs` cannot be empty".to_owned(),
        ),
        (
            with("data", json!([72, 256])),
            format!("{body} inputs[0].data[1]: invalid value: integer `256`, expected u8"),
        ),
        (
            with("data", json!([72, -1])),
            format!("{body} inputs[0].data[1]: invalid value: integer `-1`, expected u8"),
        ),
        (
            with("data", json!([72, "a"])),
            format!("{body} inputs[0].data[1]: invalid type: string \"a\", expected u8"),
        ),
        (
            with("data", json!(["a", 72])),
            format!("{body} inputs[0].data[1]: invalid type: integer `72`, expected a string"),
        ),
        (
            with("data", json!([1.5])),
            format!("{body} inputs[0].data[0]: invalid type: floating point `1.5`, expected u8 or a string"),
        ),
        (
            with("data", json!("a")),
            format!("{body} inputs[0].data: invalid type: string \"a\", expected a sequence of u8 or of strings"),
        ),
        (
            with("shape", json!([2])),
            "Input validation error: `inputs[0].shape` does not fit the 1 strings of `inputs[0].data`, flat or nested".to_owned(),
        ),
        (
            with("shape", json!([-1])),
            format!("{body} inputs[0].shape[0]: invalid type: integer `-1`, expected a size"),
        ),
        (
            with("shape", json!(vec![1; 17])),
            "Input validation error: `inputs[0].shape` must have at most 16 dimensions".to_owned(),
        ),
        (
            with("datatype", json!("FP32")),
            "Input validation error: `inputs[0].datatype` FP32 is not supported: prompts are `BYTES`".to_owned(),
        ),
        (
            json!({"inputs": [{"name": "a", "shape": [1], "datatype": "FP32", "data": [0.5]}]}),
            "Input validation error: `inputs[0].datatype` FP32 is not supported: prompts are `BYTES`".to_owned(),
        ),
    ]);
}

#[test]
fn what_else_is_wrong_is_named() {
    let body = SHAPE;
    check_refused(vec![
        (
            with("name", Value::Null),
            format!("{body} missing field `inputs[0].name`"),
        ),
        (
            with("name", json!("x".repeat(1025))),
            "Input validation error: `inputs[0].name` must have at most 1024 characters".to_owned(),
        ),
        (
            with("parameters", json!({"binary_data_size": 4})),
            "Input validation error: `inputs[0].parameters.binary_data_size`: this field is not supported".to_owned(),
        ),
        (
            json!({"inputs": [bytes("a")], "outputs": [{"name": "x", "parameters": {"binary_data": true}}]}),
            "Input validation error: `outputs[0].parameters.binary_data`: this field is not supported".to_owned(),
        ),
        (
            json!({"inputs": [bytes("a")], "parameters": {"binary_data_output": true}}),
            "Input validation error: `parameters.binary_data_output`: this field is not supported".to_owned(),
        ),
        (
            json!({"inputs": [bytes("a")], "parameters": {"temperature": -1}}),
            "Input validation error: `temperature` must be strictly positive".to_owned(),
        ),
        (
            json!({"inputs": vec![bytes("a"); 65]}),
            "Input validation error: `inputs` must have at most 64 prompts".to_owned(),
        ),
        (
            json!({"inputs": [bytes("a")], "id": 7}),
            format!("{body} id: invalid type: integer `7`, expected a string"),
        ),
    ]);
}

#[test]
fn only_a_strict_server_has_other_models_not_found() {
    assert_eq!(check_path_model("any", "org/tiny", false), Ok(()));
    assert_eq!(check_path_model("org/tiny", "org/tiny", true), Ok(()));
    let refusal = check_path_model("any", "org/tiny", true).unwrap_err();
    assert_eq!(refusal.status(Dialect::Native), 404);
    assert_eq!(refusal.message(), "The model `any` does not exist.");
}

/// The protocol has two forms for elements: one flat list, or lists nested as the shape says.
#[test]
fn strings_are_flat_or_nested_as_the_shape_says() {
    for (shape, data, is_taken) in [
        (json!([2]), json!(["a", "b"]), true),
        (json!([2, 1]), json!(["a", "b"]), true),
        (json!([2, 1]), json!([["a"], ["b"]]), true),
        (json!([1, 2]), json!([["a", "b"]]), true),
        (json!([1, 1, 1]), json!([[["a"]]]), true),
        (json!([1]), json!([["a"]]), false),
        (json!([2]), json!([["a"], ["b"]]), false),
        (json!([2, 1]), json!([["a", "b"]]), false),
        (json!([1, 1]), json!([[["a"]]]), false),
        (json!([1, 1, 1]), json!([["a"]]), false),
        (json!([2]), json!(["a", ["b"]]), false),
        (json!([]), json!([["a"]]), false),
        (json!([3]), json!(["a", "b"]), false),
        (
            json!([4_294_967_296_u64, 4_294_967_296_u64]),
            json!(["a"]),
            false,
        ),
    ] {
        let input = json!({"name": "a", "shape": shape, "datatype": "BYTES", "data": data});
        let result = read(&json!({"inputs": [input]}));
        assert_eq!(result.is_ok(), is_taken, "{shape} {data}: {result:?}");
        if let Err(refusal) = result {
            let message = refusal.message();
            assert!(
                message.contains("`inputs[0].shape` does not fit"),
                "{message}"
            );
        }
    }
}
