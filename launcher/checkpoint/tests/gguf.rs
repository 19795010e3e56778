//! GGUF headers: what is read, and one line for each fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what a test needs and lacks fails it"
)]

mod fixtures;

use fixtures::{GgufBuilder, tiny_llama};
use headrace_checkpoint::CheckpointError;
use headrace_checkpoint::gguf::{Array, Gguf, Value};

fn open(builder: &GgufBuilder) -> Result<Gguf, CheckpointError> {
    open_bytes(&builder.bytes())
}

fn open_bytes(bytes: &[u8]) -> Result<Gguf, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    Gguf::open(&path)
}

/// The error's text without the file, which it must begin with.
fn fault(builder: &GgufBuilder) -> String {
    line(&open(builder).unwrap_err())
}

fn line(error: &CheckpointError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    let (file, rest) = text.split_once(".gguf: ").expect("names the file first");
    assert!(!file.contains(' '), "{text}");
    rest.to_owned()
}

#[test]
fn every_value_type_is_read() {
    let builder = GgufBuilder::new()
        .raw("u8", 0, &[200])
        .raw("i8", 1, &[0xff])
        .raw("u16", 2, &[1, 1])
        .raw("i16", 3, &[0xfe, 0xff])
        .u32("u32", 7)
        .raw("i32", 5, &(-3_i32).to_le_bytes())
        .f32("f32", 0.5)
        .raw("bool", 7, &[1])
        .string("string", "né")
        .raw("u64", 10, &(1_u64 << 40).to_le_bytes())
        .raw("i64", 11, &(-1_i64).to_le_bytes())
        .raw("f64", 12, &2.5_f64.to_le_bytes())
        .strings("strings", &["a", "", "bc"])
        .array("types", 5, 2, &[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])
        .array("scores", 6, 1, &(-1.5_f32).to_le_bytes())
        .array("bools", 7, 2, &[0, 1]);
    for version in [2, 3] {
        let gguf = open_bytes(&{
            let mut bytes = builder.bytes();
            bytes[4] = version;
            bytes
        })
        .unwrap();
        assert_eq!(gguf.version(), u32::from(version));
        let expected = [
            ("u8", Value::U8(200)),
            ("i8", Value::I8(-1)),
            ("u16", Value::U16(257)),
            ("i16", Value::I16(-2)),
            ("u32", Value::U32(7)),
            ("i32", Value::I32(-3)),
            ("f32", Value::F32(0.5)),
            ("bool", Value::Bool(true)),
            ("string", Value::String("né".into())),
            ("u64", Value::U64(1 << 40)),
            ("i64", Value::I64(-1)),
            ("f64", Value::F64(2.5)),
            (
                "strings",
                Value::Array(Array::String(vec!["a".into(), String::new(), "bc".into()])),
            ),
            ("types", Value::Array(Array::I32(vec![1, -1]))),
            ("scores", Value::Array(Array::F32(vec![-1.5]))),
            ("bools", Value::Array(Array::Bool(vec![false, true]))),
        ];
        for (key, value) in expected {
            assert_eq!(gguf.metadata(key), Some(&value), "{key}");
        }
        assert_eq!(gguf.keys().count(), 16);
        assert_eq!(gguf.u32("u8").unwrap(), 200);
        assert_eq!(gguf.optional_u32("absent").unwrap(), None);
        assert_eq!(
            line(&gguf.u32("i8").unwrap_err()),
            "key `i8` must be a non-negative integer below 2^32, not I8(-1)"
        );
        assert_eq!(
            line(&gguf.u32("u64").unwrap_err()),
            "key `u64` must be a non-negative integer below 2^32, not U64(1099511627776)"
        );
        assert_eq!(
            line(&gguf.string("absent").unwrap_err()),
            "key `absent` is missing"
        );
        assert_eq!(
            line(&gguf.strings("types").unwrap_err()),
            "key `types` must be an array of strings, not array of i32"
        );
    }
}

#[test]
fn faults_of_the_header_are_named() {
    let one = GgufBuilder::new().u32("a", 1);
    let cases = [
        (one.bytes(), 0, b'X', "not a GGUF file (wrong magic bytes)"),
        (one.bytes(), 4, 1, "GGUF version 1 is not supported"),
    ];
    for (mut bytes, place, value, expected) in cases {
        bytes[place] = value;
        assert_eq!(line(&open_bytes(&bytes).unwrap_err()), expected);
    }
    let mut big_endian = one.bytes();
    big_endian[4..8].copy_from_slice(&3_u32.to_be_bytes());
    assert_eq!(
        line(&open_bytes(&big_endian).unwrap_err()),
        "GGUF version 50331648 (big-endian) is not supported"
    );
    assert_eq!(fault(&one.duplicate("a")), "key `a` is given twice");
    assert_eq!(
        fault(&GgufBuilder::new().raw("a", 7, &[2])),
        "key `a` must be a boolean (0 or 1), not 2"
    );
    assert_eq!(
        fault(&GgufBuilder::new().raw("a", 99, &[0; 8])),
        "key `a` has the unknown value type 99"
    );
    assert_eq!(
        fault(&GgufBuilder::new().array("a", 9, 1, &[0; 32])),
        "key `a` is an array of arrays, which is not supported"
    );
    assert_eq!(
        fault(&GgufBuilder::new().raw("a", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff])),
        "a is not UTF-8"
    );
    assert_eq!(
        fault(&GgufBuilder::new().u32("general.alignment", 24)),
        "key `general.alignment` must be a power of two, not 24"
    );
}

#[test]
fn huge_counts_end_before_they_allocate() {
    for count in [u64::MAX, u64::MAX / 8, 1 << 40] {
        for item_type in [0, 4, 8, 12] {
            let text = fault(&GgufBuilder::new().array("tokens", item_type, count, &[0; 16]));
            assert!(
                text.starts_with("file is truncated: tokens needs bytes up to "),
                "{text}"
            );
        }
        let mut string = count.to_le_bytes().to_vec();
        string.push(0);
        assert!(
            fault(&GgufBuilder::new().raw("s", 8, &string)).starts_with("file is truncated: s ")
        );
        for place in [8, 16] {
            let mut bytes = tiny_llama().bytes();
            bytes[place..place + 8].copy_from_slice(&count.to_le_bytes());
            let text = line(&open_bytes(&bytes).unwrap_err());
            assert!(text.starts_with("file is truncated: the "), "{text}");
        }
    }
}

#[test]
fn faults_of_tensors_are_named() {
    let empty = GgufBuilder::new;
    assert_eq!(
        fault(&empty().tensor("t", &[8], 99, vec![0; 32])),
        "tensor `t` has the unknown type number 99"
    );
    assert_eq!(
        fault(&empty().tensor("t", &[8], 8, vec![0; 34])),
        "tensor `t` has rows of 8 numbers, which Q8_0 cannot hold (blocks of 32)"
    );
    assert_eq!(
        fault(&empty().tensor("t", &[1 << 40, 1 << 40], 0, vec![0; 32])),
        "tensor `t` has an impossible size [1099511627776, 1099511627776]"
    );
    assert_eq!(
        fault(&empty().tensor("t", &[1, 1, 1, 1, 1], 0, vec![0; 32])),
        "tensor `t` has 5 dimensions, at most 4 are allowed"
    );
    // Q8_0 rows of 64 take 68 bytes; one is missing.
    let text = fault(&empty().tensor("t", &[64], 8, vec![0; 67]));
    assert!(
        text.starts_with("file is truncated: tensor `t` needs bytes up to "),
        "{text}"
    );
    // The second tensor starts where the first still lies: 32 bytes announced, 64 described.
    let overlapping = empty()
        .tensor("a", &[16], 0, vec![0; 32])
        .tensor("b", &[8], 0, vec![0; 32]);
    assert_eq!(fault(&overlapping), "tensors `a` and `b` overlap");
    let mut twice = empty().zeros("aaaa", &[8]).zeros("bbbb", &[8]).bytes();
    let place = twice
        .windows(4)
        .position(|window| window == b"bbbb")
        .unwrap();
    twice[place..place + 4].copy_from_slice(b"aaaa");
    assert_eq!(
        line(&open_bytes(&twice).unwrap_err()),
        "tensor `aaaa` is listed twice"
    );
}
