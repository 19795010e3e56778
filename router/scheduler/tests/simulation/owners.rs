//! What those do who asked for the sequences: cancel, pause, resume; and an operator, who flushes the cache.

use headrace_scheduler::SequenceId;

use crate::client::{Client, State};
use crate::world::World;

impl World {
    pub(crate) fn cancel_one(&mut self) {
        let open: Vec<SequenceId> = self
            .clients
            .iter()
            .filter(|(_, client)| client.state == State::Open)
            .map(|(&id, _)| id)
            .collect();
        let Some(last) = open.len().checked_sub(1) else {
            return;
        };
        let id = open[self.random.between(0, last)];
        let before = self.scheduler.stats();
        assert!(
            self.scheduler.cancel(self.now, id),
            "{id:?} is open and unknown"
        );
        assert!(
            !self.scheduler.cancel(self.now, id),
            "a second cancel does nothing"
        );
        let after = self.scheduler.stats();
        if after.paused < before.paused {
            self.totals.cancelled_paused += 1;
        } else if after.waiting < before.waiting {
            self.totals.cancelled_waiting += 1;
        } else if after.running == before.running {
            let client = &self.clients[&id];
            assert!(
                client.failed_alone || client.is_late(self.now),
                "a failure that was not told yet"
            );
        } else {
            assert_eq!(after.running + 1, before.running);
            self.totals.cancelled_running += 1;
        }
        self.clients.get_mut(&id).unwrap().state = State::Cancelled;
        self.watch.over(id);
        self.audit();
    }

    pub(crate) fn paused(&self) -> Vec<SequenceId> {
        let paused = |(&id, client): (&SequenceId, &Client)| {
            let paused = client.state == State::Open && client.paused;
            paused.then_some(id)
        };
        self.clients.iter().filter_map(paused).collect()
    }

    /// Pauses or resumes one that is open, now and then one that is paused or goes on already.
    pub(crate) fn pause_one(&mut self, paused: bool) {
        let fits = |client: &&Client| client.state == State::Open;
        let open = self.clients.values().filter(fits);
        let different = open.filter(|client| client.paused != paused);
        let different: Vec<SequenceId> = different.map(|client| client.request.id).collect();
        let Some(last) = different.len().checked_sub(1) else {
            return;
        };
        let id = different[self.random.between(0, last)];
        self.set_paused(id, paused);
        if self.random.percent(20) {
            self.set_paused(id, paused);
        }
    }

    pub(crate) fn set_paused(&mut self, id: SequenceId, paused: bool) {
        let known = if paused {
            self.totals.paused += 1;
            self.watch.paused(self.now, id);
            self.scheduler.pause(self.now, id)
        } else {
            self.totals.resumed += 1;
            self.watch.resumed(self.now, id);
            self.scheduler.resume(self.now, id)
        };
        let client = self.clients.get_mut(&id).unwrap();
        assert!(known || client.failed_alone || client.is_late(self.now));
        client.paused = paused;
        self.audit();
    }

    /// What was cached is free, and nobody reads what is held or still to come of those who run now.
    pub(crate) fn flush(&mut self) {
        let before = self.scheduler.stats();
        let freed = self.scheduler.flush_cache(self.now);
        let after = self.scheduler.stats();
        assert_eq!(freed, before.cached_blocks);
        assert_eq!(after.cached_blocks, 0, "cached after a flush");
        assert_eq!(after.owned_blocks, before.owned_blocks);
        self.worker.as_mut().unwrap().flush();
        self.watch.flushed();
        self.totals.flushed += freed as u64;
        self.audit();
    }
}
