//! What else happens while there is a search.

use headrace_scheduler::{SchedulerConfig, SequenceId};

use super::scene;
use crate::scene::{Scene, config};

#[test]
fn a_suspect_that_is_cancelled_or_paused_holds_up_no_search() {
    let mut scene = scene(4, 9);
    for _ in 0..2 {
        scene.plan();
        scene.crash();
    }
    scene.cancel(1);
    assert!(scene.scheduler.pause(scene.now, SequenceId(2)));
    assert_eq!(scene.suspects(), 3);
    assert_eq!(scene.step(), [3]);
    while scene.suspects() > 2 {
        scene.step();
    }
    while scene.suspects() > 1 {
        assert_eq!(scene.step(), [4]);
    }
    assert_eq!(scene.step(), [3, 4], "the paused one is the last suspect");
    assert!(scene.scheduler.resume(scene.now, SequenceId(2)));
    assert_eq!(scene.step(), [2]);
    scene.drain();
    assert_eq!(scene.ended.len(), 3);
}

/// The search and the retries of failed steps do not disturb each other.
#[test]
fn a_failed_step_in_isolation_is_retried_alone() {
    let mut scene = scene(4, 9);
    for _ in 0..2 {
        scene.plan();
        scene.crash();
    }
    let half = scene.plan();
    let outcome = headrace_scheduler::StepOutcome::Failed("scripted".to_owned());
    scene.try_complete(&half, outcome).unwrap();
    assert_eq!(scene.step(), [1]);
    assert_eq!(scene.step(), [2]);
    while scene.suspects() > 2 {
        scene.step();
    }
    assert_eq!(scene.step(), [3]);
    scene.drain();
    scene.assert_only_failed(&[], 4);
}

/// Others crash the workers while the suspects are paused: they are searched for, and what was found is kept.
#[test]
fn a_search_makes_way_for_another() {
    let bounds = SchedulerConfig {
        max_steps_in_flight: 2,
        ..config()
    };
    let mut scene = Scene::new(bounds, 64);
    for id in [1, 2] {
        scene.submit(id, 6, 9);
    }
    for _ in 0..2 {
        scene.plan();
        scene.crash();
    }
    assert_eq!(scene.suspects(), 2);
    for id in [1, 2] {
        scene.scheduler.pause(scene.now, SequenceId(id));
    }
    scene.submit(3, 6, 9);
    for suspects in [2, 1] {
        let step = scene.plan();
        assert_eq!(scene.rows(&step), [3]);
        assert_eq!(scene.try_plan(), None);
        scene.crash();
        assert_eq!(scene.suspects(), suspects);
    }
    for id in [1, 2] {
        scene.scheduler.resume(scene.now, SequenceId(id));
    }
    while scene.suspects() > 0 {
        assert_eq!(scene.step(), [3]);
    }
    assert_eq!(scene.step(), [3, 1, 2]);
}
