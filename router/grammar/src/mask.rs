//! A mask in the form that is shortest to send and cheapest to read.

use std::sync::Arc;
use toktrie::{SimpleVob, TokenId};

/// Ids a list may hold. Beyond it a bitset is read faster than a list, whatever their lengths.
const MOST_LISTED: usize = 64;

/// Which ids a position may hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Bit i of the 32-bit words allows id i.
    Bitset(Arc<[u32]>),
    /// Only these, in ascending order.
    Allow(Vec<TokenId>),
    /// All but these, in ascending order.
    Deny(Vec<TokenId>),
}

impl Mask {
    /// The shortest form of a set over `vocab_size` ids.
    pub(crate) fn shortest(set: &SimpleVob, vocab_size: u32) -> Self {
        let words = words_of(set, vocab_size);
        let allowed: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        let denied = vocab_size as usize - allowed;
        // An id of a list is about as long as a word.
        let most = MOST_LISTED.min(words.len());
        if allowed <= most && allowed <= denied {
            Self::Allow(ids_of(&words, vocab_size, true))
        } else if denied <= most {
            Self::Deny(ids_of(&words, vocab_size, false))
        } else {
            Self::Bitset(words.into())
        }
    }

    /// The mask without these ids of the vocabulary; `None`: it would allow none at all.
    pub fn without(&self, ids: &[TokenId], vocab_size: u32) -> Option<Self> {
        let (mask, is_empty) = match self {
            Self::Bitset(words) => {
                let mut words = words.to_vec();
                for id in ids {
                    if let Some(word) = words.get_mut(*id as usize / 32) {
                        *word &= !(1 << (id % 32));
                    }
                }
                let is_empty = words.iter().all(|word| *word == 0);
                (Self::Bitset(words.into()), is_empty)
            }
            Self::Allow(allowed) => {
                let mut allowed = allowed.clone();
                allowed.retain(|id| !ids.contains(id));
                let is_empty = allowed.is_empty();
                (Self::Allow(allowed), is_empty)
            }
            Self::Deny(denied) => {
                let mut denied = [denied.as_slice(), ids].concat();
                denied.sort_unstable();
                denied.dedup();
                let is_empty = denied.len() >= vocab_size as usize;
                (Self::Deny(denied), is_empty)
            }
        };
        (!is_empty).then_some(mask)
    }

    /// Whether the id may be sampled.
    pub fn allows(&self, id: TokenId) -> bool {
        match self {
            Self::Bitset(words) => words
                .get(id as usize / 32)
                .is_some_and(|word| word >> (id % 32) & 1 == 1),
            Self::Allow(ids) => ids.binary_search(&id).is_ok(),
            Self::Deny(ids) => ids.binary_search(&id).is_err(),
        }
    }
}

/// The set's words, cut to the vocabulary: the library keeps a bit more.
fn words_of(set: &SimpleVob, vocab_size: u32) -> Vec<u32> {
    let count = vocab_size.div_ceil(32) as usize;
    let mut words = set.as_slice().to_vec();
    words.resize(count, 0);
    let spare = vocab_size % 32;
    if spare != 0
        && let Some(last) = words.last_mut()
    {
        *last &= (1 << spare) - 1;
    }
    words
}

fn ids_of(words: &[u32], vocab_size: u32, allowed: bool) -> Vec<TokenId> {
    let mut ids = Vec::new();
    for (first, word) in (0..vocab_size).step_by(32).zip(words) {
        let mut bits = if allowed { *word } else { !*word };
        while bits != 0 {
            let id = first + bits.trailing_zeros();
            if id >= vocab_size {
                break;
            }
            ids.push(id);
            bits &= bits - 1;
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(vocab_size: u32, ids: impl IntoIterator<Item = u32>) -> SimpleVob {
        let mut set = SimpleVob::alloc_with_capacity(vocab_size as usize, vocab_size as usize + 1);
        for id in ids {
            set.allow_token(id);
        }
        set
    }

    #[test]
    fn the_form_is_the_shortest_and_allows_the_same_ids() {
        let vocab_size = 5000;
        let few = Mask::shortest(&set(vocab_size, [4999, 3, 64]), vocab_size);
        assert_eq!(few, Mask::Allow(vec![3, 64, 4999]));
        let most = (0..vocab_size).filter(|id| *id != 31 && *id != 32);
        let most = Mask::shortest(&set(vocab_size, most), vocab_size);
        assert_eq!(most, Mask::Deny(vec![31, 32]));
        let half = (0..vocab_size).filter(|id| id % 2 == 0);
        let half = Mask::shortest(&set(vocab_size, half), vocab_size);
        assert!(matches!(&half, Mask::Bitset(words) if words.len() == 157));
        for id in 0..vocab_size {
            assert_eq!(half.allows(id), id % 2 == 0);
            assert_eq!(few.allows(id), [3, 64, 4999].contains(&id));
            assert_eq!(most.allows(id), ![31, 32].contains(&id));
        }
        assert_eq!(Mask::shortest(&set(40, []), 40), Mask::Allow(vec![]));
        assert_eq!(Mask::shortest(&set(40, 0..40), 40), Mask::Deny(vec![]));
    }

    #[test]
    fn withheld_ids_leave_every_form_but_never_an_empty_mask() {
        let bits = |ids: &[u32]| {
            let mut words = [0_u32; 2];
            for id in ids {
                words[*id as usize / 32] |= 1 << (id % 32);
            }
            Mask::Bitset(words.into())
        };
        for mask in [bits(&[3, 40, 41]), Mask::Allow(vec![3, 40, 41])] {
            let less = mask.without(&[40, 7], 64).unwrap();
            let left: Vec<u32> = (0..64).filter(|id| less.allows(*id)).collect();
            assert_eq!(left, [3, 41]);
            assert_eq!(mask.without(&[41, 40, 3], 64), None);
        }
        let mask = Mask::Deny(vec![2, 5]);
        assert_eq!(mask.without(&[5, 1], 6), Some(Mask::Deny(vec![1, 2, 5])));
        assert_eq!(mask.without(&[0, 1, 3, 4], 6), None);
    }
}
