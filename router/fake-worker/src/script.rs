//! What a fake worker is told to do: how long things take, and what goes wrong when.

use serde::Deserialize;
use std::time::Duration;

/// Timing, faults and outputs. The default takes no time and makes no mistake.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Microseconds that every step with rows takes, spun and not slept, since a sleep overshoots.
    pub step_micros: u64,
    /// Microseconds more for every token of a row with more than one.
    pub prefill_token_micros: u64,
    /// A step that computes more tokens than this answers `OUT_OF_MEMORY`.
    pub out_of_memory_above_tokens: Option<u32>,
    /// What goes wrong. Each happens once.
    pub faults: Vec<Fault>,
    /// Given outputs instead of the made-up model's.
    pub literal: Option<LiteralOutputs>,
    /// `Prepare` ends with this status and words instead of `Ready`.
    pub prepare_error: Option<PrepareError>,
    /// Milliseconds that `Prepare` takes, in ten reported stages.
    pub prepare_millis: u64,
    /// Milliseconds between heartbeats; absent: 1,000.
    pub heartbeat_millis: Option<u64>,
}

impl Script {
    /// How long a step of these row lengths takes.
    pub(crate) fn step_time(&self, row_tokens: impl Iterator<Item = u32>) -> Duration {
        let mut micros = 0;
        for tokens in row_tokens {
            micros = micros.max(self.step_micros)
                + if tokens > 1 {
                    u64::from(tokens) * self.prefill_token_micros
                } else {
                    0
                };
        }
        Duration::from_micros(micros)
    }

    pub(crate) fn heartbeat_period(&self) -> Duration {
        Duration::from_millis(self.heartbeat_millis.unwrap_or(1000).max(1))
    }
}

/// How `Prepare` fails.
#[derive(Clone, Debug, Deserialize)]
pub struct PrepareError {
    /// `FAILED_PRECONDITION` instead of `INTERNAL`.
    pub is_final: bool,
    /// The words.
    pub message: String,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Fault {
    /// When.
    pub when: Trigger,
    /// What.
    pub what: FaultKind,
}

/// When a fault happens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// At the n-th step (from 1) of this worker's life, all streams together.
    Step(u64),
    /// When a row's sequence holds this id. Such a fault happens every time.
    TokenId(u32),
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The worker is gone, without a word, before it answers.
    Die,
    /// It never answers again; its heartbeat goes on.
    Hang,
    /// Neither answers nor heartbeats, as after SIGSTOP.
    Freeze,
    /// The stream ends with a status.
    BreakStream,
    /// Row of this index (the trigger's row for a token trigger) answers `FAILED`.
    RowError(usize),
    /// Row of this index answers `NON_FINITE`.
    RowNotFinite(usize),
    /// The step answers `FAILED`.
    FailStep,
    /// The step answers `OUT_OF_MEMORY`.
    OutOfMemory,
    /// The step takes this many milliseconds more.
    SlowMillis(u64),
    /// The answer names another step.
    WrongStepId,
    /// The answer comes twice.
    AnswerTwice,
    /// An id at the vocabulary's size comes from the first row that samples.
    IdOutOfVocabulary,
    /// The last row is missing.
    RowMissing,
}

/// Outputs by prompt. After its last id a list gives `end_id` for ever. Being a function of the prompt and the output's
/// index, it survives preemption and restarts.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LiteralOutputs {
    /// (prompt ids, output ids).
    #[serde(default)]
    pub by_prompt: Vec<(Vec<u32>, Vec<u32>)>,
    /// For every other prompt; absent: the made-up model.
    #[serde(default)]
    pub otherwise: Option<Vec<u32>>,
    /// What follows a list.
    pub end_id: u32,
}

impl LiteralOutputs {
    /// The output id of this index after `prompt`, unless the made-up model is to give it.
    pub(crate) fn next_id(&self, prompt: &[u32], output_index: usize) -> Option<u32> {
        let list = self
            .by_prompt
            .iter()
            .find(|(given, _)| given == prompt)
            .map(|(_, output)| output)
            .or(self.otherwise.as_ref())?;
        Some(list.get(output_index).copied().unwrap_or(self.end_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_from_json() {
        let text = r#"{"step_micros": 5, "faults": [{"when": {"step": 3}, "what": "die"},
            {"when": {"token_id": 7}, "what": {"row_error": 0}}],
            "literal": {"otherwise": [1, 2], "end_id": 0}}"#;
        let script: Script = serde_json::from_str(text).unwrap();
        assert_eq!(
            script.faults[0],
            Fault {
                when: Trigger::Step(3),
                what: FaultKind::Die
            }
        );
        assert_eq!(script.faults[1].what, FaultKind::RowError(0));
        let literal = script.literal.unwrap();
        assert_eq!(literal.next_id(&[9], 1), Some(2));
        assert_eq!(literal.next_id(&[9], 2), Some(0));
    }

    #[test]
    fn decoding_rows_share_the_step_time() {
        let script = Script {
            step_micros: 100,
            prefill_token_micros: 2,
            ..Script::default()
        };
        assert_eq!(
            script.step_time([1, 1, 1].into_iter()),
            Duration::from_micros(100)
        );
        assert_eq!(
            script.step_time([1, 10].into_iter()),
            Duration::from_micros(120)
        );
        assert_eq!(script.step_time([].into_iter()), Duration::ZERO);
    }
}
