//! What a stream costs that has nothing to say: thousands of them, open, their sequences waiting.

use crate::accounts::resident;
use crate::client::{Connection, completion, millis, percentile};
use crate::probe::watch_beside;
use crate::rig::{Rig, Setup};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes a stream.
const BAR: f64 = 20.0 * 1024.0;

pub async fn run(gguf: &Path, count: usize) {
    let setup = Setup {
        max_concurrent_requests: count + 16,
        max_batch_size: 256,
        step_micros: 600_000_000,
    };
    let rig = Rig::start(gguf, &setup);
    // The first ones pay for pools and pages.
    let mut open = open_streams(&rig, 0..64).await;
    let before = resident(rig.router_pid());
    let begun = Instant::now();
    open.extend(open_streams(&rig, 64..count).await);
    let seconds = begun.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let held = resident(rig.router_pid());
    let each = (held - before) as f64 / (count - 64) as f64;
    let mut probes = Vec::new();
    for path in ["/metrics", "/health"] {
        let (pause, time) = (Duration::from_millis(5), Duration::from_secs(2));
        let times = watch_beside(rig.address, path, pause, time).await;
        probes.push(percentile(&times, 99.0));
    }
    drop(open);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let left = resident(rig.router_pid());
    println!(
        "| open streams | KiB each (bar {}) | router MiB before, with, after | opened a second | \
         `/metrics` p99 ms | `/health` p99 ms |",
        BAR / 1024.0
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "| {count} | {:.1} | {:.0}, {:.0}, {:.0} | {:.0} | {:.2} | {:.2} |",
        each / 1024.0,
        mib(before),
        mib(held),
        mib(left),
        (count - 64) as f64 / seconds,
        millis(probes[0]),
        millis(probes[1]),
    );
}

async fn open_streams(rig: &Rig, range: std::ops::Range<usize>) -> Vec<Connection> {
    let mut open = Vec::with_capacity(range.len());
    for index in range {
        let mut connection = Connection::open(rig.address).await.unwrap();
        let request = completion(index, 32, 64, true);
        let answer = connection.begin(Instant::now(), &request).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.fields);
        open.push(connection);
    }
    open
}
