//! Reading answers without a connection: the same checks as [`crate::RunningGroup`]'s on recorded or made-up bytes.

use crate::pb;
use crate::reply::{ExpectedStep, SlotReports, decode_reply};
use headrace_scheduler::{StepPlan, StepResult};
use prost::Message;
use std::collections::VecDeque;

/// Checks rank 0's answers, in order, against the steps that they answer.
#[derive(Debug)]
pub struct ReplyReader {
    slots: SlotReports,
    pending: VecDeque<ExpectedStep>,
    vocab_size: u32,
}

impl ReplyReader {
    /// For workers with a vocabulary of this size, before the first step.
    pub fn new(vocab_size: u32) -> Self {
        Self {
            slots: SlotReports::default(),
            pending: VecDeque::new(),
            vocab_size,
        }
    }

    /// A step was sent.
    pub fn expect(&mut self, plan: &StepPlan) {
        let expected = self.slots.expect(plan);
        self.pending.push_back(expected);
    }

    /// The bytes of the `StepReply` to the oldest step without one; an error says what is wrong with them.
    pub fn read(&mut self, bytes: &[u8]) -> Result<StepResult, String> {
        let reply = pb::StepReply::decode(bytes).map_err(|error| error.to_string())?;
        let Some(expected) = self.pending.pop_front() else {
            return Err(format!(
                "answered step {}, which it does not owe",
                reply.step_id
            ));
        };
        if reply.step_id != expected.step_id {
            return Err(format!(
                "answered step {}, owes step {}",
                reply.step_id, expected.step_id
            ));
        }
        decode_reply(&expected, reply, self.vocab_size)
    }
}
