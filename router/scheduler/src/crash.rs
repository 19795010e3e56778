//! Crash isolation: which sequence crashes the workers, without harm to the others.
//!
//! The rows of the steps that were unanswered at a crash are suspects. Once a sequence was one in two crashes
//! without having come past the token where it crashed, the suspects of both are isolated: steps carry one half of
//! them only, one step at a time, and nobody else. A crash leaves that half as suspects, coming past the token
//! clears a suspect, and one that crashes twice alone at the same token fails. So a sequence that crashes the workers costs at most
//! 2 crashes, one for each halving of the suspects, and 2 alone.
//!
//! Sequences that crash only together clear each other that way. When two that were cleared would be isolated
//! again, they are run one at a time instead, every other step, each for some ids and for twice as many the next
//! time.
//!
//! Crashes of others end an isolation, and so does one in which nothing was computed: then it is not they.

use std::collections::VecDeque;

use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::sequence::{Phase, SequenceIndex, SequenceTable};
use crate::types::{GroupId, SequenceFailure};

/// Crashes with a sequence, before it is isolated.
const CRASHES: u32 = 2;

/// For how many ids it is remembered that isolation cleared a sequence.
const REMEMBERED_IDS: usize = 256;

/// Ids for which a sequence is first run with none beside it that it crashed with.
const STINT: usize = 16;

/// What crashes a sequence was in.
#[derive(Debug, Default)]
pub(crate) struct CrashRecord {
    /// Ids once the steps of its last crashes had answered: with more it is past them. `None`: it is.
    mark: Option<usize>,
    /// Since it was last past its mark.
    crashes: u32,
    /// As `mark`, of the last crash with it alone while it was isolated.
    alone_mark: Option<usize>,
    /// Up to how many ids it counts as cleared by isolation.
    cleared_until: usize,
    /// Times that it was run one at a time.
    stints: u32,
    /// At how many ids the last of those is over.
    stint_end: usize,
}

impl CrashRecord {
    /// It is past its mark, or others are suspected instead.
    fn clear(&mut self) {
        self.mark = None;
        self.crashes = 0;
        self.alone_mark = None;
    }
}

/// Whose rows were in the unanswered steps of a crash.
#[derive(Debug, Default)]
pub(crate) struct CrashedRows {
    /// Those that are not over.
    pub(crate) suspects: Vec<SequenceIndex>,
    /// With one sequence in all, those that are over included: the ids it would have had.
    pub(crate) alone: Option<usize>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    /// The group whose steps are for the suspects.
    pub(crate) group: GroupId,
    /// By rank. One of them crashes the workers, if they do not die by themselves.
    suspects: Vec<SequenceIndex>,
    /// Those of them that run.
    half: Vec<SequenceIndex>,
    /// They run one at a time, in this order.
    one_by_one: VecDeque<SequenceIndex>,
    /// The next step is for all others first.
    pub(crate) others_turn: bool,
}

/// Whom the next step of a group is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All that are not isolated.
    Everyone,
    /// These and nobody else.
    Only(Vec<SequenceIndex>),
    /// This one, or all that are not isolated, by turns.
    OneOrOthers(SequenceIndex),
}

impl Isolation {
    fn is_off(&self) -> bool {
        self.suspects.is_empty() && self.one_by_one.is_empty()
    }

    /// Whether the group's steps are one at a time: also while all that are isolated are paused, for one of them
    /// may be in the step before.
    pub(crate) fn is_on(&self, group: GroupId) -> bool {
        !self.is_off() && group == self.group
    }

    /// Whom the next step is for; those that are paused let others go first.
    pub(crate) fn turn(&mut self, group: GroupId, sequences: &SequenceTable) -> Turn {
        if !self.is_on(group) || planted::is(Bug::IsolatedBesideOthers) {
            return Turn::Everyone;
        }
        let runs = |index: &SequenceIndex| !sequences[*index].paused;
        let awake = |list: &[SequenceIndex]| -> Vec<SequenceIndex> {
            list.iter().copied().filter(runs).collect()
        };
        let mut half = awake(&self.half);
        if half.is_empty() {
            half = awake(&self.suspects);
            half.truncate(half.len().div_ceil(2));
            self.half.clone_from(&half);
        }
        if !half.is_empty() {
            return Turn::Only(half);
        }
        let next = self.one_by_one.iter().copied().find(runs);
        next.map_or(Turn::Everyone, Turn::OneOrOthers)
    }

    /// A sequence is over, cleared or no longer suspected.
    pub(crate) fn forget(&mut self, index: SequenceIndex) {
        self.suspects.retain(|&other| other != index);
        self.half.retain(|&other| other != index);
        self.one_by_one.retain(|&other| other != index);
    }

    pub(crate) fn audit(&self, sequences: &SequenceTable) {
        for (index, sequence) in sequences.iter() {
            let suspected = self.suspects.contains(&index);
            let apart = self.one_by_one.contains(&index);
            let id = sequence.id;
            assert!(!(suspected && apart), "{id:?} is isolated twice");
            let over = sequence.phase == Phase::Ending;
            let isolated = sequence.isolated && !over;
            assert!(
                isolated == (suspected || apart),
                "{id:?} is isolated or not"
            );
        }
        let mut half = self.half.iter();
        assert!(half.all(|index| self.suspects.contains(index)));
    }
}

impl Dispatcher {
    /// Sequences that are isolated and not past the token where they crashed.
    pub(crate) fn suspects(&self) -> usize {
        let marked = |index: &&SequenceIndex| {
            let crashes = self.sequences[**index].crashes.as_ref();
            crashes.is_some_and(|record| record.mark.is_some())
        };
        let one_by_one = self.isolation.one_by_one.iter().filter(marked).count();
        self.isolation.suspects.len() + one_by_one
    }

    /// A sequence was in an unanswered step of a crash.
    pub(crate) fn suspect(&mut self, index: SequenceIndex) {
        let sequence = &mut self.sequences[index];
        let upper = sequence.upper();
        let record = sequence.crashes.get_or_insert_default();
        record.mark = record.mark.max(Some(upper));
        record.crashes += 1;
    }

    /// Workers crashed; what was in their unanswered steps waits again, and is suspected.
    pub(crate) fn isolate_after_crash(&mut self, group: GroupId, crashed: &CrashedRows) {
        let was_off = self.isolation.is_off();
        if was_off {
            self.isolation.group = group;
        }
        let rows = &crashed.suspects;
        let in_crash = |index: &SequenceIndex| rows.contains(index);
        if self.isolation.suspects.iter().any(in_crash) {
            self.narrow_suspects(crashed);
        }
        for &index in rows {
            if let Some(upper) = crashed.alone
                && self.isolation.one_by_one.contains(&index)
            {
                self.crashed_alone(index, upper);
            }
        }
        let again = self.crashed_again(rows);
        if group == self.isolation.group {
            // Nothing was computed, or those who crash the workers are others.
            if rows.is_empty() || !again.is_empty() {
                self.release_suspects();
            }
            if rows.is_empty() {
                self.release_one_by_one();
            }
        }
        if self.isolation.suspects.is_empty() {
            for &index in &again {
                self.set_isolated(index, true);
            }
            self.isolation.suspects = again;
        }
        if was_off && !self.isolation.is_off() {
            self.counters.isolations += 1;
        }
    }

    /// Those of a crash that are to be isolated, by rank; of those that were, two or more are run apart.
    fn crashed_again(&mut self, rows: &[SequenceIndex]) -> Vec<SequenceIndex> {
        let mut again = Vec::new();
        let mut cleared_before = Vec::new();
        for &index in rows {
            if planted::is(Bug::CrashesNotIsolated) {
                break;
            }
            let sequence = self.sequences.get(index);
            let Some(sequence) = sequence.filter(|sequence| !sequence.isolated) else {
                continue;
            };
            let record = sequence.crashes.as_deref();
            if let Some(record) = record.filter(|record| record.crashes >= CRASHES) {
                if sequence.ids.len() <= record.cleared_until {
                    cleared_before.push(index);
                } else {
                    again.push(index);
                }
            }
        }
        if cleared_before.len() == 1 {
            again.append(&mut cleared_before);
        }
        for index in cleared_before {
            self.run_apart(index);
        }
        again.sort_by_key(|&index| self.sequences[index].rank);
        again
    }

    /// The suspects that were in the crash remain.
    fn narrow_suspects(&mut self, crashed: &CrashedRows) {
        let suspects = std::mem::take(&mut self.isolation.suspects);
        self.isolation.half.clear();
        let in_crash = |index: &SequenceIndex| {
            crashed.suspects.contains(index) || planted::is(Bug::SuspectsNotNarrowed)
        };
        let (remaining, cleared): (Vec<_>, Vec<_>) = suspects.into_iter().partition(in_crash);
        for index in cleared {
            if let Some(record) = &mut self.sequences[index].crashes {
                record.clear();
            }
            self.set_isolated(index, false);
        }
        self.isolation.suspects.clone_from(&remaining);
        if let [index] = remaining[..]
            && let Some(upper) = crashed.alone
        {
            self.crashed_alone(index, upper);
        }
    }

    /// They run with everybody again, and nothing is forgotten: one that is in the next crash is isolated at once.
    fn release_suspects(&mut self) {
        self.isolation.half.clear();
        for index in std::mem::take(&mut self.isolation.suspects) {
            self.set_isolated(index, false);
        }
    }

    fn release_one_by_one(&mut self) {
        for index in std::mem::take(&mut self.isolation.one_by_one) {
            self.set_isolated(index, false);
        }
    }

    /// Workers crashed with this isolated sequence alone; `upper` ids it would have had.
    fn crashed_alone(&mut self, index: SequenceIndex, upper: usize) {
        let record = self.sequences[index].crashes.get_or_insert_default();
        if record.alone_mark.is_some() || planted::is(Bug::FirstCrashAloneEnds) {
            self.fail_waiting(index, SequenceFailure::WorkerCrash);
        } else {
            record.alone_mark = Some(upper);
        }
    }

    /// From now on it runs with none beside it that it crashed with.
    fn run_apart(&mut self, index: SequenceIndex) {
        let sequence = &mut self.sequences[index];
        let record = sequence.crashes.get_or_insert_default();
        record.stint_end = sequence.ids.len() + (STINT << record.stints.min(20));
        record.stints += 1;
        self.isolation.one_by_one.push_back(index);
        self.set_isolated(index, true);
    }

    fn set_isolated(&mut self, index: SequenceIndex, isolated: bool) {
        if self.sequences[index].phase == Phase::Waiting {
            self.requeue(index, |sequence| sequence.isolated = isolated);
        } else {
            self.sequences[index].isolated = isolated;
        }
    }

    /// A sequence that was in a crash has one more id: it may be past its mark, and its stint may be over.
    pub(crate) fn note_progress(&mut self, index: SequenceIndex) {
        let sequence = &mut self.sequences[index];
        let length = sequence.ids.len();
        let isolated = sequence.isolated;
        let Some(record) = &mut sequence.crashes else {
            return;
        };
        if isolated && planted::is(Bug::SuspectNeverCleared) {
            return;
        }
        // Isolated again since, it may be past this and not past the other.
        if record.alone_mark.is_some_and(|mark| length > mark) {
            record.alone_mark = None;
        }
        if record.mark.is_some_and(|mark| length <= mark) {
            return;
        }
        record.clear();
        let in_stint = length < record.stint_end;
        if isolated && !in_stint {
            record.cleared_until = length + REMEMBERED_IDS;
            self.isolation.forget(index);
            self.set_isolated(index, false);
        }
    }
}
