//! Masks of one stream, by step and slot, as a real worker keeps them.

use headrace_worker_client::pb;
use std::collections::HashMap;
use std::sync::Arc;

/// Masks that `same_as` may name: the latest ones with an id, by use.
const MOST_REMEMBERED: usize = 4096;

/// What came for a row.
#[derive(Clone, Debug)]
pub(crate) enum Placed {
    /// A mask for this output index.
    Mask {
        position: u32,
        allowed: Arc<Allowed>,
    },
    /// The row samples nothing.
    CalledOff,
    /// Why there is no mask: the row fails.
    Fault(String),
}

/// Ids a row may hold.
#[derive(Debug)]
pub(crate) enum Allowed {
    /// Bit i of the words allows id i.
    Bits(Vec<u64>),
    Only(Vec<u32>),
    AllBut(Vec<u32>),
}

impl Allowed {
    pub(crate) fn holds(&self, id: u32) -> bool {
        match self {
            Self::Bits(words) => words
                .get(id as usize / 64)
                .is_some_and(|word| word >> (id % 64) & 1 == 1),
            Self::Only(ids) => ids.contains(&id),
            Self::AllBut(ids) => !ids.contains(&id),
        }
    }

    /// The first allowed id that fits, upwards from `first` and round at `vocab`. No slower for a short list in a large
    /// vocabulary: benches count the time.
    pub(crate) fn first_from(
        &self,
        first: u32,
        vocab: u32,
        fits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        match self {
            Self::Bits(words) => {
                let within = |from, to| first_set(words, from, to, &fits);
                within(first, vocab).or_else(|| within(0, first))
            }
            Self::Only(ids) => {
                let distance = |id: u32| {
                    (u64::from(id) + u64::from(vocab) - u64::from(first)) % u64::from(vocab)
                };
                let known = ids.iter().copied().filter(|&id| id < vocab && fits(id));
                known.min_by_key(|&id| distance(id))
            }
            Self::AllBut(ids) => (first..vocab)
                .chain(0..first)
                .find(|&id| !ids.contains(&id) && fits(id)),
        }
    }

    /// An id of its list that the model lacks.
    pub(crate) fn unknown_id(&self, vocab_size: u32) -> Option<u32> {
        match self {
            Self::Bits(_) => None,
            Self::Only(ids) | Self::AllBut(ids) => ids.iter().copied().find(|id| *id >= vocab_size),
        }
    }
}

/// The bits in words of their own; a last one may be short.
fn words_of(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let bytes = chunk.iter().rev();
        bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    bytes.chunks(8).map(word).collect()
}

/// The first set bit of `from..to` that fits; empty words are passed at once.
fn first_set(words: &[u64], from: u32, to: u32, fits: &impl Fn(u32) -> bool) -> Option<u32> {
    let mut id = from;
    while id < to {
        let left = words.get(id as usize / 64).copied().unwrap_or(0) >> (id % 64);
        if left == 0 {
            id = (id / 64 + 1) * 64;
            continue;
        }
        id += left.trailing_zeros();
        if id < to && fits(id) {
            return Some(id);
        }
        id += 1;
    }
    None
}

/// Where masks wait for their step.
#[derive(Debug, Default)]
pub(crate) struct MaskRoom {
    waiting: HashMap<(u64, u32), Placed>,
    remembered: HashMap<u64, (u64, Arc<Allowed>)>,
    uses: u64,
    done_step: u64,
    same: u64,
}

impl MaskRoom {
    /// Leaves a mask for a row. One for a step that is done is remembered and otherwise dropped.
    pub(crate) fn put(&mut self, mask: pb::Mask) {
        self.uses += 1;
        let allowed = match mask.kind {
            Some(pb::mask::Kind::SameAs(id)) => {
                let Some((used, allowed)) = self.remembered.get_mut(&id) else {
                    let words = format!("mask {id} is not known (any more)");
                    self.leave(mask.step_id, mask.slot, Placed::Fault(words));
                    return;
                };
                *used = self.uses;
                self.same += 1;
                Arc::clone(allowed)
            }
            Some(pb::mask::Kind::Bitset(bytes)) => Arc::new(Allowed::Bits(words_of(&bytes))),
            Some(pb::mask::Kind::Allow(ids)) => Arc::new(Allowed::Only(ids.ids)),
            Some(pb::mask::Kind::Deny(ids)) => Arc::new(Allowed::AllBut(ids.ids)),
            None => {
                let words = format!(
                    "the mask of step {}, slot {} has no kind",
                    mask.step_id, mask.slot
                );
                self.leave(mask.step_id, mask.slot, Placed::Fault(words));
                return;
            }
        };
        if mask.mask_id != 0 {
            let entry = (self.uses, Arc::clone(&allowed));
            self.remembered.insert(mask.mask_id, entry);
            if self.remembered.len() > MOST_REMEMBERED {
                let oldest = self.remembered.iter().min_by_key(|(_, (used, _))| *used);
                if let Some(id) = oldest.map(|(id, _)| *id) {
                    self.remembered.remove(&id);
                }
            }
        }
        let position = mask.position;
        self.leave(mask.step_id, mask.slot, Placed::Mask { position, allowed });
    }

    pub(crate) fn call_off(&mut self, off: pb::MaskCalledOff) {
        self.leave(off.step_id, off.slot, Placed::CalledOff);
    }

    fn leave(&mut self, step_id: u64, slot: u32, placed: Placed) {
        if step_id > self.done_step {
            self.waiting.insert((step_id, slot), placed);
        }
    }

    /// What came for each of the slots; `None` while something is missing.
    pub(crate) fn take(&mut self, step_id: u64, slots: &[u32]) -> Option<HashMap<u32, Placed>> {
        if !slots
            .iter()
            .all(|slot| self.waiting.contains_key(&(step_id, *slot)))
        {
            return None;
        }
        let placed = slots
            .iter()
            .filter_map(|slot| Some((*slot, self.waiting.remove(&(step_id, *slot))?)));
        Some(placed.collect())
    }

    /// Drops what came for this step or an earlier one and was not asked for.
    pub(crate) fn finish_step(&mut self, step_id: u64) {
        self.done_step = step_id;
        self.waiting.retain(|(step, _), _| *step > step_id);
    }

    /// Masks that came as a name of one sent before.
    pub(crate) fn same(&self) -> u64 {
        self.same
    }
}
