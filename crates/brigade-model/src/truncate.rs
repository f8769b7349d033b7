//! Truncates text to a limit, for all crates. No character is split.
//!
//! - [`truncate_end`], [`truncate_chars`], [`truncate_line`]: the beginning of a text and [`MARKER`].
//! - [`truncate_middle`], [`truncate_with_hint`]: text for a model, with the omitted sizes.
//! - [`head_bytes`], [`tail_bytes`], [`head_chars`], [`tail_chars`], [`head_json_bytes`]: a part of a
//!   text without a marker, for callers that record or render the omission themselves.
//!
//! Limits are in bytes. They are in characters where people count them, such as in names and on
//! screens. A marker is not counted, except by [`truncate_middle`]. The command line has its own
//! function for the columns of a terminal.

/// The marker in place of omitted text.
pub const MARKER: &str = "…";

/// Truncates a text to its first `max_bytes` bytes, with [`MARKER`] for the rest.
pub fn truncate_end(text: &str, max_bytes: usize) -> String {
    mark_end(text, head_bytes(text, max_bytes))
}

/// Truncates a text to its first `max_chars` characters, with [`MARKER`] for the rest.
pub fn truncate_chars(text: &str, max_chars: usize) -> String {
    mark_end(text, head_chars(text, max_chars))
}

/// Truncates a text to the first `max_chars` characters of its first line, with [`MARKER`] for the
/// rest.
pub fn truncate_line(text: &str, max_chars: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    mark_end(text.trim_end(), head_chars(line, max_chars))
}

fn mark_end(text: &str, head: &str) -> String {
    if head.len() < text.len() { format!("{head}{MARKER}") } else { head.to_owned() }
}

/// An upper bound on the bytes of the marker in a middle.
const MIDDLE_MARKER_BYTES: usize = 100;

/// Truncates a text to its beginning and its end, with the omitted size in between. The marker is
/// included in the limit, so that a second truncation changes nothing.
pub fn truncate_middle(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let half = max_bytes.saturating_sub(MIDDLE_MARKER_BYTES) / 2;
    let head = head_bytes(text, half);
    let tail = tail_bytes(text, half);
    let total = text.len();
    let omitted = total - head.len() - tail.len();
    format!("{head}\n[truncated: {omitted} of {total} bytes are omitted here]\n{tail}")
}

/// Truncates a text to its first `max_bytes` bytes, with its size and a hint for reading the rest.
/// `subject` names the text; an empty `read_on` omits the hint.
pub fn truncate_with_hint(text: &str, max_bytes: usize, subject: &str, read_on: &str) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let head = head_bytes(text, max_bytes);
    let hint = if read_on.is_empty() { String::new() } else { format!(" Read on with {read_on}.") };
    format!(
        "{head}\n[{subject} is truncated: {} of {} bytes are shown.{hint}]",
        head.len(),
        text.len()
    )
}

/// Returns the first characters whose form in JSON, without quotes, has at most `max_bytes` bytes.
pub fn head_json_bytes(text: &str, max_bytes: usize) -> &str {
    // A character has at most six bytes of escapes for each byte.
    if text.len() <= max_bytes / 6 {
        return text;
    }
    let mut size = 0;
    for (start, c) in text.char_indices() {
        size += json_char_bytes(c);
        if size > max_bytes {
            return &text[..start];
        }
    }
    text
}

/// Returns the size of a text in JSON, without quotes.
pub fn json_bytes(text: &str) -> usize {
    text.chars().map(json_char_bytes).sum()
}

fn json_char_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// Returns the whole characters in the first `max_bytes` bytes.
pub fn head_bytes(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Returns the whole characters in the last `max_bytes` bytes.
pub fn tail_bytes(text: &str, max_bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max_bytes))..]
}

/// Returns the first `max_chars` characters.
pub fn head_chars(text: &str, max_chars: usize) -> &str {
    let end = text.char_indices().nth(max_chars).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Returns the last `max_chars` characters.
pub fn tail_chars(text: &str, max_chars: usize) -> &str {
    let Some(before) = max_chars.checked_sub(1) else { return "" };
    let start = text.char_indices().nth_back(before).map_or(0, |(at, _)| at);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_within_the_limit_is_unchanged() {
        for text in ["", "soup", "süß"] {
            assert_eq!(truncate_end(text, text.len()), text);
            assert_eq!(truncate_chars(text, text.chars().count()), text);
            assert_eq!(truncate_line(text, text.chars().count()), text);
            assert_eq!(truncate_middle(text, text.len()), text);
            assert_eq!(truncate_with_hint(text, text.len(), "It", "read"), text);
        }
    }

    #[test]
    fn a_limit_in_bytes_splits_no_character() {
        assert_eq!(truncate_end("süß", 2), "s…");
        assert_eq!(truncate_end("süß", 3), "sü…");
        assert_eq!(truncate_end("süß", 0), "…");
        assert_eq!(tail_bytes("süß", 3), "ß");
        assert_eq!(tail_bytes("süß", 9), "süß");
    }

    #[test]
    fn a_limit_in_json_counts_escapes() {
        for text in ["", "süß", "a\"b\\c\nd\re\tf\u{8}g\u{c}h\u{1}i\u{7f}j"] {
            let encoded = serde_json::to_string(text).unwrap().len() - 2;
            assert_eq!(json_bytes(text), encoded, "{text:?}");
            assert_eq!(head_json_bytes(text, encoded), text);
            for max in 0..encoded {
                let head = head_json_bytes(text, max);
                assert!(text.starts_with(head) && head.len() < text.len(), "{text:?} {max}");
                assert!(json_bytes(head) <= max, "{text:?} {max}");
            }
        }
    }

    #[test]
    fn a_limit_in_characters_counts_characters() {
        assert_eq!(truncate_chars("süß", 2), "sü…");
        assert_eq!(head_chars("süß", 0), "");
        assert_eq!(tail_chars("süß", 0), "");
        assert_eq!(tail_chars("süß", 2), "üß");
        assert_eq!(tail_chars("süß", 9), "süß");
    }

    #[test]
    fn a_line_is_marked_if_more_text_follows_it() {
        assert_eq!(truncate_line("short\n", 10), "short");
        assert_eq!(truncate_line("two\nlines", 10), "two…");
        assert_eq!(truncate_line("abcdef", 3), "abc…");
    }

    #[test]
    fn a_truncated_middle_states_its_size_and_is_not_truncated_again() {
        let max_bytes = 1_000;
        let once = truncate_middle(&"x".repeat(10 << 20), max_bytes);
        assert!(once.len() <= max_bytes && once.contains("of 10485760 bytes"), "{once}");
        assert_eq!(truncate_middle(&once, max_bytes), once);
    }

    #[test]
    fn a_hint_follows_the_size() {
        let truncated = truncate_with_hint("süß", 3, "The result", "read_output");
        let expect =
            "sü\n[The result is truncated: 3 of 5 bytes are shown. Read on with read_output.]";
        assert_eq!(truncated, expect);
        let truncated = truncate_with_hint("soup", 1, "The text", "");
        assert_eq!(truncated, "s\n[The text is truncated: 1 of 4 bytes are shown.]");
    }

    proptest! {
        #[test]
        fn every_part_is_within_its_limit(text in ".{0,40}", max in 0_usize..50) {
            prop_assert!(head_bytes(&text, max).len() <= max);
            prop_assert!(tail_bytes(&text, max).len() <= max);
            let chars = text.chars().count().min(max);
            prop_assert_eq!(head_chars(&text, max).chars().count(), chars);
            prop_assert_eq!(tail_chars(&text, max).chars().count(), chars);
            prop_assert!(text.starts_with(head_chars(&text, max)));
            prop_assert!(text.ends_with(tail_chars(&text, max)));
        }
    }
}
