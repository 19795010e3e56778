//! One rank's gRPC channel over its Unix socket.

use crate::error::StartError;
use crate::pb::worker_client::WorkerClient;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// A step with a thousand long sequences entering at once is some tens of megabytes.
const MESSAGE_LIMIT: usize = 256 << 20;

/// A worker listens before its address is told, so this is generous.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to `unix:///path` and checks that the process behind it runs as this user.
pub(crate) async fn connect(
    rank: usize,
    address: &str,
) -> Result<WorkerClient<Channel>, StartError> {
    let failure = |cause: String| StartError::Connect {
        rank,
        address: address.to_owned(),
        cause,
    };
    let Some(path) = address
        .strip_prefix("unix://")
        .filter(|path| path.starts_with('/'))
    else {
        return Err(failure(
            "only unix:///path addresses are supported".to_owned(),
        ));
    };
    let path = PathBuf::from(path);
    let endpoint = Endpoint::from_static("http://worker.invalid")
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(8 << 20)
        .initial_connection_window_size(16 << 20)
        // Small frames must leave at once; a Unix socket has no Nagle, but the option is copied to relays.
        .tcp_nodelay(true);
    let connector = service_fn(move |_: Uri| {
        let path = path.clone();
        async move {
            let stream = UnixStream::connect(&path).await?;
            check_peer(&stream)?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let channel = endpoint
        .connect_with_connector(connector)
        .await
        .map_err(|error| failure(chain(&error)))?;
    Ok(WorkerClient::new(channel)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT))
}

/// The socket's folder is private already; this also catches a folder that someone else made.
fn check_peer(stream: &UnixStream) -> std::io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let own = nix::unistd::geteuid().as_raw();
    if peer == own {
        return Ok(());
    }
    Err(std::io::Error::new(
        std::io::ErrorKind::PermissionDenied,
        format!("the process that listens runs as uid {peer}, not {own}"),
    ))
}

/// An error and its sources in one line: transport errors hide the cause in their sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}
