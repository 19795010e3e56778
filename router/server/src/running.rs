//! The generation requests in the house by their ids, so that they can be ended from outside.
//!
//! An entry lives as long as its [`Registration`], which lives inside the request: the table can hold no more than the
//! house does, and nothing has to clean it up.

use crate::caller::Caller;
use crate::engine::EngineHandle;
use crate::request_log::{RequestIds, RequestLog};
use crate::tenant::Tenant;
use headrace_scheduler::SequenceId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Which requests to end.
#[derive(Debug)]
pub(crate) enum Which<'a> {
    /// All.
    All,
    /// Those of these ids. Two requests of one id are both meant.
    Named(&'a HashSet<String>),
}

/// What is needed to end one request.
#[derive(Debug, Default)]
struct Switch {
    aborted: CancellationToken,
    /// Once they are submitted.
    sequences: Mutex<Vec<SequenceId>>,
}

#[derive(Debug)]
struct Entry {
    ids: RequestIds,
    /// Of the request: one may have several entries.
    log: usize,
    tenant: Tenant,
    switch: Arc<Switch>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: HashMap<u64, Entry>,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct RunningRequests {
    table: Mutex<Table>,
}

impl RunningRequests {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Whole at every moment.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request, or a part of one, under the ids that its client may know it by; a part may have a name of its
    /// own, and its end is the request's.
    pub(crate) fn register(
        self: &Arc<Self>,
        log: &Arc<RequestLog>,
        name: Option<String>,
        caller: &Caller,
    ) -> Registration {
        let mut ids = log.ids();
        ids.part = name.map(Arc::from);
        self.enter(ids, Arc::as_ptr(log).addr(), caller)
    }

    fn enter(self: &Arc<Self>, ids: RequestIds, log: usize, caller: &Caller) -> Registration {
        let switch = Arc::new(Switch::default());
        let mut table = self.lock();
        let place = table.next;
        table.next += 1;
        let entry = Entry {
            ids,
            log,
            tenant: caller.tenant(),
            switch: Arc::clone(&switch),
        };
        table.entries.insert(place, entry);
        Registration {
            table: Arc::clone(self),
            place,
            switch,
        }
    }

    /// Ends requests of the caller's key, or of any for the admin: their sequences leave the engine, and their clients
    /// hear it as soon as they read. Says how many; one that is ending already does not count again.
    pub(crate) fn abort(&self, which: &Which<'_>, caller: &Caller, engine: &EngineHandle) -> usize {
        let found: Vec<(usize, Arc<Switch>)> = {
            let table = self.lock();
            let is_meant = |entry: &&Entry| {
                let is_named = match which {
                    Which::All => true,
                    Which::Named(ids) => entry.ids.iter().any(|id| ids.contains(id)),
                };
                is_named && (caller.is_admin() || entry.tenant == caller.tenant())
            };
            let entries = table.entries.values().filter(is_meant);
            entries
                .map(|entry| (entry.log, Arc::clone(&entry.switch)))
                .collect()
        };
        let mut ended = HashSet::new();
        for (log, switch) in found {
            if switch.aborted.is_cancelled() {
                continue;
            }
            // Before the sequences are looked at: whoever notes them later looks at this.
            switch.aborted.cancel();
            ended.insert(log);
            let sequences = switch
                .sequences
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for id in sequences.iter() {
                engine.cancel(*id);
            }
        }
        ended.len()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().entries.len()
    }
}

/// One request's place in the table; given back by being dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    table: Arc<RunningRequests>,
    place: u64,
    switch: Arc<Switch>,
}

impl Registration {
    /// Ready when the request is to end.
    pub(crate) async fn aborted(&self) {
        self.switch.aborted.cancelled().await;
    }

    /// The request is to end.
    pub(crate) fn is_aborted(&self) -> bool {
        self.switch.aborted.is_cancelled()
    }

    /// Its sequences are in the engine. Look at [`Registration::is_aborted`] after this.
    pub(crate) fn submitted(&self, ids: Vec<SequenceId>) {
        let mut sequences = self
            .switch
            .sequences
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *sequences = ids;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.lock().entries.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Namespaces;
    use headrace_control::ApiKey;

    fn caller(name: &str) -> Caller {
        let key = ApiKey {
            name: name.to_owned(),
            key: name.to_owned(),
            priority: 0,
        };
        Caller::of_key(&key, 0, &Namespaces::new())
    }

    #[test]
    fn an_entry_lives_as_long_as_its_registration_and_is_its_keys() {
        let running = Arc::new(RunningRequests::default());
        let (engine, _commands) = EngineHandle::detached();
        let (a, b) = (caller("a"), caller("b"));
        let admin = Caller::admin(2, &Namespaces::new());
        let id = |id: &str| RequestIds {
            header: "other".into(),
            body: Some(id.into()),
            part: None,
        };
        let first = running.enter(id("x"), 1, &a);
        let second = running.enter(id("x"), 2, &a);
        let third = running.enter(id("x"), 3, &b);
        let part_of_third = running.enter(id("x"), 3, &b);
        let ids = HashSet::from(["x".to_owned()]);
        let named = Which::Named(&ids);
        assert_eq!(running.abort(&named, &caller("c"), &engine), 0);
        assert_eq!(running.abort(&named, &a, &engine), 2, "both of that id");
        assert_eq!(running.abort(&named, &a, &engine), 0, "each once");
        assert!(first.is_aborted() && second.is_aborted() && !third.is_aborted());
        drop(second);
        assert_eq!(running.len(), 3);
        assert_eq!(running.abort(&Which::All, &admin, &engine), 1);
        assert!(third.is_aborted() && part_of_third.is_aborted());
        drop((first, third, part_of_third));
        assert_eq!(running.len(), 0);
        assert_eq!(running.abort(&Which::All, &admin, &engine), 0);
    }
}
