//! The router's end of the control socket: JSON lines from and to the launcher.

use headrace_control::{ToLauncher, ToRouter};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use std::os::fd::RawFd;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Far above any message; a peer that sends more without a line feed is not the launcher.
const LONGEST_LINE: usize = 16 << 20;

/// The way to the launcher. Messages go out in order, from a thread of their own, so that sending never waits.
#[derive(Clone, Debug)]
pub struct LauncherLink {
    messages: mpsc::UnboundedSender<ToLauncher>,
}

impl LauncherLink {
    /// A link whose messages come out of the channel.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<ToLauncher>) {
        let (messages, receiver) = mpsc::unbounded_channel();
        (Self { messages }, receiver)
    }

    /// Sends. When the launcher is gone the message is dropped: the reading side ends the process.
    pub fn send(&self, message: ToLauncher) {
        let _ = self.messages.send(message);
    }
}

/// Both directions of the control socket.
#[derive(Debug)]
pub struct ControlSocket {
    /// To the launcher.
    pub link: LauncherLink,
    /// From the launcher; closes when it is gone or sends what is no message.
    pub messages: mpsc::UnboundedReceiver<ToRouter>,
    /// Ends when every [`LauncherLink`] is dropped and what they sent is out.
    pub writer: JoinHandle<()>,
}

impl ControlSocket {
    /// Takes over the inherited socket of this number. Both threads use it as long as the process lives.
    pub fn open(socket: RawFd) -> std::io::Result<Self> {
        let (link, mut outgoing) = LauncherLink::channel();
        let (incoming, messages) = mpsc::unbounded_channel();
        let writer = std::thread::Builder::new()
            .name("control-write".to_owned())
            .spawn(move || {
                while let Some(message) = outgoing.blocking_recv() {
                    if let Err(error) = write_message(socket, &message) {
                        tracing::warn!("the launcher is gone: {error}");
                        return;
                    }
                }
            })?;
        std::thread::Builder::new()
            .name("control-read".to_owned())
            .spawn(move || {
                if let Err(error) = read_messages(socket, &incoming) {
                    tracing::error!("control socket: {error}");
                }
            })?;
        Ok(Self {
            link,
            messages,
            writer,
        })
    }
}

fn write_message(socket: RawFd, message: &ToLauncher) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut rest = line.as_slice();
    while !rest.is_empty() {
        match send(socket, rest, MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Until the peer closes or nobody listens.
fn read_messages(socket: RawFd, messages: &mpsc::UnboundedSender<ToRouter>) -> std::io::Result<()> {
    let mut pending = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match recv(socket, &mut buffer, MsgFlags::empty()) {
            Ok(0) | Err(Errno::ECONNRESET) => return Ok(()),
            Ok(count) => count,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        pending.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let mut start = 0;
        while let Some(length) = pending[start..].iter().position(|byte| *byte == b'\n') {
            let message = serde_json::from_slice(&pending[start..start + length])?;
            start += length + 1;
            if messages.send(message).is_err() {
                return Ok(());
            }
        }
        pending.drain(..start);
        if pending.len() > LONGEST_LINE {
            return Err(std::io::Error::other("a line without end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn lines_go_both_ways_and_the_end_is_noticed() {
        let (mut launcher, router) = UnixStream::pair().unwrap();
        let mut control = ControlSocket::open(router.as_raw_fd()).unwrap();
        // Split in the middle of a line, two messages in the second part.
        launcher
            .write_all(b"{\"type\":\"drain\",\"grace_sec")
            .unwrap();
        launcher
            .write_all(b"onds\":5}\n{\"type\":\"group_down\",\"group\":0,\"cause\":\"x\",\"is_final\":false}\n")
            .unwrap();
        let first = control.messages.blocking_recv();
        assert!(matches!(first, Some(ToRouter::Drain { grace_seconds: 5 })));
        let second = control.messages.blocking_recv();
        assert!(matches!(second, Some(ToRouter::GroupDown { group: 0, .. })));

        control.link.send(ToLauncher::Drained);
        let mut line = String::new();
        BufReader::new(launcher.try_clone().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "{\"type\":\"drained\"}\n");

        drop(control.link);
        control.writer.join().unwrap();
        launcher.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(control.messages.blocking_recv().is_none());
    }

    #[test]
    fn what_is_no_message_closes_the_channel() {
        let (mut launcher, router) = UnixStream::pair().unwrap();
        let mut control = ControlSocket::open(router.as_raw_fd()).unwrap();
        launcher.write_all(b"{\"type\":\"dance\"}\n").unwrap();
        assert!(control.messages.blocking_recv().is_none());
    }
}
