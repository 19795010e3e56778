//! The bounded buffer between the engine and one sequence's reader.
//!
//! The engine never waits for a reader. When a buffer is half full its sequence pauses, and what the steps in flight
//! still bring finds room; when the reader has come down to an eighth, it resumes.
//!
//! A stream that has nothing to say costs the [`Shared`] here and no queue: channels that come ready-made hold a block
//! for their first events, 2 KiB for each of ten thousand streams that wait.

use super::handle::SequenceEvent;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Events a buffer holds. Memory is taken for what is queued only.
const CAPACITY: usize = 256;

/// The sequence pauses at so many. A step brings three events to a sequence at most (prompt logprobs, a token and the
/// end), so the rest holds what 40 steps in flight can bring, and the engine's own last word.
const PAUSE_AT: usize = 128;

/// The sequence resumes at so many.
const RESUME_AT: usize = 32;

/// A queue that was longer than this gives its memory back when it has been read.
const KEPT: usize = 16;

/// What both ends look at, for moments only.
#[derive(Debug, Default)]
struct Shared {
    queue: VecDeque<SequenceEvent>,
    /// Of the reader, while it waits.
    waker: Option<Waker>,
    /// Events queued since the start.
    told: u64,
    /// The reader is behind, and has not said since that it wants more.
    pressed: bool,
    /// Nothing comes any more.
    is_written: bool,
    /// Nobody reads any more.
    is_left: bool,
}

impl Shared {
    fn take_out(&mut self) -> Option<Read> {
        let event = self.queue.pop_front()?;
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
        let wants_more = self.pressed && self.queue.len() <= RESUME_AT;
        self.pressed &= !wants_more;
        Some(Read { event, wants_more })
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Whole at every moment.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine's end.
#[derive(Debug)]
pub(super) struct EventWriter(Arc<Mutex<Shared>>);

/// The reader's end.
#[derive(Debug)]
pub(super) struct EventReader(Arc<Mutex<Shared>>);

/// An event that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) event: SequenceEvent,
    /// Said once: the paused sequence may resume.
    pub(super) wants_more: bool,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is in the buffer, or its reader is gone, whose cancel is on the way.
    Yes,
    /// As before, and the sequence has to pause.
    Pause,
    /// There was no room.
    Full,
}

/// An empty buffer.
pub(super) fn event_buffer() -> (EventWriter, EventReader) {
    let shared = Arc::new(Mutex::default());
    (EventWriter(Arc::clone(&shared)), EventReader(shared))
}

impl EventWriter {
    /// Queues an event. Says once that the sequence has to pause, until the reader wants more again.
    pub(super) fn tell(&mut self, event: SequenceEvent) -> Told {
        let mut shared = lock(&self.0);
        if shared.is_left {
            return Told::Yes;
        }
        if shared.queue.len() == CAPACITY {
            return Told::Full;
        }
        shared.queue.push_back(event);
        shared.told += 1;
        let pauses = shared.queue.len() >= PAUSE_AT && !shared.pressed;
        shared.pressed |= pauses;
        let waker = shared.waker.take();
        // The reader that is woken wants it.
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
        if pauses { Told::Pause } else { Told::Yes }
    }

    /// The reader is behind, and has not said since that it wants more.
    pub(super) fn is_pressed(&self) -> bool {
        lock(&self.0).pressed
    }

    /// Events read since the start.
    pub(super) fn read(&self) -> u64 {
        let shared = lock(&self.0);
        shared.told - shared.queue.len() as u64
    }
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        let waker = {
            let mut shared = lock(&self.0);
            shared.is_written = true;
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl EventReader {
    /// The next event; `None` when the writer is gone and everything was read. Dropped unready it has taken nothing.
    pub(super) async fn recv(&mut self) -> Option<Read> {
        poll_fn(|context| {
            let mut shared = lock(&self.0);
            let read = shared.take_out();
            if read.is_some() || shared.is_written {
                return Poll::Ready(read);
            }
            let known = shared.waker.replace(context.waker().clone());
            // Whatever goes with it goes without the lock.
            drop(shared);
            drop(known);
            Poll::Pending
        })
        .await
    }

    /// The next event, if there is one now.
    pub(super) fn try_recv(&mut self) -> Option<Read> {
        lock(&self.0).take_out()
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let mut shared = lock(&self.0);
        shared.is_left = true;
        // The memory of its task would live as long as the writer otherwise.
        let unread = (shared.waker.take(), std::mem::take(&mut shared.queue));
        drop(shared);
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headrace_scheduler::SampledToken;

    fn token(id: u32) -> SequenceEvent {
        SequenceEvent::Token(SampledToken {
            id,
            logprob: None,
            top: Vec::new(),
            rank: None,
        })
    }

    #[test]
    fn it_pauses_half_full_and_resumes_when_nearly_read() {
        let (mut writer, mut reader) = event_buffer();
        for id in 1..u32::try_from(PAUSE_AT).unwrap() {
            assert_eq!(writer.tell(token(id)), Told::Yes);
        }
        assert_eq!(writer.tell(token(0)), Told::Pause);
        // What steps in flight bring is taken, and the pause is not said again.
        assert_eq!(writer.tell(token(0)), Told::Yes);
        let mut left = PAUSE_AT + 1;
        while left > RESUME_AT + 1 {
            assert!(!reader.try_recv().unwrap().wants_more);
            left -= 1;
        }
        assert!(writer.is_pressed());
        assert!(reader.try_recv().unwrap().wants_more);
        assert!(!writer.is_pressed());
        assert!(!reader.try_recv().unwrap().wants_more);
        assert_eq!(writer.read(), (PAUSE_AT + 2 - RESUME_AT) as u64);
    }

    #[test]
    fn what_goes_beyond_its_bound_is_refused() {
        let (mut writer, reader) = event_buffer();
        let taken = (0..).take_while(|id| writer.tell(token(*id)) != Told::Full);
        assert_eq!(taken.count(), CAPACITY);
        drop(reader);
        assert_eq!(writer.tell(token(0)), Told::Yes);
    }

    #[tokio::test]
    async fn a_waiting_reader_hears_the_next_event_and_the_end() {
        let (mut writer, mut reader) = event_buffer();
        let waits = tokio::spawn(async move {
            let mut events = Vec::new();
            while let Some(read) = reader.recv().await {
                events.push(read.event);
            }
            events
        });
        for id in 0..3 {
            // It waits by then.
            tokio::task::yield_now().await;
            assert_eq!(writer.tell(token(id)), Told::Yes);
        }
        drop(writer);
        assert_eq!(waits.await.unwrap(), [token(0), token(1), token(2)]);
    }

    /// Ten thousand of them wait at once.
    #[test]
    fn a_queue_that_was_read_keeps_little_memory_and_an_empty_one_none() {
        let (mut writer, mut reader) = event_buffer();
        let capacity = |writer: &EventWriter| lock(&writer.0).queue.capacity();
        assert_eq!(capacity(&writer), 0);
        for id in 0..100 {
            writer.tell(token(id));
        }
        while reader.try_recv().is_some() {}
        assert!(capacity(&writer) <= KEPT);
        // What nobody read goes with the reader, not with the writer.
        writer.tell(token(0));
        drop(reader);
        assert_eq!(capacity(&writer), 0);
    }
}
