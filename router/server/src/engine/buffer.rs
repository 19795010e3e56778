//! The bounded buffer between the engine and one sequence's reader.
//!
//! The engine never waits for a reader. When a buffer is half full its sequence pauses, and what the steps in flight
//! still bring finds room; when the reader has come down to an eighth, it resumes.

use super::handle::SequenceEvent;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Events a buffer holds. Memory is taken for what is queued only.
const CAPACITY: usize = 256;

/// The sequence pauses at so many. A step brings three events to a sequence at most (prompt logprobs, a token and the
/// end), so the rest holds what 40 steps in flight can bring, and the engine's own last word.
const PAUSE_AT: usize = 128;

/// The sequence resumes at so many.
const RESUME_AT: usize = 32;

/// The engine's end.
#[derive(Debug)]
pub(super) struct EventWriter {
    events: mpsc::Sender<SequenceEvent>,
    pressed: Arc<AtomicBool>,
    told: u64,
}

/// The reader's end.
#[derive(Debug)]
pub(super) struct EventReader {
    events: mpsc::Receiver<SequenceEvent>,
    pressed: Arc<AtomicBool>,
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
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let pressed = Arc::new(AtomicBool::new(false));
    let writer = EventWriter {
        events: sender,
        pressed: Arc::clone(&pressed),
        told: 0,
    };
    let reader = EventReader {
        events: receiver,
        pressed,
    };
    (writer, reader)
}

impl EventWriter {
    /// Queues an event. Says once that the sequence has to pause, until the reader wants more again.
    pub(super) fn tell(&mut self, event: SequenceEvent) -> Told {
        match self.events.try_send(event) {
            Ok(()) => self.told += 1,
            Err(TrySendError::Closed(_)) => return Told::Yes,
            Err(TrySendError::Full(_)) => return Told::Full,
        }
        if self.queued() < PAUSE_AT || self.pressed.load(Ordering::Relaxed) {
            return Told::Yes;
        }
        self.pressed.store(true, Ordering::Relaxed);
        // Either the reader sees the mark after its next event, or what it has read is seen here.
        fence(Ordering::SeqCst);
        if self.queued() <= RESUME_AT && self.pressed.swap(false, Ordering::Relaxed) {
            return Told::Yes;
        }
        Told::Pause
    }

    /// The reader is behind, and has not said since that it wants more.
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Events read since the start.
    pub(super) fn read(&self) -> u64 {
        self.told.saturating_sub(self.queued() as u64)
    }

    fn queued(&self) -> usize {
        CAPACITY.saturating_sub(self.events.capacity())
    }
}

impl EventReader {
    /// The next event.
    pub(super) async fn recv(&mut self) -> Option<SequenceEvent> {
        self.events.recv().await
    }

    /// The next event, if there is one now.
    pub(super) fn try_recv(&mut self) -> Option<SequenceEvent> {
        self.events.try_recv().ok()
    }

    /// After an event was read: `true` once when a paused sequence may resume.
    pub(super) fn wants_more(&self) -> bool {
        fence(Ordering::SeqCst);
        self.pressed.load(Ordering::Relaxed)
            && self.events.len() <= RESUME_AT
            && self.pressed.swap(false, Ordering::Relaxed)
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
            reader.try_recv().unwrap();
            left -= 1;
            assert!(!reader.wants_more());
        }
        reader.try_recv().unwrap();
        assert!(reader.wants_more());
        assert!(!reader.wants_more());
        assert_eq!(writer.read(), (PAUSE_AT + 1 - RESUME_AT) as u64);
    }

    #[test]
    fn what_goes_beyond_its_bound_is_refused() {
        let (mut writer, reader) = event_buffer();
        let taken = (0..).take_while(|id| writer.tell(token(*id)) != Told::Full);
        assert_eq!(taken.count(), CAPACITY);
        drop(reader);
        assert_eq!(writer.tell(token(0)), Told::Yes);
    }
}
