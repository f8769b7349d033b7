//! Durations and times as people read them.

use jiff::Timestamp;

/// Renders milliseconds in one unit: `3s`, `12m`, `5h`, `9d`.
pub(crate) fn render_duration(millis: u64) -> String {
    let secs = millis / 1000;
    match secs {
        0 => format!("{millis}ms"),
        1..=119 => format!("{secs}s"),
        120..=7199 => format!("{}m", secs / 60),
        7200..=172_799 => format!("{}h", secs / 3600),
        _ => format!("{}d", secs / 86_400),
    }
}

/// Renders milliseconds since the epoch as a date and a time of day, in UTC.
pub(crate) fn render_timestamp(millis: u64) -> String {
    let at = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    at.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rendered_in_one_unit() {
        let shown = [5, 1_500, 119_999, 120_000, 7_200_000, 172_800_000].map(render_duration);
        assert_eq!(shown, ["5ms", "1s", "119s", "2m", "2h", "2d"]);
    }

    #[test]
    fn timestamps_are_rendered_in_utc() {
        for (secs, expect) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_164_800, "2024-02-29 00:00:00Z"),
            (1_798_761_599, "2026-12-31 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(render_timestamp(secs * 1000), expect);
        }
        assert_eq!(
            render_timestamp(u64::MAX),
            "9999-12-30 22:00:00Z",
            "the last representable time"
        );
    }
}
