//! Sequences that end the workers only together.

use super::{Doom, halvings, scene};

/// Neither does it alone; after the search both are cleared, and together they do it again.
#[test]
fn two_that_crash_only_together_are_run_one_at_a_time() {
    for sequences in [2, 3, 8, 32] {
        for pair in [[1, 2], [1, sequences], [sequences - 1, sequences]] {
            let mut scene = scene(sequences, 240);
            let mut doom = Doom::together(&pair);
            scene.run(&mut doom);
            scene.assert_only_failed(&[], sequences);
            // The search; then two crashes before each time apart, for 16, 32, 64 and 128 ids.
            let most = 2 + halvings(sequences) + 2 * 4;
            assert!(doom.crashes <= most, "{} of {sequences}", doom.crashes);
            // The first half's are not apart by then: their times apart are no longer than that.
            let least = if pair == [1, 2] { 2 + 2 * 4 } else { 3 };
            assert!(doom.crashes >= least, "{} of {sequences}", doom.crashes);
        }
    }
}

/// The others have every other step.
#[test]
fn those_run_one_at_a_time_stop_nobody() {
    let mut scene = scene(3, 60);
    let mut doom = Doom::together(&[1, 2]);
    while doom.crashes < 4 || scene.suspects() > 0 {
        scene.live(&mut doom);
    }
    // Their stints are not over: by turns, never both.
    scene.submit(4, 6, 9);
    let before = doom.steps.len();
    for _ in 0..12 {
        scene.live(&mut doom);
    }
    let steps = &doom.steps[before..];
    let with = |id: u64| steps.iter().filter(|rows| rows.contains(&id)).count();
    assert!(with(1) + with(2) >= 5, "{steps:?}");
    assert!(with(3) >= 5 && with(4) >= 5, "{steps:?}");
    scene.run(&mut doom);
    scene.assert_only_failed(&[], 4);
}

/// Likewise for those that are run one at a time: a crash of none of them ends that.
#[test]
fn a_crash_without_those_run_one_at_a_time_ends_that() {
    let mut scene = scene(3, 60);
    let mut doom = Doom::together(&[1, 2]);
    // The search takes three crashes, and two more tell that it must be both.
    while doom.crashes < 5 {
        scene.live(&mut doom);
    }
    for _ in 0..6 {
        let rows = scene.step();
        assert!(rows == [1] || rows == [3], "{rows:?}: by turns");
    }
    scene.crash();
    assert_eq!(scene.step(), [1, 2, 3]);
}
