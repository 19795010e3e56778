//! A client's socket, which hyper writes to and reads from while somebody else watches whether the client is there.
//!
//! hyper reads on while it answers, and so notices a client that leaves, until it has read something that is not part of
//! the request: a second request sent ahead, a stray line end. Then it reads nothing before the answer is out, and a
//! generation that is not streamed would run to its end for nobody.

use nix::sys::socket::{Shutdown, shutdown};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Between two looks at a client that has sent more than its request.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// One connection, for several owners.
#[derive(Clone, Debug)]
pub(crate) struct SharedStream(Arc<TcpStream>);

impl SharedStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Returns once the client has closed its side, at least a period after that. Never while it has not.
    pub(crate) async fn left(&self) {
        loop {
            // Ready at a close and as long as something is unread.
            let state = self.0.ready(Interest::READABLE).await;
            tokio::time::sleep(LOOK_PERIOD).await;
            match state {
                Ok(state) if !state.is_read_closed() => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// What the system still holds for the client is dropped at the end.
    pub(crate) fn drop_unsent(&self) {
        if let Err(error) = self.0.set_zero_linger() {
            tracing::debug!("SO_LINGER: {error}");
        }
    }
}

impl AsyncRead for SharedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            // Not into a slice: that would have to be zeroed first, and so take memory that no byte ever fills.
            match self.0.try_read_buf(buffer) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write_when_ready(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_when_ready(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sockets keep nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(self.0.as_raw_fd(), Shutdown::Write).map_err(io::Error::from))
    }
}

impl SharedStream {
    fn write_when_ready(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}
