//! Ends of the workers that no sequence is the cause of.

use super::scene;
use crate::scene::GROUP;

/// One crash is not two: with every token that comes, suspicion ends.
#[test]
fn kills_from_outside_that_let_a_token_through_isolate_nobody() {
    let mut scene = scene(8, 40);
    for _ in 0..20 {
        // Past the token of the crash: what was in flight and one more.
        for _ in 0..2 {
            scene.step();
        }
        scene.plan();
        scene.crash();
        assert_eq!(scene.suspects(), 0);
    }
    scene.drain();
    scene.assert_only_failed(&[], 8);
}

/// As close to each other as it takes to isolate: the search ends soon after, and nobody fails.
#[test]
fn kills_from_outside_in_a_row_hold_nobody_up_for_long() {
    for kills in 2..=7 {
        let mut scene = scene(8, 40);
        scene.step();
        for _ in 0..kills {
            scene.plan();
            scene.crash();
            if scene.suspects() == 1 {
                // The next one would be the second alone: it is not that close.
                scene.step();
                scene.step();
            }
        }
        let mut steps = 0;
        while scene.suspects() > 0 {
            scene.step();
            steps += 1;
        }
        // Two steps for each part of the search: eight halve three times.
        assert!(steps <= 2 * 5, "{kills} kills: {steps} steps");
        scene.drain();
        scene.assert_only_failed(&[], 8);
    }
}

#[test]
fn a_restart_on_purpose_suspects_nobody() {
    let mut scene = scene(4, 9);
    for _ in 0..5 {
        scene.plan();
        scene.scheduler.group_down(scene.now, GROUP);
        scene.up();
        assert_eq!(scene.suspects(), 0);
    }
    assert_eq!(scene.step(), [1, 2, 3, 4]);
}

/// A restart on purpose in the middle goes on where the search was.
#[test]
fn a_restart_on_purpose_ends_no_isolation() {
    let mut scene = scene(4, 9);
    for _ in 0..2 {
        scene.plan();
        scene.crash();
    }
    assert_eq!(scene.suspects(), 4);
    scene.plan();
    scene.up();
    assert_eq!(scene.suspects(), 4);
    assert_eq!(scene.step(), [1, 2]);
}

/// A crash that none of the suspects was in: it is not they.
#[test]
fn a_crash_without_a_suspect_ends_the_isolation() {
    let mut scene = scene(4, 9);
    for _ in 0..2 {
        scene.plan();
        scene.crash();
    }
    assert_eq!(scene.suspects(), 4);
    scene.crash();
    assert_eq!(scene.suspects(), 0);
    assert_eq!(scene.step(), [1, 2, 3, 4]);
}
