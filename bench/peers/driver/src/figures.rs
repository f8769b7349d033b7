//! The figures of a run and their medians.

use std::collections::BTreeMap;

use peers_harness::{PeerReport, Work};

/// A work of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerWork {
    pub(crate) peer: &'static str,
    pub(crate) work: Work,
}

impl PeerWork {
    fn key(self) -> (&'static str, &'static str) {
        (self.work.name(), self.peer)
    }
}

/// The samples of one work of one peer, for one item, one entry per round.
#[derive(Clone, Debug, Default)]
struct ItemSamples {
    /// Nanoseconds, or bytes where the work measures memory.
    main: Vec<f64>,
    cpu_ns: Vec<f64>,
    /// The items of a round.
    count: usize,
}

/// The medians of one work of one peer, for one item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Nanoseconds, or bytes where the work measures memory.
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) cpu_ns: f64,
    /// The items of a round.
    pub(crate) count: usize,
}

/// All samples of a run, and the works that peers cannot do.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    samples: BTreeMap<(&'static str, &'static str), ItemSamples>,
    excluded: BTreeMap<(&'static str, &'static str), String>,
}

impl Figures {
    pub(crate) fn add(&mut self, key: PeerWork, report: &PeerReport) {
        if let Some(feature) = &report.unsupported {
            return self.exclude(key, feature.clone());
        }
        let items = report.count as f64;
        let main = if key.work.measures_memory() { report.resident_bytes } else { report.wall_ns };
        let samples = self.samples.entry(key.key()).or_default();
        samples.main.push(main.unwrap_or_default() as f64 / items);
        samples.count = report.count;
        samples.cpu_ns.push(report.cpu_ns.unwrap_or_default() as f64 / items);
    }

    /// Takes a work of a peer out of the comparison.
    pub(crate) fn exclude(&mut self, key: PeerWork, reason: String) {
        self.samples.remove(&key.key());
        self.excluded.insert(key.key(), reason);
    }

    pub(crate) fn is_excluded(&self, key: PeerWork) -> bool {
        self.excluded.contains_key(&key.key())
    }

    pub(crate) fn reason(&self, key: PeerWork) -> Option<&str> {
        self.excluded.get(&key.key()).map(String::as_str)
    }

    pub(crate) fn get(&self, key: PeerWork) -> Option<Figure> {
        let samples = self.samples.get(&key.key())?;
        let mut main = samples.main.clone();
        main.sort_unstable_by(f64::total_cmp);
        let mut cpu_ns = samples.cpu_ns.clone();
        cpu_ns.sort_unstable_by(f64::total_cmp);
        Some(Figure {
            median: median(&main)?,
            lowest: *main.first()?,
            highest: *main.last()?,
            cpu_ns: median(&cpu_ns)?,
            count: samples.count,
        })
    }
}

/// Returns the median of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted[middle - 1] + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 5.0, 100.0]), Some(5.0));
        assert_eq!(median(&[1.0, 5.0, 7.0, 100.0]), Some(6.0));
    }
}
