//! Masks that steps announce for constrained sequences.
//!
//! A desk off the engine's thread keeps every sequence's place in its grammar. It hears the ids in order and is asked for
//! the mask of each announced row; what it answers goes to the workers, unless the row no longer matters: then it is
//! called off, so that no step waits for ever. The grammar's place is a matter of the ids told, so preemption and
//! restarts change nothing: the same position is asked for again, by another step.

use super::effect::Effect;
use crate::engine::masks::{DeskOrder, MaskReady, MaskWanted};
use crate::engine::planted::{self, Bug};
use headrace_grammar::{CompiledGrammar, Mask};
use headrace_scheduler::{Event, SequenceId, SequenceRequest, StepPlan, TokenId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// What is announced and neither sent nor called off.
#[derive(Debug, Default)]
pub(super) struct MaskBook {
    /// An entry for each constrained sequence that is open.
    by_sequence: FxHashMap<SequenceId, Constrained>,
    /// The last step that was answered: its masks matter to nobody.
    answered: u64,
}

/// One constrained sequence.
#[derive(Debug)]
struct Constrained {
    /// In the order of their steps.
    announced: VecDeque<MaskWanted>,
    rules: EndRules,
}

/// How a constrained sequence may end. Where its grammar allows nothing else it ends, whatever else was asked for.
#[derive(Debug)]
pub(super) struct EndRules {
    /// Some id ends it when it is sampled.
    has_end_ids: bool,
    /// Output ids before which the masks withhold these, unless nothing else is allowed.
    min_tokens: u32,
    withheld: Vec<TokenId>,
}

impl EndRules {
    /// Takes from a request what would keep it from its end in the workers and the scheduler: an id that no mask
    /// allows too early always counts.
    pub(super) fn take_from(request: &mut SequenceRequest) -> Self {
        request.stop.min_tokens = 0;
        Self {
            has_end_ids: !request.stop.eos_token_ids.is_empty(),
            min_tokens: std::mem::take(&mut request.sampling.min_tokens),
            withheld: std::mem::take(&mut request.sampling.suppressed_token_ids),
        }
    }
}

/// What the desk's answer means for its sequence.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It goes on, or ends by an id, with this mask.
    Mask(Mask),
    /// It is at its end, and no id says so.
    Complete,
    /// It cannot go on, for this reason.
    DeadEnd(String),
}

impl MaskBook {
    pub(super) fn open(
        &mut self,
        sequence: SequenceId,
        rules: EndRules,
        grammar: CompiledGrammar,
        effects: &mut VecDeque<Effect>,
    ) {
        let constrained = Constrained {
            announced: VecDeque::new(),
            rules,
        };
        self.by_sequence.insert(sequence, constrained);
        effects.push_back(Effect::Desk(DeskOrder::Open { sequence, grammar }));
    }

    /// A step goes out.
    pub(super) fn announce(&mut self, epoch: u64, plan: &StepPlan, effects: &mut VecDeque<Effect>) {
        for mask in &plan.masks {
            let wanted = MaskWanted {
                epoch,
                step_id: plan.step_id,
                mask: *mask,
            };
            if let Some(constrained) = self.by_sequence.get_mut(&mask.sequence) {
                constrained.announced.push_back(wanted);
                effects.push_back(Effect::Desk(DeskOrder::Want(wanted)));
            } else {
                // Nobody is left to know its grammar; the workers must not wait.
                effects.push_back(call_off(&wanted));
            }
        }
    }

    /// A step was answered, however it ended.
    pub(super) fn note_answer(&mut self, step_id: u64) {
        self.answered = step_id;
    }

    /// The group is gone, and what its steps announced.
    pub(super) fn forget_group(&mut self) {
        self.answered = 0;
        for constrained in self.by_sequence.values_mut() {
            if planted::is(Bug::DeadMasksKept) {
                continue;
            }
            constrained.announced.clear();
        }
    }

    /// The desk hears of ids and ends at once: the next step's mask may wait for them.
    pub(super) fn hear(&mut self, events: &[Event], effects: &mut VecDeque<Effect>) {
        if self.by_sequence.is_empty() {
            return;
        }
        for event in events {
            match event {
                Event::Token { id, token } if self.by_sequence.contains_key(id) => {
                    if planted::is(Bug::IdNotAccepted) {
                        continue;
                    }
                    effects.push_back(Effect::Desk(DeskOrder::Accept {
                        sequence: *id,
                        id: token.id,
                    }));
                }
                Event::Finished { id, .. } | Event::Failed { id, .. } => self.close(*id, effects),
                _ => {}
            }
        }
    }

    /// The sequence is over: its rows on the way sample nothing. Idempotent.
    pub(super) fn close(&mut self, sequence: SequenceId, effects: &mut VecDeque<Effect>) {
        let Some(constrained) = self.by_sequence.remove(&sequence) else {
            return;
        };
        for wanted in constrained.announced {
            if wanted.step_id > self.answered {
                effects.push_back(call_off(&wanted));
            }
        }
        effects.push_back(Effect::Desk(DeskOrder::Close { sequence }));
    }

    /// Whether the desk's answer still matters; then it counts as sent.
    pub(super) fn settle(&mut self, wanted: &MaskWanted) -> bool {
        let Some(constrained) = self.by_sequence.get_mut(&wanted.mask.sequence) else {
            return false;
        };
        let announced = &mut constrained.announced;
        let answered = self.answered;
        announced.retain(|other| other.step_id > answered);
        match announced.iter().position(|other| other == wanted) {
            Some(place) => announced.remove(place).is_some(),
            None => false,
        }
    }

    /// What becomes of the sequence; `None`: it is over.
    pub(super) fn judge(&self, ready: &MaskReady, vocab_size: u32) -> Option<Verdict> {
        let wanted = &ready.wanted.mask;
        let rules = &self.by_sequence.get(&wanted.sequence)?.rules;
        let mask = match &ready.outcome {
            Err(dead_end) => return Some(Verdict::DeadEnd(dead_end.to_string())),
            Ok(mask) => mask,
        };
        let cannot_end = !rules.has_end_ids || *mask == Mask::Allow(Vec::new());
        let verdict = if ready.is_complete && cannot_end {
            Verdict::Complete
        } else if wanted.position < rules.min_tokens {
            let later = mask.without(&rules.withheld, vocab_size);
            Verdict::Mask(later.unwrap_or_else(|| mask.clone()))
        } else {
            Verdict::Mask(mask.clone())
        };
        Some(verdict)
    }
}

fn call_off(wanted: &MaskWanted) -> Effect {
    Effect::CallOff {
        step_id: wanted.step_id,
        slot: wanted.mask.slot,
    }
}
