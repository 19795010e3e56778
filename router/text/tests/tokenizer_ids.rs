//! Ids against llama.cpp and against `tokenizers` pipelines (goldens; scripts beside them).

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use headrace_text::{
    GgufVocabulary, SpecialText, TextError, TokenKind, Tokenizer, VocabularyModel,
};
use support::{demo_gguf, golden, ids, texts};

/// Where llama.cpp approximates the family's own expression, its ids are not the family's: case without a
/// difference between upper and lower letters beyond ASCII, combining marks, and `ſ` as an `s`.
const APPROXIMATED: [&str; 2] = ["tekken", "gpt-4o"];

#[test]
fn demo_ids_are_those_of_llama_cpp_and_of_the_pipeline() {
    let Some(path) = demo_gguf() else { return };
    let tokenizer = Tokenizer::from_gguf(&path).unwrap();
    let llama_cpp = golden("llama_cpp_ids.json");
    let pipeline = golden("transformers.json");
    for (index, text) in texts().iter().enumerate() {
        let encoding = tokenizer.encode(text, true, SpecialText::Parse).unwrap();
        assert_eq!(
            encoding.ids,
            ids(&llama_cpp["parse"][index]),
            "llama.cpp: {text:?}"
        );
        assert_eq!(
            encoding.ids,
            ids(&pipeline["pipeline_ids"][index]),
            "tokenizers: {text:?}"
        );
        let plain = tokenizer.encode(text, true, SpecialText::Plain).unwrap();
        assert_eq!(
            plain.ids,
            ids(&llama_cpp["plain"][index]),
            "llama.cpp, plain: {text:?}"
        );
        for ((start, end), id) in encoding.offsets.iter().zip(&encoding.ids) {
            assert!(start < end && *end <= text.len(), "{text:?} {id}");
        }
    }
}

#[test]
fn every_pre_tokenizer_has_llama_cpp_s_ids() {
    let Some(path) = demo_gguf() else { return };
    let vocabulary = GgufVocabulary::open(&path).unwrap();
    let llama_cpp = golden("llama_cpp_ids.json");
    let texts = texts();
    let mut differing = Vec::new();
    for (pre, rows) in llama_cpp["by_pre"].as_object().unwrap() {
        let mut vocabulary = vocabulary.clone();
        vocabulary.pre = Some(pre.clone());
        vocabulary.add_bos = Some(false);
        let tokenizer = Tokenizer::from_gguf_vocabulary(vocabulary).unwrap();
        for (index, text) in texts.iter().enumerate() {
            let expected = rows
                .get(index.to_string())
                .unwrap_or(&llama_cpp["parse"][index]);
            let encoding = tokenizer.encode(text, false, SpecialText::Parse).unwrap();
            let is_exact = !APPROXIMATED.contains(&pre.as_str()) || text.is_ascii();
            if is_exact && encoding.ids != ids(expected) {
                differing.push(format!("{pre} {text:?}: {:?} for {expected}", encoding.ids));
            }
        }
    }
    assert!(
        differing.is_empty(),
        "{}\n{}",
        differing.len(),
        differing.join("\n")
    );
}

#[test]
fn an_unknown_pre_is_refused_by_name() {
    let Some(path) = demo_gguf() else { return };
    let mut vocabulary = GgufVocabulary::open(&path).unwrap();
    vocabulary.pre = Some("smollm9".into());
    let error = Tokenizer::from_gguf_vocabulary(vocabulary).unwrap_err();
    assert!(matches!(error, TextError::Unsupported(_)));
    assert_eq!(
        error.to_string(),
        "unsupported tokenizer: tokenizer.ggml.pre \"smollm9\""
    );
}

fn tiny_vocabulary() -> GgufVocabulary {
    let model = &golden("tiny_byte_fallback.json")["model"];
    let vocab = model["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocab.len()];
    for (token, id) in vocab {
        tokens[usize::try_from(id.as_u64().unwrap()).unwrap()].clone_from(token);
    }
    let kinds = (0..tokens.len())
        .map(|id| match id {
            0 => TokenKind::Unknown,
            1 | 2 => TokenKind::Control,
            3..=258 => TokenKind::Byte,
            _ => TokenKind::Normal,
        })
        .collect();
    GgufVocabulary {
        model: VocabularyModel::Llama,
        pre: None,
        tokens,
        kinds,
        scores: serde_json::from_value(golden("transformers.json")["tiny_scores"].clone()).unwrap(),
        merges: Vec::new(),
        bos_id: Some(1),
        eos_id: Some(2),
        end_of_turn_id: None,
        unknown_id: Some(0),
        padding_id: None,
        add_bos: None,
        add_eos: None,
        add_space_prefix: None,
        chat_template: None,
    }
}

#[test]
fn sentence_piece_ids_are_those_of_llama_cpp_and_of_the_pipeline() {
    let from_gguf = Tokenizer::from_gguf_vocabulary(tiny_vocabulary()).unwrap();
    let json = golden("tiny_byte_fallback.json").to_string();
    let from_json = Tokenizer::from_bytes(json.as_bytes()).unwrap();
    let llama_cpp = golden("llama_cpp_ids.json");
    let pipeline = golden("transformers.json");
    for (index, text) in texts().iter().enumerate() {
        let encoding = from_gguf.encode(text, false, SpecialText::Parse).unwrap();
        assert_eq!(
            encoding.ids,
            ids(&llama_cpp["tiny"][index]),
            "llama.cpp: {text:?}"
        );
        assert_eq!(
            encoding.ids,
            ids(&pipeline["tiny_ids"][index]),
            "tokenizers: {text:?}"
        );
        let other = from_json.encode(text, false, SpecialText::Parse).unwrap();
        assert_eq!(encoding, other, "{text:?}");
        let with_bos = from_gguf.encode(text, true, SpecialText::Parse).unwrap();
        assert_eq!(with_bos.ids[0], 1);
        assert_eq!(with_bos.ids[1..], encoding.ids);
    }
}

#[test]
fn a_broken_vocabulary_is_named() {
    let refused = |change: &dyn Fn(&mut GgufVocabulary)| {
        let mut vocabulary = tiny_vocabulary();
        change(&mut vocabulary);
        Tokenizer::from_gguf_vocabulary(vocabulary)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&|v| v.scores.truncate(3)).contains("tokenizer.ggml.scores has 3 entries"));
    assert!(refused(&|v| v.kinds.truncate(3)).contains("tokenizer.ggml.token_type has 3 entries"));
    assert!(refused(&|v| v.bos_id = Some(9_999_999)).contains("tokenizer.ggml.bos_token_id"));
    assert!(refused(&|v| v.scores[300] = f32::NAN).contains("tokenizer.ggml.scores[300]"));
    assert!(refused(&|v| v.model = VocabularyModel::Gpt2).contains("tokenizer.ggml.merges"));
    assert!(refused(&|v| v.tokens[5] = "x".into()).contains("tokenizer.ggml.tokens[5]"));
}
