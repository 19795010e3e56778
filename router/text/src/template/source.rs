//! Where a model's chat template is.
//!
//! In order: a file given for it (`chat_template.jinja`, with `additional_chat_templates/tool_use.jinja` beside it or
//! without, or `chat_template.json` with the key `chat_template`), the key `chat_template` of `tokenizer_config.json` (a text, or a list of `{name, template}` of which `default` and
//! `tool_use` count), `tokenizer.chat_template` of GGUF metadata.

use crate::error::TemplateError;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Beside `chat_template.jinja`, as `transformers` saves it.
const TOOL_USE: &str = "additional_chat_templates/tool_use.jinja";

/// Files that may hold the template.
#[derive(Clone, Debug, Default)]
pub struct TemplateSources {
    /// A template file: Jinja text, or JSON with the key `chat_template`.
    pub chat_template: Option<PathBuf>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<PathBuf>,
}

/// Templates of one model.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) default: String,
    pub(super) tool_use: Option<String>,
    /// Where both are from; `None`: GGUF metadata.
    pub(super) path: Option<PathBuf>,
}

pub(super) fn find(
    sources: &TemplateSources,
    gguf_template: Option<&str>,
) -> Result<Found, TemplateError> {
    if let Some(path) = &sources.chat_template {
        let text = read(path)?;
        let is_json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if !is_json {
            let tool_use = path.with_file_name(TOOL_USE);
            return Ok(Found {
                default: text,
                tool_use: tool_use.is_file().then(|| read(&tool_use)).transpose()?,
                path: Some(path.clone()),
            });
        }
        return match from_json(path, &text)? {
            Some(found) => Ok(found),
            None => Err(malformed(path, "has no key chat_template")),
        };
    }
    if let Some(path) = &sources.tokenizer_config
        && let Some(found) = from_json(path, &read(path)?)?
    {
        return Ok(found);
    }
    match gguf_template {
        Some(text) => Ok(Found {
            default: text.to_owned(),
            tool_use: None,
            path: None,
        }),
        None => Err(TemplateError::Missing),
    }
}

fn read(path: &Path) -> Result<String, TemplateError> {
    std::fs::read_to_string(path).map_err(|error| malformed(path, &error.to_string()))
}

fn malformed(path: &Path, reason: &str) -> TemplateError {
    TemplateError::Source {
        path: path.to_path_buf(),
        reason: reason.to_owned(),
    }
}

fn from_json(path: &Path, text: &str) -> Result<Option<Found>, TemplateError> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| malformed(path, &format!("not JSON: {error}")))?;
    let named: Vec<(&str, &str)> = match value.get("chat_template") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => {
            return Ok(Some(Found {
                default: text.clone(),
                tool_use: None,
                path: Some(path.to_path_buf()),
            }));
        }
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(|entry| {
                Some((
                    entry.get("name")?.as_str()?,
                    entry.get("template")?.as_str()?,
                ))
            })
            .collect(),
        Some(Value::Object(map)) => map
            .iter()
            .filter_map(|(name, template)| Some((name.as_str(), template.as_str()?)))
            .collect(),
        Some(_) => {
            return Err(malformed(
                path,
                "chat_template is neither a text nor a list",
            ));
        }
    };
    let get = |wanted: &str| {
        named
            .iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, template)| (*template).to_owned())
    };
    match get("default") {
        Some(default) => Ok(Some(Found {
            default,
            tool_use: get("tool_use"),
            path: Some(path.to_path_buf()),
        })),
        None => Err(malformed(
            path,
            "chat_template is a list without the name \"default\"",
        )),
    }
}
