//! Prometheus' text format 0.0.4.

use super::instrument::Histogram;
use std::fmt::Write;

/// `Content-Type` of what [`Exposition`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// A name's `HELP` and `TYPE`, once, before its samples.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One sample. `labels` is empty or `key="value",…`, escaped.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        if labels.is_empty() {
            self.push(format_args!("{name} {value}\n"));
        } else {
            self.push(format_args!("{name}{{{labels}}} {value}\n"));
        }
    }

    /// A family with one sample.
    pub(super) fn single(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        labels: &str,
        value: impl std::fmt::Display,
    ) {
        self.family(name, kind, help);
        self.sample(name, labels, value);
    }

    /// Buckets, sum and count of one histogram.
    pub(super) fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let (buckets, count, sum) = histogram.read();
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, cumulative) in buckets {
            self.push(format_args!(
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {cumulative}\n"
            ));
        }
        self.push(format_args!(
            "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}\n"
        ));
        let braced = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        self.push(format_args!(
            "{name}_sum{braced} {sum}\n{name}_count{braced} {count}\n"
        ));
    }

    /// Families of one histogram each: (name, help, values).
    pub(super) fn histograms(&mut self, labels: &str, families: &[(&str, &str, &Histogram)]) {
        for (name, help, histogram) in families {
            self.family(name, "histogram", help);
            self.histogram(name, labels, histogram);
        }
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.text.write_fmt(arguments);
    }
}

/// A label's value with backslash, quote and line feed escaped.
pub(super) fn escape_label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_ends_with_the_total() {
        let histogram = Histogram::new([0.5]);
        histogram.record(0.25);
        histogram.record(2.0);
        let mut page = Exposition::default();
        page.histogram("x", "a=\"b\"", &histogram);
        assert_eq!(
            page.into_text(),
            "x_bucket{a=\"b\",le=\"0.5\"} 1\nx_bucket{a=\"b\",le=\"+Inf\"} 2\n\
             x_sum{a=\"b\"} 2.25\nx_count{a=\"b\"} 2\n"
        );
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
