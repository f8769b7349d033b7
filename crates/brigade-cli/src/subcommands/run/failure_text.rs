//! The reason of a failure, as `brigade run` prints it.

use brigade_model::truncate::truncate_middle;

/// The maximum number of lines of a reason. A program may print much before it fails.
const LINES_MAX: usize = 20;
const BYTES_MAX: usize = 2 * 1024;

/// Truncates a long reason to its beginning, which has the cause, and its end.
pub(super) fn truncate_failure(reason: &str) -> String {
    let lines: Vec<&str> = reason.lines().collect();
    let text = match lines.len() > LINES_MAX {
        true => {
            let half = LINES_MAX / 2;
            let head = &lines[..half];
            let tail = &lines[lines.len() - half + 1..];
            let omitted = lines.len() - head.len() - tail.len();
            format!("{}\n[.. {omitted} lines ..]\n{}", head.join("\n"), tail.join("\n"))
        }
        false => reason.to_owned(),
    };
    truncate_middle(&text, BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_shown_with_its_beginning_and_its_end() {
        for short in ["", "failed (exit code 2)", "failed (error: one\ntwo)"] {
            assert_eq!(truncate_failure(short), short);
        }
        let lines: Vec<String> = (1..=100).map(|number| format!("line {number}")).collect();
        let shown = truncate_failure(&lines.join("\n"));
        assert_eq!(shown.lines().count(), LINES_MAX);
        assert!(shown.starts_with("line 1\n") && shown.ends_with("\nline 100"), "{shown}");
        assert!(shown.contains("\nline 10\n[.. 81 lines ..]\nline 92\n"), "{shown}");
        let shown = truncate_failure(&format!("failed (error: {})", "x".repeat(100_000)));
        assert!(shown.len() <= BYTES_MAX && shown.starts_with("failed (error: x"), "{shown}");
    }
}
