//! Ids to text, one at a time, against the whole at once; then the same with stops, as an answer has it.

use super::models::models;
use crate::Target;
use crate::input::Choices;
use crate::random::{Random, mix};
use headrace_dialect::choice::{ChoiceText, RawToken};
use headrace_dialect::end::EndReason;
use headrace_text::{Detokenizer, StopMode, Tokenizer};
use std::sync::Arc;

pub(super) const TARGET: Target = Target {
    name: "detokenizer",
    seeds: || {
        models();
        vec![vec![0; 40], (0..=255).collect()]
    },
    fresh,
    run,
    words: &["\u{1f600}", "日"],
    short: 30_000,
};

fn fresh(random: &mut Random) -> Vec<u8> {
    let count = random.below(200);
    random.bytes(count)
}

fn run(input: &[u8]) -> u64 {
    let mut choices = Choices::of(input);
    let model = &models()[choices.below(models().len())];
    let tokenizer = &model.tokenizer;
    let size = tokenizer.vocab_size();
    let last = choices.word() % (size + 1);
    let prompt: &[u32] = if choices.percent(20) { &[] } else { &[last] };
    let stop_ids: Vec<u32> = (0..choices.below(4))
        .map(|_| choices.word() % size)
        .collect();
    let mode = choices.pick(&[StopMode::CutStop, StopMode::KeepStop]);
    let mut ids = Vec::new();
    while !choices.is_over() && ids.len() < 60 {
        // Small ids are bytes and special tokens in all three; some lie beyond the vocabulary.
        ids.push(match choices.below(8) {
            0 => choices.word() % (size + 8),
            _ => u32::from(choices.byte()) + u32::from(choices.byte() & 1) * 64,
        });
    }
    let whole = Detokenizer::decode(Arc::clone(tokenizer), prompt, &ids);
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer), prompt);
    let mut text = String::new();
    for &id in &ids {
        let delta = detokenizer.push(id);
        assert_eq!(delta.is_special, tokenizer.is_special(id));
        text.push_str(&delta.text);
        assert!(
            whole.starts_with(&text),
            "{text:?} is no start of {whole:?}"
        );
    }
    text.push_str(&detokenizer.finish());
    assert_eq!(text, whole);
    let stops: Vec<String> = stop_ids
        .iter()
        .map(|&id| tokenizer.token_text(id))
        .filter(|stop| !stop.is_empty())
        .collect();
    let met = answer(tokenizer, prompt, &ids, &stops, mode, &whole);
    mix(met, (whole.contains('\u{fffd}')).into())
}

/// What an answer shows: a start of the whole text, all of it without a stop, and in no state a part of a stop.
fn answer(
    tokenizer: &Arc<Tokenizer>,
    prompt: &[u32],
    ids: &[u32],
    stops: &[String],
    mode: StopMode,
    whole: &str,
) -> u64 {
    let mut choice = ChoiceText::new(tokenizer, prompt, stops, mode).expect("no stop is empty");
    let mut shown = String::new();
    let mut ended = None;
    let has_special = ids.iter().any(|&id| tokenizer.is_special(id));
    for (index, &id) in ids.iter().enumerate() {
        let is_last = index + 1 == ids.len();
        let token = RawToken {
            id,
            logprob: None,
            top: Vec::new(),
        };
        let step = choice.push(token, is_last.then_some(EndReason::Length));
        assert_eq!(step.index as usize, index + 1);
        shown.push_str(&step.released);
        assert!(
            whole.starts_with(&shown),
            "{shown:?} is no start of {whole:?}"
        );
        if step.end.is_some() {
            ended = step.end;
            assert!(choice.has_ended());
            break;
        }
        assert!(!choice.has_ended());
    }
    match ended {
        Some(EndReason::StopString(index)) => {
            // A special token's hidden text may have been a part of the stop.
            if !has_special && mode == StopMode::KeepStop {
                assert!(shown.ends_with(&stops[index]), "{shown:?} {stops:?}");
            }
            if !has_special && mode == StopMode::CutStop {
                assert!(whole[shown.len()..].starts_with(&stops[index]));
                assert!(stops.iter().all(|stop| !shown.contains(stop.as_str())));
            }
            mix(3, index as u64)
        }
        Some(_) => {
            assert_eq!(shown, whole);
            assert!(has_special || stops.iter().all(|stop| !whole.contains(stop.as_str())));
            1
        }
        None => u64::from(ids.is_empty()),
    }
}
