//! The log: JSON lines on standard error, in the shape that the launcher relays.

use std::time::Duration;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts the log. `level` is `trace` … `error`; an unknown one is `info`. The first call counts.
pub fn start(level: &str) {
    // An error means that a log is running already, as in tests.
    let _ = subscriber(level, std::io::stderr).try_init();
}

/// What [`start`] starts, into any writer.
pub fn subscriber<W>(level: &str, writer: W) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let level: tracing::Level = level.parse().unwrap_or(tracing::Level::INFO);
    // Libraries below us say at `info` what only their authors want to know.
    let filter = format!(
        "{},h2=warn,hyper=warn,hyper_util=warn,tower=warn,tonic=warn",
        level.as_str().to_lowercase()
    );
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(writer)
        .with_env_filter(EnvFilter::new(filter))
        .finish()
}

/// A duration as a field of a record: milliseconds with three decimals at most, where a division would leave a dozen.
pub fn milliseconds(duration: Duration) -> f64 {
    // Below 2^53 for 285 years.
    #[expect(clippy::cast_precision_loss, reason = "exact as far as it matters")]
    let microseconds = duration.as_micros() as f64;
    microseconds / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_three_decimals() {
        for (nanoseconds, shown) in [
            (750_705_488, "750.705"),
            (100_000, "0.1"),
            (999, "0.0"),
            (3_000_000_000, "3000.0"),
            (86_400_000_001_234, "86400000.001"),
        ] {
            let value = milliseconds(Duration::from_nanos(nanoseconds));
            assert_eq!(serde_json::json!(value).to_string(), shown);
        }
    }
}
