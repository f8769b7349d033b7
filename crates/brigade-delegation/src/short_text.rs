//! Renders durations.

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

/// Renders the absence of a process's host: `its node kitchen-2 was last seen 3m05s ago`.
pub fn render_away(node: &str, absent_ms: u64) -> String {
    format!("its node {node} was last seen {} ago", render_duration(absent_ms))
}

/// Renders a wait in whole seconds: `50 seconds`.
pub fn render_secs(wait: Duration) -> String {
    match wait.as_secs() {
        1 => "1 second".to_owned(),
        secs => format!("{secs} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rendered_short() {
        let shown = [5, 1_250, 61_000, 7_260_000].map(render_duration);
        assert_eq!(shown, ["5ms", "1.2s", "1m01s", "2h01m"]);
    }
}
