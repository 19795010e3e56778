//! An engine with fake workers over real sockets, and a small launcher that restarts them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    dead_code,
    reason = "test code, shared by several test binaries"
)]

use headrace_control::{ModelDocument, ToLauncher, ToRouter, TokenizerSource, Weights};
use headrace_fake_worker::{
    FakeWorker, Fault, FaultKind, Script, Trigger, WorkerOptions, expected_output,
    expected_sampled_output,
};
use headrace_router::engine::{
    EngineConfig, EngineHandle, EngineStats, LauncherLink, RunningEngine, SequenceEvent,
    SequenceStream, SubmitFailure, Watchdog,
};
use headrace_router::metrics::Metrics;
use headrace_scheduler::{FinishReason, PolicyConfig, SequenceFailure, SequenceRequest};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;

pub const VOCAB: u32 = 1000;

/// How a harness is set up.
pub struct Setup {
    pub config: EngineConfig,
    pub num_blocks: u32,
    /// One list of rank scripts for each start of the group; the last one is used again and again.
    pub starts: Vec<Vec<Script>>,
    pub services_ready: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: EngineConfig {
                block_size: 4,
                max_batch_tokens: 64,
                max_sequences: 16,
                max_total_tokens: None,
                max_input_tokens: None,
                max_blocks: None,
                kv_cache_bytes: None,
                poison_fresh_blocks: true,
                prefix_caching: true,
                max_waiting_sequences: 10_000,
                max_waiting_tokens: 1 << 30,
                max_steps_in_flight: 1,
                policy: PolicyConfig::default(),
                stall_timeout: Duration::from_mins(1),
                watchdog: Watchdog::default(),
            },
            num_blocks: 512,
            starts: vec![vec![Script::default()]],
            services_ready: true,
        }
    }
}

/// What the launcher side saw.
#[derive(Default)]
pub struct Seen {
    pub messages: Mutex<Vec<ToLauncher>>,
    pub workers: Mutex<Vec<FakeWorker>>,
    /// First misuse of any worker that is gone.
    pub misuse: Mutex<Option<String>>,
    pub starts: Mutex<u64>,
}

impl Seen {
    pub fn kill_reasons(&self) -> Vec<String> {
        self.messages
            .lock()
            .unwrap()
            .iter()
            .filter_map(|message| match message {
                ToLauncher::KillGroup { reason, .. } => Some(reason.clone()),
                _ => None,
            })
            .collect()
    }
}

pub struct Harness {
    pub handle: EngineHandle,
    pub control: mpsc::UnboundedSender<ToRouter>,
    pub engine: RunningEngine,
    pub seen: Arc<Seen>,
    pub metrics: Arc<Metrics>,
    folder: Arc<TempDir>,
}

pub fn document() -> ModelDocument {
    ModelDocument {
        model_id: "fake".to_owned(),
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

impl Harness {
    /// Starts everything; does not wait until it is ready.
    pub fn start(setup: Setup) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let (control, control_receiver) = mpsc::unbounded_channel();
        let (link, outgoing) = LauncherLink::channel();
        let metrics = Arc::new(Metrics::new());
        let engine =
            RunningEngine::start(setup.config, control_receiver, link, Arc::clone(&metrics))
                .unwrap();
        let handle = engine.handle();
        control.send(ToRouter::Model(Box::new(document()))).unwrap();
        if setup.services_ready {
            handle.services_ready();
        }
        let seen = Arc::new(Seen::default());
        let launcher = MiniLauncher {
            folder: Arc::clone(&folder),
            control: control.clone(),
            seen: Arc::clone(&seen),
            num_blocks: setup.num_blocks,
            starts: setup.starts.into(),
        };
        tokio::spawn(launcher.run(outgoing));
        Self {
            handle,
            control,
            engine,
            seen,
            metrics,
            folder,
        }
    }

    /// Starts everything and waits until requests are taken.
    pub async fn ready(setup: Setup) -> Self {
        let harness = Self::start(setup);
        harness
            .wait_until("ready", |harness| harness.handle.status().ready)
            .await;
        harness
    }

    pub async fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..2000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never {what}: {:?}", self.handle.status());
    }

    pub fn request(&self, prompt: &[u32], max_new_tokens: u32) -> SequenceRequest {
        SequenceRequest::greedy(self.handle.next_sequence_id(), prompt, max_new_tokens)
    }

    pub async fn submit(
        &self,
        prompt: &[u32],
        max_new_tokens: u32,
    ) -> Result<SequenceStream, SubmitFailure> {
        self.handle
            .submit(self.request(prompt, max_new_tokens), None)
            .await
    }

    /// Waits until nothing is open, then checks the books: every block is free or cached.
    pub async fn check_books(&self) -> EngineStats {
        self.wait_until("idle", |harness| {
            let stats = harness.handle.status().stats;
            stats.open_streams == 0
                && stats.running == 0
                && stats.waiting == 0
                && stats.steps_in_flight == 0
                && stats.owned_blocks == 0
        })
        .await;
        let stats = self.handle.status().stats;
        assert_eq!(
            stats.free_blocks + stats.cached_blocks,
            stats.total_blocks,
            "{stats:?}"
        );
        assert_eq!(self.misuse(), None);
        stats
    }

    pub fn misuse(&self) -> Option<String> {
        let gone = self.seen.misuse.lock().unwrap().clone();
        gone.or_else(|| {
            self.seen
                .workers
                .lock()
                .unwrap()
                .iter()
                .find_map(FakeWorker::misuse)
        })
    }
}

/// Starts the group, and again whenever the engine asks for it.
struct MiniLauncher {
    folder: Arc<TempDir>,
    control: mpsc::UnboundedSender<ToRouter>,
    seen: Arc<Seen>,
    num_blocks: u32,
    starts: VecDeque<Vec<Script>>,
}

impl MiniLauncher {
    async fn run(mut self, mut outgoing: mpsc::UnboundedReceiver<ToLauncher>) {
        self.start_group();
        while let Some(message) = outgoing.recv().await {
            let kill = match &message {
                ToLauncher::KillGroup { reason, .. } => Some(reason.clone()),
                _ => None,
            };
            self.seen.messages.lock().unwrap().push(message);
            if let Some(cause) = kill {
                self.stop_group();
                let _ = self.control.send(ToRouter::GroupDown {
                    group: 0,
                    cause,
                    is_final: false,
                });
                tokio::time::sleep(Duration::from_millis(20)).await;
                self.start_group();
            }
        }
    }

    fn stop_group(&mut self) {
        let mut workers = self.seen.workers.lock().unwrap();
        for mut worker in workers.drain(..) {
            worker.kill();
            if let Some(misuse) = worker.misuse() {
                self.seen.misuse.lock().unwrap().get_or_insert(misuse);
            }
        }
    }

    fn start_group(&mut self) {
        let scripts = if self.starts.len() > 1 {
            self.starts.pop_front().unwrap()
        } else {
            self.starts.front().cloned().unwrap()
        };
        let epoch = {
            let mut starts = self.seen.starts.lock().unwrap();
            *starts += 1;
            *starts
        };
        let world_size = u32::try_from(scripts.len()).unwrap();
        let workers: Vec<FakeWorker> = scripts
            .into_iter()
            .zip(0..)
            .map(|(script, rank)| {
                let options = WorkerOptions {
                    rank,
                    world_size,
                    vocab_size: VOCAB,
                    max_position_embeddings: 4096,
                    num_blocks: self.num_blocks,
                    max_steps_in_flight: 2,
                };
                let socket = self.folder.path().join(format!("rank-{rank}-{epoch}.sock"));
                FakeWorker::start(socket, options, script).unwrap()
            })
            .collect();
        let addresses = workers.iter().map(FakeWorker::address).collect();
        self.seen.workers.lock().unwrap().extend(workers);
        let _ = self.control.send(ToRouter::GroupUp {
            group: 0,
            epoch,
            addresses,
        });
    }
}

/// How a sequence ended.
#[derive(Debug, PartialEq)]
pub enum Ending {
    Finished(FinishReason),
    Failed(SequenceFailure),
    DeadEnd(String),
    Other(String),
}

/// Reads a stream to its end: the ids, and how it ended. Checks the order of events.
pub async fn read(mut stream: SequenceStream) -> (Vec<u32>, Ending) {
    let mut ids = Vec::new();
    let mut started = false;
    let ending = loop {
        let event = tokio::time::timeout(Duration::from_secs(30), stream.recv())
            .await
            .expect("an event within 30 s");
        match event {
            Some(SequenceEvent::Started { .. }) => {
                assert!(!started, "started twice");
                started = true;
            }
            Some(SequenceEvent::Token(token)) => {
                assert!(started, "a token before the start");
                ids.push(token.id);
            }
            Some(SequenceEvent::PromptLogprobs(_)) => {}
            Some(SequenceEvent::Finished(reason)) => break Ending::Finished(reason),
            Some(SequenceEvent::Failed(failure)) => break Ending::Failed(failure),
            Some(SequenceEvent::GrammarDeadEnd(why)) => break Ending::DeadEnd(why),
            Some(SequenceEvent::Interrupted(why)) => break Ending::Other(why.to_string()),
            None => break Ending::Other("the engine is gone".to_owned()),
        }
    };
    assert!(stream.recv().await.is_none() || matches!(ending, Ending::Other(_)));
    (ids, ending)
}

/// A small deterministic source of test data (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((value ^ (value >> 31)) % u64::from(bound)).unwrap()
    }

    /// A prompt that often begins like others do.
    pub fn prompt(&mut self, longest: u32) -> Vec<u32> {
        let length = 1 + self.below(longest);
        let family = self.below(3);
        let shared = self.below(length + 1);
        (0..length)
            .map(|position| {
                if position < shared {
                    (family * 300 + position * 7) % VOCAB
                } else {
                    self.below(VOCAB)
                }
            })
            .collect()
    }
}

pub fn faulty(when: Trigger, what: FaultKind) -> Script {
    Script {
        faults: vec![Fault { when, what }],
        ..Script::default()
    }
}

/// Runs `count` requests at once and compares every id with an undisturbed run's.
pub async fn run_and_compare(harness: &Harness, seed: u64, count: usize) {
    let mut dice = Dice(seed);
    let mut running = Vec::new();
    for index in 0..count {
        let prompt = dice.prompt(120);
        let tokens = 1 + dice.below(40);
        let mut request = harness.request(&prompt, tokens);
        let end_id = dice.below(VOCAB);
        request.stop.eos_token_ids = vec![end_id].into();
        let expected = if index % 3 == 0 {
            request.sampling.do_sample = true;
            request.sampling.seed = seed + index as u64;
            expected_sampled_output(
                &prompt,
                tokens as usize,
                &[end_id],
                VOCAB,
                request.sampling.seed,
            )
        } else {
            expected_output(&prompt, tokens as usize, &[end_id], VOCAB)
        };
        let reason = if expected.last() == Some(&end_id) {
            FinishReason::Eos
        } else {
            FinishReason::Length
        };
        let stream = harness.handle.submit(request, None).await.unwrap();
        running.push((tokio::spawn(read(stream)), expected, reason));
    }
    for (index, (task, expected, reason)) in running.into_iter().enumerate() {
        let (ids, ending) = task.await.unwrap();
        assert_eq!(ending, Ending::Finished(reason), "request {index}");
        assert_eq!(ids, expected, "request {index}");
    }
}
