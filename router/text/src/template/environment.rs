//! minijinja, set up to run templates as `transformers` does.
//!
//! Bounded: the depth of its text (`depth`), instructions, recursion, and what is read, built and written (`budget`).
#![expect(
    clippy::needless_pass_by_value,
    reason = "the shape that the engine calls functions with"
)]

use super::budget::{Limits, TEXT_LIMIT, TooMuch};
use super::json::{JsonSettings, json};
use super::program::Program;
use super::{Inputs, budget, filters, metered, methods, python, sequences};
use crate::error::TemplateError;
use minijinja::value::{Kwargs, Rest, Value as JinjaValue, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of an error's text.
const ERROR_LIMIT: usize = 2000;
/// Bytes of a date's format.
const DATE_FORMAT_LIMIT: usize = 256;
/// What one of its letters counts as reading.
const DATE_BYTES: usize = 64;
/// Macros and includes within each other.
const RECURSION_LIMIT: usize = 100;

/// One compiled template.
#[derive(Debug)]
pub(super) struct Engine {
    environment: Environment<'static>,
    program: Program,
}

/// What the template said to `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Engine {
    pub(super) fn new(text: &str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_recursion_limit(RECURSION_LIMIT);
        environment.set_unknown_method_callback(methods::call);
        environment.set_formatter(format);
        environment.add_filter("tojson", to_json);
        filters::add_to(&mut environment);
        // As in Python, where None does not iterate (templates ask `tools is iterable`).
        environment.add_test("iterable", |value: &JinjaValue| {
            matches!(
                value.kind(),
                ValueKind::String
                    | ValueKind::Seq
                    | ValueKind::Iterable
                    | ValueKind::Map
                    | ValueKind::Undefined
            )
        });
        // What has a length and an order, to Python texts and objects, too.
        environment.add_test("sequence", |value: &JinjaValue| {
            matches!(
                value.kind(),
                ValueKind::String | ValueKind::Seq | ValueKind::Map
            )
        });
        environment.add_test("number", |value: &JinjaValue| {
            matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
        });
        metered::add_tests(&mut environment);
        // It prints everything that there is.
        environment.remove_global("debug");
        environment.set_debug(false);
        environment.add_function("range", sequences::range);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_function("namespace", namespace);
        environment.add_function("dict", dict);
        environment.add_function("joiner", minijinja_contrib::globals::joiner);
        let program =
            Program::compile(&without_generation_blocks(text)).map_err(TemplateError::Compile)?;
        Ok(Self {
            environment,
            program,
        })
    }

    /// Levels of its text.
    pub(super) fn depth(&self) -> usize {
        self.program.depth
    }

    /// Renders once, within `limits`, and takes its time from them.
    pub(super) fn render(
        &self,
        named_tokens: &BTreeMap<String, String>,
        inputs: &Inputs,
        add_generation_prompt: bool,
        limits: &mut Limits,
    ) -> Result<String, TemplateError> {
        let mut variables: BTreeMap<&str, JinjaValue> = BTreeMap::new();
        for (name, text) in named_tokens {
            variables.insert(name, JinjaValue::from(text.as_str()));
        }
        for (name, value) in inputs.variables.as_object().into_iter().flatten() {
            variables.insert(name, JinjaValue::from_serialize(value));
        }
        for (name, value) in [
            ("messages", &inputs.messages),
            ("tools", &inputs.tools),
            ("documents", &inputs.documents),
        ] {
            variables.insert(name, JinjaValue::from_serialize(value));
        }
        variables.insert(
            "add_generation_prompt",
            JinjaValue::from(add_generation_prompt),
        );
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(limits.fuel));
        let variables = variables.into_iter().collect();
        // A fault of the engine is one request's, and its template's.
        let text = catch_unwind(AssertUnwindSafe(|| {
            budget::within(limits, || self.program.run(&environment, variables))
        }))
        .map_err(|_| TemplateError::Render("the template engine gave up on it".into()))?
        .map_err(|error| render_error(&error))?;
        if text.len() > TEXT_LIMIT {
            return Err(TemplateError::TooLong { limit: TEXT_LIMIT });
        }
        Ok(text)
    }
}

fn render_error(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return TemplateError::Raised(python::one_line(shortened(&raised.0)));
        }
        if let Some(much) = current.downcast_ref::<TooMuch>() {
            return TemplateError::TooLong { limit: much.limit };
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

/// The beginning of a text that goes into an error.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_LIMIT)]
}

pub(super) fn one_line(error: &Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    let detail = python::one_line(shortened(&detail));
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

/// Prints lists and objects as Python does; everything else already looks the same.
fn format(out: &mut Output<'_>, state: &State<'_, '_>, value: &JinjaValue) -> Result<(), Error> {
    let escapes = !value.is_safe() && !matches!(state.auto_escape(), AutoEscape::None);
    let mut write = |text: &str| {
        budget::charge(text.len())?;
        out.write_str(text).map_err(Error::from)
    };
    match value.as_str() {
        Some(text) if !escapes => write(text),
        _ if value.is_undefined() => Ok(()),
        _ => {
            let text = python::text(value)?;
            write(&if escapes {
                python::escape(&text)?
            } else {
                text
            })
        }
    }
}

/// As the engine's, holding no namespace.
fn namespace(values: Option<JinjaValue>, named: Kwargs) -> Result<JinjaValue, Error> {
    let all = members(values, &named)?;
    budget::weigh_nested(&all)?;
    minijinja::functions::namespace(Some(all))
}

/// As the engine's, weighed.
fn dict(values: Option<JinjaValue>, named: Kwargs) -> Result<JinjaValue, Error> {
    let all = members(values, &named)?;
    budget::weigh_nested(&all)?;
    Ok(all)
}

/// An object's members and the named ones.
fn members(values: Option<JinjaValue>, named: &Kwargs) -> Result<JinjaValue, Error> {
    let mut all: Vec<(JinjaValue, JinjaValue)> = Vec::new();
    if let Some(values) = values.filter(|values| !values.is_undefined()) {
        budget::read(&values)?;
        if values.kind() != ValueKind::Map {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("expected an object, got {}", values.kind()),
            ));
        }
        for key in values.try_iter()? {
            let value = values.get_item(&key)?;
            all.push((key, value));
        }
    }
    for name in named.args() {
        all.push((JinjaValue::from(name), named.get(name)?));
    }
    for (_, value) in &all {
        budget::refuse_changeable(value)?;
    }
    Ok(all.into_iter().collect())
}

/// `json.dumps` with its arguments in `transformers`' order.
fn to_json(value: &JinjaValue, args: Rest<JinjaValue>) -> Result<String, Error> {
    let (args, options) = filters::by_place_and_name(&args)?;
    let mut places = args.iter().cloned();
    let mut argument = |name: &'static str| -> Result<Option<JinjaValue>, Error> {
        let value = match places.next() {
            Some(value) => Some(value),
            None => options.get::<Option<JinjaValue>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument("ensure_ascii")?;
    let indent = argument("indent")?;
    let separators = argument("separators")?;
    let sort_keys = argument("sort_keys")?;
    options.assert_all_used()?;
    let settings = JsonSettings {
        ensure_ascii: ensure_ascii.is_some_and(|value| value.is_true()),
        sort_keys: sort_keys.is_some_and(|value| value.is_true()),
        indent: indent.map(|indent| match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent).unwrap_or(0).min(64)),
        }),
        separators: match separators {
            None => None,
            Some(separators) => match separators
                .try_iter()?
                .map(|part| part.to_string())
                .collect::<Vec<_>>()
                .as_slice()
            {
                [item, key] => Some((item.clone(), key.clone())),
                _ => {
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        "separators must be two texts",
                    ));
                }
            },
        },
    };
    let text = json(value, &settings)?;
    budget::charge(text.len())?;
    Ok(text)
}

fn raise_exception(message: &JinjaValue) -> Result<JinjaValue, Error> {
    let message = python::text(message)?;
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    // A letter of it may be a name of the time zone's rules.
    budget::read_bytes(DATE_BYTES * (1 + format.len()))?;
    if format.len() > DATE_FORMAT_LIMIT {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now: a format of more than {DATE_FORMAT_LIMIT} bytes"),
        ));
    }
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
