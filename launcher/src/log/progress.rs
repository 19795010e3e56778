//! Progress of long stages: one updating line on a terminal, a plain line now and then elsewhere.

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Between two plain lines of a stage.
const INTERVAL: Duration = Duration::from_secs(5);

/// The stage that runs.
#[derive(Debug)]
pub(super) struct ProgressState {
    is_terminal: bool,
    bar: Option<ProgressBar>,
    stage: String,
    last_report: Option<Instant>,
    is_complete: bool,
}

impl ProgressState {
    pub(super) fn new(is_terminal: bool) -> Self {
        Self {
            is_terminal,
            bar: None,
            stage: String::new(),
            last_report: None,
            is_complete: false,
        }
    }

    /// The line that other output must make room for.
    pub(super) fn bar(&self) -> Option<&ProgressBar> {
        self.bar.as_ref()
    }

    /// Returns a line to log, where the terminal does not show the progress itself.
    pub(super) fn update(
        &mut self,
        stage: &str,
        done: u64,
        total: u64,
        unit: &str,
    ) -> Option<String> {
        let is_new = self.stage != stage;
        if is_new {
            self.clear();
            stage.clone_into(&mut self.stage);
        }
        if self.is_terminal {
            self.show(done, total, unit);
            return None;
        }
        let completes = total > 0 && done >= total && !self.is_complete;
        let is_due = self
            .last_report
            .is_none_or(|last| last.elapsed() >= INTERVAL);
        self.is_complete |= completes;
        if !completes && !is_due {
            return None;
        }
        self.last_report = Some(Instant::now());
        Some(plain_line(stage, done, total, unit))
    }

    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.stage.clear();
        self.last_report = None;
        self.is_complete = false;
    }

    fn show(&mut self, done: u64, total: u64, unit: &str) {
        let bar = self.bar.get_or_insert_with(|| new_bar(unit));
        bar.set_message(self.stage.clone());
        bar.set_length(total.max(done));
        bar.set_position(done);
    }
}

fn new_bar(unit: &str) -> ProgressBar {
    let template = if unit == "bytes" {
        "{spinner} {msg:20} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}"
    } else {
        "{spinner} {msg:20} {bar:30} {pos}/{len}"
    };
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn plain_line(stage: &str, done: u64, total: u64, unit: &str) -> String {
    match (unit, total) {
        ("bytes", 0) => format!("{stage}: {}", HumanBytes(done)),
        ("bytes", total) => format!("{stage}: {} of {}", HumanBytes(done), HumanBytes(total)),
        (unit, 0) => format!("{stage}: {done} {unit}"),
        (unit, total) => format!("{stage}: {done} of {total} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_come_at_start_and_end_of_a_stage() {
        let mut state = ProgressState::new(false);
        let start = state.update("weights", 0, 2048, "bytes");
        assert_eq!(start.as_deref(), Some("weights: 0 B of 2.00 KiB"));
        assert_eq!(
            state.update("weights", 1024, 2048, "bytes"),
            None,
            "not due yet"
        );
        let end = state.update("weights", 2048, 2048, "bytes");
        assert_eq!(end.as_deref(), Some("weights: 2.00 KiB of 2.00 KiB"));
        assert_eq!(
            state.update("weights", 2048, 2048, "bytes"),
            None,
            "told once"
        );
        let next = state.update("warm-up", 1, 0, "steps");
        assert_eq!(next.as_deref(), Some("warm-up: 1 steps"));
    }
}
