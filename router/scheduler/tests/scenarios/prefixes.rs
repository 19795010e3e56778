//! What is found in the cache, and who waits for what is being computed.

use headrace_scheduler::{
    BlockCopy, RowOutcome, Scheduler, SchedulerConfig, SequenceId, StepOutcome, TokenId,
};

use crate::{
    GROUP, NOW, answer, at, cached_tokens, complete, config, drain, entering, num_tokens, plan,
    rows, submit, up,
};

#[test]
fn only_uncached_tokens_are_charged_and_at_most_the_last_is_recomputed() {
    let mut scheduler = up(
        SchedulerConfig {
            max_batch_tokens: 8,
            ..config()
        },
        32,
    );
    let prompt: Vec<TokenId> = (0..16).collect();
    submit(&mut scheduler, 1, &prompt, 1);
    drain(&mut scheduler, 50);
    // Two at once fit into 8 tokens, for each costs one.
    submit(&mut scheduler, 2, &prompt, 1);
    submit(&mut scheduler, 3, &prompt, 1);
    let step = plan(&mut scheduler);
    assert_eq!(num_tokens(&step), [1, 1]);
    let new = &step.new_sequences;
    assert_eq!(new[0].computed_length, 15);
    assert_eq!(
        new[0].blocks[..3],
        new[1].blocks[..3],
        "whole blocks are shared"
    );
    assert_ne!(new[0].blocks[3], new[1].blocks[3], "what is written is not");
    assert_eq!(step.block_copies.len(), 2);
    let copy = step.block_copies[0];
    let (destination, source) = (new[0].blocks[3], step.block_copies[1].source);
    assert_eq!(
        copy,
        BlockCopy {
            source,
            destination,
            num_tokens: 3
        }
    );
    assert_eq!(cached_tokens(&answer(&mut scheduler, &step, 50)), [15, 15]);
}

#[test]
fn generated_tokens_and_the_partial_tail_are_cached() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1, 2, 3], 4);
    drain(&mut scheduler, 9);
    // KV exists for the prompt and three of the four tokens: one block and a tail of two.
    assert_eq!(
        scheduler.cached_prefix(GROUP, 0, &[1, 2, 3, 9, 9, 9, 9, 9]),
        6
    );
    assert_eq!(
        scheduler.cached_prefix(GROUP, 1, &[1, 2, 3, 9]),
        0,
        "another namespace"
    );
    submit(&mut scheduler, 2, &[1, 2, 3, 9, 9, 9, 9, 5], 1);
    assert_eq!(cached_tokens(&drain(&mut scheduler, 9)), [6]);
}

#[test]
fn a_full_block_is_shared_while_its_sequence_runs() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5], 20);
    let step = plan(&mut scheduler);
    submit(&mut scheduler, 2, &[1, 2, 3, 4, 6], 20);
    answer(&mut scheduler, &step, 9);
    let step = plan(&mut scheduler);
    assert_eq!(step.new_sequences[0].computed_length, 4);
    // Private block of the first sequence still: [5, 9] is in no tree.
    assert!(step.block_copies.is_empty());
}

#[test]
fn without_a_block_for_the_copy_the_tail_is_recomputed() {
    let mut scheduler = up(config(), 2);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5, 6], 1);
    drain(&mut scheduler, 9);
    submit(&mut scheduler, 2, &[1, 2, 3, 4, 5, 7], 1);
    let step = plan(&mut scheduler);
    assert_eq!(step.new_sequences[0].computed_length, 4);
    assert!(step.block_copies.is_empty());
}

fn sharing() -> Scheduler {
    let mut bounds = config();
    bounds.max_batch_tokens = 8;
    up(bounds, 32)
}

#[test]
fn a_prefix_is_computed_once_and_others_pass() {
    let mut scheduler = sharing();
    let prompt: Vec<TokenId> = (1..=13).collect();
    submit(&mut scheduler, 1, &prompt, 1);
    submit(&mut scheduler, 2, &prompt, 1);
    submit(&mut scheduler, 3, &[9; 5], 1);
    let mut entered = Vec::new();
    let mut events = Vec::new();
    while !scheduler.is_idle() {
        let step = plan(&mut scheduler);
        entered.push(entering(Some(&step)));
        events.extend(answer(&mut scheduler, &step, 50));
    }
    // 13 tokens in steps of 8: then the second needs one only, and the third has not waited for it.
    assert_eq!(entered[..3], [vec![1], vec![9], vec![1]]);
    assert_eq!(cached_tokens(&events), [0, 0, 12]);
    assert_eq!(scheduler.stats().deferrals, 1);
}

#[test]
fn nobody_waits_for_blocks_that_will_not_come() {
    let prompt: Vec<TokenId> = (1..=13).collect();
    for fails in [false, true] {
        let mut scheduler = sharing();
        submit(&mut scheduler, 1, &prompt, 1);
        submit(&mut scheduler, 2, &prompt, 1);
        let step = plan(&mut scheduler);
        assert_eq!(step.rows.len(), 1);
        let mut results = rows(&step, 50);
        if fails {
            results[0].outcome = RowOutcome::NonFinite;
        } else {
            assert!(scheduler.cancel(NOW, SequenceId(1)));
        }
        complete(&mut scheduler, &step, StepOutcome::Ok(results));
        assert_eq!(plan(&mut scheduler).new_sequences[0].computed_length, 0);
    }
    // Or that do not come in time.
    let mut bounds = config();
    bounds.max_batch_tokens = 8;
    bounds.max_steps_in_flight = 3;
    let mut scheduler = up(bounds, 32);
    submit(&mut scheduler, 1, &prompt, 1);
    submit(&mut scheduler, 2, &prompt, 1);
    for _ in 0..2 {
        assert_eq!(plan(&mut scheduler).rows.len(), 1);
    }
    assert_eq!(scheduler.plan(at(4999), GROUP), None);
    let step = scheduler.plan(at(5000), GROUP).unwrap();
    assert_eq!(step.new_sequences[0].computed_length, 0);
}
