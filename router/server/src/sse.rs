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

/// Where happenings come from. Dropping it cancels what still runs.
trait Source: Send + 'static {
    /// The next thing that happens; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Result<Happening, Refusal>>> + Send;

    /// Notes how the request failed.
    fn note_failure(&self, refusal: &Refusal);
}

impl Source for Generation {
    fn next(&mut self) -> impl Future<Output = Option<Result<Happening, Refusal>>> + Send {
        Self::next(self)
    }

    fn note_failure(&self, refusal: &Refusal) {
        self.log().fail(refusal);
    }
}

struct Driver<S, W> {
    /// Until its end, or a failure.
    source: Option<S>,
    writer: W,
    dialect: Dialect,
    ready: VecDeque<String>,
}

impl<S: Source, W: FrameWriter> Driver<S, W> {
    fn new(source: S, writer: W, dialect: Dialect) -> Self {
        Self {
            source: Some(source),
            writer,
            dialect,
            ready: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            match self.source.as_mut()?.next().await {
                Some(Ok(happening)) => self.ready.extend(self.writer.happening(happening)),
                Some(Err(refusal)) => self.fail(&refusal),
                None => {
                    self.source = None;
                    self.ready.extend(self.writer.end());
                }
            }
        }
    }

    /// The sequences are cancelled at once, however slowly the client reads the rest.
    fn fail(&mut self, refusal: &Refusal) {
        if let Some(source) = self.source.take() {
            source.note_failure(refusal);
        }
        self.ready.extend(failure_frames(self.dialect, refusal));
    }
}

/// A generation as an event stream. A panic while it runs is that stream's error event.
pub(crate) fn respond(
    generation: Generation,
    writer: impl FrameWriter,
    dialect: Dialect,
) -> Response {
    let frames = frames(Driver::new(generation, writer, dialect));
    let events = frames.map(|frame| Ok::<_, Infallible>(Event::default().data(frame)));
    Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

fn frames<S: Source, W: FrameWriter>(driver: Driver<S, W>) -> impl Stream<Item = String> + Send {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Happens for ever; its drop and its failures are seen.
    struct Endless(Arc<Mutex<Vec<String>>>);

    impl Source for Endless {
        async fn next(&mut self) -> Option<Result<Happening, Refusal>> {
            Some(Ok(Happening::Started {
                choice: 0,
                cached_tokens: 0,
            }))
        }

        fn note_failure(&self, refusal: &Refusal) {
            self.0.lock().unwrap().push(refusal.message().to_owned());
        }
    }

    impl Drop for Endless {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("cancelled".to_owned());
        }
    }

    /// Panics at its third happening.
    struct Faulty(u32);

    impl FrameWriter for Faulty {
        fn happening(&mut self, _: Happening) -> Option<String> {
            self.0 += 1;
            assert!(self.0 < 3, "a bug");
            Some(format!("frame {}", self.0))
        }

        fn end(&mut self) -> Vec<String> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_stream_with_the_typed_error_and_cancels_its_sequences() {
        for dialect in [Dialect::Native, Dialect::OpenAi] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let driver = Driver::new(Endless(Arc::clone(&seen)), Faulty(0), dialect);
            let mut frames = Box::pin(frames(driver));
            assert_eq!(frames.next().await.as_deref(), Some("frame 1"));
            assert_eq!(frames.next().await.as_deref(), Some("frame 2"));
            let error = frames.next().await.unwrap();
            // Before the client has read the last frames.
            assert_eq!(*seen.lock().unwrap(), ["Internal error", "cancelled"]);
            let refusal = Refusal::new(Cause::Internal, "Internal error");
            let mut due = failure_frames(dialect, &refusal).into_iter();
            assert_eq!(Some(error), due.next());
            for frame in due {
                assert_eq!(frames.next().await, Some(frame));
            }
            assert_eq!(frames.next().await, None);
        }
    }
}
