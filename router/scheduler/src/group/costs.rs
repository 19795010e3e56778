//! What prefill tokens take, from steps of late.
//!
//! A token whose logprobs are reported (a scored one) takes more than a plain one: the logits of its position, a
//! softmax and a search over the vocabulary, which is much beside the layers of a small model. So tokens of the two
//! kinds are counted apart, and what a step has room for is counted in plain ones.

/// Samples of each figure: the median passes over three odd ones.
const SAMPLES: usize = 7;

/// A scored token is taken for so many plain ones until one was seen.
const ASSUMED_WEIGHT: u64 = 4;

/// The last few values of a figure.
#[derive(Debug, Default)]
pub(super) struct Recent {
    values: [u64; SAMPLES],
    count: usize,
    next: usize,
}

impl Recent {
    pub(super) fn add(&mut self, value: u64) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % SAMPLES;
        self.count = (self.count + 1).min(SAMPLES);
    }

    /// Of two middle ones the larger.
    pub(super) fn median(&self) -> Option<u64> {
        let mut sorted = self.values;
        let known = &mut sorted[..self.count];
        known.sort_unstable();
        known.get(self.count / 2).copied()
    }

    pub(super) fn largest(&self) -> Option<u64> {
        self.values[..self.count].iter().max().copied()
    }
}

/// How many plain tokens a scored one counts for, in sixteenths; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight(u64);

impl Weight {
    const UNIT: u64 = 16;
    /// As much as a plain token.
    pub(super) const ONE: Self = Self(Self::UNIT);
    /// Until one was seen.
    pub(super) const ASSUMED: Self = Self(Self::UNIT * ASSUMED_WEIGHT);

    fn of(scored: u64, plain: u64) -> Self {
        let weight = scored.saturating_mul(Self::UNIT).div_ceil(plain.max(1));
        Self(weight.max(Self::UNIT))
    }

    /// What so many scored tokens count for.
    pub(super) fn count(self, scored: usize) -> usize {
        let count = (scored as u128 * u128::from(self.0)).div_ceil(u128::from(Self::UNIT));
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// The scored tokens that this room is enough for; one if there is any, so that they go on.
    pub(super) fn fitting(self, room: usize) -> usize {
        let fitting = room as u128 * u128::from(Self::UNIT) / u128::from(self.0);
        usize::try_from(fitting)
            .unwrap_or(usize::MAX)
            .max(usize::from(room > 0))
    }
}

/// Prefill tokens of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrefillTokens {
    pub(super) plain: usize,
    pub(super) scored: usize,
}

impl PrefillTokens {
    pub(super) fn total(self) -> usize {
        self.plain + self.scored
    }
}

/// Nanoseconds a token, in steps of one kind.
#[derive(Debug, Default)]
pub(super) struct TokenCosts {
    plain: Recent,
    scored: Recent,
}

impl TokenCosts {
    /// Tokens, not all 0, took so long.
    pub(super) fn note(&mut self, took: u64, tokens: PrefillTokens) {
        let (plain, scored) = (tokens.plain as u64, tokens.scored as u64);
        if scored == 0 {
            self.plain.add(took.div_ceil(plain));
            return;
        }
        let each = if let Some(known) = self.plain.median() {
            let rest = took.saturating_sub(known.saturating_mul(plain));
            rest.div_ceil(scored)
        } else {
            took.saturating_mul(ASSUMED_WEIGHT)
                .div_ceil(plain + scored * ASSUMED_WEIGHT)
        };
        self.scored.add(each);
    }

    /// What a plain token takes.
    pub(super) fn plain(&self) -> Option<u64> {
        let assumed = || Some(self.scored.median()? / ASSUMED_WEIGHT);
        self.plain.median().or_else(assumed)
    }

    pub(super) fn weight(&self) -> Option<Weight> {
        Some(Weight::of(self.scored.median()?, self.plain()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{PrefillTokens, TokenCosts, Weight};

    #[test]
    fn room_is_never_exceeded_but_for_one_token() {
        for weight in [16, 17, 24, 31, 32, 100, 1000] {
            let weight = Weight(weight);
            for room in 0..200 {
                let fitting = weight.fitting(room);
                assert!(
                    fitting <= 1 || weight.count(fitting) <= room,
                    "{weight:?} {room}"
                );
                assert!(weight.count(fitting + 1) > room, "{weight:?} {room}");
                assert_eq!(fitting == 0, room == 0);
            }
        }
        assert_eq!(Weight(160).fitting(usize::MAX), usize::MAX / 10);
        assert_eq!(Weight(160).count(usize::MAX), usize::MAX);
    }

    #[test]
    fn what_plain_tokens_take_is_not_counted_for_scored_ones() {
        let mut costs = TokenCosts::default();
        let tokens = |plain, scored| PrefillTokens { plain, scored };
        assert_eq!((costs.plain(), costs.weight()), (None, None));
        costs.note(1000, tokens(10, 0));
        costs.note(10_500, tokens(5, 20));
        assert_eq!(costs.plain(), Some(100));
        // (10,500 - 5 * 100) / 20 = 500
        assert_eq!(costs.weight(), Some(Weight(5 * 16)));
        // Nothing is known of plain ones.
        let mut costs = TokenCosts::default();
        costs.note(8800, tokens(8, 20));
        assert_eq!(costs.plain(), Some(100));
        assert_eq!(costs.weight(), Some(Weight::ASSUMED));
        // A scored token is no less than a plain one.
        costs.note(1000, tokens(10, 0));
        for _ in 0..7 {
            costs.note(50, tokens(0, 10));
        }
        assert_eq!(costs.weight(), Some(Weight::ONE));
    }
}
