//! What waits where, and what runs at once.

use super::*;
use std::sync::mpsc;

fn pool(jobs: usize, bytes: usize) -> TokenisePool {
    TokenisePool::start("test", 1, QueueBounds { jobs, bytes }).unwrap()
}

#[tokio::test]
async fn runs_work_and_survives_a_panic() {
    let pool = pool(8, 1000);
    assert_eq!(
        pool.run(Tenant::NOBODY, JobSize::of(1), || 2 + 2).await,
        Ok(4)
    );
    let lost = pool
        .run(Tenant::NOBODY, JobSize::of(1), || panic!("a bad prompt"))
        .await;
    assert_eq!(lost, Err::<(), _>(PoolFailure::Lost));
    assert_eq!(pool.run(Tenant::NOBODY, JobSize::of(1), || 5).await, Ok(5));
}

#[tokio::test]
async fn refuses_over_either_bound_and_skips_what_nobody_waits_for() {
    let pool = Arc::new(pool(2, 100));
    let (release, gate) = mpsc::channel::<()>();
    let (started, begun) = oneshot::channel::<()>();
    let blocker = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move {
            pool.run(Tenant::NOBODY, JobSize::of(1), move || {
                let _ = started.send(());
                let _ = gate.recv();
            })
            .await
        }
    });
    begun.await.unwrap();
    // One waits; it may be larger than the budget by itself.
    let waiting = pool.run(Tenant::NOBODY, JobSize::of(150), || 1);
    tokio::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(
        pool.run(Tenant::NOBODY, JobSize::of(1), || 2).await,
        Err(PoolFailure::Full),
        "bytes"
    );
    let (ran, did_run) = mpsc::channel::<()>();
    drop(blocker);
    release.send(()).unwrap();
    assert_eq!(waiting.await, Ok(1));
    {
        let mut abandoned =
            Box::pin(pool.run(Tenant::NOBODY, JobSize::of(1), move || ran.send(())));
        let _ = futures::poll!(&mut abandoned);
    }
    pool.run(Tenant::NOBODY, JobSize::of(1), || ())
        .await
        .unwrap();
    // Either the thread was quicker than the drop, or it skipped the work: it never stalls.
    let _ = did_run.try_recv();
}

/// A job that says when it begins and ends when it is told to.
fn gated(pool: &Arc<TokenisePool>, weight: usize) -> (oneshot::Receiver<()>, mpsc::Sender<()>) {
    let (started, begun) = oneshot::channel();
    let (release, gate) = mpsc::channel::<()>();
    let pool = Arc::clone(pool);
    tokio::spawn(async move {
        pool.run(Tenant::NOBODY, JobSize::of(weight), move || {
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
            pool.run(Tenant::NOBODY, JobSize::of(LARGE_JOB), move || number)
                .await,
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
                .push(Tenant::NOBODY, JobSize::of(weight), Box::new(|| ()), bounds)
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
    state.finished(JobSize::of(weight));
    assert!(state.take(8).is_some());
    state.finished(JobSize::of(weight));
    assert!(state.take(8).is_none(), "the last one runs alone");
    state.finished(JobSize::of(weight));
    assert!(state.take(8).is_some());
    state.finished(JobSize::of(LARGE_MEMORY));
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
    let (size, _) = state.take(most_large)?;
    state.finished(size);
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
        state
            .push(tenant, JobSize::of(weight), job, bounds)
            .is_some()
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
    let mut left = Box::pin(pool.run(Tenant::NOBODY, JobSize::of(100), || ()));
    assert!(futures::poll!(&mut left).is_pending());
    assert_eq!(
        pool.run(Tenant::NOBODY, JobSize::of(1), || ()).await,
        Err(PoolFailure::Full)
    );
    drop(left);
    let mut next = Box::pin(pool.run(Tenant::NOBODY, JobSize::of(100), || 7));
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
    let mut left = Box::pin(pool.run(
        Tenant::NOBODY,
        JobSize::of(LARGE_MEMORY / MEMORY_PER_BYTE),
        || (),
    ));
    assert!(
        futures::poll!(&mut left).is_pending(),
        "no memory beside it"
    );
    let mut next = Box::pin(pool.run(Tenant::NOBODY, JobSize::of(LARGE_JOB + 1), || 7));
    assert!(futures::poll!(&mut next).is_pending());
    drop(left);
    let limit = std::time::Duration::from_mins(1);
    assert_eq!(tokio::time::timeout(limit, next).await, Ok(Ok(7)));
    release.send(()).unwrap();
}

/// Found by reading: several hostile templates rendered at once, each a few hundred megabytes for any small chat.
#[test]
fn jobs_of_much_memory_take_turns_however_small_their_text() {
    let bounds = QueueBounds {
        jobs: 1000,
        bytes: usize::MAX,
    };
    let mut state = State::default();
    let mut push = |size| {
        let job: Work = Box::new(|| ());
        assert!(state.push(Tenant::NOBODY, size, job, bounds).is_some());
    };
    let half = JobSize::taking(10, LARGE_MEMORY / 2);
    let whole = JobSize::taking(10, usize::MAX);
    for size in [half, half, whole, half] {
        push(size);
    }
    assert_eq!(state.take(8).map(|(size, _)| size), Some(half));
    assert_eq!(state.take(8).map(|(size, _)| size), Some(half));
    assert!(state.take(8).is_none(), "the budget is used up");
    state.finished(half);
    assert!(
        state.take(8).is_none(),
        "the next one is larger than all of it"
    );
    state.finished(half);
    assert_eq!(state.take(8).map(|(size, _)| size), Some(whole));
    assert!(state.take(8).is_none(), "it runs alone");
    state.finished(whole);
    assert_eq!(state.take(8).map(|(size, _)| size), Some(half));
    state.finished(half);
    assert_eq!((state.large_running, state.large_memory), (0, 0));
    // What a text takes by itself counts, if it is more.
    assert_eq!(JobSize::taking(LARGE_MEMORY, 1), JobSize::of(LARGE_MEMORY));
}
