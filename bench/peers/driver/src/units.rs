//! Figures as text.

use peers_harness::Work;

/// Renders a figure of a work: a time or a size.
pub(crate) fn render_figure(work: Work, value: f64) -> String {
    if work.measures_memory() { render_bytes(value) } else { render_time(value) }
}

/// Renders nanoseconds with three digits.
pub(crate) fn render_time(ns: f64) -> String {
    let units = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (unit, size) = units.into_iter().rev().find(|(_, size)| ns >= *size).unwrap_or(("ns", 1.0));
    format!("{} {unit}", render_digits(ns / size))
}

/// Renders bytes with thousands separated.
pub(crate) fn render_bytes(bytes: f64) -> String {
    let whole = bytes.round() as u64;
    if whole < 1_000 {
        return format!("{whole} B");
    }
    format!("{},{:03} B", whole / 1_000, whole % 1_000)
}

/// Renders a ratio with at most three digits.
pub(crate) fn render_digits(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        assert_eq!(render_time(0.5), "0.50 ns");
        assert_eq!(render_time(999.0), "999 ns");
        assert_eq!(render_time(1_234.0), "1.23 µs");
        assert_eq!(render_time(45_600_000.0), "45.6 ms");
    }

    #[test]
    fn bytes_have_separators() {
        assert_eq!(render_bytes(12.4), "12 B");
        assert_eq!(render_bytes(10_048.0), "10,048 B");
    }
}
