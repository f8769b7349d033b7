//! `brigade logs`: prints the output of a process, or the transcript of an agent.

use std::io::Write;
use std::str::FromStr;

use brigade_model::plain_text::PlainText;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::daemon_connection::ReplyStreamPart;
use brigade_protocol::requests::{
    Base64Bytes, FollowOutputRequest, OutputOffset, OutputPageItem, OutputPiece, ReadOutputRequest,
    SearchOutputReply, SearchOutputRequest, StreamSelection,
};
use brigade_protocol::{DaemonConnection, TaskTarget};

use crate::context::{CliContext, call_over, follow_over, note_lost_daemon};
use crate::exit_code::{CliError, CliExitCode};
use crate::output_printer::OutputPrinter;
use crate::transcript::TranscriptCursor;
use crate::{render, transcript};

const PAGE_BYTES: usize = 256 * 1024;
const MATCHES_MAX: usize = 10_000;
/// The first guess of a line's length, to find the last lines.
const LINE_BYTES_GUESS: u64 = 200;

/// Print the output of a process, or the transcript of an agent
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogsArgs {
    /// Task whose output to print
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Keep printing until the task ends
    #[arg(long, short)]
    follow: bool,
    /// Only stdout
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only stderr
    #[arg(long)]
    stderr: bool,
    /// Only the end: a number of lines, or bytes with a unit (512B, 64K, 1M)
    #[arg(long, short, value_name = "LINES|BYTES")]
    tail: Option<LogTail>,
    /// Only lines that match this regular expression; exit code 1 if none does
    #[arg(long, short, value_name = "PATTERN", conflicts_with_all = ["follow", "tail"])]
    grep: Option<String>,
    /// Ignore case
    #[arg(long, short, requires = "grep")]
    ignore_case: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade logs Tests
  brigade logs -f Tests
  brigade logs --tail 20 --stderr 3
  brigade logs --tail 64K 3
  brigade logs --grep 'warning|error' -i 3";

/// The requested end of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogTail {
    Lines(u64),
    Bytes(u64),
}

impl FromStr for LogTail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| "write a number of lines, or 64K")?;
        let scale = match unit.to_ascii_uppercase().as_str() {
            "" => return Ok(Self::Lines(number)),
            "B" => 1,
            "K" | "KB" | "KIB" => 1024,
            "M" | "MB" | "MIB" => 1024 * 1024,
            _ => return Err(format!("{unit:?} is not a unit; use B, K or M")),
        };
        number
            .checked_mul(scale)
            .map(Self::Bytes)
            .ok_or_else(|| "the number is too large".to_owned())
    }
}

impl LogsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let mut reader = LogReader {
            context,
            client: context.connect_daemon().await?,
            target: context.target(&self.address)?,
            streams: match (self.stdout, self.stderr) {
                (true, _) => StreamSelection::Stdout,
                (_, true) => StreamSelection::Stderr,
                _ => StreamSelection::Combined,
            },
            printer: OutputPrinter::default(),
        };
        if let Some(pattern) = self.grep {
            return reader.search(pattern, self.ignore_case).await;
        }
        if let Some(text) = reader.read_transcript().await? {
            reader.print_transcript(text, self.tail, self.follow).await?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let from = match self.tail {
            None => OutputOffset::At(0),
            Some(LogTail::Bytes(bytes)) => OutputOffset::FromEnd(bytes),
            Some(LogTail::Lines(lines)) => reader.find_last_lines(lines).await?,
        };
        if self.follow {
            reader.follow(from).await?
        } else {
            reader.print_all(from).await?
        }
        reader.printer.finish().map_err(render::output_error)?;
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// A reader of one task's output.
struct LogReader<'a> {
    context: &'a CliContext,
    client: DaemonClient,
    target: TaskTarget,
    streams: StreamSelection,
    printer: OutputPrinter,
}

impl LogReader<'_> {
    async fn read_page(
        &mut self,
        from: OutputOffset,
        max_bytes: usize,
    ) -> Result<OutputPageItem, CliError> {
        let target = self.target.clone();
        let read = ReadOutputRequest { target, streams: self.streams, from, max_bytes };
        call_over(&self.client, read).await
    }

    /// Reads the transcript; `None` for a task that is not an agent.
    async fn read_transcript(&mut self) -> Result<Option<String>, CliError> {
        transcript::read_transcript(&self.client, &self.target).await
    }

    async fn print_transcript(
        &mut self,
        text: String,
        tail: Option<LogTail>,
        follow: bool,
    ) -> Result<(), CliError> {
        let json = self.context.json;
        let print = |text: &str| {
            if json {
                render::print_json(&serde_json::json!({ "transcript": text }))
            } else {
                print_filtered(text)
            }
        };
        print(text_tail(&text, tail))?;
        if !follow {
            return Ok(());
        }
        let cursor = TranscriptCursor { target: self.target.clone(), offset: text.len() as u64 };
        transcript::follow_transcript(&self.client, cursor, print).await
    }

    /// Prints the output that exists now.
    async fn print_all(&mut self, mut from: OutputOffset) -> Result<(), CliError> {
        let mut end = None;
        loop {
            let page = self.read_page(from, PAGE_BYTES).await?;
            let end = *end.get_or_insert(page.total);
            self.print_page(&page)?;
            if page.next >= end || page.pieces.is_empty() {
                return Ok(());
            }
            from = OutputOffset::At(page.next);
        }
    }

    async fn follow(&mut self, mut from: OutputOffset) -> Result<(), CliError> {
        let client = self.client.clone();
        // The next daemon continues at the same byte.
        follow_over(&client, async |connection| {
            self.follow_until_lost(&connection, &mut from).await.inspect_err(note_lost_daemon)
        })
        .await
    }

    async fn follow_until_lost(
        &mut self,
        connection: &DaemonConnection,
        from: &mut OutputOffset,
    ) -> Result<(), CliError> {
        let follow =
            FollowOutputRequest { target: self.target.clone(), streams: self.streams, from: *from };
        let mut pages = connection.call_streaming(follow)?;
        while let ReplyStreamPart::Item(page) = pages.next_part().await? {
            self.print_page(&page)?;
            *from = OutputOffset::At(page.next);
        }
        Ok(())
    }

    /// Returns the offset of the last `lines` lines.
    async fn find_last_lines(&mut self, lines: u64) -> Result<OutputOffset, CliError> {
        let mut bytes = lines.saturating_mul(LINE_BYTES_GUESS).max(1);
        loop {
            let mut page = self.read_page(OutputOffset::FromEnd(bytes), usize::MAX).await?;
            let first = page.from;
            let mut ends = Vec::new();
            loop {
                collect_line_ends(&page, &mut ends);
                if page.next >= page.total || page.pieces.is_empty() {
                    break;
                }
                page = self.read_page(OutputOffset::At(page.next), usize::MAX).await?;
            }
            // No line starts after the end of the last line.
            ends.pop_if(|end| *end == page.next);
            let wanted = usize::try_from(lines).unwrap_or(usize::MAX);
            if wanted == 0 {
                return Ok(OutputOffset::At(page.next));
            }
            if let Some(at) = ends.len().checked_sub(wanted) {
                return Ok(OutputOffset::At(ends[at]));
            }
            if first == 0 {
                return Ok(OutputOffset::At(0));
            }
            bytes = bytes.saturating_mul(4);
        }
    }

    async fn search(
        &mut self,
        pattern: String,
        ignore_case: bool,
    ) -> Result<CliExitCode, CliError> {
        let search = SearchOutputRequest {
            target: self.target.clone(),
            streams: self.streams,
            pattern,
            ignore_case,
            max_matches: MATCHES_MAX,
            from: None,
        };
        let matches = self.search_all(search).await?;
        if self.context.json {
            render::print_json(&matches)?;
        } else {
            for line in &matches.lines {
                render::print_result(&line.text)?;
            }
            if matches.has_more {
                render::print_note(&format!(
                    "only the first {} matches are shown",
                    matches.lines.len()
                ));
            }
            if matches.dropped_bytes > 0 {
                render::print_note(&format!(
                    "{} bytes of output are not kept",
                    matches.dropped_bytes
                ));
            }
        }
        Ok(if matches.lines.is_empty() { CliExitCode::NO_MATCH } else { CliExitCode::SUCCEEDED })
    }

    /// Searches on after a search that took too long, until there are enough matches.
    async fn search_all(&self, search: SearchOutputRequest) -> Result<SearchOutputReply, CliError> {
        let mut all = call_over(&self.client, search.clone()).await?;
        while let Some(from) = all.next.filter(|_| all.lines.len() < MATCHES_MAX) {
            let max_matches = MATCHES_MAX - all.lines.len();
            let search = SearchOutputRequest { max_matches, from: Some(from), ..search.clone() };
            let more = call_over(&self.client, search).await?;
            all.lines.extend(more.lines);
            all.dropped_bytes += more.dropped_bytes;
            all.has_more = more.has_more;
            all.next = more.next;
        }
        Ok(all)
    }

    fn print_page(&mut self, page: &OutputPageItem) -> Result<(), CliError> {
        if !self.context.json {
            return self.printer.print_page(page).map_err(render::output_error);
        }
        for piece in &page.pieces {
            render::print_json(&match piece {
                OutputPiece::Stdout(bytes) => piece_json("stdout", bytes),
                OutputPiece::Stderr(bytes) => piece_json("stderr", bytes),
                OutputPiece::Cut(bytes) => serde_json::json!({ "dropped_bytes": bytes }),
            })?;
        }
        Ok(())
    }
}

/// Prints a transcript, filtered for a terminal.
fn print_filtered(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    let result = out.write_all(PlainText::of(text).as_str().as_bytes()).and_then(|()| out.flush());
    result.map_err(render::output_error)
}

/// Returns the requested end of a text.
fn text_tail(text: &str, tail: Option<LogTail>) -> &str {
    let from = match tail {
        None => 0,
        Some(LogTail::Bytes(bytes)) => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            text.ceil_char_boundary(text.len().saturating_sub(bytes))
        }
        Some(LogTail::Lines(0)) => text.len(),
        Some(LogTail::Lines(lines)) => {
            let before = usize::try_from(lines - 1).unwrap_or(usize::MAX);
            let body = text.trim_end_matches('\n');
            body.rmatch_indices('\n').nth(before).map_or(0, |(at, _)| at + 1)
        }
    };
    &text[from..]
}

/// Renders a piece as JSON. Bytes that are not text become replacement characters.
fn piece_json(stream: &str, bytes: &Base64Bytes) -> serde_json::Value {
    serde_json::json!({ stream: String::from_utf8_lossy(&bytes.0) })
}

/// Collects the position after each end of a line.
fn collect_line_ends(page: &OutputPageItem, ends: &mut Vec<u64>) {
    let mut at = page.from;
    for piece in &page.pieces {
        match piece {
            OutputPiece::Stdout(Base64Bytes(bytes)) | OutputPiece::Stderr(Base64Bytes(bytes)) => {
                let found = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
                ends.extend(found.map(|(offset, _)| at + offset as u64 + 1));
                at += bytes.len() as u64;
            }
            OutputPiece::Cut(bytes) => at += bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_parsed() {
        for (text, expect) in [
            ("20", LogTail::Lines(20)),
            ("512B", LogTail::Bytes(512)),
            ("64k", LogTail::Bytes(65_536)),
            ("1M", LogTail::Bytes(1 << 20)),
        ] {
            assert_eq!(text.parse(), Ok(expect));
        }
        for bad in ["", "-1", "K", "3x", "99999999999999M"] {
            assert!(bad.parse::<LogTail>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_end_of_a_text_is_selected() {
        let text = "one\ntwo\nthréé\n";
        for (tail, expect) in [
            (LogTail::Lines(0), ""),
            (LogTail::Lines(1), "thréé\n"),
            (LogTail::Lines(2), "two\nthréé\n"),
            (LogTail::Lines(9), text),
            (LogTail::Bytes(4), "é\n"),
            (LogTail::Bytes(99), text),
        ] {
            assert_eq!(text_tail(text, Some(tail)), expect, "{tail:?}");
        }
    }
}
