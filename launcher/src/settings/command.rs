//! The clap command as this process was started: name, platforms' variables, one-line errors.

use crate::failure::Failure;
use crate::flags::Flags;
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

/// clap's message without usage and hints on further lines.
pub(crate) fn one_line(error: &clap::Error) -> Failure {
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
