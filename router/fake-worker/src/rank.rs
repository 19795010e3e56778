//! Slots, tables and KV of one rank, with every check that a real worker may rely on.

use crate::masks::Placed;
use crate::model::{START, UNWRITTEN, mix};
use crate::sampling::{Place, check_sampling, choose, described, described_prompt};
use crate::script::LiteralOutputs;
use headrace_worker_client::pb;
use std::collections::{HashMap, HashSet};

/// The router did what the protocol forbids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protocol misuse: {0}")]
pub(crate) struct Misuse(pub(crate) String);

/// Ends the enclosing function with a [`Misuse`] unless the condition holds.
macro_rules! require {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(Misuse(format!($($words)+)));
        }
    };
}

/// What `Prepare` fixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) block_size: u32,
    pub(crate) max_batch_tokens: u32,
    pub(crate) max_sequences: u32,
    pub(crate) max_total_tokens: u32,
    pub(crate) num_blocks: u32,
    pub(crate) vocab_size: u32,
}

/// One sequence.
#[derive(Clone, Debug)]
struct SlotState {
    ids: Vec<u32>,
    prompt_length: usize,
    computed: usize,
    blocks: Vec<u32>,
    sampling: pb::SamplingParams,
    /// A failed row's slot answers `FAILED` until it is finished.
    failed: bool,
}

impl SlotState {
    /// The prompt ids after those of `first..computed`.
    fn told(
        &self,
        first: usize,
        kv: &[u64],
        block_size: usize,
        vocab: u32,
    ) -> Vec<pb::SampledToken> {
        let last = self.computed.min(self.prompt_length - 1);
        let places = first..last;
        places
            .map(|place| {
                let block = self.blocks[place / block_size] as usize;
                let before = kv[block * block_size + place % block_size];
                described_prompt(self.ids[place + 1], before, &self.sampling, vocab)
            })
            .collect()
    }
}

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct Rank {
    shape: Shape,
    slots: Vec<Option<SlotState>>,
    /// One number a token: `kv[block * block_size + offset]`.
    kv: Vec<u64>,
    /// How many tables hold the block.
    holders: Vec<u32>,
    last_step: u64,
    /// A failed step that the router has not acknowledged.
    unacknowledged: Option<u64>,
}

/// How a step whose changes were applied is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Compute,
    Fail,
    OutOfMemory,
}

impl Rank {
    /// Empty slots, every KV place unwritten.
    pub(crate) fn open(shape: Shape) -> Self {
        let places = shape.num_blocks as usize * shape.block_size as usize;
        Self {
            shape,
            slots: (0..shape.max_sequences).map(|_| None).collect(),
            kv: vec![UNWRITTEN; places],
            holders: vec![0; shape.num_blocks as usize],
            last_step: 0,
            unacknowledged: None,
        }
    }

    /// Takes a step in: all but the sampling. The answer, where it is known without.
    pub(crate) fn begin(
        &mut self,
        step: &pb::Step,
        verdict: Verdict,
    ) -> Result<Option<pb::StepReply>, Misuse> {
        self.apply(step)?;
        let skipped = self
            .unacknowledged
            .is_some_and(|step_id| step.acknowledged_failure != Some(step_id));
        self.check_rows(step, skipped)?;
        let mut reply = empty_reply(step);
        if skipped {
            reply.outcome = pb::step_reply::Outcome::Skipped.into();
            return Ok(Some(reply));
        }
        self.unacknowledged = None;
        if verdict == Verdict::Compute {
            return Ok(None);
        }
        self.unacknowledged = Some(step.step_id);
        let outcome = match verdict {
            Verdict::OutOfMemory => pb::step_reply::Outcome::OutOfMemory,
            Verdict::Compute | Verdict::Fail => pb::step_reply::Outcome::Failed,
        };
        reply.outcome = outcome.into();
        "scripted".clone_into(&mut reply.error);
        Ok(Some(reply))
    }

    /// Slots of the step's rows that wait for a mask. A slot that failed before does not.
    pub(crate) fn masked_slots(&self, step: &pb::Step) -> Vec<u32> {
        let waits =
            |slot: u32| matches!(self.slots.get(slot as usize), Some(Some(state)) if !state.failed);
        step.rows
            .iter()
            .filter(|row| row.masked && waits(row.slot))
            .map(|row| row.slot)
            .collect()
    }

    /// Computes, samples and answers a step that began. `masks` holds one for each of its masked slots.
    pub(crate) fn finish(
        &mut self,
        step: &pb::Step,
        literal: Option<&LiteralOutputs>,
        masks: &HashMap<u32, Placed>,
    ) -> Result<pb::StepReply, Misuse> {
        let mut reply = empty_reply(step);
        reply.outcome = pb::step_reply::Outcome::Ok.into();
        reply.rows = step
            .rows
            .iter()
            .map(|row| self.compute(row, literal, masks.get(&row.slot)))
            .collect::<Result<_, _>>()?;
        Ok(reply)
    }

    /// A row that failed by script: its slot answers so until it is finished.
    pub(crate) fn mark_failed(&mut self, slot: u32) {
        if let Some(Some(state)) = self.slots.get_mut(slot as usize) {
            state.failed = true;
        }
    }

    /// Whether the slot's sequence holds the id.
    pub(crate) fn slot_holds(&self, slot: u32, id: u32) -> bool {
        self.slots
            .get(slot as usize)
            .and_then(Option::as_ref)
            .is_some_and(|state| state.ids.contains(&id))
    }

    fn apply(&mut self, step: &pb::Step) -> Result<(), Misuse> {
        require!(
            step.step_id == self.last_step + 1,
            "step {} after step {}",
            step.step_id,
            self.last_step
        );
        self.last_step = step.step_id;
        for slot in &step.finished_slots {
            let state = self.slots.get_mut(*slot as usize).and_then(Option::take);
            let Some(state) = state else {
                return Err(Misuse(format!("finished slot {slot} is empty")));
            };
            for block in state.blocks {
                self.holders[block as usize] -= 1;
            }
        }
        for sequence in &step.new_sequences {
            self.enter(sequence)?;
        }
        for append in &step.block_appends {
            self.append(append.slot, &append.blocks)?;
        }
        for copy in &step.block_copies {
            self.copy(*copy)?;
        }
        Ok(())
    }

    fn enter(&mut self, sequence: &pb::NewSequence) -> Result<(), Misuse> {
        let slot = sequence.slot;
        require!(
            slot < self.shape.max_sequences,
            "slot {slot} is beyond max_sequences"
        );
        require!(self.slots[slot as usize].is_none(), "slot {slot} is taken");
        let length = sequence.token_ids.len();
        let (prompt_length, computed) = (
            sequence.prompt_length as usize,
            sequence.computed_length as usize,
        );
        require!(
            prompt_length >= 1 && prompt_length <= length,
            "slot {slot}: prompt of {prompt_length} in {length} ids"
        );
        require!(
            computed < length,
            "slot {slot}: {computed} of {length} ids computed"
        );
        require!(
            length <= self.shape.max_total_tokens as usize,
            "slot {slot}: {length} ids are above max_total_tokens"
        );
        let vocab = self.shape.vocab_size;
        let bad = sequence.token_ids.iter().find(|id| **id >= vocab);
        require!(
            bad.is_none(),
            "slot {slot}: id {bad:?} is out of the vocabulary"
        );
        let Some(sampling) = sequence.sampling.clone() else {
            return Err(Misuse(format!("slot {slot}: no sampling parameters")));
        };
        require!(
            check_sampling(&sampling, vocab),
            "slot {slot}: sampling parameters out of range"
        );
        self.slots[slot as usize] = Some(SlotState {
            ids: sequence.token_ids.clone(),
            prompt_length,
            computed,
            blocks: Vec::new(),
            sampling,
            failed: false,
        });
        self.append(slot, &sequence.blocks)?;
        require!(
            sequence.blocks.len() * self.shape.block_size as usize >= computed,
            "slot {slot}: {computed} ids computed in {} blocks",
            sequence.blocks.len()
        );
        Ok(())
    }

    fn append(&mut self, slot: u32, blocks: &[u32]) -> Result<(), Misuse> {
        let Some(Some(state)) = self.slots.get_mut(slot as usize) else {
            return Err(Misuse(format!("blocks for the empty slot {slot}")));
        };
        for block in blocks {
            require!(
                *block < self.shape.num_blocks,
                "slot {slot}: no block {block}"
            );
            require!(
                !state.blocks.contains(block),
                "slot {slot}: block {block} twice"
            );
            state.blocks.push(*block);
            self.holders[*block as usize] += 1;
        }
        let most = self.shape.max_total_tokens.div_ceil(self.shape.block_size) as usize;
        require!(
            state.blocks.len() <= most,
            "slot {slot}: {} blocks",
            state.blocks.len()
        );
        Ok(())
    }

    fn copy(&mut self, copy: pb::BlockCopy) -> Result<(), Misuse> {
        let (source, destination) = (copy.source, copy.destination);
        let (size, count) = (self.shape.block_size as usize, copy.num_tokens as usize);
        require!(
            source < self.shape.num_blocks && destination < self.shape.num_blocks,
            "copy of block {source} to {destination}"
        );
        require!(source != destination, "block {source} copied to itself");
        require!(count >= 1 && count <= size, "copy of {count} tokens");
        require!(
            self.holders[destination as usize] <= 1,
            "copy into the shared block {destination}"
        );
        let from = source as usize * size;
        require!(
            self.kv[from..from + count]
                .iter()
                .all(|number| *number != UNWRITTEN),
            "copy of {count} tokens of block {source}, which holds fewer"
        );
        self.kv
            .copy_within(from..from + count, destination as usize * size);
        Ok(())
    }

    fn check_rows(&self, step: &pb::Step, skipped: bool) -> Result<(), Misuse> {
        let mut seen = HashSet::with_capacity(step.rows.len());
        let mut tokens = 0u64;
        for row in &step.rows {
            let slot = row.slot;
            require!(seen.insert(slot), "two rows for slot {slot}");
            let Some(Some(state)) = self.slots.get(slot as usize) else {
                return Err(Misuse(format!("a row for the empty slot {slot}")));
            };
            require!(row.num_tokens >= 1, "slot {slot}: a row of no token");
            require!(
                !row.masked || row.sample,
                "slot {slot}: a mask for a row that does not sample"
            );
            require!(row.draft_token_ids.is_empty(), "slot {slot}: drafts");
            tokens += u64::from(row.num_tokens);
            // Lengths stand still in a step that is skipped, so there they say nothing.
            if skipped || state.failed {
                continue;
            }
            let end = state.computed + row.num_tokens as usize;
            require!(
                end <= state.ids.len(),
                "slot {slot}: computes to {end} of {} ids",
                state.ids.len()
            );
            require!(
                end <= state.blocks.len() * self.shape.block_size as usize,
                "slot {slot}: computes to {end} in {} blocks",
                state.blocks.len()
            );
            require!(
                !row.sample || end == state.ids.len(),
                "slot {slot}: samples at {end} of {} ids",
                state.ids.len()
            );
        }
        require!(
            tokens <= u64::from(self.shape.max_batch_tokens),
            "{tokens} tokens in a step of at most {}",
            self.shape.max_batch_tokens
        );
        Ok(())
    }

    fn compute(
        &mut self,
        row: &pb::Row,
        literal: Option<&LiteralOutputs>,
        placed: Option<&Placed>,
    ) -> Result<pb::RowResult, Misuse> {
        let mut result = pb::RowResult {
            slot: row.slot,
            ..pb::RowResult::default()
        };
        let size = self.shape.block_size as usize;
        let Some(Some(state)) = self.slots.get_mut(row.slot as usize) else {
            return Err(Misuse(format!("a row for the empty slot {}", row.slot)));
        };
        if state.failed {
            result.status = pb::row_result::Status::Failed.into();
            "the slot failed before".clone_into(&mut result.error);
            return Ok(result);
        }
        let place = |blocks: &[u32], position: usize| {
            blocks[position / size] as usize * size + position % size
        };
        let first = state.computed;
        let mut number = match first.checked_sub(1) {
            None => START,
            Some(position) => self.kv[place(&state.blocks, position)],
        };
        for position in first..first + row.num_tokens as usize {
            let block = state.blocks[position / size];
            require!(
                self.holders[block as usize] == 1,
                "slot {}: writes position {position} into block {block}, which {} tables hold",
                row.slot,
                self.holders[block as usize]
            );
            if number != UNWRITTEN {
                number = mix(number, state.ids[position]);
            }
            self.kv[place(&state.blocks, position)] = number;
        }
        state.computed += row.num_tokens as usize;
        if number == UNWRITTEN {
            state.failed = true;
            result.status = pb::row_result::Status::NonFinite.into();
            return Ok(result);
        }
        result.status = pb::row_result::Status::Ok.into();
        let vocab = self.shape.vocab_size;
        if row.prompt_logprobs {
            result.prompt_logprobs = state.told(first, &self.kv, size, vocab);
        }
        if row.sample {
            let (prompt, output) = state.ids.split_at(state.prompt_length);
            let place = Place {
                state: number,
                prompt,
                output,
                vocab_size: vocab,
            };
            match choose(&place, &state.sampling, literal, placed) {
                Err(words) => {
                    state.failed = true;
                    result.status = pb::row_result::Status::Failed.into();
                    result.error = words;
                    return Ok(result);
                }
                Ok(None) => {
                    // Called off. Rows of the slot that were sent before have no id to go on from.
                    state.failed = true;
                    return Ok(result);
                }
                Ok(Some(id)) => {
                    state.ids.push(id);
                    result.tokens = vec![described(id, &state.sampling, vocab)];
                }
            }
            require!(
                state.ids.len() <= self.shape.max_total_tokens as usize,
                "slot {}: {} ids are above max_total_tokens",
                row.slot,
                state.ids.len()
            );
        }
        Ok(result)
    }
}

fn empty_reply(step: &pb::Step) -> pb::StepReply {
    pb::StepReply {
        step_id: step.step_id,
        timings: Some(pb::Timings::default()),
        ..pb::StepReply::default()
    }
}
