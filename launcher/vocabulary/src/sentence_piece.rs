//! `SentencePiece` models: BPE (merging by score) and unigram, with the model's own normalising.
//!
//! Control and unknown pieces become special tokens, pieces that were defined by hand become added tokens; no text is
//! merged into any of them. Where `tokenizer_config.json` says `legacy: false`, the space before a text's first word is
//! put there once, as in `transformers`; else before every stretch between special tokens, as `SentencePiece` itself puts
//! it before every text.

use crate::Converted;
use crate::beside::{Added, Beside};
use crate::merges::splits;
use crate::write::{Pipeline, check_added, sequence};
use crate::{LONGEST_TOKEN, MOST_TOKENS};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// Asks the router for `SentencePiece`'s own way of reading a map of letters; the library's loses marks.
const LONGEST: &str = "headrace_match";

const SPACE_MARK: &str = "\u{2581}";

/// The parts of `sentencepiece_model.proto` that matter.
#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<Normalizer>,
    #[prost(message, optional, tag = "5")]
    denormalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(float, optional, tag = "2")]
    score: Option<f32>,
    #[prost(enumeration = "Kind", optional, tag = "3")]
    kind: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Zero = 0,
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    /// 1: unigram (the default), 2: BPE, 3: word, 4: character.
    #[prost(int32, optional, tag = "3")]
    model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    treat_whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    byte_fallback: Option<bool>,
    #[prost(int32, optional, tag = "41")]
    bos_id: Option<i32>,
    #[prost(int32, optional, tag = "42")]
    eos_id: Option<i32>,
    #[prost(int32, optional, tag = "43")]
    pad_id: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Normalizer {
    #[prost(bytes = "vec", optional, tag = "2")]
    precompiled_charsmap: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3")]
    add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    escape_whitespaces: Option<bool>,
}

/// Every such file begins with a piece.
pub(crate) fn is_one(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x0A)
}

/// A vocabulary that was checked.
struct Vocabulary {
    texts: Vec<String>,
    scores: Vec<f32>,
    kinds: Vec<Kind>,
    unknown: usize,
}

pub(crate) fn convert(bytes: &[u8], beside: &Beside) -> Result<Converted, String> {
    let proto =
        ModelProto::decode(bytes).map_err(|error| format!("not a SentencePiece model: {error}"))?;
    if let Some(class) = beside.own_class() {
        return Err(format!(
            "tokenizer_config.json: `tokenizer_class` {class:?} is the repository's own code, which is never run"
        ));
    }
    let trainer = proto.trainer.clone().unwrap_or_default();
    let normalizer = proto.normalizer.clone().unwrap_or_default();
    let denormalizes = proto
        .denormalizer
        .as_ref()
        .and_then(|denormalizer| denormalizer.precompiled_charsmap.as_ref())
        .is_some_and(|map| !map.is_empty());
    for (is_there, what) in [
        (
            trainer.treat_whitespace_as_suffix == Some(true),
            "`treat_whitespace_as_suffix`",
        ),
        (
            normalizer.escape_whitespaces == Some(false),
            "`escape_whitespaces: false`",
        ),
        (denormalizes, "`denormalizer_spec`"),
    ] {
        if is_there {
            return Err(format!("{what} is not supported"));
        }
    }
    let vocabulary = vocabulary(&proto, beside)?;
    let falls_back = trainer.byte_fallback.unwrap_or(false);
    let model = match trainer.model_type.unwrap_or(1) {
        1 => unigram(&vocabulary, falls_back)?,
        2 => merging(&vocabulary, falls_back),
        other => {
            return Err(format!(
                "`model_type` {other} is neither unigram (1) nor BPE (2)"
            ));
        }
    };
    let adds_space = normalizer.add_dummy_prefix.unwrap_or(true);
    let is_once = beside.flag("legacy") == Some(false);
    let size = vocabulary.texts.len();
    let named = |id: Option<i32>, default: i32| {
        let id = u32::try_from(id.unwrap_or(default)).ok()?;
        Some((vocabulary.texts.get(id as usize)?.clone(), id))
    };
    let (begin, end) = (named(trainer.bos_id, 1), named(trainer.eos_id, 2));
    let unknown = vocabulary.texts[vocabulary.unknown].clone();
    let mut texts = vec![("unk_token", unknown)];
    for (key, token) in [
        ("bos_token", begin.clone()),
        ("eos_token", end),
        ("pad_token", named(trainer.pad_id, -1)),
    ] {
        texts.extend(token.map(|(text, _)| (key, text)));
    }
    check_added(size, beside)?;
    Pipeline {
        model,
        normalizer: normalizing(&normalizer, adds_space && !is_once),
        pre_tokenizer: if adds_space && is_once {
            json!({"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": "first", "split": false})
        } else {
            Value::Null
        },
        decoder: decoding(falls_back, adds_space),
        processor: None,
        added: added(&vocabulary, beside),
        begin,
        end: None,
        named: texts,
        dropped: &[],
    }
    .write(beside)
}

fn vocabulary(proto: &ModelProto, beside: &Beside) -> Result<Vocabulary, String> {
    let size = proto.pieces.len();
    if size == 0 || size > MOST_TOKENS {
        return Err(format!("{size} pieces"));
    }
    let mut out = Vocabulary {
        texts: Vec::with_capacity(size),
        scores: Vec::with_capacity(size),
        kinds: Vec::with_capacity(size),
        unknown: size,
    };
    let mut seen = HashSet::with_capacity(size);
    for (id, piece) in (0_u32..).zip(&proto.pieces) {
        // A file beside may call a piece by another name.
        let renamed = beside.added.get(&id).map(|token| &token.content);
        let text = renamed.or(piece.text.as_ref()).cloned().unwrap_or_default();
        let score = piece.score.unwrap_or(0.0);
        let kind = match Kind::try_from(piece.kind.unwrap_or(1)) {
            Ok(Kind::Zero) | Err(_) => return Err(format!("piece {id} is of an unknown type")),
            Ok(kind) => kind,
        };
        if text.is_empty() || text.len() > LONGEST_TOKEN {
            return Err(format!("piece {id} has {} bytes", text.len()));
        }
        if !score.is_finite() {
            return Err(format!("piece {id} has the score {score}"));
        }
        if !seen.insert(text.clone()) {
            return Err(format!("piece {id}, {text:?}, is there twice"));
        }
        if kind == Kind::Unknown {
            if out.unknown != size {
                return Err(format!("piece {id} is a second one for what is unknown"));
            }
            out.unknown = id as usize;
        }
        out.texts.push(text);
        out.scores.push(score);
        out.kinds.push(kind);
    }
    if out.unknown == size {
        return Err("no piece is for what is unknown".into());
    }
    Ok(out)
}

/// Pairs by the score of what they make, then by its id.
fn merging(vocabulary: &Vocabulary, falls_back: bool) -> Value {
    let normal: HashMap<&[u8], usize> = vocabulary
        .texts
        .iter()
        .enumerate()
        .filter(|(id, _)| vocabulary.kinds[*id] == Kind::Normal)
        .map(|(id, text)| (text.as_bytes(), id))
        .collect();
    let mut order: Vec<usize> = normal.values().copied().collect();
    order.sort_by(|&left, &right| {
        let by_score = vocabulary.scores[right].total_cmp(&vocabulary.scores[left]);
        by_score.then(left.cmp(&right))
    });
    let mut merges = Vec::new();
    for id in order {
        let text = &vocabulary.texts[id];
        let cuts = splits(
            text.as_bytes(),
            |cut| text.is_char_boundary(cut),
            |half| normal.contains_key(half),
        );
        merges.extend(
            cuts.into_iter()
                .map(|cut| json!([text[..cut], text[cut..]])),
        );
    }
    let ids: Map<String, Value> = vocabulary
        .texts
        .iter()
        .cloned()
        .zip((0..vocabulary.texts.len()).map(Value::from))
        .collect();
    json!({
        "type": "BPE", "dropout": null, "unk_token": vocabulary.texts[vocabulary.unknown],
        "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
        "byte_fallback": falls_back, "ignore_merges": false, "vocab": ids, "merges": merges,
    })
}

fn unigram(vocabulary: &Vocabulary, falls_back: bool) -> Result<Value, String> {
    if let Some(id) = vocabulary
        .kinds
        .iter()
        .position(|kind| *kind == Kind::Unused)
    {
        return Err(format!("piece {id} of a unigram model is unused"));
    }
    let pieces: Vec<Value> = vocabulary
        .texts
        .iter()
        .zip(&vocabulary.scores)
        .map(|(text, score)| json!([text, score]))
        .collect();
    Ok(json!({
        "type": "Unigram", "unk_id": vocabulary.unknown, "vocab": pieces, "byte_fallback": falls_back,
    }))
}

fn added(vocabulary: &Vocabulary, beside: &Beside) -> Vec<(u32, Added)> {
    let mut added: Vec<(u32, Added)> = Vec::new();
    for (id, (text, kind)) in (0_u32..).zip(vocabulary.texts.iter().zip(&vocabulary.kinds)) {
        if let Some(token) = beside.added.get(&id) {
            added.push((id, token.clone()));
            continue;
        }
        match kind {
            Kind::Unknown | Kind::Control => added.push((id, Added::new(text.clone(), true))),
            Kind::UserDefined => added.push((id, Added::new(text.clone(), false))),
            Kind::Zero | Kind::Normal | Kind::Unused | Kind::Byte => {}
        }
    }
    let beyond = beside
        .added
        .iter()
        .filter(|(id, _)| **id as usize >= vocabulary.texts.len());
    added.extend(beyond.map(|(id, token)| (*id, token.clone())));
    added
}

/// In `SentencePiece`'s order.
fn normalizing(normalizer: &Normalizer, adds_space: bool) -> Value {
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let mut steps = Vec::new();
    if let Some(map) = &normalizer.precompiled_charsmap
        && !map.is_empty()
    {
        steps.push(json!({
            "type": "Precompiled", "precompiled_charsmap": STANDARD.encode(map), LONGEST: "longest",
        }));
    }
    if normalizer.remove_extra_whitespaces.unwrap_or(true) {
        steps.push(replace(json!({"Regex": r"\A +| +\z"}), ""));
        steps.push(replace(json!({"Regex": " {2,}"}), " "));
    }
    if adds_space {
        steps.push(json!({"type": "Prepend", "prepend": SPACE_MARK}));
    }
    steps.push(replace(json!({"String": " "}), SPACE_MARK));
    sequence("normalizers", &steps)
}

fn decoding(falls_back: bool, adds_space: bool) -> Value {
    let mut steps =
        vec![json!({"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "})];
    if falls_back {
        steps.push(json!({"type": "ByteFallback"}));
    }
    steps.push(json!({"type": "Fuse"}));
    if adds_space {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    sequence("decoders", &steps)
}
