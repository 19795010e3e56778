//! A fixed pool of OS threads for work that takes milliseconds: templates and tokenising. Async threads only wait
//! for it.
//!
//! Large jobs have a lane of their own, which leaves one thread to small ones where there are several, and which runs
//! only as many at once as fit a memory budget: a tokenizer may need a hundred times the text, and a chat template may
//! build hundreds of megabytes for any chat.
//!
//! Each lane is bounded in jobs and in bytes; over either bound the caller is refused at once (429), so a burst of
//! large prompts costs a bounded amount of memory. Of a lane no key fills more than its share, keys are served by
//! turns, and a job whose caller goes away leaves its lane at once.

use crate::fair_share;
use crate::tenant::Tenant;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How much may wait in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueBounds {
    /// Jobs.
    pub(crate) jobs: usize,
    /// Bytes of all waiting jobs. One job alone may be larger: request bodies have a bound of their own.
    pub(crate) bytes: usize,
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoolFailure {
    /// Over the queue's bounds.
    #[error("too many requests wait to be tokenised")]
    Full,
    /// The job panicked, or the pool is gone.
    #[error("a tokenising job was lost")]
    Lost,
}

type Work = Box<dyn FnOnce() + Send>;

/// Bytes from which a job counts as large.
pub(crate) const LARGE_JOB: usize = 64 << 10;

/// Memory of a running job, for each byte of its text. Eight prompts of 1.9 MB took 1.6 GB together (byte-level BPE).
const MEMORY_PER_BYTE: usize = 100;

/// Memory of all large jobs that run. One alone may take more.
const LARGE_MEMORY: usize = 512 << 20;

/// Small jobs in a row, all threads together, while a large one that could run waits.
const SMALL_IN_A_ROW: u32 = 64;

/// How large a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobSize {
    /// Bytes that it keeps while it waits.
    weight: usize,
    /// Bytes that it is thought to take while it runs.
    memory: usize,
    is_large: bool,
}

impl JobSize {
    /// Of a job over a text of so many bytes.
    pub(crate) fn of(weight: usize) -> Self {
        Self {
            weight,
            // A bound far above any text keeps the sums from overflowing.
            memory: weight.min(1 << 40).saturating_mul(MEMORY_PER_BYTE),
            is_large: weight > LARGE_JOB,
        }
    }

    /// Of a job that takes so much memory, whatever its text: a large one.
    pub(crate) fn taking(weight: usize, memory: usize) -> Self {
        let text = Self::of(weight);
        Self {
            memory: text.memory.max(memory.min(1 << 40)),
            is_large: true,
            ..text
        }
    }
}

/// What waits.
struct Job {
    id: u64,
    tenant: Tenant,
    size: JobSize,
    work: Work,
}

/// Jobs of one kind.
#[derive(Default)]
struct Lane {
    jobs: VecDeque<Job>,
    /// Of all that wait.
    bytes: usize,
}

impl Lane {
    /// Whether one more may wait.
    fn has_room(&self, tenant: Tenant, weight: usize, bounds: QueueBounds) -> bool {
        let own = self.jobs.iter().filter(|job| job.tenant == tenant);
        let (jobs, bytes) = own.fold((0, 0), |(jobs, bytes), job| {
            (jobs + 1, bytes + job.size.weight)
        });
        let waiting = self.jobs.len();
        fair_share::allows(tenant, jobs, 1, waiting, bounds.jobs)
            && (waiting == 0 || fair_share::allows(tenant, bytes, weight, self.bytes, bounds.bytes))
    }

    /// The place of the next job: the oldest of the tenant whose last turn is longest ago.
    fn next(&self, turns: &FxHashMap<Tenant, u64>) -> Option<usize> {
        let turn = |job: &Job| turns.get(&job.tenant).copied().unwrap_or(0);
        let places = 0..self.jobs.len();
        places.min_by_key(|place| self.jobs.get(*place).map(turn))
    }

    fn push(&mut self, job: Job) {
        self.bytes += job.size.weight;
        self.jobs.push_back(job);
    }

    fn remove(&mut self, place: usize) -> Option<Job> {
        let job = self.jobs.remove(place)?;
        self.bytes -= job.size.weight;
        Some(job)
    }

    fn withdraw(&mut self, id: u64) -> Option<Job> {
        let place = self.jobs.iter().position(|job| job.id == id)?;
        self.remove(place)
    }
}

#[derive(Default)]
struct State {
    small: Lane,
    large: Lane,
    next_id: u64,
    /// For each tenant when it was last served.
    turns: FxHashMap<Tenant, u64>,
    next_turn: u64,
    /// Large jobs that run, and the memory that they are thought to take.
    large_running: usize,
    large_memory: usize,
    /// Small jobs taken since a large one could have run.
    passed: u32,
    closed: bool,
}

impl State {
    fn lane(&mut self, size: JobSize) -> &mut Lane {
        if size.is_large {
            &mut self.large
        } else {
            &mut self.small
        }
    }

    /// Puts a job into its lane. `None`: there is no room. Gives its id.
    fn push(
        &mut self,
        tenant: Tenant,
        size: JobSize,
        work: Work,
        bounds: QueueBounds,
    ) -> Option<u64> {
        if !self.lane(size).has_room(tenant, size.weight, bounds) {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.lane(size).push(Job {
            id,
            tenant,
            size,
            work,
        });
        Some(id)
    }

    /// The next job that may run now.
    fn take(&mut self, most_large: usize) -> Option<(JobSize, Work)> {
        let large = self.large.next(&self.turns).filter(|place| {
            let memory = self.large.jobs.get(*place).map_or(0, |job| job.size.memory);
            let fits = self.large_memory.saturating_add(memory) <= LARGE_MEMORY;
            self.large_running < most_large && (fits || self.large_running == 0)
        });
        let job = match large {
            Some(place) if self.small.jobs.is_empty() || self.passed >= SMALL_IN_A_ROW => {
                self.passed = 0;
                let job = self.large.remove(place)?;
                self.large_running += 1;
                self.large_memory += job.size.memory;
                job
            }
            _ => {
                self.passed = if large.is_some() { self.passed + 1 } else { 0 };
                let place = self.small.next(&self.turns)?;
                self.small.remove(place)?
            }
        };
        self.next_turn += 1;
        self.turns.insert(job.tenant, self.next_turn);
        Some((job.size, job.work))
    }

    fn finished(&mut self, size: JobSize) {
        if size.is_large {
            self.large_running -= 1;
            self.large_memory -= size.memory;
        }
    }
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    bounds: QueueBounds,
    /// Threads that may run large jobs.
    most_large: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock; a poisoned queue is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool. Its threads end after their current job when it is dropped.
pub(crate) struct TokenisePool {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for TokenisePool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TokenisePool")
            .field("bounds", &self.shared.bounds)
            .finish_non_exhaustive()
    }
}

impl TokenisePool {
    /// Starts `threads` threads called `name`, at least one.
    pub(crate) fn start(name: &str, threads: usize, bounds: QueueBounds) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
            bounds,
            most_large: threads.saturating_sub(1).max(1),
        });
        let pool = Self {
            shared: Arc::clone(&shared),
        };
        for index in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || serve(&shared))?;
        }
        Ok(pool)
    }

    /// Runs `work` of a tenant on one of the threads. If the caller goes away before its turn, the work is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: Tenant,
        size: JobSize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolFailure> {
        let (reply, answer) = oneshot::channel();
        let job: Work = Box::new(move || {
            if reply.is_closed() {
                return;
            }
            // A caller that left in the meantime needs no answer.
            let _ = reply.send(work());
        });
        let shared = &self.shared;
        let id = shared.lock().push(tenant, size, job, shared.bounds);
        let mut waiting = Waiting {
            shared,
            size,
            id: Some(id.ok_or(PoolFailure::Full)?),
        };
        shared.wake.notify_one();
        let answer = answer.await.map_err(|_| PoolFailure::Lost);
        waiting.id = None;
        answer
    }
}

/// Takes a job out of its lane when its caller goes away.
struct Waiting<'a> {
    shared: &'a Shared,
    size: JobSize,
    /// Until it is over.
    id: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let job = self.shared.lock().lane(self.size).withdraw(id);
            // It may have stood before one that could run.
            self.shared.wake.notify_one();
            // What it kept is freed without the lock.
            drop(job);
        }
    }
}

impl Drop for TokenisePool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

fn serve(shared: &Shared) {
    loop {
        let (size, work) = {
            let mut state = shared.lock();
            loop {
                if state.closed {
                    return;
                }
                if let Some(job) = state.take(shared.most_large) {
                    break job;
                }
                state = shared
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        };
        // A panic is that job's alone: its reply is dropped, which the caller sees, and the thread goes on.
        let _ = catch_unwind(AssertUnwindSafe(work));
        if size.is_large {
            shared.lock().finished(size);
            // Its place may be another thread's chance.
            shared.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
