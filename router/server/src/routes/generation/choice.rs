//! One choice while it runs.

use crate::engine::SequenceStream;
use headrace_dialect::choice::ChoiceText;
use headrace_dialect::end::EndReason;
use headrace_scheduler::{SampledToken, StopConditions};

#[derive(Debug)]
pub(super) struct RunningChoice {
    pub(super) stream: SequenceStream,
    pub(super) text: ChoiceText,
    pub(super) stop: StopConditions,
    pub(super) last: LastToken,
}

/// How the last token of a choice is known, which carries its end.
#[derive(Debug)]
pub(super) enum LastToken {
    /// By its id and its place.
    ById,
    /// By the event after it: here is the latest token, if it has not been shown yet.
    ByEvent(Option<SampledToken>),
}

impl RunningChoice {
    /// Whether an id is the last one, by the engine's own rule. Knowing it with the id, and not an event later,
    /// lets the last token carry the end.
    pub(super) fn end_by_id(&self, id: u32) -> Option<EndReason> {
        let output = self.text.generated() + 1;
        if output > self.stop.min_tokens {
            if self.stop.eos_token_ids.contains(&id) {
                return Some(EndReason::Eos);
            }
            if self.stop.stop_token_ids.contains(&id) {
                return Some(EndReason::StopToken(id));
            }
        }
        (output >= self.stop.max_new_tokens).then_some(EndReason::Length)
    }
}
