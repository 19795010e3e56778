//! The clap command as this process was started: name, platforms' variables, switches.

use crate::flags::Flags;
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command, CommandFactory};
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
    command = command.mut_args(switch);
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

/// A switch with a variable takes `=true` and `=false` too, so that a script can turn off what a variable turns on.
fn switch(argument: Arg) -> Arg {
    let is_one =
        matches!(argument.get_action(), ArgAction::SetTrue) && argument.get_env().is_some();
    if !is_one {
        return argument;
    }
    argument
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .value_name("true|false")
        .default_missing_value("true")
        .default_value("false")
        .hide_default_value(true)
        .value_parser(BoolishValueParser::new())
        .hide_possible_values(true)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_with_a_variable_takes_true_and_false() {
        use clap::FromArgMatches;
        let switches: Vec<String> = Flags::command()
            .get_arguments()
            .filter(|argument| matches!(argument.get_action(), ArgAction::SetTrue))
            .filter(|argument| argument.get_env().is_some())
            .filter_map(|argument| argument.get_long().map(str::to_owned))
            .collect();
        assert!(switches.len() > 10, "{switches:?}");
        for switch in switches {
            for (typed, due) in [
                (format!("--{switch}"), true),
                (format!("--{switch}=true"), true),
                (format!("--{switch}=1"), true),
                (format!("--{switch}=false"), false),
                (format!("--{switch}=OFF"), false),
            ] {
                let arguments: Vec<OsString> = vec!["launcher".into(), (&typed).into()];
                let matches = build(&arguments)
                    .try_get_matches_from(&arguments)
                    .unwrap_or_else(|error| panic!("{typed}: {error}"));
                let id = switch.replace('-', "_");
                assert_eq!(matches.get_one(&id), Some(&due), "{typed}");
                Flags::from_arg_matches(&matches).expect("sound");
            }
        }
    }
}
