//! Grammars over a vocabulary of four letters and an end, and what a sequence under one gives.

use crate::worker::{VOCAB, after, pick, start_of};
use headrace_grammar::{CompiledGrammar, GrammarCompiler, GrammarSource, Mask};
use headrace_scheduler::TokenId;
use headrace_text::Tokenizer;
use std::sync::OnceLock;

/// The id that ends a text.
pub(crate) const EOS: TokenId = 4;

/// The last ones meet a dead end: no token has their letters.
const REGEXES: [&str; 7] = [
    "[ab]{3,6}c?",
    "(ab|cd)+",
    "a*b",
    "d",
    "[abcd]{1,40}",
    "a[xyz]",
    "(ab|b[x])[ad]{2}",
];

fn compiled() -> &'static [CompiledGrammar] {
    static COMPILED: OnceLock<Vec<CompiledGrammar>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "decoder": {"type": "Fuse"},
            "added_tokens": [{"id": EOS, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3}, "merges": []},
        });
        let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
        let compiler = GrammarCompiler::new(&tokenizer, &[EOS], VOCAB, false).unwrap();
        REGEXES
            .iter()
            .map(|regex| compiler.compile(&GrammarSource::Regex((*regex).to_owned())))
            .collect::<Result<_, _>>()
            .unwrap()
    })
}

/// One of them.
pub(crate) fn grammar(number: u64) -> CompiledGrammar {
    let all = compiled();
    all[usize::try_from(number).unwrap() % all.len()].clone()
}

/// The output under a grammar, alone and without faults. `false`: it meets a dead end.
pub(crate) fn undisturbed(
    grammar: &CompiledGrammar,
    namespace: u64,
    prompt: &[TokenId],
    max_new_tokens: usize,
) -> (Vec<TokenId>, bool) {
    let mut state = grammar.start();
    let mut history = prompt
        .iter()
        .fold(start_of(namespace), |history, &id| after(history, id));
    let mut output = Vec::new();
    while output.len() < max_new_tokens {
        let mask = match state.mask() {
            Ok(Mask::Allow(ids)) if ids.is_empty() => return (output, false),
            Ok(mask) => mask,
            Err(_) => return (output, false),
        };
        let id = pick(history, &mask);
        history = after(history, id);
        output.push(id);
        if id == EOS {
            break;
        }
        state.accept(id).expect("an allowed id is taken");
    }
    (output, true)
}
