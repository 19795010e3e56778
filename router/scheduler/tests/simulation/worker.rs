//! A worker in memory. KV is a hash of the whole history at each (block, offset), so that a block that is
//! wrong, stale, unwritten or another namespace's is noticed when it is read. Tokens are a function of the
//! history. Steps run when they are answered; what the plan says of blocks is checked when it is made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headrace_scheduler::{
    BlockId, RowOutcome, RowResult, SampledToken, SequenceId, Slot, StepOutcome, StepPlan, TokenId,
};

use crate::random::mix;

/// The next id after a history.
pub(crate) fn next_id(history: u64, vocabulary: u32) -> TokenId {
    u32::try_from(mix(history, 0xF00D) % u64::from(vocabulary)).unwrap()
}

/// History hashes of every prefix: `[i]` is that of `ids[..=i]`.
pub(crate) fn histories(namespace: u64, ids: &[TokenId]) -> Vec<u64> {
    let mut history = mix(namespace, 0xA11CE);
    ids.iter()
        .map(|&id| {
            history = mix(history, u64::from(id) + 1);
            history
        })
        .collect()
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
    ids: Vec<TokenId>,
    prompt_length: usize,
    computed: usize,
    table: Vec<BlockId>,
    /// The namespace, which the simulation puts into the seed.
    namespace: u64,
    /// Most output ids: a step beyond them is planned in vain.
    max_new_tokens: usize,
    id: SequenceId,
    broken: bool,
    /// A mask of it was called off: it is over, and its rows give nothing.
    called_off: bool,
}

/// Tables as of the last plan, before any answer.
struct Planned {
    /// Tells sequences apart that used a slot one after the other.
    tenant: u64,
    table: Vec<BlockId>,
    computed: usize,
    /// Flushes of the cache before it entered.
    generation: u64,
}

pub(crate) struct Worker {
    block_size: usize,
    vocabulary: u32,
    kv: Vec<Option<u64>>,
    slots: BTreeMap<Slot, Sequence>,
    failed: bool,
    planned: BTreeMap<Slot, Planned>,
    tenants: u64,
    generation: u64,
    /// For each block, the generation of who wrote it last.
    written_in: Vec<u64>,
    /// Blocks that unanswered steps touch, and for whom.
    touched: VecDeque<Vec<(BlockId, u64)>>,
    steps: VecDeque<StepPlan>,
    garbage: u64,
    /// Which token of which sequence ends the process.
    pub(crate) poison: BTreeMap<SequenceId, usize>,
    /// Two sequences that end it with rows in one step.
    pub(crate) pairs: Vec<[SequenceId; 2]>,
    pub(crate) copies: u64,
    pub(crate) max_batch_tokens: usize,
    pub(crate) max_sequences: usize,
}

impl Worker {
    pub(crate) fn new(
        block_size: usize,
        num_blocks: u32,
        vocabulary: u32,
        max_batch_tokens: usize,
        max_sequences: usize,
    ) -> Self {
        Self {
            block_size,
            vocabulary,
            kv: vec![None; num_blocks as usize * block_size],
            slots: BTreeMap::new(),
            failed: false,
            planned: BTreeMap::new(),
            tenants: 0,
            generation: 0,
            written_in: vec![0; num_blocks as usize],
            touched: VecDeque::new(),
            steps: VecDeque::new(),
            garbage: 0,
            poison: BTreeMap::new(),
            pairs: Vec::new(),
            copies: 0,
            max_batch_tokens,
            max_sequences,
        }
    }

    pub(crate) fn steps_in_flight(&self) -> usize {
        self.steps.len()
    }

    pub(crate) fn oldest(&self) -> Option<&StepPlan> {
        self.steps.front()
    }

    /// Takes a step in and checks what it does to tables and blocks.
    pub(crate) fn send(&mut self, plan: StepPlan) {
        for slot in &plan.finished_slots {
            assert!(
                self.planned.remove(slot).is_some(),
                "slot {slot} finishes and is empty"
            );
        }
        for new in &plan.new_sequences {
            self.tenants += 1;
            let planned = Planned {
                tenant: self.tenants,
                table: new.blocks.clone(),
                computed: new.computed_length as usize,
                generation: self.generation,
            };
            for &block in &new.blocks[..planned.computed / self.block_size] {
                self.check_generation(block);
            }
            let before = self.planned.insert(new.slot, planned);
            assert!(before.is_none(), "slot {} is in use", new.slot);
            assert!((new.slot as usize) < self.max_sequences);
        }
        for (slot, blocks) in &plan.block_appends {
            self.planned.get_mut(slot).unwrap().table.extend(blocks);
        }
        let mut touched = Vec::new();
        let mut written = BTreeSet::new();
        let mut rows = BTreeSet::new();
        for row in &plan.rows {
            assert!(rows.insert(row.slot), "two rows for slot {}", row.slot);
            assert!(row.num_tokens > 0);
            let planned = self
                .planned
                .get_mut(&row.slot)
                .expect("a row of a known slot");
            let end = planned.computed + row.num_tokens as usize;
            assert!(
                end <= planned.table.len() * self.block_size,
                "a row beyond its table"
            );
            let blocks = &planned.table[..end.div_ceil(self.block_size)];
            touched.extend(blocks.iter().map(|&block| (block, planned.tenant)));
            for &block in &blocks[planned.computed / self.block_size..] {
                assert!(written.insert((block, planned.tenant)));
                self.written_in[block as usize] = planned.generation;
            }
            planned.computed = end;
        }
        self.check_writes(&plan, &written);
        let masked = plan.rows.iter().filter(|row| row.masked);
        let masked: Vec<Slot> = masked.map(|row| row.slot).collect();
        let announced: Vec<Slot> = plan.masks.iter().map(|due| due.slot).collect();
        assert_eq!(masked, announced, "a mask for each masked row, in order");
        for copy in &plan.block_copies {
            self.check_generation(copy.source);
            touched.push((copy.source, 0));
        }
        let tokens: usize = plan.rows.iter().map(|row| row.num_tokens as usize).sum();
        assert!(tokens <= self.max_batch_tokens, "{tokens} tokens in a step");
        assert!(plan.rows.len() <= self.max_sequences);
        self.touched.push_back(touched);
        self.steps.push_back(plan);
    }

    /// The cache was flushed: who enters from now on reads nothing that others wrote or will write who entered before.
    pub(crate) fn flush(&mut self) {
        self.generation += 1;
    }

    fn check_generation(&self, block: BlockId) {
        let current = self.written_in[block as usize] == self.generation;
        assert!(current, "block {block} is read from a flushed cache");
    }

    /// What is written is one sequence's alone, and no unanswered step of another may touch it.
    fn check_writes(&self, plan: &StepPlan, written: &BTreeSet<(BlockId, u64)>) {
        for &(block, tenant) in written {
            for planned in self.planned.values() {
                let shared = planned.tenant != tenant && planned.table.contains(&block);
                assert!(!shared, "block {block} is written and in two tables");
            }
            for touched in self.touched.iter().flatten() {
                let again = touched.0 == block && touched.1 != tenant;
                assert!(
                    !again,
                    "block {block} is written before a step that touches it answered"
                );
            }
        }
        for copy in &plan.block_copies {
            assert!(copy.num_tokens > 0 && (copy.num_tokens as usize) < self.block_size);
            let is_written = |block| written.iter().any(|&(other, _)| other == block);
            assert!(
                is_written(copy.destination),
                "a copy that nobody goes on with"
            );
            assert!(
                !is_written(copy.source),
                "a copy's source is written in its step"
            );
        }
    }

    /// Whether running the oldest step ends the process.
    pub(crate) fn is_deadly(&self) -> bool {
        let Some(plan) = self.steps.front() else {
            return false;
        };
        if self.failed && plan.acknowledged_failure.is_none() {
            return false;
        }
        let rows: Vec<(SequenceId, usize, usize)> = plan
            .rows
            .iter()
            .filter_map(|row| self.executed(plan, row))
            .collect();
        let runs = |id: &SequenceId| rows.iter().any(|(other, ..)| other == id);
        rows.iter().any(|(id, start, end)| {
            let poison = self.poison.get(id);
            poison.is_some_and(|position| (*start..*end).contains(position))
        }) || self.pairs.iter().any(|pair| pair.iter().all(runs))
    }

    /// What a row computes of whom.
    fn executed(
        &self,
        plan: &StepPlan,
        row: &headrace_scheduler::Row,
    ) -> Option<(SequenceId, usize, usize)> {
        let mut new = plan.new_sequences.iter();
        let (id, start) = if let Some(new) = new.find(|new| new.slot == row.slot) {
            let id = SequenceId(u64::from(new.sampling.suppressed_token_ids[0]));
            (id, new.computed_length as usize)
        } else {
            let sequence = self.slots.get(&row.slot)?;
            if sequence.broken || sequence.called_off {
                return None;
            }
            (sequence.id, sequence.computed)
        };
        Some((id, start, start + row.num_tokens as usize))
    }

    /// Whose rows all unanswered steps have.
    pub(crate) fn in_flight(&self) -> BTreeSet<SequenceId> {
        let mut slots: BTreeMap<Slot, SequenceId> = self
            .slots
            .iter()
            .map(|(&slot, sequence)| (slot, sequence.id))
            .collect();
        let mut rows = BTreeSet::new();
        for plan in &self.steps {
            for new in &plan.new_sequences {
                let id = SequenceId(u64::from(new.sampling.suppressed_token_ids[0]));
                slots.insert(new.slot, id);
            }
            rows.extend(plan.rows.iter().map(|row| slots[&row.slot]));
        }
        rows
    }

    /// Whose rows an answered step has, in order.
    pub(crate) fn sequences(&self, plan: &StepPlan) -> Vec<SequenceId> {
        plan.rows
            .iter()
            .map(|row| self.slots[&row.slot].id)
            .collect()
    }

    /// Runs and answers the oldest step; `called_off` are the slots whose masks will not come.
    pub(crate) fn answer(
        &mut self,
        fault: Fault,
        copies_fail: bool,
        called_off: &BTreeSet<Slot>,
    ) -> (StepPlan, StepOutcome) {
        let plan = self.steps.pop_front().unwrap();
        self.touched.pop_front();
        self.apply(&plan);
        if plan.acknowledged_failure.is_some() {
            assert!(self.failed, "nothing failed");
            self.failed = false;
        }
        let fault = if self.failed { Fault::None } else { fault };
        let lost = self.failed || matches!(fault, Fault::Failed | Fault::OutOfMemory);
        if !(lost && copies_fail) {
            for copy in &plan.block_copies {
                self.copies += 1;
                for offset in 0..copy.num_tokens as usize {
                    let from = copy.source as usize * self.block_size + offset;
                    let to = copy.destination as usize * self.block_size + offset;
                    self.kv[to] = self.kv[from];
                }
            }
        }
        if self.failed {
            self.take_lengths_back();
            return (plan, StepOutcome::Skipped);
        }
        if lost {
            self.failed = true;
            self.take_lengths_back();
            for row in &plan.rows {
                self.spoil(row.slot, row.num_tokens as usize);
            }
            let outcome = if fault == Fault::Failed {
                StepOutcome::Failed("scripted".to_owned())
            } else {
                StepOutcome::OutOfMemory("scripted".to_owned())
            };
            return (plan, outcome);
        }
        for slot in called_off {
            self.slots.get_mut(slot).unwrap().called_off = true;
        }
        for due in &plan.masks {
            let sequence = &self.slots[&due.slot];
            assert_eq!(sequence.id, due.sequence);
            let output = sequence.ids.len() - sequence.prompt_length;
            let late = sequence.called_off || sequence.broken;
            assert!(late || output == due.position as usize, "{due:?}: {output}");
        }
        let mut results = Vec::new();
        for (at, row) in plan.rows.iter().enumerate() {
            results.push(self.run_row(row, fault, at));
        }
        (plan, StepOutcome::Ok(results))
    }

    fn apply(&mut self, plan: &StepPlan) {
        for slot in &plan.finished_slots {
            assert!(self.slots.remove(slot).is_some());
        }
        for new in &plan.new_sequences {
            assert!(new.computed_length < u32::try_from(new.token_ids.len()).unwrap());
            let shared = new.computed_length as usize / self.block_size;
            self.poison(&new.blocks[shared..]);
            let sequence = Sequence {
                ids: new.token_ids.clone(),
                prompt_length: new.prompt_length as usize,
                computed: new.computed_length as usize,
                table: new.blocks.clone(),
                namespace: new.sampling.seed,
                max_new_tokens: new.sampling.top_n as usize,
                id: SequenceId(u64::from(new.sampling.suppressed_token_ids[0])),
                broken: false,
                called_off: false,
            };
            assert!(self.slots.insert(new.slot, sequence).is_none());
        }
        for (slot, blocks) in &plan.block_appends {
            self.slots.get_mut(slot).unwrap().table.extend(blocks);
            self.poison(blocks);
        }
    }

    /// Blocks that are new in a table hold nothing, whatever they held for others.
    fn poison(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            let start = block as usize * self.block_size;
            self.kv[start..start + self.block_size].fill(None);
        }
    }

    /// Nothing was computed by the steps that failed or were skipped.
    fn take_lengths_back(&mut self) {
        for (slot, planned) in &mut self.planned {
            if let Some(sequence) = self.slots.get(slot) {
                planned.computed = sequence.computed;
            }
        }
    }

    /// Garbage where a row that went wrong was to write.
    fn spoil(&mut self, slot: Slot, num_tokens: usize) {
        let sequence = &self.slots[&slot];
        for position in sequence.computed..sequence.computed + num_tokens {
            let block = sequence.table[position / self.block_size] as usize;
            self.garbage += 1;
            self.kv[block * self.block_size + position % self.block_size] = Some(self.garbage);
        }
    }

    fn run_row(&mut self, row: &headrace_scheduler::Row, fault: Fault, at: usize) -> RowResult {
        let slot = row.slot;
        let count = row.num_tokens as usize;
        let result = |outcome| RowResult {
            slot,
            outcome,
            prompt_logprobs: Vec::new(),
        };
        if self.slots[&slot].broken {
            self.spoil(slot, count);
            return result(RowOutcome::Failed("broken before".to_owned()));
        }
        if fault == Fault::NonFinite(at) || fault == Fault::Row(at) {
            self.spoil(slot, count);
            self.slots.get_mut(&slot).unwrap().broken = true;
            return result(match fault {
                Fault::NonFinite(_) => RowOutcome::NonFinite,
                _ => RowOutcome::Failed("scripted".to_owned()),
            });
        }
        if self.slots[&slot].called_off && row.masked {
            self.spoil(slot, count);
            return result(RowOutcome::Tokens(Vec::new()));
        }
        let sequence = self.slots.get_mut(&slot).unwrap();
        let (start, end) = (sequence.computed, sequence.computed + count);
        assert!(
            end <= sequence.ids.len(),
            "slot {slot}: more to compute than ids"
        );
        assert_eq!(
            row.sample,
            end == sequence.ids.len(),
            "slot {slot}: samples at the end only"
        );
        let histories = histories(sequence.namespace, &sequence.ids);
        for (position, &history) in histories[..end].iter().enumerate() {
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
        let token = |id| SampledToken {
            id,
            logprob: None,
            top: Vec::new(),
            rank: None,
        };
        let mut tokens = Vec::new();
        if row.sample {
            let id = next_id(histories[end - 1], self.vocabulary);
            sequence.ids.push(id);
            let output = sequence.ids.len() - sequence.prompt_length;
            assert!(
                output <= sequence.max_new_tokens,
                "slot {slot} samples beyond its end"
            );
            tokens.push(token(id));
        }
        let mut prompt_logprobs = Vec::new();
        if row.prompt_logprobs {
            let last = end.min(sequence.prompt_length - 1);
            prompt_logprobs = (start + 1..=last)
                .map(|position| token(sequence.ids[position]))
                .collect();
        }
        RowResult {
            slot,
            outcome: RowOutcome::Tokens(tokens),
            prompt_logprobs,
        }
    }
}
