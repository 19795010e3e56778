//! The desk that computes masks, on threads of its own.
//!
//! It keeps every constrained sequence's place in its grammar, hears the sequence's ids in their order and is asked for
//! the masks of the rows that steps announce. A mask for output position p is computed once p ids were accepted. A
//! sequence's place lives in the router: a preemption or a worker's restart only means that the same position is asked
//! for again, by another step.
//!
//! A sequence belongs to one thread, so its orders are done in their order, and what goes wrong with it (a dead end, a
//! panic) is told for that sequence alone. What is held is bounded by the sequences in the scheduler and the steps in
//! flight: an order is sent for each of their ids and masks, and no more.

use headrace_grammar::{CompiledGrammar, DeadEnd, GrammarState, Mask};
use headrace_scheduler::{DueMask, SequenceId, TokenId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

/// Threads of the desk. A mask takes some tens of microseconds, seldom milliseconds.
const NUM_THREADS: usize = 2;
/// Bytes of stack of each: the library recurses over what a client nested.
const STACK_BYTES: usize = 16 << 20;

/// What the desk is told, in this order.
#[derive(Debug)]
pub enum DeskOrder {
    /// A constrained sequence begins.
    Open {
        /// Which.
        sequence: SequenceId,
        /// What binds it.
        grammar: CompiledGrammar,
    },
    /// Its next output id.
    Accept {
        /// Whose.
        sequence: SequenceId,
        /// The id.
        id: TokenId,
    },
    /// A mask is announced. It can be computed once as many ids were accepted as its position says.
    Want(MaskWanted),
    /// It is over. What was wanted for it is not answered.
    Close {
        /// Which.
        sequence: SequenceId,
    },
}

impl DeskOrder {
    fn sequence(&self) -> SequenceId {
        match self {
            Self::Open { sequence, .. }
            | Self::Accept { sequence, .. }
            | Self::Close { sequence } => *sequence,
            Self::Want(wanted) => wanted.mask.sequence,
        }
    }
}

/// An announced mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskWanted {
    /// The start of the group whose step announced it.
    pub epoch: u64,
    /// That step.
    pub step_id: u64,
    /// Its row.
    pub mask: DueMask,
}

/// The desk's answer.
#[derive(Debug)]
pub struct MaskReady {
    /// What was asked for.
    pub wanted: MaskWanted,
    /// The mask, or why no id can follow.
    pub outcome: Result<Mask, DeadEnd>,
    /// Nothing can follow but an id that ends the sequence. Where the mask allows none, or the sequence may not end yet,
    /// it cannot go on.
    pub is_complete: bool,
}

/// Every constrained sequence's place in its grammar, without a thread: does one order after the other.
#[derive(Debug, Default)]
pub struct MaskDesk {
    places: FxHashMap<SequenceId, Place>,
}

/// One sequence.
#[derive(Debug)]
struct Place {
    state: Progress,
    /// Wanted masks whose position is not reached yet, or whose answer is the next to be given.
    wanted: VecDeque<MaskWanted>,
}

/// How far a sequence is.
#[derive(Debug)]
enum Progress {
    /// Nothing was needed yet. The state is made on first use: a sequence may wait long in the queue.
    Fresh(CompiledGrammar),
    Going(Box<GrammarState>),
    /// It met a dead end after this many ids.
    Stuck {
        accepted: u32,
        end: DeadEnd,
    },
}

impl MaskDesk {
    /// Does one order. Gives what it makes answerable.
    pub fn take(&mut self, order: DeskOrder) -> Vec<MaskReady> {
        let sequence = order.sequence();
        let place = match order {
            DeskOrder::Open { grammar, .. } => {
                let place = Place {
                    state: Progress::Fresh(grammar),
                    wanted: VecDeque::new(),
                };
                self.places.insert(sequence, place);
                return Vec::new();
            }
            DeskOrder::Close { .. } => {
                self.places.remove(&sequence);
                return Vec::new();
            }
            DeskOrder::Accept { id, .. } => {
                let Entry::Occupied(place) = self.places.entry(sequence) else {
                    return Vec::new();
                };
                let place = place.into_mut();
                place.state.accept(id);
                place
            }
            DeskOrder::Want(wanted) => {
                let Some(place) = self.places.get_mut(&sequence) else {
                    return Vec::new();
                };
                place.wanted.push_back(wanted);
                place
            }
        };
        place.answers()
    }

    /// Sequences that are open.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no sequence is open.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl Place {
    /// Answers what is wanted for the position that is reached.
    fn answers(&mut self) -> Vec<MaskReady> {
        let accepted = self.state.accepted();
        // What was wanted for a position that is past: its step has been answered, or forgotten with its group.
        self.wanted
            .retain(|wanted| wanted.mask.position >= accepted);
        let (due, later) = std::mem::take(&mut self.wanted)
            .into_iter()
            .partition(|wanted| wanted.mask.position == accepted);
        self.wanted = later;
        let due: VecDeque<MaskWanted> = due;
        if due.is_empty() {
            return Vec::new();
        }
        let outcome = self.state.mask();
        let is_complete = self.state.is_complete();
        due.into_iter()
            .map(|wanted| MaskReady {
                wanted,
                outcome: outcome.clone(),
                is_complete,
            })
            .collect()
    }
}

impl Progress {
    fn accepted(&self) -> u32 {
        match self {
            Self::Fresh(_) => 0,
            Self::Going(state) => state.accepted(),
            Self::Stuck { accepted, .. } => *accepted,
        }
    }

    fn is_complete(&self) -> bool {
        matches!(self, Self::Going(state) if state.is_complete())
    }

    fn accept(&mut self, id: TokenId) {
        let accepted = self.accepted();
        if let Err(end) = self.with_state(|state| state.accept(id)) {
            // The position counts on, so that the mask wanted next is answered with the reason.
            *self = Self::Stuck {
                accepted: accepted.saturating_add(1),
                end,
            };
        }
    }

    fn mask(&mut self) -> Result<Mask, DeadEnd> {
        if let Self::Fresh(grammar) = self {
            return Ok(grammar.first_mask().clone());
        }
        self.with_state(GrammarState::mask)
    }

    fn with_state<T>(
        &mut self,
        call: impl FnOnce(&mut GrammarState) -> Result<T, DeadEnd>,
    ) -> Result<T, DeadEnd> {
        if let Self::Fresh(grammar) = self {
            *self = match catch_unwind(AssertUnwindSafe(|| grammar.start())) {
                Ok(state) => Self::Going(Box::new(state)),
                Err(_) => Self::Stuck {
                    accepted: 0,
                    end: DeadEnd::new("the grammar broke"),
                },
            };
        }
        match self {
            Self::Going(state) => call(state),
            Self::Stuck { end, .. } => Err(end.clone()),
            // It was replaced above.
            Self::Fresh(_) => Err(DeadEnd::new("the grammar has no state")),
        }
    }
}

/// The desk's threads. Dropping it ends them.
#[derive(Debug)]
pub(super) struct MaskThreads {
    orders: Vec<mpsc::Sender<DeskOrder>>,
}

impl MaskThreads {
    /// Starts them. `ready` is called on them, in each sequence's order; it must not block.
    pub(super) fn start(
        ready: impl Fn(MaskReady) + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let orders = (0..NUM_THREADS)
            .map(|_| {
                // Bounded by what is open in the scheduler: see the module.
                let (sender, orders) = mpsc::channel();
                let ready = ready.clone();
                std::thread::Builder::new()
                    .name("masks".to_owned())
                    .stack_size(STACK_BYTES)
                    .spawn(move || serve(&orders, &ready))?;
                Ok(sender)
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Self { orders })
    }

    /// Gives an order to its sequence's thread. Never waits.
    pub(super) fn send(&self, order: DeskOrder) {
        let count = self.orders.len().max(1) as u64;
        let thread = usize::try_from(order.sequence().0 % count).unwrap_or(0);
        if let Some(orders) = self.orders.get(thread) {
            // A thread ends only with this sender.
            let _ = orders.send(order);
        }
    }
}

fn serve(orders: &mpsc::Receiver<DeskOrder>, ready: &impl Fn(MaskReady)) {
    let mut desk = MaskDesk::default();
    while let Ok(order) = orders.recv() {
        for answer in desk.take(order) {
            ready(answer);
        }
    }
}

#[cfg(test)]
mod tests;
