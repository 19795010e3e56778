//! `vocab.json` and `merges.txt`: byte-level BPE as ids of tokens and ranked pairs. How words are cut, what is normalised
//! and which tokens are added is in the code of the tokenizer's class, so only known classes are converted.

use crate::beside::{Added, Beside};
use crate::byte_level::{decoder, pre_tokenizer, processor};
use crate::tiktoken::QWEN;
use crate::write::Pipeline;
use crate::{Converted, LONGEST_TOKEN, MOST_TOKENS};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// What a class's code says.
struct Class {
    /// GPT-2's words, where there is none.
    pattern: Option<&'static str>,
    normalizer: Value,
    /// Named tokens, where no file names them.
    known: &'static [(&'static str, &'static str)],
    /// `cls_token` goes before and `sep_token` after a text, whatever `add_bos_token` says.
    is_bounded: bool,
}

/// Converts `vocab.json` with the `merges.txt` beside it.
pub(crate) fn convert(vocab: &[u8], merges: &[u8], beside: &Beside) -> Result<Converted, String> {
    let class = class(beside)?;
    let vocab = read_vocab(vocab)?;
    let merges = read_merges(merges, &vocab)?;
    let added = added(&vocab, &beside.special_tokens(class.known), beside)?;
    let named = |key: &str| {
        let known = class.known.iter().find(|(name, _)| *name == key);
        match beside.named(key) {
            None if beside.names(key) => None,
            None => known.map(|(_, text)| (*text).to_owned()),
            text => text,
        }
    };
    let token = |key: &str| {
        let text = named(key)?;
        let mut found = added.iter().filter(|(_, token)| token.content == text);
        found.next().map(|(id, _)| (text.clone(), *id))
    };
    let (mut begin, mut end) = (None, None);
    if class.is_bounded {
        (begin, end) = (token("cls_token"), token("sep_token"));
        if begin.is_none() || end.is_none() {
            return Err(
                "`cls_token` or `sep_token` is null, and a text stands between them".into(),
            );
        }
    } else {
        for (flag, key, place) in [
            ("add_bos_token", "bos_token", &mut begin),
            ("add_eos_token", "eos_token", &mut end),
        ] {
            if beside.flag(flag) == Some(true) {
                *place = token(key);
            }
        }
    }
    let adds_space = beside.flag("add_prefix_space").unwrap_or(false);
    let words = match class.pattern {
        Some(pattern) => pre_tokenizer(pattern, adds_space),
        None => json!({
            "type": "ByteLevel", "add_prefix_space": adds_space, "trim_offsets": true, "use_regex": true,
        }),
    };
    Pipeline {
        model: json!({
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges,
        }),
        normalizer: class.normalizer,
        pre_tokenizer: words,
        decoder: decoder(),
        processor: Some(if class.is_bounded {
            json!({
                "type": "ByteLevel", "add_prefix_space": adds_space, "use_regex": true,
                "trim_offsets": beside.flag("trim_offsets").unwrap_or(true),
            })
        } else {
            processor()
        }),
        begin,
        end,
        named: class
            .known
            .iter()
            .map(|(key, text)| (*key, (*text).to_owned()))
            .collect(),
        dropped: if class.is_bounded {
            &["add_bos_token", "add_eos_token"]
        } else {
            &[]
        },
        added,
    }
    .write(beside)
}

/// By `tokenizer_class`, or else by `model_type`.
fn class(beside: &Beside) -> Result<Class, String> {
    const END: &str = "<|endoftext|>";
    if let Some(class) = beside.own_class() {
        return Err(format!(
            "tokenizer_config.json: `tokenizer_class` {class:?} is the repository's own code, which is never run"
        ));
    }
    let model = beside.model_type.as_deref();
    let of_model = match model {
        Some("qwen2" | "qwen2_moe" | "qwen3" | "qwen3_moe") => Some("Qwen2Tokenizer"),
        Some("gpt2" | "gpt_neo" | "gptj" | "opt" | "phi" | "starcoder2" | "codegen") => {
            Some("GPT2Tokenizer")
        }
        Some("roberta" | "bart") => Some("RobertaTokenizer"),
        _ => None,
    };
    let name = match beside.class() {
        // Of these models' repositories many name a class that is not theirs.
        Some(_) if model == Some("qwen2") => of_model,
        Some(class) => Some(class),
        None => of_model,
    };
    let Some(name) = name else {
        let model = model.unwrap_or("?");
        return Err(format!(
            "how words are cut is up to `tokenizer_class`, which no file names, and `model_type` is {model:?}"
        ));
    };
    Ok(match name {
        "GPT2Tokenizer" | "CodeGenTokenizer" => Class {
            pattern: None,
            normalizer: Value::Null,
            known: &[("bos_token", END), ("eos_token", END), ("unk_token", END)],
            is_bounded: false,
        },
        "Qwen2Tokenizer" => Class {
            pattern: Some(QWEN),
            normalizer: json!({"type": "NFC"}),
            known: &[("eos_token", END), ("unk_token", END), ("pad_token", END)],
            is_bounded: false,
        },
        "RobertaTokenizer" | "BartTokenizer" => Class {
            pattern: None,
            normalizer: Value::Null,
            known: &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("sep_token", "</s>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<s>"),
                ("mask_token", "<mask>"),
            ],
            is_bounded: true,
        },
        other => {
            return Err(format!(
                "`tokenizer_class` {other:?} is of no known class (GPT2Tokenizer, CodeGenTokenizer, Qwen2Tokenizer, \
                 RobertaTokenizer, BartTokenizer)"
            ));
        }
    })
}

/// Ids from 0 on without a gap, for added tokens are numbered after them.
fn read_vocab(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let vocab: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|error| format!("not a JSON object: {error}"))?;
    let size = vocab.len();
    if size == 0 || size > MOST_TOKENS {
        return Err(format!("{size} tokens"));
    }
    let mut seen = vec![false; size];
    for (token, id) in &vocab {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(format!(
                "the token of the id {id} has {} bytes",
                token.len()
            ));
        }
        let place = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let place = place.and_then(|place| seen.get_mut(place));
        match place {
            Some(seen) if !*seen => *seen = true,
            _ => {
                return Err(format!(
                    "the token {token:?} has the id {id}; {size} tokens need the ids from 0 on, each once"
                ));
            }
        }
    }
    Ok(vocab)
}

/// A line is a pair; the first may be a version.
fn read_merges(bytes: &[u8], vocab: &Map<String, Value>) -> Result<Vec<Value>, String> {
    let refuse = |line: usize, why: &str| format!("merges.txt: line {} {why}", line + 1);
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("merges.txt: not UTF-8 after byte {}", error.valid_up_to()))?;
    let mut merges = Vec::new();
    let mut joined = String::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with("#version") {
            continue;
        }
        let pair = line
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '));
        let Some((left, right)) = pair else {
            return Err(refuse(number, "is not two tokens"));
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        for token in [left, right, &joined] {
            if !vocab.contains_key(token) {
                return Err(refuse(
                    number,
                    &format!("needs the token {token:?}, which vocab.json lacks"),
                ));
            }
        }
        if merges.len() == MOST_TOKENS {
            return Err(refuse(number, "is one too many"));
        }
        merges.push(json!([left, right]));
    }
    Ok(merges)
}

/// Listed tokens by id, then named and additional ones; those that the vocabulary lacks follow it in this order.
fn added(
    vocab: &Map<String, Value>,
    special: &[Added],
    beside: &Beside,
) -> Result<Vec<(u32, Added)>, String> {
    let id_of = |token: &Added| {
        let id = vocab.get(&token.content).and_then(Value::as_u64);
        id.and_then(|id| u32::try_from(id).ok())
    };
    let mut next = u32::try_from(vocab.len()).map_err(|error| error.to_string())?;
    let mut take = |token: &Added| {
        id_of(token).unwrap_or_else(|| {
            next += 1;
            next - 1
        })
    };
    let mut texts = HashSet::new();
    let mut added = Vec::new();
    for (&id, token) in &beside.added {
        if !texts.insert(token.content.clone()) {
            return Err(format!(
                "the added token {:?} is there twice",
                token.content
            ));
        }
        let expected = take(token);
        if id != expected {
            return Err(format!(
                "the added token {:?} has the id {id}, and gets {expected} after what vocab.json has",
                token.content
            ));
        }
        let is_named = special.iter().any(|other| other.content == token.content);
        let mut token = token.clone();
        token.is_special |= is_named;
        added.push((id, token));
    }
    for token in special {
        if token.content.len() > LONGEST_TOKEN {
            return Err(format!("a special token has {} bytes", token.content.len()));
        }
        if texts.insert(token.content.clone()) {
            added.push((take(token), token.clone()));
        }
    }
    Ok(added)
}
