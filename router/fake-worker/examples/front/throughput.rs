//! Requests and tokens a second with a worker that takes no time, and what they cost whom.

use crate::accounts::Account;
use crate::client::{Connection, completion, get, millis, percentile};
use crate::probe::watch_beside;
use crate::rig::{Rig, Setup};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One row of the table.
struct Row {
    what: String,
    /// Requests, tokens or rejects.
    units: f64,
    unit: &'static str,
    seconds: f64,
    accounts: [Account; 3],
    steps: f64,
}

pub async fn run(gguf: &Path, seconds: f64) {
    let setup = Setup {
        max_concurrent_requests: 4096,
        max_batch_size: 512,
        step_micros: 0,
    };
    let rig = Rig::start(gguf, &setup);
    // Pages, pools and caches get warm.
    requests(&rig, 64, 1, 1.0).await;
    let rows = [
        requests(&rig, 64, 1, seconds).await,
        streams(&rig, 64, 256, seconds).await,
        streams(&rig, 512, 64, seconds).await,
    ];
    let idle = watch_metrics(&rig, 1.0).await;
    let flat_out = tokio::join!(streams(&rig, 512, 64, 5.0), watch_metrics(&rig, 4.0)).1;
    drop(rig);
    let paced = Rig::start(
        gguf,
        &Setup {
            step_micros: 20_000,
            ..setup
        },
    );
    let busy = tokio::join!(streams(&paced, 512, 64, 5.0), watch_metrics(&paced, 4.0)).1;
    drop(paced);
    let refused = rejects(gguf, seconds).await;
    print_rows(rows.iter().chain([&refused]));
    println!("\n| `/metrics` | p50 ms | p99 ms |\n| --- | --- | --- |");
    for (when, times) in [
        ("idle", idle),
        ("among 512 streams, steps of 20 ms", busy),
        ("among 512 streams, every core taken", flat_out),
    ] {
        let p50 = millis(percentile(&times, 50.0));
        println!(
            "| {when} | {p50:.2} | {:.2} |",
            millis(percentile(&times, 99.0))
        );
    }
}

fn print_rows<'a>(rows: impl Iterator<Item = &'a Row> + Clone) {
    println!(
        "| load | a second | router µs (user + system) | worker µs | client µs | cores busy |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for row in rows.clone() {
        let [router, worker, client] = &row.accounts;
        let each = |seconds: f64| seconds / row.units * 1e6;
        let busy = (router.total() + worker.total() + client.total()) / row.seconds;
        println!(
            "| {} | {:.0} {} | {:.1} ({:.1} + {:.1}) | {:.1} | {:.1} | {busy:.2} |",
            row.what,
            row.units / row.seconds,
            row.unit,
            each(router.total()),
            each(router.user),
            each(router.system),
            each(worker.total()),
            each(client.total()),
        );
    }
    println!(
        "\n| load | a step | router's threads, µs for each request or token |\n| --- | --- | --- |"
    );
    for row in rows {
        let mut threads: Vec<_> = row.accounts[0].threads.iter().collect();
        threads.sort_by(|a, b| b.1.total_cmp(a.1));
        let shares: Vec<String> = threads
            .iter()
            .map(|(name, seconds)| (name, **seconds / row.units * 1e6))
            .filter(|(_, micros)| *micros >= 0.05)
            .map(|(name, micros)| format!("{name} {micros:.1}"))
            .collect();
        let of_step = row.units / row.steps.max(1.0);
        println!("| {} | {of_step:.0} | {} |", row.what, shares.join(", "));
    }
}

/// Whole answers of `tokens` over kept-alive connections, one after the other on each.
async fn requests(rig: &Rig, connections: usize, tokens: u32, seconds: f64) -> Row {
    let what = format!("32 in, {tokens} out, {connections} connections");
    hammer(rig, connections, seconds, what, "requests", move |index| {
        completion(index, 32, tokens, false)
    })
    .await
}

async fn hammer(
    rig: &Rig,
    connections: usize,
    seconds: f64,
    what: String,
    unit: &'static str,
    make: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static,
) -> Row {
    let next = Arc::new(AtomicUsize::new(0));
    // Made before the clock starts: the client's own work is kept small. Every connection goes round in them.
    let requests: Arc<Vec<Vec<u8>>> = Arc::new((0..4096).map(make).collect());
    let steps_before = steps(rig).await;
    let before = rig.accounts();
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(seconds);
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (next, requests, address) = (Arc::clone(&next), Arc::clone(&requests), rig.address);
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await.unwrap();
                let mut done = 0usize;
                while Instant::now() < until {
                    let index = next.fetch_add(1, Ordering::Relaxed) % requests.len();
                    let answer = connection.ask(&requests[index]).await.unwrap();
                    assert!(matches!(answer.status, 200 | 429), "{}", answer.fields);
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut units = 0;
    for task in tasks {
        units += task.await.unwrap();
    }
    let seconds = begun.elapsed().as_secs_f64();
    let accounts = spent(rig, &before);
    Row {
        what,
        units: units as f64,
        unit,
        seconds,
        accounts,
        steps: steps(rig).await - steps_before,
    }
}

/// Steps sent since the start.
async fn steps(rig: &Rig) -> f64 {
    let mut connection = Connection::open(rig.address).await.unwrap();
    connection.ask(&get("/metrics")).await.unwrap();
    let page = connection.body();
    let counts = page
        .lines()
        .filter(|line| line.starts_with("tgi_batch_inference_count{"));
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    counts.sum()
}

/// Streams of `tokens` each, `count` at a time.
async fn streams(rig: &Rig, count: usize, tokens: u32, seconds: f64) -> Row {
    let what = format!("{count} streams");
    let mut row = hammer(rig, count, seconds, what, "tokens", move |index| {
        completion(index, 32, tokens, true)
    })
    .await;
    row.units *= f64::from(tokens);
    row
}

/// Requests a second that a full house refuses.
pub async fn reject_rate(gguf: &Path, seconds: f64) -> f64 {
    let row = rejects(gguf, seconds).await;
    row.units / row.seconds
}

/// What a full house costs: every place is taken by a stream that stands still, and 64 connections ask all the same.
async fn rejects(gguf: &Path, seconds: f64) -> Row {
    let setup = Setup {
        max_concurrent_requests: 8,
        max_batch_size: 8,
        step_micros: 600_000_000,
    };
    let rig = Rig::start(gguf, &setup);
    let mut house = Vec::new();
    for index in 0..8 {
        let mut connection = Connection::open(rig.address).await.unwrap();
        let request = completion(index, 32, 8, true);
        let answer = connection.begin(Instant::now(), &request).await.unwrap();
        assert_eq!(answer.status, 200);
        house.push(connection);
    }
    let what = "429 in a full house, 64 connections".to_owned();
    hammer(&rig, 64, seconds, what, "rejects", |index| {
        completion(index, 32, 1, false)
    })
    .await
}

async fn watch_metrics(rig: &Rig, seconds: f64) -> Vec<Duration> {
    let (pause, time) = (Duration::from_millis(5), Duration::from_secs_f64(seconds));
    watch_beside(rig.address, "/metrics", pause, time).await
}

/// CPU time since `before`.
fn spent(rig: &Rig, before: &[Account; 3]) -> [Account; 3] {
    let now = rig.accounts();
    std::array::from_fn(|index| &now[index] - &before[index])
}
