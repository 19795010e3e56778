//! `tokenizer.json` as a model folder may hold it: an error of one line, or a tokenizer that works.

use super::models::{BYTE_FALLBACK, tiny_tokenizer};
use crate::Target;
use crate::random::{Random, kind_of, mix};
use headrace_text::{SpecialText, Tokenizer};

pub(super) const TARGET: Target = Target {
    name: "tokenizer_files",
    seeds,
    fresh,
    run,
    words: &WORDS,
    short: 2_000,
};

const WORDS: [&str; 22] = [
    "\"type\":\"BPE\"",
    "\"type\":\"Unigram\"",
    "\"type\":\"WordPiece\"",
    "\"type\":\"WordLevel\"",
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}",
    "{\"type\":\"Metaspace\",\"replacement\":\"\u{2581}\",\"prepend_scheme\":\"always\",\"split\":true}",
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a*\"},\"behavior\":\"Isolated\",\"invert\":false}",
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}",
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":4294967295}",
    "{\"type\":\"NFC\"}",
    "{\"type\":\"Prepend\",\"prepend\":\"\u{2581}\"}",
    "{\"type\":\"ByteFallback\"}",
    "{\"type\":\"Fuse\"}",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "4294967295",
    "18446744073709551615",
    "-1",
    "\"special\":true",
];

/// One letter, one merge, one special token: small enough that most mutations touch something.
const SMALL: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":3,"content":"<s>",
    "single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,
    "pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"BPE","dropout":null,"unk_token":"a",
    "continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
    "vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}}"#;

fn seeds() -> Vec<Vec<u8>> {
    let unigram = SMALL.replace(
        &SMALL[SMALL.find("\"model\"").unwrap_or(0)..],
        r#""model":{"type":"Unigram","unk_id":0,"vocab":[["a",-1.0],["b",-2.0],["ab",-0.5]],"byte_fallback":false}}"#,
    );
    let level = r#""model":{"type":"WordLevel","vocab":{"a":0,"b":1},"unk_token":"a"}}"#;
    let word_level = SMALL.replace(&SMALL[SMALL.find("\"model\"").unwrap_or(0)..], level);
    vec![
        SMALL.as_bytes().to_vec(),
        unigram.into_bytes(),
        word_level.into_bytes(),
        tiny_tokenizer::json().to_string().into_bytes(),
        BYTE_FALLBACK.to_vec(),
    ]
}

/// The small one with one value replaced.
fn fresh(random: &mut Random) -> Vec<u8> {
    let places: Vec<usize> = SMALL
        .match_indices(':')
        .map(|(place, _)| place + 1)
        .collect();
    let start = *random.pick(&places);
    let end = SMALL[start..]
        .find([',', '}', ']'])
        .map_or(SMALL.len(), |length| start + length);
    let word = *random.pick(&WORDS);
    format!("{}{word}{}", &SMALL[..start], &SMALL[end..]).into_bytes()
}

fn run(input: &[u8]) -> u64 {
    let tokenizer = match Tokenizer::from_bytes(input) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n'), "two lines: {text:?}");
            return kind_of(&text);
        }
    };
    let mut met = mix(1, tokenizer.vocab_size().min(100).into());
    for text in ["a ab<s>b", "", "日"] {
        for special in [SpecialText::Parse, SpecialText::Plain] {
            if let Ok(encoding) = tokenizer.encode(text, true, special) {
                met = mix(met, encoding.ids.len() as u64);
                assert!(tokenizer.fewest_tokens(text) <= encoding.ids.len());
            }
        }
    }
    for id in 0..tokenizer.vocab_size().min(50) {
        let _ = (tokenizer.token_text(id), tokenizer.is_special(id));
    }
    met
}
