//! JSON text as clients write it, and as they should not.

use super::made_up_text::text;
use crate::random::Random;

/// A string literal: good, or with escapes that stand for no character.
pub(super) fn string(random: &mut Random) -> String {
    if random.percent(85) {
        return serde_json::Value::String(text(random)).to_string();
    }
    let escape = *random.pick(&[
        r"\ud800",
        r"\udc00",
        r"\ud83d\ude00",
        r"\ude00\ud83d",
        r"\u0000",
        r"\uFFFF",
        r"\ud800\u0041",
        r"\x41",
        r"\u12",
        "\u{1}",
    ]);
    format!("\"a{escape}b\"")
}

/// A number literal at the edges of what fields hold, or beyond.
pub(super) fn number(random: &mut Random) -> String {
    random
        .pick(&[
            "0",
            "1",
            "2",
            "5",
            "-1",
            "-0",
            "-0.0",
            "0.5",
            "1.0",
            "0.7",
            "100",
            "-100",
            "1e2",
            "1E-2",
            "1e999",
            "-1e999",
            "1e-999",
            "127",
            "128",
            "65536",
            "2147483647",
            "2147483648",
            "-2147483648",
            "-2147483649",
            "4294967295",
            "4294967296",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "340282366920938463463374607431768211456",
            "3.5e38",
            "1.0000000000000002",
            "01",
            "+1",
            ".5",
            "1.",
            "NaN",
            "Infinity",
        ])
        .to_string()
}

/// Any value, `depth` levels of lists and objects at most.
pub(super) fn value(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 7 } else { 11 }) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => "false".to_owned(),
        3 | 4 => number(random),
        5 | 6 => string(random),
        7 => list(random, |random| value(random, depth - 1)),
        8 => list(random, number),
        _ => {
            let count = random.below(4);
            object(random, count, |random| {
                (string(random), value(random, depth - 1))
            })
        }
    }
}

/// A list of up to five.
pub(super) fn list(random: &mut Random, mut item: impl FnMut(&mut Random) -> String) -> String {
    let items: Vec<String> = (0..random.below(5)).map(|_| item(random)).collect();
    format!("[{}]", items.join(","))
}

/// An object of `count` members; the keys are literals.
pub(super) fn object(
    random: &mut Random,
    count: usize,
    mut member: impl FnMut(&mut Random) -> (String, String),
) -> String {
    let members: Vec<String> = (0..count)
        .map(|_| {
            let (key, value) = member(random);
            format!("{key}:{value}")
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Something deep, long or broken in a way of its own.
pub(super) fn oddity(random: &mut Random) -> String {
    let levels = 1 + random.below(200);
    match random.below(6) {
        0 => format!("{}{}", "[".repeat(levels), "]".repeat(levels)),
        1 => format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels)),
        2 => "[".repeat(levels * 20),
        3 => "\u{feff}{}".to_owned(),
        4 => "{} {}".to_owned(),
        _ => String::new(),
    }
}
