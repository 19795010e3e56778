//! Who loses its blocks when there are too few.

use headrace_scheduler::SchedulerConfig;

use crate::scene::{GROUP, Scene, config, request};

/// Slots that the oldest one entered.
fn entries_of_oldest(scene: &mut Scene, oldest: u64) -> usize {
    let mut entries = 0;
    while !scene.ended.contains_key(&oldest) {
        let plan = scene.plan();
        let new = plan.new_sequences.iter();
        entries += new
            .filter(|new| u64::from(new.token_ids[0] / 100) == oldest)
            .count();
        scene.answer(&plan, 9);
    }
    entries
}

/// A pool for one and a half: everybody else gives way, however many come.
#[test]
fn the_oldest_of_the_highest_class_is_never_preempted() {
    for steps in [1, 2] {
        for blocks in 5..12 {
            let bounds = SchedulerConfig {
                max_steps_in_flight: steps,
                ..config()
            };
            let mut scene = Scene::new(bounds, blocks);
            for id in 1..=6 {
                scene.submit(id, 3, 17);
            }
            assert_eq!(entries_of_oldest(&mut scene, 1), 1, "{blocks} blocks");
            scene.drain();
            assert!(scene.scheduler.stats().preemptions > 0);
        }
    }
}

/// What came first of a lower class gives way to the oldest of the highest.
#[test]
fn class_comes_before_age() {
    let mut scene = Scene::new(config(), 6);
    for id in 1..=4 {
        let mut asked = request(id, 3, 17);
        asked.priority = i32::from(id != 3);
        scene.take(asked);
    }
    assert_eq!(entries_of_oldest(&mut scene, 3), 1);
    scene.drain();
}

/// No sequence but that one is immune: two that hold what the other needs both end.
#[test]
fn two_long_ones_do_not_block_each_other() {
    for steps in [1, 2] {
        let bounds = SchedulerConfig {
            max_steps_in_flight: steps,
            prefix_caching: false,
            ..config()
        };
        let mut scene = Scene::new(bounds, 6);
        scene.submit(1, 10, 14);
        scene.submit(2, 10, 14);
        scene.drain();
        assert_eq!(scene.ended.len(), 2);
    }
}

/// The oldest is paused: then it is the first to go.
#[test]
fn a_paused_sequence_has_no_immunity() {
    let mut scene = Scene::new(config(), 6);
    scene.submit(1, 7, 17);
    scene.submit(2, 7, 17);
    scene.step();
    let id = headrace_scheduler::SequenceId(1);
    assert!(scene.scheduler.pause(scene.now, id));
    assert_eq!(entries_of_oldest(&mut scene, 2), 0);
    assert_eq!(scene.scheduler.stats().preemptions, 1);
    assert!(scene.scheduler.resume(scene.now, id));
    scene.drain();
}

/// Another one is to run alone, and there is no block for it: the oldest goes on, for it gives its own back sooner.
#[test]
fn the_oldest_gives_no_block_to_one_that_is_to_run_alone() {
    let mut scene = Scene::new(config(), 3);
    scene.submit(1, 8, 4);
    scene.submit(2, 4, 4);
    for _ in 0..2 {
        let plan = scene.plan();
        assert_eq!(scene.rows(&plan), [1, 2]);
        scene.scheduler.group_crashed(scene.now, GROUP);
        scene.up();
    }
    // Past the token of the crashes with its third block, and the last.
    assert_eq!([scene.step(), scene.step()], [[1], [1]]);
    assert_eq!(scene.scheduler.stats().suspects, 1);
    assert_eq!([scene.step(), scene.step(), scene.step()], [[1], [1], [2]]);
    assert_eq!(scene.scheduler.stats().preemptions, 0);
    scene.drain();
}
