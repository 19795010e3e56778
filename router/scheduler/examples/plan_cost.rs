//! What the scheduler costs: plan plus complete for each running sequence and step, and one prefix match.
//!
//! `cargo run -p headrace-scheduler --example plan_cost`. Building the made-up answers is not counted.
#![expect(
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a measurement reads the clock and prints; what fails here ends it"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use headrace_scheduler::{
    PolicyConfig, QueueOrder, Scheduler, SchedulerConfig, SequenceRequest, StepPlan, StepResult,
    Time, TokenId,
};

#[path = "../tests/support/mod.rs"]
mod support;

use support::GROUP;

const NOW: Time = Time(Duration::ZERO);

fn main() {
    println!("plan + complete, ns for each running sequence and step (block 16, 32,768 blocks)");
    println!(
        "{:>10} {:>8} {:>10} {:>10} {:>10}",
        "sequences", "waiting", "plan", "complete", "both"
    );
    for sequences in [256, 1024, 4096] {
        for waiting in [0, 10_000] {
            for steps_in_flight in [1, 2] {
                decode(sequences, waiting, steps_in_flight);
            }
        }
    }
    for waiting in [100, 10_000] {
        for order in [QueueOrder::Fcfs, QueueOrder::Lpm] {
            blocked(waiting, order);
        }
    }
    for shared in [8, 64, 512] {
        prefix_match(shared);
    }
    for steps_in_flight in [1, 2] {
        pressure(steps_in_flight);
    }
}

fn config(max_sequences: u32, steps_in_flight: u32) -> SchedulerConfig {
    SchedulerConfig {
        block_size: 16,
        max_batch_tokens: 16_384,
        max_sequences,
        max_total_tokens: 16_384,
        prefix_caching: true,
        max_waiting_sequences: 1_000_000,
        max_waiting_tokens: u64::MAX,
        max_steps_in_flight: steps_in_flight,
        policy: PolicyConfig::default(),
    }
}

fn request(id: u64, prompt: Vec<TokenId>, max_new_tokens: u32) -> SequenceRequest {
    let mut request = support::request(id, prompt, max_new_tokens);
    request.stop.eos_token_ids = Arc::from([2]);
    request
}

/// Ids that differ from sequence to sequence, none of them an end id.
fn ids(sequence: u64, length: u64) -> Vec<TokenId> {
    let id = |at| {
        let mixed = (sequence * 0x9E37_79B9 + at * 0x85EB_CA6B) % 49_000;
        u32::try_from(mixed).expect("below 49,000") + 10
    };
    (0..length).map(id).collect()
}

fn answer(plan: &StepPlan) -> StepResult {
    support::answered(plan, 7)
}

/// Runs one step and answers the oldest; the times of plan and complete.
fn step(scheduler: &mut Scheduler, sent: &mut Vec<StepPlan>) -> (Duration, Duration) {
    let start = Instant::now();
    let plan = scheduler.plan(NOW, GROUP);
    let planned = start.elapsed();
    sent.extend(plan);
    let result = answer(&sent.remove(0));
    let start = Instant::now();
    let events = scheduler.complete(NOW, result).expect("the plan's answer");
    let completed = start.elapsed();
    drop(events);
    (planned, completed)
}

fn decode(sequences: u32, waiting: u64, steps_in_flight: u32) {
    let mut scheduler = Scheduler::new(config(sequences, steps_in_flight));
    scheduler.group_up(NOW, GROUP, 32_768);
    for id in 0..u64::from(sequences) {
        scheduler
            .submit(NOW, request(id, ids(id, 40), 10_000))
            .expect("taken");
    }
    let mut sent = Vec::new();
    while scheduler.stats().running < sequences as usize {
        step(&mut scheduler, &mut sent);
    }
    for id in 0..waiting {
        scheduler
            .submit(NOW, request(1_000_000 + id, ids(id, 40), 20))
            .expect("taken");
    }
    for _ in 1..steps_in_flight {
        sent.extend(scheduler.plan(NOW, GROUP));
    }
    let steps = 64;
    let (mut plan, mut complete) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..steps {
        let (planned, completed) = step(&mut scheduler, &mut sent);
        plan += planned;
        complete += completed;
    }
    assert!(scheduler.stats().preemptions == 0, "blocks for all");
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(steps) / f64::from(sequences);
    let start = Instant::now();
    scheduler.audit();
    let audit = start.elapsed();
    println!(
        "{sequences:>10} {waiting:>8} {:>10.0} {:>10.0} {:>10.0}   ({steps_in_flight} in flight, audit {audit:?})",
        each(plan),
        each(complete),
        each(plan) + each(complete)
    );
}

/// 256 sequences decode, slots are free, and what waits (of 100 tenants, all with a cached block) needs more
/// blocks than there are: every plan looks as far behind the queue's front as it may.
fn blocked(waiting: u64, order: QueueOrder) {
    let sequences = 256;
    let mut bounds = config(2 * sequences, 1);
    bounds.max_batch_tokens = 65_536;
    bounds.policy.order = order;
    let mut scheduler = Scheduler::new(bounds);
    scheduler.group_up(NOW, GROUP, 8 * sequences + 112);
    let mut sent = Vec::new();
    for id in 0..u64::from(sequences) {
        let mut prompt = ids(id % 100, 16);
        prompt.extend(ids(1000 + id, 104));
        scheduler
            .submit(NOW, request(id, prompt, 1000))
            .expect("taken");
    }
    while scheduler.stats().running < sequences as usize {
        step(&mut scheduler, &mut sent);
    }
    for id in 0..waiting {
        let mut prompt = ids(id % 100, 16);
        prompt.extend(ids(2000 + id, 3400));
        let mut asked = request(1_000_000 + id, prompt, 20);
        asked.tenant = id % 100;
        scheduler.submit(NOW, asked).expect("taken");
    }
    let steps = 6;
    let (mut plan, mut complete) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..steps {
        let (planned, completed) = step(&mut scheduler, &mut sent);
        plan += planned;
        complete += completed;
    }
    let stats = scheduler.stats();
    assert!(
        stats.preemptions == 0 && stats.running == sequences as usize,
        "{stats:?}"
    );
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(steps) / f64::from(sequences);
    println!(
        "blocked, {waiting} waiting, {order:?}: plan {:.0}, complete {:.0} ns for each of {sequences} running",
        each(plan),
        each(complete)
    );
}

/// An 8,192-token prompt in a tree of about 100,000 blocks, its path parted into 8 nodes.
fn prefix_match(nodes: u64) {
    let mut scheduler = Scheduler::new(config(64, 1));
    scheduler.group_up(NOW, GROUP, 110_000);
    let mut sent = Vec::new();
    let prompt = ids(1, 8192);
    let mut id = 0;
    let mut run = |scheduler: &mut Scheduler, prompt: Vec<TokenId>| {
        id += 1;
        scheduler
            .submit(NOW, request(id, prompt, 1))
            .expect("taken");
        while !scheduler.is_idle() {
            step(scheduler, &mut sent);
        }
    };
    for other in 0..97 {
        run(&mut scheduler, ids(100 + other * 7919, 16_000));
    }
    run(&mut scheduler, prompt.clone());
    // A sequence that leaves the path at a block's end parts the node there.
    for part in 1..nodes {
        let length = usize::try_from(8192 / nodes * part / 16 * 16).expect("small");
        let mut branch = prompt[..length].to_vec();
        branch.extend([1_000_000, 1_000_000 + u32::try_from(part).expect("small")]);
        run(&mut scheduler, branch);
    }
    let cached = scheduler.stats().cached_blocks;
    let mut times: Vec<Duration> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            let found = scheduler.cached_prefix(GROUP, 0, &prompt[..8191]);
            let time = start.elapsed();
            assert!(found == 8191, "found {found}");
            time
        })
        .collect();
    let cold = times[0];
    times.sort_unstable();
    println!(
        "match of 8,192 ids, {nodes} nodes on the path, {cached} blocks cached: first {cold:?}, median {:?}, p99 {:?}",
        times[1000], times[1980]
    );
}

/// 64 sequences of 64 + 576 tokens in a pool for about 26 of them at full length.
fn pressure(steps_in_flight: u32) {
    let mut scheduler = Scheduler::new(config(64, steps_in_flight));
    scheduler.group_up(NOW, GROUP, 1024);
    for id in 0..64 {
        scheduler
            .submit(NOW, request(id, ids(id, 64), 576))
            .expect("taken");
    }
    let mut sent = Vec::new();
    while !scheduler.is_idle() {
        while sent.len() < steps_in_flight as usize {
            let Some(plan) = scheduler.plan(NOW, GROUP) else {
                break;
            };
            sent.push(plan);
        }
        scheduler
            .complete(NOW, answer(&sent.remove(0)))
            .expect("the plan's answer");
    }
    let stats = scheduler.stats();
    println!(
        "under pressure, {steps_in_flight} in flight: {} steps, {} preemptions, {} tokens recomputed of {}",
        stats.steps,
        stats.preemptions,
        stats.recomputed_tokens,
        64 * 640
    );
}
