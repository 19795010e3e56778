//! Requests of browsers from other origins.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN};
use http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Response headers that scripts in browsers may read.
const EXPOSED: [&str; 16] = [
    "x-request-id",
    "request-id",
    "retry-after",
    "x-compute-type",
    "x-compute-time",
    "x-compute-characters",
    "x-total-time",
    "x-validation-time",
    "x-queue-time",
    "x-inference-time",
    "x-time-per-token",
    "x-prompt-tokens",
    "x-generated-tokens",
    "x-headrace-ignored",
    "x-accel-buffering",
    "x-should-retry",
];

/// Who may ask from a browser, and what it may send and see.
pub(crate) fn layer(origins: &[String]) -> CorsLayer {
    let listed: Vec<HeaderValue> = origins
        .iter()
        .filter(|origin| *origin != "*")
        .filter_map(|origin| HeaderValue::from_str(origin).ok())
        .collect();
    let origin = if origins.is_empty() || origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(listed)
    };
    CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED.map(HeaderName::from_static))
}

/// The list of headers for scripts is long, and only a browser, which names its origin, has a use for it.
pub(crate) async fn expose_to_browsers_only(request: Request, next: Next) -> Response {
    let is_browser = request.headers().contains_key(ORIGIN);
    let mut response = next.run(request).await;
    if !is_browser {
        response.headers_mut().remove(ACCESS_CONTROL_EXPOSE_HEADERS);
    }
    response
}
