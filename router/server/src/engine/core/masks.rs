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
use headrace_scheduler::{Event, SequenceId, StepPlan};
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
    /// Output ids before which its end ids are not sampled.
    min_tokens: u32,
}

impl MaskBook {
    pub(super) fn open(
        &mut self,
        sequence: SequenceId,
        min_tokens: u32,
        grammar: CompiledGrammar,
        effects: &mut VecDeque<Effect>,
    ) {
        let constrained = Constrained {
            announced: VecDeque::new(),
            min_tokens,
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

    /// Why a sequence cannot go on whose grammar is complete: no id that ends a sequence can come.
    pub(super) fn dead_end_of(&self, ready: &MaskReady) -> Option<String> {
        let wanted = &ready.wanted.mask;
        let reason = match &ready.outcome {
            Err(dead_end) => return Some(dead_end.to_string()),
            Ok(Mask::Allow(ids)) if ids.is_empty() => "the model has no id that ends a text",
            Ok(_) => {
                let min_tokens = self.by_sequence.get(&wanted.sequence)?.min_tokens;
                if !ready.is_complete || wanted.position >= min_tokens {
                    return None;
                }
                "`min_tokens` are not reached"
            }
        };
        Some(format!("its grammar is complete, and {reason}"))
    }

    pub(super) fn is_open(&self, sequence: SequenceId) -> bool {
        self.by_sequence.contains_key(&sequence)
    }
}

fn call_off(wanted: &MaskWanted) -> Effect {
    Effect::CallOff {
        step_id: wanted.step_id,
        slot: wanted.mask.slot,
    }
}
