//! Which flags come from variables: a line that names such a flag says which variable set it.

use crate::failure::Failure;
use clap::Command;
use std::ffi::OsString;

/// Flags that variables set, each with its variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origins(Vec<(String, String)>);

impl Origins {
    /// Of the flags that are not typed, those whose variable is set. `command` knows the variable of each.
    pub(super) fn find(command: &Command, arguments: &[OsString]) -> Self {
        let typed: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        let is_typed = |argument: &clap::Arg| {
            let long = argument.get_long().unwrap_or_default();
            let short = argument.get_short().map(|letter| format!("-{letter}"));
            typed.iter().any(|word| {
                let is_short = short
                    .as_ref()
                    .is_some_and(|short| word.starts_with(&**short) && !word.starts_with("--"));
                let name = word.split('=').next().unwrap_or(word);
                is_short || name.strip_prefix("--") == Some(long)
            })
        };
        let origins = command.get_arguments().filter_map(|argument| {
            let variable = argument.get_env()?;
            std::env::var_os(variable).filter(|value| !value.is_empty())?;
            let flag = format!("--{}", argument.get_long()?);
            (!is_typed(argument)).then(|| (flag, variable.to_string_lossy().into_owned()))
        });
        Self(origins.collect())
    }

    /// The line, and the variables of the flags in it.
    pub(crate) fn explain(&self, line: &str) -> String {
        let named: Vec<String> = self
            .0
            .iter()
            .filter(|(flag, _)| holds_word(line, flag))
            .map(|(flag, variable)| format!("{flag} is set by the variable {variable}"))
            .collect();
        if named.is_empty() {
            line.to_owned()
        } else {
            format!("{line} ({})", named.join(", "))
        }
    }

    /// The failure, and the variables of the flags in its line.
    pub(crate) fn blame(&self, failure: &Failure) -> Failure {
        let line = self.explain(&failure.to_string());
        failure.in_words(line)
    }
}

/// Whether a flag is named, and not merely one whose name begins or ends with its letters.
fn holds_word(line: &str, flag: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '-';
    line.match_indices(flag).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + flag.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_variables_of_its_flags() {
        let origins = Origins(vec![
            ("--port".into(), "AIP_HTTP_PORT".into()),
            ("--api-key".into(), "API_KEY".into()),
        ]);
        for (line, due) in [
            (
                "--port x: no",
                "--port x: no (--port is set by the variable AIP_HTTP_PORT)",
            ),
            ("--prometheus-port 1: no", "--prometheus-port 1: no"),
            ("--port-range: no", "--port-range: no"),
            ("--api-key-file x: no", "--api-key-file x: no"),
            (
                "--port 1: needs --api-key",
                "--port 1: needs --api-key (--port is set by the variable AIP_HTTP_PORT, --api-key is set by the \
                 variable API_KEY)",
            ),
        ] {
            assert_eq!(origins.explain(line), due);
        }
    }
}
