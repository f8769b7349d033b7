//! Durations as people write them: `90`, `1.5s`, `10m`, `1h 30m`, `7d`.

use std::time::Duration;

/// Parses a duration: numbers with units, which add up. A single number without a unit is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let not_a_duration =
        || format!("{text:?} is not a duration, such as 500ms, 90s, 10m or 1h 30m");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(not_a_duration());
    }
    if rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let seconds: f64 = rest.parse().map_err(|_| not_a_duration())?;
        return Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is too long"));
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (number, after) = split_at_first(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_at_first(after.trim_start(), |c| !c.is_alphabetic());
        let number: f64 = number.parse().map_err(|_| not_a_duration())?;
        let seconds = unit_seconds(unit).ok_or_else(|| {
            format!("{text:?} is not a duration: the units are ms, s, m, h and d")
        })?;
        let part = Duration::try_from_secs_f64(number * seconds).ok();
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| format!("{text:?} is too long"))?;
        rest = after.trim_start();
    }
    Ok(total)
}

fn split_at_first(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" => 0.001,
        "s" | "sec" | "second" | "seconds" => 1.0,
        "m" | "min" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

/// Formats a duration to the millisecond, as [`parse_duration`] reads it: `1h 30m`, `2s 500ms`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (u64::from(duration.subsec_millis()), "ms"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("90", 90_000),
            ("0", 0),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("10m", 600_000),
            ("10 min", 600_000),
            ("1h 30m", 5_400_000),
            ("1h30m5s", 5_405_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "-1", "1.2.3s", "5 weeks", "1e9", "1h 30", "9999999999999999999d", "."]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_formatted_as_they_are_parsed() {
        for (millis, text) in
            [(0, "0s"), (2_500, "2s 500ms"), (5_400_000, "1h 30m"), (90_061_001, "1d 1h 1m 1s 1ms")]
        {
            let duration = Duration::from_millis(millis);
            assert_eq!(format_duration(duration), text);
            assert_eq!(parse_duration(text), Ok(duration));
        }
    }
}
