//! Sequences from their prompt to their end, and what is told of them.

use std::sync::Arc;

use headrace_scheduler::{Event, FinishReason, SchedulerConfig, SequenceId, StepOutcome};

use crate::{
    GROUP, NOW, answer, complete, config, drain, num_tokens, plan, request, rows, submit, token, up,
};

#[test]
fn a_start_is_told_with_the_step_that_has_it() {
    let mut scheduler = up(config(), 8);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5], 2);
    assert_eq!(scheduler.expire(NOW), []);
    let first = plan(&mut scheduler);
    let id = SequenceId(1);
    let cached_tokens = 0;
    let started = Event::Started {
        id,
        cached_tokens,
        at: NOW,
    };
    assert_eq!(scheduler.expire(NOW), [started]);
    let token = token(7);
    let events = answer(&mut scheduler, &first, 7);
    assert_eq!(events, [Event::Token { id, token }]);
    // Once, whatever happens to it.
    scheduler.group_down(NOW, GROUP);
    scheduler.group_up(NOW, GROUP, 8);
    let again = plan(&mut scheduler);
    assert_eq!(scheduler.expire(NOW), []);
    let events = answer(&mut scheduler, &again, 8);
    assert!(!matches!(events[0], Event::Started { .. }), "{events:?}");
}

#[test]
fn one_sequence_from_prompt_to_length() {
    let mut scheduler = up(config(), 8);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5], 2);
    let first = plan(&mut scheduler);
    assert_eq!(first.step_id, 1);
    assert_eq!(first.new_sequences[0].token_ids, [1, 2, 3, 4, 5]);
    assert_eq!(first.new_sequences[0].blocks.len(), 2);
    assert_eq!(num_tokens(&first), [5]);
    assert!(first.rows[0].sample);
    assert_eq!(scheduler.plan(NOW, GROUP), None, "one step in flight");
    let id = SequenceId(1);
    let events = answer(&mut scheduler, &first, 7);
    let started = Event::Started {
        id,
        cached_tokens: 0,
        at: NOW,
    };
    assert_eq!(
        events,
        [
            started,
            Event::Token {
                id,
                token: token(7)
            }
        ]
    );
    let second = plan(&mut scheduler);
    assert_eq!(num_tokens(&second), [1]);
    assert!(second.new_sequences.is_empty() && second.block_appends.is_empty());
    let events = answer(&mut scheduler, &second, 8);
    let finished = Event::Finished {
        id,
        reason: FinishReason::Length,
    };
    assert_eq!(
        events,
        [
            Event::Token {
                id,
                token: token(8)
            },
            finished
        ]
    );
    // The workers are told to forget the slot.
    let last = plan(&mut scheduler);
    assert_eq!((last.rows.len(), last.finished_slots.len()), (0, 1));
    assert!(answer(&mut scheduler, &last, 0).is_empty());
    assert!(scheduler.is_idle());
    assert_eq!(scheduler.stats().owned_blocks, 0);
    assert_eq!(
        scheduler.stats().cached_blocks,
        2,
        "the prompt and the token computed"
    );
}

#[test]
fn eos_wins_over_length_and_min_tokens_over_eos() {
    for (min_tokens, reason) in [(0, FinishReason::Eos), (1, FinishReason::Length)] {
        let mut scheduler = up(config(), 8);
        let mut asked = request(1, [1], 1);
        asked.stop.eos_token_ids = Arc::from([9]);
        asked.stop.min_tokens = min_tokens;
        scheduler.submit(NOW, asked).unwrap();
        let events = drain(&mut scheduler, 9);
        assert_eq!(
            events.last(),
            Some(&Event::Finished {
                id: SequenceId(1),
                reason
            })
        );
    }
    let mut scheduler = up(config(), 8);
    let mut asked = request(1, [1], 5);
    asked.stop.stop_token_ids = vec![9];
    scheduler.submit(NOW, asked).unwrap();
    let reason = FinishReason::StopToken(9);
    assert_eq!(
        drain(&mut scheduler, 9).last(),
        Some(&Event::Finished {
            id: SequenceId(1),
            reason
        })
    );
}

#[test]
fn prompt_logprobs_read_no_cache_and_come_in_order() {
    let mut scheduler = up(
        SchedulerConfig {
            max_batch_tokens: 4,
            ..config()
        },
        32,
    );
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5, 6], 1);
    drain(&mut scheduler, 9);
    let mut asked = request(2, [1, 2, 3, 4, 5, 6], 1);
    asked.prompt_logprobs = true;
    scheduler.submit(NOW, asked).unwrap();
    let mut positions = Vec::new();
    for due in [4_usize, 1] {
        let step = plan(&mut scheduler);
        assert!(step.rows[0].prompt_logprobs);
        let mut results = rows(&step, 9);
        results[0].prompt_logprobs = (0..due).map(|_| token(1)).collect();
        let events = complete(&mut scheduler, &step, StepOutcome::Ok(results));
        positions.extend(events.iter().filter_map(|event| match event {
            Event::PromptLogprobs { tokens, .. } => Some(tokens.len()),
            _ => None,
        }));
    }
    assert_eq!(positions, [4, 1]);
}

#[test]
fn two_steps_in_flight_and_what_is_computed_too_much_is_dropped() {
    let mut scheduler = up(
        SchedulerConfig {
            max_steps_in_flight: 2,
            ..config()
        },
        4,
    );
    let mut asked = request(1, [1, 2, 3], 10);
    asked.stop.eos_token_ids = Arc::from([9]);
    scheduler.submit(NOW, asked).unwrap();
    let first = plan(&mut scheduler);
    let second = plan(&mut scheduler);
    assert_eq!(num_tokens(&second), [1], "its input is not known yet");
    assert_eq!(scheduler.plan(NOW, GROUP), None);
    let events = answer(&mut scheduler, &first, 9);
    let reason = FinishReason::Eos;
    assert_eq!(
        events.last(),
        Some(&Event::Finished {
            id: SequenceId(1),
            reason
        })
    );
    // The second step still writes its block.
    assert_eq!(scheduler.stats().ending, 1);
    assert!(scheduler.stats().owned_blocks > 0);
    submit(&mut scheduler, 2, &[4, 5, 6], 1);
    let third = plan(&mut scheduler);
    assert_eq!(scheduler.expire(NOW).len(), 1, "a start");
    assert_ne!(third.rows[0].slot, second.rows[0].slot);
    assert!(answer(&mut scheduler, &second, 8).is_empty());
    assert_eq!(scheduler.stats().ending, 0);
    answer(&mut scheduler, &third, 8);
    drain(&mut scheduler, 8);
    assert_eq!(scheduler.stats().owned_blocks, 0);
}

#[test]
fn a_cancel_frees_blocks_once_steps_sent_have_answered() {
    let mut scheduler = up(config(), 4);
    submit(&mut scheduler, 1, &[1; 6], 5);
    let step = plan(&mut scheduler);
    assert!(scheduler.cancel(NOW, SequenceId(1)));
    assert!(!scheduler.cancel(NOW, SequenceId(1)));
    assert_eq!(scheduler.stats().owned_blocks, 2);
    assert!(
        answer(&mut scheduler, &step, 9).is_empty(),
        "nothing is told after a cancel"
    );
    assert_eq!(scheduler.stats().owned_blocks, 0);
}
