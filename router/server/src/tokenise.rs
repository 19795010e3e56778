//! A fixed pool of OS threads for work that takes milliseconds: templates and tokenising. Async threads only wait
//! for it.
//!
//! The queue is bounded in jobs and in bytes; over either bound the caller is refused at once (429), so a burst of
//! large prompts costs a bounded amount of memory.

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

struct State {
    jobs: VecDeque<(usize, Work)>,
    bytes: usize,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    bounds: QueueBounds,
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
    /// Starts `threads` threads, at least one.
    pub(crate) fn start(threads: usize, bounds: QueueBounds) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                bytes: 0,
                closed: false,
            }),
            wake: Condvar::new(),
            bounds,
        });
        let pool = Self {
            shared: Arc::clone(&shared),
        };
        for index in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("tokenise-{index}"))
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
            let is_full = state.jobs.len() >= self.shared.bounds.jobs
                || (!state.jobs.is_empty() && state.bytes + weight > self.shared.bounds.bytes);
            if is_full {
                return Err(PoolFailure::Full);
            }
            state.bytes += weight;
            state.jobs.push_back((weight, job));
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
        let work = {
            let mut state = shared.lock();
            loop {
                if state.closed {
                    return;
                }
                if let Some((weight, work)) = state.jobs.pop_front() {
                    state.bytes -= weight;
                    break work;
                }
                state = shared
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        };
        // A panic is that job's alone: its reply is dropped, which the caller sees, and the thread goes on.
        let _ = catch_unwind(AssertUnwindSafe(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn pool(jobs: usize, bytes: usize) -> TokenisePool {
        TokenisePool::start(1, QueueBounds { jobs, bytes }).unwrap()
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
}
