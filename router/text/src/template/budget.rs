//! How much a template may build while it runs.
//!
//! Fuel counts instructions, and one instruction can double a text, or read a large one to its end. So whatever makes a
//! text or a list is charged for it, here, and so is what only reads them; what is too large by itself, nested too deep,
//! or over the sum of one rendering ends it. Charges come before the work wherever the work could be large.

mod limits;
mod thread_time;

pub(super) use limits::Limits;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::cell::Cell;
use std::time::Duration;
use thread_time::thread_time;

/// What reading an item of a list counts.
const ITEM_READ: usize = 32;
/// What reading any value counts.
const VALUE_READ: usize = 16;
/// Bytes of one text.
pub(super) const TEXT_LIMIT: usize = 32 << 20;
/// Items of one list.
pub(super) const ITEM_LIMIT: usize = 1 << 20;
/// What an item of a list is charged with.
pub(super) const ITEM_BYTES: usize = 24;
/// What a macro is charged with, whenever its definition is run.
const MACRO_BYTES: usize = 1024;
/// Lists and objects within each other, bodies' own depth included. Dropping them needs a stack frame each.
const DEPTH_LIMIT: usize = 128;
/// Values within one list or object.
const NODE_LIMIT: usize = 1 << 20;
/// How often the clock is looked at: one charge counts one, and so does each of so many bytes.
const CHARGES_PER_LOOK: usize = 1024;
const BYTES_PER_CHARGE: usize = 4096;

/// What this thread's rendering has left.
#[derive(Clone, Copy, Debug)]
struct Left {
    bytes: u64,
    /// What `bytes` was at the start.
    limit: u64,
    reads: u64,
    /// Macros defined so far.
    macros: usize,
    /// When its time is up, by the thread's clock.
    until: Duration,
    /// Charges until the next look at the clock.
    until_look: usize,
}

thread_local! {
    static LEFT: Cell<Left> = const {
        Cell::new(Left {
            bytes: 0,
            limit: 0,
            reads: 0,
            macros: 0,
            until: Duration::MAX,
            until_look: 0,
        })
    };
}

/// Runs a rendering within `limits`, and takes its time from them. It stays on its thread, and none runs inside another.
pub(super) fn within<T>(limits: &mut Limits, rendering: impl FnOnce() -> T) -> T {
    let start = thread_time();
    LEFT.set(Left {
        bytes: limits.bytes,
        limit: limits.bytes,
        reads: limits.reads,
        macros: 0,
        until: start.saturating_add(limits.time),
        until_look: CHARGES_PER_LOOK,
    });
    let result = rendering();
    let spent = thread_time().saturating_sub(start);
    limits.time = limits.time.saturating_sub(spent);
    result
}

/// Ends a rendering whose time is up: the sums bound what it does, and not how long a machine needs for it.
fn look_at_the_clock(left: &mut Left, bytes: usize) -> Result<(), Error> {
    match left.until_look.checked_sub(1 + bytes / BYTES_PER_CHARGE) {
        Some(until_look) => left.until_look = until_look,
        None if thread_time() > left.until => return Err(Error::from(ErrorKind::OutOfFuel)),
        None => left.until_look = CHARGES_PER_LOOK,
    }
    Ok(())
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

/// Charges for building `bytes` more.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    let mut left = LEFT.get();
    look_at_the_clock(&mut left, bytes)?;
    match left.bytes.checked_sub(bytes as u64) {
        Some(bytes) => {
            LEFT.set(Left { bytes, ..left });
            Ok(())
        }
        None => Err(TooMuch::error(
            usize::try_from(left.limit).unwrap_or(usize::MAX),
        )),
    }
}

/// Charges for reading `bytes` over.
pub(super) fn read_bytes(bytes: usize) -> Result<(), Error> {
    let mut left = LEFT.get();
    look_at_the_clock(&mut left, bytes)?;
    match left.reads.checked_sub(bytes as u64) {
        Some(reads) => {
            LEFT.set(Left { reads, ..left });
            Ok(())
        }
        None => Err(Error::from(ErrorKind::OutOfFuel)),
    }
}

/// What going once over a value counts, without what is in its items.
fn size(value: &Value) -> usize {
    let inside = match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            value.len().unwrap_or(ITEM_LIMIT).saturating_mul(ITEM_READ)
        }
        _ => 0,
    };
    inside.saturating_add(VALUE_READ)
}

/// Charges for going once over a text's bytes or a list's items.
pub(super) fn read(value: &Value) -> Result<(), Error> {
    read_bytes(size(value))
}

/// The same for several.
pub(super) fn read_all(values: &[Value]) -> Result<(), Error> {
    values.iter().try_for_each(read)
}

/// Charges for reading a value with all that is in it.
pub(super) fn read_nested(value: &Value) -> Result<(), Error> {
    nested_size(value).map(drop)
}

/// The same, and says what it was.
pub(super) fn nested_size(value: &Value) -> Result<usize, Error> {
    let mut sum = 0;
    read_within(value, 0, &mut sum)?;
    Ok(sum)
}

fn read_within(value: &Value, depth: usize, sum: &mut usize) -> Result<(), Error> {
    let own = size(value);
    read_bytes(own)?;
    *sum = sum.saturating_add(own);
    if depth > DEPTH_LIMIT {
        return Err(refused("lists or objects nested too deep"));
    }
    let is_map = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => false,
        ValueKind::Map => true,
        _ => return Ok(()),
    };
    for item in value.try_iter().into_iter().flatten() {
        if is_map {
            read_within(&value.get_item(&item)?, depth + 1, sum)?;
        }
        read_within(&item, depth + 1, sum)?;
    }
    Ok(())
}

/// Charges for comparing two values: texts to the end of the shorter, lists and objects as a whole.
pub(super) fn read_pair(left: &Value, right: &Value) -> Result<(), Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        return read_bytes(VALUE_READ + left.len().min(right.len()));
    }
    let is_large = |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map
        ) && value.len() != Some(0)
    };
    read_bytes(VALUE_READ)?;
    if is_large(left) && is_large(right) {
        read_nested(left)?;
        read_nested(right)?;
    }
    Ok(())
}

/// Charges for one more macro. Those that there are already may have to be copied.
pub(super) fn define_macro() -> Result<(), Error> {
    let left = LEFT.get();
    LEFT.set(Left {
        macros: left.macros + 1,
        ..left
    });
    charge(MACRO_BYTES)?;
    read_bytes(left.macros.saturating_mul(ITEM_READ))
}

fn refused(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
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
                return Err(too_many_items());
            }
            // What holds them has a place of its own.
            items * ITEM_BYTES + 2 * ITEM_BYTES
        }
        _ => return Ok(()),
    };
    charge(bytes)
}

/// Charges for a new list or object with all that is in it, and refuses what is nested too deep.
pub(super) fn weigh_nested(value: &Value) -> Result<(), Error> {
    let mut nodes = 0;
    walk(value, 0, &mut nodes)?;
    read_bytes(nodes * ITEM_READ)?;
    charge(nodes * ITEM_BYTES)
}

/// Whether a value can be changed while others hold it: namespaces, and loops (`loop.changed`, and their lists).
/// Such a value could come to hold itself and never be freed, or hold another in a chain without end; so no
/// value may hold one.
pub(super) fn is_changeable(value: &Value) -> bool {
    value.as_object().is_some_and(|object| {
        let name = object.type_name();
        name.ends_with("::Namespace") || name.ends_with("::Loop")
    })
}

/// Refuses a namespace or a loop that something is to hold.
pub(super) fn refuse_changeable(value: &Value) -> Result<(), Error> {
    if is_changeable(value) {
        return Err(refused(
            "a namespace or a loop cannot be put into another value",
        ));
    }
    Ok(())
}

/// Keys are hashed, so they are no lists or objects; as in Python.
fn refuse_key(key: &Value) -> Result<(), Error> {
    match key.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map | ValueKind::Plain => Err(refused(
            "a list or an object cannot be a key (unhashable type)",
        )),
        _ => Ok(()),
    }
}

fn walk(value: &Value, depth: usize, nodes: &mut usize) -> Result<(), Error> {
    *nodes += 1;
    if *nodes > NODE_LIMIT {
        return Err(refused("a list or object of too many values"));
    }
    let is_map = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => false,
        ValueKind::Map => true,
        _ => return Ok(()),
    };
    refuse_changeable(value)?;
    if depth > DEPTH_LIMIT {
        return Err(refused("lists or objects nested too deep"));
    }
    let Ok(items) = value.try_iter() else {
        return Ok(());
    };
    for item in items {
        if is_map {
            refuse_key(&item)?;
            walk(&value.get_item(&item)?, depth + 1, nodes)?;
        } else {
            walk(&item, depth + 1, nodes)?;
        }
    }
    Ok(())
}

/// The items as a list: as many as a list may have. What the engine makes item by item, whenever it is asked, is made
/// once.
pub(super) fn collected(items: impl Iterator<Item = Value>) -> Result<Value, Error> {
    let mut list = Vec::new();
    for item in items {
        if list.len() == ITEM_LIMIT {
            return Err(too_many_items());
        }
        list.push(item);
    }
    Ok(Value::from(list))
}

pub(super) fn too_many_items() -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("a list of more than {ITEM_LIMIT} items"),
    )
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
