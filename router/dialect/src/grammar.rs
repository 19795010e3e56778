//! TGI's grammars: `{"type": …, "value": …}`.

use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::{NO_JSON, Refusal};
use headrace_text::OneLine;
use serde_json::Value;

/// What binds the output, as it was asked for; not checked yet.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// JSON that is valid by a schema.
    Json {
        /// The schema.
        schema: Value,
        /// Regex of the white space between tokens of JSON.
        whitespace_pattern: Option<String>,
    },
    /// Text that a regex matches whole.
    Regex(String),
}

/// A grammar, and where it stood: a refusal names the place.
#[derive(Clone, Debug, PartialEq)]
pub struct GrammarField {
    /// What was asked for.
    pub grammar: Grammar,
    /// Of the grammar in the body.
    pub path: String,
    /// Of the schema or the regex itself.
    pub value_path: String,
}

/// The types that TGI knows.
const TYPES: &str = "one of `json`, `json_object`, `json_schema`, `regex`";

impl Grammar {
    /// Reads the grammar at `path`. `param` is the field that errors name.
    pub(crate) fn read(
        json: &Json,
        path: &str,
        param: &str,
        ignored: &mut Ignored,
    ) -> Result<GrammarField, Refusal> {
        let mut fields = Fields::of(json, path)?;
        let kind = match fields.required("type")? {
            Json::String(kind) => kind.as_str(),
            other => {
                let path = fields.path_of("type");
                return Err(Refusal::wrong_type(&path, &other.describe(), TYPES));
            }
        };
        let mut value_path = fields.path_of("value");
        let grammar = match kind {
            "regex" => match fields.required("value")? {
                Json::String(regex) => Self::Regex(regex.clone()),
                other => {
                    let found = other.describe();
                    return Err(Refusal::wrong_type(&value_path, &found, "a string"));
                }
            },
            "json" => {
                let schema = schema_of(fields.required("value")?, &value_path, param)?;
                Self::json(schema, &mut fields)?
            }
            "json_object" => {
                let schema = match fields.get("value")? {
                    Some(value) => schema_of(value, &value_path, param)?,
                    None => Value::Null,
                };
                let says_nothing = schema.as_object().is_none_or(serde_json::Map::is_empty);
                Self::json(
                    if says_nothing { any_object() } else { schema },
                    &mut fields,
                )?
            }
            "json_schema" => {
                let mut named = Fields::of(fields.required("value")?, &value_path)?;
                // A name of the schema says nothing about the text.
                named.advisory(&["name"])?;
                let schema_path = named.path_of("schema");
                let schema = schema_of(named.required("schema")?, &schema_path, param)?;
                named.finish(ignored);
                value_path = schema_path;
                Self::json(schema, &mut fields)?
            }
            other => {
                let path = fields.path_of("type");
                let problem = format!(
                    "{path}: unknown variant `{:.32}`, expected {TYPES}",
                    OneLine(other)
                );
                return Err(Refusal::shape(&path, &problem));
            }
        };
        fields.finish(ignored);
        Ok(GrammarField {
            grammar,
            path: path.to_owned(),
            value_path,
        })
    }

    fn json(schema: Value, fields: &mut Fields<'_>) -> Result<Self, Refusal> {
        let whitespace_pattern = fields.string("whitespace_pattern")?.map(str::to_owned);
        Ok(Self::Json {
            schema,
            whitespace_pattern,
        })
    }

    /// Bytes that it keeps while it waits to be compiled, roughly.
    pub fn weight(&self) -> usize {
        match self {
            Self::Regex(regex) => regex.len(),
            Self::Json { schema, .. } => weight(schema),
        }
    }
}

fn weight(value: &Value) -> usize {
    const EACH: usize = 16;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(map) => map.iter().map(|(key, item)| key.len() + weight(item)).sum(),
        _ => 0,
    }
}

/// What the name `json_object` says by itself.
fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

/// A schema: an object, or a string that holds one.
fn schema_of(json: &Json, path: &str, param: &str) -> Result<Value, Refusal> {
    let wrong = |found: &str| Refusal::wrong_type(path, found, "a JSON schema (an object)");
    let inner;
    let json = match json {
        Json::String(text) => {
            inner = Json::parse(text.as_bytes()).map_err(|error| {
                let words = error.message();
                let reason = words.strip_prefix(NO_JSON).unwrap_or(words);
                Refusal::validation(
                    param,
                    format!("grammar is not valid: `{path}` is no JSON: {reason}"),
                )
            })?;
            &inner
        }
        other => other,
    };
    match json {
        Json::Object(_) => Ok(json.to_value()),
        other => Err(wrong(&other.describe())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(grammar: &Value) -> Result<(Grammar, Vec<String>), String> {
        let json = Json::parse(grammar.to_string().as_bytes()).unwrap();
        let mut ignored = Ignored::default();
        Grammar::read(&json, "parameters.grammar", "grammar", &mut ignored)
            .map(|field| (field.grammar, ignored.keys().to_vec()))
            .map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn every_form_of_tgi_is_read() {
        let schema = json!({"properties": {"b": {}, "a": {"enum": [1, 2]}}});
        let expected = Grammar::Json {
            schema: schema.clone(),
            whitespace_pattern: None,
        };
        for grammar in [
            json!({"type": "json", "value": schema}),
            json!({"type": "json_object", "value": schema}),
            json!({"type": "json", "value": schema.to_string()}),
            json!({"type": "json_schema", "value": {"name": "x", "schema": schema}}),
            json!({"type": "json_schema", "value": {"schema": schema.to_string()}}),
        ] {
            assert_eq!(
                read(&grammar).unwrap(),
                (expected.clone(), vec![]),
                "{grammar}"
            );
        }
        let (grammar, _) = read(&json!({"type": "regex", "value": "a+"})).unwrap();
        assert_eq!(grammar, Grammar::Regex("a+".to_owned()));
        let spaced = json!({"type": "json", "value": {}, "whitespace_pattern": "[ ]*"});
        assert!(matches!(
            read(&spaced).unwrap().0,
            Grammar::Json { whitespace_pattern: Some(pattern), .. } if pattern == "[ ]*"
        ));
    }

    /// Bug case 5.1: tgi#3058, tgi#2523.
    #[test]
    fn json_object_alone_or_with_an_empty_schema_is_any_object() {
        let object = Grammar::Json {
            schema: json!({"type": "object"}),
            whitespace_pattern: None,
        };
        for grammar in [
            json!({"type": "json_object"}),
            json!({"type": "json_object", "value": null}),
            json!({"type": "json_object", "value": {}}),
            json!({"type": "json_object", "value": "{}"}),
        ] {
            let read = read(&grammar).unwrap();
            assert_eq!(read, (object.clone(), vec![]), "{grammar}");
        }
        let (any, _) = read(&json!({"type": "json", "value": {}})).unwrap();
        assert_ne!(any, object, "any JSON passes");
        assert!(read(&json!({"type": "json_object", "value": [1]})).is_err());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_path() {
        let body = "Failed to deserialize the JSON body into the target type: ";
        let types = "one of `json`, `json_object`, `json_schema`, `regex`";
        for (grammar, message) in [
            (
                json!("a"),
                format!("{body}parameters.grammar: invalid type: string \"a\", expected a map"),
            ),
            (
                json!({"value": {}}),
                format!("{body}missing field `parameters.grammar.type`"),
            ),
            (
                json!({"type": 1, "value": {}}),
                format!(
                    "{body}parameters.grammar.type: invalid type: integer `1`, expected {types}"
                ),
            ),
            (
                json!({"type": "xml", "value": {}}),
                format!("{body}parameters.grammar.type: unknown variant `xml`, expected {types}"),
            ),
            (
                json!({"type": "regex"}),
                format!("{body}missing field `parameters.grammar.value`"),
            ),
            (
                json!({"type": "regex", "value": {}}),
                format!("{body}parameters.grammar.value: invalid type: map, expected a string"),
            ),
            (
                json!({"type": "json", "value": null}),
                format!("{body}missing field `parameters.grammar.value`"),
            ),
            (
                json!({"type": "json", "value": [1]}),
                format!(
                    "{body}parameters.grammar.value: invalid type: sequence, expected a JSON schema (an object)"
                ),
            ),
            (
                json!({"type": "json", "value": "7"}),
                format!(
                    "{body}parameters.grammar.value: invalid type: integer `7`, expected a JSON schema (an object)"
                ),
            ),
            (
                json!({"type": "json_schema", "value": {"name": "x"}}),
                format!("{body}missing field `parameters.grammar.value.schema`"),
            ),
            (
                json!({"type": "json", "value": {}, "whitespace_pattern": 1}),
                format!(
                    "{body}parameters.grammar.whitespace_pattern: invalid type: integer `1`, expected a string"
                ),
            ),
        ] {
            assert_eq!(read(&grammar).unwrap_err(), message, "{grammar}");
        }
        let error = read(&json!({"type": "json", "value": "{"})).unwrap_err();
        assert!(
            error.starts_with("Input validation error: grammar is not valid: `parameters.grammar.value` is no JSON: EOF"),
            "{error}"
        );
        let error = read(&json!({"type": "json", "value": r#"{"minimum": 1e999}"#})).unwrap_err();
        assert!(
            error.contains("`parameters.grammar.value` is no JSON: minimum: number out of range"),
            "{error}"
        );
        let unknown =
            json!({"type": "json_schema", "value": {"schema": {}, "strict": true}, "x": 1});
        assert_eq!(
            read(&unknown).unwrap().1,
            ["parameters.grammar.value.strict", "parameters.grammar.x"]
        );
    }
}
