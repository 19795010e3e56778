//! Where in a rendered prompt the characters came from a content (see the module above).

use super::Inputs;
use crate::error::TemplateError;
use crate::tokenizer::Tokenizer;
use serde_json::Value;
use std::collections::HashSet;
use std::ops::Range;

/// First of the private-use characters that stand for replaced ones.
const FIRST_MASK: u32 = 0x000F_0000;

/// Keys whose texts are the protocol's words, not a content's.
const STRUCTURAL_KEYS: [&str; 2] = ["role", "type"];

/// Characters with which an added token may start or end.
#[derive(Debug)]
pub(super) struct Triggers {
    characters: HashSet<char>,
    /// Normalising may turn any of these into one of the former.
    all_beyond_ascii: bool,
    literals: Vec<String>,
}

impl Triggers {
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        let literals = tokenizer.added_literals().to_vec();
        let normalizes = tokenizer.normalizes_added_tokens();
        let mut characters = HashSet::new();
        for literal in &literals {
            let ends = [
                literal.trim().chars().next(),
                literal.trim().chars().next_back(),
            ];
            for character in ends.into_iter().flatten() {
                characters.insert(character);
                if normalizes {
                    characters.extend(character.to_lowercase());
                    characters.extend(character.to_uppercase());
                }
            }
        }
        Self {
            characters,
            all_beyond_ascii: normalizes && !literals.is_empty(),
            literals,
        }
    }

    fn is_trigger(&self, character: char) -> bool {
        self.characters.contains(&character)
            || (self.all_beyond_ascii && !character.is_ascii() && !character.is_whitespace())
    }

    /// A role is written by the template as it stands, so it must not be a control token.
    pub(super) fn check_roles(&self, messages: &[Value]) -> Result<(), TemplateError> {
        for (index, message) in messages.iter().enumerate() {
            let role = message
                .get("role")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if let Some(literal) = self.literals.iter().find(|literal| role.contains(*literal)) {
                return Err(TemplateError::Messages(format!(
                    "messages[{index}].role holds the control token {literal:?}"
                )));
            }
        }
        Ok(())
    }

    /// The inputs with masks, and the mask; `None` if no content holds a trigger.
    pub(super) fn mask(&self, inputs: &Inputs, rendered: &str) -> Option<(Inputs, char)> {
        let mut has_trigger = false;
        for value in guarded(inputs) {
            each_text(value, &mut |text| {
                has_trigger = has_trigger || text.chars().any(|c| self.is_trigger(c));
            });
        }
        if !has_trigger {
            return None;
        }
        let mask = (FIRST_MASK..FIRST_MASK + 0xFFFD)
            .filter_map(char::from_u32)
            .find(|&mask| {
                let mut is_used = rendered.contains(mask);
                for value in [
                    &inputs.messages,
                    &inputs.tools,
                    &inputs.documents,
                    &inputs.variables,
                ] {
                    each_text(value, &mut |text| is_used = is_used || text.contains(mask));
                }
                !is_used
            })?;
        let mut masked = inputs.clone();
        let replace = |text: &str| {
            text.chars()
                .map(|c| if self.is_trigger(c) { mask } else { c })
                .collect()
        };
        let messages = masked.messages.as_array_mut().into_iter().flatten();
        for value in messages
            .filter(|message| is_guarded(message))
            .chain([&mut masked.tools, &mut masked.documents])
            .chain([&mut masked.variables])
        {
            replace_texts(value, &replace);
        }
        Some((masked, mask))
    }

    /// Where the contents that hold a whole added token stand in `rendered`.
    pub(super) fn search(
        &self,
        inputs: &Inputs,
        rendered: &str,
    ) -> Result<Vec<Range<usize>>, TemplateError> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut lost = None;
        for value in guarded(inputs) {
            each_text(value, &mut |text| {
                let Some(literal) = self.literals.iter().find(|literal| text.contains(*literal))
                else {
                    return;
                };
                let before = found.len();
                found.extend(
                    rendered
                        .match_indices(text.trim())
                        .map(|(start, text)| start..start + text.len()),
                );
                if found.len() == before {
                    lost = Some(literal.clone());
                }
            });
        }
        if let Some(literal) = lost {
            return Err(TemplateError::Messages(format!(
                "a message holds the text of the control token {literal:?}, which the chat template rewrites"
            )));
        }
        found.sort_by_key(|range| range.start);
        let mut marks: Vec<Range<usize>> = Vec::new();
        for range in found {
            push_mark(&mut marks, range);
        }
        Ok(marks)
    }
}

/// What letters may come from that are no control tokens.
fn guarded(inputs: &Inputs) -> impl Iterator<Item = &Value> {
    inputs
        .messages
        .as_array()
        .into_iter()
        .flatten()
        .filter(|message| is_guarded(message))
        .chain([&inputs.tools, &inputs.documents, &inputs.variables])
}

/// Assistants' own words may hold the tokens that they wrote (reasoning, tool calls).
fn is_guarded(message: &Value) -> bool {
    message.get("role").and_then(Value::as_str) != Some("assistant")
}

fn each_text(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Value::Object(fields) => {
            for (key, item) in fields {
                if !STRUCTURAL_KEYS.contains(&key.as_str()) {
                    each_text(item, visit);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Bytes of all texts in it.
pub(super) fn num_bytes(value: &Value) -> usize {
    let mut bytes = 0;
    each_text(value, &mut |text| bytes += text.len());
    bytes
}

/// Bytes of all texts and keys in it, and a few for each value: about what it is as JSON.
pub(super) fn json_bytes(value: &Value) -> usize {
    const VALUE: usize = 8;
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(json_bytes).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, item)| key.len() + json_bytes(item))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inside + VALUE
}

fn replace_texts(value: &mut Value, replace: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = replace(text),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| replace_texts(item, replace)),
        Value::Object(fields) => {
            for (key, item) in fields.iter_mut() {
                if !STRUCTURAL_KEYS.contains(&key.as_str()) {
                    replace_texts(item, replace);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Byte ranges of `text` where `masked` has the mask; `None` if the two differ anywhere else.
pub(super) fn align(text: &str, masked: &str, mask: char) -> Option<Vec<Range<usize>>> {
    let mut marks = Vec::new();
    let mut other = masked.chars();
    for (start, character) in text.char_indices() {
        let twin = other.next()?;
        if twin == mask {
            push_mark(&mut marks, start..start + character.len_utf8());
        } else if twin != character {
            return None;
        }
    }
    other.next().is_none().then_some(marks)
}

fn push_mark(marks: &mut Vec<Range<usize>>, range: Range<usize>) {
    match marks.last_mut() {
        Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
        Some(_) | None => marks.push(range),
    }
}
