//! Finds out at load what a template wants, by rendering small conversations with words that stand nowhere else.

use super::Inputs;
use super::adapt::{Shape, ToolCallIds};
use super::budget::Limits;
use super::environment::Engine;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const USER: &str = "probe-of-user-text";
const SYSTEM: &str = "probe-of-system-text";
const FUNCTION: &str = "probe_of_function";
const KEY: &str = "probe_of_key";
const ARGUMENT: &str = "probe_of_argument";
const RESULT: &str = "probe-of-result";
const TOOL: &str = "probe_of_tool";
const CALL_ID: &str = "call_probe_of_id_0001";
const NINE: &str = "pr0be0Id9";

struct Prober<'a> {
    engine: &'a Engine,
    named_tokens: &'a BTreeMap<String, String>,
    wants_parts: bool,
}

pub(super) fn shape(engine: &Engine, named_tokens: &BTreeMap<String, String>) -> Shape {
    let mut prober = Prober {
        engine,
        named_tokens,
        wants_parts: false,
    };
    prober.wants_parts = prober.wants_parts();
    let wants_argument_text = prober.wants_argument_text();
    Shape {
        wants_parts: prober.wants_parts,
        takes_null: prober.takes_null(),
        wants_argument_text,
        knows_developer: prober.shows(
            &[
                prober.message("developer", SYSTEM),
                prober.message("user", USER),
            ],
            SYSTEM,
        ),
        knows_function: prober.knows_function(wants_argument_text),
        shows_tools: prober.shows_tools(),
        ids: prober.ids(wants_argument_text),
    }
}

impl Prober<'_> {
    fn render(&self, messages: &[Value], tools: Option<&Value>) -> Option<String> {
        let inputs = Inputs {
            messages: messages.to_vec().into(),
            tools: tools.cloned().unwrap_or_default(),
            documents: Value::Null,
            variables: Value::Null,
        };
        let mut limits = Limits::PROBE;
        self.engine
            .render(self.named_tokens, &inputs, true, &mut limits)
            .ok()
    }

    fn shows(&self, messages: &[Value], text: &str) -> bool {
        self.render(messages, None)
            .is_some_and(|rendered| rendered.contains(text))
    }

    fn message(&self, role: &str, text: &str) -> Value {
        if self.wants_parts {
            json!({"role": role, "content": [{"type": "text", "text": text}]})
        } else {
            json!({"role": role, "content": text})
        }
    }

    /// A user, an assistant who calls, and on demand the result.
    fn call(&self, content: Value, id: &str, arguments: &Value, with_result: bool) -> Vec<Value> {
        let mut assistant = json!({
            "role": "assistant",
            "tool_calls": [{
                "id": id,
                "type": "function",
                "function": {"name": FUNCTION, "arguments": arguments},
            }],
        });
        assistant["content"] = content;
        let mut messages = vec![self.message("user", USER), assistant];
        if with_result {
            let mut result = self.message("tool", RESULT);
            result["tool_call_id"] = id.into();
            result["name"] = FUNCTION.into();
            messages.push(result);
        }
        messages
    }

    /// Results in the role `function`, as the older API sent them.
    fn knows_function(&self, wants_argument_text: bool) -> bool {
        let arguments = if wants_argument_text {
            json!("{}")
        } else {
            json!({})
        };
        let mut messages = self.call(self.empty(), NINE, &arguments, true);
        if let Some(result) = messages.last_mut() {
            result["role"] = "function".into();
        }
        self.shows(&messages, RESULT)
    }

    fn empty(&self) -> Value {
        if self.wants_parts {
            json!([{"type": "text", "text": ""}])
        } else {
            json!("")
        }
    }

    fn wants_parts(&self) -> bool {
        let text = json!([{"role": "user", "content": USER}]);
        let parts = json!([{"role": "user", "content": [{"type": "text", "text": USER}]}]);
        let shows = |messages: &Value| {
            messages
                .as_array()
                .is_some_and(|messages| self.shows(messages, USER))
        };
        let is_list = |messages: &Value| {
            let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
            self.render(messages, None)
                .is_some_and(|text| text.contains("'type'") || text.contains("\"type\""))
        };
        !shows(&text) && shows(&parts) && !is_list(&parts)
    }

    /// Null must not fail and must not be printed.
    fn takes_null(&self) -> bool {
        let arguments = json!({KEY: ARGUMENT});
        let rendered = self.render(&self.call(Value::Null, NINE, &arguments, false), None);
        let plain = self.render(
            &[
                self.message("user", USER),
                json!({"role": "assistant", "content": null}),
            ],
            None,
        );
        let prints = |text: &str| text.contains("None") || text.contains("null");
        rendered.is_some_and(|text| !prints(&text)) && plain.is_none_or(|text| !prints(&text))
    }

    /// Objects are the rule; a text is wanted where an object fails, is lost, or is printed as Python would.
    fn wants_argument_text(&self) -> bool {
        let object = json!({KEY: ARGUMENT});
        let text = Value::String(format!("{{\"{KEY}\": \"{ARGUMENT}\"}}"));
        let render =
            |arguments: Value| self.render(&self.call(self.empty(), NINE, &arguments, false), None);
        let shows = |rendered: &str| rendered.contains(KEY) && rendered.contains(ARGUMENT);
        let from_text = render(text).filter(|rendered| shows(rendered));
        match render(object).filter(|rendered| shows(rendered)) {
            None => from_text.is_some(),
            Some(from_object) => {
                let is_python = from_object.contains(&format!("'{KEY}'"));
                is_python
                    && from_text.is_some_and(|rendered| rendered.contains(&format!("\"{KEY}\"")))
            }
        }
    }

    fn shows_tools(&self) -> bool {
        let tools = json!([{
            "type": "function",
            "function": {
                "name": TOOL,
                "description": "probe",
                "parameters": {"type": "object", "properties": {}, "required": []},
            },
        }]);
        self.render(&[self.message("user", USER)], Some(&tools))
            .is_some_and(|rendered| rendered.contains(TOOL))
    }

    fn ids(&self, wants_argument_text: bool) -> ToolCallIds {
        let arguments = if wants_argument_text {
            json!("{}")
        } else {
            json!({})
        };
        let render = |id: &str, with_result: bool| {
            self.render(&self.call(self.empty(), id, &arguments, with_result), None)
        };
        match render(CALL_ID, false) {
            Some(text) if text.contains(CALL_ID) && !text.contains(FUNCTION) => {
                ToolCallIds::FunctionIndex
            }
            Some(text) if text.contains(&format!("functions.{FUNCTION}:")) => {
                ToolCallIds::FunctionIndex
            }
            first => {
                let fails = first.is_none() || render(CALL_ID, true).is_none();
                let nine_works = render(NINE, false).is_some() && render(NINE, true).is_some();
                if fails && nine_works {
                    ToolCallIds::NineAlphanumerics
                } else {
                    ToolCallIds::Call
                }
            }
        }
    }
}
