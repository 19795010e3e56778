//! The second half of a world: no faults, until what is open has ended and the engine with it.

use super::{
    Client, Duration, End, EngineEnd, Fault, Group, Input, Interruption, SequenceFailure,
    SubmitFailure, World,
};

impl World {
    /// No faults, no arrivals, every reader reads: what is open ends within a bound; then a drain ends the engine.
    #[expect(clippy::too_many_lines, reason = "one phase after the other")]
    pub(super) fn calm(&mut self) {
        self.chances.failed_start = 0;
        self.hung = false;
        self.stale.clear();
        if self.long && self.random.percent(50) && self.end.is_none() {
            // Nobody reads for longer than readers may stall.
            for _ in 0..2 {
                self.pass(Duration::from_millis(3500));
                self.heard = self.now;
                self.watchdog();
            }
            assert_eq!(
                self.core.status().stats.paused,
                0,
                "a stalled reader is kept"
            );
        }
        let mut poisons = 0;
        for client in self
            .clients
            .values_mut()
            .filter(|client| client.is_open() && client.poison)
        {
            // While a server drains, deaths make no suspects: only the grace time ends such a request.
            if self.draining.is_some() {
                client.leave();
            }
            poisons += 1;
        }
        if !self.lost && self.end.is_none() {
            let open = self.clients.values().filter(|client| client.is_open());
            let work: usize = open.map(Client::work).sum();
            let mut bound = 400 + 8 * work + 4000 * poisons;
            while self.is_busy() && self.end.is_none() {
                assert!(
                    bound > 0,
                    "no end after a bound of {work} tokens of work: {}",
                    self.standing()
                );
                bound -= 1;
                self.pass(Duration::from_millis(1));
                self.advance_group();
                self.feed_commands();
                self.read(true);
                self.serve_desk(usize::MAX);
                if matches!(self.group, Group::Up { .. }) {
                    self.answer(Fault::None, 0);
                }
                self.watchdog();
                self.check();
            }
        }
        self.feed_commands();
        self.read(true);
        if self.end.is_none() {
            self.serve_desk(usize::MAX);
            self.check_empty();
            if self.draining.is_none() {
                self.drain();
            }
            self.feed_commands();
            assert_eq!(
                self.end,
                Some(EngineEnd::Drained),
                "nothing is open and the drain goes on"
            );
        }
        for client in self.clients.values() {
            assert!(!client.is_open(), "{:?} never ends", client.request.id);
        }
        self.serve_desk(usize::MAX);
        assert_eq!(self.desk.len(), 0, "the mask desk keeps what is over");
        let left = self.core.scheduler().unwrap().stats();
        assert_eq!(
            left.running + left.waiting,
            0,
            "ended, and something goes on"
        );
        self.arrive();
        while let Some(command) = self.commands.try_next() {
            self.core.take(self.now, Input::Command(command));
        }
        self.read(true);
        let last = self.clients.values().next_back();
        let refused = last.and_then(|client| client.end.clone());
        assert!(matches!(
            refused,
            Some(End::Refused(
                SubmitFailure::Draining | SubmitFailure::NotReady
            ))
        ));
        self.count_ends();
    }

    /// For a failure's message: what is open, and where the workers are.
    pub(super) fn standing(&self) -> String {
        let open = self.clients.values().filter(|client| client.is_open());
        let open: Vec<String> = open
            .map(|client| format!("{:?} heard {}", client.request.id, client.heard()))
            .collect();
        let group = match &self.group {
            Group::Down => "down".to_owned(),
            Group::Starting { epoch, at } => format!("starting {epoch} until {at:?}"),
            Group::Up { worker, .. } => format!(
                "up with {} steps, {:?}, masks {}",
                worker.steps_in_flight(),
                worker.oldest(),
                worker.has_masks()
            ),
        };
        let stats = self
            .core
            .scheduler()
            .map(headrace_scheduler::Scheduler::stats);
        format!(
            "now {:?}, {open:?}, {group}, {stats:?}, {:?}",
            self.now,
            self.core.status().stats
        )
    }

    pub(super) fn is_busy(&self) -> bool {
        let idle = self
            .core
            .scheduler()
            .is_some_and(headrace_scheduler::Scheduler::is_idle);
        !idle || self.clients.values().any(Client::is_open)
    }

    pub(super) fn check_empty(&self) {
        if self.lost {
            return;
        }
        let stats = self.core.scheduler().unwrap().stats();
        assert_eq!((stats.running, stats.waiting, stats.ending), (0, 0, 0));
        assert_eq!(stats.owned_blocks, 0, "blocks are lost");
        assert_eq!(self.core.status().stats.open_streams, 0, "streams are lost");
        assert_eq!(self.desk.len(), 0, "the mask desk keeps what is over");
    }

    pub(super) fn count_ends(&mut self) {
        for client in self.clients.values() {
            if let Some(End::Refused(refusal)) = &client.end {
                assert!(self.is_due(client, refusal), "{refusal:?}");
            }
            let count = match client.end.as_ref().unwrap() {
                End::Finished => &mut self.totals.finished,
                End::Failed(SequenceFailure::WorkerCrash) => &mut self.totals.crashed,
                End::Failed(_) => &mut self.totals.failed,
                End::Stuck => &mut self.totals.dead_ends,
                End::Interrupted(Interruption::Stalled) => &mut self.totals.stalled,
                End::Interrupted(_) => &mut self.totals.interrupted,
                End::Refused(_) => &mut self.totals.refused,
                End::Left => continue,
            };
            *count += 1;
            self.totals.resumed += u64::from(client.end == Some(End::Finished) && client.resumed);
        }
        if let Some(scheduler) = self.core.scheduler() {
            let stats = scheduler.stats();
            self.totals.preemptions += stats.preemptions;
            self.totals.hits += stats.prefix_hit_tokens;
        }
    }
}
