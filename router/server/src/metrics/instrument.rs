//! Counters and histograms on plain atomics: recording costs nanoseconds, takes no lock and allocates nothing, and what is
//! kept does not grow between two scrapes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn increment(&self) {
        self.add(1);
    }

    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Goes both ways; whole numbers.
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicU64);

impl Gauge {
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Once for each [`Gauge::increment`].
    pub(super) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Fixed upper bounds, ascending; one more bucket for what is above them.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: Box<[f64]>,
    counts: Box<[AtomicU64]>,
    /// Bits of an `f64`.
    sum: AtomicU64,
}

impl Histogram {
    pub(super) fn new(bounds: impl IntoIterator<Item = f64>) -> Self {
        let bounds: Box<[f64]> = bounds.into_iter().collect();
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self {
            bounds,
            counts,
            sum: AtomicU64::new(0f64.to_bits()),
        }
    }

    pub(super) fn record(&self, value: f64) {
        self.record_all(value, 1);
    }

    /// The same value, so many times.
    pub(super) fn record_all(&self, value: f64, times: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(times, Ordering::Relaxed);
        }
        let value = value * times as f64;
        let add = |bits: u64| Some((f64::from_bits(bits) + value).to_bits());
        // The closure always gives a value, so this cannot fail.
        let _ = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// (upper bound, cumulative count), then the total count and the sum.
    pub(super) fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut cumulative = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        let mut counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        for (bound, count) in self.bounds.iter().zip(counts.by_ref()) {
            cumulative += count;
            buckets.push((*bound, cumulative));
        }
        cumulative += counts.next().unwrap_or(0);
        (
            buckets,
            cumulative,
            f64::from_bits(self.sum.load(Ordering::Relaxed)),
        )
    }
}

/// TGI's durations: 35 bounds, each 1.5 times the last, from 0.15 ms.
pub(super) fn duration_histogram() -> Histogram {
    let bounds = std::iter::successors(Some(0.000_15_f64), |bound| Some(bound * 1.5));
    Histogram::new(bounds.take(35))
}

/// TGI's lengths: 100 equal steps up to `maximum`.
pub(super) fn length_histogram(maximum: u32) -> Histogram {
    Histogram::new((1..=100).map(|step| f64::from(maximum) / 100.0 * f64::from(step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_first_bucket_whose_bound_is_not_below_them() {
        let histogram = Histogram::new([1.0, 2.0, 4.0]);
        for value in [0.5, 1.0, 1.5, 4.0, 9.0] {
            histogram.record(value);
        }
        let (buckets, count, sum) = histogram.read();
        assert_eq!(buckets, [(1.0, 2), (2.0, 3), (4.0, 4)]);
        assert_eq!(count, 5);
        assert!((sum - 16.0).abs() < 1e-12);
    }

    #[test]
    fn duration_bounds_are_geometric() {
        let (buckets, ..) = duration_histogram().read();
        assert_eq!(buckets.len(), 35);
        assert!((buckets[0].0 - 0.000_15).abs() < 1e-12);
        assert!((buckets[34].0 / buckets[33].0 - 1.5).abs() < 1e-9);
    }
}
