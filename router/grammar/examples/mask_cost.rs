//! What a mask costs: `cargo run -p headrace-grammar --example mask_cost`.
//!
//! For a tokenizer file (or the tests' small one) it prints, for a few grammars, the time to compile, to accept an id
//! and to compute the mask after it, along a text that takes the lowest allowed id each time.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "an example prints its figures"
)]

#[path = "../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

use headrace_grammar::{GrammarCompiler, GrammarSource, Mask};
use headrace_text::Tokenizer;
use std::path::Path;
use std::time::{Duration, Instant};

fn main() {
    let path = std::env::args().nth(1);
    let tokenizer = match &path {
        Some(path)
            if Path::new(path)
                .extension()
                .is_some_and(|kind| kind == "gguf") =>
        {
            Tokenizer::from_gguf(path.as_ref()).unwrap()
        }
        Some(path) => Tokenizer::from_file(path.as_ref(), None).unwrap(),
        None => Tokenizer::from_bytes(tiny_tokenizer::json().to_string().as_bytes()).unwrap(),
    };
    let vocab = 50_000;
    let compiler = GrammarCompiler::new(&tokenizer, &[2], vocab, false).unwrap();
    for pattern in [r"[^\n]{20000}", r"[a-z ]{2000}", r"[^\n]*"] {
        let began = Instant::now();
        let grammar = compiler
            .compile(&GrammarSource::Regex(pattern.to_owned()))
            .unwrap();
        let compile_time = began.elapsed();
        let mut state = grammar.start();
        let (mut accepts, mut masks) = (Vec::new(), Vec::new());
        let mut kind = "";
        for _ in 0..300 {
            let began = Instant::now();
            let mask = state.mask().unwrap();
            masks.push(began.elapsed());
            let id = match &mask {
                Mask::Allow(ids) => {
                    kind = "allow";
                    ids[0]
                }
                Mask::Deny(_) => {
                    kind = "deny";
                    300
                }
                Mask::Bitset(words) => {
                    kind = "bitset";
                    let at = words.iter().position(|word| *word != 0).unwrap();
                    u32::try_from(at).unwrap() * 32 + words[at].trailing_zeros()
                }
            };
            let began = Instant::now();
            state.accept(id).unwrap();
            accepts.push(began.elapsed());
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times[times.len() / 2]
        };
        println!(
            "{pattern}: compile {compile_time:?}, mask ({kind}) {:?} (most {:?}), accept {:?} (most {:?})",
            median(&mut masks),
            masks.iter().max().unwrap(),
            median(&mut accepts),
            accepts.iter().max().unwrap(),
        );
    }
}
