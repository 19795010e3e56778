//! Masks as messages. Equal ones are sent once.
//!
//! A worker remembers the last 4,096 masks that had an id, by use. Here the last 1,024 are remembered by the same uses,
//! so what is named is always known there.

use crate::pb;
use headrace_scheduler::{Slot, TokenId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Masks that may be named again.
const MOST_REMEMBERED: usize = 1024;
/// Ids of a list that is shorter than any name for it is worth.
const SHORT_LIST: usize = 4;

/// Which ids a row may sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TokenMask {
    /// Bit i of the 32-bit words allows id i; ids past the end are not allowed.
    Bitset(Arc<[u32]>),
    /// Only these.
    Allow(Vec<TokenId>),
    /// All but these.
    Deny(Vec<TokenId>),
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    mask_id: u64,
    used: u64,
}

/// What one stream's ranks have been sent.
#[derive(Debug, Default)]
pub(crate) struct SentMasks {
    by_content: FxHashMap<TokenMask, Sent>,
    last_id: u64,
    uses: u64,
}

impl SentMasks {
    /// The message that brings the mask.
    pub(crate) fn message(
        &mut self,
        step_id: u64,
        slot: Slot,
        position: u32,
        mask: &TokenMask,
    ) -> pb::Mask {
        let (kind, mask_id) = self.kind_of(mask);
        pb::Mask {
            step_id,
            slot,
            position,
            mask_id,
            kind: Some(kind),
        }
    }

    fn kind_of(&mut self, mask: &TokenMask) -> (pb::mask::Kind, u64) {
        if let TokenMask::Allow(ids) | TokenMask::Deny(ids) = mask
            && ids.len() <= SHORT_LIST
        {
            return (encode(mask), 0);
        }
        self.uses += 1;
        if let Some(sent) = self.by_content.get_mut(mask) {
            sent.used = self.uses;
            return (pb::mask::Kind::SameAs(sent.mask_id), 0);
        }
        if self.by_content.len() >= MOST_REMEMBERED {
            self.forget_half();
        }
        self.last_id += 1;
        let sent = Sent {
            mask_id: self.last_id,
            used: self.uses,
        };
        self.by_content.insert(mask.clone(), sent);
        (encode(mask), self.last_id)
    }

    fn forget_half(&mut self) {
        let mut uses: Vec<u64> = self.by_content.values().map(|sent| sent.used).collect();
        let middle = uses.len() / 2;
        let (_, oldest_kept, _) = uses.select_nth_unstable(middle);
        let oldest_kept = *oldest_kept;
        self.by_content.retain(|_, sent| sent.used >= oldest_kept);
    }
}

fn encode(mask: &TokenMask) -> pb::mask::Kind {
    match mask {
        TokenMask::Bitset(words) => {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            pb::mask::Kind::Bitset(bytes)
        }
        TokenMask::Allow(ids) => pb::mask::Kind::Allow(pb::TokenIds { ids: ids.clone() }),
        TokenMask::Deny(ids) => pb::mask::Kind::Deny(pb::TokenIds { ids: ids.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pb::mask::Kind;

    fn bitset(word: u32) -> TokenMask {
        TokenMask::Bitset(vec![word, 1].into())
    }

    #[test]
    fn equal_masks_are_sent_once_and_named_after_that() {
        let mut sent = SentMasks::default();
        let first = sent.message(3, 1, 7, &bitset(0x0403_0201));
        assert_eq!(first.kind, Some(Kind::Bitset(vec![1, 2, 3, 4, 1, 0, 0, 0])));
        assert_eq!((first.step_id, first.slot, first.position), (3, 1, 7));
        let again = sent.message(3, 2, 0, &bitset(0x0403_0201));
        assert_eq!(again.kind, Some(Kind::SameAs(first.mask_id)));
        assert_eq!(again.mask_id, 0);
        // A list and its opposite are not the same.
        let ids: Vec<u32> = (0..9).collect();
        let allow = sent.message(4, 1, 8, &TokenMask::Allow(ids.clone()));
        let deny = sent.message(4, 2, 8, &TokenMask::Deny(ids.clone()));
        assert_eq!(
            allow.kind,
            Some(Kind::Allow(pb::TokenIds { ids: ids.clone() }))
        );
        assert_eq!(deny.kind, Some(Kind::Deny(pb::TokenIds { ids })));
        // Nothing is shorter than a short list.
        for _ in 0..2 {
            let short = sent.message(5, 1, 9, &TokenMask::Allow(vec![5]));
            assert_eq!(
                (short.kind, short.mask_id),
                (Some(Kind::Allow(pb::TokenIds { ids: vec![5] })), 0)
            );
        }
    }

    #[test]
    fn a_mask_is_named_only_while_the_worker_knows_it() {
        // The worker's rule: the last 4,096 by use.
        let mut sent = SentMasks::default();
        let mut known: Vec<(u64, u32)> = Vec::new();
        let mut named = 0;
        for n in 0..20_000_u32 {
            // Some come back often, some seldom, most never.
            let word = match n % 10 {
                0..=3 => n % 50,
                4 => n % 2000,
                _ => 100_000 + n,
            };
            let message = sent.message(1, 0, 0, &bitset(word));
            match message.kind {
                Some(Kind::SameAs(id)) => {
                    let place = known.iter().position(|(known, _)| *known == id);
                    let entry = known.remove(place.expect("the worker has forgotten it"));
                    assert_eq!(entry.1, word);
                    known.push(entry);
                    named += 1;
                }
                Some(Kind::Bitset(_)) => known.push((message.mask_id, word)),
                other => panic!("{other:?}"),
            }
            if known.len() > 4096 {
                known.remove(0);
            }
            assert!(sent.by_content.len() <= MOST_REMEMBERED);
        }
        assert!(named > 7_000, "{named}");
    }
}
