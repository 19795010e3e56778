//! The search for the sequence that ends the workers.

use headrace_scheduler::{Event, SchedulerConfig, SequenceFailure, SequenceId};

use super::{Doom, halvings, scene};
use crate::scene::{Scene, config};

/// Wherever it stands and whichever of its tokens it is.
#[test]
fn a_sequence_that_crashes_the_workers_fails_alone_within_the_bound() {
    for sequences in [1_u64, 2, 3, 5, 8, 13, 32, 64] {
        for culprit in [1, sequences.div_ceil(2), sequences] {
            for position in [0, 5, 6, 9] {
                let mut scene = scene(sequences, 6);
                let mut doom = Doom::poison(&[(culprit, position)]);
                scene.run(&mut doom);
                scene.assert_only_failed(&[culprit], sequences);
                let most = 2 + halvings(sequences) + 2;
                assert!(doom.crashes <= most, "{} of {sequences}", doom.crashes);
                assert!(doom.crashes >= 3, "found after {} crashes", doom.crashes);
                assert_eq!(scene.suspects(), 0);
            }
        }
    }
}

#[test]
fn each_of_several_is_found() {
    let mut scene = scene(32, 8);
    let culprits = [3, 4, 17, 32];
    let mut doom = Doom::poison(&[(3, 2), (4, 2), (17, 8), (32, 10)]);
    scene.run(&mut doom);
    scene.assert_only_failed(&culprits, 32);
    assert!(doom.crashes <= 4 * (2 + halvings(32) + 2));
}

/// In isolation nobody else is in a step, one step is in flight, and the suspects get fewer.
#[test]
fn while_isolated_steps_carry_one_half_of_the_suspects_only() {
    let bounds = SchedulerConfig {
        max_steps_in_flight: 2,
        ..config()
    };
    let mut scene = Scene::new(bounds, 64);
    for id in 1..=4 {
        scene.submit(id, 6, 9);
    }
    let (first, second) = (scene.plan(), scene.plan());
    assert_eq!(scene.rows(&first), [1, 2, 3, 4]);
    scene.answer(&first, 9);
    assert_eq!(scene.rows(&second), [1, 2, 3, 4]);
    scene.crash();
    assert_eq!(scene.suspects(), 0, "after one crash everything resumes");
    assert_eq!(scene.scheduler.stats().isolations, 0);
    let resumed = scene.plan();
    assert_eq!(scene.rows(&resumed), [1, 2, 3, 4]);
    scene.crash();
    assert_eq!(scene.suspects(), 4);
    scene.submit(5, 6, 9);
    let half = scene.plan();
    assert_eq!(scene.rows(&half), [1, 2]);
    assert_eq!(scene.try_plan(), None, "one step in flight");
    scene.crash();
    assert_eq!(scene.suspects(), 2, "the other half is cleared");
    assert_eq!(scene.scheduler.stats().isolations, 1, "it is the same one");
    let alone = scene.plan();
    assert_eq!(scene.rows(&alone), [1]);
    // Nothing happens: the first is past its token and waits.
    scene.answer(&alone, 9);
    while scene.suspects() == 2 {
        assert_eq!(scene.step(), [1]);
    }
    assert_eq!(scene.step(), [2]);
    while scene.suspects() == 1 {
        assert_eq!(scene.step(), [2]);
    }
    assert_eq!(scene.step(), [1, 2, 3, 4, 5], "all run again");
    scene.drain();
    scene.assert_only_failed(&[], 5);
}

/// It is not known in which unanswered step it was.
#[test]
fn a_suspect_is_past_the_last_token_in_flight_before_it_is_cleared() {
    let bounds = SchedulerConfig {
        max_steps_in_flight: 2,
        ..config()
    };
    let mut scene = Scene::new(bounds, 64);
    scene.submit(1, 6, 20);
    let first = scene.plan();
    scene.plan();
    scene.answer(&first, 9);
    // 7 ids known, the unanswered steps bring the 8th and the 9th.
    scene.plan();
    scene.crash();
    let mut ids = 7;
    while ids < 9 {
        let step = scene.plan();
        scene.answer(&step, 9);
        ids += 1;
    }
    scene.plan();
    scene.crash();
    assert_eq!(scene.suspects(), 1, "9 ids are not past it");
}

/// A part of a prompt was being computed: the whole prompt is to be computed.
#[test]
fn a_crash_in_a_prefill_is_passed_with_the_first_token() {
    let mut bounds = config();
    bounds.max_batch_tokens = 4;
    let mut scene = Scene::new(bounds, 64);
    scene.submit(1, 12, 20);
    scene.step();
    scene.plan();
    scene.crash();
    scene.step();
    scene.plan();
    scene.crash();
    assert_eq!(scene.suspects(), 1);
    for _ in 0..3 {
        assert_eq!(scene.suspects(), 1);
        scene.step();
    }
    assert_eq!(scene.suspects(), 0);
}

/// Killed alone twice, with a token between that it came past: that is no proof.
#[test]
fn two_crashes_alone_at_different_tokens_fail_nobody() {
    let mut scene = Scene::new(
        SchedulerConfig {
            max_steps_in_flight: 2,
            ..config()
        },
        64,
    );
    scene.submit(1, 6, 20);
    for _ in 0..2 {
        // Two steps in flight: it is to come past the second one's token.
        scene.plan();
        scene.plan();
        scene.crash();
    }
    assert_eq!(scene.suspects(), 1);
    scene.plan();
    scene.crash();
    for _ in 0..2 {
        let step = scene.plan();
        scene.answer(&step, 9);
    }
    assert_eq!(
        scene.suspects(),
        1,
        "it is past the first step's token only"
    );
    scene.plan();
    scene.crash();
    assert!(scene.ended.is_empty());
    scene.plan();
    let events = scene.crash();
    let failed = Event::Failed {
        id: SequenceId(1),
        failure: SequenceFailure::WorkerCrash,
    };
    assert_eq!(events, [failed], "and these were at the same one");
}
