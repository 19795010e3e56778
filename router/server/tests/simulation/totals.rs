//! What happened, to see that everything does.

use crate::random::mix;

macro_rules! totals {
    ($($name:ident),+ $(,)?) => {
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Totals {
            pub(crate) trace: u64,
            $(pub(crate) $name: u64,)+
        }

        impl Totals {
            pub(crate) fn add(&mut self, other: &Self) {
                self.trace = mix(self.trace, other.trace);
                $(self.$name += other.$name;)+
            }

            pub(crate) fn assert_all_happened(&self) {
                $(assert!(self.$name > 20, "{} hardly happens: {self:?}", stringify!($name));)+
            }
        }
    };
}

totals! {
    steps,
    submitted,
    refused,
    finished,
    failed,
    interrupted,
    dead_ends,
    crashed,
    stalled,
    paused,
    masks_sent,
    masks_called_off,
    flushes,
    left_queued,
    left_running,
    left_late,
    row_failures,
    non_finite,
    step_failures,
    skipped,
    deaths,
    hangs,
    broken_streams,
    failed_starts,
    late_answers,
    double_answers,
    resumed,
    drains,
    drains_cut,
    preemptions,
    hits,
}
