use super::*;
use headrace_scheduler::{NewSequence, Row, SamplingParams};

const VOCAB: u32 = 100;

fn expected() -> ExpectedStep {
    let sampling = SamplingParams {
        logprobs: true,
        top_n: 2,
        prompt_top_n: 2,
        ..SamplingParams::greedy()
    };
    let plan = StepPlan {
        step_id: 4,
        new_sequences: vec![NewSequence {
            slot: 6,
            token_ids: vec![1, 2, 3],
            prompt_length: 3,
            computed_length: 0,
            blocks: vec![0],
            sampling,
        }],
        rows: vec![
            Row {
                slot: 1,
                num_tokens: 1,
                sample: true,
                prompt_logprobs: false,
                masked: false,
            },
            Row {
                slot: 6,
                num_tokens: 3,
                sample: true,
                prompt_logprobs: true,
                masked: false,
            },
        ],
        ..StepPlan::default()
    };
    SlotReports::default().expect(&plan)
}

fn token(id: u32) -> pb::SampledToken {
    pb::SampledToken {
        id,
        logprob: None,
        top: vec![],
        rank: None,
    }
}

fn rich(id: u32) -> pb::SampledToken {
    let top = vec![
        pb::TokenLogprob {
            id: 9,
            logprob: -0.5,
        },
        pb::TokenLogprob {
            id: 4,
            logprob: -1.5,
        },
    ];
    pb::SampledToken {
        id,
        logprob: Some(-0.5),
        top,
        rank: None,
    }
}

fn ranked(id: u32, rank: u32) -> pb::SampledToken {
    pb::SampledToken {
        rank: Some(rank),
        ..rich(id)
    }
}

fn row(slot: u32, tokens: Vec<pb::SampledToken>) -> pb::RowResult {
    pb::RowResult {
        slot,
        status: pb::row_result::Status::Ok.into(),
        error: String::new(),
        tokens,
        prompt_logprobs: vec![],
    }
}

fn good() -> pb::StepReply {
    let mut second = row(6, vec![rich(9)]);
    second.prompt_logprobs = vec![ranked(2, 3), ranked(4, 2)];
    pb::StepReply {
        step_id: 4,
        outcome: pb::step_reply::Outcome::Ok.into(),
        error: String::new(),
        rows: vec![row(1, vec![token(42)]), second],
        timings: None,
    }
}

#[test]
fn a_good_reply_comes_through_whole() {
    let result = decode_reply(&expected(), good(), VOCAB).unwrap();
    assert_eq!(result.step_id, 4);
    let StepOutcome::Ok(rows) = result.outcome else {
        panic!("not OK")
    };
    assert_eq!(
        rows[0].outcome,
        RowOutcome::Tokens(vec![SampledToken {
            id: 42,
            logprob: None,
            top: vec![],
            rank: None,
        }])
    );
    assert_eq!(rows[1].prompt_logprobs.len(), 2);
    assert_eq!(
        rows[1].outcome,
        RowOutcome::Tokens(vec![SampledToken {
            id: 9,
            logprob: Some(-0.5),
            top: vec![(9, -0.5), (4, -1.5)],
            rank: None,
        }])
    );
}

#[test]
fn each_way_of_being_wrong_is_noticed() {
    type Spoil = fn(&mut pb::StepReply);
    let ways: [(&str, Spoil); 23] = [
        ("no outcome", |reply| reply.outcome = 0),
        ("unknown outcome", |reply| reply.outcome = 77),
        ("a row too few", |reply| {
            reply.rows.pop();
        }),
        ("a row too many", |reply| {
            reply.rows.push(row(2, vec![]));
        }),
        ("rows swapped", |reply| {
            reply.rows.swap(0, 1);
        }),
        ("no status", |reply| {
            reply.rows[0].status = 0;
        }),
        ("unknown status", |reply| {
            reply.rows[0].status = 9;
        }),
        ("no id", |reply| {
            reply.rows[0].tokens.clear();
        }),
        ("two ids", |reply| {
            reply.rows[0].tokens.push(token(1));
        }),
        ("id out of the vocabulary", |reply| {
            reply.rows[0].tokens[0].id = VOCAB;
        }),
        ("logprob missing", |reply| {
            reply.rows[1].tokens[0].logprob = None;
        }),
        ("logprob NaN", |reply| {
            reply.rows[1].tokens[0].logprob = Some(f32::NAN);
        }),
        ("logprob above 0", |reply| {
            reply.rows[1].tokens[0].logprob = Some(0.5);
        }),
        ("a top id too few", |reply| {
            reply.rows[1].tokens[0].top.pop();
        }),
        ("top ids out of order", |reply| {
            reply.rows[1].tokens[0].top.swap(0, 1);
        }),
        ("prompt logprobs not asked for", |reply| {
            reply.rows[0].prompt_logprobs.push(rich(1));
        }),
        ("prompt id without its rank", |reply| {
            reply.rows[1].prompt_logprobs[0].rank = None;
        }),
        ("rank 0", |reply| {
            reply.rows[1].prompt_logprobs[0].rank = Some(0);
        }),
        ("rank beyond the vocabulary", |reply| {
            reply.rows[1].prompt_logprobs[0].rank = Some(VOCAB + 1);
        }),
        ("rank beside the list of the best", |reply| {
            reply.rows[1].prompt_logprobs[0].rank = Some(2);
        }),
        ("rank of a listed id elsewhere", |reply| {
            reply.rows[1].prompt_logprobs[1].rank = Some(1);
        }),
        ("a top id of the prompt too few", |reply| {
            reply.rows[1].prompt_logprobs[0].top.pop();
        }),
        ("ids in a failed row", |reply| {
            reply.rows[0].status = pb::row_result::Status::Failed.into();
        }),
    ];
    for (name, spoil) in ways {
        let mut reply = good();
        spoil(&mut reply);
        assert!(decode_reply(&expected(), reply, VOCAB).is_err(), "{name}");
    }
    let mut failed = good();
    failed.outcome = pb::step_reply::Outcome::Failed.into();
    assert!(
        decode_reply(&expected(), failed, VOCAB).is_err(),
        "rows in a failed step"
    );
}

#[test]
fn failures_of_rows_and_steps_come_through() {
    let mut reply = good();
    reply.rows[0].tokens.clear();
    reply.rows[0].status = pb::row_result::Status::NonFinite.into();
    reply.rows[1].tokens.clear();
    reply.rows[1].prompt_logprobs.clear();
    reply.rows[1].status = pb::row_result::Status::Failed.into();
    reply.rows[1].error = "bad id".to_owned();
    let StepOutcome::Ok(rows) = decode_reply(&expected(), reply, VOCAB).unwrap().outcome else {
        panic!("not OK")
    };
    assert_eq!(rows[0].outcome, RowOutcome::NonFinite);
    assert_eq!(rows[1].outcome, RowOutcome::Failed("bad id".to_owned()));

    let whole = |outcome: pb::step_reply::Outcome| {
        let reply = pb::StepReply {
            step_id: 4,
            outcome: outcome.into(),
            error: "why".to_owned(),
            rows: vec![],
            timings: None,
        };
        decode_reply(&expected(), reply, VOCAB).unwrap().outcome
    };
    assert_eq!(
        whole(pb::step_reply::Outcome::Failed),
        StepOutcome::Failed("why".to_owned())
    );
    assert_eq!(
        whole(pb::step_reply::Outcome::OutOfMemory),
        StepOutcome::OutOfMemory("why".to_owned())
    );
    assert_eq!(
        whole(pb::step_reply::Outcome::Skipped),
        StepOutcome::Skipped
    );
}

/// Whether its sequence is over is the scheduler's to judge.
#[test]
fn a_masked_row_may_be_called_off() {
    let mut asked = expected();
    let mut called_off = good();
    called_off.rows[0].tokens.clear();
    assert!(decode_reply(&asked, called_off.clone(), VOCAB).is_err());
    asked.rows[0].masked = true;
    let StepOutcome::Ok(rows) = decode_reply(&asked, called_off, VOCAB).unwrap().outcome else {
        panic!("not OK")
    };
    assert_eq!(rows[0].outcome, RowOutcome::Tokens(vec![]));
    assert!(decode_reply(&asked, good(), VOCAB).is_ok());
    let mut two = good();
    two.rows[0].tokens.push(token(1));
    assert!(decode_reply(&asked, two, VOCAB).is_err());
}
