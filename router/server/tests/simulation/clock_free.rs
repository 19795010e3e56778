//! The only look at a clock: for the figure of steps a second.

/// Seconds that `work` took, and what it gave.
pub(crate) fn rate<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = std::time::Instant::now();
    let value = work();
    (start.elapsed().as_secs_f64().max(1e-9), value)
}
