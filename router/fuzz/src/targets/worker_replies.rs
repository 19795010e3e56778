//! Bytes that a worker may answer with, against the steps that the scheduler planned: what the reader lets through, the
//! scheduler takes in or refuses, and its books stay right.

use crate::Target;
use crate::input::Choices;
use crate::mutate::mutate;
use crate::random::{Random, kind_of, mix};
use headrace_scheduler::{
    Event, GroupId, PolicyConfig, SamplingParams, Scheduler, SchedulerConfig, SequenceId,
    SequenceRequest, StepOutcome, StepPlan, Time,
};
use headrace_worker_client::pb;
use headrace_worker_client::{GroupDescription, ReplyReader};
use prost::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(super) const TARGET: Target = Target {
    name: "worker_replies",
    seeds: || vec![vec![7; 200]],
    fresh,
    run,
    words: &[],
    short: 8_000,
};

const GROUP: GroupId = GroupId(0);
const VOCAB: u32 = 40;

fn fresh(random: &mut Random) -> Vec<u8> {
    let count = random.below(300);
    random.bytes(count)
}

/// Slots as the worker knows them: how many tokens are due of each, and what it was asked to tell.
#[derive(Default)]
struct Slots {
    by_slot: BTreeMap<u32, Told>,
}

struct Told {
    sampling: SamplingParams,
    computed: u32,
    prompt_length: u32,
}

fn run(input: &[u8]) -> u64 {
    let mut choices = Choices::of(input);
    let mut met = describe(&mut choices);
    let mut scheduler = Scheduler::new(SchedulerConfig {
        block_size: 4,
        max_batch_tokens: 16,
        max_sequences: 3,
        max_total_tokens: 64,
        prefix_caching: true,
        max_waiting_sequences: 8,
        max_waiting_tokens: 1000,
        max_steps_in_flight: choices.u32_between(1, 2),
        policy: PolicyConfig::default(),
    });
    scheduler.group_up(Time::default(), GROUP, 20);
    let mut reader = ReplyReader::new(VOCAB);
    let mut slots = Slots::default();
    let mut steps: VecDeque<StepPlan> = VecDeque::new();
    let mut now = Time::default();
    let mut next_id = 0;
    while !choices.is_over() {
        now.0 += Duration::from_millis(1);
        if choices.percent(40) {
            next_id += 1;
            // A refusal is fine: the queue is short.
            let _ = scheduler.submit(now, request(&mut choices, next_id));
        }
        if choices.percent(5) {
            scheduler.cancel(now, SequenceId(u64::from(choices.byte()) % (next_id + 1)));
        }
        while let Some(plan) = scheduler.plan(now, GROUP) {
            reader.expect(&plan);
            steps.push_back(plan);
        }
        let Some(plan) = steps.pop_front() else {
            continue;
        };
        let good = slots.answer(&plan, &mut choices);
        let bytes = spoiled(&good, &mut choices);
        match reader.read(&bytes) {
            Err(words) => {
                assert!(words.len() < 4000, "{} bytes of words", words.len());
                met = mix(met, kind_of(&words));
                scheduler.group_down(now, GROUP);
            }
            Ok(result) => {
                check_within(&result.outcome);
                match scheduler.complete(now, result) {
                    Ok(events) => {
                        met = mix(met, events.len() as u64);
                        events.iter().for_each(check_event);
                        scheduler.audit();
                        continue;
                    }
                    Err(violation) => {
                        met = mix(met, kind_of(&violation.to_string()));
                        scheduler.group_down(now, GROUP);
                    }
                }
            }
        }
        // A bad answer ends the group; it comes up again, empty.
        scheduler.audit();
        steps.clear();
        slots = Slots::default();
        reader = ReplyReader::new(VOCAB);
        scheduler.group_up(now, GROUP, 20);
    }
    met
}

fn request(choices: &mut Choices<'_>, id: u64) -> SequenceRequest {
    let prompt: Vec<u32> = (0..=choices.below(12))
        .map(|_| choices.u32_between(0, 3))
        .collect();
    let sampling = SamplingParams {
        logprobs: choices.percent(50),
        top_n: choices.pick(&[0, 0, 2, 5]),
        prompt_top_n: choices.pick(&[0, 0, 2, 5]),
        ..SamplingParams::greedy()
    };
    let mut request = SequenceRequest::greedy(SequenceId(id), prompt, choices.u32_between(1, 8));
    request.stop.eos_token_ids = Arc::from([1]);
    request.sampling = sampling;
    request.prompt_logprobs = choices.percent(20);
    request
}

impl Slots {
    /// A good answer.
    fn answer(&mut self, plan: &StepPlan, choices: &mut Choices<'_>) -> pb::StepReply {
        for slot in &plan.finished_slots {
            self.by_slot.remove(slot);
        }
        for new in &plan.new_sequences {
            let told = Told {
                sampling: new.sampling.clone(),
                computed: new.computed_length,
                prompt_length: new.prompt_length,
            };
            self.by_slot.insert(new.slot, told);
        }
        let rows = plan.rows.iter().map(|row| {
            let told = self.by_slot.get_mut(&row.slot).expect("a slot in use");
            let (start, end) = (told.computed, told.computed + row.num_tokens);
            told.computed = end;
            let mut token = |logprob: bool, top_n: u32| {
                let top = (0..top_n).map(|rank| pb::TokenLogprob {
                    id: rank,
                    logprob: -0.5 - rank as f32,
                });
                pb::SampledToken {
                    id: choices.u32_between(0, VOCAB - 1),
                    logprob: logprob.then_some(-0.25),
                    top: top.collect(),
                    rank: None,
                }
            };
            let tokens = (0..u32::from(row.sample))
                .map(|_| token(told.sampling.logprobs, told.sampling.top_n))
                .collect();
            let due = if row.prompt_logprobs {
                end.min(told.prompt_length - 1).saturating_sub(start)
            } else {
                0
            };
            pb::RowResult {
                slot: row.slot,
                status: pb::row_result::Status::Ok.into(),
                error: String::new(),
                tokens,
                prompt_logprobs: (0..due)
                    .map(|_| {
                        let token = token(true, told.sampling.prompt_top_n);
                        // The best ids are 0, 1, 2 … here.
                        pb::SampledToken {
                            rank: Some(token.id + 1),
                            ..token
                        }
                    })
                    .collect(),
            }
        });
        pb::StepReply {
            step_id: plan.step_id,
            outcome: pb::step_reply::Outcome::Ok.into(),
            error: String::new(),
            rows: rows.collect(),
            timings: None,
        }
    }
}

/// The answer as bytes: as it is, with one field wrong, or with wrong bytes.
fn spoiled(good: &pb::StepReply, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut reply = good.clone();
    match choices.below(12) {
        0 => reply.outcome = i32::from(choices.byte()) - 2,
        1 => {
            reply.step_id = reply
                .step_id
                .wrapping_add(u64::from(choices.byte()))
                .wrapping_sub(2);
        }
        2 => {
            reply.rows.pop();
        }
        3 => reply.rows.extend(good.rows.first().cloned()),
        4 => {
            reply.rows.clear();
            reply.outcome = choices.pick(&[2, 3, 4]);
            reply.error = "why".repeat(choices.below(40));
        }
        5 => {
            if let Some(row) = reply.rows.first_mut() {
                row.status = i32::from(choices.byte()) - 2;
                if choices.percent(50) {
                    row.tokens.clear();
                    row.prompt_logprobs.clear();
                }
            }
        }
        6 => {
            if let Some(token) = reply.rows.last_mut().and_then(|row| row.tokens.first_mut()) {
                token.id = choices.pick(&[VOCAB, u32::MAX, VOCAB - 1, 0]);
                token.logprob = choices.pick(&[
                    None,
                    Some(f32::NAN),
                    Some(f32::INFINITY),
                    Some(f32::NEG_INFINITY),
                ]);
            }
        }
        7 => {
            if let Some(row) = reply.rows.last_mut() {
                row.prompt_logprobs.extend(row.tokens.clone());
            }
        }
        8 => {
            let bytes = reply.encode_to_vec();
            let mut random = Random::new(choices.word().into());
            return mutate(&mut random, &bytes, &bytes, &[]);
        }
        9 => return choices.take(40).to_vec(),
        _ => {}
    }
    reply.encode_to_vec()
}

/// What was let through lies within what was asked.
fn check_within(outcome: &StepOutcome) {
    let StepOutcome::Ok(rows) = outcome else {
        return;
    };
    for row in rows {
        for token in &row.prompt_logprobs {
            assert!(token.id < VOCAB);
        }
        if let headrace_scheduler::RowOutcome::Tokens(tokens) = &row.outcome {
            for token in tokens {
                assert!(token.id < VOCAB);
                assert!(token.logprob.is_none_or(|logprob| logprob < 0.1));
                assert!(
                    token
                        .top
                        .iter()
                        .all(|(id, logprob)| *id < VOCAB && *logprob < 0.1)
                );
            }
        }
    }
}

fn check_event(event: &Event) {
    if let Event::Token { token, .. } = event {
        assert!(token.id < VOCAB);
    }
}

/// What the ranks say of themselves at start.
fn describe(choices: &mut Choices<'_>) -> u64 {
    let mut replies = Vec::new();
    for rank in 0..choices.below(3) {
        let good = pb::DescribeReply {
            rank: u32::try_from(rank).unwrap_or(0),
            world_size: 1 + u32::from(choices.percent(50)),
            device: "cpu".to_owned(),
            compute_dtype: "float32".to_owned(),
            vocab_size: choices.pick(&[VOCAB, 0, u32::MAX]),
            max_position_embeddings: 64,
            kv_groups: vec![pb::KvGroup::default(); choices.pick(&[1, 1, 1, 0, 2])],
            max_steps_in_flight: choices.pick(&[2, 1, 0, u32::MAX]),
            kernel_set: "torch".to_owned(),
            prompt_logprobs: true,
            attention_backend: "torch".to_owned(),
        };
        let bytes = good.encode_to_vec();
        let bytes = if choices.percent(20) {
            let mut random = Random::new(choices.word().into());
            mutate(&mut random, &bytes, &bytes, &[])
        } else {
            bytes
        };
        let Ok(reply) = pb::DescribeReply::decode(bytes.as_slice()) else {
            return 3;
        };
        replies.push(reply);
    }
    match GroupDescription::from_replies(&replies) {
        Ok(description) => {
            assert_eq!(description.world_size, replies.len());
            assert!(description.vocab_size > 0 && description.max_steps_in_flight > 0);
            1
        }
        Err(error) => {
            assert!(error.is_final());
            kind_of(&error.to_string())
        }
    }
}
