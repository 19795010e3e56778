//! What is counted for each API key: series are bounded by the configured list, and that by a number.

use super::exposition::{Exposition, escape_label};
use super::instrument::{Counter, Gauge};

/// Keys of the list with series of their own; later ones are counted together, as `other`.
const MOST_KEYS: usize = 100;

/// The series of one label.
#[derive(Debug, Default)]
pub(super) struct KeyInstruments {
    label: String,
    pub(super) requests: Counter,
    pub(super) open: Gauge,
    pub(super) prompt_tokens: Counter,
    pub(super) generated_tokens: Counter,
}

/// One number of a key.
type Read = fn(&KeyInstruments) -> u64;

/// All keys, found by their place in the list.
#[derive(Debug, Default)]
pub(super) struct Keys {
    labels: Vec<KeyInstruments>,
    /// Of each place in the list, its place in `labels`.
    places: Vec<usize>,
}

impl Keys {
    /// One series a name: equal names share it.
    pub(super) fn new(names: &[String]) -> Self {
        let mut keys = Self::default();
        for (index, name) in names.iter().enumerate() {
            let label = if index < MOST_KEYS {
                escape_label(name)
            } else {
                "other".to_owned()
            };
            let known = keys.labels.iter().position(|known| known.label == label);
            keys.places.push(known.unwrap_or(keys.labels.len()));
            if known.is_none() {
                keys.labels.push(KeyInstruments {
                    label,
                    ..KeyInstruments::default()
                });
            }
        }
        keys
    }

    /// Of the key at this place of the list.
    pub(super) fn get(&self, index: usize) -> Option<&KeyInstruments> {
        self.places
            .get(index)
            .and_then(|place| self.labels.get(*place))
    }

    pub(super) fn render(&self, page: &mut Exposition) {
        if self.labels.is_empty() {
            return;
        }
        let families: [(&str, &str, &str, Read); 4] = [
            (
                "headrace_key_requests_total",
                "counter",
                "Generation requests that arrived, by API key.",
                |key| key.requests.get(),
            ),
            (
                "headrace_key_requests_open",
                "gauge",
                "Generation requests that wait or run, by API key.",
                |key| key.open.get(),
            ),
            (
                "headrace_key_prompt_tokens_total",
                "counter",
                "Prompt tokens of ended requests, by API key.",
                |key| key.prompt_tokens.get(),
            ),
            (
                "headrace_key_generated_tokens_total",
                "counter",
                "Output tokens of ended requests, by API key.",
                |key| key.generated_tokens.get(),
            ),
        ];
        for (name, kind, help, read) in families {
            page.family(name, kind, help);
            for key in &self.labels {
                page.sample(name, &format!("key=\"{}\"", key.label), read(key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_bounded_and_each_label_stands_once() {
        let mut names: Vec<String> = (0..1000).map(|index| format!("key {index}")).collect();
        names[1] = "key 0".to_owned();
        names.push("a\"b".to_owned());
        let keys = Keys::new(&names);
        for index in 0..names.len() {
            keys.get(index).unwrap().requests.increment();
        }
        assert!(keys.get(names.len()).is_none());
        let mut page = Exposition::default();
        keys.render(&mut page);
        let page = page.into_text();
        let series = page
            .lines()
            .filter(|line| line.starts_with("headrace_key_requests_total{"));
        assert_eq!(series.count(), 100, "99 names and the others");
        for line in [
            "headrace_key_requests_total{key=\"key 0\"} 2",
            "headrace_key_requests_total{key=\"key 2\"} 1",
            "headrace_key_requests_total{key=\"other\"} 901",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn without_keys_there_is_no_series() {
        let mut page = Exposition::default();
        Keys::new(&[]).render(&mut page);
        assert_eq!(page.into_text(), "");
    }
}
