//! The listening sockets and the servers on them.

use crate::engine::EngineHandle;
use crate::metrics::{CONTENT_TYPE, Metrics};
use axum::Router;
use axum::routing::get;
use axum::serve::ListenerExt;
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;

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
    TcpListener::bind(&address).await.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            ListenError::InUse { address, flag }
        } else {
            ListenError::Other {
                address,
                flag,
                cause: error.to_string(),
            }
        }
    })
}

/// Serves until `stop`, then until the responses under way are out.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    // A token is a small write that must leave at once.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {error}");
        }
    });
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await
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

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = bind("127.0.0.1", 0, "--port").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let error = bind("127.0.0.1", port, "--port").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("address 127.0.0.1:{port} is in use (--port)")
        );
        let error = bind("no such host", 1, "--hostname").await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot listen on no such host:1: "),
            "{error}"
        );
    }
}
