//! Server-sent events: frames, keep-alives, and a generation as a body of them.
//!
//! The generation runs inside the body. When the client leaves, hyper drops the body, and with it the sequences, which
//! cancels them. What is there at once goes out at once: tokens that came while the client's connection was served, or
//! while the machine was busy, share a chunk and a write.

use crate::routes::generation::{Generation, Happening};
use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::FutureExt;
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::body::{Body as HttpBody, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A comment goes out after this long without an event.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes in a chunk beyond which it takes no further event.
const CHUNK: usize = 8 << 10;

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
    /// The next thing that happens; `None` at the end. A future that is dropped unready has taken nothing.
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

    /// As its source's.
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
    let events = Events::new(Driver::new(generation, writer, dialect), KEEP_ALIVE);
    let mut response = Response::new(Body::new(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The events of a driver as a body.
struct Events<S, W> {
    driver: Driver<S, W>,
    is_over: bool,
    /// The longest silence.
    keep_alive: Duration,
    /// When something was last sent.
    last: Instant,
    /// Rings no later than a keep-alive is due, and is set anew only then: not for every token.
    alarm: Pin<Box<Sleep>>,
}

/// Nothing in it is ever pinned for longer than a look at it.
impl<S, W> Unpin for Events<S, W> {}

impl<S: Source, W: FrameWriter> Events<S, W> {
    fn new(driver: Driver<S, W>, keep_alive: Duration) -> Self {
        Self {
            driver,
            is_over: false,
            keep_alive,
            last: Instant::now(),
            alarm: Box::pin(sleep(keep_alive)),
        }
    }

    /// What is there by now.
    fn poll_text(&mut self, context: &mut Context<'_>) -> String {
        let mut text = String::new();
        while text.len() < CHUNK && !self.is_over {
            let outcome = {
                let next = pin!(AssertUnwindSafe(self.driver.next()).catch_unwind());
                next.poll(context)
            };
            match outcome {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(frame))) => push_event(&mut text, &frame),
                Poll::Ready(Ok(None)) => self.is_over = true,
                Poll::Ready(Err(_)) => {
                    self.driver
                        .fail(&Refusal::new(Cause::Internal, "Internal error"));
                }
            }
        }
        text
    }
}

/// `frame` is JSON or a word, so one line.
fn push_event(text: &mut String, frame: &str) {
    text.reserve("data: \n\n".len() + frame.len());
    text.push_str("data: ");
    text.push_str(frame);
    text.push_str("\n\n");
}

impl<S: Source, W: FrameWriter> HttpBody for Events<S, W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let text = this.poll_text(context);
        if !text.is_empty() {
            this.last = Instant::now();
            return Poll::Ready(Some(Ok(Frame::data(text.into()))));
        }
        if this.is_over {
            return Poll::Ready(None);
        }
        loop {
            ready!(this.alarm.as_mut().poll(context));
            let due = this.last + this.keep_alive;
            let now = Instant::now();
            if now >= due {
                this.last = now;
                this.alarm.as_mut().reset(now + this.keep_alive);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b":\n\n")))));
            }
            this.alarm.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
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

    /// The `data:` of what comes in one chunk; `None` at the end.
    async fn chunk<S: Source, W: FrameWriter>(events: &mut Events<S, W>) -> Option<Vec<String>> {
        let frame = events.frame().await?.unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        let lines = text.strip_suffix("\n\n").unwrap().split("\n\n");
        Some(
            lines
                .map(|line| line.strip_prefix("data: ").unwrap_or(line).to_owned())
                .collect(),
        )
    }

    #[tokio::test]
    async fn a_panic_ends_the_stream_with_the_typed_error_and_cancels_its_sequences() {
        for dialect in [Dialect::Native, Dialect::OpenAi] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let driver = Driver::new(Endless(Arc::clone(&seen)), Faulty(0), dialect);
            let mut events = Events::new(driver, KEEP_ALIVE);
            let refusal = Refusal::new(Cause::Internal, "Internal error");
            let mut due = vec!["frame 1".to_owned(), "frame 2".to_owned()];
            due.extend(failure_frames(dialect, &refusal));
            assert_eq!(chunk(&mut events).await, Some(due));
            assert_eq!(*seen.lock().unwrap(), ["Internal error", "cancelled"]);
            assert_eq!(chunk(&mut events).await, None);
        }
    }

    /// Happens when it is told to.
    struct Told(tokio::sync::mpsc::UnboundedReceiver<()>);

    impl Source for Told {
        async fn next(&mut self) -> Option<Result<Happening, Refusal>> {
            self.0.recv().await?;
            Some(Ok(Happening::PromptOnly { choice: 0 }))
        }

        fn note_failure(&self, _: &Refusal) {}
    }

    /// As long as it is told to be.
    struct Long(usize);

    impl FrameWriter for Long {
        fn happening(&mut self, _: Happening) -> Option<String> {
            Some("x".repeat(self.0))
        }

        fn end(&mut self) -> Vec<String> {
            vec![DONE.to_owned()]
        }
    }

    #[tokio::test]
    async fn what_is_there_at_once_shares_a_chunk_of_bounded_size() {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let long = CHUNK / 3;
        let mut events = Events::new(
            Driver::new(Told(told), Long(long), Dialect::OpenAi),
            KEEP_ALIVE,
        );
        for _ in 0..4 {
            tell.send(()).unwrap();
        }
        assert_eq!(chunk(&mut events).await.unwrap().len(), 3);
        assert_eq!(chunk(&mut events).await.unwrap().len(), 1);
        assert!(chunk(&mut events).now_or_never().is_none(), "nothing yet");
        tell.send(()).unwrap();
        drop(tell);
        let last = chunk(&mut events).await.unwrap();
        assert_eq!(last, ["x".repeat(long), DONE.to_owned()]);
        assert_eq!(chunk(&mut events).await, None);
    }

    #[tokio::test]
    async fn a_comment_goes_out_after_every_silence_and_no_sooner() {
        const SHORT: Duration = Duration::from_millis(60);
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let driver = Driver::new(Told(told), Long(1), Dialect::OpenAi);
        let mut events = Events::new(driver, SHORT);
        sleep(SHORT / 2).await;
        tell.send(()).unwrap();
        let began = Instant::now();
        assert_eq!(chunk(&mut events).await.unwrap(), ["x"]);
        for silences in 1..=3 {
            assert_eq!(chunk(&mut events).await.unwrap(), [":"]);
            // From the beginning: this task may be late in looking at what was sent in time.
            assert!(began.elapsed() >= SHORT * silences);
        }
        drop(tell);
        assert_eq!(chunk(&mut events).await.unwrap(), [DONE]);
    }
}
