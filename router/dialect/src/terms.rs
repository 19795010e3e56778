//! On what terms a request runs: its class in the queue, whose cached prefixes it sees, how long they stay, and how long
//! it may wait. The same fields, bounds and words in every dialect; TGI and `OpenAI`'s own API know none of them but
//! `prompt_cache_retention`, the others have the names that vLLM and `SGLang` gave them.

use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::request_id;
use std::time::Duration;

/// `priority` lies from minus this to this.
pub const MOST_PRIORITY: i32 = 100;

/// Characters of a `cache_salt`.
const MOST_SALT_CHARACTERS: usize = 1024;

/// Seconds of a `timeout`: a day.
const MOST_TIMEOUT_SECONDS: f32 = 86_400.0;

/// The terms that a request names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// Its class: lower ones run first, from -[`MOST_PRIORITY`] to [`MOST_PRIORITY`]. `None`: its key's.
    pub priority: Option<i32>,
    /// Cached prefixes are shared with requests of the same salt only. Not empty.
    pub cache_salt: Option<String>,
    /// How long its own prefix stays cached beside those of others.
    pub retention: CacheRetention,
    /// From the request's arrival until it has to run. `None`: it waits as long as it takes.
    pub timeout: Option<Duration>,
    /// It names a `service_tier`, and so does its answer (`/v1`).
    pub names_tier: bool,
}

/// `prompt_cache_retention`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheRetention {
    /// `in_memory`: until the room is needed.
    #[default]
    InMemory,
    /// `24h`: beyond all that are `in_memory`.
    Day,
}

impl Terms {
    /// Reads and bounds the fields of the body or of its `parameters`.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self, Refusal> {
        // Read before everything else, so that a refused request has its id too.
        fields.advisory(&request_id::KEYS)?;
        Ok(Self {
            priority: read_priority(fields)?,
            cache_salt: read_salt(fields)?,
            retention: read_retention(fields)?,
            timeout: read_timeout(fields)?,
            names_tier: false,
        })
    }
}

fn read_priority(fields: &mut Fields<'_>) -> Result<Option<i32>, Refusal> {
    let Some(value) = fields.integer("priority")? else {
        return Ok(None);
    };
    match i32::try_from(value) {
        Ok(class) if (-MOST_PRIORITY..=MOST_PRIORITY).contains(&class) => Ok(Some(class)),
        _ => Err(Refusal::validation(
            "priority",
            format!(
                "`priority` must be >= -{MOST_PRIORITY} and <= {MOST_PRIORITY}. Given: {value}"
            ),
        )),
    }
}

fn read_salt(fields: &mut Fields<'_>) -> Result<Option<String>, Refusal> {
    let Some(salt) = fields.string("cache_salt")? else {
        return Ok(None);
    };
    let characters = salt.chars().count();
    if characters == 0 || characters > MOST_SALT_CHARACTERS {
        return Err(Refusal::validation(
            "cache_salt",
            format!(
                "`cache_salt` must have from 1 to {MOST_SALT_CHARACTERS} characters. Given: {characters}"
            ),
        ));
    }
    Ok(Some(salt.to_owned()))
}

fn read_retention(fields: &mut Fields<'_>) -> Result<CacheRetention, Refusal> {
    match fields.string("prompt_cache_retention")? {
        // The API's documents have the underscore, some releases of its clients the hyphen.
        None | Some("in_memory" | "in-memory") => Ok(CacheRetention::InMemory),
        Some("24h") => Ok(CacheRetention::Day),
        Some(_) => Err(Refusal::validation(
            "prompt_cache_retention",
            "`prompt_cache_retention` must be `in_memory` or `24h`",
        )),
    }
}

fn read_timeout(fields: &mut Fields<'_>) -> Result<Option<Duration>, Refusal> {
    let Some(seconds) = fields.float("timeout")? else {
        return Ok(None);
    };
    if seconds <= 0.0 || seconds > MOST_TIMEOUT_SECONDS {
        return Err(Refusal::validation(
            "timeout",
            format!(
                "`timeout` must be > 0 and <= {MOST_TIMEOUT_SECONDS} seconds. Given: {seconds}"
            ),
        ));
    }
    Ok(Some(Duration::from_secs_f32(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn read(body: &serde_json::Value) -> Result<Terms, String> {
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        let mut fields = Fields::of(&json, "").unwrap();
        Terms::read(&mut fields).map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn absent_and_null_are_the_houses_own_terms() {
        let nulls = serde_json::json!({
            "priority": null, "cache_salt": null, "prompt_cache_retention": null, "timeout": null
        });
        assert_eq!(read(&nulls), Ok(Terms::default()));
        assert_eq!(read(&serde_json::json!({})), Ok(Terms::default()));
    }

    #[test]
    fn what_is_in_bounds_is_taken_to_the_edge() {
        for priority in [-100, -1, 0, 100] {
            let terms = read(&serde_json::json!({ "priority": priority })).unwrap();
            assert_eq!(terms.priority, Some(priority));
        }
        for salt in ["x".to_owned(), "ä".repeat(1024)] {
            let terms = read(&serde_json::json!({ "cache_salt": salt })).unwrap();
            assert_eq!(terms.cache_salt, Some(salt));
        }
        for (word, retention) in [
            ("in_memory", CacheRetention::InMemory),
            ("in-memory", CacheRetention::InMemory),
            ("24h", CacheRetention::Day),
        ] {
            let terms = read(&serde_json::json!({ "prompt_cache_retention": word })).unwrap();
            assert_eq!(terms.retention, retention, "{word}");
        }
        for (value, expected) in [
            (serde_json::json!(0.5), Duration::from_millis(500)),
            (serde_json::json!(3), Duration::from_secs(3)),
            (serde_json::json!(86_400), Duration::from_hours(24)),
        ] {
            let terms = read(&serde_json::json!({ "timeout": value })).unwrap();
            assert_eq!(terms.timeout, Some(expected));
        }
    }

    #[test]
    fn what_is_not_is_refused_by_name() {
        let salt = "`cache_salt` must have from 1 to 1024 characters. Given:";
        let timeout = "`timeout` must be > 0 and <= 86400 seconds. Given:";
        for (body, message) in [
            (
                serde_json::json!({"priority": 101}),
                "`priority` must be >= -100 and <= 100. Given: 101".to_owned(),
            ),
            (
                serde_json::json!({"priority": -9_223_372_036_854_775_808_i64}),
                "`priority` must be >= -100 and <= 100. Given: -9223372036854775808".to_owned(),
            ),
            (serde_json::json!({"cache_salt": ""}), format!("{salt} 0")),
            (
                serde_json::json!({"cache_salt": "x".repeat(1025)}),
                format!("{salt} 1025"),
            ),
            (
                serde_json::json!({"prompt_cache_retention": "7d"}),
                "`prompt_cache_retention` must be `in_memory` or `24h`".to_owned(),
            ),
            (serde_json::json!({"timeout": 0}), format!("{timeout} 0")),
            (serde_json::json!({"timeout": -1}), format!("{timeout} -1")),
            (
                serde_json::json!({"timeout": 86_401}),
                format!("{timeout} 86401"),
            ),
        ] {
            assert_eq!(
                read(&body),
                Err(format!("Input validation error: {message}"))
            );
        }
        let wrong = "Failed to deserialize the JSON body into the target type: ";
        for (body, message) in [
            (
                serde_json::json!({"priority": 1.5}),
                "priority: invalid type: floating point `1.5`, expected an integer",
            ),
            (
                serde_json::json!({"cache_salt": 7}),
                "cache_salt: invalid type: integer `7`, expected a string",
            ),
            (
                serde_json::json!({"timeout": "1s"}),
                "timeout: invalid type: string \"1s\", expected a 32-bit float",
            ),
        ] {
            assert_eq!(read(&body), Err(format!("{wrong}{message}")));
        }
    }
}
