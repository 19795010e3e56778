//! Metadata values of a GGUF file.

use super::cursor::Cursor;
use crate::CheckpointError;

/// A metadata value with the type that the file gives it.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "the variants are the format's types, one to one"
)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array, all of one type. Arrays of arrays are refused, as in llama.cpp.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "the variants are the format's types, one to one"
)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// Any integer type whose value is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::U64(value) => Some(value),
            Self::I8(value) => u64::try_from(value).ok(),
            Self::I16(value) => u64::try_from(value).ok(),
            Self::I32(value) => u64::try_from(value).ok(),
            Self::I64(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// A float of either width. An `f32` becomes the number that its shortest decimal form names, so `1e-5`
    /// stays `1e-5` in a config; rounded to `f32` it is the same bits.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(value) => value.to_string().parse().ok(),
            Self::F64(value) => Some(value),
            _ => None,
        }
    }

    /// A string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(value) => Some(value),
            _ => None,
        }
    }

    /// A boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// An array.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// For messages: `u32`, `array of string` …
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
            Self::Array(Array::U8(_)) => "array of u8",
            Self::Array(Array::I8(_)) => "array of i8",
            Self::Array(Array::U16(_)) => "array of u16",
            Self::Array(Array::I16(_)) => "array of i16",
            Self::Array(Array::U32(_)) => "array of u32",
            Self::Array(Array::I32(_)) => "array of i32",
            Self::Array(Array::F32(_)) => "array of f32",
            Self::Array(Array::Bool(_)) => "array of bool",
            Self::Array(Array::String(_)) => "array of string",
            Self::Array(Array::U64(_)) => "array of u64",
            Self::Array(Array::I64(_)) => "array of i64",
            Self::Array(Array::F64(_)) => "array of f64",
        }
    }

    /// Reads the type and the value that follow a key.
    pub(super) fn read(cursor: &mut Cursor, key: &str) -> Result<Self, CheckpointError> {
        let type_id = cursor.u32(key)?;
        Ok(match type_id {
            0 => Self::U8(u8::from_le_bytes(cursor.bytes(key)?)),
            1 => Self::I8(i8::from_le_bytes(cursor.bytes(key)?)),
            2 => Self::U16(u16::from_le_bytes(cursor.bytes(key)?)),
            3 => Self::I16(i16::from_le_bytes(cursor.bytes(key)?)),
            4 => Self::U32(cursor.u32(key)?),
            5 => Self::I32(i32::from_le_bytes(cursor.bytes(key)?)),
            6 => Self::F32(f32::from_le_bytes(cursor.bytes(key)?)),
            7 => Self::Bool(read_bool(cursor, key)?),
            8 => Self::String(cursor.string(key)?),
            9 => Self::Array(Array::read(cursor, key)?),
            10 => Self::U64(cursor.u64(key)?),
            11 => Self::I64(i64::from_le_bytes(cursor.bytes(key)?)),
            12 => Self::F64(f64::from_le_bytes(cursor.bytes(key)?)),
            other => {
                let problem = format!("has the unknown value type {other}");
                return Err(CheckpointError::bad_key(cursor.path(), key, problem));
            }
        })
    }
}

impl Array {
    /// Strings: tokens, merges.
    pub fn as_strings(&self) -> Option<&[String]> {
        match self {
            Self::String(items) => Some(items),
            _ => None,
        }
    }

    /// Floats: scores.
    pub fn as_f32s(&self) -> Option<&[f32]> {
        match self {
            Self::F32(items) => Some(items),
            _ => None,
        }
    }

    /// Signed integers: token types.
    pub fn as_i32s(&self) -> Option<&[i32]> {
        match self {
            Self::I32(items) => Some(items),
            _ => None,
        }
    }

    /// Items.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(items) => items.len(),
            Self::I8(items) => items.len(),
            Self::U16(items) => items.len(),
            Self::I16(items) => items.len(),
            Self::U32(items) => items.len(),
            Self::I32(items) => items.len(),
            Self::F32(items) => items.len(),
            Self::Bool(items) => items.len(),
            Self::String(items) => items.len(),
            Self::U64(items) => items.len(),
            Self::I64(items) => items.len(),
            Self::F64(items) => items.len(),
        }
    }

    /// No items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(cursor: &mut Cursor, key: &str) -> Result<Self, CheckpointError> {
        let type_id = cursor.u32(key)?;
        let count = cursor.u64(key)?;
        Ok(match type_id {
            0 => Self::U8(items(cursor, key, count, 1, |c| {
                Ok(u8::from_le_bytes(c.bytes(key)?))
            })?),
            1 => Self::I8(items(cursor, key, count, 1, |c| {
                Ok(i8::from_le_bytes(c.bytes(key)?))
            })?),
            2 => Self::U16(items(cursor, key, count, 2, |c| {
                Ok(u16::from_le_bytes(c.bytes(key)?))
            })?),
            3 => Self::I16(items(cursor, key, count, 2, |c| {
                Ok(i16::from_le_bytes(c.bytes(key)?))
            })?),
            4 => Self::U32(items(cursor, key, count, 4, |c| c.u32(key))?),
            5 => Self::I32(items(cursor, key, count, 4, |c| {
                Ok(i32::from_le_bytes(c.bytes(key)?))
            })?),
            6 => Self::F32(items(cursor, key, count, 4, |c| {
                Ok(f32::from_le_bytes(c.bytes(key)?))
            })?),
            7 => Self::Bool(items(cursor, key, count, 1, |c| read_bool(c, key))?),
            // A string takes at least its length.
            8 => Self::String(items(cursor, key, count, 8, |c| c.string(key))?),
            10 => Self::U64(items(cursor, key, count, 8, |c| c.u64(key))?),
            11 => Self::I64(items(cursor, key, count, 8, |c| {
                Ok(i64::from_le_bytes(c.bytes(key)?))
            })?),
            12 => Self::F64(items(cursor, key, count, 8, |c| {
                Ok(f64::from_le_bytes(c.bytes(key)?))
            })?),
            9 => {
                let problem = "is an array of arrays, which is not supported";
                return Err(CheckpointError::bad_key(cursor.path(), key, problem));
            }
            other => {
                let problem = format!("has the unknown value type {other} in its array");
                return Err(CheckpointError::bad_key(cursor.path(), key, problem));
            }
        })
    }
}

/// `count` items of at least `item_bytes` in the file each.
fn items<T>(
    cursor: &mut Cursor,
    key: &str,
    count: u64,
    item_bytes: u64,
    mut read: impl FnMut(&mut Cursor) -> Result<T, CheckpointError>,
) -> Result<Vec<T>, CheckpointError> {
    cursor.reserve(count, item_bytes, key)?;
    // The vector grows with what was really read: a count that only looks possible allocates nothing.
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read(cursor)?);
    }
    Ok(items)
}

fn read_bool(cursor: &mut Cursor, key: &str) -> Result<bool, CheckpointError> {
    let [byte] = cursor.bytes(key)?;
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => {
            let problem = format!("must be a boolean (0 or 1), not {other}");
            Err(CheckpointError::bad_key(cursor.path(), key, problem))
        }
    }
}
