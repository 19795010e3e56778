//! Clients that stop reading: their connection ends, and with it their sequences and their permit.
//!
//! While a socket takes nothing, hyper does not look at the answer behind it, so an answer that has failed meanwhile
//! would wait with everything it holds until TCP gives up, which a client that is alive and reads nothing can put off
//! for ever.

use crate::connection::SharedStream;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A connection whose writes fail once it has taken nothing for `patience` while something was to be written.
#[derive(Debug)]
pub(crate) struct TimedWrites {
    stream: SharedStream,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl TimedWrites {
    pub(crate) fn new(stream: SharedStream, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            deadline: Box::pin(sleep(patience)),
            is_waiting: false,
        }
    }

    /// What a write came to, or the error when it has waited too long.
    fn in_time(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.patience);
        }
        if self.deadline.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.is_waiting = false;
        // What the system still holds for the client goes too, instead of waiting for it.
        self.stream.drop_unsent();
        Poll::Ready(Err(io::Error::new(
            ErrorKind::TimedOut,
            "the client does not read",
        )))
    }
}

impl AsyncRead for TimedWrites {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TimedWrites {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
