//! Child processes: how they are started, listened to, stopped and reaped.

mod child;
mod control;
mod run_dir;
mod signals;

pub(crate) use child::{Child, Ending, Output, reap, spawn};
pub(crate) use control::{ControlLink, keep_from_children, make_inheritable};
pub(crate) use run_dir::{RunDir, sweep_run_dirs};
pub(crate) use signals::{raise_file_limit, watch_signals};

use crate::model::DownloadLine;
use headrace_control::ToLauncher;

/// What the main thread waits for. Everything else happens on that thread: it alone starts, signals and reaps
/// processes (a child's death signal follows the thread that started it).
#[derive(Debug)]
pub(crate) enum Event {
    /// SIGINT, SIGTERM or SIGHUP.
    Stop(i32),
    /// SIGCHLD: someone may have ended.
    ChildEnded,
    /// A message of the router. The number says which start of it.
    Router(u32, ToLauncher),
    /// That router closed the control socket, or wrote nonsense.
    RouterSilent(u32, String),
    /// A line of the downloader.
    Download(DownloadLine),
}
