//! A worker's answer, checked against the step that was asked for, as the scheduler's result.

use crate::pb;
use headrace_scheduler::{
    GroupId, RowOutcome, RowResult, SampledToken, Slot, StepOutcome, StepPlan, StepResult, TokenId,
};

/// A log-probability is at most 0; single-precision sums may end a hair above.
const LOGPROB_SLACK: f32 = 1e-3;

/// What was asked about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedRow {
    slot: Slot,
    num_tokens: u32,
    sample: bool,
    masked: bool,
    prompt_logprobs: bool,
    report: Report,
}

/// What a sequence asked to be told with each id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Report {
    logprobs: bool,
    top_n: u32,
    prompt_top_n: u32,
}

/// What was asked of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedStep {
    pub(crate) group: GroupId,
    pub(crate) step_id: u64,
    rows: Vec<ExpectedRow>,
}

/// Remembers what each slot's sequence asked for, so that answers can be checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotReports {
    by_slot: Vec<Report>,
}

impl SlotReports {
    /// Takes in a step that is about to be sent.
    pub(crate) fn expect(&mut self, plan: &StepPlan) -> ExpectedStep {
        for sequence in &plan.new_sequences {
            let index = sequence.slot as usize;
            if index >= self.by_slot.len() {
                self.by_slot.resize(index + 1, Report::default());
            }
            self.by_slot[index] = Report {
                logprobs: sequence.sampling.logprobs,
                top_n: sequence.sampling.top_n,
                prompt_top_n: sequence.sampling.prompt_top_n,
            };
        }
        let rows = plan
            .rows
            .iter()
            .map(|row| ExpectedRow {
                slot: row.slot,
                num_tokens: row.num_tokens,
                sample: row.sample,
                masked: row.masked,
                prompt_logprobs: row.prompt_logprobs,
                report: self
                    .by_slot
                    .get(row.slot as usize)
                    .copied()
                    .unwrap_or_default(),
            })
            .collect();
        ExpectedStep {
            group: plan.group,
            step_id: plan.step_id,
            rows,
        }
    }
}

/// What one rank's answer says, before the ranks are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeKind {
    Ok,
    Failed,
    OutOfMemory,
    Skipped,
}

/// The outcome of a rank's answer; an error says what is wrong with it.
pub(crate) fn outcome_kind(reply: &pb::StepReply) -> Result<OutcomeKind, String> {
    match pb::step_reply::Outcome::try_from(reply.outcome) {
        Ok(pb::step_reply::Outcome::Ok) => Ok(OutcomeKind::Ok),
        Ok(pb::step_reply::Outcome::Failed) => Ok(OutcomeKind::Failed),
        Ok(pb::step_reply::Outcome::OutOfMemory) => Ok(OutcomeKind::OutOfMemory),
        Ok(pb::step_reply::Outcome::Skipped) => Ok(OutcomeKind::Skipped),
        Ok(pb::step_reply::Outcome::Unspecified) | Err(_) => Err(format!(
            "step {}: outcome {} is none",
            reply.step_id, reply.outcome
        )),
    }
}

/// Rank 0's answer as the scheduler's result; an error says what is wrong with it.
pub(crate) fn decode_reply(
    expected: &ExpectedStep,
    reply: pb::StepReply,
    vocab_size: u32,
) -> Result<StepResult, String> {
    let outcome = match outcome_kind(&reply)? {
        OutcomeKind::Ok => StepOutcome::Ok(decode_rows(expected, reply.rows, vocab_size)?),
        kind => {
            if !reply.rows.is_empty() {
                return Err(format!(
                    "step {}: rows with an outcome that is not OK",
                    reply.step_id
                ));
            }
            match kind {
                OutcomeKind::OutOfMemory => StepOutcome::OutOfMemory(reply.error),
                OutcomeKind::Skipped => StepOutcome::Skipped,
                OutcomeKind::Ok | OutcomeKind::Failed => StepOutcome::Failed(reply.error),
            }
        }
    };
    Ok(StepResult {
        group: expected.group,
        step_id: expected.step_id,
        outcome,
    })
}

fn decode_rows(
    expected: &ExpectedStep,
    rows: Vec<pb::RowResult>,
    vocab_size: u32,
) -> Result<Vec<RowResult>, String> {
    if rows.len() != expected.rows.len() {
        return Err(format!(
            "step {}: {} rows answered, {} asked",
            expected.step_id,
            rows.len(),
            expected.rows.len()
        ));
    }
    expected
        .rows
        .iter()
        .zip(rows)
        .map(|(asked, row)| {
            decode_row(asked, row, vocab_size)
                .map_err(|what| format!("step {}, slot {}: {what}", expected.step_id, asked.slot))
        })
        .collect()
}

fn decode_row(
    asked: &ExpectedRow,
    row: pb::RowResult,
    vocab_size: u32,
) -> Result<RowResult, String> {
    if row.slot != asked.slot {
        return Err(format!("answered for slot {}", row.slot));
    }
    let status = pb::row_result::Status::try_from(row.status)
        .map_err(|_| format!("status {} is none", row.status))?;
    let outcome = match status {
        pb::row_result::Status::Unspecified => return Err("no status".to_owned()),
        pb::row_result::Status::Ok => {
            let wanted = usize::from(asked.sample);
            // Whether a masked row was called off is the scheduler's to judge.
            let called_off = asked.masked && row.tokens.is_empty();
            if row.tokens.len() != wanted && !called_off {
                return Err(format!("{} ids sampled, {wanted} asked", row.tokens.len()));
            }
            RowOutcome::Tokens(decode_tokens(row.tokens, asked.report, vocab_size)?)
        }
        failed => {
            if !row.tokens.is_empty() || !row.prompt_logprobs.is_empty() {
                return Err("ids in a row that failed".to_owned());
            }
            match failed {
                pb::row_result::Status::NonFinite => RowOutcome::NonFinite,
                _ => RowOutcome::Failed(row.error),
            }
        }
    };
    let most = if asked.prompt_logprobs {
        asked.num_tokens as usize
    } else {
        0
    };
    if row.prompt_logprobs.len() > most {
        return Err(format!(
            "{} prompt logprobs, at most {most} asked",
            row.prompt_logprobs.len()
        ));
    }
    let prompt_logprobs = decode_prompt(row.prompt_logprobs, asked.report, vocab_size)?;
    Ok(RowResult {
        slot: asked.slot,
        outcome,
        prompt_logprobs,
    })
}

fn decode_tokens(
    tokens: Vec<pb::SampledToken>,
    report: Report,
    vocab_size: u32,
) -> Result<Vec<SampledToken>, String> {
    tokens
        .into_iter()
        .map(|token| decode_token(token, report, vocab_size))
        .collect()
}

/// A prompt position always carries its logprob and its rank, whatever the sampled ids carry.
fn decode_prompt(
    tokens: Vec<pb::SampledToken>,
    report: Report,
    vocab_size: u32,
) -> Result<Vec<SampledToken>, String> {
    let report = Report {
        logprobs: true,
        top_n: report.prompt_top_n,
        ..report
    };
    tokens
        .into_iter()
        .map(|token| {
            let rank = token.rank;
            let token = decode_token(token, report, vocab_size)?;
            let Some(rank) = rank.filter(|rank| (1..=vocab_size).contains(rank)) else {
                return Err(format!("prompt id {} without its rank", token.id));
            };
            // The two ways of saying where an id stands agree.
            let listed = token.top.iter().position(|(id, _)| *id == token.id);
            let is_listed = rank as usize <= token.top.len();
            if listed.map_or(is_listed, |place| place + 1 != rank as usize) {
                return Err(format!(
                    "prompt id {} of rank {rank} is not there among the top ids",
                    token.id
                ));
            }
            Ok(SampledToken {
                rank: Some(rank),
                ..token
            })
        })
        .collect()
}

fn decode_token(
    token: pb::SampledToken,
    report: Report,
    vocab_size: u32,
) -> Result<SampledToken, String> {
    check_id(token.id, vocab_size)?;
    match token.logprob {
        Some(logprob) => check_logprob(logprob)?,
        None if report.logprobs => return Err(format!("id {} without its logprob", token.id)),
        None => {}
    }
    if token.top.len() != report.top_n.min(vocab_size) as usize {
        return Err(format!(
            "{} top ids, {} asked",
            token.top.len(),
            report.top_n
        ));
    }
    let mut top: Vec<(TokenId, f32)> = Vec::with_capacity(token.top.len());
    for entry in token.top {
        check_id(entry.id, vocab_size)?;
        check_logprob(entry.logprob)?;
        if let Some(&(id, logprob)) = top.last() {
            let in_order = logprob > entry.logprob || (logprob >= entry.logprob && id < entry.id);
            if !in_order {
                return Err(format!("top ids {id} and {} are out of order", entry.id));
            }
        }
        top.push((entry.id, entry.logprob));
    }
    Ok(SampledToken {
        id: token.id,
        logprob: token.logprob,
        top,
        rank: None,
    })
}

fn check_id(id: TokenId, vocab_size: u32) -> Result<(), String> {
    if id < vocab_size {
        return Ok(());
    }
    Err(format!(
        "id {id} is not below the vocabulary size {vocab_size}"
    ))
}

/// Minus infinity is a true answer: an id may have no probability at all.
fn check_logprob(logprob: f32) -> Result<(), String> {
    if logprob.is_nan() || logprob > LOGPROB_SLACK {
        return Err(format!("{logprob} is no log-probability"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
