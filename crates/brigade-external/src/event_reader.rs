//! Splits the standard output of a program into lines, and parses each line as an event.

use serde_json::Value;
use thiserror::Error;

/// The maximum length of a line in bytes.
pub const LINE_MAX: usize = 16 * 1024 * 1024;

/// A reader of events. It gets the pieces of the standard output in order.
#[derive(Debug)]
pub struct EventReader {
    line_max: usize,
    state: ReaderState,
}

#[derive(Debug)]
enum ReaderState {
    /// The beginning of a line, and the offset after it.
    Reading { partial: Vec<u8>, end: u64 },
    /// A line was too long.
    Failed,
}

/// A line of the standard output.
#[derive(Clone, Debug, PartialEq)]
pub struct EventLine {
    pub content: LineContent,
    /// The offset after the line. A reader that starts there reads the lines that follow.
    pub end: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LineContent {
    /// A JSON object.
    Event(Value),
    /// Any other text. Invalid UTF-8 is replaced.
    Text(String),
}

/// A line that is longer than the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it printed a line of more than {line_max} bytes")]
pub struct LineTooLong {
    pub line_max: usize,
}

impl Default for EventReader {
    fn default() -> Self {
        Self::with_line_max(LINE_MAX)
    }
}

impl EventReader {
    pub fn with_line_max(line_max: usize) -> Self {
        Self { line_max, state: ReaderState::Reading { partial: Vec::new(), end: 0 } }
    }

    /// Takes the next bytes and returns the lines that they complete. `offset` is the offset of the
    /// first byte. Bytes of the standard error may lie between two pieces.
    ///
    /// The lines before one that is too long are returned. Every later call returns the error.
    pub fn push(&mut self, offset: u64, bytes: &[u8]) -> Result<Vec<EventLine>, LineTooLong> {
        let line_max = self.line_max;
        let ReaderState::Reading { partial, end } = &mut self.state else {
            return Err(LineTooLong { line_max });
        };
        let mut lines = Vec::new();
        let mut start = 0;
        for newline in memchr::memchr_iter(b'\n', bytes) {
            let piece = &bytes[start..newline];
            if partial.len() + piece.len() > line_max {
                return self.fail(lines);
            }
            start = newline + 1;
            let line_end = offset + start as u64;
            if partial.is_empty() {
                lines.extend(parse_line(piece, line_end));
            } else {
                partial.extend_from_slice(piece);
                lines.extend(parse_line(partial, line_end));
                partial.clear();
            }
        }
        let piece = &bytes[start..];
        if partial.len() + piece.len() > line_max {
            return self.fail(lines);
        }
        partial.extend_from_slice(piece);
        *end = offset + bytes.len() as u64;
        Ok(lines)
    }

    /// Checks that no line has begun.
    pub fn is_between_lines(&self) -> bool {
        matches!(&self.state, ReaderState::Reading { partial, .. } if partial.is_empty())
    }

    /// Returns the last line, if it has no line break.
    pub fn finish(self) -> Result<Option<EventLine>, LineTooLong> {
        match self.state {
            ReaderState::Reading { partial, end } => Ok(parse_line(&partial, end)),
            ReaderState::Failed => Err(LineTooLong { line_max: self.line_max }),
        }
    }

    fn fail(&mut self, lines: Vec<EventLine>) -> Result<Vec<EventLine>, LineTooLong> {
        self.state = ReaderState::Failed;
        match lines.is_empty() {
            true => Err(LineTooLong { line_max: self.line_max }),
            false => Ok(lines),
        }
    }
}

fn parse_line(bytes: &[u8], end: u64) -> Option<EventLine> {
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let content = match serde_json::from_str::<Value>(&text) {
        Ok(event @ Value::Object(_)) => LineContent::Event(event),
        _ => LineContent::Text(text.into_owned()),
    };
    Some(EventLine { content, end })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn event(value: Value, end: u64) -> EventLine {
        EventLine { content: LineContent::Event(value), end }
    }

    fn text(line: &str, end: u64) -> EventLine {
        EventLine { content: LineContent::Text(line.into()), end }
    }

    #[test]
    fn lines_are_events_or_text_with_their_offsets() {
        let mut reader = EventReader::default();
        let lines = reader.push(0, b"{\"a\":1}\r\n\n  \nhello\n[1]\n\xff\n{\"b\"").unwrap();
        let expected =
            [event(json!({"a": 1}), 9), text("hello", 19), text("[1]", 23), text("\u{fffd}", 25)];
        assert_eq!(lines, expected);
        assert_eq!(reader.push(40, b":2}\n").unwrap(), [event(json!({"b": 2}), 44)]);
        assert_eq!(reader.finish(), Ok(None));
    }

    #[test]
    fn the_last_line_needs_no_line_break() {
        let mut reader = EventReader::default();
        assert_eq!(reader.push(5, b"{\"a\":1}").unwrap(), []);
        assert_eq!(reader.finish(), Ok(Some(event(json!({"a": 1}), 12))));
        let mut reader = EventReader::default();
        assert_eq!(reader.push(0, b"{\"a\":").unwrap(), []);
        assert_eq!(reader.finish(), Ok(Some(text("{\"a\":", 5))));
    }

    #[test]
    fn a_line_that_is_too_long_is_an_error_from_then_on() {
        let error = LineTooLong { line_max: 4 };
        let mut reader = EventReader::with_line_max(4);
        assert_eq!(reader.push(0, b"1234\n").unwrap(), [text("1234", 5)]);
        assert_eq!(reader.push(5, b"12345\n").unwrap_err(), error);
        assert_eq!(reader.push(11, b"1\n").unwrap_err(), error);
        assert_eq!(reader.finish(), Err(error));
        let mut reader = EventReader::with_line_max(4);
        assert_eq!(reader.push(0, b"123").unwrap(), []);
        assert_eq!(reader.push(3, b"45").unwrap_err(), error);
        let mut reader = EventReader::with_line_max(4);
        assert_eq!(reader.push(0, b"1\n12345").unwrap(), [text("1", 2)]);
        assert_eq!(reader.finish(), Err(error));
    }

    #[test]
    fn deep_nesting_is_text() {
        let deep = "{\"a\":".repeat(10_000);
        let mut reader = EventReader::default();
        let lines = reader.push(0, format!("{deep}\n").as_bytes()).unwrap();
        assert_eq!(lines, [text(&deep, 50_001)]);
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_lines(
            lines in prop::collection::vec("[ -~]{0,12}|\\{\"k\":[0-9]{1,3}\\}", 0..8),
            sizes in prop::collection::vec(1usize..9, 1..12),
        ) {
            let bytes = lines.join("\n").into_bytes();
            let mut whole = EventReader::default();
            let mut expected = whole.push(0, &bytes).unwrap();
            expected.extend(whole.finish().unwrap());
            let mut reader = EventReader::default();
            let mut found = Vec::new();
            let mut at = 0;
            for size in sizes.iter().cycle() {
                if at == bytes.len() {
                    break;
                }
                let end = (at + size).min(bytes.len());
                found.extend(reader.push(at as u64, &bytes[at..end]).unwrap());
                at = end;
            }
            found.extend(reader.finish().unwrap());
            prop_assert_eq!(&found, &expected);
            for (index, line) in found.iter().enumerate() {
                let mut next = EventReader::default();
                let start = (line.end as usize).min(bytes.len());
                let mut after = next.push(line.end, &bytes[start..]).unwrap();
                after.extend(next.finish().unwrap());
                prop_assert_eq!(&after[..], &expected[index + 1..]);
            }
        }
    }
}
