//! The clap command as this process was started: name, platforms' variables, one-line errors.

use crate::failure::Failure;
use crate::flags::Flags;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// TGI's name for the command, a second one of ours.
const TGI_NAME: &str = "text-generation-launcher";

/// The variables of `SageMaker` and the flags that they stand for.
const SAGEMAKER: [(&str, &str); 5] = [
    ("model_id", "HF_MODEL_ID"),
    ("revision", "HF_MODEL_REVISION"),
    ("num_shard", "SM_NUM_GPUS"),
    ("quantize", "HF_MODEL_QUANTIZE"),
    ("trust_remote_code", "HF_MODEL_TRUST_REMOTE_CODE"),
];

/// The command for these arguments.
pub(super) fn build(arguments: &[OsString]) -> Command {
    let mut command = Flags::command();
    let is_tgi = arguments
        .first()
        .and_then(|program| Path::new(program).file_name())
        .is_some_and(|name| name == TGI_NAME);
    if is_tgi {
        command = command.name(TGI_NAME);
    }
    // `--port -1` is a bad value of --port, and not a flag named -1.
    command = command.mut_args(|argument| {
        let takes_values = argument.get_action().takes_values();
        argument.allow_negative_numbers(takes_values)
    });
    // A variable that is set to nothing (compose files do that) is as good as not set.
    command = command.mut_args(|argument| {
        let is_empty = argument.get_env().is_some_and(|name| !is_set(name));
        if is_empty && argument.get_env().and_then(std::env::var_os).is_some() {
            argument.env(None::<&'static str>)
        } else {
            argument
        }
    });
    // Images set PORT for their own sake, so a platform's variable counts before it.
    if is_set("AIP_HTTP_PORT") {
        command = command.mut_arg("port", |port| port.env("AIP_HTTP_PORT"));
    }
    if arguments.get(1).is_some_and(|first| first == "serve") {
        for (flag, variable) in SAGEMAKER {
            command = command.mut_arg(flag, |argument| platform_variable(argument, variable));
        }
        command = command.mut_arg("port", |port| match is_set("SAGEMAKER_BIND_TO_PORT") {
            true => port.env("SAGEMAKER_BIND_TO_PORT"),
            false if is_set("SM_NUM_GPUS") || is_set("HF_MODEL_ID") => {
                port.env(None::<&'static str>).default_value("8080")
            }
            false => port,
        });
    }
    command
}

/// Our own variable counts first.
fn platform_variable(argument: Arg, variable: &'static str) -> Arg {
    let has_own = argument.get_env().is_some_and(is_set);
    if has_own || !is_set(variable) {
        argument
    } else {
        argument.env(variable)
    }
}

fn is_set(name: impl AsRef<OsStr>) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// What people type for a word that a flag has under another name. clap's own guess goes by letters, and takes `gpu` for
/// `cpu`.
const MEANT: [(&str, &str); 13] = [
    ("gpu", "cuda"),
    ("nvidia", "cuda"),
    ("half", "float16"),
    ("fp16", "float16"),
    ("f16", "float16"),
    ("bf16", "bfloat16"),
    ("float", "float32"),
    ("full", "float32"),
    ("fp32", "float32"),
    ("f32", "float32"),
    ("fifo", "fcfs"),
    ("none", "off"),
    ("all", "on"),
];

/// A value that is none of a flag's words: what they are, and which was meant if that can be told.
fn unknown_word(error: &clap::Error) -> Option<Failure> {
    let text = |kind: ContextKind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let Some(ContextValue::Strings(words)) = error.get(ContextKind::ValidValue) else {
        return None;
    };
    let value = text(ContextKind::InvalidValue)?;
    // `--flag <VALUE>`
    let flag = text(ContextKind::InvalidArg)?.split(' ').next()?;
    if !flag.starts_with("--") {
        return None;
    }
    let known = MEANT
        .iter()
        .filter(|(typed, _)| typed.eq_ignore_ascii_case(value))
        .map(|(_, word)| *word)
        .find(|word| words.iter().any(|valid| valid == word));
    let in_other_case = || words.iter().find(|word| word.eq_ignore_ascii_case(value));
    let meant = known
        .or_else(|| in_other_case().map(String::as_str))
        .or_else(|| text(ContextKind::SuggestedValue))
        .map_or_else(String::new, |word| format!("; did you mean {word}?"));
    Some(Failure::usage(format!(
        "{flag} {value}: must be one of {}{meant}",
        words.join(", ")
    )))
}

/// clap's message without usage and hints on further lines.
pub(crate) fn one_line(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::InvalidValue
        && let Some(failure) = unknown_word(error)
    {
        return failure;
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        let line = line
            .strip_prefix("tip: ")
            .map_or_else(|| line.to_owned(), |tip| format!("({tip})"));
        lines.push(line);
    }
    Failure::usage(lines.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = ["launcher"]
            .iter()
            .chain(arguments)
            .map(OsString::from)
            .collect();
        let error = build(&arguments)
            .try_get_matches_from(&arguments)
            .expect_err("is refused");
        one_line(&error).to_string()
    }

    #[test]
    fn an_unknown_word_of_any_flag_with_words_lists_them_and_the_nearest() {
        for (flag, typed, due) in [
            (
                "--device",
                "tpu",
                "must be one of auto, cpu, cuda; did you mean cpu?",
            ),
            (
                "--device",
                "gpu",
                "must be one of auto, cpu, cuda; did you mean cuda?",
            ),
            (
                "--device",
                "CUDA",
                "must be one of auto, cpu, cuda; did you mean cuda?",
            ),
            ("--device", "xyz", "must be one of auto, cpu, cuda"),
            (
                "--dtype",
                "half",
                "must be one of float32, bfloat16, float16; did you mean float16?",
            ),
            (
                "--dtype",
                "float8",
                "must be one of float32, bfloat16, float16; did you mean float16?",
            ),
            (
                "--rope-scaling",
                "liner",
                "must be one of linear, dynamic; did you mean linear?",
            ),
            (
                "--schedule-policy",
                "fifo",
                "must be one of fcfs, lpm; did you mean fcfs?",
            ),
            (
                "--usage-stats",
                "none",
                "must be one of on, off, no-stack; did you mean off?",
            ),
            (
                "--sharded",
                "ture",
                "must be one of true, false; did you mean true?",
            ),
        ] {
            assert_eq!(refusal(&[flag, typed]), format!("{flag} {typed}: {due}"));
        }
    }

    /// Whatever flag is added: none with words may answer in another way.
    #[test]
    fn every_flag_with_words_is_among_them() {
        for argument in Flags::command().get_arguments() {
            let Some(flag) = argument.get_long() else {
                continue;
            };
            let words = argument.get_possible_values();
            if words.is_empty() || !argument.get_action().takes_values() {
                continue;
            }
            let line = refusal(&[&format!("--{flag}"), "no-such-word"]);
            let due = format!("--{flag} no-such-word: must be one of ");
            assert!(line.starts_with(&due), "{line}");
            for word in words.iter().filter(|word| !word.is_hide_set()) {
                assert!(line.contains(word.get_name()), "{line}");
            }
        }
    }
}
