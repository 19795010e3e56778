//! Sequences whose owner takes nothing for a while.

use headrace_scheduler::{Event, SchedulerConfig, SequenceFailure, SequenceId, Time};

use crate::scene::{GROUP, Scene, config, request};

impl Scene {
    fn pause(&mut self, id: u64) {
        assert!(self.scheduler.pause(self.now, SequenceId(id)));
        self.scheduler.audit();
    }

    fn resume(&mut self, id: u64) {
        assert!(self.scheduler.resume(self.now, SequenceId(id)));
        self.scheduler.audit();
    }

    /// The step that tells the workers which slots to forget, or that nothing is to do.
    fn nothing_runs(&mut self) {
        if let Some(plan) = self.try_plan() {
            assert!(plan.rows.is_empty());
            self.answer(&plan, 9);
        }
        assert_eq!(self.try_plan(), None);
    }
}

fn waits_and_paused(scene: &Scene) -> (usize, usize) {
    let stats = scene.scheduler.stats();
    (stats.waiting, stats.paused)
}

#[test]
fn a_paused_sequence_is_in_no_new_step_and_keeps_its_blocks_while_nobody_needs_them() {
    let mut scene = Scene::new(config(), 32);
    scene.submit(1, 6, 20);
    scene.submit(2, 6, 20);
    assert_eq!(scene.step(), [1, 2]);
    scene.pause(1);
    scene.pause(1);
    for _ in 0..3 {
        assert_eq!(scene.step(), [2]);
    }
    assert_eq!(scene.scheduler.stats().running, 2);
    assert_eq!(waits_and_paused(&scene), (0, 1));
    scene.resume(1);
    scene.resume(1);
    let plan = scene.plan();
    assert!(plan.new_sequences.is_empty(), "it never left its slot");
    assert_eq!(scene.rows(&plan), [1, 2]);
    scene.answer(&plan, 9);
    scene.drain();
    assert_eq!(scene.scheduler.stats().preemptions, 0);
}

#[test]
fn what_steps_already_sent_give_is_told() {
    let mut scene = Scene::new(
        SchedulerConfig {
            max_steps_in_flight: 2,
            ..config()
        },
        32,
    );
    scene.submit(1, 6, 20);
    let (first, second) = (scene.plan(), scene.plan());
    scene.pause(1);
    for step in [first, second] {
        let events = scene.answer(&step, 9);
        let tokens = events
            .iter()
            .filter(|event| matches!(event, Event::Token { .. }));
        assert_eq!(tokens.count(), 1);
    }
    assert_eq!(scene.try_plan(), None, "nothing to do is not a step");
    assert!(!scene.scheduler.is_idle());
}

/// The oldest one is paused: a decode of the newer one takes its blocks.
#[test]
fn a_paused_sequence_is_preempted_before_any_other() {
    let mut scene = Scene::new(config(), 6);
    scene.submit(1, 8, 12);
    scene.submit(2, 6, 16);
    scene.submit(3, 3, 3);
    scene.step();
    scene.pause(1);
    while !scene.ended.contains_key(&2) {
        let rows = scene.step();
        assert!(!rows.contains(&1) && rows.contains(&2), "{rows:?}");
    }
    assert_eq!(scene.scheduler.stats().preemptions, 1);
    assert_eq!(waits_and_paused(&scene), (0, 1));
    scene.resume(1);
    assert_eq!(waits_and_paused(&scene), (1, 0));
    scene.drain();
    assert_eq!(scene.ended[&1], None);
}

#[test]
fn a_prefill_takes_the_blocks_of_a_paused_older_one() {
    let mut bounds = config();
    bounds.max_batch_tokens = 8;
    let mut scene = Scene::new(bounds, 5);
    scene.submit(1, 4, 12);
    scene.submit(2, 12, 4);
    scene.step();
    while scene.scheduler.stats().free_blocks > 1 {
        scene.step();
    }
    scene.pause(1);
    while !scene.ended.contains_key(&2) {
        assert_eq!(scene.step(), [2]);
    }
}

#[test]
fn slot_and_blocks_of_a_paused_sequence_go_to_one_that_waits() {
    for (max_sequences, blocks) in [(1, 32), (8, 4)] {
        let bounds = SchedulerConfig {
            max_sequences,
            ..config()
        };
        let mut scene = Scene::new(bounds, blocks);
        scene.submit(1, 9, 4);
        scene.step();
        scene.submit(2, 9, 4);
        assert_eq!(scene.step(), [1], "there is no room for two");
        scene.pause(1);
        assert_eq!(scene.step(), [2]);
        // Without pressure left it still waits for its owner.
        scene.cancel(2);
        scene.nothing_runs();
        scene.resume(1);
        assert_eq!(scene.step(), [1]);
        scene.drain();
        assert_eq!(scene.ended[&1], None);
    }
}

#[test]
fn a_paused_sequence_holds_nobody_back_in_the_queue() {
    let mut bounds = config();
    bounds.max_sequences = 1;
    bounds.max_waiting_sequences = 2;
    bounds.policy.overdue_age = Some(std::time::Duration::from_millis(5));
    bounds.policy.skip_ahead = std::time::Duration::ZERO;
    let mut scene = Scene::new(bounds, 8);
    // Waits first, is overdue, and fits alone only.
    scene.submit(1, 28, 4);
    scene.pause(1);
    scene.now = Time(std::time::Duration::from_millis(10));
    scene.submit(2, 3, 2);
    scene.submit(3, 3, 2);
    assert_eq!(waits_and_paused(&scene), (2, 1), "and beyond the bound");
    assert_eq!(scene.scheduler.stats().waiting_tokens, 6);
    assert_eq!(
        scene.scheduler.stats().oldest_waiting,
        Some(scene.now),
        "what is paused does not wait"
    );
    while scene.ended.len() < 2 {
        assert!(!scene.step().contains(&1));
    }
    scene.nothing_runs();
    scene.resume(1);
    scene.drain();
    assert_eq!(scene.ended[&1], None);
}

/// It ran before, so it goes before what came first.
#[test]
fn a_resumed_sequence_comes_first_within_its_class() {
    let mut bounds = config();
    bounds.max_sequences = 1;
    let mut scene = Scene::new(bounds, 8);
    scene.submit(1, 3, 3);
    scene.submit(2, 3, 3);
    scene.step();
    scene.pause(1);
    assert_eq!(scene.step(), [2]);
    scene.submit(3, 3, 3);
    scene.resume(1);
    let mut urgent = request(4, 3, 3);
    urgent.priority = -1;
    scene.take(urgent);
    let mut order = Vec::new();
    while !scene.scheduler.is_idle() {
        order.extend(scene.step());
    }
    order.dedup();
    assert_eq!(order, [2, 4, 1, 3]);
}

#[test]
fn nobody_waits_for_blocks_that_a_paused_sequence_was_computing() {
    let mut bounds = config();
    bounds.max_batch_tokens = 4;
    let mut scene = Scene::new(bounds, 32);
    scene.submit(1, 12, 3);
    scene.step();
    let mut alike = request(2, 12, 3);
    alike.prompt = request(1, 12, 3).prompt;
    scene.take(alike);
    assert_eq!(scene.step().len(), 1, "the other waits for the prefix");
    scene.pause(1);
    assert_eq!(scene.step().len(), 1);
    assert_eq!(scene.scheduler.stats().running, 2);
}

#[test]
fn a_paused_sequence_is_cancelled_wherever_it_is() {
    let mut bounds = config();
    bounds.max_sequences = 1;
    let mut scene = Scene::new(bounds, 32);
    for id in 1..=3 {
        scene.submit(id, 3, 5);
    }
    let step = scene.plan();
    for id in 1..=3 {
        scene.pause(id);
        scene.cancel(id);
        assert!(!scene.scheduler.pause(scene.now, SequenceId(id)));
        assert!(!scene.scheduler.resume(scene.now, SequenceId(id)));
    }
    scene.answer(&step, 9);
    scene.nothing_runs();
    assert!(scene.scheduler.is_idle());
    assert_eq!(scene.scheduler.stats().owned_blocks, 0);
}

#[test]
fn a_deadline_passes_while_paused() {
    let mut scene = Scene::new(config(), 32);
    let mut asked = request(1, 3, 5);
    let deadline = Time(std::time::Duration::from_millis(5));
    asked.deadline = Some(deadline);
    scene.take(asked);
    scene.pause(1);
    assert_eq!(scene.scheduler.next_deadline(), Some(deadline));
    let failed = Event::Failed {
        id: SequenceId(1),
        failure: SequenceFailure::DeadlineExceeded,
    };
    assert_eq!(scene.scheduler.expire(deadline), [failed]);
    assert!(scene.scheduler.is_idle());
}

/// A sequence of a failed step that is paused neither runs alone nor keeps the others from running.
#[test]
fn a_paused_sequence_of_a_failed_step_holds_nobody_back() {
    let mut scene = Scene::new(config(), 32);
    scene.submit(1, 3, 5);
    scene.submit(2, 3, 5);
    let failed = scene.plan();
    let outcome = headrace_scheduler::StepOutcome::Failed("scripted".to_owned());
    scene.try_complete(&failed, outcome).unwrap();
    scene.pause(1);
    for _ in 0..3 {
        assert_eq!(scene.step(), [2]);
    }
    scene.resume(1);
    assert_eq!(scene.step(), [1], "now alone");
    assert_eq!(scene.step(), [1, 2]);
}

#[test]
fn a_paused_sequence_stays_paused_through_a_lost_group() {
    let mut scene = Scene::new(config(), 32);
    scene.submit(1, 3, 5);
    scene.submit(2, 3, 5);
    scene.step();
    scene.pause(1);
    scene.up();
    assert_eq!(waits_and_paused(&scene), (1, 1));
    assert_eq!(scene.step(), [2]);
    scene.resume(1);
    assert_eq!(scene.step(), [2, 1]);
    assert_eq!(scene.scheduler.plan(scene.now, GROUP).map(|_| ()), Some(()));
}

/// Paused ones make room for more than a step has tokens for.
#[test]
fn a_budget_below_the_decoding_sequences_goes_round() {
    for (sequences, budget) in [(3, 2), (5, 2), (5, 4)] {
        let bounds = SchedulerConfig {
            max_batch_tokens: budget,
            ..config()
        };
        let mut scene = Scene::new(bounds, 64);
        for id in 1..=sequences {
            scene.submit(id, 1, 50);
            scene.step();
            scene.pause(id);
        }
        for id in 1..=sequences {
            scene.resume(id);
        }
        let mut steps = Vec::new();
        for _ in 0..20 {
            let mut rows = scene.step();
            assert_eq!(rows.len(), budget as usize);
            rows.sort_unstable();
            steps.extend(rows);
        }
        let turns = |id: u64| steps.iter().filter(|&&row| row == id).count();
        let turns: Vec<usize> = (1..=sequences).map(turns).collect();
        let most = turns.iter().max().unwrap();
        assert!(
            turns.iter().all(|few| few + 1 >= *most),
            "{budget}: {turns:?}"
        );
        scene.drain();
    }
}
