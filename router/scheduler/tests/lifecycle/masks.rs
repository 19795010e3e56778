//! Rows that wait for a mask.

use headrace_scheduler::{
    DueMask, ProtocolViolation, RowOutcome, SchedulerConfig, SequenceId, StepOutcome,
};

use crate::scene::{Scene, config, request};

fn constrained(id: u64, length: u32, max_new_tokens: u32) -> headrace_scheduler::SequenceRequest {
    let mut asked = request(id, length, max_new_tokens);
    asked.constrained = true;
    asked
}

fn positions(masks: &[DueMask]) -> Vec<(u64, u32)> {
    masks
        .iter()
        .map(|due| (due.sequence.0, due.position))
        .collect()
}

#[test]
fn every_id_of_a_constrained_sequence_is_announced_once() {
    let mut bounds = config();
    bounds.max_batch_tokens = 4;
    let mut scene = Scene::new(bounds, 16);
    scene.take(constrained(1, 6, 3));
    let first = scene.plan();
    assert!(first.masks.is_empty(), "this chunk samples nothing");
    assert!(!first.rows[0].masked);
    scene.answer(&first, 9);
    for position in 0..3 {
        let step = scene.plan();
        assert!(step.rows[0].sample && step.rows[0].masked);
        let due = DueMask {
            sequence: SequenceId(1),
            slot: step.rows[0].slot,
            position,
        };
        assert_eq!(step.masks, [due]);
        scene.answer(&step, 9);
    }
    assert!(scene.ended.contains_key(&1));
}

#[test]
fn masks_come_in_the_order_of_the_rows_and_only_for_the_constrained() {
    let mut scene = Scene::new(config(), 32);
    scene.take(constrained(1, 3, 5));
    scene.submit(2, 3, 5);
    scene.take(constrained(3, 3, 5));
    let step = scene.plan();
    let masked: Vec<bool> = step.rows.iter().map(|row| row.masked).collect();
    assert_eq!(masked, [true, false, true]);
    assert_eq!(positions(&step.masks), [(1, 0), (3, 0)]);
}

/// The second mask depends on an id that is still on its way.
#[test]
fn two_steps_in_flight_announce_the_positions_that_follow() {
    let bounds = SchedulerConfig {
        max_steps_in_flight: 2,
        ..config()
    };
    let mut scene = Scene::new(bounds, 32);
    scene.take(constrained(1, 3, 5));
    let first = scene.plan();
    let second = scene.plan();
    assert_eq!(positions(&first.masks), [(1, 0)]);
    assert_eq!(positions(&second.masks), [(1, 1)]);
    scene.answer(&first, 9);
    assert_eq!(positions(&scene.plan().masks), [(1, 2)]);
}

#[test]
fn a_lost_group_announces_the_same_position_again() {
    let mut scene = Scene::new(config(), 32);
    scene.take(constrained(1, 3, 5));
    scene.step();
    let lost = scene.plan();
    assert_eq!(positions(&lost.masks), [(1, 1)]);
    scene.up();
    let again = scene.plan();
    assert_eq!(again.new_sequences[0].token_ids.len(), 4);
    assert_eq!(positions(&again.masks), [(1, 1)]);
}

#[test]
fn a_failed_step_announces_its_positions_again() {
    let mut scene = Scene::new(config(), 32);
    scene.take(constrained(1, 3, 5));
    let failed = scene.plan();
    let outcome = StepOutcome::Failed("scripted".to_owned());
    scene.try_complete(&failed, outcome).unwrap();
    assert_eq!(positions(&scene.plan().masks), [(1, 0)]);
}

#[test]
fn a_row_is_called_off_only_when_its_sequence_is_over() {
    let mut scene = Scene::new(config(), 32);
    scene.take(constrained(1, 3, 5));
    scene.submit(2, 3, 5);
    let step = scene.plan();
    let without = |row: usize| {
        let mut results = Scene::results(&step, 9);
        results[row].outcome = RowOutcome::Tokens(Vec::new());
        StepOutcome::Ok(results)
    };
    for row in [0, 1] {
        let violation = scene.try_complete(&step, without(row)).unwrap_err();
        assert!(matches!(
            violation,
            ProtocolViolation::TokenCount { due: 1, got: 0, .. }
        ));
    }
    scene.cancel(1);
    scene.cancel(2);
    // The second one waits for no mask, so nothing can be called off.
    assert!(scene.try_complete(&step, without(1)).is_err());
    assert!(scene.try_complete(&step, without(0)).unwrap().is_empty());
    scene.drain();
    assert_eq!(scene.scheduler.stats().owned_blocks, 0);
}

/// Its id ended the sequence, so the row behind it has no mask to come.
#[test]
fn the_row_behind_the_last_id_may_be_called_off_or_not() {
    for called_off in [false, true] {
        let bounds = SchedulerConfig {
            max_steps_in_flight: 2,
            ..config()
        };
        let mut scene = Scene::new(bounds, 32);
        let mut asked = constrained(1, 3, 5);
        asked.stop.stop_token_ids = vec![9];
        scene.take(asked);
        let first = scene.plan();
        let second = scene.plan();
        scene.answer(&first, 9);
        assert_eq!(scene.ended.get(&1), Some(&None));
        let mut results = Scene::results(&second, 8);
        if called_off {
            results[0].outcome = RowOutcome::Tokens(Vec::new());
        }
        let events = scene.try_complete(&second, StepOutcome::Ok(results));
        assert_eq!(events, Ok(Vec::new()));
    }
}
