//! What happened in the simulated worlds.

use crate::random::mix;

/// What happened, to see that everything does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) trace: u64,
    pub(crate) steps: u64,
    pub(crate) finished: u64,
    pub(crate) cancelled_waiting: u64,
    pub(crate) cancelled_running: u64,
    pub(crate) refused: u64,
    pub(crate) non_finite: u64,
    pub(crate) row_failures: u64,
    pub(crate) step_failures: u64,
    pub(crate) out_of_memory: u64,
    pub(crate) skipped: u64,
    pub(crate) groups_lost: u64,
    pub(crate) bad_answers: u64,
    pub(crate) preemptions: u64,
    pub(crate) copies: u64,
    pub(crate) hits: u64,
    pub(crate) recomputed: u64,
    pub(crate) skipped_ahead: u64,
    pub(crate) deferrals: u64,
    pub(crate) expired: u64,
    pub(crate) masks: u64,
    pub(crate) called_off: u64,
    pub(crate) flushed: u64,
    pub(crate) paused: u64,
    pub(crate) resumed: u64,
    pub(crate) cancelled_paused: u64,
    pub(crate) kills: u64,
    pub(crate) crashes: u64,
    pub(crate) poison_found: u64,
    pub(crate) isolated: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.trace = mix(self.trace, other.trace);
        for (sum, value) in self.fields().into_iter().zip(other.clone().fields()) {
            *sum += *value;
        }
    }

    pub(crate) fn assert_all_happened(&mut self) {
        let text = format!("{self:?}");
        for value in self.fields() {
            assert!(*value > 100, "something hardly happens: {text}");
        }
    }

    pub(crate) fn speed(&self, seconds: f64) -> String {
        let steps = self.steps;
        let rate = steps as f64 / seconds;
        format!("{steps} steps in {seconds:.1} s, {rate:.0} steps a second")
    }

    fn fields(&mut self) -> [&mut u64; 29] {
        [
            &mut self.steps,
            &mut self.finished,
            &mut self.cancelled_waiting,
            &mut self.cancelled_running,
            &mut self.refused,
            &mut self.non_finite,
            &mut self.row_failures,
            &mut self.step_failures,
            &mut self.out_of_memory,
            &mut self.skipped,
            &mut self.groups_lost,
            &mut self.bad_answers,
            &mut self.preemptions,
            &mut self.copies,
            &mut self.hits,
            &mut self.recomputed,
            &mut self.skipped_ahead,
            &mut self.deferrals,
            &mut self.expired,
            &mut self.masks,
            &mut self.called_off,
            &mut self.flushed,
            &mut self.paused,
            &mut self.resumed,
            &mut self.cancelled_paused,
            &mut self.kills,
            &mut self.crashes,
            &mut self.poison_found,
            &mut self.isolated,
        ]
    }
}
