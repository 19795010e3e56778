//! Where one sequence stands in its grammar.

use crate::error::{DeadEnd, first_line};
use crate::mask::Mask;
use llguidance::Matcher;
use llguidance::api::StopReason;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use toktrie::TokenId;

/// One sequence's place in its grammar. It lives as long as the sequence, through preemption and restarts.
pub struct GrammarState {
    matcher: Matcher,
    eos_ids: Arc<[TokenId]>,
    vocab_size: u32,
    accepted: u32,
    /// An id that ends a sequence was accepted.
    is_ended: bool,
}

impl std::fmt::Debug for GrammarState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("GrammarState")
            .field("accepted", &self.accepted)
            .field("is_complete", &self.is_complete())
            .finish_non_exhaustive()
    }
}

impl GrammarState {
    pub(crate) fn new(matcher: Matcher, eos_ids: Arc<[TokenId]>, vocab_size: u32) -> Self {
        Self {
            matcher,
            eos_ids,
            vocab_size,
            accepted: 0,
            is_ended: false,
        }
    }

    /// A copy that shares nothing: not even a fault of one reaches the other.
    pub(crate) fn independent_clone(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            eos_ids: Arc::clone(&self.eos_ids),
            vocab_size: self.vocab_size,
            accepted: self.accepted,
            is_ended: self.is_ended,
        }
    }

    /// The ids that may come next. Once the grammar is complete, the ids that end a sequence and no other; none at all
    /// where there are no such ids.
    pub fn mask(&mut self) -> Result<Mask, DeadEnd> {
        if self.is_complete() {
            return Ok(self.end_mask());
        }
        let set = guarded(|| self.matcher.compute_mask_or_eos())?;
        let mask = Mask::shortest(&set, self.vocab_size);
        if mask == Mask::Allow(Vec::new()) {
            return Err(DeadEnd(
                "no token of the model's vocabulary goes on from here".to_owned(),
            ));
        }
        Ok(mask)
    }

    /// Takes the id that was sampled.
    pub fn accept(&mut self, id: TokenId) -> Result<(), DeadEnd> {
        if self.eos_ids.contains(&id) {
            let may_end = self.is_complete() || guarded(|| self.matcher.is_accepting())?;
            if !may_end {
                return Err(DeadEnd(format!("id {id} ends the text before its time")));
            }
            self.is_ended = true;
        } else if self.is_complete() {
            return Err(DeadEnd(format!("id {id} comes after the end")));
        } else {
            guarded(|| self.matcher.consume_token(id))?;
        }
        self.accepted += 1;
        Ok(())
    }

    /// Whether nothing can follow but the end.
    pub fn is_complete(&self) -> bool {
        self.is_ended
            || matches!(
                self.matcher.stop_reason(),
                StopReason::NoExtension | StopReason::EndOfSentence
            )
    }

    /// Whether the text so far matches the grammar as it stands.
    pub fn may_end(&mut self) -> bool {
        self.is_complete() || guarded(|| self.matcher.is_accepting()).unwrap_or(false)
    }

    /// Ids accepted so far: the output position that the next mask is for.
    pub fn accepted(&self) -> u32 {
        self.accepted
    }

    fn end_mask(&self) -> Mask {
        let mut ids = self.eos_ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Mask::Allow(ids)
    }
}

/// The library's errors and panics as a dead end.
fn guarded<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, DeadEnd> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(DeadEnd(first_line(&error.to_string()))),
        Err(_) => Err(DeadEnd("the matcher broke".to_owned())),
    }
}
