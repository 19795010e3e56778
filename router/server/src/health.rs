//! `/health` and `/ready` from the engine's own signs of life: no request is made for them.

use crate::engine::{EngineStatus, HealthVerdict};

/// Status code and body of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// HTTP status.
    pub status: u16,
    /// JSON, or empty with status 200.
    pub body: String,
}

impl ProbeAnswer {
    fn ok() -> Self {
        Self {
            status: 200,
            body: String::new(),
        }
    }

    fn unavailable(error: &str, error_type: &str) -> Self {
        let body = serde_json::json!({ "error": error, "error_type": error_type });
        Self {
            status: 503,
            body: body.to_string(),
        }
    }
}

/// `GET /health`, `/`, `/ping`: 503 before a group was first ready, then 200 through restart and drain, and 503
/// when the engine task is stuck or the restarts are spent. TGI's bodies.
pub fn health(status: &EngineStatus) -> ProbeAnswer {
    match status.health {
        HealthVerdict::Healthy => ProbeAnswer::ok(),
        HealthVerdict::Starting | HealthVerdict::Unhealthy(_) => {
            ProbeAnswer::unavailable("unhealthy", "healthcheck")
        }
    }
}

/// `GET /ready`: 200 while a group is up and no drain has begun. The body of a 503 says what is waited for.
pub fn ready(status: &EngineStatus) -> ProbeAnswer {
    if status.ready {
        return ProbeAnswer::ok();
    }
    if status.draining {
        return ProbeAnswer::unavailable("shutting down", "not_ready");
    }
    if let HealthVerdict::Unhealthy(cause) = &status.health {
        return ProbeAnswer::unavailable(cause, "not_ready");
    }
    let waited_for = match (&status.progress, &status.down_cause) {
        (Some(progress), _) if progress.total > 0 => {
            format!(
                "{}: {} of {} {}",
                progress.stage, progress.done, progress.total, progress.unit
            )
        }
        (Some(progress), _) => format!("{}: {} {}", progress.stage, progress.done, progress.unit),
        (None, Some(cause)) => format!("restarting: {cause}"),
        (None, None) => "starting".to_owned(),
    };
    ProbeAnswer::unavailable(&waited_for, "not_ready")
}
