//! Renders durations and single lines.

use std::time::Duration;

/// Renders a duration: `5ms`, `1.2s`, `1m01s`, `2h01m`.
pub fn render_duration(millis: u64) -> String {
    let duration = Duration::from_millis(millis);
    match duration.as_secs() {
        0 => format!("{millis}ms"),
        secs @ 1..60 => format!("{secs}.{}s", duration.subsec_millis() / 100),
        secs @ 60..3_600 => format!("{}m{:02}s", secs / 60, secs % 60),
        secs => format!("{}h{:02}m", secs / 3_600, secs / 60 % 60),
    }
}

/// Renders a wait in whole seconds: `50 seconds`.
pub fn render_secs(wait: Duration) -> String {
    match wait.as_secs() {
        1 => "1 second".to_owned(),
        secs => format!("{secs} seconds"),
    }
}

/// Truncates a text to the first characters of its first line, with `..` for the omitted rest.
pub fn truncate_line(text: &str, max_chars: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(max_chars).collect();
    if shown.len() < text.trim_end().len() {
        shown.push_str("..");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rendered_short() {
        let shown = [5, 1_250, 61_000, 7_260_000].map(render_duration);
        assert_eq!(shown, ["5ms", "1.2s", "1m01s", "2h01m"]);
    }

    #[test]
    fn long_text_is_truncated() {
        assert_eq!(truncate_line("short", 10), "short");
        assert_eq!(truncate_line("two\nlines", 10), "two..");
        assert_eq!(truncate_line("abcdef", 3), "abc..");
    }
}
