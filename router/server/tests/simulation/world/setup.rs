//! A world's limits and chances, and the requests that come.

use super::{
    Arc, BTreeMap, BTreeSet, Chances, Client, Duration, EngineConfig, EngineCore, Group, Input,
    Launcher, MaskDesk, Metrics, Random, Reader, SamplingParams, SequenceRequest, StopConditions,
    SubmitError, SubmitFailure, Time, ToRouter, TokenId, Totals, VOCAB, VecDeque, World,
};
use crate::grammars;
use headrace_control::{ModelDocument, RouterConfig, TokenizerSource, Weights};
use headrace_router::engine::Watchdog;
use std::path::PathBuf;

thread_local! {
    /// Counters only: building them for every seed would take most of its time.
    static METRICS: Arc<Metrics> = Arc::new(Metrics::new());
}

fn flags() -> RouterConfig {
    serde_json::from_value(serde_json::json!({
        "hostname": "127.0.0.1", "port": 0, "prometheus_port": null, "max_concurrent_requests": 128,
        "max_best_of": 2, "max_stop_sequences": 4, "max_top_n_tokens": 5, "max_input_tokens": null,
        "max_total_tokens": null, "max_batch_prefill_tokens": null, "max_batch_total_tokens": null,
        "max_batch_size": null, "max_queued_tokens": null, "schedule_policy": "fcfs", "target_itl_ms": null,
        "stall_timeout_seconds": 60, "max_client_batch_size": 4, "validation_workers": 2, "payload_limit": 2_000_000,
        "api_keys": [], "admin_key": null, "cors_allow_origin": [], "disable_grammar_support": false,
        "lenient_grammar": false, "strict_model_name": false, "guard_info_and_metrics": false, "completions_default_max_tokens": null,
        "kv_cache_bytes": null, "block_size": 16, "prefix_caching": true, "poison_fresh_blocks": false,
        "log_level": "error", "compute_type": "cpu", "docker_label": null,
    }))
    .expect("the flags of RouterConfig")
}

fn document() -> ModelDocument {
    ModelDocument {
        model_id: "made-up".to_owned(),
        revision: None,
        pipeline_tag: None,
        weights: Weights::Safetensors { files: Vec::new() },
        config: serde_json::Value::Null,
        tokenizer: TokenizerSource::TokenizerJson {
            path: PathBuf::new(),
        },
        tokenizer_config: None,
        chat_template: None,
        generation_config: None,
        dtype: "float32".to_owned(),
        max_position_embeddings: 4096,
        vocab_size: VOCAB,
    }
}

impl World {
    #[expect(clippy::too_many_lines, reason = "a list of limits and chances")]
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let config = EngineConfig {
            block_size: random.pick(&[1, 2, 4, 4, 8]),
            max_batch_tokens: random.pick(&[1, 2, 7, 16, 64]),
            max_sequences: random.u32_between(1, 8),
            max_total_tokens: random.pick(&[None, None, Some(8), Some(40)]),
            prefix_caching: random.percent(90),
            max_waiting_sequences: random.pick(&[1, 4, 100]),
            max_waiting_tokens: random.pick(&[10, 1000]),
            max_steps_in_flight: random.u32_between(1, 3),
            stall_timeout: Duration::from_secs(3),
            watchdog: Watchdog {
                silence: Duration::from_secs(2),
                step: Duration::from_mins(1),
                ..Watchdog::default()
            },
            ..EngineConfig::new(&flags())
        };
        let faulty = random.percent(70);
        let mut chance = |chances: &[usize]| if faulty { random.pick(chances) } else { 0 };
        let chances = Chances {
            step_fault: chance(&[0, 3, 15, 40]),
            row_fault: chance(&[0, 3, 15]),
            death: chance(&[0, 1, 4, 10]),
            hang: chance(&[0, 0, 1, 3]),
            double: chance(&[0, 0, 5]),
            failed_start: chance(&[0, 20, 60]),
            final_loss: chance(&[0, 0, 0, 0, 1]),
            arrive: random.between(5, 70),
            leave: random.pick(&[0, 2, 10, 30]),
            answer: random.between(10, 100),
            drain: random.pick(&[0, 0, 0, 2]),
            flush: random.pick(&[0, 0, 3]),
            jump: random.pick(&[0, 3]),
            poison: random.pick(&[0, 0, 0, 0, 4]),
        };
        let long = random.percent(5);
        let mut chances = chances;
        if long {
            // Few arrivals that run far.
            chances.arrive = 3;
            chances.leave = 0;
            chances.answer = 95;
            chances.death = chances.death.min(1);
            chances.hang = 0;
            chances.double = 0;
            chances.drain = 0;
            chances.final_loss = 0;
            chances.step_fault = chances.step_fault.min(3);
            chances.row_fault = 0;
            chances.jump = 5;
        }
        let num_blocks = if long {
            random.pick(&[100, 300])
        } else {
            random.pick(&[2, 3, 4, 8, 16, 60])
        };
        let core = EngineCore::new(config.clone(), METRICS.with(Arc::clone));
        let (handle, commands) = core.connect();
        let mut world = Self {
            num_blocks,
            random,
            config,
            chances,
            core,
            handle,
            commands,
            launcher: Launcher::new(),
            desk: MaskDesk::default(),
            orders: VecDeque::new(),
            long,
            group: Group::Down,
            stale: Vec::new(),
            clients: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            hung: false,
            heard: Time::default(),
            draining: None,
            lost: false,
            end: None,
            now: Time::default(),
            totals: Totals::default(),
            trace: seed,
        };
        world.feed(Input::Control(ToRouter::Model(Box::new(document()))));
        world.handle.services_ready();
        world
    }

    /// A request, long before the group is ready or long after the drain began.
    pub(super) fn arrive(&mut self) {
        let limit = self
            .core
            .scheduler()
            .map_or(40, headrace_scheduler::Scheduler::max_total_tokens)
            .min(if self.long { 400 } else { 60 });
        let random = &mut self.random;
        let prompt_length = random.u32_between(1, limit.min(20));
        // A bit over the limit now and then.
        let max_new_tokens = random
            .u32_between(1, (limit - prompt_length.min(limit)).max(1) + 1)
            .min(if self.long { 300 } else { 24 });
        // Few different prompts, so that prefixes are shared.
        let mut dice = Random::new(random.next() % 3);
        let prompt: Arc<[TokenId]> = (0..prompt_length)
            .map(|_| {
                let usual = dice.u32_between(0, VOCAB - 1);
                let stray = random.u32_between(0, VOCAB - 1);
                if random.percent(5) { stray } else { usual }
            })
            .collect();
        let namespace = random.next() % 2;
        let id = self.handle.next_sequence_id();
        let grammar = random.percent(25).then(|| grammars::grammar(random.next()));
        let deadline = random.percent(10).then(|| {
            let ahead = Duration::from_micros(random.next() % 60_000);
            Time(self.now.0 + ahead)
        });
        let request = SequenceRequest {
            sampling: SamplingParams {
                // What the worker needs to know.
                seed: id.0,
                top_k: Some(u32::try_from(namespace).unwrap() + 1),
                ..SamplingParams::greedy()
            },
            stop: StopConditions {
                max_new_tokens,
                eos_token_ids: if grammar.is_some() {
                    Arc::from([grammars::EOS])
                } else if random.percent(40) && !self.long {
                    Arc::from([0])
                } else {
                    Arc::from([])
                },
                ..StopConditions::default()
            },
            priority: i32::from(random.percent(20)),
            tenant: random.next() % 3,
            deadline,
            namespace,
            ..SequenceRequest::greedy(id, prompt, max_new_tokens)
        };
        let reader = random.pick(&[
            Reader::Prompt,
            Reader::Prompt,
            Reader::Prompt,
            Reader::Slow,
            Reader::Stalled,
        ]);
        let asked = self
            .handle
            .begin_submit(request.clone(), grammar.clone())
            .expect("a valid sequence");
        self.totals.submitted += 1;
        let mut client = Client::new(request, grammar.as_ref(), reader, asked);
        client.early = self.launcher.ready == 0;
        client.poison = self.random.percent(self.chances.poison);
        client.outside_kills = self.chances.death + self.chances.hang + self.chances.double > 0;
        self.clients.insert(id, client);
    }

    /// Whether a refusal has its cause in how things stand.
    pub(super) fn is_due(&self, client: &Client, refusal: &SubmitFailure) -> bool {
        match refusal {
            SubmitFailure::Draining => self.draining.is_some(),
            SubmitFailure::NotReady => self.lost || client.early,
            SubmitFailure::EngineGone => self.end.is_some(),
            SubmitFailure::Queue(SubmitError::QueueFull { waiting }) => *waiting > 0,
            SubmitFailure::Queue(SubmitError::TooLong { limit, .. }) => {
                let new = u64::from(client.request.stop.max_new_tokens);
                client.request.prompt.len() as u64 + new > *limit
            }
            SubmitFailure::Queue(SubmitError::DeadlineTooClose { .. }) => {
                client.request.deadline.is_some()
            }
            _ => false,
        }
    }
}
