//! The whole application over the real engine and a fake worker, with a small tokenizer and a scripted model.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    dead_code,
    reason = "test code, shared by several test binaries"
)]

pub mod golden;
#[path = "../../../dialect/tests/tiny_tokenizer/mod.rs"]
pub mod tiny_tokenizer;

use axum::Router;
use axum::body::Body;
use headrace_control::{
    ApiKey, ModelDocument, RouterConfig, ToLauncher, ToRouter, TokenizerSource, Weights,
};
use headrace_fake_worker::{FakeWorker, LiteralOutputs, Script, WorkerOptions};
use headrace_router::app::{self, AppState};
use headrace_router::engine::{EngineConfig, EngineStats, LauncherLink, RunningEngine};
use headrace_router::listen;
use headrace_router::metrics::Metrics;
use headrace_router::services::ModelServices;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tiny_tokenizer::{EOS, bytes_of, vocab_size, word};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tower::ServiceExt;

/// A template of the `<|im_start|>` family.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}\
                        <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// TGI's defaults, where they matter.
pub fn config() -> RouterConfig {
    RouterConfig {
        hostname: "127.0.0.1".to_owned(),
        port: 0,
        prometheus_port: None,
        max_concurrent_requests: 128,
        max_best_of: 2,
        max_stop_sequences: 4,
        max_top_n_tokens: 5,
        max_input_tokens: None,
        max_total_tokens: Some(64),
        max_batch_prefill_tokens: Some(64),
        max_batch_total_tokens: None,
        max_batch_size: Some(16),
        max_client_batch_size: 4,
        validation_workers: 2,
        payload_limit: 20_000,
        api_keys: Vec::new(),
        admin_key: None,
        max_queued_tokens: None,
        schedule_policy: headrace_control::SchedulePolicy::Fcfs,
        target_itl_ms: None,
        stall_timeout_seconds: 60,
        lenient_grammar: false,
        cors_allow_origin: Vec::new(),
        disable_grammar_support: false,
        strict_model_name: false,
        guard_info_and_metrics: false,
        completions_default_max_tokens: None,
        kv_cache_bytes: None,
        block_size: 4,
        prefix_caching: true,
        poison_fresh_blocks: true,
        log_level: "info".to_owned(),
        compute_type: "cpu".to_owned(),
        docker_label: None,
        aip_predict_route: None,
        aip_health_route: None,
    }
}

/// A named key: `NAME` is opened by `key of NAME`.
pub fn key(name: &str, priority: i32) -> ApiKey {
    ApiKey {
        name: name.to_owned(),
        key: format!("key of {name}"),
        priority,
    }
}

/// `Hello wörld!` in seven steps, one of them half a character, then the end id.
pub fn greeting() -> Vec<u32> {
    let mut ids = vec![word("Hello"), word(" w")];
    ids.extend(bytes_of("örld!"));
    ids
}

/// A model that always says these ids, then the end id.
pub fn says(ids: Vec<u32>) -> Script {
    Script {
        literal: Some(LiteralOutputs {
            otherwise: Some(ids),
            end_id: EOS,
            ..LiteralOutputs::default()
        }),
        ..Script::default()
    }
}

pub struct Server {
    pub app: Router,
    pub state: AppState,
    pub control: mpsc::UnboundedSender<ToRouter>,
    /// What the launcher hears.
    pub launcher: mpsc::UnboundedReceiver<ToLauncher>,
    document: ModelDocument,
    worker: FakeWorker,
    engine: RunningEngine,
    folder: TempDir,
    stall_timeout: Duration,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .unwrap_or_else(|| panic!("no header {name}"))
            .to_str()
            .unwrap()
    }

    /// The `data:` of each event.
    pub fn events(&self) -> Vec<String> {
        self.body
            .split("\n\n")
            .filter(|frame| !frame.is_empty())
            .map(|frame| frame.strip_prefix("data: ").unwrap().to_owned())
            .collect()
    }

    pub fn event_json(&self) -> Vec<Value> {
        self.events()
            .iter()
            .filter(|event| *event != "[DONE]")
            .map(|event| serde_json::from_str(event).unwrap())
            .collect()
    }
}

impl Server {
    pub async fn start(config: RouterConfig, script: Script) -> Self {
        let server = Self::start_unready(config, script, true);
        server.wait_ready().await;
        server
    }

    /// The model comes with this chat template.
    pub async fn start_with_template(config: RouterConfig, script: Script, template: &str) -> Self {
        let server = Self::start_unready(config, script, false);
        std::fs::write(server.folder.path().join("chat_template.jinja"), template).unwrap();
        server.group_up(1);
        server.wait_ready().await;
        server
    }

    /// The model names no id of its vocabulary as an end.
    pub async fn start_without_end_ids(config: RouterConfig, script: Script) -> Self {
        let server = Self::start_unready(config, script, false);
        let path = server.folder.path().join("generation_config.json");
        let generation = json!({"eos_token_id": vocab_size()});
        std::fs::write(path, generation.to_string()).unwrap();
        server.group_up(1);
        server.wait_ready().await;
        server
    }

    /// A model of this many ids, with the tokenizer of this folder.
    pub async fn start_with_tokenizer(
        config: RouterConfig,
        script: Script,
        (tokenizer, vocab_size): (&Path, u32),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(tokenizer.join(name), folder.path().join(name)).unwrap();
        }
        let server = Self::start_in(folder, config, script, vocab_size);
        server.group_up(1);
        server.wait_ready().await;
        server
    }

    pub fn start_unready(config: RouterConfig, script: Script, group_up: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("tokenizer.json"), tiny_tokenizer::json().to_string()).unwrap();
        let named = json!({"bos_token": "<|bos|>", "eos_token": "<|eos|>"});
        std::fs::write(path("tokenizer_config.json"), named.to_string()).unwrap();
        let server = Self::start_in(folder, config, script, vocab_size());
        if group_up {
            server.group_up(1);
        }
        server
    }

    /// The folder has the tokenizer.
    fn start_in(folder: TempDir, config: RouterConfig, script: Script, vocab_size: u32) -> Self {
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("chat_template.jinja"), TEMPLATE).unwrap();
        let generation = json!({"eos_token_id": [1, 3]});
        std::fs::write(path("generation_config.json"), generation.to_string()).unwrap();
        let document = ModelDocument {
            model_id: "org/tiny".to_owned(),
            revision: Some("abc".to_owned()),
            pipeline_tag: None,
            weights: Weights::Safetensors {
                files: vec!["/models/tiny/model.safetensors".into()],
            },
            config: Value::Null,
            tokenizer: TokenizerSource::TokenizerJson {
                path: path("tokenizer.json"),
            },
            tokenizer_config: Some(path("tokenizer_config.json")),
            chat_template: Some(path("chat_template.jinja")),
            generation_config: Some(path("generation_config.json")),
            dtype: "float32".to_owned(),
            max_position_embeddings: 4096,
            vocab_size,
        };
        let (control, messages) = mpsc::unbounded_channel();
        let (link, launcher) = LauncherLink::channel();
        let metrics = Arc::new(Metrics::new());
        let engine = RunningEngine::start(
            EngineConfig::new(&config),
            messages,
            link,
            Arc::clone(&metrics),
        )
        .unwrap();
        let stall_timeout = Duration::from_secs(config.stall_timeout_seconds);
        let state = AppState::new(engine.handle(), config, metrics).unwrap();
        let worker = FakeWorker::start(
            path("rank-0.sock"),
            WorkerOptions {
                vocab_size,
                ..WorkerOptions::default()
            },
            script,
        )
        .unwrap();
        control
            .send(ToRouter::Model(Box::new(document.clone())))
            .unwrap();
        Self {
            app: app::router(state.clone()),
            state,
            control,
            launcher,
            document,
            worker,
            engine,
            folder,
            stall_timeout,
        }
    }

    /// The worker's streams, a new start of them.
    pub fn group_up(&self, epoch: u64) {
        if epoch == 1 {
            self.state
                .set_model(ModelServices::load(self.document.clone()).unwrap());
            self.state.engine().services_ready();
        }
        self.control
            .send(ToRouter::GroupUp {
                group: 0,
                epoch,
                addresses: vec![self.worker.address()],
            })
            .unwrap();
    }

    pub fn stats(&self) -> EngineStats {
        self.state.engine().status().stats
    }

    pub async fn wait_ready(&self) {
        self.wait("ready", |server| server.state.engine().status().ready)
            .await;
    }

    pub async fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..2000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never {what}: {:?}", self.state.engine().status());
    }

    /// Nothing runs, waits or is kept, and the worker saw no misuse.
    pub async fn wait_idle(&self) {
        self.wait("idle", |server| {
            let stats = server.stats();
            stats.open_streams == 0
                && stats.running == 0
                && stats.waiting == 0
                && stats.owned_blocks == 0
        })
        .await;
        let stats = self.stats();
        assert_eq!(stats.free_blocks + stats.cached_blocks, stats.total_blocks);
        assert_eq!(self.worker.misuse(), None);
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string()).await
    }

    pub async fn post_text(&self, path: &str, body: &str) -> Answer {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("content-type", "application/json")
            .header("x-request-id", "test-id")
            .body(Body::from(body.to_owned()))
            .unwrap();
        self.send(request).await
    }

    /// With the key of this name.
    pub async fn post_as(&self, name: &str, path: &str, body: &Value) -> Answer {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("x-request-id", "test-id")
            .header("authorization", format!("Bearer key of {name}"))
            .body(Body::from(body.to_string()))
            .unwrap();
        self.send(request).await
    }

    /// Listens on a real port, for tests about connections.
    pub fn listen(&self) -> std::net::SocketAddr {
        // Its connections inherit the small buffer: what a client does not read is soon noticed.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4096).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(64).unwrap();
        let address = listener.local_addr().unwrap();
        let app = self.app.clone();
        let until = std::future::pending();
        tokio::spawn(listen::serve(listener, app, self.stall_timeout, until));
        address
    }
}
