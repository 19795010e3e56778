//! minijinja, set up to run templates as `transformers` does.
//!
//! Bounded: instructions, recursion, bytes written, repeated texts and ranges (the last two by minijinja). Not
//! bounded: a text that a template doubles in a variable; templates come from the model's folder, never from a
//! request.

use super::{Inputs, python};
use crate::error::TemplateError;
use minijinja::value::{Kwargs, Value as JinjaValue, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Instructions for any conversation, and for each message on top: a quarter of a second and a fraction of a
/// millisecond. Templates that compare every message with every other need the second.
const BASE_FUEL: u64 = 5_000_000;
const FUEL_PER_MESSAGE: u64 = 50_000;
/// Macros and includes within each other.
const RECURSION_LIMIT: usize = 100;
/// Bytes that a prompt may have.
const OUTPUT_LIMIT: usize = 32 << 20;
const NAME: &str = "chat_template";

/// One compiled template.
#[derive(Debug)]
pub(super) struct Engine {
    environment: Environment<'static>,
}

/// What the template said to `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Engine {
    pub(super) fn new(text: &str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_recursion_limit(RECURSION_LIMIT);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(format);
        environment.add_filter("tojson", to_json);
        environment.add_filter("indent", python::indent);
        // As in Python, where None does not iterate (templates ask `tools is iterable`).
        environment.add_test("iterable", |value: &JinjaValue| {
            !value.is_none() && value.try_iter().is_ok()
        });
        environment.add_filter("string", |value: JinjaValue| python::text(&value));
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, without_generation_blocks(text))
            .map_err(|error| TemplateError::Compile(one_line(&error)))?;
        Ok(Self { environment })
    }

    /// Renders once. Fuel and bounds are fresh for each call.
    pub(super) fn render(
        &self,
        named_tokens: &BTreeMap<String, String>,
        inputs: &Inputs,
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        let mut context: BTreeMap<&str, JinjaValue> = BTreeMap::new();
        for (name, text) in named_tokens {
            context.insert(name, JinjaValue::from(text.as_str()));
        }
        for (name, value) in inputs.variables.as_object().into_iter().flatten() {
            context.insert(name, JinjaValue::from_serialize(value));
        }
        for (name, value) in [
            ("messages", &inputs.messages),
            ("tools", &inputs.tools),
            ("documents", &inputs.documents),
        ] {
            context.insert(name, JinjaValue::from_serialize(value));
        }
        context.insert(
            "add_generation_prompt",
            JinjaValue::from(add_generation_prompt),
        );
        let num_messages = inputs.messages.as_array().map_or(0, Vec::len);
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(
            BASE_FUEL + FUEL_PER_MESSAGE.saturating_mul(num_messages as u64),
        ));
        let mut out = Bounded {
            bytes: Vec::new(),
            is_full: false,
        };
        let result = environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut out).map(drop));
        if out.is_full {
            return Err(TemplateError::TooLong {
                limit: OUTPUT_LIMIT,
            });
        }
        result.map_err(|error| render_error(&error))?;
        String::from_utf8(out.bytes).map_err(|error| TemplateError::Render(error.to_string()))
    }
}

fn render_error(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return TemplateError::Raised(python::one_line(&raised.0));
        }
        if let Some(inner) = current.downcast_ref::<Error>()
            && inner.kind() == ErrorKind::OutOfFuel
        {
            return TemplateError::OutOfFuel;
        }
        cause = current.source();
    }
    TemplateError::Render(one_line(error))
}

fn one_line(error: &Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    let detail = python::one_line(&detail);
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

/// Collects output up to [`OUTPUT_LIMIT`].
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_LIMIT {
            self.is_full = true;
            return Err(io::Error::other("too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints lists and objects as Python does; everything else already looks the same.
fn format(out: &mut Output<'_>, state: &State<'_, '_>, value: &JinjaValue) -> Result<(), Error> {
    if matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
    ) {
        out.write_str(&python::text(value)).map_err(Error::from)
    } else {
        minijinja::escape_formatter(out, state, value)
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that minijinja calls filters with"
)]
fn to_json(value: &JinjaValue, options: Kwargs) -> Result<String, Error> {
    let settings = python::JsonSettings {
        ensure_ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent: match options.get::<Option<JinjaValue>>("indent")? {
            None => None,
            Some(indent) if indent.is_none() => None,
            Some(indent) => Some(match indent.as_str() {
                Some(text) => text.to_owned(),
                None => " ".repeat(usize::try_from(indent).unwrap_or(0).min(64)),
            }),
        },
        separators: match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
            Some([item, key]) => Some((item.clone(), key.clone())),
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "separators must be two texts",
                ));
            }
            None => None,
        },
    };
    options.assert_all_used()?;
    python::json(value, &settings)
}

fn raise_exception(message: &JinjaValue) -> Result<JinjaValue, Error> {
    let message = python::text(message);
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &jiff::Zoned::now()).map_err(|error| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now({format:?}): {error}"),
        )
    })
}

/// `{% generation %}` marks what an assistant said, for training; here it is a block that always shows.
fn without_generation_blocks(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{%") {
        // Behind the opening: `{%}` is no whole tag.
        let Some(length) = rest[start + 2..].find("%}").map(|length| length + 2) else {
            break;
        };
        let inside = &rest[start + 2..start + length];
        let word = inside.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..start + 2]);
        match word {
            "generation" => out.push_str(&inside.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&inside.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(inside),
        }
        out.push_str("%}");
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}
