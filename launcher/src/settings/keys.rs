//! API keys: plain ones from flags, named ones from a file, one for the operator.
//!
//! No message here shows a key: a line of the file or a place among the flags says which one is meant.

use crate::failure::Failure;
use crate::flags::ServerFlags;
use headrace_control::ApiKey;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Every request is compared with every key, and each name is a metric label.
const MOST_KEYS: usize = 1024;
/// Bytes of a file with as many keys, with room for words about each.
const LONGEST_FILE: u64 = 1 << 20;
/// A name is a metric label and a log field.
const LONGEST_NAME: usize = 64;
/// The operator's, in logs and metrics.
const ADMIN_NAME: &str = "admin";
/// Classes on either side of the default.
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// All keys of a run.
#[derive(Debug, Default)]
pub(super) struct KeyRing {
    pub(super) api_keys: Vec<ApiKey>,
    pub(super) admin_key: Option<String>,
}

/// Where a key was found, for messages.
type Origin = String;

impl KeyRing {
    /// Reads and checks what the flags name.
    pub(super) fn read(flags: &ServerFlags) -> Result<Self, Failure> {
        let mut found: Vec<(Origin, ApiKey)> = Vec::new();
        let several = flags.api_key.len() > 1;
        for (number, key) in (1..).zip(&flags.api_key) {
            let origin = if several {
                format!("--api-key (number {number})")
            } else {
                "--api-key".to_owned()
            };
            let key = usable(key).map_err(|fault| usage(&origin, fault))?;
            found.push((origin, unnamed(key, number)));
        }
        if let Some(path) = &flags.api_key_file {
            read_file(path, &mut found)?;
        }
        if found.len() > MOST_KEYS {
            let count = found.len();
            return Err(Failure::usage(format!(
                "--api-key, --api-key-file: {count} keys; at most {MOST_KEYS} are taken"
            )));
        }
        refuse_duplicates(&found)?;
        let admin_key = match &flags.admin_api_key {
            Some(key) => Some(admin(key, &found)?),
            None => None,
        };
        Ok(Self {
            api_keys: found.into_iter().map(|(_, key)| key).collect(),
            admin_key,
        })
    }
}

fn admin(key: &str, others: &[(Origin, ApiKey)]) -> Result<String, Failure> {
    let key = usable(key).map_err(|fault| usage("--admin-api-key", fault))?;
    match others.iter().find(|(_, other)| other.key == key) {
        Some((origin, _)) => Err(Failure::usage(format!(
            "--admin-api-key: is the key of {origin} too; it must be one of its own"
        ))),
        None => Ok(key.to_owned()),
    }
}

/// The key as a header can carry it.
fn usable(key: &str) -> Result<&str, &'static str> {
    // A header's value has no blanks at its ends; a variable filled from a file often ends with a line feed.
    let key = key.trim();
    if key.is_empty() {
        // An empty key would open the door to everybody who sends an empty one.
        return Err("must not be empty");
    }
    if key.chars().any(char::is_control) {
        return Err("holds a control character, which no header can carry");
    }
    Ok(key)
}

fn unnamed(key: &str, number: usize) -> ApiKey {
    ApiKey {
        name: format!("key-{number}"),
        key: key.to_owned(),
        priority: 0,
    }
}

fn read_file(path: &Path, found: &mut Vec<(Origin, ApiKey)>) -> Result<(), Failure> {
    let flag = format!("--api-key-file {}", path.display());
    let mut text = String::new();
    // Not by its size: it may be a pipe.
    File::open(path)
        .and_then(|file| file.take(LONGEST_FILE + 1).read_to_string(&mut text))
        .map_err(|error| Failure::usage(format!("{flag}: {error}")))?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(Failure::usage(format!(
            "{flag}: longer than {LONGEST_FILE} bytes"
        )));
    }
    let before = found.len();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let origin = format!("{flag}: line {number}");
        let key = read_line(line, found.len() + 1)
            .map_err(|fault| Failure::usage(format!("{origin}: {fault}")))?;
        found.push((origin, key));
    }
    if found.len() == before {
        return Err(Failure::usage(format!("{flag}: holds no key")));
    }
    Ok(())
}

/// `KEY [name=NAME] [priority=CLASS]`. `number`: the key's place among all.
fn read_line(line: &str, number: usize) -> Result<ApiKey, String> {
    let mut words = line.split_whitespace();
    let word = words.next().unwrap_or_default();
    let mut key = unnamed(usable(word)?, number);
    let (mut has_name, mut has_priority) = (false, false);
    for word in words {
        if let Some(name) = word.strip_prefix("name=") {
            if std::mem::replace(&mut has_name, true) {
                return Err("`name=` is there twice".to_owned());
            }
            check_name(name)?;
            name.clone_into(&mut key.name);
        } else if let Some(priority) = word.strip_prefix("priority=") {
            if std::mem::replace(&mut has_priority, true) {
                return Err("`priority=` is there twice".to_owned());
            }
            let class = priority.parse().ok();
            key.priority = class
                .filter(|class| PRIORITIES.contains(class))
                .ok_or_else(|| {
                    let (least, most) = (PRIORITIES.start(), PRIORITIES.end());
                    format!("`priority=` must be a whole number from {least} to {most}")
                })?;
        } else {
            // Not shown: it may be part of a key with a blank in it.
            return Err(
                "after the key only `name=NAME` and `priority=CLASS` may follow; a key in a file has no blanks"
                    .to_owned(),
            );
        }
    }
    Ok(key)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if name.is_empty() || name.len() > LONGEST_NAME || !is_plain {
        return Err(format!(
            "`name=` must be 1 to {LONGEST_NAME} letters, digits, `-`, `_` or `.`, all ASCII"
        ));
    }
    if name == ADMIN_NAME {
        return Err(format!(
            "the name `{ADMIN_NAME}` is that of --admin-api-key"
        ));
    }
    Ok(())
}

fn refuse_duplicates(found: &[(Origin, ApiKey)]) -> Result<(), Failure> {
    let mut keys: HashMap<&str, &str> = HashMap::new();
    let mut names: HashMap<&str, &str> = HashMap::new();
    for (origin, ApiKey { name, key, .. }) in found {
        if let Some(first) = keys.insert(key, origin) {
            let line = format!("{origin}: the key is that of {first} too");
            return Err(Failure::usage(line));
        }
        if let Some(first) = names.insert(name, origin) {
            let line = format!("{origin}: the name {name} is that of {first} too");
            return Err(Failure::usage(line));
        }
    }
    Ok(())
}

fn usage(origin: &str, fault: &str) -> Failure {
    Failure::usage(format!("{origin}: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Flags;
    use clap::Parser;
    use std::fs;

    fn read(arguments: &[&str]) -> Result<KeyRing, String> {
        let flags = Flags::try_parse_from([&["launcher"], arguments].concat()).expect("accepted");
        KeyRing::read(&flags.server).map_err(|failure| failure.to_string())
    }

    fn read_text(text: &str, more: &[&str]) -> Result<KeyRing, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        fs::write(&path, text).expect("written");
        let path = path.to_str().expect("UTF-8");
        read(&[&["--api-key-file", path], more].concat()).map_err(|line| line.replace(path, "keys"))
    }

    fn parts(ring: &KeyRing) -> Vec<(&str, &str, i32)> {
        let keys = ring.api_keys.iter();
        keys.map(|key| (&*key.name, &*key.key, key.priority))
            .collect()
    }

    #[test]
    fn all_of_a_flags_value_is_the_key() {
        let ring = read(&["--api-key", "name=a b priority=3", "--api-key", "x\n"]).expect("sound");
        let expected = [("key-1", "name=a b priority=3", 0), ("key-2", "x", 0)];
        assert_eq!(parts(&ring), expected);
        assert_eq!(ring.admin_key, None);
    }

    #[test]
    fn a_file_names_keys_and_their_classes() {
        let text = "\u{feff}# for the team\n\nplain=key==\n  s3cret\tname=batch.night-1   priority=-2 \r\n\
                    z priority=100\n";
        let ring =
            read_text(text, &["--api-key", "first", "--admin-api-key", "root"]).expect("sound");
        assert_eq!(
            parts(&ring),
            [
                ("key-1", "first", 0),
                ("key-2", "plain=key==", 0),
                ("batch.night-1", "s3cret", -2),
                ("key-4", "z", 100),
            ]
        );
        assert_eq!(ring.admin_key.as_deref(), Some("root"));
    }

    #[test]
    fn faults_name_the_line_and_never_the_key() {
        let long = format!("s3cret name={}", "n".repeat(65));
        for (text, expected) in [
            ("#\n\n", "keys: holds no key"),
            (
                "a\ns3cret\n#\ns3cret name=b",
                "line 4: the key is that of --api-key-file keys: line 2 too",
            ),
            (
                "s3cret name=b\nother name=b",
                "line 2: the name b is that of --api-key-file keys: line 1 too",
            ),
            (
                "s3cret\nother name=key-1",
                "line 2: the name key-1 is that of --api-key-file keys: line 1 too",
            ),
            ("s3cret name=", "line 1: `name=` must be 1 to 64"),
            (&long, "line 1: `name=` must be 1 to 64"),
            ("s3cret name=a\"b", "line 1: `name=` must be 1 to 64"),
            ("s3cret name=é", "line 1: `name=` must be 1 to 64"),
            ("s3cret name=admin", "line 1: the name `admin`"),
            ("s3cret name=a name=b", "line 1: `name=` is there twice"),
            (
                "s3cret priority=1 priority=1",
                "line 1: `priority=` is there twice",
            ),
            (
                "s3cret priority=101",
                "line 1: `priority=` must be a whole number from -100 to 100",
            ),
            (
                "s3cret priority=high",
                "line 1: `priority=` must be a whole number",
            ),
            ("s3cret with a blank", "line 1: after the key only"),
            ("s3\u{1}cret", "line 1: holds a control character"),
        ] {
            let line = read_text(text, &[]).expect_err(text);
            assert!(line.starts_with("--api-key-file keys: "), "{line}");
            assert!(line.contains(expected), "{text:?}: {line}");
            assert!(!line.contains("cret"), "{text:?}: {line}");
        }
        let many: Vec<String> = (0..=MOST_KEYS).map(|number| format!("k{number}")).collect();
        let line = read_text(&many.join("\n"), &[]).expect_err("too many");
        assert!(line.contains("1025 keys; at most 1024"), "{line}");
        let long = "#".repeat(1 + (1 << 20));
        let line = read_text(&long, &[]).expect_err("too long");
        assert_eq!(line, "--api-key-file keys: longer than 1048576 bytes");
        let line = read_text("s3cret", &["--api-key", "s3cret"]).expect_err("twice");
        assert!(
            line.contains("line 1: the key is that of --api-key too"),
            "{line}"
        );
    }

    #[test]
    fn flags_are_checked_too() {
        for (arguments, expected) in [
            (&["--api-key", " "][..], "--api-key: must not be empty"),
            (
                &["--api-key", "a", "--api-key", ""],
                "--api-key (number 2): must not be empty",
            ),
            (
                &["--api-key", "a", "--api-key", "a"],
                "--api-key (number 2): the key is that of --api-key (number 1) too",
            ),
            (
                &["--admin-api-key", ""],
                "--admin-api-key: must not be empty",
            ),
            (
                &["--api-key", "a", "--admin-api-key", "a "],
                "--admin-api-key: is the key of --api-key too; it must be one of its own",
            ),
        ] {
            assert_eq!(read(arguments).expect_err(expected), expected);
        }
    }
}
