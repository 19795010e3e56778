//! How much a template may build while it runs.
//!
//! Fuel counts instructions, and one instruction can double a text. So whatever makes a text or a list is charged for
//! it, here; what is too large by itself, nested too deep, or over the sum of one rendering ends it.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::cell::Cell;

/// Bytes of one text.
pub(super) const TEXT_LIMIT: usize = 32 << 20;
/// Bytes that one rendering may build in all, and so may hold; and write, into variables and out.
const SUM_LIMIT: u64 = 256 << 20;
/// On top of it for long chats.
const EXTRA_LIMIT: u64 = 1792 << 20;
/// The same for the small conversations of probes.
pub(super) const PROBE_LIMIT: u64 = 16 << 20;
/// Items of one list.
const ITEM_LIMIT: usize = 1 << 20;
/// What an item of a list is charged with.
const ITEM_BYTES: usize = 24;
/// Lists and objects within each other, bodies' own depth included. Dropping them needs a stack frame each.
const DEPTH_LIMIT: usize = 128;
/// Values within one list or object.
const NODE_LIMIT: usize = 1 << 20;

/// What a rendering over messages of so many bytes may build. A template may collect the prompt in a variable, message by
/// message: that is half the square.
pub(super) fn limit(num_messages: usize, bytes: usize) -> u64 {
    let square = (num_messages as u64).saturating_mul(bytes as u64);
    SUM_LIMIT + square.saturating_mul(2).min(EXTRA_LIMIT)
}

thread_local! {
    /// Bytes that this thread's rendering may still build, and had at its start.
    static LEFT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Runs a rendering that may build `limit` bytes. It stays on its thread, and none runs inside another.
pub(super) fn within<T>(limit: u64, rendering: impl FnOnce() -> T) -> T {
    LEFT.set((limit, limit));
    rendering()
}

/// A template built or wrote more than it may.
#[derive(Debug, thiserror::Error)]
#[error("more than {limit} bytes")]
pub(super) struct TooMuch {
    pub(super) limit: usize,
}

impl TooMuch {
    pub(super) fn error(limit: usize) -> Error {
        Error::new(ErrorKind::InvalidOperation, "too much text").with_source(Self { limit })
    }
}

/// Charges for `bytes` more.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    let (left, limit) = LEFT.get();
    match left.checked_sub(bytes as u64) {
        Some(left) => {
            LEFT.set((left, limit));
            Ok(())
        }
        None => Err(TooMuch::error(usize::try_from(limit).unwrap_or(usize::MAX))),
    }
}

/// Charges for a value as large as it is by itself: texts by bytes, lists by items.
pub(super) fn weigh(value: &Value) -> Result<(), Error> {
    let bytes = match value.kind() {
        ValueKind::String => {
            let bytes = value.as_str().map_or(0, str::len);
            if bytes > TEXT_LIMIT {
                return Err(TooMuch::error(TEXT_LIMIT));
            }
            bytes
        }
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            let items = value.len().unwrap_or(0);
            if items > ITEM_LIMIT {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("a list of more than {ITEM_LIMIT} items"),
                ));
            }
            items * ITEM_BYTES
        }
        _ => return Ok(()),
    };
    charge(bytes)
}

/// Charges for a new list or object with all that is in it, and refuses what is nested too deep.
pub(super) fn weigh_nested(value: &Value) -> Result<(), Error> {
    let mut nodes = 0;
    walk(value, 0, &mut nodes)?;
    charge(nodes * ITEM_BYTES)
}

/// A namespace is the one thing that can be changed, so the one that could hold itself and never be freed: nothing
/// holds one.
pub(super) fn is_namespace(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Refuses a namespace that something is to hold.
pub(super) fn refuse_namespace(value: &Value) -> Result<(), Error> {
    if is_namespace(value) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "a namespace cannot be put into another value",
        ));
    }
    Ok(())
}

fn walk(value: &Value, depth: usize, nodes: &mut usize) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidOperation, what.to_owned()));
    *nodes += 1;
    if *nodes > NODE_LIMIT {
        return refuse("a list or object of too many values");
    }
    let is_map = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => false,
        ValueKind::Map => true,
        _ => return Ok(()),
    };
    refuse_namespace(value)?;
    if depth > DEPTH_LIMIT {
        return refuse("lists or objects nested too deep");
    }
    let Ok(items) = value.try_iter() else {
        return Ok(());
    };
    for item in items {
        if is_map {
            walk(&value.get_item(&item)?, depth + 1, nodes)?;
        } else {
            walk(&item, depth + 1, nodes)?;
        }
    }
    Ok(())
}

/// Collects a text up to [`TEXT_LIMIT`].
#[derive(Debug, Default)]
pub(super) struct Growing(String);

impl Growing {
    pub(super) fn push(&mut self, text: &str) -> Result<(), Error> {
        if self.0.len() + text.len() > TEXT_LIMIT {
            return Err(TooMuch::error(TEXT_LIMIT));
        }
        self.0.push_str(text);
        Ok(())
    }

    /// `text`, `count` times.
    pub(super) fn repeat(&mut self, text: &str, count: usize) -> Result<(), Error> {
        if self
            .0
            .len()
            .saturating_add(text.len().saturating_mul(count))
            > TEXT_LIMIT
        {
            return Err(TooMuch::error(TEXT_LIMIT));
        }
        for _ in 0..count {
            self.0.push_str(text);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}
