//! Vertex AI's predict route: `{"instances": [...]}`, each a prompt with TGI's parameters or a chat request.

use crate::bounds::Bounds;
use crate::call::{Call, Report};
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::native::{NativeRoute, read_generate};
use crate::openai::read_chat;
use crate::refusal::{Cause, Dialect, Refusal};
use crate::request_id;

/// A read request.
#[derive(Clone, Debug, PartialEq)]
pub struct VertexCall {
    /// At least one.
    pub instances: Vec<Instance>,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// One instance: what to run, and how its text is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// One prompt, not streamed.
    pub call: Call,
    /// Whose rules it follows.
    pub dialect: Dialect,
    /// A chat's `model`, as given.
    pub model: Option<String>,
    /// Put before the text, under `return_full_text`.
    pub prefix: Option<String>,
    /// What the client calls it.
    pub id: Option<String>,
}

/// The name of an instance in errors and headers.
pub fn place(index: usize) -> String {
    format!("instances[{index}]")
}

/// Reads and bounds the body. `native` bounds prompts, `openai` chats and the number of instances.
pub fn read_vertex(json: &Json, native: &Bounds, openai: &Bounds) -> Result<VertexCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    let mut ignored = Ignored::default();
    let items = match body.required("instances")? {
        Json::Array(items) => items,
        Json::Ids(ids) => {
            let found = format!("integer `{}`", ids.first().copied().unwrap_or_default());
            return Err(Refusal::wrong_type(&place(0), &found, "a map"));
        }
        other => {
            let found = other.describe();
            return Err(Refusal::wrong_type("instances", &found, "a sequence"));
        }
    };
    body.advisory(&request_id::KEYS)?;
    body.finish(&mut ignored);
    if items.is_empty() {
        // TGI's words, and its type.
        let words = "Input validation error";
        return Err(Refusal::new(Cause::Validation, words)
            .with_error_type(words)
            .with_param("instances"));
    }
    if items.len() > openai.prompts {
        return Err(Refusal::validation(
            "instances",
            format!(
                "`instances` must have at most {} entries. Given: {}",
                openai.prompts,
                items.len()
            ),
        )
        .because(Cause::BatchSize));
    }
    let mut instances = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let place = place(index);
        let (instance, part) =
            read_instance(item, native, openai).map_err(|refusal| refusal.within(&place))?;
        ignored.absorb(&place, &part);
        instances.push(instance);
    }
    Ok(VertexCall { instances, ignored })
}

fn read_instance(
    json: &Json,
    native: &Bounds,
    openai: &Bounds,
) -> Result<(Instance, Ignored), Refusal> {
    let mut keys = Fields::of(json, "")?;
    let has_inputs = keys.get("inputs")?.is_some();
    let has_messages = keys.get("messages")?.is_some();
    if has_inputs == has_messages {
        return Err(Refusal::shape(
            "inputs",
            "exactly one of `inputs` and `messages` must be given",
        ));
    }
    let (instance, ignored) = if has_inputs {
        let request = read_generate(json, NativeRoute::Generate, native)?;
        let full = request.return_full_text.unwrap_or(false);
        let instance = Instance {
            prefix: full.then_some(request.inputs),
            call: request.call,
            dialect: Dialect::Native,
            model: None,
            id: request_id::in_native_body(json)?,
        };
        (instance, request.ignored)
    } else {
        let request = read_chat(json, openai)?;
        if request.call.stream {
            return Err(Refusal::unsupported("stream", "streaming here"));
        }
        if request.call.choices > 1 {
            return Err(Refusal::unsupported("n", "more than one choice here"));
        }
        let instance = Instance {
            call: request.call,
            dialect: Dialect::OpenAi,
            model: request.model,
            prefix: None,
            id: request_id::in_body(json)?,
        };
        (instance, request.ignored)
    };
    Ok((only_text(instance), ignored))
}

/// A prediction is a text: what else was asked to be shown needs not be computed.
fn only_text(mut instance: Instance) -> Instance {
    instance.call.report = Report {
        logprobs: instance.call.best_of > 1,
        ..Report::default()
    };
    instance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Flags;
    use serde_json::{Value, json};

    fn read(body: &Value) -> Result<VertexCall, Refusal> {
        let flags = Flags::default();
        let json = Json::parse(body.to_string().as_bytes())?;
        let native = Bounds::of(Dialect::Native, flags);
        read_vertex(&json, &native, &Bounds::of(Dialect::OpenAi, flags))
    }

    #[test]
    fn every_parameter_of_an_instance_counts() {
        let call = read(&json!({"instances": [
            {"inputs": "a", "parameters": {"temperature": 0.5, "top_k": 3, "stop": ["x"], "max_new_tokens": 7,
                "return_full_text": true, "details": true, "decoder_input_details": true, "num_beams": 1}},
            {"messages": [{"role": "user", "content": "b"}], "max_tokens": 9, "temperature": 0, "odd": 1},
        ], "parameters": {}}))
        .unwrap();
        let [generate, chat] = &call.instances[..] else {
            panic!("{call:?}")
        };
        assert_eq!(generate.call.sampling.temperature, Some(0.5));
        assert_eq!(generate.call.sampling.top_k, Some(3));
        assert_eq!(generate.call.stops, ["x"]);
        assert_eq!(generate.call.max_new_tokens, Some(7));
        assert_eq!(generate.prefix.as_deref(), Some("a"));
        assert_eq!(generate.call.report, Report::default(), "nobody sees more");
        assert_eq!(chat.call.max_new_tokens, Some(9));
        assert_eq!(
            (chat.dialect, chat.prefix.as_ref()),
            (Dialect::OpenAi, None)
        );
        assert_eq!(
            call.ignored.keys(),
            [
                "parameters",
                "instances[0].parameters.num_beams",
                "instances[1].odd"
            ]
        );
    }

    #[test]
    fn a_request_and_each_of_its_instances_may_have_a_name() {
        let chat = json!([{"role": "user", "content": "b"}]);
        let call = read(&json!({"request_id": "all", "instances": [
            {"inputs": "a", "request_id": "x"},
            {"inputs": "a", "parameters": {"rid": "y"}},
            {"messages": chat, "rid": "z"},
            {"inputs": "a"},
        ]}))
        .unwrap();
        let ids: Vec<_> = call
            .instances
            .iter()
            .map(|part| part.id.as_deref())
            .collect();
        assert_eq!(ids, [Some("x"), Some("y"), Some("z"), None]);
        assert!(call.ignored.is_empty(), "{:?}", call.ignored);
        let bad = json!({"instances": [{"inputs": "a", "rid": "two words"}]});
        let message = read(&bad).unwrap_err().message().to_owned();
        assert!(message.contains("`rid` must have 1 to 128"), "{message}");
        assert!(message.ends_with("(instances[0])"), "{message}");
    }

    #[test]
    fn no_instances_have_tgis_words_and_type() {
        let refusal = read(&json!({"instances": []})).unwrap_err();
        assert_eq!(
            refusal.body(Dialect::Native),
            r#"{"error":"Input validation error","error_type":"Input validation error"}"#
        );
        assert_eq!(refusal.status(Dialect::Native), 422);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_instance() {
        let body = "Failed to deserialize the JSON body into the target type:";
        let good = json!({"inputs": "a"});
        let chat = |more: Value| {
            let mut chat = json!({"messages": [{"role": "user", "content": "b"}]});
            chat.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            chat
        };
        for (instances, message) in [
            (
                json!([good, {"inputs": "a", "parameters": {"temperature": -1}}]),
                "Input validation error: `temperature` must be strictly positive (instances[1])".to_owned(),
            ),
            (
                json!([good, good, {"inputs": ""}]),
                "Input validation error: `inputs` cannot be empty (instances[2])".to_owned(),
            ),
            (
                json!([{"inputs": 1}]),
                format!("{body} inputs: invalid type: integer `1`, expected a string (instances[0])"),
            ),
            (
                json!([{"x": 1}]),
                format!("{body} exactly one of `inputs` and `messages` must be given (instances[0])"),
            ),
            (
                json!([{"inputs": "a", "messages": []}]),
                format!("{body} exactly one of `inputs` and `messages` must be given (instances[0])"),
            ),
            (
                json!(["a"]),
                format!("{body} body: invalid type: string \"a\", expected a map (instances[0])"),
            ),
            (
                json!([7]),
                format!("{body} instances[0]: invalid type: integer `7`, expected a map"),
            ),
            (
                json!("a"),
                format!("{body} instances: invalid type: string \"a\", expected a sequence"),
            ),
            (
                json!([chat(json!({"stream": true}))]),
                "Input validation error: `stream`: streaming here is not supported (instances[0])".to_owned(),
            ),
            (
                json!([chat(json!({"n": 2}))]),
                "Input validation error: `n`: more than one choice here is not supported (instances[0])".to_owned(),
            ),
            (
                Value::Array(vec![good.clone(); 65]),
                "Input validation error: `instances` must have at most 64 entries. Given: 65".to_owned(),
            ),
        ] {
            let refusal = read(&json!({"instances": instances})).unwrap_err();
            assert_eq!(refusal.message(), message);
            assert_eq!(refusal.status(Dialect::Native), 422, "{message}");
        }
        assert_eq!(
            read(&json!({})).unwrap_err().message(),
            format!("{body} missing field `instances`")
        );
    }
}
