//! When a group or a router that died is started again, and when that is given up.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Up for this long, it is sound whatever came before.
const SOUND_AFTER: Duration = Duration::from_mins(10);

/// Counts restarts without a completed step or ten minutes of being up between them.
#[derive(Debug)]
pub(crate) struct RestartPolicy {
    most: u32,
    in_a_row: u32,
    up_since: Option<Instant>,
    /// The router is finding out which request kills the workers, which has a bound of its own.
    is_isolating: bool,
}

/// What follows a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterDeath {
    /// Start again after this pause.
    Restart(Duration),
    /// The limit is spent.
    GiveUp,
}

impl RestartPolicy {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            in_a_row: 0,
            up_since: None,
            is_isolating: false,
        }
    }

    /// All ranks listen; the router serves requests.
    pub(crate) fn came_up(&mut self, now: Instant) {
        self.up_since = Some(now);
    }

    /// The group did its work once. For a router that is no proof: the request that ended it may come again.
    pub(crate) fn step_completed(&mut self) {
        self.in_a_row = 0;
    }

    /// While on, deaths do not count.
    pub(crate) fn isolate(&mut self, is_on: bool) {
        self.is_isolating = is_on;
    }

    /// It is gone.
    pub(crate) fn went_down(&mut self, now: Instant) -> AfterDeath {
        if self
            .up_since
            .take()
            .is_some_and(|since| now.duration_since(since) >= SOUND_AFTER)
        {
            self.in_a_row = 0;
        }
        if self.is_isolating {
            return AfterDeath::Restart(FIRST_PAUSE);
        }
        if self.in_a_row >= self.most {
            return AfterDeath::GiveUp;
        }
        let doublings = self.in_a_row.min(16);
        self.in_a_row += 1;
        AfterDeath::Restart((FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_of_an_isolation_do_not_count() {
        let now = Instant::now();
        let mut policy = RestartPolicy::new(1);
        policy.isolate(true);
        for _ in 0..5 {
            assert_eq!(policy.went_down(now), AfterDeath::Restart(FIRST_PAUSE));
        }
        policy.isolate(false);
        assert_eq!(policy.went_down(now), AfterDeath::Restart(FIRST_PAUSE));
        assert_eq!(policy.went_down(now), AfterDeath::GiveUp);
    }

    #[test]
    fn pauses_double_up_to_thirty_seconds() {
        let now = Instant::now();
        let mut policy = RestartPolicy::new(9);
        let pauses: Vec<u128> = (0..9)
            .map(|_| match policy.went_down(now) {
                AfterDeath::Restart(pause) => pause.as_millis(),
                AfterDeath::GiveUp => 0,
            })
            .collect();
        assert_eq!(
            pauses,
            [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]
        );
        assert_eq!(policy.went_down(now), AfterDeath::GiveUp);
    }

    #[test]
    fn a_step_or_ten_minutes_clear_the_count() {
        let now = Instant::now();
        let first = AfterDeath::Restart(FIRST_PAUSE);
        let mut policy = RestartPolicy::new(1);
        assert_eq!(policy.went_down(now), first);
        policy.step_completed();
        assert_eq!(policy.went_down(now), first);
        policy.came_up(now);
        assert_eq!(policy.went_down(now + SOUND_AFTER), first);
        policy.came_up(now);
        assert_eq!(policy.went_down(now + SOUND_AFTER / 2), AfterDeath::GiveUp);
        assert_eq!(RestartPolicy::new(0).went_down(now), AfterDeath::GiveUp);
    }
}
