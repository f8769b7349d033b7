//! The end of a process's output, truncated for a reply.

use serde_json::{Map, Value, json};

/// The maximum number of bytes of output that a result shows.
pub const TAIL_BYTES: usize = 4_000;
const TAIL_LINES: usize = 40;

/// The end of a process's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTail {
    text: String,
    /// Bytes of output before the text.
    skipped_bytes: u64,
}

impl OutputTail {
    /// Returns the last lines of an output that was read to its end, starting at position `from`.
    pub fn from_text(whole: &str, from: u64) -> Self {
        let mut text = last_lines(whole, TAIL_LINES);
        if from > 0 && text.len() == whole.len() {
            // The first line may lack its beginning. It is dropped unless it is a large part.
            text = text
                .split_once('\n')
                .map_or(text, |(part, rest)| if part.len() < TAIL_BYTES / 4 { rest } else { text });
        }
        let skipped = from + (whole.len() - text.len()) as u64;
        Self { text: text.to_owned(), skipped_bytes: skipped }
    }

    /// Truncates the text to its last bytes, at the beginning of a line if there is one.
    pub fn truncate(&mut self, max_bytes: usize) {
        if self.text.len() <= max_bytes {
            return;
        }
        let cut = self.text.ceil_char_boundary(self.text.len() - max_bytes);
        let line = self.text[cut..].find('\n').map_or(cut, |at| cut + at + 1);
        let cut = if line < self.text.len() { line } else { cut };
        self.text.drain(..cut);
        self.skipped_bytes += cut as u64;
    }

    pub fn text(&self) -> &str {
        self.text.trim_end_matches('\n')
    }

    /// Renders the call that reads the omitted part, if there is one.
    pub(crate) fn guidance(&self, address: &str) -> Option<String> {
        (self.skipped_bytes > 0).then(|| {
            format!(
                "{} bytes of output before this are not shown; to read them, call read_output with \
                 task {address:?} and from 0.",
                self.skipped_bytes
            )
        })
    }

    pub(crate) fn add_to(&self, fields: &mut Map<String, Value>) {
        let lines: Vec<&str> = self.text().lines().collect();
        fields.insert("output".into(), json!(lines));
        if self.skipped_bytes > 0 {
            fields.insert("output_bytes_before".into(), json!(self.skipped_bytes));
        }
    }
}

fn last_lines(text: &str, max_lines: usize) -> &str {
    let body = text.trim_end_matches('\n');
    match body.rmatch_indices('\n').nth(max_lines - 1) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

/// The part of a text that truncation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptPart {
    Beginning,
    End,
}

/// Truncates a text so that its lines fit into a number of characters as an array of JSON strings.
/// Some clients show it in that form.
pub fn truncate_for_json_lines(text: &str, max_chars: usize, keep: KeptPart) -> &str {
    let cost = |letter: char| match letter {
        // `","` between two lines.
        '\n' => 3,
        '"' | '\\' | '\t' | '\r' => 2,
        letter if letter.is_ascii_control() => 6,
        _ => 1,
    };
    let mut spent = 0;
    let mut fits = |letter: char| {
        spent += cost(letter);
        spent <= max_chars
    };
    match keep {
        KeptPart::Beginning => {
            let end = text.char_indices().find(|(_, letter)| !fits(*letter));
            &text[..end.map_or(text.len(), |(at, _)| at)]
        }
        KeptPart::End => {
            let start = text.char_indices().rev().find(|(_, letter)| !fits(*letter));
            &text[start.map_or(0, |(at, letter)| at + letter.len_utf8())..]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a\nb\nc", 3), "a\nb\nc");
        assert_eq!(last_lines("", 3), "");
    }

    #[test]
    fn guidance_counts_the_omitted_bytes() {
        let mut tail = OutputTail::from_text("one\ntwo\nthree\n", 0);
        assert_eq!((tail.text(), tail.guidance("process:1")), ("one\ntwo\nthree", None));
        tail.truncate(8);
        assert_eq!((tail.text(), tail.skipped_bytes), ("three", 8));
        assert!(tail.guidance("process:1").unwrap().starts_with("8 bytes"));
        let mut long = OutputTail::from_text(&"x".repeat(100), 0);
        long.truncate(10);
        assert_eq!((long.text().len(), long.skipped_bytes), (10, 90));
    }

    #[test]
    fn lines_fit_as_json() {
        for text in ["1\n2\n3\n4\n", "\"quoted\" \\ text\twith\u{1}controls\n", "Grüße, 日本語\n"]
        {
            for max_chars in 0..40 {
                for keep in [KeptPart::Beginning, KeptPart::End] {
                    let part = truncate_for_json_lines(text, max_chars, keep);
                    let lines: Vec<&str> = part.split('\n').collect();
                    let shown = serde_json::to_string(&lines).unwrap().chars().count();
                    assert!(shown <= max_chars + 4, "{part:?} of {text:?} in {max_chars}");
                    assert!(max_chars < 60 || part == text);
                }
            }
            assert_eq!(truncate_for_json_lines(text, 60, KeptPart::End), text);
        }
    }
}
