//! More load than the workers can take: what is answered in time, and how the rest is turned away.
//!
//! Open loop: arrivals are a Poisson process with a fixed seed, whatever the answers do. A request is good when its first
//! token and its pace are within the limits.

use crate::client::{Answer, Connection, completion, field, millis, percentile};
use crate::probe::watch_beside;
use crate::rig::{Rig, Setup};
use crate::throughput::reject_rate;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(20);
const BATCH: u32 = 64;
const TOKENS: u32 = 16;
/// Half of them run, half of them wait: a wait of one request's time at most.
const IN_THE_HOUSE: usize = 128;
/// Twice the time of a request from its first step to its last, and half a step more than a step.
const FIRST_TOKEN_LIMIT: Duration = Duration::from_millis(2 * 20 * 16);
const PACE_LIMIT: Duration = Duration::from_millis(30);
const LEVELS: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0];
const LEVEL_SECONDS: f64 = 12.0;

/// What happened at one level.
#[derive(Default)]
struct Level {
    attempted: usize,
    good: usize,
    completed: usize,
    first: Vec<Duration>,
    pace: Vec<Duration>,
    rejects: Vec<Duration>,
    without_retry_after: usize,
    failures: usize,
}

pub async fn run(gguf: &Path) {
    let reject_rate = reject_rate(gguf, 3.0).await;
    let setup = Setup {
        max_concurrent_requests: IN_THE_HOUSE,
        max_batch_size: BATCH,
        step_micros: STEP.as_micros() as u64,
    };
    let rig = Rig::start(gguf, &setup);
    let local = tokio::task::LocalSet::new();
    local.run_until(levels(&rig, reject_rate)).await;
}

async fn levels(rig: &Rig, reject_rate: f64) {
    // What a full batch ends with, by arithmetic: the prefill takes one step and gives the first token.
    let knee = f64::from(BATCH) / (f64::from(TOKENS) * STEP.as_secs_f64());
    println!(
        "Knee {knee:.0} requests/s ({BATCH} sequences, {TOKENS} tokens, steps of {} ms), 1/{:.0} of the {reject_rate:.0} \
         that the front refuses; {IN_THE_HOUSE} requests in the house; good: first token within {} ms, then {} ms a \
         token.\n",
        STEP.as_millis(),
        reject_rate / knee,
        FIRST_TOKEN_LIMIT.as_millis(),
        PACE_LIMIT.as_millis()
    );
    println!(
        "| offered / knee | attempted/s | completed/s | good/s | of the peak | rejected/s | first token p50/p99 ms | \
         ms a token p50/p99 | reject p50/p99 ms | without Retry-After | failed | `/health` p99 ms |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut peak = 0.0f64;
    for factor in LEVELS {
        let (pause, time) = (
            Duration::from_millis(10),
            Duration::from_secs_f64(LEVEL_SECONDS),
        );
        let health = watch_beside(rig.address, "/health", pause, time);
        let (level, health) = tokio::join!(offer(rig, knee * factor), health);
        let a_second = |count: usize| count as f64 / LEVEL_SECONDS;
        peak = peak.max(a_second(level.good));
        let span = |times: &[Duration]| {
            format!(
                "{:.1}/{:.1}",
                millis(percentile(times, 50.0)),
                millis(percentile(times, 99.0))
            )
        };
        println!(
            "| {factor} | {:.1} | {:.1} | {:.1} | {:.1} % | {:.1} | {} | {} | {} | {} | {} | {:.2} |",
            a_second(level.attempted),
            a_second(level.completed),
            a_second(level.good),
            a_second(level.good) / peak * 100.0,
            a_second(level.rejects.len()),
            span(&level.first),
            span(&level.pace),
            span(&level.rejects),
            level.without_retry_after,
            level.failures,
            millis(percentile(&health, 99.0)),
        );
    }
}

/// Offers `rate` requests a second and waits for every answer.
async fn offer(rig: &Rig, rate: f64) -> Level {
    let mut random = StdRng::seed_from_u64(rate.to_bits());
    let level = Rc::new(RefCell::new(Level::default()));
    let idle: Rc<RefCell<Vec<Connection>>> = Rc::default();
    let requests: Rc<Vec<Vec<u8>>> = Rc::new(
        (0..1024)
            .map(|index| completion(index, 32, TOKENS, true))
            .collect(),
    );
    let mut tasks = Vec::new();
    let begun = Instant::now();
    let mut at = 0.0;
    for index in 0.. {
        // The waits of a Poisson process.
        at -= (1.0 - random.random::<f64>()).ln() / rate;
        if at > LEVEL_SECONDS {
            break;
        }
        let due = begun + Duration::from_secs_f64(at);
        tokio::time::sleep_until(due.into()).await;
        let (level, idle, requests) = (Rc::clone(&level), Rc::clone(&idle), Rc::clone(&requests));
        let address = rig.address;
        tasks.push(tokio::task::spawn_local(async move {
            level.borrow_mut().attempted += 1;
            let kept = idle.borrow_mut().pop();
            let outcome = async {
                let mut connection = match kept {
                    Some(connection) => connection,
                    None => Connection::open(address).await?,
                };
                // From when it was due: a late client is the server's wait as well.
                let request: &[u8] = &requests[index % requests.len()];
                let mut answer = connection.begin(due, request).await?;
                connection.finish(due, &mut answer).await?;
                if field(&answer.fields, "connection") != Some("close") {
                    idle.borrow_mut().push(connection);
                }
                Ok::<_, std::io::Error>(answer)
            }
            .await;
            level.borrow_mut().take(outcome);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut level = Rc::into_inner(level).unwrap().into_inner();
    for times in [&mut level.first, &mut level.pace, &mut level.rejects] {
        times.sort_unstable();
    }
    level
}

impl Level {
    fn take(&mut self, outcome: std::io::Result<Answer>) {
        match outcome {
            Ok(answer) if answer.status == 200 => {
                let pace = answer.total.saturating_sub(answer.first) / (TOKENS - 1);
                self.completed += 1;
                if answer.first <= FIRST_TOKEN_LIMIT && pace <= PACE_LIMIT {
                    self.good += 1;
                }
                self.first.push(answer.first);
                self.pace.push(pace);
            }
            Ok(answer) if answer.status == 429 => {
                self.rejects.push(answer.total);
                if field(&answer.fields, "retry-after").is_none() {
                    self.without_retry_after += 1;
                }
            }
            _ => self.failures += 1,
        }
    }
}
