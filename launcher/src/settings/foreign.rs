//! Flags that people know from vLLM, `SGLang` and llama.cpp, and what they are called here. None is taken silently: where the
//! words are alike the numbers often mean something else.

use super::foreign_flags::{Here, TABLE};
use crate::flags::Flags;
use Here::{Is, Near, Not};
use clap::CommandFactory;
use std::ffi::OsString;

/// What is said of a word that is none of ours; `None` if no other server has it either.
fn here(typed: &str) -> Option<Here> {
    // vLLM takes `_` for `-`, and `--flag.part` for a part of a JSON value.
    let name = if typed.starts_with("--") {
        typed.split('.').next().unwrap_or(typed).replace('_', "-")
    } else {
        typed.to_owned()
    };
    let found = TABLE
        .iter()
        .find(|(names, _)| names.split(' ').any(|known| known == name));
    found.map(|(_, here)| *here)
}

/// One line about all that was typed for another server; `None`: nothing was. Nothing is missed by looking at the words
/// alone: a value never begins with `-` but for numbers, and after `--` nothing is taken.
pub(super) fn refusal(arguments: &[OsString]) -> Option<String> {
    let words: Vec<&str> = arguments
        .iter()
        .skip(1)
        .map_while(|word| word.to_str().filter(|word| *word != "--"))
        .collect();
    let mut parts = Vec::new();
    let first = words.iter().copied().find(|word| *word != "serve");
    if let Some(word) = first.filter(|word| !word.starts_with('-')) {
        parts.push(positional(word));
    }
    for (place, word) in words.iter().enumerate() {
        let (flag, attached) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (*word, None),
        };
        let Some(here) = here(flag) else { continue };
        let next = words.get(place + 1).copied();
        let value = attached.or(next.filter(|next| !next.starts_with('-')));
        let part = match (here, value) {
            (Is(ours), Some(value)) if is_taken(ours, value) => {
                format!("{flag} {value}: here it is {ours} {value}")
            }
            (Is(ours), _) => format!("{flag}: here it is {ours}"),
            (Near(ours, how), _) => format!("{flag}: here it is {ours}, {how}"),
            (Not(why), _) => format!("{flag}: no such flag here ({why})"),
        };
        parts.push(part);
    }
    // A word alone is clap's to refuse: it may be a value of a flag before it.
    let is_known = parts.len() > usize::from(first.is_some_and(|word| !word.starts_with('-')));
    is_known.then(|| parts.join("; "))
}

/// Whether the flag here takes the value: `0`, `auto` or `32k` may mean something there alone.
fn is_taken(ours: &str, value: &str) -> bool {
    let command = Flags::command().mut_args(|argument| argument.env(None::<&'static str>));
    let words = ["launcher".to_owned(), format!("{ours}={value}")];
    value != "0" && command.try_get_matches_from(words).is_ok()
}

/// A word that stands alone.
pub(super) fn positional(word: &str) -> String {
    if word.is_empty() {
        return "an empty word stands among the flags".to_owned();
    }
    format!("{word}: a model is given with a flag: --model-id {word}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn said(words: &[&str]) -> Option<String> {
        let words: Vec<OsString> = ["launcher"]
            .iter()
            .chain(words)
            .map(OsString::from)
            .collect();
        refusal(&words)
    }

    #[test]
    fn the_table_names_flags_that_are_here_and_refuses_none_of_ours() {
        let command = Flags::command();
        let ours: HashSet<String> = command
            .get_arguments()
            .flat_map(|argument| {
                let long = argument.get_long().map(|name| format!("--{name}"));
                let short = argument.get_short().map(|letter| format!("-{letter}"));
                [long, short].into_iter().flatten()
            })
            .collect();
        let mut seen = HashSet::new();
        for (names, here) in &TABLE {
            for name in names.split(' ') {
                assert!(!ours.contains(name), "{name} is ours");
                assert!(seen.insert(name), "{name} is there twice");
                assert!(name.starts_with('-'), "{name}");
            }
            let (flag, words) = match here {
                Is(flag) => (Some(flag), ""),
                Near(flag, how) => (Some(flag), *how),
                Not(why) => (None, *why),
            };
            let named = words
                .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
                .filter(|word| word.starts_with("--"));
            for flag in flag.into_iter().copied().chain(named) {
                assert!(ours.contains(flag), "{flag} is no flag");
            }
        }
    }

    #[test]
    fn each_is_told_by_its_name_here_all_in_one_line() {
        for (words, line) in [
            (
                &["--max-model-len", "4096"][..],
                "--max-model-len 4096: here it is --max-total-tokens 4096",
            ),
            (
                &["--max_model_len=4096"],
                "--max_model_len 4096: here it is --max-total-tokens 4096",
            ),
            (&["-tp", "2"], "-tp 2: here it is --num-shard 2"),
            // Values that mean something there alone are not handed on.
            (&["-c", "0"], "-c: here it is --max-total-tokens"),
            (
                &["--max-model-len=32k"],
                "--max-model-len: here it is --max-total-tokens",
            ),
            (
                &["--no-enable-prefix-caching", "serve"],
                "--no-enable-prefix-caching: here it is --disable-prefix-caching",
            ),
            (
                &["--gpu-memory-utilization", "0.9"],
                "--gpu-memory-utilization: here it is --kv-cache-memory, as an amount (`4GiB`) and not as a share",
            ),
            (
                &["--enable-prefix-caching"],
                "--enable-prefix-caching: no such flag here (not needed: prefixes are cached unless \
                 --disable-prefix-caching is given)",
            ),
            (
                &["serve", "org/name", "--host", "::", "-ngl", "99"],
                "org/name: a model is given with a flag: --model-id org/name; --host ::: here it is --hostname ::; \
                 -ngl: here it is --device, cuda, which computes all layers there",
            ),
            (
                &["--structured-outputs-config.backend", "xgrammar"],
                "--structured-outputs-config.backend: no such flag here (not needed: grammars have one engine)",
            ),
        ] {
            assert_eq!(said(words).as_deref(), Some(line));
        }
        for words in [
            &["--model-id", "x", "-p", "1", "--port=-1"][..],
            &["serve"],
            &["org/name"],
            &["--", "-m"],
            &["--api-key=--host"],
        ] {
            assert_eq!(said(words), None, "{words:?}");
        }
    }
}
