//! Server-sent events: frames, keep-alives, and a generation as a stream of them.
//!
//! The generation runs inside the body's stream. When the client leaves, hyper drops the body, and with it the
//! sequences, which cancels them.

use crate::routes::generation::{Generation, Happening};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{FutureExt, Stream, StreamExt};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// A comment goes out after this long without an event.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Writes one dialect's `data:` lines.
pub(crate) trait FrameWriter: Send + 'static {
    /// What a happening shows, if anything.
    fn happening(&mut self, happening: Happening) -> Option<String>;

    /// What comes after the last choice's end.
    fn end(&mut self) -> Vec<String>;
}

/// The `data:` lines of a failure after the headers.
pub(crate) fn failure_frames(dialect: Dialect, refusal: &Refusal) -> Vec<String> {
    let body = refusal.stream_body(dialect);
    match dialect {
        Dialect::Native => vec![body],
        Dialect::OpenAi => vec![body, DONE.to_owned()],
    }
}

/// The last `data:` of `/v1` streams.
pub(crate) const DONE: &str = "[DONE]";

struct Driver<W> {
    generation: Generation,
    writer: W,
    dialect: Dialect,
    ready: VecDeque<String>,
    is_over: bool,
}

impl<W: FrameWriter> Driver<W> {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            match self.generation.next().await {
                Some(Ok(happening)) => self.ready.extend(self.writer.happening(happening)),
                Some(Err(refusal)) => self.fail(&refusal),
                None => {
                    self.is_over = true;
                    self.ready.extend(self.writer.end());
                }
            }
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.is_over = true;
        self.generation.log().fail(refusal);
        self.ready.extend(failure_frames(self.dialect, refusal));
    }
}

/// A generation as an event stream. A panic while it runs is that stream's error event.
pub(crate) fn respond(
    generation: Generation,
    writer: impl FrameWriter,
    dialect: Dialect,
) -> Response {
    let driver = Driver {
        generation,
        writer,
        dialect,
        ready: VecDeque::new(),
        is_over: false,
    };
    let frames = frames(driver);
    let events = frames.map(|frame| Ok::<_, Infallible>(Event::default().data(frame)));
    Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

fn frames<W: FrameWriter>(driver: Driver<W>) -> impl Stream<Item = String> + Send {
    futures::stream::unfold(driver, |mut driver| async move {
        let outcome = AssertUnwindSafe(driver.next()).catch_unwind().await;
        let frame = if let Ok(frame) = outcome {
            frame
        } else {
            driver.fail(&Refusal::new(Cause::Internal, "Internal error"));
            driver.ready.pop_front()
        };
        frame.map(|frame| (frame, driver))
    })
}
