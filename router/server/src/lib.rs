//! headrace-router: HTTP routes, the engine task, metrics, health and drain.

pub mod app;
mod auth;
mod body_bytes;
mod caller;
mod connection;
mod cors;
pub mod engine;
mod fair_share;
mod head;
pub mod health;
mod house;
pub mod listen;
pub mod logging;
pub mod metrics;
mod openapi;
mod request_id;
mod request_log;
mod room;
mod routes;
mod running;
pub mod services;
pub mod shutdown;
mod slow_body;
mod slow_reader;
mod sse;
mod tenant;
mod tokenise;
mod unknown_fields;
mod validate;

pub use routes::table::{Access, Route};

/// Every route but the page at `/docs`; those of operators are there only with an admin key.
pub fn routes() -> &'static [Route] {
    routes::table::ROUTES
}
