//! The `router` command as the launcher sees it: one inherited socket, exits and their causes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

use headrace_control::{CONTROL_FD_VARIABLE, RouterConfig, ToLauncher, ToRouter};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

struct Router {
    child: Child,
    control: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Router {
    fn start(config: &RouterConfig) -> Self {
        let (control, theirs) = UnixStream::pair().unwrap();
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_router"))
            .env(CONTROL_FD_VARIABLE, theirs.as_raw_fd().to_string())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(theirs);
        control
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let lines = BufReader::new(control.try_clone().unwrap());
        let mut router = Self {
            child,
            control,
            lines,
        };
        router.send(&ToRouter::Configure(Box::new(config.clone())));
        router
    }

    fn send(&mut self, message: &ToRouter) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.control.write_all(&line).unwrap();
    }

    fn next(&mut self) -> ToLauncher {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn address(&mut self) -> String {
        match self.next() {
            ToLauncher::Listening { address } => address,
            other => panic!("{other:?}"),
        }
    }

    fn exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not exit");
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Gone already when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(port: u16) -> RouterConfig {
    RouterConfig {
        hostname: "127.0.0.1".to_owned(),
        port,
        prometheus_port: None,
        max_concurrent_requests: 8,
        max_best_of: 2,
        max_stop_sequences: 4,
        max_top_n_tokens: 5,
        max_input_tokens: None,
        max_total_tokens: None,
        max_batch_prefill_tokens: None,
        max_batch_total_tokens: None,
        max_batch_size: None,
        max_client_batch_size: 4,
        validation_workers: 1,
        payload_limit: 1 << 20,
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

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_listens_at_once_ignores_signals_and_drains() {
    let mut router = Router::start(&config(0));
    let address = router.address();
    assert!(get(&address, "/health").starts_with("HTTP/1.1 503 "));
    assert!(get(&address, "/ready").starts_with("HTTP/1.1 503 "));
    assert!(get(&address, "/metrics").contains("\ntgi_request_count 0\n"));
    let pid = Pid::from_raw(i32::try_from(router.child.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    kill(pid, Signal::SIGINT).unwrap();
    // An open connection that asks for nothing does not hold up the drain.
    let _idle = TcpStream::connect(&address).unwrap();
    assert!(get(&address, "/health").starts_with("HTTP/1.1 503 "));
    router.send(&ToRouter::Drain { grace_seconds: 5 });
    let begun = Instant::now();
    assert!(matches!(router.next(), ToLauncher::Drained));
    assert_eq!(router.exit().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_successor_of_a_router_that_was_ready_is_healthy_from_the_start() {
    let mut router = Router::start(&config(0));
    let address = router.address();
    assert!(get(&address, "/health").starts_with("HTTP/1.1 503 "));
    router.send(&ToRouter::Successor);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !get(&address, "/health").starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < deadline, "it stays unhealthy");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(get(&address, "/ready").starts_with("HTTP/1.1 503 "));
}

/// TCP sockets of a process that listen.
fn listening(pid: u32) -> usize {
    let inodes: HashSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.ok()?.path()).ok()?;
            let target = target.to_str()?.strip_prefix("socket:[")?;
            Some(target.strip_suffix(']')?.to_owned())
        })
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{pid}/net/{table}"));
    let tables = tables.map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let is_its_own = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The fourth field is the state, 0A is LISTEN; the tenth the inode.
        fields.get(3) == Some(&"0A") && fields.get(9).is_some_and(|inode| inodes.contains(*inode))
    };
    let lines = tables.iter().flat_map(|table| table.lines());
    lines.filter(is_its_own).count()
}

/// TGI binds port 9000 and serves nothing there.
#[test]
fn case_9_3_no_port_is_bound_that_nobody_asked_for() {
    for (prometheus_port, ports) in [(None, 1), (Some(0), 2)] {
        let config = RouterConfig {
            prometheus_port,
            ..config(0)
        };
        let mut router = Router::start(&config);
        let address = router.address();
        assert!(get(&address, "/metrics").contains("tgi_request_count"));
        assert_eq!(listening(router.child.id()), ports, "{prometheus_port:?}");
    }
}

#[test]
fn a_busy_port_is_named_and_final() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut router = Router::start(&config(port));
    match router.next() {
        ToLauncher::Failed {
            cause,
            is_final: true,
        } => {
            assert_eq!(
                cause,
                format!("address 127.0.0.1:{port} is in use (--port)")
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(router.exit().code(), Some(1));
}

#[test]
fn a_path_of_vertex_ai_that_is_another_routes_is_named_and_final() {
    let mut router = Router::start(&RouterConfig {
        aip_predict_route: Some("/generate".to_owned()),
        ..config(0)
    });
    match router.next() {
        ToLauncher::Failed {
            cause,
            is_final: true,
        } => assert_eq!(
            cause,
            "AIP_PREDICT_ROUTE /generate: is another route of this server"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(router.exit().code(), Some(1));
}

#[test]
fn it_ends_when_the_launcher_is_gone() {
    let mut router = Router::start(&config(0));
    router.address();
    router.control.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(router.exit().code(), Some(1));
}

#[test]
fn alone_it_says_who_starts_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_router"))
        .env_remove(CONTROL_FD_VARIABLE)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("started by `launcher`")
    );
    let version = Command::new(env!("CARGO_BIN_EXE_router"))
        .arg("--version")
        .output()
        .unwrap();
    assert_eq!(version.status.code(), Some(0));
}
