//! tiktoken's lists: a line is a token in base64 and its rank. The expression that cuts words and the special tokens
//! are in the model family's code, so only known families are converted.

use crate::Converted;
use crate::beside::{Added, Beside};
use crate::byte_level::{decoder, model, pre_tokenizer, processor};
use crate::write::{Pipeline, check_added};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Han apart from other letters, which are cut where the case falls.
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What the family's code says.
struct Family {
    pattern: &'static str,
    normalizer: Value,
    special: Vec<String>,
    /// A `tokenizer_config.json` names some of `special`; else it names all of them, or none.
    names_some: bool,
    /// `bos_token` and the like, out of `special`.
    named: Vec<(&'static str, &'static str)>,
    adds_begin: bool,
}

pub(crate) fn convert(bytes: &[u8], name: &str, beside: &Beside) -> Result<Converted, String> {
    let ranks = read(bytes)?;
    let Some(family) = family(name, ranks.len(), beside) else {
        let kind = beside.model_type.as_deref().unwrap_or("?");
        let class = beside.class().unwrap_or("?");
        return Err(format!(
            "a tiktoken list does not say how words are cut, and `tokenizer_class` {class:?}, `model_type` {kind:?} is \
             of no known family (llama, qwen, and Kimi's TikTokenTokenizer)"
        ));
    };
    let added = added(ranks.len(), &family, beside)?;
    let find = |text: &str| {
        added
            .iter()
            .find(|(_, token)| token.content == text)
            .map(|(id, token)| (token.content.clone(), *id))
    };
    let begin = beside.named("bos_token").or_else(|| {
        let named = family.named.iter().find(|(key, _)| *key == "bos_token");
        named.map(|(_, text)| (*text).to_owned())
    });
    let begin = begin
        .filter(|_| family.adds_begin)
        .and_then(|text| find(&text));
    let named = family.named.iter();
    let named = named
        .filter(|(_, text)| find(text).is_some())
        .map(|(key, text)| (*key, (*text).to_owned()))
        .collect();
    Pipeline {
        model: model(&ranks, 0, std::iter::empty())?,
        normalizer: family.normalizer,
        pre_tokenizer: pre_tokenizer(family.pattern, false),
        decoder: decoder(),
        processor: Some(processor()),
        begin,
        end: None,
        named,
        dropped: &[],
        added,
    }
    .write(beside)
}

/// Special tokens after the ranks.
fn added(size: usize, family: &Family, beside: &Beside) -> Result<Vec<(u32, Added)>, String> {
    let first = u32::try_from(size).map_err(|error| error.to_string())?;
    let known = || {
        let special = family.special.iter().cloned();
        (first..).zip(special.map(|text| Added::new(text, true)))
    };
    let listed = beside.added.range(first..);
    let mut listed: BTreeMap<u32, Added> = listed.map(|(id, token)| (*id, token.clone())).collect();
    if family.names_some {
        if let Some((id, token)) = listed
            .range(first..)
            .find(|(id, _)| (**id - first) as usize >= family.special.len())
        {
            return Err(format!(
                "the added token {:?} has the id {id}, and {} special tokens follow the {size} ranks",
                token.content,
                family.special.len()
            ));
        }
        for (id, token) in known() {
            listed.entry(id).or_insert(token);
        }
    } else {
        check_added(size, beside)?;
        if listed.is_empty() {
            listed.extend(known());
        }
    }
    let mut texts = HashSet::new();
    match listed.values().find(|token| !texts.insert(&token.content)) {
        Some(token) => Err(format!(
            "the special token {:?} is there twice",
            token.content
        )),
        None => Ok(listed.into_iter().collect()),
    }
}

fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let unknown = || "neither a SentencePiece model nor a tiktoken list".to_owned();
    let text = std::str::from_utf8(bytes).map_err(|_| unknown())?;
    let mut ranks = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let place = ranks.len();
        let token = line.split_once(' ').and_then(|(token, rank)| {
            let rank: usize = rank.trim().parse().ok()?;
            Some((STANDARD.decode(token).ok()?, rank))
        });
        match token {
            Some((token, rank)) if rank == place => ranks.push(token),
            Some((_, rank)) => return Err(format!("line {} has the rank {rank}", place + 1)),
            None if place == 0 => return Err(unknown()),
            None => return Err(format!("line {} is no token and rank", place + 1)),
        }
    }
    if ranks.is_empty() {
        return Err(unknown());
    }
    Ok(ranks)
}

fn family(name: &str, size: usize, beside: &Beside) -> Option<Family> {
    if beside.class() == Some("TikTokenTokenizer") {
        return Some(kimi(size));
    }
    if beside
        .own_class()
        .is_some_and(|class| class != "QWenTokenizer")
    {
        return None;
    }
    let model_type = beside.model_type.as_deref();
    if name.starts_with("qwen") || matches!(model_type, Some("qwen" | "qwen2" | "qwen3")) {
        return Some(qwen());
    }
    // Llama 3.1 came with its own way of stretching the context, and with three more names.
    let is_newer = beside.rope_type.as_deref() == Some("llama3");
    (model_type == Some("llama")).then(|| llama3(is_newer))
}

/// Meta's 256 names of Llama 3, or of 3.1 and later; a `tokenizer_config.json` that lists other ones goes before.
fn llama3(is_newer: bool) -> Family {
    let mut known = vec![
        (0, "<|begin_of_text|>"),
        (1, "<|end_of_text|>"),
        (6, "<|start_header_id|>"),
        (7, "<|end_header_id|>"),
        (9, "<|eot_id|>"),
    ];
    if is_newer {
        known.extend([
            (4, "<|finetune_right_pad_id|>"),
            (8, "<|eom_id|>"),
            (10, "<|python_tag|>"),
        ]);
    }
    let mut reserved = 0;
    let special = (0..256)
        .map(|place| {
            if let Some((_, text)) = known.iter().find(|(known, _)| *known == place) {
                return (*text).to_owned();
            }
            reserved += 1;
            format!("<|reserved_special_token_{}|>", reserved - 1)
        })
        .collect();
    Family {
        pattern: LLAMA3,
        normalizer: Value::Null,
        special,
        names_some: false,
        named: vec![
            ("bos_token", "<|begin_of_text|>"),
            ("eos_token", "<|end_of_text|>"),
        ],
        adds_begin: true,
    }
}

fn qwen() -> Family {
    let mut special: Vec<String> = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        .map(str::to_owned)
        .into();
    special.extend((0..205).map(|number| format!("<|extra_{number}|>")));
    Family {
        pattern: QWEN,
        normalizer: json!({"type": "NFC"}),
        special,
        names_some: false,
        named: vec![
            ("eos_token", "<|endoftext|>"),
            ("pad_token", "<|endoftext|>"),
        ],
        adds_begin: false,
    }
}

/// Kimi's 256 places, of which `tokenizer_config.json` names those that have a meaning.
fn kimi(size: usize) -> Family {
    Family {
        pattern: KIMI,
        normalizer: Value::Null,
        special: (size..size + 256)
            .map(|id| format!("<|reserved_token_{id}|>"))
            .collect(),
        names_some: true,
        named: vec![("bos_token", "[BOS]"), ("eos_token", "[EOS]")],
        adds_begin: false,
    }
}
