//! Workers that die by a sequence, by two together, or from outside.

use std::collections::{BTreeMap, BTreeSet};

use headrace_scheduler::{Event, SchedulerConfig, SequenceFailure, SequenceId, StepPlan};

use crate::scene::{GROUP, Scene, config};

/// What ends the workers, and how often that was.
#[derive(Default)]
struct Doom {
    /// The token at which a sequence does.
    poison: BTreeMap<u64, usize>,
    /// Those that do with rows in one step.
    together: BTreeSet<u64>,
    crashes: u32,
    /// Ids computed for each, since the group came up.
    computed: BTreeMap<u64, usize>,
    /// Whose rows each step had.
    steps: Vec<Vec<u64>>,
}

impl Doom {
    fn poison(poison: &[(u64, usize)]) -> Self {
        Self {
            poison: poison.iter().copied().collect(),
            ..Self::default()
        }
    }

    fn together(ids: &[u64]) -> Self {
        Self {
            together: ids.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Whether the step ends the workers.
    fn meets(&mut self, scene: &Scene, plan: &StepPlan) -> bool {
        let rows = scene.rows(plan);
        self.steps.push(rows.clone());
        for new in &plan.new_sequences {
            let id = u64::from(new.token_ids[0] / 100);
            self.computed.insert(id, new.computed_length as usize);
        }
        let mut deadly =
            !self.together.is_empty() && self.together.iter().all(|id| rows.contains(id));
        for (row, id) in plan.rows.iter().zip(&rows) {
            let computed = self.computed.get_mut(id).unwrap();
            let end = *computed + row.num_tokens as usize;
            let poison = self.poison.get(id);
            deadly |= poison.is_some_and(|position| (*computed..end).contains(position));
            *computed = end;
        }
        deadly
    }
}

impl Scene {
    /// Plans and answers one step at a time until it is calm, or the workers died.
    fn run(&mut self, doom: &mut Doom) {
        while !self.scheduler.is_idle() {
            self.live(doom);
        }
    }

    /// One step, which may be the workers' last.
    fn live(&mut self, doom: &mut Doom) {
        let plan = self.plan();
        if doom.meets(self, &plan) {
            doom.crashes += 1;
            self.crash();
        } else {
            self.answer(&plan, 9);
        }
    }

    /// The workers die and come back; what failed by it is told.
    fn crash(&mut self) -> Vec<Event> {
        self.scheduler.group_crashed(self.now, GROUP);
        self.scheduler.audit();
        let events = self.scheduler.expire(self.now);
        self.hear(&events);
        self.up();
        events
    }

    fn suspects(&self) -> usize {
        self.scheduler.stats().suspects
    }

    fn assert_only_failed(&self, failed: &[u64], all: u64) {
        for id in 1..=all {
            let due = failed.contains(&id).then_some(SequenceFailure::WorkerCrash);
            assert_eq!(self.ended.get(&id), Some(&due), "sequence {id}");
        }
    }
}

fn scene(sequences: u64, max_new_tokens: u32) -> Scene {
    let bounds = SchedulerConfig {
        max_sequences: 128,
        max_batch_tokens: 1024,
        ..config()
    };
    let mut scene = Scene::new(bounds, 2048);
    for id in 1..=sequences {
        scene.submit(id, 6, max_new_tokens);
    }
    scene
}

fn halvings(sequences: u64) -> u32 {
    sequences.next_power_of_two().ilog2()
}

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
