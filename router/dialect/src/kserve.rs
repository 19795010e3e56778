//! `KServe`'s infer request, version 2, in TGI's form (the bytes of a prompt as numbers) and the protocol's own (strings).

use crate::bounds::Bounds;
use crate::call::{Call, Report};
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::native::read_prompts;
use crate::openai::check_model;
use crate::refusal::{Cause, Refusal};
use crate::request_id;
use headrace_api::kserve::{OutputTensor, TensorData};
use headrace_text::OneLine;

/// Characters of an `id` and of a tensor's name.
const MOST_NAME_CHARACTERS: usize = 1024;

/// Dimensions of a `shape`.
const MOST_DIMENSIONS: usize = 16;

/// A read request.
#[derive(Clone, Debug, PartialEq)]
pub struct InferCall {
    /// All prompts, in the order of the tensors.
    pub call: Call,
    /// As given.
    pub id: Option<String>,
    /// What is answered, a tensor an input.
    pub tensors: Vec<AnswerTensor>,
    /// The prompts, if they stand before their texts (`return_full_text`).
    pub prefixes: Option<Vec<String>>,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// How an input is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerTensor {
    /// Its name.
    pub name: String,
    /// Texts as strings; else the bytes of one.
    pub as_strings: bool,
    /// Prompts of the input.
    pub prompts: usize,
}

/// Reads and bounds the body. `native` bounds the parameters, `openai` the number of prompts.
pub fn read_infer(json: &Json, native: &Bounds, openai: &Bounds) -> Result<InferCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    let mut ignored = Ignored::default();
    let id = body.string("id")?.map(str::to_owned);
    if let Some(id) = &id {
        check_name("id", id)?;
    }
    let inputs = tensors(body.required("inputs")?, "inputs")?;
    let mut prompts = Vec::new();
    let mut read = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.iter().enumerate() {
        let before = prompts.len();
        let place = format!("inputs[{index}]");
        let (name, as_strings) = read_input(input, &place, &mut prompts, &mut ignored)?;
        read.push(AnswerTensor {
            name,
            as_strings,
            prompts: prompts.len() - before,
        });
        if prompts.len() > openai.prompts {
            return Err(Refusal::validation(
                "inputs",
                format!("`inputs` must have at most {} prompts", openai.prompts),
            )
            .because(Cause::BatchSize));
        }
    }
    if let Some(outputs) = body.get("outputs")? {
        let names = read_outputs(outputs, &mut ignored)?;
        if names.len() != read.len() {
            return Err(length_mismatch());
        }
        for (tensor, name) in read.iter_mut().zip(names) {
            tensor.name = name;
        }
    }
    if prompts.is_empty() {
        return Err(Refusal::validation("inputs", "`inputs` cannot be empty"));
    }
    let nothing = Json::Object(Vec::new());
    let parameters = body.get("parameters")?.unwrap_or(&nothing);
    let request = read_prompts(parameters, prompts.clone(), native, |fields| {
        // Answers are JSON: nothing follows in binary.
        fields.refused_unless("binary_data_output", |value| *value == Json::Bool(false))
    })?;
    body.advisory(&request_id::KEYS)?;
    body.finish(&mut ignored);
    ignored.take(&request.ignored);
    let mut call = request.call;
    call.report = Report {
        logprobs: call.best_of > 1,
        ..Report::default()
    };
    Ok(InferCall {
        call,
        id,
        tensors: read,
        prefixes: (request.return_full_text == Some(true)).then_some(prompts),
        ignored,
    })
}

/// The list of tensors; TGI counts inputs and outputs, so an empty one is no error of its own.
fn tensors<'a>(json: &'a Json, path: &str) -> Result<&'a [Json], Refusal> {
    match json {
        Json::Array(items) => Ok(items),
        Json::Ids(ids) => Err(Refusal::wrong_type(
            &format!("{path}[0]"),
            &format!("integer `{}`", ids.first().copied().unwrap_or_default()),
            "a map",
        )),
        other => Err(Refusal::wrong_type(path, &other.describe(), "a sequence")),
    }
}

/// Adds the prompts of one input; gives its name and whether they were strings.
fn read_input(
    json: &Json,
    place: &str,
    prompts: &mut Vec<String>,
    ignored: &mut Ignored,
) -> Result<(String, bool), Refusal> {
    let mut fields = Fields::of(json, place)?;
    let name = required_name(&mut fields)?;
    let datatype_path = fields.path_of("datatype");
    let datatype = match fields.required("datatype")? {
        Json::String(datatype) => datatype.as_str(),
        other => {
            let found = other.describe();
            return Err(Refusal::wrong_type(&datatype_path, &found, "a string"));
        }
    };
    let shape_path = fields.path_of("shape");
    let shape = read_shape(fields.required("shape")?, &shape_path)?;
    let data_path = fields.path_of("data");
    let data = fields.required("data")?;
    if let Some(parameters) = fields.get("parameters")? {
        let mut fields = Fields::of(parameters, &fields.path_of("parameters"))?;
        fields.refused_unless("binary_data_size", |_| false)?;
        fields.finish(ignored);
    }
    fields.finish(ignored);
    let is_nested = |item: &Json| matches!(item, Json::String(_) | Json::Array(_));
    let wrong_datatype = || {
        let given = OneLine(datatype);
        let problem =
            format!("`{datatype_path}` {given:.32} is not supported: prompts are `BYTES`");
        Refusal::validation(&datatype_path, problem)
    };
    let items = match data {
        Json::Array(items) if items.first().is_some_and(is_nested) => items,
        _ => {
            // Bytes are bytes whatever they are called (TGI asks nobody); what is none may be of another type.
            prompts.push(text_of_bytes(data, &data_path).map_err(|refusal| {
                if matches!(datatype, "BYTES" | "UINT8") {
                    refusal
                } else {
                    wrong_datatype()
                }
            })?);
            return Ok((name, false));
        }
    };
    if datatype != "BYTES" {
        return Err(wrong_datatype());
    }
    let before = prompts.len();
    flatten(items, &data_path, prompts)?;
    let count = prompts.len() - before;
    if !fits(&shape, items, count) {
        return Err(Refusal::validation(
            &shape_path,
            format!(
                "`{shape_path}` does not fit the {count} strings of `{data_path}`, flat or nested"
            ),
        ));
    }
    Ok((name, true))
}

/// Whether `count` strings have this shape: in one flat list, or nested as the shape says.
fn fits(shape: &[u64], items: &[Json], count: usize) -> bool {
    if !items.iter().all(|item| matches!(item, Json::String(_))) {
        return is_nested_so(shape, items);
    }
    let mut sizes = shape.iter();
    let product = sizes.try_fold(1_u64, |product, size| product.checked_mul(*size));
    product == Some(count as u64)
}

/// Whether nested lists have exactly this shape.
fn is_nested_so(shape: &[u64], items: &[Json]) -> bool {
    let Some((size, inner)) = shape.split_first() else {
        return false;
    };
    *size == items.len() as u64
        && items.iter().all(|item| match item {
            Json::Array(items) => is_nested_so(inner, items),
            _ => inner.is_empty(),
        })
}

fn required_name(fields: &mut Fields<'_>) -> Result<String, Refusal> {
    let path = fields.path_of("name");
    match fields.required("name")? {
        Json::String(name) => {
            check_name(&path, name)?;
            Ok(name.clone())
        }
        other => Err(Refusal::wrong_type(&path, &other.describe(), "a string")),
    }
}

fn check_name(path: &str, name: &str) -> Result<(), Refusal> {
    if name.chars().count() > MOST_NAME_CHARACTERS {
        return Err(Refusal::validation(
            path,
            format!("`{path}` must have at most {MOST_NAME_CHARACTERS} characters"),
        ));
    }
    Ok(())
}

fn read_shape(json: &Json, path: &str) -> Result<Vec<u64>, Refusal> {
    let expected = "a sequence of sizes";
    let sizes: Vec<u64> = match json {
        Json::Ids(sizes) => sizes.iter().copied().map(u64::from).collect(),
        Json::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| {
                match item {
                    Json::Number(number) => number.as_u64(),
                    _ => None,
                }
                .ok_or_else(|| {
                    Refusal::wrong_type(&format!("{path}[{index}]"), &item.describe(), "a size")
                })
            })
            .collect::<Result<_, _>>()?,
        other => return Err(Refusal::wrong_type(path, &other.describe(), expected)),
    };
    if sizes.len() > MOST_DIMENSIONS {
        return Err(Refusal::validation(
            path,
            format!("`{path}` must have at most {MOST_DIMENSIONS} dimensions"),
        ));
    }
    Ok(sizes)
}

/// TGI's form: the bytes of one prompt.
fn text_of_bytes(json: &Json, path: &str) -> Result<String, Refusal> {
    let refuse = |index: usize, value: &str| {
        let path = format!("{path}[{index}]");
        Err(Refusal::invalid_integer(&path, value, "u8"))
    };
    let mut bytes = Vec::new();
    match json {
        Json::Ids(numbers) => {
            for (index, number) in numbers.iter().enumerate() {
                match u8::try_from(*number) {
                    Ok(byte) => bytes.push(byte),
                    Err(_) => return refuse(index, &number.to_string()),
                }
            }
        }
        Json::Array(items) => {
            if let Some((index, item)) = items.iter().enumerate().next() {
                return match item {
                    Json::Number(number) if !number.is_f64() => {
                        // Not all of them fit 32 bits; the first that is no byte is named.
                        first_odd(items, path)
                            .map_or_else(|| refuse(index, &number.to_string()), Err)
                    }
                    other => Err(Refusal::wrong_type(
                        &format!("{path}[{index}]"),
                        &other.describe(),
                        "u8 or a string",
                    )),
                };
            }
        }
        other => {
            let expected = "a sequence of u8 or of strings";
            return Err(Refusal::wrong_type(path, &other.describe(), expected));
        }
    }
    String::from_utf8(bytes).map_err(|error| {
        let message = format!("{} (`{path}`)", error.utf8_error());
        Refusal::new(Cause::Validation, message)
            .with_error_type("utf8")
            .with_param(path)
    })
}

/// The first element that is no byte.
fn first_odd(items: &[Json], path: &str) -> Option<Refusal> {
    items.iter().enumerate().find_map(|(index, item)| {
        let path = format!("{path}[{index}]");
        match item {
            Json::Number(number) if !number.is_f64() => {
                let byte = number.as_u64().and_then(|value| u8::try_from(value).ok());
                byte.is_none()
                    .then(|| Refusal::invalid_integer(&path, &number.to_string(), "u8"))
            }
            other => Some(Refusal::wrong_type(&path, &other.describe(), "u8")),
        }
    })
}

/// The protocol's own form: strings, nested or flat.
fn flatten(items: &[Json], path: &str, prompts: &mut Vec<String>) -> Result<(), Refusal> {
    for (index, item) in items.iter().enumerate() {
        match item {
            Json::String(text) => prompts.push(text.clone()),
            Json::Array(items) => flatten(items, &format!("{path}[{index}]"), prompts)?,
            other => {
                return Err(Refusal::wrong_type(
                    &format!("{path}[{index}]"),
                    &other.describe(),
                    "a string",
                ));
            }
        }
    }
    Ok(())
}

fn read_outputs(json: &Json, ignored: &mut Ignored) -> Result<Vec<String>, Refusal> {
    tensors(json, "outputs")?
        .iter()
        .enumerate()
        .map(|(index, output)| {
            let mut fields = Fields::of(output, &format!("outputs[{index}]"))?;
            let name = required_name(&mut fields)?;
            if let Some(parameters) = fields.get("parameters")? {
                let mut fields = Fields::of(parameters, &fields.path_of("parameters"))?;
                fields.refused_unless("binary_data", |value| *value == Json::Bool(false))?;
                fields.refused_unless("classification", |_| false)?;
                fields.finish(ignored);
            }
            fields.finish(ignored);
            Ok(name)
        })
        .collect()
}

fn length_mismatch() -> Refusal {
    Refusal::new(Cause::Validation, "Inputs and outputs length mismatch")
        .with_error_type("length mismatch")
        .with_param("outputs")
}

/// Whether a path may name its model so; one that nobody answers to is not found.
pub fn check_path_model(name: &str, served: &str, strict: bool) -> Result<(), Refusal> {
    check_model(Some(name), served, strict).map_err(|refusal| refusal.because(Cause::NotFound))
}

/// The answer's tensors: `texts` are those of the prompts, in order.
pub fn output_tensors(tensors: &[AnswerTensor], texts: Vec<String>) -> Vec<OutputTensor> {
    let mut texts = texts.into_iter();
    tensors
        .iter()
        .map(|tensor| {
            let mut own = texts.by_ref().take(tensor.prompts);
            let (shape, data) = if tensor.as_strings {
                let strings: Vec<String> = own.collect();
                (vec![strings.len()], TensorData::Strings(strings))
            } else {
                let bytes = own.next().unwrap_or_default().into_bytes();
                (vec![1, bytes.len()], TensorData::Bytes(bytes))
            };
            OutputTensor {
                name: tensor.name.clone(),
                shape,
                datatype: "BYTES",
                data,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
