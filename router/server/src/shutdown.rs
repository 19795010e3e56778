//! How the process ends: through the launcher, never by a signal of its own accord; and what it needs of the system.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use std::future::Future;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// For responses under way when the engine has finished.
const RESPONSES_GRACE: Duration = Duration::from_secs(10);

/// Ends with the launcher even if that is killed, leaves its signals to it, and may open many connections. Needs a
/// running runtime.
pub fn prepare_process() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        // Taken and not acted upon: the launcher drains this process through the control socket. The handler
        // stays for the process's life, the stream is not needed.
        drop(signal(kind)?);
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(())
}

/// Waits for a server that was told to stop, for a bounded time: a client that does not read its last bytes must not hold
/// the process.
pub async fn finish_responses<T>(server: impl Future<Output = T>) {
    if tokio::time::timeout(RESPONSES_GRACE, server).await.is_err() {
        tracing::warn!(
            "connections were still open after {} s",
            RESPONSES_GRACE.as_secs()
        );
    }
}
