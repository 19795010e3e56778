//! The inter-token guard against workers with made-up costs: what a step takes is arithmetic.

#![expect(
    clippy::unwrap_used,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use headrace_scheduler::{
    PolicyConfig, Scheduler, SchedulerConfig, SequenceRequest, Slot, StepOutcome, StepPace,
    StepPlan, Time,
};

#[path = "support/mod.rs"]
mod support;

use support::{GROUP, request, result, rows, token};

const BLOCK: u64 = 16;
const BUDGET: u64 = 2048;
/// Prefill tokens that a step has whatever it takes.
const LEAST: u64 = 4;

/// What a step takes, in nanoseconds.
#[derive(Clone, Copy)]
struct Costs {
    step: u64,
    row: u64,
    token: u64,
    /// What a prompt token's logprobs add to that.
    logprobs: u64,
}

/// A decoding row here takes 10 µs and a step 1 ms, so 16 chats leave 8.84 ms of 10 ms.
const COSTS: Costs = Costs {
    step: 1_000_000,
    row: 10_000,
    token: 20_000,
    logprobs: 100_000,
};

#[derive(Clone, Copy, Debug)]
struct Step {
    decode_rows: u64,
    prefill_tokens: u64,
    took: u64,
}

struct Sent {
    plan: StepPlan,
    step: Step,
    /// When the worker is done with it.
    end: u64,
    /// Prompt logprobs due, by row.
    due: Vec<usize>,
}

struct World {
    scheduler: Scheduler,
    costs: Costs,
    now: u64,
    /// When the worker is done with what was sent.
    free_at: u64,
    in_flight: VecDeque<Sent>,
    next_id: u64,
    /// Prompt tokens that are not in a step yet, by slot.
    to_prefill: BTreeMap<Slot, u32>,
    /// Added to the time of the next step sent.
    hiccup: u64,
}

impl World {
    fn new(pace: StepPace, max_steps_in_flight: u32) -> Self {
        let mut scheduler = Scheduler::new(SchedulerConfig {
            block_size: u32::try_from(BLOCK).unwrap(),
            max_batch_tokens: u32::try_from(BUDGET).unwrap(),
            max_sequences: 64,
            max_total_tokens: 100_000,
            prefix_caching: false,
            max_waiting_sequences: 1000,
            max_waiting_tokens: 10_000_000,
            max_steps_in_flight,
            policy: PolicyConfig {
                pace,
                ..PolicyConfig::default()
            },
        });
        scheduler.group_up(Time::default(), GROUP, 40_000);
        Self {
            scheduler,
            costs: COSTS,
            now: 0,
            free_at: 0,
            in_flight: VecDeque::new(),
            next_id: 0,
            to_prefill: BTreeMap::new(),
            hiccup: 0,
        }
    }

    fn time(&self) -> Time {
        Time(Duration::from_nanos(self.now))
    }

    fn submit(&mut self, prompt: usize, max_new_tokens: u32) {
        self.next_id += 1;
        let request = request(self.next_id, vec![7; prompt], max_new_tokens);
        self.scheduler.submit(self.time(), request).unwrap();
    }

    fn submit_scored(&mut self, prompt: usize) {
        self.next_id += 1;
        let request = SequenceRequest {
            prompt_logprobs: true,
            ..request(self.next_id, vec![7; prompt], 1)
        };
        self.scheduler.submit(self.time(), request).unwrap();
    }

    fn send(&mut self) -> Option<Step> {
        let plan = self.scheduler.plan(self.time(), GROUP)?;
        let tokens: u64 = plan.rows.iter().map(|row| u64::from(row.num_tokens)).sum();
        for new in &plan.new_sequences {
            let prompt = new.prompt_length - new.computed_length;
            self.to_prefill.insert(new.slot, prompt);
        }
        let (mut prefill_tokens, mut scored_tokens) = (0, 0);
        let mut due = vec![0; plan.rows.len()];
        for (row, due) in plan.rows.iter().zip(&mut due) {
            let left = self.to_prefill.get_mut(&row.slot).unwrap();
            if *left > 0 {
                if row.prompt_logprobs {
                    // The last id's are what is sampled.
                    *due = row.num_tokens.min(*left - 1) as usize;
                    scored_tokens += *due as u64;
                }
                *left -= row.num_tokens;
                prefill_tokens += u64::from(row.num_tokens);
            }
        }
        let decode_rows = tokens - prefill_tokens;
        let costs = self.costs;
        let took = costs.step
            + costs.row * decode_rows
            + costs.token * prefill_tokens
            + costs.logprobs * scored_tokens
            + std::mem::take(&mut self.hiccup);
        let step = Step {
            decode_rows,
            prefill_tokens,
            took,
        };
        self.free_at = self.free_at.max(self.now) + took;
        self.in_flight.push_back(Sent {
            plan,
            step,
            end: self.free_at,
            due,
        });
        Some(step)
    }

    /// Sends what can be sent and takes the next answer in.
    fn step(&mut self) -> Step {
        while self.send().is_some() {}
        let sent = self.in_flight.pop_front().unwrap();
        self.now = sent.end;
        let mut results = rows(&sent.plan, 1);
        for (result, due) in results.iter_mut().zip(sent.due) {
            result.prompt_logprobs = vec![token(7); due];
        }
        let answer = result(&sent.plan, StepOutcome::Ok(results));
        self.scheduler.complete(self.time(), answer).unwrap();
        sent.step
    }

    /// Something beside the 16 chats is open.
    fn has_prompts(&self) -> bool {
        let stats = self.scheduler.stats();
        stats.running + stats.waiting > 16
    }

    /// Chats that decode, and no sample yet of a step that has prefills too.
    fn with_chats(pace: StepPace, max_steps_in_flight: u32) -> Self {
        let mut world = Self::new(pace, max_steps_in_flight);
        for _ in 0..16 {
            world.submit(20, 90_000);
        }
        for _ in 0..20 {
            world.step();
        }
        world
    }

    /// Steps while long prompts wait.
    fn under_prompts(&mut self, steps: usize) -> Vec<Step> {
        self.under_prompts_of(4000, steps)
    }

    fn under_prompts_of(&mut self, tokens: usize, steps: usize) -> Vec<Step> {
        let mut seen = Vec::new();
        for _ in 0..steps {
            if self.scheduler.stats().waiting < 2 {
                self.submit(tokens, 1);
            }
            seen.push(self.step());
        }
        seen
    }
}

const TARGET: StepPace = StepPace::Target(Duration::from_millis(10));
const TARGET_NS: u64 = 10_000_000;

/// Within the target, and no less than nine tenths of it.
fn assert_settled(steps: &[Step]) {
    for step in steps {
        // The last chunk of a prompt may leave a share unused that is too small for a block.
        assert!(step.took <= TARGET_NS, "{step:?} is over the target");
        assert!(step.took * 10 >= TARGET_NS * 9, "{step:?} wastes its share");
    }
}

#[test]
fn steps_settle_under_the_target() {
    for in_flight in [1, 2, 4] {
        let mut world = World::with_chats(TARGET, in_flight);
        let steps = world.under_prompts(200);
        assert!(steps.iter().all(|step| step.decode_rows >= 16));
        assert_settled(&steps[12..]);
        // (10 ms - 1 ms - 16 * 10 µs) / 20 µs, less what a chunk's fixed costs are taken for.
        let share = world.scheduler.stats().prefill_share.unwrap() as u64;
        assert!((400..=442).contains(&share), "{share}");
    }
}

#[test]
fn a_change_of_costs_is_followed() {
    let mut world = World::with_chats(TARGET, 2);
    world.under_prompts(50);
    world.costs.token *= 5;
    assert_settled(&world.under_prompts(60)[10..]);
    world.costs.token /= 5;
    assert_settled(&world.under_prompts(60)[20..]);
    // Decoding itself becomes slower, while no step is without prefills.
    world.costs.step *= 4;
    assert_settled(&world.under_prompts(100)[30..]);
    world.costs.step /= 4;
    assert_settled(&world.under_prompts(100)[30..]);
}

#[test]
fn more_chats_leave_less_for_prefills() {
    let mut world = World::with_chats(TARGET, 2);
    world.costs.row = 100_000;
    assert_settled(&world.under_prompts(60)[20..]);
    for _ in 0..16 {
        world.submit(20, 90_000);
    }
    let steps = world.under_prompts(120);
    assert!(steps[100].decode_rows >= 32);
    assert_settled(&steps[60..]);
}

#[test]
fn one_slow_step_does_not_starve_prefills() {
    for alone in [false, true] {
        let mut world = World::with_chats(TARGET, 2);
        let before = world.under_prompts(50)[49].prefill_tokens;
        if alone {
            // A slow step of decoding rows: the prompts that wait are done first.
            while world.step().prefill_tokens > 0 {}
        }
        world.hiccup = 5_000_000_000;
        let after = world.under_prompts(50);
        let slow = after
            .iter()
            .position(|step| step.took > TARGET_NS * 100)
            .unwrap();
        for step in &after[slow + 1..] {
            assert!(
                step.prefill_tokens * 10 >= before * 9,
                "{before} then {step:?}"
            );
        }
    }
}

#[test]
fn prefills_go_on_when_decoding_alone_takes_the_target() {
    let mut world = World::with_chats(StepPace::Target(Duration::from_micros(500)), 2);
    for step in &world.under_prompts(50)[12..] {
        assert_eq!(step.prefill_tokens, LEAST, "a few tokens a step: {step:?}");
    }
    // Decoding becomes fast again, and that is noticed though every step has prefills.
    world.costs = Costs {
        step: 100_000,
        row: 1000,
        token: 1000,
        logprobs: 0,
    };
    let steps = world.under_prompts(100);
    assert!(steps[99].prefill_tokens > 10 * BLOCK, "{:?}", steps[99]);
    assert!(steps[40..].iter().all(|step| step.took <= 500_000));
}

#[test]
fn nothing_bounds_prefills_when_nothing_decodes_or_there_is_no_target() {
    let mut world = World::new(TARGET, 1);
    world.submit(4000, 1);
    assert_eq!(world.step().prefill_tokens, BUDGET);
    assert_eq!(world.scheduler.stats().prefill_share, None);
    let mut world = World::with_chats(StepPace::Unbounded, 1);
    world.submit(4000, 1);
    assert_eq!(world.step().prefill_tokens, BUDGET - 16);
    assert_eq!(world.scheduler.stats().prefill_share, None);
}

#[test]
fn the_first_share_is_cautious() {
    let mut world = World::new(TARGET, 2);
    world.submit(5, 100);
    world.send().unwrap();
    world.submit(4000, 1);
    let step = world.send().unwrap();
    assert_eq!((step.decode_rows, step.prefill_tokens), (1, 4 * BLOCK));
}

/// Times of steps with prefills from the `from`th on, as multiples of what their decoding rows take alone.
fn slowdowns(world: &World, steps: &[Step]) -> Vec<f64> {
    let alone = |step: &Step| world.costs.step + world.costs.row * step.decode_rows;
    let mixed = steps.iter().filter(|step| step.prefill_tokens > 0);
    mixed
        .map(|step| step.took as f64 / alone(step) as f64)
        .collect()
}

/// What the demo model takes on two cores, about.
const SLOW: Costs = Costs {
    step: 4_000_000,
    row: 3_500_000,
    token: 2_500_000,
    logprobs: 10_000_000,
};

fn slow_world(chats: usize) -> World {
    let mut world = World::new(StepPace::Shared, 2);
    world.costs = SLOW;
    for _ in 0..chats {
        world.submit(20, 90_000);
    }
    for _ in 0..40 {
        world.step();
    }
    world
}

#[test]
fn beside_many_chats_a_long_prompt_takes_two_sevenths() {
    let mut world = slow_world(16);
    world.submit(4000, 1);
    let steps: Vec<Step> = (0..300).map(|_| world.step()).collect();
    let slowdowns = slowdowns(&world, &steps[20..]);
    // Nearly all steps have a piece of it; now and then one goes without.
    assert!(slowdowns.len() > 250, "{}", slowdowns.len());
    for slowdown in slowdowns {
        assert!((1.3..=1.401).contains(&slowdown), "{slowdown}");
    }
}

#[test]
fn as_many_prompts_as_chats_get_as_much() {
    let mut world = slow_world(4);
    for _ in 0..4 {
        world.submit(4000, 1);
    }
    let steps: Vec<Step> = (0..150).map(|_| world.step()).collect();
    for slowdown in slowdowns(&world, &steps[20..]) {
        assert!((1.8..=2.001).contains(&slowdown), "{slowdown}");
    }
}

#[test]
fn a_shared_pace_follows_what_decoding_takes() {
    let mut world = slow_world(16);
    for factor in [2, 3] {
        // Contexts get longer, and then shorter, while every step has prefills.
        world.costs.row = SLOW.row * factor / 2;
        let steps = world.under_prompts_of(400, 700);
        for slowdown in slowdowns(&world, &steps[400..]) {
            assert!((1.3..=1.43).contains(&slowdown), "{slowdown}");
        }
        world.costs.row = SLOW.row;
        let steps = world.under_prompts_of(400, 700);
        for slowdown in slowdowns(&world, &steps[400..]) {
            assert!((1.3..=1.43).contains(&slowdown), "{slowdown}");
        }
    }
}

#[test]
fn a_prompt_that_is_long_overdue_gets_half() {
    let mut world = slow_world(16);
    world.submit(40_000, 1);
    let arrival = world.now;
    let late = 120_000_000_000;
    let mut seen = (Vec::new(), Vec::new());
    while world.now < arrival + 2 * late {
        let step = world.step();
        let young = world.now < arrival + late;
        // Two steps are in flight at the change.
        if young {
            seen.0.push(step);
        } else if world.now > arrival + late + late / 20 {
            seen.1.push(step);
        }
    }
    for slowdown in slowdowns(&world, &seen.0[20..]) {
        assert!(slowdown <= 1.401, "{slowdown}");
    }
    for slowdown in slowdowns(&world, &seen.1) {
        assert!((1.9..=2.001).contains(&slowdown), "{slowdown}");
    }
}

#[test]
fn steps_that_nobody_sees_are_not_made_shorter() {
    let mut world = World::with_chats(StepPace::Shared, 2);
    let steps = world.under_prompts(100);
    let mixed = steps[20..].iter().filter(|step| step.prefill_tokens > 0);
    for step in mixed {
        assert!((18_000_000..=20_000_000).contains(&step.took), "{step:?}");
    }
}

#[test]
fn a_short_prompt_does_not_wait_for_long_ones() {
    let mut world = slow_world(16);
    for _ in 0..2 {
        world.submit(4000, 1);
    }
    for _ in 0..30 {
        world.step();
    }
    let rows = world.step().decode_rows;
    world.submit(20, 1000);
    let steps: Vec<Step> = (0..40).map(|_| world.step()).collect();
    let first = steps.iter().position(|step| step.decode_rows > rows);
    assert!(first.is_some(), "{:?}", steps.last());
    // They go on beside it.
    let prefilled: u64 = steps.iter().map(|step| step.prefill_tokens).sum();
    assert!(prefilled > 40 * LEAST, "{prefilled}");
}

fn step_tokens() -> usize {
    usize::try_from(BUDGET).unwrap()
}

/// What the first steps took tells nothing of logprobs, and plain prompts come between.
#[test]
fn prompts_with_logprobs_take_no_more_of_a_step_than_others() {
    for (pace, most) in [(TARGET, TARGET_NS), (StepPace::Shared, 20_000_000)] {
        for in_flight in [1, 2] {
            let mut world = World::with_chats(pace, in_flight);
            world.under_prompts(50);
            while world.has_prompts() {
                world.step();
            }
            let mut scored = 0;
            for round in 0..6 {
                world.submit_scored(4000);
                world.submit_scored(1000);
                if round % 2 == 0 {
                    world.submit(4000, 1);
                }
                let mut steps = Vec::new();
                while world.has_prompts() {
                    steps.push(world.step());
                }
                for step in &steps {
                    // A prompt's last token has no logprobs, and is counted as if it had. The first guess of what
                    // they take is 4 tokens for 6.
                    let bound = if round == 0 {
                        most * 3 / 2
                    } else {
                        most + most / 50
                    };
                    assert!(step.took <= bound, "{in_flight} {round}: {step:?}");
                    scored += u64::from(step.took >= most * 9 / 10);
                }
            }
            // Steps are full all the same: 30,000 tokens of 120 µs, and 12,000 of 20 µs.
            let full = (30_000 * 120_000 + 12_000 * 20_000) / most;
            assert!(scored > full * 9 / 10, "{scored} of {full}");
        }
    }
}

/// The same where nothing was measured before them.
#[test]
fn the_first_prompt_with_logprobs_is_bounded_too() {
    for pace in [TARGET, StepPace::Shared] {
        let mut world = World::with_chats(pace, 2);
        world.submit_scored(4000);
        let steps: Vec<Step> = (0..60).map(|_| world.step()).collect();
        let most = if pace == TARGET {
            TARGET_NS
        } else {
            20_000_000
        };
        for step in &steps {
            assert!(step.took <= most * 3 / 2, "{step:?}");
        }
        for step in &steps[10..40] {
            assert!(step.took <= most, "{step:?}");
        }
    }
}

/// Nothing decodes, and the long prompt would fill every step.
#[test]
fn a_short_prompt_does_not_wait_for_a_long_one_that_has_the_machine() {
    for in_flight in [1, 2] {
        let mut world = World::new(StepPace::Shared, in_flight);
        world.submit(20 * step_tokens(), 1);
        world.step();
        world.submit(step_tokens() / 8, 1);
        let steps = 2 + in_flight;
        for _ in 0..steps {
            world.step();
        }
        let stats = world.scheduler.stats();
        assert_eq!((stats.running, stats.waiting), (1, 0), "{in_flight}");
        assert_eq!(world.scheduler.stats().preemptions, 0);
    }
}

/// What others get of its steps delays the first of some long prompts by a seventh, and costs no step in all.
#[test]
fn long_prompts_are_computed_mostly_one_after_the_other() {
    let mut world = World::new(StepPace::Shared, 1);
    for _ in 0..4 {
        world.submit(14 * step_tokens(), 1);
    }
    let mut ends = Vec::new();
    for step in 1..=4 * 14 {
        let stats = world.scheduler.stats();
        let open = stats.running + stats.waiting;
        world.step();
        let stats = world.scheduler.stats();
        if stats.running + stats.waiting < open {
            ends.push(step);
        }
    }
    assert_eq!(ends.first(), Some(&16));
    assert_eq!(ends.last(), Some(&(4 * 14)));
}

/// Without a bound on steps prompts go by their order alone.
#[test]
fn without_a_pace_the_first_prompt_has_the_step() {
    let mut world = World::new(StepPace::Unbounded, 1);
    world.submit(4 * step_tokens(), 1);
    world.submit(8, 1);
    for _ in 0..4 {
        while world.send().is_some() {}
        assert_eq!(world.in_flight[0].plan.rows.len(), 1);
        world.step();
    }
}
