//! Request bodies that stop coming, or hardly come: 408 instead of memory held for ever. Responses have no such limit.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headrace_api::errors::{ErrorResponse, OpenAiError, OpenAiErrorResponse};
use headrace_dialect::refusal::Dialect;
use http::StatusCode;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Between two pieces of a body.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Beyond one patience a reader waits no longer in all than a body takes that comes at this rate, in bytes a second.
const LEAST_RATE: f64 = 16_384.0;

/// Answers 408, in a dialect's shape, for a body of which nothing came for `patience` while somebody read it, or too little
/// in all.
pub(crate) async fn answer_in_time(
    request: Request,
    next: Next,
    dialect: Dialect,
    patience: Duration,
) -> Response {
    let is_late = Arc::new(AtomicBool::new(false));
    let request = request.map(|inner| {
        Body::new(TimedBody {
            inner,
            patience,
            deadline: Box::pin(sleep(patience)),
            waits_since: None,
            waited: Duration::ZERO,
            received: 0,
            is_late: Arc::clone(&is_late),
        })
    });
    let response = next.run(request).await;
    if is_late.load(Ordering::Acquire) {
        timed_out(dialect, patience)
    } else {
        response
    }
}

fn timed_out(dialect: Dialect, patience: Duration) -> Response {
    let message = format!(
        "Failed to buffer the request body: nothing came for {} s, or less than 16 KiB a second in all",
        patience.as_secs_f64()
    );
    let error_type = "request_timeout".to_owned();
    let mut response = match dialect {
        Dialect::Native => axum::Json(ErrorResponse {
            error: message,
            error_type,
        })
        .into_response(),
        Dialect::OpenAi => axum::Json(OpenAiErrorResponse {
            error: OpenAiError {
                message,
                kind: "invalid_request_error".to_owned(),
                param: None,
                code: None,
                http_status_code: None,
            },
            error_type,
        })
        .into_response(),
    };
    *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
    // The rest of the body may still come; nobody reads it.
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Nothing came for too long.
#[derive(Debug, thiserror::Error)]
#[error("the body stopped coming")]
struct Late;

/// A body whose reader waits for a bounded time.
struct TimedBody {
    inner: Body,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    /// The deadline counts from when a reader began to wait, not from when it was busy elsewhere.
    waits_since: Option<Instant>,
    /// Before that, in all.
    waited: Duration,
    /// Bytes.
    received: usize,
    is_late: Arc<AtomicBool>,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            if let Some(since) = this.waits_since.take() {
                this.waited += since.elapsed();
            }
            if let Some(Ok(frame)) = &frame {
                this.received += frame.data_ref().map_or(0, Bytes::len);
            }
            return Poll::Ready(frame);
        }
        if this.waits_since.is_none() {
            let now = Instant::now();
            this.waits_since = Some(now);
            let whole = this.patience.as_secs_f64() + this.received as f64 / LEAST_RATE;
            let left = Duration::from_secs_f64(whole).saturating_sub(this.waited);
            this.deadline.as_mut().reset(now + left.min(this.patience));
        }
        ready!(this.deadline.as_mut().poll(context));
        this.is_late.store(true, Ordering::Release);
        Poll::Ready(Some(Err(axum::Error::new(Late))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use futures::{StreamExt, stream};
    use http_body_util::BodyExt;
    use std::convert::Infallible;
    use tower::ServiceExt;

    const SHORT: Duration = Duration::from_millis(100);

    /// Reads the whole body, then answers slowly.
    async fn echo(body: Body) -> Response {
        match body.collect().await {
            Ok(collected) => {
                let bytes = collected.to_bytes();
                let pieces = stream::iter([bytes]).then(|bytes| async move {
                    sleep(3 * SHORT).await;
                    Ok::<_, Infallible>(bytes)
                });
                Body::from_stream(pieces).into_response()
            }
            Err(_) => StatusCode::BAD_REQUEST.into_response(),
        }
    }

    async fn post_to(path: &str, body: Body) -> (StatusCode, Bytes) {
        let app = Router::new()
            .route("/echo", post(echo))
            .route("/v1/echo", post(echo))
            .layer(from_fn(|request: Request, next| {
                let is_v1 = request.uri().path().starts_with("/v1/");
                let dialect = if is_v1 {
                    Dialect::OpenAi
                } else {
                    Dialect::Native
                };
                answer_in_time(request, next, dialect, SHORT)
            }));
        let request = Request::post(path).body(body).unwrap();
        let response = app.oneshot(request).await.unwrap();
        let status = response.status();
        (
            status,
            response.into_body().collect().await.unwrap().to_bytes(),
        )
    }

    #[tokio::test]
    async fn a_body_that_stops_coming_gets_408() {
        let stops = || {
            let first = stream::iter([Ok::<_, Infallible>("{")]);
            Body::from_stream(first.chain(stream::pending()))
        };
        let (status, body) = post_to("/echo", stops()).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(
            body,
            r#"{"error":"Failed to buffer the request body: nothing came for 0.1 s, or less than 16 KiB a second in all","error_type":"request_timeout"}"#
        );
        let (status, body) = post_to("/v1/echo", stops()).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(
            body,
            r#"{"error":{"message":"Failed to buffer the request body: nothing came for 0.1 s, or less than 16 KiB a second in all","type":"invalid_request_error","param":null,"code":null},"error_type":"request_timeout"}"#
        );
    }

    /// A byte now and then is as good as nothing.
    #[tokio::test]
    async fn a_body_that_hardly_comes_gets_408() {
        let drips = stream::repeat("a").then(|piece| async move {
            sleep(SHORT / 4).await;
            Ok::<_, Infallible>(piece)
        });
        let (status, _) = post_to("/echo", Body::from_stream(drips)).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    }

    /// Longer than the patience in all, but never between two pieces, and enough of it; and the answer may take its time.
    #[tokio::test]
    async fn a_slow_body_and_a_slow_answer_are_let_be() {
        let piece = "a".repeat(2000);
        let pieces = stream::iter(vec![piece; 6]).then(|piece| async move {
            sleep(SHORT / 4).await;
            Ok::<_, Infallible>(piece)
        });
        let (status, body) = post_to("/echo", Body::from_stream(pieces)).await;
        assert_eq!((status, body.len()), (StatusCode::OK, 12_000));
    }
}
