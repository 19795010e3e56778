//! Stop strings over streamed text.
//!
//! A stop is decided at the first push in which any stop is complete. Of those complete then, the earliest start
//! wins, then the longest; a longer one that might still complete is not waited for.
//!
//! Every stop has its own Knuth-Morris-Pratt state, so a byte costs amortised constant time per stop whatever
//! the text, and the state is exactly what hold-back needs: the length of the longest suffix of the text that
//! starts this stop. Matching is on bytes; as text and stops are both UTF-8, a match starts and ends between
//! characters.

use crate::detokenizer::Delta;
use crate::error::TextError;
use std::collections::VecDeque;
use std::sync::Arc;

/// What happens with the stop's own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Nothing is held back; the text ends right after the stop (TGI's native routes).
    KeepStop,
    /// The text ends before the stop; the longest possible start of one is held back (all other routes).
    CutStop,
}

/// What one push released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that the client may see now.
    pub released: String,
    /// The stop that ended the text: its place in the list given to [`StopMatcher::new`].
    pub matched: Option<usize>,
}

/// One stop string with its failure function.
#[derive(Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// `failure[n]`: longest proper border of the first `n` bytes.
    failure: Vec<u32>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut failure = vec![0_u32; bytes.len() + 1];
        let mut border = 0_usize;
        for end in 1..bytes.len() {
            while border > 0 && bytes[end] != bytes[border] {
                border = failure[border] as usize;
            }
            if bytes[end] == bytes[border] {
                border += 1;
            }
            failure[end + 1] = u32::try_from(border).unwrap_or(u32::MAX);
        }
        Self { bytes, failure }
    }

    /// The state after one more byte.
    fn advance(&self, mut state: usize, byte: u8) -> usize {
        if state == self.bytes.len() {
            state = self.failure[state] as usize;
        }
        while state > 0 && self.bytes[state] != byte {
            state = self.failure[state] as usize;
        }
        if self.bytes[state] == byte {
            state + 1
        } else {
            0
        }
    }
}

/// A run of held text. Hidden runs (special tokens) take part in matching and are never released.
#[derive(Clone, Debug)]
struct Run {
    text: String,
    is_hidden: bool,
}

/// Finds stops in one sequence's text. A clone taken before the first push shares the compiled stops.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    patterns: Arc<[Pattern]>,
    mode: StopMode,
    states: Vec<usize>,
    /// Bytes pushed so far, hidden ones included.
    position: usize,
    /// Text not released yet; it ends at `position`.
    held: VecDeque<Run>,
    held_bytes: usize,
    /// A stop that becomes complete now is text like any other.
    is_early: bool,
    is_over: bool,
}

impl StopMatcher {
    /// Compiles `stops`. An empty one is refused: it would match before the first token.
    pub fn new<S: AsRef<str>>(stops: &[S], mode: StopMode) -> Result<Self, TextError> {
        if let Some(index) = stops.iter().position(|stop| stop.as_ref().is_empty()) {
            return Err(TextError::EmptyStop { index });
        }
        let patterns: Arc<[Pattern]> = stops
            .iter()
            .map(|stop| Pattern::new(stop.as_ref()))
            .collect();
        Ok(Self {
            states: vec![0; patterns.len()],
            patterns,
            mode,
            position: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            is_early: false,
            is_over: false,
        })
    }

    /// Whether it is too early for a stop: one that becomes complete meanwhile ends nothing. One that begins then and
    /// becomes complete later does.
    pub fn set_early(&mut self, is_early: bool) {
        self.is_early = is_early;
    }

    /// The text of one token, as the detokeniser gave it. After a match nothing more is released.
    pub fn push(&mut self, text: &str) -> StopStep {
        self.push_run(text, false)
    }

    /// The text of a special token: a stop may match it, but it is no part of the released text.
    pub fn push_hidden(&mut self, text: &str) -> StopStep {
        self.push_run(text, true)
    }

    /// What one token gave: its text, or a special token's hidden text.
    pub fn push_delta(&mut self, delta: &Delta) -> StopStep {
        if delta.is_special {
            self.push_run(&delta.token_text, true)
        } else {
            self.push_run(&delta.text, false)
        }
    }

    /// The end of the sequence: what was held back for a stop that did not come.
    pub fn finish(&mut self) -> String {
        self.is_over = true;
        self.release(0)
    }

    /// Whether a stop has matched or the text was finished.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn push_run(&mut self, text: &str, is_hidden: bool) -> StopStep {
        if self.is_over {
            return StopStep::default();
        }
        let matched = self.scan(text.as_bytes());
        if !text.is_empty() {
            self.held.push_back(Run {
                text: text.to_owned(),
                is_hidden,
            });
            self.held_bytes += text.len();
        }
        self.position += text.len();
        if let Some((index, start)) = matched {
            self.is_over = true;
            let cut = match self.mode {
                StopMode::KeepStop => start + self.patterns[index].bytes.len(),
                StopMode::CutStop => start,
            };
            let released = self.release(self.position - cut);
            self.held.clear();
            self.held_bytes = 0;
            return StopStep {
                released,
                matched: Some(index),
            };
        }
        let keep = match self.mode {
            StopMode::KeepStop => 0,
            StopMode::CutStop => self.longest_start(),
        };
        StopStep {
            released: self.release(keep),
            matched: None,
        }
    }

    /// Bytes at the end of the text that a stop may begin with.
    fn longest_start(&self) -> usize {
        let states = self.patterns.iter().zip(&self.states);
        let starts = states.map(|(pattern, &state)| {
            if state == pattern.bytes.len() {
                // It came too early; another one may begin inside it.
                pattern.failure[state] as usize
            } else {
                state
            }
        });
        starts.max().unwrap_or(0)
    }

    /// Runs every stop over `bytes`; the winner's index and its start in the whole text.
    fn scan(&mut self, bytes: &[u8]) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize, usize)> = None;
        for (index, (pattern, state)) in
            self.patterns.iter().zip(self.states.iter_mut()).enumerate()
        {
            let length = pattern.bytes.len();
            for (offset, &byte) in bytes.iter().enumerate() {
                *state = pattern.advance(*state, byte);
                if *state == length && !self.is_early {
                    // The first end of a stop is its earliest start; later ones of the same stop cannot win.
                    let start = self.position + offset + 1 - length;
                    let is_better = best.is_none_or(|(best_start, best_length, _)| {
                        start < best_start || (start == best_start && length > best_length)
                    });
                    if is_better {
                        best = Some((start, length, index));
                    }
                    break;
                }
            }
        }
        best.map(|(start, _, index)| (index, start))
    }

    /// Takes out of `held` all but its last `keep` bytes.
    fn release(&mut self, keep: usize) -> String {
        let mut out = String::new();
        while self.held_bytes > keep {
            let Some(run) = self.held.front_mut() else {
                break;
            };
            let available = self.held_bytes - keep;
            if run.text.len() <= available {
                self.held_bytes -= run.text.len();
                if !run.is_hidden {
                    out.push_str(&run.text);
                }
                self.held.pop_front();
            } else {
                if !run.is_hidden {
                    out.push_str(&run.text[..available]);
                }
                run.text.drain(..available);
                self.held_bytes -= available;
            }
        }
        out
    }
}
