//! A persistent pool of compute threads.
//!
//! The caller works too, so `set_threads(1)` has no thread at all. Tasks are handed out by a counter;
//! which thread runs which task never changes a result. Threads spin for a short, bounded time after
//! work (the next op of a layer follows within microseconds) and are parked while idle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread looks for the next job before it parks.
const SPIN: Duration = Duration::from_micros(50);
/// Upper limit of `set_threads`.
const MAX_THREADS: usize = 512;

static POOL: Mutex<Pool> = Mutex::new(Pool {
    shared: None,
    threads: Vec::new(),
});
static THREADS: AtomicUsize = AtomicUsize::new(1);

/// One parallel loop; lives on the caller's stack while [`run`] is in it.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
    next: AtomicUsize,
    panicked: AtomicBool,
}

impl Job<'_> {
    fn work(&self) {
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= self.tasks {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| (self.body)(task))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
                self.next.store(self.tasks, Ordering::Relaxed);
                return;
            }
        }
    }
}

#[derive(Clone, Copy)]
struct JobPointer(*const Job<'static>);
// SAFETY: a Job is Sync; `Shared::join` keeps it alive for whoever took the pointer.
unsafe impl Send for JobPointer {}

/// What caller and threads share.
struct Shared {
    /// Grows by one with each job; threads wait for it to change.
    epoch: AtomicU64,
    /// Threads inside the current job.
    active: AtomicUsize,
    /// Threads that are parked; changed under the lock of `job`.
    sleepers: AtomicUsize,
    stop: AtomicBool,
    /// The current job, taken back by the caller before it waits for `active`, so that a thread that
    /// wakes late finds nothing and nobody waits for it.
    job: Mutex<Option<JobPointer>>,
    wake: Condvar,
}

struct Pool {
    shared: Option<Arc<Shared>>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task panicked; the loop's results are not complete.
#[derive(Debug)]
pub struct TaskPanic;

impl std::fmt::Display for TaskPanic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a compute task panicked")
    }
}

impl std::error::Error for TaskPanic {}

/// Threads that compute, the caller's included.
pub fn threads() -> usize {
    THREADS.load(Ordering::Relaxed)
}

/// Sets the number of threads that compute, the caller's included; at least 1 and at most 512.
pub fn set_threads(threads: usize) -> std::io::Result<()> {
    let threads = threads.clamp(1, MAX_THREADS);
    let mut pool = lock(&POOL);
    pool.stop();
    THREADS.store(1, Ordering::Relaxed);
    if threads > 1 {
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            job: Mutex::new(None),
            wake: Condvar::new(),
        });
        pool.shared = Some(Arc::clone(&shared));
        for index in 1..threads {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("headrace-op-{index}"))
                .spawn(move || shared.serve())?;
            pool.threads.push(thread);
        }
    }
    THREADS.store(threads, Ordering::Relaxed);
    Ok(())
}

impl Pool {
    fn stop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.stop.store(true, Ordering::Release);
            shared.announce(None);
        }
        for thread in self.threads.drain(..) {
            // A thread catches the panics of tasks, so it ends in good order.
            drop(thread.join());
        }
    }
}

impl Shared {
    /// Makes the threads look at `job` and `stop`. The system is asked to wake somebody only where
    /// somebody sleeps, and not under the lock, which the threads that spin are after.
    fn announce(&self, next: Option<JobPointer>) {
        let mut job = lock(&self.job);
        *job = next;
        self.epoch.fetch_add(1, Ordering::Release);
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        drop(job);
        if sleepers > 0 {
            self.wake.notify_all();
        }
    }

    fn serve(&self) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let job = {
                let job = lock(&self.job);
                if job.is_some() {
                    self.active.fetch_add(1, Ordering::Relaxed);
                }
                *job
            };
            if let Some(JobPointer(job)) = job {
                // SAFETY: `active` was raised under the lock while the job was announced; the caller
                // takes the job back under the same lock and then waits until `active` is 0.
                unsafe { (*job).work() };
                self.active.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Returns the epoch once it differs from `seen`.
    fn wait(&self, seen: u64) -> u64 {
        let start = Instant::now();
        loop {
            for _ in 0..32 {
                let epoch = self.epoch.load(Ordering::Acquire);
                if epoch != seen {
                    return epoch;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > SPIN {
                break;
            }
        }
        let mut job = lock(&self.job);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                self.sleepers.fetch_sub(1, Ordering::Relaxed);
                return epoch;
            }
            job = self.wake.wait(job).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn join(&self, job: &Job<'_>) {
        let pointer = JobPointer(std::ptr::from_ref(job).cast());
        self.announce(Some(pointer));
        job.work();
        *lock(&self.job) = None;
        let mut spins = 0_u32;
        while self.active.load(Ordering::Acquire) != 0 {
            std::hint::spin_loop();
            spins += 1;
            if spins.is_multiple_of(1024) {
                // The other thread may have lost its core to somebody else, perhaps to this loop.
                std::thread::yield_now();
            }
        }
    }
}

/// Runs `body(0)` to `body(tasks - 1)`, each once, on all threads; returns when all are done.
///
/// When another caller is using the pool, the loop runs on this thread alone.
pub(crate) fn run(tasks: usize, body: &(dyn Fn(usize) + Sync)) -> Result<(), TaskPanic> {
    let job = Job {
        body,
        tasks,
        next: AtomicUsize::new(0),
        panicked: AtomicBool::new(false),
    };
    let pool = if tasks > 1 && threads() > 1 {
        POOL.try_lock().ok()
    } else {
        None
    };
    match pool.as_ref().and_then(|pool| pool.shared.as_ref()) {
        Some(shared) => shared.join(&job),
        None => job.work(),
    }
    if job.panicked.into_inner() {
        Err(TaskPanic)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serialises the tests that change the process-wide pool.
    static GUARD: Mutex<()> = Mutex::new(());

    #[test]
    fn every_task_runs_once_for_every_number_of_threads() {
        let _guard = lock(&GUARD);
        for threads in [1, 2, 3, 8, 2] {
            set_threads(threads).expect("threads start");
            for tasks in [0, 1, 2, 7, 1000] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                run(tasks, &|task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                })
                .expect("no panic");
                assert!(
                    counts
                        .iter()
                        .all(|count| count.load(Ordering::Relaxed) == 1)
                );
            }
        }
        set_threads(1).expect("threads stop");
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        let _guard = lock(&GUARD);
        set_threads(3).expect("threads start");
        assert!(run(100, &|task| assert!(task != 50)).is_err());
        assert!(run(100, &|_| ()).is_ok());
        set_threads(1).expect("threads stop");
    }

    #[test]
    fn callers_at_the_same_time_do_not_block_each_other() {
        let _guard = lock(&GUARD);
        set_threads(2).expect("threads start");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let sum = AtomicUsize::new(0);
                        run(10, &|task| {
                            sum.fetch_add(task, Ordering::Relaxed);
                        })
                        .expect("no panic");
                        assert_eq!(sum.into_inner(), 45);
                    }
                });
            }
        });
        set_threads(1).expect("threads stop");
    }
}
