//! What a stream must show, said as plainly as possible: no state is carried from one token to the next, everything
//! is searched in the whole text again and again.

use crate::family::Family;
use crate::made_up::{End, Stream};
use headrace_text::StopMode;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Every proper start of every character's bytes.
static STARTS: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| {
    let mut starts = HashSet::new();
    for character in '\u{80}'..=char::MAX {
        let text = character.to_string();
        for length in 1..text.len() {
            starts.insert(text.as_bytes()[..length].to_vec());
        }
    }
    starts
});

/// A text given to the stops in one go.
pub(crate) struct Push {
    pub(crate) text: String,
    /// A special token's: seen by stops only.
    pub(crate) is_hidden: bool,
}

/// What is visible after a push.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) matched: Option<usize>,
}

/// The characters that are whole; one that may still be completed is left out.
pub(crate) fn complete_text(bytes: &[u8]) -> String {
    let held = (1..=3.min(bytes.len()))
        .rev()
        .find(|&length| STARTS.contains(&bytes[bytes.len() - length..]));
    String::from_utf8_lossy(&bytes[..bytes.len() - held.unwrap_or(0)]).into_owned()
}

/// The pushes of every token.
pub(crate) fn pushes(family: &Family, stream: &Stream) -> Vec<Vec<Push>> {
    let visible = |text: &str| Push {
        text: text.to_owned(),
        is_hidden: false,
    };
    let mut out = Vec::new();
    for (index, &id) in stream.ids.iter().enumerate() {
        let before = family.text_bytes(stream.last, &stream.ids[..index]);
        let shown_before = complete_text(&before);
        let is_end_id = index + 1 == stream.ids.len() && stream.end != End::Length;
        let mut with = family.text_bytes(stream.last, &stream.ids[..=index]);
        if is_end_id && stream.mode == StopMode::CutStop {
            with = before;
        }
        let is_last = index + 1 == stream.ids.len();
        let shown = if is_last {
            String::from_utf8_lossy(&with).into_owned()
        } else {
            complete_text(&with)
        };
        let mut of_token = vec![visible(&shown[shown_before.len()..])];
        if family.is_special(id) && !is_end_id {
            of_token.push(Push {
                text: String::from_utf8(family.bytes(id).to_vec()).unwrap(),
                is_hidden: true,
            });
        }
        out.push(of_token);
    }
    out
}

/// What is visible after the last of `pushes`. A stop is decided at the first push after which any is complete; of
/// those complete, the earliest start wins, then the longest. Without one, the longest end of the text that may
/// start a stop is held back, unless stops are kept or nothing will follow.
pub(crate) fn shown(pushes: &[&Push], stops: &[String], mode: StopMode, is_over: bool) -> Shown {
    let mut raw = String::new();
    let mut hidden = Vec::new();
    for push in pushes {
        raw.push_str(&push.text);
        hidden.extend(std::iter::repeat_n(push.is_hidden, push.text.len()));
        let mut best: Option<(usize, usize, usize)> = None;
        for (index, stop) in stops.iter().enumerate() {
            if let Some(start) = raw.find(stop.as_str()) {
                let is_better = match best {
                    None => true,
                    Some((_, other, length)) => {
                        start < other || (start == other && stop.len() > length)
                    }
                };
                if is_better {
                    best = Some((index, start, stop.len()));
                }
            }
        }
        if let Some((index, start, length)) = best {
            let end = match mode {
                StopMode::CutStop => start,
                StopMode::KeepStop => start + length,
            };
            return Shown {
                text: visible(&raw, &hidden, end),
                matched: Some(index),
            };
        }
    }
    let held = if is_over || mode != StopMode::CutStop {
        0
    } else {
        (0..raw.len())
            .filter(|start| raw.is_char_boundary(*start))
            .find(|&start| stops.iter().any(|stop| stop.starts_with(&raw[start..])))
            .map_or(0, |start| raw.len() - start)
    };
    Shown {
        text: visible(&raw, &hidden, raw.len() - held),
        matched: None,
    }
}

fn visible(raw: &str, hidden: &[bool], end: usize) -> String {
    let bytes = raw.bytes().zip(hidden).take(end);
    let bytes = bytes.filter(|(_, hidden)| !**hidden).map(|(byte, _)| byte);
    String::from_utf8(bytes.collect()).unwrap()
}
