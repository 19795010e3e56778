//! headrace-router: HTTP routes, the engine task, metrics, health and drain.

pub mod engine;
pub mod health;
pub mod metrics;
