//! A worker in memory. KV is a hash of the whole history at each (block, offset), so that a block that is wrong, stale,
//! unwritten or another namespace's is noticed when it is read. Tokens are a function of the history.

use crate::random::mix;
use headrace_grammar::Mask;
use headrace_scheduler::{
    BlockId, RowOutcome, RowResult, SampledToken, SequenceId, Slot, StepOutcome, StepPlan, TokenId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) const VOCAB: u32 = 5;

/// The next id after a history.
pub(crate) fn next_id(history: u64) -> TokenId {
    u32::try_from(mix(history, 0xF00D) % u64::from(VOCAB)).unwrap()
}

/// The next id of those that a mask allows.
pub(crate) fn pick(history: u64, mask: &Mask) -> TokenId {
    let allowed: Vec<TokenId> = (0..VOCAB).filter(|&id| mask.allows(id)).collect();
    let place = mix(history, 0xF00D) % allowed.len() as u64;
    allowed[usize::try_from(place).unwrap()]
}

pub(crate) fn start_of(namespace: u64) -> u64 {
    mix(namespace, 0xA11CE)
}

pub(crate) fn after(history: u64, id: TokenId) -> u64 {
    mix(history, u64::from(id) + 1)
}

/// How the next answer is to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Failed,
    OutOfMemory,
    /// This row gives NaN.
    NonFinite(usize),
    /// This row is refused.
    Row(usize),
}

struct Sequence {
    id: SequenceId,
    namespace: u64,
    ids: Vec<TokenId>,
    prompt_length: usize,
    computed: usize,
    table: Vec<BlockId>,
    broken: bool,
    /// A row of it was called off: what is behind that is of no more use.
    over: bool,
}

/// What the simulation lets a request carry to the worker, in fields that router and scheduler only pass on.
pub(crate) fn carried(sampling: &headrace_scheduler::SamplingParams) -> (SequenceId, u64) {
    let namespace = sampling.top_k.map_or(0, |top_k| u64::from(top_k) - 1);
    (SequenceId(sampling.seed), namespace)
}

pub(crate) struct Worker {
    block_size: usize,
    max_batch_tokens: usize,
    max_sequences: usize,
    kv: Vec<Option<u64>>,
    slots: BTreeMap<Slot, Sequence>,
    /// Whose the slots are after the steps sent so far.
    planned: BTreeMap<Slot, SequenceId>,
    failed: bool,
    steps: VecDeque<StepPlan>,
    /// Whose rows each of them has.
    whose: VecDeque<Vec<SequenceId>>,
    last_step: u64,
    /// What was sent for masked rows of steps in flight; `None`: called off.
    masks: BTreeMap<(u64, Slot), Option<(u32, Mask)>>,
}

impl Worker {
    pub(crate) fn new(
        block_size: u32,
        num_blocks: u32,
        max_batch_tokens: u32,
        max_sequences: u32,
    ) -> Self {
        Self {
            block_size: block_size as usize,
            max_batch_tokens: max_batch_tokens as usize,
            max_sequences: max_sequences as usize,
            kv: vec![None; (num_blocks * block_size) as usize],
            slots: BTreeMap::new(),
            planned: BTreeMap::new(),
            failed: false,
            steps: VecDeque::new(),
            whose: VecDeque::new(),
            last_step: 0,
            masks: BTreeMap::new(),
        }
    }

    pub(crate) fn steps_in_flight(&self) -> usize {
        self.steps.len()
    }

    /// Whose rows the oldest step has.
    pub(crate) fn oldest(&self) -> &[SequenceId] {
        self.whose.front().map_or(&[], Vec::as_slice)
    }

    /// All that have a row in a step in flight.
    pub(crate) fn in_flight(&self) -> BTreeSet<SequenceId> {
        self.whose.iter().flatten().copied().collect()
    }

    /// Rows of the oldest step.
    pub(crate) fn rows(&self) -> usize {
        self.steps.front().map_or(0, |plan| plan.rows.len())
    }

    /// Takes a step in. Gives whose rows it has.
    pub(crate) fn send(&mut self, plan: StepPlan) -> Vec<SequenceId> {
        assert_eq!(plan.step_id, self.last_step + 1, "steps come in order");
        self.last_step = plan.step_id;
        for slot in &plan.finished_slots {
            assert!(self.planned.remove(slot).is_some(), "slot {slot} is empty");
        }
        for new in &plan.new_sequences {
            assert!((new.slot as usize) < self.max_sequences);
            let (id, _) = carried(&new.sampling);
            assert!(
                self.planned.insert(new.slot, id).is_none(),
                "slot {} is in use",
                new.slot
            );
        }
        let tokens: usize = plan.rows.iter().map(|row| row.num_tokens as usize).sum();
        assert!(tokens <= self.max_batch_tokens, "{tokens} tokens in a step");
        let slots: BTreeSet<Slot> = plan.rows.iter().map(|row| row.slot).collect();
        assert_eq!(slots.len(), plan.rows.len(), "two rows for a slot");
        let whose = plan.rows.iter().map(|row| self.planned[&row.slot]);
        let whose: Vec<SequenceId> = whose.collect();
        self.whose.push_back(whose.clone());
        self.steps.push_back(plan);
        whose
    }

    /// A mask for a row, or `None`: it samples nothing. Once for each, and for steps in flight only.
    pub(crate) fn mask(&mut self, step_id: u64, slot: Slot, mask: Option<(u32, Mask)>) {
        let step = self.steps.iter().find(|plan| plan.step_id == step_id);
        let step = step.expect("a mask of a step that is over");
        let announced = step.masks.iter().any(|due| due.slot == slot);
        assert!(announced, "a mask that no step announced");
        let before = self.masks.insert((step_id, slot), mask);
        assert!(before.is_none(), "two masks for a row");
    }

    /// Whether the oldest step can run: it has all its masks, or is behind a failed one.
    pub(crate) fn has_masks(&self) -> bool {
        self.steps.front().is_some_and(|plan| {
            let is_skipped = self.failed && plan.acknowledged_failure.is_none();
            is_skipped
                || plan
                    .masks
                    .iter()
                    .all(|due| self.masks.contains_key(&(plan.step_id, due.slot)))
        })
    }

    /// Runs the oldest step and gives its answer, and whose rows it had.
    pub(crate) fn answer(&mut self, fault: Fault) -> (u64, StepOutcome, Vec<SequenceId>) {
        let plan = self.steps.pop_front().unwrap();
        self.whose.pop_front();
        self.apply(&plan);
        let whose = plan
            .rows
            .iter()
            .map(|row| self.slots[&row.slot].id)
            .collect();
        if plan.acknowledged_failure.is_some() {
            assert!(self.failed, "nothing failed");
            self.failed = false;
        }
        let later = self.masks.split_off(&(plan.step_id + 1, 0));
        let masks = std::mem::replace(&mut self.masks, later);
        if self.failed {
            return (plan.step_id, StepOutcome::Skipped, whose);
        }
        let outcome = match fault {
            Fault::Failed => StepOutcome::Failed("scripted".to_owned()),
            Fault::OutOfMemory => StepOutcome::OutOfMemory("scripted".to_owned()),
            _ => {
                self.copy(&plan);
                let rows = plan.rows.iter().enumerate();
                StepOutcome::Ok(
                    rows.map(|(at, row)| {
                        let mask = masks.get(&(plan.step_id, row.slot));
                        let announced = plan.masks.iter().any(|due| due.slot == row.slot);
                        assert_eq!(row.masked, announced);
                        self.run_row(row, fault, at, mask)
                    })
                    .collect(),
                )
            }
        };
        if !matches!(outcome, StepOutcome::Ok(_)) {
            self.failed = true;
            for row in &plan.rows {
                self.spoil(row.slot, row.num_tokens as usize);
            }
        }
        (plan.step_id, outcome, whose)
    }

    fn apply(&mut self, plan: &StepPlan) {
        for slot in &plan.finished_slots {
            assert!(self.slots.remove(slot).is_some());
        }
        for new in &plan.new_sequences {
            assert!((new.computed_length as usize) < new.token_ids.len());
            let (id, namespace) = carried(&new.sampling);
            let sequence = Sequence {
                id,
                namespace,
                ids: new.token_ids.clone(),
                prompt_length: new.prompt_length as usize,
                computed: new.computed_length as usize,
                table: new.blocks.clone(),
                broken: false,
                over: false,
            };
            assert!(self.slots.insert(new.slot, sequence).is_none());
        }
        for (slot, blocks) in &plan.block_appends {
            self.slots.get_mut(slot).unwrap().table.extend(blocks);
        }
    }

    fn copy(&mut self, plan: &StepPlan) {
        for copy in &plan.block_copies {
            for offset in 0..copy.num_tokens as usize {
                let from = copy.source as usize * self.block_size + offset;
                let to = copy.destination as usize * self.block_size + offset;
                self.kv[to] = self.kv[from];
            }
        }
    }

    /// Nothing usable where a row that went wrong was to write.
    fn spoil(&mut self, slot: Slot, num_tokens: usize) {
        let sequence = &self.slots[&slot];
        for position in sequence.computed..sequence.computed + num_tokens {
            let block = sequence.table[position / self.block_size] as usize;
            self.kv[block * self.block_size + position % self.block_size] = None;
        }
    }

    fn run_row(
        &mut self,
        row: &headrace_scheduler::Row,
        fault: Fault,
        at: usize,
        mask: Option<&Option<(u32, Mask)>>,
    ) -> RowResult {
        let slot = row.slot;
        let count = row.num_tokens as usize;
        let result = |outcome| RowResult {
            slot,
            outcome,
            prompt_logprobs: Vec::new(),
        };
        if self.slots[&slot].broken || fault == Fault::Row(at) || fault == Fault::NonFinite(at) {
            self.spoil(slot, count);
            self.slots.get_mut(&slot).unwrap().broken = true;
            return result(match fault {
                Fault::NonFinite(row) if row == at => RowOutcome::NonFinite,
                _ => RowOutcome::Failed("scripted".to_owned()),
            });
        }
        if mask == Some(&None) {
            self.slots.get_mut(&slot).unwrap().over = true;
        }
        if self.slots[&slot].over {
            return result(RowOutcome::Tokens(Vec::new()));
        }
        let sequence = self.slots.get_mut(&slot).unwrap();
        let (start, end) = (sequence.computed, sequence.computed + count);
        assert!(
            end <= sequence.ids.len(),
            "slot {slot}: more to compute than ids"
        );
        let mut history = start_of(sequence.namespace);
        for (position, &id) in sequence.ids[..end].iter().enumerate() {
            history = after(history, id);
            let block = sequence.table[position / self.block_size] as usize;
            let kv = &mut self.kv[block * self.block_size + position % self.block_size];
            if position < start {
                assert_eq!(
                    *kv,
                    Some(history),
                    "slot {slot} reads wrong KV at {position}"
                );
            } else {
                *kv = Some(history);
            }
        }
        sequence.computed = end;
        let mut tokens = Vec::new();
        if row.sample {
            assert_eq!(
                end,
                sequence.ids.len(),
                "slot {slot}: samples at the end only"
            );
            assert_eq!(
                row.masked,
                mask.is_some(),
                "slot {slot}: sampled without its mask"
            );
            let id = match mask {
                Some(Some((position, mask))) => {
                    let due = sequence.ids.len() - sequence.prompt_length;
                    assert_eq!(
                        *position as usize, due,
                        "slot {slot}: another position's mask"
                    );
                    pick(history, mask)
                }
                _ => next_id(history),
            };
            sequence.ids.push(id);
            tokens.push(SampledToken {
                id,
                logprob: None,
                top: Vec::new(),
                rank: None,
            });
        }
        result(RowOutcome::Tokens(tokens))
    }
}
