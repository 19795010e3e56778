//! CPU time and memory of processes, from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Sub;

/// CPU time of one process so far.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Seconds in its own code.
    pub user: f64,
    /// Seconds in the kernel for it.
    pub system: f64,
    /// Seconds by thread name, digits left out, so that a pool is one.
    pub threads: BTreeMap<String, f64>,
}

/// The kernel's unit in `stat`: 10 ms on every Linux that matters here.
const TICK: f64 = 0.01;

impl Account {
    /// Of a process that runs.
    pub fn of(pid: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = text
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks = |index: usize| fields[index].parse::<f64>().unwrap() * TICK;
        let mut threads = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let task = task.unwrap().path();
            // A thread may end between the listing and the look.
            let (Ok(name), Ok(times)) = (
                fs::read_to_string(task.join("comm")),
                fs::read_to_string(task.join("schedstat")),
            ) else {
                continue;
            };
            let name: String = name
                .trim()
                .trim_end_matches(|c: char| c.is_ascii_digit() || c == '-')
                .to_owned();
            let nanoseconds: f64 = times.split(' ').next().unwrap().parse().unwrap();
            *threads.entry(name).or_default() += nanoseconds / 1e9;
        }
        Self {
            user: ticks(11),
            system: ticks(12),
            threads,
        }
    }

    /// Seconds, user and system.
    pub fn total(&self) -> f64 {
        self.user + self.system
    }
}

impl Sub for &Account {
    type Output = Account;

    fn sub(self, before: Self) -> Account {
        let threads = self
            .threads
            .iter()
            .map(|(name, seconds)| {
                let then = before.threads.get(name).copied().unwrap_or_default();
                (name.clone(), seconds - then)
            })
            .collect();
        Account {
            user: self.user - before.user,
            system: self.system - before.system,
            threads,
        }
    }
}

/// Bytes of a process in memory.
pub fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// The machine, and the commit of the tree.
pub fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap();
    let cpu = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown CPU", |rest| {
            rest.trim_start_matches([':', '\t', ' '])
        });
    let cores = std::thread::available_parallelism().unwrap();
    let commit = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    let load = load.split(' ').next().unwrap();
    format!("{cpu}, {cores} cores, commit {commit}, load average {load} at the start")
}
