//! The listening sockets and the servers on them.

use crate::connection::SharedStream;
use crate::engine::EngineHandle;
use crate::head;
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::slow_reader::TimedWrites;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use std::future::Future;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt;

/// The address cannot be listened on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Somebody else does.
    #[error("address {address} is in use ({flag})")]
    InUse {
        /// Host and port.
        address: String,
        /// The flag that names it.
        flag: &'static str,
    },
    /// Anything else.
    #[error("cannot listen on {address}: {cause} ({flag})")]
    Other {
        /// Host and port.
        address: String,
        /// The flag that names it.
        flag: &'static str,
        /// The system's words.
        cause: String,
    },
}

/// Binds `hostname:port`; port 0 takes a free one. `flag` is named when it fails.
pub async fn bind(
    hostname: &str,
    port: u16,
    flag: &'static str,
) -> Result<TcpListener, ListenError> {
    // A bare IPv6 address needs brackets before a port.
    let is_bare_v6 = hostname.contains(':') && !hostname.starts_with('[');
    let address = if is_bare_v6 {
        format!("[{hostname}]:{port}")
    } else {
        format!("{hostname}:{port}")
    };
    let listener = TcpListener::bind(&address).await.map_err(|error| {
        let cause = error.to_string();
        match error.kind() {
            ErrorKind::AddrInUse => ListenError::InUse { address, flag },
            // A port below 1024.
            ErrorKind::PermissionDenied => ListenError::Other {
                address,
                flag,
                cause,
            },
            // An address that this machine does not have.
            _ => ListenError::Other {
                address,
                flag: "--hostname",
                cause,
            },
        }
    })?;
    // Accepted sockets inherit it.
    if let Err(error) = setsockopt(&listener, sockopt::SndBuf, &UNSENT) {
        tracing::debug!("SO_SNDBUF: {error}");
    }
    Ok(listener)
}

/// Bytes that the system holds for a client that does not read; Linux makes it twice as much. Left alone it grows to
/// megabytes, thousands of tokens computed for nobody before a stream pauses.
const UNSENT: usize = 64 << 10;

/// For a request's head; also how long a connection may be idle. A body has a limit of its own, an answer only that of
/// its reader.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Before a failed accept is tried again: the first time, and at most. The usual cause is a lack of file descriptors,
/// which only passes when a connection ends.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Serves until `stop`, then until the responses under way are out. A connection that takes nothing of its answer for
/// `stall_timeout` is closed.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    stall_timeout: Duration,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    serve_with(listener, app, stop, stall_timeout, HEAD_TIMEOUT).await;
}

async fn serve_with(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
    stall_timeout: Duration,
    head_timeout: Duration,
) {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_headers(head::HYPER_FIELDS)
        .max_header_size(head::HYPER_BYTES);
    // Not `half_close`: with it a client that leaves while its request waits would be noticed only when something is
    // written to it.
    let (stopping, is_stopping) = watch::channel(());
    tokio::pin!(stop);
    loop {
        let stream = tokio::select! {
            () = &mut stop => break,
            stream = accept(&listener) => stream,
        };
        let service = TowerToHyperService::new(
            app.clone()
                .map_request(|request: Request<Incoming>| request.map(Body::new)),
        );
        let client = SharedStream::new(stream);
        let stream = TokioIo::new(TimedWrites::new(client.clone(), stall_timeout));
        // Boxed: each future that it is handed through would have room for it otherwise, in every open stream.
        let connection = Box::pin(server.serve_connection(stream, service));
        tokio::spawn(run_connection(connection, client, is_stopping.clone()));
    }
    drop(listener);
    drop(is_stopping);
    stopping.send_replace(());
    // Every connection holds a receiver.
    stopping.closed().await;
}

/// One connection to its end, or until its client has left; told to stop it finishes the response under way.
async fn run_connection<S>(
    mut connection: Pin<Box<http1::Connection<TokioIo<TimedWrites>, S>>>,
    client: SharedStream,
    mut is_stopping: watch::Receiver<()>,
) where
    S: HttpService<Incoming, ResBody = Body>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut left = pin!(client.left());
    let mut stops = true;
    let result = loop {
        tokio::select! {
            result = connection.as_mut() => break result,
            // What it asked for is dropped with the connection, and so cancelled.
            () = left.as_mut() => return tracing::debug!("connection: the client left"),
            _ = is_stopping.changed(), if stops => {
                stops = false;
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = result {
        // A client that left or was too slow.
        tracing::debug!("connection: {error}");
    }
}

/// The next connection.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut pause, most) = ACCEPT_BACKOFF;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A token is a small write that must leave at once.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("TCP_NODELAY: {error}");
                }
                return stream;
            }
            Err(error) if is_clients_fault(&error) => {}
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(most);
            }
        }
    }
}

/// The client was gone before it was accepted; the next one may be well.
fn is_clients_fault(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

/// The application of the second listener: `/metrics` and nothing else.
pub fn metrics_only(engine: EngineHandle, metrics: Arc<Metrics>) -> Router {
    let page = move || {
        let text = metrics.render(&engine.status());
        async move { ([(http::header::CONTENT_TYPE, CONTENT_TYPE)], text) }
    };
    Router::new().route("/metrics", get(page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn the_system_holds_little_for_a_client_that_does_not_read() {
        let listener = bind("127.0.0.1", 0, "--port").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let mut stream = accept(&listener).await;
        let chunk = vec![b'x'; 1 << 20];
        let patience = Duration::from_millis(200);
        let mut taken = 0;
        while let Ok(written) = tokio::time::timeout(patience, stream.write(&chunk)).await {
            taken += written.unwrap();
            assert!(taken < 64 << 20, "it takes everything");
        }
        // The client's own side has room too, which the system chooses.
        let held = nix::sys::socket::getsockopt(&stream, sockopt::SndBuf).unwrap();
        assert!(held <= 2 * UNSENT, "{held} bytes");
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = bind("127.0.0.1", 0, "--port").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let error = bind("127.0.0.1", port, "--port").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("address 127.0.0.1:{port} is in use (--port)")
        );
        let error = bind("no such host", 1, "--port").await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot listen on no such host:1: "),
            "{error}"
        );
        // The port is not to blame.
        assert!(error.to_string().ends_with(" (--hostname)"), "{error}");
    }

    const SHORT: Duration = Duration::from_millis(200);

    /// A server with a short patience, and what ends it.
    async fn start() -> (
        std::net::SocketAddr,
        tokio::sync::oneshot::Sender<()>,
        tokio::task::JoinHandle<()>,
    ) {
        let listener = bind("127.0.0.1", 0, "--port").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/quick", get(|| async { "quick" }))
            .route(
                "/slow",
                get(|| async {
                    tokio::time::sleep(3 * SHORT).await;
                    "slow"
                }),
            );
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let until = async move {
            let _ = stopped.await;
        };
        let server = tokio::spawn(serve_with(listener, app, until, SHORT, SHORT));
        (address, stop, server)
    }

    /// Sends `text` and reads to the end of the connection.
    async fn exchange(address: std::net::SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // Never closed: the time-out is the failure.
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        answer
    }

    #[tokio::test]
    async fn silent_half_sent_and_idle_connections_are_closed() {
        let (address, _stop, _server) = start().await;
        assert_eq!(exchange(address, "").await, "");
        assert_eq!(exchange(address, "GET /quick HTTP/1.1\r\nhost").await, "");
        // Kept alive after an answer, and then idle.
        let answer = exchange(address, "GET /quick HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(answer.ends_with("quick"), "{answer}");
        // An answer may take longer than a head.
        let answer = exchange(address, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(answer.ends_with("slow"), "{answer}");
    }

    #[tokio::test]
    async fn heads_beyond_hypers_bounds_get_431() {
        let (address, _stop, _server) = start().await;
        let many = "a: b\r\n".repeat(head::HYPER_FIELDS + 1);
        let answer = exchange(address, &format!("GET /quick HTTP/1.1\r\n{many}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test]
    async fn told_to_stop_it_finishes_what_is_under_way() {
        let (address, stop, server) = start().await;
        let idle = TcpStream::connect(address).await.unwrap();
        let slow = tokio::spawn(async move {
            exchange(address, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await
        });
        tokio::time::sleep(SHORT / 2).await;
        stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(10), server)
            .await
            .unwrap()
            .unwrap();
        assert!(slow.await.unwrap().ends_with("slow"));
        assert!(TcpStream::connect(address).await.is_err());
        drop(idle);
    }

    #[test]
    fn only_a_clients_own_faults_are_retried_at_once() {
        let of = std::io::Error::from_raw_os_error;
        assert!(is_clients_fault(&of(nix::libc::ECONNABORTED)));
        assert!(!is_clients_fault(&of(nix::libc::EMFILE)));
        assert!(!is_clients_fault(&of(nix::libc::ENFILE)));
    }
}
