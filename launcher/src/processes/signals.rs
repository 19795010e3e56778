//! Signals as events, and the limit of open files.

use super::Event;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::mpsc::Sender;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// More than any server needs; some programs walk all numbers up to the limit.
const MOST_FILES: u64 = 1 << 20;

/// From here on signals do not end the process but arrive as events.
pub(crate) fn watch_signals(events: Sender<Event>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let mut signals = {
        let _guard = runtime.enter();
        [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::child())?,
        ]
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                let numbers = [2, 15, 1];
                loop {
                    let event = match next_signal(&mut signals).await {
                        3 => Event::ChildEnded,
                        which => Event::Stop(numbers[which]),
                    };
                    if events.send(event).is_err() {
                        return;
                    }
                }
            });
        })?;
    Ok(())
}

/// Which of them came.
async fn next_signal(signals: &mut [Signal; 4]) -> usize {
    let [interrupt, terminate, hangup, child] = signals;
    tokio::select! {
        _ = interrupt.recv() => 0,
        _ = terminate.recv() => 1,
        _ = hangup.recv() => 2,
        _ = child.recv() => 3,
    }
}

/// Thousands of idle streams are thousands of descriptors: the router inherits as many as are allowed.
pub(crate) fn raise_file_limit() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(MOST_FILES);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    } else {
        Ok(())
    }
}
