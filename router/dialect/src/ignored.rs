//! The keys of a request that nothing knows, as the `x-headrace-ignored` header names them, and the known ones that may
//! have been meant.

use std::collections::HashSet;

/// Bytes of the header at most, but for the closing count.
const HEADER_BYTES: usize = 1024;

/// Bytes of one key's written form at most.
const KEY_BYTES: usize = 100;

/// Keys for which a known one is looked for.
const MOST_MEANT: usize = 8;

/// Unknown keys, in order, each named once. What the header has no room for is only counted, so a request of a
/// hundred thousand unknown keys costs what a request of a hundred costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    keys: Vec<String>,
    /// For each of the first keys the known one that may have been meant.
    meant: Vec<Option<String>>,
    seen: HashSet<String>,
    /// Bytes of the header so far.
    bytes: usize,
    /// Keys after the header was full.
    more: usize,
}

impl Ignored {
    /// Adds the unknown key `key` of the object at `path` (empty for the body itself). `meant` looks for the known key
    /// that may have been meant; only the first keys are worth that.
    pub fn push(&mut self, path: &str, key: &str, meant: impl FnOnce() -> Option<String>) {
        if self.more > 0 {
            self.more += 1;
            return;
        }
        let mut name = path.to_owned();
        if !name.is_empty() {
            name.push('.');
        }
        let room = KEY_BYTES.saturating_sub(name.len()).max(KEY_BYTES / 2);
        write_key(&mut name, key, room);
        self.add(name, meant);
    }

    /// Takes over what was ignored in the part of the request at `path`.
    pub fn absorb(&mut self, path: &str, part: &Self) {
        for (key, meant) in part.named() {
            self.add(format!("{path}.{key}"), || {
                meant.map(|meant| format!("{path}.{meant}"))
            });
        }
        self.more += part.more;
    }

    /// Takes over what was ignored elsewhere in the request.
    pub fn take(&mut self, other: &Self) {
        for (key, meant) in other.named() {
            self.add(key.to_owned(), || meant.map(str::to_owned));
        }
        self.more += other.more;
    }

    /// Adds a name as the header writes it.
    fn add(&mut self, name: String, meant: impl FnOnce() -> Option<String>) {
        if self.more > 0 {
            self.more += 1;
            return;
        }
        if self.seen.contains(&name) {
            return;
        }
        let bytes = self.bytes + name.len() + 2;
        if bytes > HEADER_BYTES {
            self.more = 1;
            return;
        }
        self.bytes = bytes;
        self.seen.insert(name.clone());
        if self.keys.len() < MOST_MEANT {
            self.meant.push(meant());
        }
        self.keys.push(name);
    }

    /// The named keys as the header writes them.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Each named key with the path of the known one that may have been meant.
    pub fn named(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let meant = self.meant.iter().map(Option::as_deref);
        let keys = self.keys.iter().map(String::as_str);
        keys.zip(meant.chain(std::iter::repeat(None)))
    }

    /// Nothing was ignored.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.more == 0
    }

    /// The header's value, ASCII; `None` if nothing was ignored.
    pub fn header(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let line = self.keys.join(", ");
        Some(match self.more {
            0 => line,
            // No written key holds a space, so the count is none.
            more => format!("{line}, and {more} more"),
        })
    }
}

/// Appends the key: what a header's list cannot hold is percent-encoded, an empty key is `""`.
fn write_key(name: &mut String, key: &str, room: usize) {
    if key.is_empty() {
        name.push_str("\"\"");
        return;
    }
    let end = name.len() + room;
    for byte in key.bytes() {
        let is_plain = byte.is_ascii_graphic() && !matches!(byte, b',' | b'%' | b'"');
        let written = if is_plain {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        };
        if name.len() + written.len() > end {
            break;
        }
        name.push_str(&written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_a_header_cannot_hold_are_percent_encoded() {
        let mut ignored = Ignored::default();
        for key in ["é", "\0", "", "a,b", "a\r\nx: y", "50%", "\"\"", "é"] {
            ignored.push("", key, || None);
        }
        ignored.push("parameters", "", || None);
        assert_eq!(
            ignored.header().unwrap(),
            "%C3%A9, %00, \"\", a%2Cb, a%0D%0Ax:%20y, 50%25, %22%22, parameters.\"\""
        );
        assert_eq!(Ignored::default().header(), None);
    }

    #[test]
    fn what_the_header_has_no_room_for_is_counted() {
        let mut ignored = Ignored::default();
        ignored.push("", &"x".repeat(2_000_000), || None);
        for key in 0..300_000 {
            ignored.push("messages[0]", &format!("k{key}"), || None);
        }
        let line = ignored.header().unwrap();
        assert!(line.starts_with(&format!("{}, messages[0].k0, ", "x".repeat(KEY_BYTES))));
        assert!(line.len() < HEADER_BYTES + 30, "{}", line.len());
        let named = ignored.keys().len();
        assert!(line.ends_with(&format!(", and {} more", 300_001 - named)));
        assert!(named < 100, "memory is bounded, too");
    }

    #[test]
    fn a_part_is_named_by_its_place() {
        let mut part = Ignored::default();
        part.push("parameters", "é", || None);
        part.push("", "x", || None);
        let mut whole = Ignored::default();
        whole.absorb("instances[1]", &part);
        assert_eq!(
            whole.header().unwrap(),
            "instances[1].parameters.%C3%A9, instances[1].x"
        );
        for index in 0..100 {
            whole.absorb(&format!("instances[{index}]"), &part);
        }
        let line = whole.header().unwrap();
        assert!(line.len() < HEADER_BYTES + 30, "{}", line.len());
        let named = whole.keys().len();
        assert!(
            line.ends_with(&format!(", and {} more", 200 - named)),
            "{line}"
        );
    }

    #[test]
    fn a_repeated_key_is_named_once() {
        let mut ignored = Ignored::default();
        for _ in 0..300_000 {
            ignored.push("", "a", || None);
        }
        assert_eq!(ignored.header().unwrap(), "a");
    }

    #[test]
    fn what_may_have_been_meant_is_looked_for_a_few_times_only() {
        let mut part = Ignored::default();
        let mut looks = 0;
        for key in 0..100 {
            part.push("", &format!("k{key}"), || {
                looks += 1;
                (key == 1).then(|| "known".to_owned())
            });
        }
        assert_eq!(looks, MOST_MEANT);
        let mut whole = Ignored::default();
        whole.absorb("instances[0]", &part);
        let named: Vec<_> = whole.named().take(3).collect();
        assert_eq!(
            named,
            [
                ("instances[0].k0", None),
                ("instances[0].k1", Some("instances[0].known")),
                ("instances[0].k2", None)
            ]
        );
        assert_eq!(whole.named().count(), whole.keys().len());
    }
}
