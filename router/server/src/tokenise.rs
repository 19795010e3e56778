//! A fixed pool of OS threads for work that takes milliseconds: templates and tokenising. Async threads only wait
//! for it.
//!
//! Large jobs have a lane of their own, which leaves one thread to small ones where there are several, and which runs
//! only as many at once as fit a memory budget: a tokenizer needs a hundred times the text.
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

/// What waits.
struct Job {
    id: u64,
    tenant: Tenant,
    /// Bytes that it keeps.
    weight: usize,
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
        let (jobs, bytes) = own.fold((0, 0), |(jobs, bytes), job| (jobs + 1, bytes + job.weight));
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
        self.bytes += job.weight;
        self.jobs.push_back(job);
    }

    fn remove(&mut self, place: usize) -> Option<Job> {
        let job = self.jobs.remove(place)?;
        self.bytes -= job.weight;
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
    fn lane(&mut self, weight: usize) -> &mut Lane {
        if is_large(weight) {
            &mut self.large
        } else {
            &mut self.small
        }
    }

    /// Puts a job into its lane. `None`: there is no room. Gives its id.
    fn push(
        &mut self,
        tenant: Tenant,
        weight: usize,
        work: Work,
        bounds: QueueBounds,
    ) -> Option<u64> {
        if !self.lane(weight).has_room(tenant, weight, bounds) {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.lane(weight).push(Job {
            id,
            tenant,
            weight,
            work,
        });
        Some(id)
    }

    /// The next job that may run now.
    fn take(&mut self, most_large: usize) -> Option<(usize, Work)> {
        let large = self.large.next(&self.turns).filter(|place| {
            let weight = self.large.jobs.get(*place).map_or(0, |job| job.weight);
            let fits = self.large_memory.saturating_add(memory(weight)) <= LARGE_MEMORY;
            self.large_running < most_large && (fits || self.large_running == 0)
        });
        let job = match large {
            Some(place) if self.small.jobs.is_empty() || self.passed >= SMALL_IN_A_ROW => {
                self.passed = 0;
                let job = self.large.remove(place)?;
                self.large_running += 1;
                self.large_memory += memory(job.weight);
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
        Some((job.weight, job.work))
    }

    fn finished_large(&mut self, weight: usize) {
        self.large_running -= 1;
        self.large_memory -= memory(weight);
    }
}

/// An estimate of what a running job takes.
fn memory(weight: usize) -> usize {
    // A bound far above any text keeps the sums from overflowing.
    weight.min(1 << 40).saturating_mul(MEMORY_PER_BYTE)
}

fn is_large(weight: usize) -> bool {
    weight > LARGE_JOB
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

    /// Runs `work` of a tenant on one of the threads. `weight` is how many bytes it keeps while it waits. If the caller
    /// goes away before its turn, the work is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: Tenant,
        weight: usize,
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
        let id = shared.lock().push(tenant, weight, job, shared.bounds);
        let mut waiting = Waiting {
            shared,
            weight,
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
    weight: usize,
    /// Until it is over.
    id: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let job = self.shared.lock().lane(self.weight).withdraw(id);
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
        let (weight, work) = {
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
        if is_large(weight) {
            shared.lock().finished_large(weight);
            // Its place may be another thread's chance.
            shared.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn pool(jobs: usize, bytes: usize) -> TokenisePool {
        TokenisePool::start("test", 1, QueueBounds { jobs, bytes }).unwrap()
    }

    #[tokio::test]
    async fn runs_work_and_survives_a_panic() {
        let pool = pool(8, 1000);
        assert_eq!(pool.run(Tenant::NOBODY, 1, || 2 + 2).await, Ok(4));
        let lost = pool.run(Tenant::NOBODY, 1, || panic!("a bad prompt")).await;
        assert_eq!(lost, Err::<(), _>(PoolFailure::Lost));
        assert_eq!(pool.run(Tenant::NOBODY, 1, || 5).await, Ok(5));
    }

    #[tokio::test]
    async fn refuses_over_either_bound_and_skips_what_nobody_waits_for() {
        let pool = Arc::new(pool(2, 100));
        let (release, gate) = mpsc::channel::<()>();
        let (started, begun) = oneshot::channel::<()>();
        let blocker = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move {
                pool.run(Tenant::NOBODY, 1, move || {
                    let _ = started.send(());
                    let _ = gate.recv();
                })
                .await
            }
        });
        begun.await.unwrap();
        // One waits; it may be larger than the budget by itself.
        let waiting = pool.run(Tenant::NOBODY, 150, || 1);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(
            pool.run(Tenant::NOBODY, 1, || 2).await,
            Err(PoolFailure::Full),
            "bytes"
        );
        let (ran, did_run) = mpsc::channel::<()>();
        drop(blocker);
        release.send(()).unwrap();
        assert_eq!(waiting.await, Ok(1));
        {
            let mut abandoned = Box::pin(pool.run(Tenant::NOBODY, 1, move || ran.send(())));
            let _ = futures::poll!(&mut abandoned);
        }
        pool.run(Tenant::NOBODY, 1, || ()).await.unwrap();
        // Either the thread was quicker than the drop, or it skipped the work: it never stalls.
        let _ = did_run.try_recv();
    }

    /// A job that says when it begins and ends when it is told to.
    fn gated(pool: &Arc<TokenisePool>, weight: usize) -> (oneshot::Receiver<()>, mpsc::Sender<()>) {
        let (started, begun) = oneshot::channel();
        let (release, gate) = mpsc::channel::<()>();
        let pool = Arc::clone(pool);
        tokio::spawn(async move {
            pool.run(Tenant::NOBODY, weight, move || {
                let _ = started.send(());
                let _ = gate.recv();
            })
            .await
        });
        (begun, release)
    }

    #[tokio::test]
    async fn large_jobs_leave_a_thread_to_small_ones() {
        let bounds = QueueBounds {
            jobs: 100,
            bytes: usize::MAX / 2,
        };
        let pool = Arc::new(TokenisePool::start("test", 2, bounds).unwrap());
        let (begun, release) = gated(&pool, LARGE_JOB + 1);
        begun.await.unwrap();
        let (mut second, release_second) = gated(&pool, LARGE_JOB + 1);
        // It is in the queue before any small one is served, and stays there.
        for number in 0..10 {
            assert_eq!(
                pool.run(Tenant::NOBODY, LARGE_JOB, move || number).await,
                Ok(number)
            );
        }
        assert!(second.try_recv().is_err(), "one large job at a time");
        release.send(()).unwrap();
        second.await.unwrap();
        release_second.send(()).unwrap();
    }

    #[test]
    fn large_jobs_run_as_the_memory_budget_allows() {
        let mut state = State::default();
        let bounds = QueueBounds {
            jobs: 1000,
            bytes: usize::MAX,
        };
        let push = |state: &mut State, weight| {
            assert!(
                state
                    .push(Tenant::NOBODY, weight, Box::new(|| ()), bounds)
                    .is_some()
            );
        };
        let weight = LARGE_MEMORY / MEMORY_PER_BYTE / 2;
        for weight in [weight, weight, weight, LARGE_MEMORY] {
            push(&mut state, weight);
        }
        assert!(state.take(8).is_some());
        assert!(state.take(8).is_some());
        assert!(state.take(8).is_none(), "the budget is used up");
        // Small ones pass.
        push(&mut state, 0);
        assert!(state.take(8).is_some());
        state.finished_large(weight);
        assert!(state.take(8).is_some());
        state.finished_large(weight);
        assert!(state.take(8).is_none(), "the last one runs alone");
        state.finished_large(weight);
        assert!(state.take(8).is_some());
        state.finished_large(LARGE_MEMORY);
        assert_eq!((state.large.bytes, state.large_memory), (0, 0));
        // A stream of small ones does not hold a large one up for ever.
        for _ in 0..200 {
            push(&mut state, 0);
        }
        push(&mut state, LARGE_JOB + 1);
        let mut taken = 0;
        while state.large_running == 0 {
            assert!(state.take(1).is_some());
            taken += 1;
        }
        assert_eq!(taken, SMALL_IN_A_ROW + 1);
    }

    /// Whose job the state gives next.
    fn next_tenant(state: &mut State, most_large: usize) -> Option<Tenant> {
        let waiting = |state: &State| -> Vec<(u64, Tenant)> {
            let lanes = state.small.jobs.iter().chain(&state.large.jobs);
            lanes.map(|job| (job.id, job.tenant)).collect()
        };
        let before = waiting(state);
        let (weight, _) = state.take(most_large)?;
        if is_large(weight) {
            state.finished_large(weight);
        }
        let after = waiting(state);
        let taken = before.into_iter().find(|job| !after.contains(job));
        taken.map(|(_, tenant)| tenant)
    }

    #[test]
    fn large_jobs_of_one_key_refuse_no_small_ones_and_no_other_keys() {
        let bounds = QueueBounds {
            jobs: 100,
            bytes: 16 << 20,
        };
        let large = 2 << 20;
        let mut state = State::default();
        let mut push = |tenant, weight| {
            let job: Work = Box::new(|| ());
            state.push(tenant, weight, job, bounds).is_some()
        };
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| Tenant::of("key", name));
        let mut pushed = 0;
        while push(alice, large) {
            pushed += 1;
        }
        assert_eq!(pushed, 6, "three quarters of 16 MiB");
        assert!(push(alice, LARGE_JOB), "a small one of the same key");
        assert!(push(bob, large) && push(carol, LARGE_JOB));
        // By turns: the other keys' jobs came last.
        let order: Vec<Tenant> = std::iter::from_fn(|| next_tenant(&mut state, 100)).collect();
        assert_eq!(order[..3], [alice, carol, bob]);
        assert_eq!(order[3..], [alice; 6]);
    }

    #[tokio::test]
    async fn a_job_whose_caller_left_takes_no_room() {
        let pool = Arc::new(pool(2, 100));
        let (begun, release) = gated(&pool, 1);
        begun.await.unwrap();
        let mut left = Box::pin(pool.run(Tenant::NOBODY, 100, || ()));
        assert!(futures::poll!(&mut left).is_pending());
        assert_eq!(
            pool.run(Tenant::NOBODY, 1, || ()).await,
            Err(PoolFailure::Full)
        );
        drop(left);
        let mut next = Box::pin(pool.run(Tenant::NOBODY, 100, || 7));
        assert!(futures::poll!(&mut next).is_pending());
        release.send(()).unwrap();
        assert_eq!(next.await, Ok(7));
    }

    #[tokio::test]
    async fn a_large_job_that_leaves_lets_the_next_one_run() {
        let bounds = QueueBounds {
            jobs: 100,
            bytes: usize::MAX,
        };
        let pool = Arc::new(TokenisePool::start("test", 3, bounds).unwrap());
        let (begun, release) = gated(&pool, LARGE_JOB + 1);
        begun.await.unwrap();
        let mut left = Box::pin(pool.run(Tenant::NOBODY, LARGE_MEMORY / MEMORY_PER_BYTE, || ()));
        assert!(
            futures::poll!(&mut left).is_pending(),
            "no memory beside it"
        );
        let mut next = Box::pin(pool.run(Tenant::NOBODY, LARGE_JOB + 1, || 7));
        assert!(futures::poll!(&mut next).is_pending());
        drop(left);
        let limit = std::time::Duration::from_mins(1);
        assert_eq!(tokio::time::timeout(limit, next).await, Ok(Ok(7)));
        release.send(()).unwrap();
    }
}
