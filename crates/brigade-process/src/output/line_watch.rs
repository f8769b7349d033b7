//! Waits for a line of the output that matches a pattern.
//!
//! Each stream is read once and as it grows. Escape sequences of terminals are removed. A line ends
//! with a line feed or a carriage return. A line whose end does not arrive, such as a prompt, is
//! searched when the stream pauses.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::Regex;
use tokio::time::timeout;

use super::search::compile_pattern;
use super::{
    OutputFollower, OutputView, PagePiece, ProcessOutput, ReadStart, SearchError, ViewPage,
};

/// The bytes of a line that are searched. The rest of a longer line is ignored.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// The time without output after which an unfinished line is searched.
const PAUSE: Duration = Duration::from_millis(200);

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// A pattern to wait for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LineWatch {
    pattern: Arc<Regex>,
}

impl LineWatch {
    /// Compiles a regular expression over the bytes of a line without its end. Classes such as `\w`
    /// support ASCII only. Its size is limited.
    pub fn new(pattern: &str) -> Result<Self, SearchError> {
        Ok(Self { pattern: Arc::new(compile_pattern(pattern, false)?) })
    }

    /// Waits until a line of either stream matches. Returns false if the output ends before, and an
    /// error if it was removed.
    pub async fn wait(&self, output: &ProcessOutput) -> io::Result<bool> {
        let follow = |view| self.wait_stream(output.clone().follow(view, ReadStart::At(0)));
        let mut stdout = pin!(follow(OutputView::Stdout));
        let mut stderr = pin!(follow(OutputView::Stderr));
        tokio::select! {
            found = &mut stdout => Ok(found? || stderr.await?),
            found = &mut stderr => Ok(found? || stdout.await?),
        }
    }

    async fn wait_stream(&self, mut follower: OutputFollower) -> io::Result<bool> {
        let mut lines = LineScanner::new(self.pattern.clone());
        loop {
            let page = match lines.has_unsearched() {
                false => follower.next().await?,
                true => match timeout(PAUSE, follower.next()).await {
                    Ok(page) => page?,
                    Err(_) if lines.matches_unfinished() => return Ok(true),
                    Err(_) => continue,
                },
            };
            let Some(page) = page else { return Ok(lines.finish_line()) };
            // A pattern can take long for a page, so it blocks a thread of its own.
            let scanned = tokio::task::spawn_blocking(move || {
                let found = lines.push_page(&page);
                (lines, found)
            });
            let found;
            (lines, found) = scanned.await.map_err(io::Error::other)?;
            if found {
                return Ok(true);
            }
        }
    }
}

/// The search of one stream, line by line.
#[derive(Debug)]
struct LineScanner {
    pattern: Arc<Regex>,
    /// The line whose end has not arrived, without escape sequences.
    line: Vec<u8>,
    /// True if the line has bytes that were not searched.
    is_unsearched: bool,
    escape: EscapeState,
}

/// The part of an escape sequence that the last byte was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EscapeState {
    Text,
    /// The escape character.
    Started,
    /// A control sequence, such as a colour.
    Control,
    /// A string, such as the title of a window. It ends with a bell or the next escape.
    String,
}

impl LineScanner {
    fn new(pattern: Arc<Regex>) -> Self {
        Self { pattern, line: Vec::new(), is_unsearched: false, escape: EscapeState::Text }
    }

    /// Takes the next page. Returns true if a line matches.
    fn push_page(&mut self, page: &ViewPage) -> bool {
        page.pieces.iter().any(|piece| match piece {
            PagePiece::Bytes { bytes, .. } => bytes.iter().any(|byte| self.push(*byte)),
            PagePiece::Dropped { .. } => self.finish_line(),
        })
    }

    fn push(&mut self, byte: u8) -> bool {
        if matches!(byte, b'\n' | b'\r') {
            return self.finish_line();
        }
        self.escape = match (self.escape, byte) {
            (_, ESCAPE) => EscapeState::Started,
            (EscapeState::Started, b'[') => EscapeState::Control,
            (EscapeState::Started, b']' | b'P' | b'X' | b'^' | b'_') => EscapeState::String,
            // Intermediate bytes, which another byte follows.
            (EscapeState::Started, 0x20..=0x2f) => EscapeState::Started,
            (EscapeState::Started, _) => EscapeState::Text,
            (EscapeState::Control, 0x40..=0x7e) => EscapeState::Text,
            (EscapeState::String, BELL) => EscapeState::Text,
            (EscapeState::Text, _) => {
                if self.line.len() < LINE_BYTES_MAX {
                    self.line.push(byte);
                    self.is_unsearched = true;
                }
                EscapeState::Text
            }
            (state, _) => state,
        };
        false
    }

    /// Ends the line, and returns whether it matches. An empty line never does.
    fn finish_line(&mut self) -> bool {
        self.escape = EscapeState::Text;
        let found = !self.line.is_empty() && self.pattern.is_match(&self.line);
        self.line.clear();
        self.is_unsearched = false;
        found
    }

    fn has_unsearched(&self) -> bool {
        self.is_unsearched
    }

    fn matches_unfinished(&mut self) -> bool {
        self.is_unsearched = false;
        self.pattern.is_match(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::StdStream;

    fn scanner(pattern: &str) -> LineScanner {
        LineScanner::new(LineWatch::new(pattern).expect("a pattern").pattern)
    }

    fn page(pieces: Vec<PagePiece>) -> ViewPage {
        ViewPage { pieces, ..ViewPage::empty(ReadStart::At(0)) }
    }

    fn bytes(bytes: &[u8]) -> PagePiece {
        PagePiece::Bytes { stream: StdStream::Stdout, at: 0, bytes: bytes.to_vec() }
    }

    /// Pushes the parts as pages of their own. Returns whether one of them matched.
    fn found(pattern: &str, parts: &[&[u8]]) -> bool {
        let mut lines = scanner(pattern);
        parts.iter().any(|part| lines.push_page(&page(vec![bytes(part)])))
    }

    #[test]
    fn a_line_is_found_however_it_is_split() {
        let output = b"starting\nlistening on port 80\nmore\n";
        for at in 0..output.len() {
            let (one, two) = output.split_at(at);
            assert!(found("^listening on port 80$", &[one, two]), "split at {at}");
        }
        assert!(!found("^listening on port 80$", &[b"listening on port 8080\n"]));
        assert!(!found("starting.*listening", &[b"starting\nlistening\n"]));
    }

    #[test]
    fn an_unfinished_line_is_searched_only_on_request() {
        let mut lines = scanner("port 80$");
        assert!(!lines.push_page(&page(vec![bytes(b"port 80")])));
        assert!(lines.has_unsearched());
        assert!(!lines.push_page(&page(vec![bytes(b"80\n")])));
        assert!(!lines.has_unsearched());
        let mut lines = scanner("^>>> $");
        assert!(!lines.push_page(&page(vec![bytes(b">>> ")])));
        assert!(lines.matches_unfinished());
        assert!(!lines.has_unsearched(), "no bytes are searched twice");
    }

    #[test]
    fn colours_and_titles_are_removed() {
        let table: [&[u8]; 5] = [
            b"\x1b[1;32mready\x1b[0m\n",
            b"re\x1b[0mady\r\n",
            b"\x1b]0;a title\x07ready\n",
            b"\x1b]0;a title\x1b\\ready\n",
            b"\x1b(Bready\rnext",
        ];
        for output in table {
            assert!(found("^ready$", &[output]), "{}", output.escape_ascii());
            for at in 0..output.len() {
                let (one, two) = output.split_at(at);
                assert!(found("^ready$", &[one, two]), "{} at {at}", output.escape_ascii());
            }
        }
        assert!(found("^ready$", &[b"\x1b]0;never ends\nready\n"]), "a line end ends a sequence");
    }

    #[test]
    fn bytes_that_are_no_text_are_matched() {
        assert!(found("ready", &[b"\xff\xferea", b"dy\xff\n"]));
        assert!(found("bereit \u{fc}ber", &["bereit \u{fc}ber\n".as_bytes()]));
    }

    #[test]
    fn a_line_is_bounded() {
        let mut lines = scanner("end$");
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        assert!(!lines.push_page(&page(vec![bytes(&long), bytes(b"end\n"), bytes(b"the ")])));
        assert!(lines.line.len() <= LINE_BYTES_MAX);
        assert!(lines.push_page(&page(vec![bytes(b"end\n")])));
    }

    #[test]
    fn dropped_bytes_end_a_line() {
        let mut lines = scanner("^ab$");
        let dropped = PagePiece::Dropped { bytes: 5 };
        assert!(!lines.push_page(&page(vec![bytes(b"a"), dropped, bytes(b"b\n")])));
    }

    #[test]
    fn a_pattern_is_checked() {
        for pattern in ["(", "a{1000000}", "(?:a{1000}){1000}"] {
            LineWatch::new(pattern).unwrap_err();
        }
    }
}
