//! Where the workers' time goes, as they say themselves with every step.

use super::exposition::Exposition;
use super::instrument::Counter;
use headrace_worker_client::StepTimings;
use std::time::Duration;

type Pick = fn(&StepTimings) -> Duration;

/// The stages of a step. The first six are the compute thread's and add up to its time; `mask_wait` is a part of
/// `sample` and shown by itself, `other` is what a step takes beside them. The last two run beside it.
const STAGES: [(&str, Pick); 9] = [
    ("wait", |step| step.wait),
    ("hand_over", |step| step.hand_over),
    ("apply", |step| step.apply),
    ("forward", |step| step.forward),
    ("sample", |step| step.sample.saturating_sub(step.mask_wait)),
    ("other", |step| {
        step.total
            .saturating_sub(step.apply + step.forward + step.sample)
    }),
    ("mask_wait", |step| step.mask_wait),
    ("decode", |step| step.decode),
    ("encode", |step| step.encode),
];

/// Nanoseconds of rank 0, by stage, summed over its steps.
#[derive(Debug, Default)]
pub(super) struct WorkerTime {
    nanoseconds: [Counter; STAGES.len()],
}

impl WorkerTime {
    pub(super) fn add(&self, step: &StepTimings) {
        for (counter, (_, read)) in self.nanoseconds.iter().zip(STAGES) {
            counter.add(u64::try_from(read(step).as_nanos()).unwrap_or(u64::MAX));
        }
    }

    pub(super) fn render(&self, page: &mut Exposition) {
        let name = "headrace_worker_seconds_total";
        page.family(
            name,
            "counter",
            "Where the worker's time goes (rank 0): wait and mask_wait are idle, decode and encode run beside the rest.",
        );
        for (counter, (stage, _)) in self.nanoseconds.iter().zip(STAGES) {
            let seconds = Duration::from_nanos(counter.get()).as_secs_f64();
            page.sample(name, &format!("stage=\"{stage}\""), seconds);
        }
    }
}
