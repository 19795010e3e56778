//! What clap refuses, in one line that names the flag and what it takes.

use super::foreign;
use crate::failure::Failure;
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;

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

/// A text of the error.
fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    }
}

/// The flag that the error is about, without what follows its name.
fn flag(error: &clap::Error) -> Option<&str> {
    let argument = text(error, ContextKind::InvalidArg)?;
    let flag = argument.split([' ', '[', '=']).next()?;
    flag.starts_with("--").then_some(flag)
}

/// A value that is none of a flag's words: what they are, and which was meant if that can be told.
fn unknown_word(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::Strings(words)) = error.get(ContextKind::ValidValue) else {
        return None;
    };
    let flag = flag(error)?;
    // clap has no other kind for a flag at the end of the line.
    let value = text(error, ContextKind::InvalidValue).filter(|value| !value.is_empty());
    let Some(value) = value else {
        let due = if words.is_empty() {
            "a value".to_owned()
        } else {
            format!("one of {}", words.join(", "))
        };
        return Some(Failure::usage(format!("{flag}: needs {due}")));
    };
    let known = MEANT
        .iter()
        .filter(|(typed, _)| typed.eq_ignore_ascii_case(value))
        .map(|(_, word)| *word)
        .find(|word| words.iter().any(|valid| valid == word));
    let in_other_case = || words.iter().find(|word| word.eq_ignore_ascii_case(value));
    let meant = known
        .or_else(|| in_other_case().map(String::as_str))
        .or_else(|| text(error, ContextKind::SuggestedValue))
        .map_or_else(String::new, |word| format!("; did you mean {word}?"));
    Some(Failure::usage(format!(
        "{flag} {value}: must be one of {}{meant}",
        words.join(", ")
    )))
}

/// What the parsers of the standard library say, and what is allowed.
const DUE: [(&str, &str); 4] = [
    ("invalid digit found in string", "must be a whole number"),
    (
        "cannot parse integer from empty string",
        "must be a whole number",
    ),
    ("invalid float literal", "must be a number"),
    ("value was not a boolean", "must be true or false"),
];

/// A value that a flag's parser does not take.
fn unusable_value(error: &clap::Error) -> Option<Failure> {
    let value = text(error, ContextKind::InvalidValue)?;
    let flag = flag(error)?;
    let reason = error.source()?.to_string();
    let due = DUE.iter().find(|(said, _)| *said == reason);
    let reason = due.map_or(&*reason, |(_, due)| due);
    Some(Failure::usage(format!("{flag} {value}: {reason}")))
}

/// A word that stands where no word is due. `command` and `arguments`: to see whether it follows a switch.
fn stray_word(error: &clap::Error, command: &Command, arguments: &[OsString]) -> Option<Failure> {
    let word = match error.kind() {
        ErrorKind::InvalidValue if text(error, ContextKind::InvalidArg)? == "[COMMAND]" => {
            text(error, ContextKind::InvalidValue)?
        }
        ErrorKind::UnknownArgument => {
            text(error, ContextKind::InvalidArg).filter(|word| !word.starts_with('-'))?
        }
        _ => return None,
    };
    let before = arguments
        .windows(2)
        .find(|pair| pair[1] == word)
        .and_then(|pair| pair[0].to_str()?.strip_prefix("--"));
    let is_switch = |name: &&str| {
        command
            .get_arguments()
            .any(|argument| argument.get_long() == Some(name) && argument.is_require_equals_set())
    };
    Some(Failure::usage(match before.filter(is_switch) {
        Some(switch) => {
            format!("--{switch} {word}: a switch takes its word after `=`: --{switch}={word}")
        }
        None => foreign::positional(word),
    }))
}

fn unknown_flag(error: &clap::Error) -> Option<Failure> {
    let flag = text(error, ContextKind::InvalidArg)?;
    let meant = text(error, ContextKind::SuggestedArg)
        .filter(|guess| is_akin(flag, guess))
        .map_or_else(String::new, |flag| format!("; did you mean {flag}?"));
    Some(Failure::usage(format!(
        "{flag}: there is no such flag{meant} (--help lists them)"
    )))
}

/// clap guesses by letters alone. A guess counts that begins alike or shares a word.
fn is_akin(typed: &str, guess: &str) -> bool {
    let plain = |flag: &str| {
        flag.trim_start_matches('-')
            .to_ascii_lowercase()
            .replace('_', "-")
    };
    let (typed, guess) = (plain(typed), plain(guess));
    let begins = typed.get(..4).is_some_and(|begin| guess.starts_with(begin));
    let shares = || {
        let mut words = typed.split('-').filter(|word| word.len() > 2);
        words.any(|word| guess.split('-').any(|other| other == word))
    };
    begins || shares()
}

/// A word that is no text: with the flag before it, or the flag whose variable it is.
fn not_utf8(command: &Command, arguments: &[OsString]) -> Option<Failure> {
    let by_variable = || {
        command.get_arguments().find_map(|argument| {
            let value = std::env::var_os(argument.get_env()?)?;
            value.to_str().is_none().then_some(())?;
            Some((format!("--{} ", argument.get_long()?), value))
        })
    };
    let place = arguments.iter().position(|word| word.to_str().is_none());
    let (flag, word) = match place {
        Some(place) => {
            let before = arguments.get(place.checked_sub(1)?)?.to_str();
            let flag = before.filter(|word| word.starts_with('-'));
            let flag = flag.map_or_else(String::new, |flag| format!("{flag} "));
            (flag, arguments.get(place)?.clone())
        }
        None => by_variable()?,
    };
    Some(Failure::usage(format!(
        "{flag}{}: is not UTF-8",
        word.to_string_lossy()
    )))
}

fn given_twice(error: &clap::Error) -> Option<Failure> {
    let flag = flag(error)?;
    let other = text(error, ContextKind::PriorArg)?;
    // Flags that exclude each other are told by clap.
    other
        .starts_with(flag)
        .then(|| Failure::usage(format!("{flag}: is given more than once")))
}

/// What clap refuses, in one line that names the flag and what it takes.
pub(super) fn refusal(error: &clap::Error, command: &Command, arguments: &[OsString]) -> Failure {
    let own = stray_word(error, command, arguments).or_else(|| match error.kind() {
        ErrorKind::UnknownArgument => unknown_flag(error),
        ErrorKind::ValueValidation => unusable_value(error),
        ErrorKind::InvalidUtf8 => not_utf8(command, arguments),
        ErrorKind::ArgumentConflict => given_twice(error),
        _ => None,
    });
    own.unwrap_or_else(|| one_line(error))
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
    use super::super::command::build;
    use super::*;
    use crate::flags::Flags;
    use clap::CommandFactory;

    fn refusal(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = ["launcher"]
            .iter()
            .chain(arguments)
            .map(OsString::from)
            .collect();
        let mut command = build(&arguments);
        let error = command
            .try_get_matches_from_mut(&arguments)
            .expect_err("is refused");
        super::refusal(&error, &command, &arguments).to_string()
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

    #[test]
    fn a_word_that_is_no_text_is_told_with_its_flag() {
        use std::os::unix::ffi::OsStringExt;
        let arguments: Vec<OsString> = vec![
            "launcher".into(),
            "--revision".into(),
            OsString::from_vec(vec![b'a', 0xff]),
        ];
        let mut command = build(&arguments);
        let error = command
            .try_get_matches_from_mut(&arguments)
            .expect_err("is refused");
        let line = super::refusal(&error, &command, &arguments).to_string();
        assert_eq!(line, "--revision a\u{fffd}: is not UTF-8");
    }

    #[test]
    fn what_a_flag_does_not_take_is_told_with_what_it_takes() {
        for (words, line) in [
            (
                &["--port", "many"][..],
                "--port many: must be a whole number",
            ),
            (
                &["--port", "70000"],
                "--port 70000: 70000 is not in 0..=65535",
            ),
            (&["--port", "-1"], "--port -1: -1 is not in 0..=65535"),
            (&["--rope-factor", "x"], "--rope-factor x: must be a number"),
            (
                &["--validation-workers", ""],
                "--validation-workers : must be a whole number",
            ),
            (
                &["--json-output=maybe"],
                "--json-output maybe: must be true or false",
            ),
            (
                &["--json-output", "true"],
                "--json-output true: a switch takes its word after `=`: --json-output=true",
            ),
            (
                &["org/name"],
                "org/name: a model is given with a flag: --model-id org/name",
            ),
            (
                &["serve", "org/name"],
                "org/name: a model is given with a flag: --model-id org/name",
            ),
            (&["--port"], "--port: needs a value"),
            (
                &["--dtype"],
                "--dtype: needs one of float32, bfloat16, float16",
            ),
            (
                &["--port", "1", "--port", "2"],
                "--port: is given more than once",
            ),
            (
                &["--ngrok", "--ngrok=false"],
                "--ngrok: is given more than once",
            ),
            (&[""], "an empty word stands among the flags"),
            (
                &["--no-such-thing"],
                "--no-such-thing: there is no such flag (--help lists them)",
            ),
            (
                &["--model-ID", "x"],
                "--model-ID: there is no such flag; did you mean --model-id? (--help lists them)",
            ),
        ] {
            assert_eq!(refusal(words), line);
        }
    }
}
