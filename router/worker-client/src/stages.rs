//! How far all ranks of a group are, from what each says of itself.

use crate::pb::prepare_progress::Stage;
use crate::start::PrepareStage;

/// The stages that each rank has been in, oldest first, with its last word on each.
#[derive(Debug)]
pub(crate) struct RankStages {
    ranks: Vec<Vec<Stage>>,
}

impl RankStages {
    pub(crate) fn new(num_ranks: usize) -> Self {
        Self {
            ranks: vec![Vec::new(); num_ranks],
        }
    }

    /// Takes in a rank's word and sums up the stage of the slowest rank. A rank that has not said anything of that
    /// stage counts as one with as much to do as the others, and one that is past it as done, so that the sum's total
    /// stays and its `done` only grows.
    pub(crate) fn take(&mut self, rank: usize, stage: Stage) -> Option<PrepareStage> {
        let known = self.ranks.get_mut(rank)?;
        match known.iter_mut().find(|known| known.name == stage.name) {
            Some(place) => *place = stage,
            None => known.push(stage),
        }
        let fastest = self.ranks.iter().max_by_key(|known| known.len())?;
        let slowest = self.ranks.iter().map(Vec::len).min()?.max(1);
        let current = fastest.get(slowest - 1)?;
        let last_words = |known: &Vec<Stage>| {
            let place = known.iter().position(|stage| stage.name == current.name)?;
            let stage = known.get(place)?;
            let is_past = place + 1 < known.len();
            Some((if is_past { stage.total } else { stage.done }, stage.total))
        };
        let words: Vec<_> = self.ranks.iter().map(last_words).collect();
        let most = words.iter().flatten().map(|(_, total)| *total).max()?;
        let mut sum = PrepareStage {
            name: current.name.clone(),
            done: 0,
            total: 0,
            unit: current.unit.clone(),
        };
        for word in words {
            let (done, total) = word.unwrap_or((0, most));
            sum.done = sum.done.saturating_add(done);
            sum.total = sum.total.saturating_add(total);
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(stages: &mut RankStages, rank: usize, name: &str, done: u64, total: u64) -> String {
        let stage = Stage {
            name: name.to_owned(),
            done,
            total,
            unit: "bytes".to_owned(),
        };
        let sum = stages.take(rank, stage).expect("a known rank");
        format!("{} {}/{}", sum.name, sum.done, sum.total)
    }

    #[test]
    fn the_total_stays_whichever_rank_speaks() {
        let mut stages = RankStages::new(2);
        assert_eq!(say(&mut stages, 0, "weights", 0, 100), "weights 0/200");
        assert_eq!(say(&mut stages, 0, "weights", 40, 100), "weights 40/200");
        assert_eq!(say(&mut stages, 1, "weights", 10, 100), "weights 50/200");
        assert_eq!(say(&mut stages, 0, "weights", 100, 100), "weights 110/200");
        // Rank 0 waits in the next stage; the group is still in this one.
        assert_eq!(say(&mut stages, 0, "kv cache", 0, 8), "weights 110/200");
        assert_eq!(say(&mut stages, 1, "weights", 90, 100), "weights 190/200");
        assert_eq!(say(&mut stages, 1, "kv cache", 3, 8), "kv cache 3/16");
        assert_eq!(say(&mut stages, 0, "kv cache", 8, 8), "kv cache 11/16");
    }

    #[test]
    fn one_rank_says_what_it_said() {
        let mut stages = RankStages::new(1);
        assert_eq!(say(&mut stages, 0, "weights", 3, 7), "weights 3/7");
        assert_eq!(say(&mut stages, 0, "warm-up", 0, 2), "warm-up 0/2");
        let nobody = Stage::default();
        assert!(stages.take(1, nobody).is_none());
    }
}
