//! Variables that are no flag's: what they say, and one line for each whose value says nothing.
//!
//! A value that changes what is served is refused; of the log's, whose names platforms set for their own sake, an unknown
//! one is warned of.

use crate::failure::Failure;
use crate::log::{Level, LogFormat};
use std::ffi::OsString;
use std::io::IsTerminal;

/// Characters of a value that are shown.
const SHOWN: usize = 40;

/// As clap reads a switch's variable.
const YES: [&str; 6] = ["y", "yes", "t", "true", "on", "1"];
const NO: [&str; 6] = ["n", "no", "f", "false", "off", "0"];

/// `HEADRACE_KERNEL_SET`.
const KERNEL_SETS: [&str; 3] = ["avx512", "avx2", "scalar"];

/// A variable, what its values must be, and the words for those that are not.
type Rule = (&'static str, fn(&str) -> bool, &'static str);

/// The value of a variable. Set to nothing (compose files do that) is not set.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name)
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty())
}

fn switch(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let is_in = |words: &[&str]| words.contains(&value.as_str());
    is_in(&YES).then_some(true).or(is_in(&NO).then_some(false))
}

/// `LOG_FORMAT`: whether it asks for JSON; `None`: it names no format.
fn is_json(format: &str) -> Option<bool> {
    match format.to_ascii_lowercase().as_str() {
        "json" => Some(true),
        "text" => Some(false),
        _ => None,
    }
}

/// How the log looks. Read before everything else, so that the first error already has the right form.
pub(crate) fn log_format(arguments: &[OsString]) -> LogFormat {
    let flag = arguments.iter().rev().find_map(|argument| {
        let value = argument.to_str()?.strip_prefix("--json-output")?;
        match value.strip_prefix('=') {
            Some(value) => switch(value),
            None => value.is_empty().then_some(true),
        }
    });
    let by_variable = || variable("JSON_OUTPUT").as_deref().and_then(switch);
    let json = flag.or_else(by_variable).unwrap_or(false)
        || variable("LOG_FORMAT").as_deref().and_then(is_json) == Some(true);
    let colour = variable("LOG_COLORIZE").as_deref().and_then(switch);
    let by_terminal = || std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    LogFormat {
        json,
        colour: colour.unwrap_or_else(by_terminal),
        level: Level::from_variable(variable("LOG_LEVEL").as_deref()),
        progress_line: std::io::stderr().is_terminal() && !json,
    }
}

/// TGI's variable.
pub(super) fn is_prefix_caching_off() -> bool {
    variable("PREFIX_CACHING").as_deref().and_then(switch) == Some(false)
}

/// What cannot be meant. `variable` reads one.
pub(super) fn refuse(variable: &impl Fn(&str) -> Option<String>) -> Result<(), Failure> {
    let faults: [Rule; 3] = [
        (
            "PREFIX_CACHING",
            |value| switch(value).is_some(),
            "must be 1 or 0 (or true, false, yes, no, on, off)",
        ),
        (
            "HEADRACE_KERNEL_SET",
            |value| KERNEL_SETS.contains(&value),
            "must be avx512, avx2 or scalar",
        ),
        // It is a header's value.
        (
            "COMPUTE_TYPE",
            |value| value.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "must be plain ASCII without control characters",
        ),
    ];
    for (name, is_sound, due) in faults {
        if let Some(value) = variable(name)
            && !is_sound(&value)
        {
            return Err(Failure::usage(format!("{name} {}: {due}", shown(&value))));
        }
    }
    Ok(())
}

/// One line for each variable that is set and does nothing, or not what it says. `variable` reads one.
pub(super) fn warnings(variable: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut lines = without_effect(variable);
    let unknown: [Rule; 3] = [
        (
            "LOG_LEVEL",
            |value| Level::find(value).is_some(),
            "names no level (trace, debug, info, warn or error); info is used",
        ),
        (
            "LOG_FORMAT",
            |value| is_json(value).is_some(),
            "names no format (json or text); it counts as not set",
        ),
        (
            "LOG_COLORIZE",
            |value| switch(value).is_some(),
            "must be 1 or 0; it counts as not set",
        ),
    ];
    for (name, is_known, due) in unknown {
        if let Some(value) = variable(name)
            && !is_known(&value)
        {
            lines.push(format!("{name} {}: {due}", shown(&value)));
        }
    }
    lines
}

/// Variables of TGI's engine.
fn without_effect(variable: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    [
        ("ATTENTION", "", "kernels are chosen for the machine"),
        (
            "USE_FLASH_ATTENTION",
            "",
            "kernels are chosen for the machine",
        ),
        // What it is by itself says nothing new.
        (
            "PREFILL_CHUNKING",
            "1",
            "prompts are always computed in pieces",
        ),
        (
            "TGI_WIGGLE_ROOM",
            "",
            "--kv-cache-memory sets the memory of the KV cache",
        ),
        (
            "REQUEST_LOGPROBS",
            "",
            "logprobs are there for every request that asks",
        ),
    ]
    .into_iter()
    .filter_map(|(name, usual, reason)| {
        let value = variable(name).filter(|value| value != usual)?;
        Some(format!("{name} {} has no effect: {reason}", shown(&value)))
    })
    .collect()
}

fn shown(value: &str) -> String {
    value
        .chars()
        .filter(|character| !character.is_control())
        .take(SHOWN)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::builder::{BoolishValueParser, TypedValueParser};

    #[test]
    fn words_of_a_switch_are_claps() {
        let command = clap::Command::new("x");
        for word in YES
            .iter()
            .chain(&NO)
            .chain(&["YES", "Off", "2", "maybe", ""])
        {
            let clap = BoolishValueParser::new().parse_ref(&command, None, word.as_ref());
            assert_eq!(switch(word), clap.ok(), "{word}");
        }
    }

    #[test]
    fn a_value_that_says_nothing_is_named_with_what_is_allowed() {
        for (name, value, due) in [
            ("PREFIX_CACHING", "2", "must be 1 or 0"),
            (
                "HEADRACE_KERNEL_SET",
                "avx9",
                "must be avx512, avx2 or scalar",
            ),
            ("COMPUTE_TYPE", "gpu\nx: y", "must be plain ASCII"),
        ] {
            let set = |asked: &str| (asked == name).then(|| value.to_owned());
            let line = refuse(&set).expect_err(name).to_string();
            assert!(
                line.starts_with(&format!("{name} ")) && line.contains(due),
                "{line}"
            );
        }
        for (name, value, due) in [
            ("LOG_LEVEL", "loud", "trace, debug, info, warn or error"),
            ("LOG_FORMAT", "yaml", "json or text"),
            ("LOG_COLORIZE", "blue", "must be 1 or 0"),
        ] {
            let set = |asked: &str| (asked == name).then(|| value.to_owned());
            let lines = warnings(&set);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(
                lines[0].starts_with(&format!("{name} {value}: ")),
                "{lines:?}"
            );
            assert!(lines[0].contains(due), "{lines:?}");
            assert_eq!(refuse(&set), Ok(()));
        }
        for (name, value) in [
            ("PREFIX_CACHING", "Off"),
            ("HEADRACE_KERNEL_SET", "scalar"),
            ("COMPUTE_TYPE", "gpu+optimized"),
            ("LOG_LEVEL", "tower=trace,warn"),
            ("LOG_FORMAT", "JSON"),
            ("LOG_COLORIZE", "1"),
        ] {
            let set = |asked: &str| (asked == name).then(|| value.to_owned());
            assert_eq!(
                (refuse(&set), warnings(&set)),
                (Ok(()), Vec::new()),
                "{name}"
            );
        }
    }
}
