//! The launcher's end of the control socket: JSON lines both ways.

use super::Event;
use headrace_control::{ToLauncher, ToRouter};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// A router that does not read for this long is as good as dead.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// What the launcher holds.
#[derive(Debug)]
pub(crate) struct ControlLink {
    stream: UnixStream,
}

impl ControlLink {
    /// Makes the pair. The second value is the router's end, which its process inherits.
    pub(crate) fn pair() -> std::io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(WRITE_LIMIT))?;
        Ok((Self { stream: ours }, theirs))
    }

    /// A thread that turns the lines of the router's `start`th start into events.
    pub(crate) fn listen(&self, start: u32, events: Sender<Event>) -> std::io::Result<()> {
        let reader = BufReader::new(self.stream.try_clone()?);
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                let cause = read_messages(reader, start, &events);
                // The main thread may be gone already.
                drop(events.send(Event::RouterSilent(start, cause)));
            })?;
        Ok(())
    }

    /// Fails when the router is gone or stuck.
    pub(crate) fn send(&self, message: &ToRouter) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        (&self.stream).write_all(&line)
    }
}

fn read_messages(reader: impl BufRead, start: u32, events: &Sender<Event>) -> String {
    for line in reader.lines() {
        let message = match line {
            Ok(line) => serde_json::from_str::<ToLauncher>(&line),
            Err(error) => return format!("the router's control socket failed: {error}"),
        };
        match message {
            Ok(message) => {
                if events.send(Event::Router(start, message)).is_err() {
                    return "the launcher ends".to_owned();
                }
            }
            Err(error) => return format!("the router sent a line that is no message: {error}"),
        }
    }
    "the router closed its control socket".to_owned()
}

/// Lets a child inherit a descriptor: between this and the end of the scope that drops it, the main thread starts that
/// child and no other.
pub(crate) fn make_inheritable(descriptor: impl AsFd) -> std::io::Result<i32> {
    fcntl(descriptor.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(descriptor.as_fd().as_raw_fd())
}

/// The opposite, once the child has it.
pub(crate) fn keep_from_children(descriptor: impl AsFd) -> std::io::Result<()> {
    fcntl(descriptor.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}
