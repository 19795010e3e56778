//! What the launcher does for a router, in small: one router process, one fake worker, and a place for both.

use crate::accounts::Account;
use headrace_control::{
    CONTROL_FD_VARIABLE, ModelDocument, RouterConfig, ToLauncher, ToRouter, TokenizerSource,
    Weights,
};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How one server is set up.
pub struct Setup {
    /// Requests in the house.
    pub max_concurrent_requests: usize,
    /// Running sequences.
    pub max_batch_size: u32,
    /// Microseconds that the fake worker takes for a step.
    pub step_micros: u64,
}

/// A router that serves, with a fake worker behind it. Both are killed when it is dropped.
pub struct Rig {
    router: Child,
    worker: Child,
    _control: UnixStream,
    _folder: tempfile::TempDir,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Rig {
    /// Starts both and waits until requests are served.
    pub fn start(gguf: &Path, setup: &Setup) -> Self {
        raise_descriptor_limit();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("worker.sock");
        let script = serde_json::json!({ "step_micros": setup.step_micros });
        let worker = Command::new(beside("fake-worker"))
            .args(["--vocab-size", "49152", "--num-blocks", "262144"])
            .args(["--max-position-embeddings", "8192", "--socket"])
            .arg(&socket)
            .args(["--script", &script.to_string()])
            .spawn()
            .unwrap();
        let (control, theirs) = UnixStream::pair().unwrap();
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        let router = Command::new(beside("router"))
            .env(CONTROL_FD_VARIABLE, theirs.as_raw_fd().to_string())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(theirs);
        let mut lines = BufReader::new(control.try_clone().unwrap());
        send(&control, &ToRouter::Configure(Box::new(config(setup))));
        let ToLauncher::Listening { address } = next(&mut lines) else {
            panic!("the router does not listen");
        };
        send(&control, &ToRouter::Model(Box::new(document(gguf))));
        wait_for(&socket);
        let addresses = vec![format!("unix://{}", socket.display())];
        let up = ToRouter::GroupUp {
            group: 0,
            epoch: 1,
            addresses,
        };
        send(&control, &up);
        while !matches!(next(&mut lines), ToLauncher::Ready { .. }) {}
        // What it says from now on is nobody's business, but a full socket would stop it.
        std::thread::spawn(move || for _ in lines.lines() {});
        Self {
            router,
            worker,
            _control: control,
            _folder: folder,
            address: address.parse().unwrap(),
        }
    }

    /// CPU time so far: router, worker, this process.
    pub fn accounts(&self) -> [Account; 3] {
        [self.router.id(), self.worker.id(), std::process::id()].map(Account::of)
    }

    /// The router's process.
    pub fn router_pid(&self) -> u32 {
        self.router.id()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for child in [&mut self.router, &mut self.worker] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A binary of the same build.
fn beside(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().unwrap().parent().unwrap().join(name);
    assert!(path.exists(), "build it first: {}", path.display());
    path
}

/// Streams are descriptors here too.
fn raise_descriptor_limit() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
}

fn wait_for(socket: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < deadline, "the fake worker does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(mut control: &UnixStream, message: &ToRouter) {
    let mut line = serde_json::to_vec(message).unwrap();
    line.push(b'\n');
    control.write_all(&line).unwrap();
}

fn next(lines: &mut BufReader<UnixStream>) -> ToLauncher {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn config(setup: &Setup) -> RouterConfig {
    RouterConfig {
        hostname: "127.0.0.1".to_owned(),
        port: 0,
        prometheus_port: None,
        max_concurrent_requests: setup.max_concurrent_requests,
        max_best_of: 2,
        max_stop_sequences: 4,
        max_top_n_tokens: 5,
        max_input_tokens: None,
        max_total_tokens: None,
        max_batch_prefill_tokens: Some(8192),
        max_batch_total_tokens: None,
        max_batch_size: Some(setup.max_batch_size),
        max_client_batch_size: 4,
        validation_workers: 2,
        payload_limit: 2_000_000,
        api_keys: Vec::new(),
        admin_key: None,
        max_queued_tokens: None,
        schedule_policy: headrace_control::SchedulePolicy::Fcfs,
        target_itl_ms: None,
        stall_timeout_seconds: 600,
        lenient_grammar: false,
        cors_allow_origin: Vec::new(),
        disable_grammar_support: false,
        strict_model_name: false,
        guard_info_and_metrics: false,
        completions_default_max_tokens: None,
        kv_cache_bytes: None,
        block_size: 16,
        prefix_caching: true,
        poison_fresh_blocks: false,
        log_level: "info".to_owned(),
        compute_type: "cpu".to_owned(),
        docker_label: None,
        aip_predict_route: None,
        aip_health_route: None,
    }
}

fn document(gguf: &Path) -> ModelDocument {
    ModelDocument {
        model_id: "fake".to_owned(),
        revision: None,
        pipeline_tag: None,
        weights: Weights::Gguf {
            files: vec![gguf.to_owned()],
        },
        config: serde_json::Value::Null,
        tokenizer: TokenizerSource::Gguf {
            path: gguf.to_owned(),
        },
        tokenizer_config: None,
        chat_template: None,
        generation_config: None,
        dtype: "float32".to_owned(),
        max_position_embeddings: 8192,
        vocab_size: 49152,
    }
}
