//! The desk alone: order, positions, and whose fault is whose.

use super::*;
use headrace_grammar::{GrammarCompiler, GrammarSource};
use headrace_text::Tokenizer;
use std::time::Duration;

#[path = "../../../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

use tiny_tokenizer::{EOS, bytes_of, vocab_size};

fn grammar(regex: &str) -> CompiledGrammar {
    let json = tiny_tokenizer::json().to_string();
    let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
    GrammarCompiler::new(&tokenizer, &[EOS], vocab_size(), false)
        .unwrap()
        .compile(&GrammarSource::Regex(regex.to_owned()))
        .unwrap()
}

fn open(sequence: u64, grammar: &CompiledGrammar) -> DeskOrder {
    DeskOrder::Open {
        sequence: SequenceId(sequence),
        grammar: grammar.clone(),
    }
}

fn accept(sequence: u64, id: TokenId) -> DeskOrder {
    DeskOrder::Accept {
        sequence: SequenceId(sequence),
        id,
    }
}

fn want(sequence: u64, step_id: u64, position: u32) -> DeskOrder {
    DeskOrder::Want(MaskWanted {
        epoch: 1,
        step_id,
        mask: DueMask {
            sequence: SequenceId(sequence),
            slot: 0,
            position,
        },
    })
}

fn allowed(answers: &[MaskReady]) -> Vec<Mask> {
    answers
        .iter()
        .map(|answer| answer.outcome.clone().unwrap())
        .collect()
}

#[test]
fn a_mask_is_given_once_the_ids_before_it_were_accepted() {
    let mut desk = MaskDesk::default();
    let ids = bytes_of("ab");
    assert!(desk.take(open(7, &grammar("ab"))).is_empty());
    let first = desk.take(want(7, 1, 0));
    assert_eq!(allowed(&first), [Mask::Allow(vec![ids[0]])]);
    // The next step is announced before the id of this one is known.
    assert!(desk.take(want(7, 2, 1)).is_empty());
    let second = desk.take(accept(7, ids[0]));
    assert_eq!(allowed(&second), [Mask::Allow(vec![ids[1]])]);
    assert_eq!(second[0].wanted.step_id, 2);
    // The group died: the same position is wanted by another step.
    let again = desk.take(want(7, 1, 1));
    assert_eq!(allowed(&again), allowed(&second));
    assert!(!again[0].is_complete);
    assert!(desk.take(accept(7, ids[1])).is_empty());
    let last = desk.take(want(7, 2, 2));
    assert_eq!(allowed(&last), [Mask::Allow(vec![EOS])]);
    assert!(last[0].is_complete);
    // Too late for a position that is past.
    assert!(desk.take(want(7, 3, 1)).is_empty());
    desk.take(DeskOrder::Close {
        sequence: SequenceId(7),
    });
    assert!(desk.is_empty() && desk.take(want(7, 4, 2)).is_empty());
    assert!(desk.take(accept(7, EOS)).is_empty());
}

#[test]
fn a_dead_end_is_told_for_its_sequence_and_for_no_other() {
    let mut desk = MaskDesk::default();
    let both = grammar("(ab)+");
    let ids = bytes_of("ab");
    desk.take(open(1, &both));
    desk.take(open(2, &both));
    desk.take(want(1, 1, 1));
    let stuck = desk.take(accept(1, ids[1]));
    assert!(stuck[0].outcome.is_err());
    // It stays so.
    assert!(desk.take(want(1, 2, 1))[0].outcome.is_err());
    desk.take(accept(1, ids[0]));
    assert!(desk.take(want(1, 3, 2))[0].outcome.is_err());
    desk.take(accept(2, ids[0]));
    assert_eq!(
        allowed(&desk.take(want(2, 1, 1))),
        [Mask::Allow(vec![ids[1]])]
    );
}

#[test]
fn the_threads_keep_each_sequences_order_and_end_with_the_desk() {
    let (sender, answers) = mpsc::channel();
    let threads = MaskThreads::start(move |ready| drop(sender.send(ready))).unwrap();
    let grammar = grammar("a{40}");
    let id = bytes_of("a")[0];
    for sequence in 0..8 {
        threads.send(open(sequence, &grammar));
    }
    for position in 0..40 {
        for sequence in 0..8 {
            threads.send(want(sequence, u64::from(position) + 1, position));
            threads.send(accept(sequence, id));
        }
    }
    let mut next = [0; 8];
    for _ in 0..8 * 40 {
        let ready = answers.recv_timeout(Duration::from_secs(50)).unwrap();
        let mask = ready.wanted.mask;
        let expected = &mut next[usize::try_from(mask.sequence.0).unwrap()];
        assert_eq!(mask.position, *expected);
        assert_eq!(ready.outcome.unwrap(), Mask::Allow(vec![id]));
        *expected += 1;
    }
    drop(threads);
    assert!(matches!(
        answers.recv_timeout(Duration::from_secs(50)),
        Err(mpsc::RecvTimeoutError::Disconnected)
    ));
}
