use super::*;
use crate::bounds::Flags;
use crate::refusal::Dialect;

fn bounds() -> Bounds {
    Bounds::of(Dialect::Native, Flags::default())
}

fn read(route: NativeRoute, body: &serde_json::Value) -> Result<NativeRequest, Refusal> {
    let json = Json::parse(body.to_string().as_bytes())?;
    read_generate(&json, route, &bounds())
}

fn parameters(
    route: NativeRoute,
    parameters: &serde_json::Value,
) -> Result<NativeRequest, Refusal> {
    read(
        route,
        &serde_json::json!({"inputs": "x", "parameters": parameters}),
    )
}

#[test]
fn every_bound_has_tgis_words() {
    let cases = [
        (
            r#"{"best_of":0}"#,
            "`best_of` must be > 0 and <= 2. Given: 0",
        ),
        (
            r#"{"best_of":3}"#,
            "`best_of` must be > 0 and <= 2. Given: 3",
        ),
        (
            r#"{"best_of":2}"#,
            "you must use sampling when `best_of` is > 1",
        ),
        (
            r#"{"best_of":2,"do_sample":true,"seed":1}"#,
            "`seed` must not be set when `best_of` > 1",
        ),
        (
            r#"{"temperature":-0.1}"#,
            "`temperature` must be strictly positive",
        ),
        (
            r#"{"repetition_penalty":0}"#,
            "`repetition_penalty` must be strictly positive",
        ),
        (
            r#"{"frequency_penalty":2.1}"#,
            "`frequency_penalty` must be >= -2.0 and <= 2.0",
        ),
        (r#"{"top_p":0}"#, "`top_p` must be > 0.0 and < 1.0"),
        (r#"{"top_p":1.1}"#, "`top_p` must be > 0.0 and < 1.0"),
        (r#"{"typical_p":0}"#, "`typical_p` must be > 0.0 and < 1.0"),
        (r#"{"top_k":0}"#, "`top_k` must be strictly positive"),
        (r#"{"top_k":-3}"#, "`top_k` must be strictly positive"),
        (
            r#"{"max_new_tokens":0}"#,
            "`max_new_tokens` must be strictly positive",
        ),
        (
            r#"{"stop":["a","b","c","d","e"]}"#,
            "`stop` supports up to 4 stop sequences. Given: 5",
        ),
        (
            r#"{"stop":[""]}"#,
            "`stop` must not contain an empty string",
        ),
        (
            r#"{"top_n_tokens":6}"#,
            "`top_n_tokens` must be >= 0 and <= 5. Given: 6",
        ),
        (r#"{"watermark":true}"#, "`watermark` is not supported"),
        (
            r#"{"adapter_id":"x"}"#,
            "`adapter_id`: no adapter \"x\" is loaded",
        ),
    ];
    for (body, message) in cases {
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        let refusal = parameters(NativeRoute::Generate, &value).unwrap_err();
        assert_eq!(
            refusal.message(),
            format!("Input validation error: {message}"),
            "{body}"
        );
        assert_eq!(refusal.status(Dialect::Native), 422);
        assert_eq!(refusal.error_type(), "validation");
    }
}

#[test]
fn where_one_sequence_is_all_there_is_best_of_has_tgis_words() {
    let json = Json::parse(br#"{"inputs":"x","parameters":{"best_of":2,"do_sample":true}}"#);
    let bounds = Bounds {
        choices: 1,
        ..bounds()
    };
    let refusal = read_generate(&json.unwrap(), NativeRoute::Generate, &bounds).unwrap_err();
    assert_eq!(
        refusal.message(),
        "Input validation error: `best_of` != 1 is not allowed for this endpoint"
    );
}

#[test]
fn an_empty_adapter_id_is_the_base_model() {
    let value = serde_json::json!({"adapter_id": ""});
    let request = parameters(NativeRoute::Generate, &value).unwrap();
    assert!(request.ignored.is_empty());
}

#[test]
fn top_k_beyond_32_bits_names_its_type() {
    let value = serde_json::json!({"top_k": 2_147_483_648_u32});
    assert_eq!(
        parameters(NativeRoute::Generate, &value)
            .unwrap_err()
            .message(),
        "Failed to deserialize the JSON body into the target type: parameters.top_k: invalid value: integer \
         `2147483648`, expected i32"
    );
}

#[test]
fn streams_refuse_best_of_and_prompt_details() {
    let cases = [
        (
            serde_json::json!({"best_of": 2, "do_sample": true}),
            "`best_of` != 1 is not supported when streaming tokens",
        ),
        (
            serde_json::json!({"decoder_input_details": true}),
            "`decoder_input_details` == true is not supported when streaming tokens",
        ),
    ];
    for (value, message) in cases {
        let refusal = parameters(NativeRoute::GenerateStream, &value).unwrap_err();
        assert_eq!(
            refusal.message(),
            format!("Input validation error: {message}")
        );
    }
}

#[test]
fn empty_inputs_and_missing_inputs() {
    let refusal = read(NativeRoute::Generate, &serde_json::json!({"inputs": ""})).unwrap_err();
    assert_eq!(
        refusal.message(),
        "Input validation error: `inputs` cannot be empty"
    );
    let refusal = read(NativeRoute::Generate, &serde_json::json!({})).unwrap_err();
    assert_eq!(
        refusal.message(),
        "Failed to deserialize the JSON body into the target type: missing field `inputs`"
    );
}

#[test]
fn the_old_clients_request_of_nulls_is_taken() {
    // What text-generation 0.7.0 sends for `generate("x")`.
    let value = serde_json::json!({
        "best_of": null, "decoder_input_details": false, "details": true, "do_sample": false,
        "frequency_penalty": null, "grammar": null, "max_new_tokens": 20, "repetition_penalty": null,
        "return_full_text": false, "seed": null, "stop": [], "temperature": null, "top_k": null,
        "top_n_tokens": null, "top_p": null, "truncate": null, "typical_p": null, "watermark": false
    });
    let request = parameters(NativeRoute::Compat, &value).unwrap();
    assert!(request.details);
    assert_eq!(request.call.max_new_tokens, Some(20));
    assert!(request.ignored.is_empty());
}

#[test]
fn temperature_0_top_p_1_and_unknown_keys_are_taken() {
    let value = serde_json::json!({"temperature": 0, "top_p": 1.0, "typical_p": 1, "num_beams": 4});
    let request = parameters(NativeRoute::Generate, &value).unwrap();
    assert!(!request.call.sampling.native_do_sample(true));
    assert_eq!(request.ignored.keys(), ["parameters.num_beams"]);
    let request = read(
        NativeRoute::Generate,
        &serde_json::json!({"inputs": "x", "stream": true}),
    )
    .unwrap();
    assert_eq!(request.ignored.keys(), ["stream"], "only `/` knows it");
    assert!(!request.call.stream);
}

#[test]
fn the_schema_names_the_fields_that_are_read() {
    use utoipa::PartialSchema;
    let schema = serde_json::to_value(headrace_api::native::GenerateParameters::schema()).unwrap();
    let mut documented: Vec<String> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    let all: serde_json::Map<String, serde_json::Value> = documented
        .iter()
        .map(|key| (key.clone(), serde_json::Value::Null))
        .collect();
    let request = parameters(NativeRoute::Generate, &serde_json::Value::Object(all)).unwrap();
    assert!(
        request.ignored.is_empty(),
        "documented but not read: {:?}",
        request.ignored
    );
    documented.sort();
    assert_eq!(documented.len(), 26);
}
