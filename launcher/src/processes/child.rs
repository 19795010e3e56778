//! One child process.

use super::Event;
use crate::log::{Level, Log, parse_record};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines kept for the cause of an end.
const TAIL_LINES: usize = 30;
/// A child's line is cut here, so that one that never ends a line costs no memory.
const LINE_LIMIT: u64 = 64 * 1024;

/// What a child's standard output means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// More log.
    Log,
    /// The downloader's JSON lines.
    Download,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself.
    Exit(i32),
    /// By a signal.
    Killed(Signal),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit(code) => write!(formatter, "exit code {code}"),
            Self::Killed(signal) => write!(formatter, "signal {}", signal.as_str()),
        }
    }
}

/// A running child, leader of its own process group.
#[derive(Debug)]
pub(crate) struct Child {
    /// `router`, `worker rank 0`, `download`.
    name: String,
    pid: Pid,
    tail: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

/// Starts a child in its own process group, so that Ctrl-C reaches the launcher alone. Main thread only.
pub(crate) fn spawn(
    name: impl Into<String>,
    mut command: Command,
    output: Output,
    log: &Log,
    events: &Sender<Event>,
) -> std::io::Result<Child> {
    let name = name.into();
    // Secrets travel over the control socket or stay here; a child's environment can be read in /proc.
    for secret in ["API_KEY", "ADMIN_API_KEY", "NGROK_AUTHTOKEN"] {
        command.env_remove(secret);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // Never waited on by its handle: `reap` collects every child by its pid.
    let mut process = command.spawn()?;
    let pid = Pid::from_raw(i32::try_from(process.id()).map_err(std::io::Error::other)?);
    log.debug(&format!("{name}: started as process {pid}"));

    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let mut readers = Vec::new();
    if let Some(stderr) = process.stderr.take() {
        let (name, log, tail) = (name.clone(), log.clone(), Arc::clone(&tail));
        readers.push(read_lines(stderr, move |line| {
            keep(&tail, &line);
            log.relay(&name, &line);
        })?);
    }
    if let Some(stdout) = process.stdout.take() {
        let (name, log, events) = (name.clone(), log.clone(), events.clone());
        readers.push(read_lines(stdout, move |line| match output {
            Output::Log => log.relay(&name, &line),
            Output::Download => match serde_json::from_str(&line) {
                // The main thread may be gone already.
                Ok(parsed) => drop(events.send(Event::Download(parsed))),
                Err(_) => log.relay(&name, &line),
            },
        })?);
    }
    Ok(Child {
        name,
        pid,
        tail,
        readers,
    })
}

impl Child {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Signals the child and all that it started. One that is gone is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        // ESRCH: nobody left in the group.
        let _ = killpg(self.pid, signal);
    }

    /// Ends what the child left behind in its group. Called once, right after it was reaped.
    pub(crate) fn sweep(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// The last thing it said about why it ended. Waits shortly for its pipe to run dry.
    pub(crate) fn last_words(&self) -> Option<String> {
        let deadline = Instant::now() + Duration::from_millis(300);
        while Instant::now() < deadline && !self.readers.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.iter().rev().find_map(|line| match parse_record(line) {
            Some((Level::Error, record)) => record.get("message")?.as_str().map(first_line),
            Some(_) => None,
            None => Some(first_line(line)),
        })
    }

    /// `worker rank 0 ended with exit code 1: last words`.
    pub(crate) fn describe(&self, ending: Ending) -> String {
        let name = &self.name;
        match self.last_words() {
            // After a signal its last line tells nothing about the end.
            Some(words) if matches!(ending, Ending::Exit(_)) => {
                format!("{name} ended with {ending}: {words}")
            }
            _ => format!("{name} ended with {ending}"),
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("").trim().to_owned()
}

fn keep(tail: &Mutex<VecDeque<String>>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    if tail.len() == TAIL_LINES {
        tail.pop_front();
    }
    tail.push_back(line.to_owned());
}

/// A thread that hands on each line until the pipe ends.
fn read_lines(
    pipe: impl Read + Send + 'static,
    mut line_read: impl FnMut(String) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("child-output".into())
        .spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut bytes = Vec::new();
            loop {
                bytes.clear();
                match reader
                    .by_ref()
                    .take(LINE_LIMIT)
                    .read_until(b'\n', &mut bytes)
                {
                    Ok(0) | Err(_) => return,
                    Ok(_) => line_read(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
                }
            }
        })
}

/// Collects everybody who ended, orphans that came to us as process 1 included. Those that a signal ended come first:
/// others may have ended because of them.
pub(crate) fn reap() -> Vec<(Pid, Ending)> {
    let mut ended = collect();
    ended.sort_by_key(|(_, ending)| matches!(ending, Ending::Exit(_)));
    ended
}

fn collect() -> Vec<(Pid, Ending)> {
    let mut ended = Vec::new();
    loop {
        match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => ended.push((pid, Ending::Exit(code))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => ended.push((pid, Ending::Killed(signal))),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return ended,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return ended,
        }
    }
}
