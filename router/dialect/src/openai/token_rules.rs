//! What may be sampled at all: `allowed_token_ids`, `bad_words`, `logit_bias`.

use crate::bounds::Bounds;
use crate::fields::Fields;
use crate::json::Json;
use crate::refusal::Refusal;
use std::collections::HashSet;

/// Ids besides which nothing is sampled. An empty list would leave nothing, so it is refused.
pub(super) fn read_allowed_ids(
    body: &mut Fields<'_>,
    bounds: &Bounds,
) -> Result<Vec<u32>, Refusal> {
    let field = "allowed_token_ids";
    if body.get(field)?.is_none() {
        return Ok(Vec::new());
    }
    let mut ids = body.ids(field)?;
    if ids.is_empty() {
        return Err(Refusal::validation(
            field,
            "`allowed_token_ids` must not be empty",
        ));
    }
    if ids.len() > bounds.allowed_ids {
        return Err(Refusal::validation(
            field,
            format!(
                "`allowed_token_ids` supports up to {} ids. Given: {}",
                bounds.allowed_ids,
                ids.len()
            ),
        ));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Words that must not come.
pub(super) fn read_bad_words(
    body: &mut Fields<'_>,
    bounds: &Bounds,
) -> Result<Vec<String>, Refusal> {
    let words = body.strings("bad_words", false)?;
    let refuse = |message: String| Err(Refusal::validation("bad_words", message));
    if words.len() > bounds.bad_words {
        return refuse(format!(
            "`bad_words` supports up to {} words. Given: {}",
            bounds.bad_words,
            words.len()
        ));
    }
    if words.iter().any(String::is_empty) {
        return refuse("`bad_words` must not contain an empty string".to_owned());
    }
    let bytes: usize = words.iter().map(String::len).sum();
    if bytes > bounds.bad_word_bytes {
        return refuse(format!(
            "`bad_words` must have at most {} bytes together. Given: {bytes}",
            bounds.bad_word_bytes
        ));
    }
    Ok(words)
}

/// A map from token ids, as decimal strings, to numbers from -100 to 100.
pub(super) fn read_logit_bias(
    body: &mut Fields<'_>,
    bounds: &Bounds,
) -> Result<Vec<(u32, f32)>, Refusal> {
    let members = match body.get("logit_bias")? {
        None => return Ok(Vec::new()),
        Some(Json::Object(members)) => members,
        Some(other) => {
            return Err(Refusal::wrong_type(
                "logit_bias",
                &other.describe(),
                "a map",
            ));
        }
    };
    let refuse = |message: String| Err(Refusal::validation("logit_bias", message));
    if members.len() > bounds.biased_ids {
        return refuse(format!(
            "`logit_bias` supports up to {} ids. Given: {}",
            bounds.biased_ids,
            members.len()
        ));
    }
    let mut read: Vec<(u32, f32)> = Vec::with_capacity(members.len());
    let mut seen = HashSet::with_capacity(members.len());
    for (key, value) in members {
        // `parse` alone would take a plus sign.
        let is_decimal = key.bytes().all(|byte| byte.is_ascii_digit());
        let Some(id) = key.parse::<u32>().ok().filter(|_| is_decimal) else {
            let shown: String = key.chars().take(32).collect();
            return refuse(format!("`logit_bias`: {shown:?} is no token id"));
        };
        let bias = match value {
            Json::Number(number) => number.as_f64(),
            other => {
                let path = format!("logit_bias.{id}");
                return Err(Refusal::wrong_type(&path, &other.describe(), "a number"));
            }
        };
        let Some(bias) = bias.filter(|bias| (-100.0..=100.0).contains(bias)) else {
            return refuse("`logit_bias` values must be >= -100 and <= 100".to_owned());
        };
        if !seen.insert(id) {
            return refuse(format!("`logit_bias`: id {id} is given twice"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 100 in size")]
        read.push((id, bias as f32));
    }
    Ok(read)
}
