//! A fixed pool of OS threads for work that takes milliseconds: templates and tokenising. Async threads only wait
//! for it.
//!
//! The queue is bounded in jobs and in bytes; over either bound the caller is refused at once (429), so a burst of
//! large prompts costs a bounded amount of memory.
//!
//! Large jobs have a lane of their own, which leaves one thread to small ones where there are several, and which runs
//! only as many at once as fit a memory budget: a tokenizer needs a hundred times the text.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How much may wait.
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

struct State {
    small: VecDeque<(usize, Work)>,
    large: VecDeque<(usize, Work)>,
    /// Bytes of all that wait.
    bytes: usize,
    /// Large jobs that run, and the memory that they are thought to take.
    large_running: usize,
    large_memory: usize,
    /// Small jobs taken since a large one could have run.
    passed: u32,
    closed: bool,
}

impl State {
    fn waiting(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// The next job that may run now.
    fn take(&mut self, most_large: usize) -> Option<(usize, Work)> {
        let large_fits = self.large.front().is_some_and(|(weight, _)| {
            let fits = self.large_memory.saturating_add(memory(*weight)) <= LARGE_MEMORY;
            self.large_running < most_large && (fits || self.large_running == 0)
        });
        let is_large = large_fits && (self.small.is_empty() || self.passed >= SMALL_IN_A_ROW);
        let (weight, work) = if is_large {
            self.passed = 0;
            self.large.pop_front()?
        } else {
            self.passed = if large_fits { self.passed + 1 } else { 0 };
            self.small.pop_front()?
        };
        self.bytes -= weight;
        if is_large {
            self.large_running += 1;
            self.large_memory += memory(weight);
        }
        Some((weight, work))
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
            state: Mutex::new(State {
                small: VecDeque::new(),
                large: VecDeque::new(),
                bytes: 0,
                large_running: 0,
                large_memory: 0,
                passed: 0,
                closed: false,
            }),
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

    /// Runs `work` on one of the threads. `weight` is how many bytes it keeps while it waits. If the caller goes away
    /// before its turn, the work is skipped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
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
        {
            let mut state = self.shared.lock();
            let waiting = state.waiting();
            let is_full = waiting >= self.shared.bounds.jobs
                || (waiting > 0 && state.bytes + weight > self.shared.bounds.bytes);
            if is_full {
                return Err(PoolFailure::Full);
            }
            state.bytes += weight;
            if is_large(weight) {
                state.large.push_back((weight, job));
            } else {
                state.small.push_back((weight, job));
            }
        }
        self.shared.wake.notify_one();
        answer.await.map_err(|_| PoolFailure::Lost)
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
        assert_eq!(pool.run(1, || 2 + 2).await, Ok(4));
        let lost = pool.run(1, || panic!("a bad prompt")).await;
        assert_eq!(lost, Err::<(), _>(PoolFailure::Lost));
        assert_eq!(pool.run(1, || 5).await, Ok(5));
    }

    #[tokio::test]
    async fn refuses_over_either_bound_and_skips_what_nobody_waits_for() {
        let pool = Arc::new(pool(2, 100));
        let (release, gate) = mpsc::channel::<()>();
        let (started, begun) = oneshot::channel::<()>();
        let blocker = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move {
                pool.run(1, move || {
                    let _ = started.send(());
                    let _ = gate.recv();
                })
                .await
            }
        });
        begun.await.unwrap();
        // One waits; it may be larger than the budget by itself.
        let waiting = pool.run(150, || 1);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(pool.run(1, || 2).await, Err(PoolFailure::Full), "bytes");
        let (ran, did_run) = mpsc::channel::<()>();
        drop(blocker);
        release.send(()).unwrap();
        assert_eq!(waiting.await, Ok(1));
        {
            let mut abandoned = Box::pin(pool.run(1, move || ran.send(())));
            let _ = futures::poll!(&mut abandoned);
        }
        pool.run(1, || ()).await.unwrap();
        // Either the thread was quicker than the drop, or it skipped the work: it never stalls.
        let _ = did_run.try_recv();
    }

    /// A job that says when it begins and ends when it is told to.
    fn gated(pool: &Arc<TokenisePool>, weight: usize) -> (oneshot::Receiver<()>, mpsc::Sender<()>) {
        let (started, begun) = oneshot::channel();
        let (release, gate) = mpsc::channel::<()>();
        let pool = Arc::clone(pool);
        tokio::spawn(async move {
            pool.run(weight, move || {
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
            assert_eq!(pool.run(LARGE_JOB, move || number).await, Ok(number));
        }
        assert!(second.try_recv().is_err(), "one large job at a time");
        release.send(()).unwrap();
        second.await.unwrap();
        release_second.send(()).unwrap();
    }

    #[test]
    fn large_jobs_run_as_the_memory_budget_allows() {
        let mut state = State {
            small: VecDeque::new(),
            large: VecDeque::new(),
            bytes: 0,
            large_running: 0,
            large_memory: 0,
            passed: 0,
            closed: false,
        };
        let weight = LARGE_MEMORY / MEMORY_PER_BYTE / 2;
        for weight in [weight, weight, weight, LARGE_MEMORY] {
            state.bytes += weight;
            state.large.push_back((weight, Box::new(|| ())));
        }
        assert!(state.take(8).is_some());
        assert!(state.take(8).is_some());
        assert!(state.take(8).is_none(), "the budget is used up");
        // Small ones pass.
        state.small.push_back((0, Box::new(|| ())));
        assert!(state.take(8).is_some());
        state.finished_large(weight);
        assert!(state.take(8).is_some());
        state.finished_large(weight);
        assert!(state.take(8).is_none(), "the last one runs alone");
        state.finished_large(weight);
        assert!(state.take(8).is_some());
        state.finished_large(LARGE_MEMORY);
        assert_eq!((state.bytes, state.large_memory), (0, 0));
        // A stream of small ones does not hold a large one up for ever.
        for _ in 0..200 {
            state.small.push_back((0, Box::new(|| ())));
        }
        state.bytes = 1;
        state.large.push_back((1, Box::new(|| ())));
        let mut taken = 0;
        while state.large_running == 0 {
            assert!(state.take(1).is_some());
            taken += 1;
        }
        assert_eq!(taken, SMALL_IN_A_ROW + 1);
    }
}
