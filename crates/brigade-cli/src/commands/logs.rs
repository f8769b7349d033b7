//! Shows what a command wrote.

use std::io::Write;
use std::str::FromStr;

use brigade_model::plain_text::PlainText;
use brigade_server::client::Step;
use brigade_server::requests::{
    Beginning, Bytes, Follow, OutputPage, OutputPiece, Read, Search, Which,
};
use brigade_server::{Client, Target};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Printer;
use crate::{show, transcript};

const PAGE: usize = 256 * 1024;
const MATCHES: usize = 10_000;
/// How long a line is taken to be at first when the last so many are looked for.
const LINE_GUESS: u64 = 200;

/// Show what a command wrote, its stdout to ours, its stderr to ours; of an agent, its conversation
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Logs {
    /// The task
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Go on with what comes, until it ends
    #[arg(long, short)]
    follow: bool,
    /// Only its stdout
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only its stderr
    #[arg(long)]
    stderr: bool,
    /// Only the end: so many lines, or bytes with a unit (512B, 64K, 1M)
    #[arg(long, short, value_name = "LINES|BYTES")]
    tail: Option<Tail>,
    /// Only lines that match this regular expression; exit code 1 when there are none
    #[arg(long, short, value_name = "PATTERN", conflicts_with_all = ["follow", "tail"])]
    grep: Option<String>,
    /// Match without regard to case
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

/// How much of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Lines(u64),
    Bytes(u64),
}

impl FromStr for Tail {
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
            _ => return Err(format!("{unit:?} is no unit; use B, K or M")),
        };
        number.checked_mul(scale).map(Self::Bytes).ok_or_else(|| "that is too much".to_owned())
    }
}

impl Logs {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let mut reading = Reading {
            context,
            client: context.daemon().await?,
            target: context.target(&self.address)?,
            which: match (self.stdout, self.stderr) {
                (true, _) => Which::Stdout,
                (_, true) => Which::Stderr,
                _ => Which::Combined,
            },
            printer: Printer::default(),
        };
        if let Some(pattern) = self.grep {
            return reading.search(pattern, self.ignore_case).await;
        }
        if let Some(text) = reading.conversation().await? {
            reading.tell(text, self.tail, self.follow).await?;
            return Ok(Exit::SUCCEEDED);
        }
        let from = match self.tail {
            None => Beginning::At(0),
            Some(Tail::Bytes(bytes)) => Beginning::End(bytes),
            Some(Tail::Lines(lines)) => reading.last_lines(lines).await?,
        };
        if self.follow {
            reading.follow(from).await?
        } else {
            reading.read(from).await?
        }
        reading.printer.finish().map_err(show::unwritable)?;
        Ok(Exit::SUCCEEDED)
    }
}

/// The output that is read.
struct Reading<'a> {
    context: &'a Context,
    client: Client,
    target: Target,
    which: Which,
    printer: Printer,
}

impl Reading<'_> {
    async fn page(&mut self, from: Beginning, max_bytes: usize) -> Result<OutputPage, Failure> {
        let (target, which) = (self.target.clone(), self.which);
        let read = Read { target, which, from, max_bytes };
        self.context.ask_over(&mut self.client, read).await
    }

    /// What an agent has said; `None` for what is no agent.
    async fn conversation(&mut self) -> Result<Option<String>, Failure> {
        transcript::whole(self.context, &mut self.client, &self.target).await
    }

    async fn tell(
        &mut self,
        text: String,
        tail: Option<Tail>,
        follow: bool,
    ) -> Result<(), Failure> {
        let json = self.context.json;
        let print = |text: &str| {
            if json { show::json(&serde_json::json!({ "transcript": text })) } else { said(text) }
        };
        print(end_of(&text, tail))?;
        if !follow {
            return Ok(());
        }
        transcript::follow(self.context, &mut self.client, (&self.target, text.len() as u64), print)
            .await
    }

    /// What is there now.
    async fn read(&mut self, mut from: Beginning) -> Result<(), Failure> {
        let mut to = None;
        loop {
            let page = self.page(from, PAGE).await?;
            let to = *to.get_or_insert(page.total);
            self.print(&page)?;
            if page.next >= to || page.pieces.is_empty() {
                return Ok(());
            }
            from = Beginning::At(page.next);
        }
    }

    async fn follow(&mut self, mut from: Beginning) -> Result<(), Failure> {
        loop {
            match self.follow_one(&mut from).await {
                // The next one goes on at the same byte.
                Err(failure) if failure.is_lost_daemon() => {
                    self.client = self.context.next_daemon().await?;
                }
                followed => return followed,
            }
        }
    }

    async fn follow_one(&mut self, from: &mut Beginning) -> Result<(), Failure> {
        let follow = Follow { target: self.target.clone(), which: self.which, from: *from };
        let mut pages = self.client.stream(follow)?;
        while let Step::Item(page) = pages.next().await? {
            self.print(&page)?;
            *from = Beginning::At(page.next);
        }
        Ok(())
    }

    /// Where the last so many lines begin.
    async fn last_lines(&mut self, lines: u64) -> Result<Beginning, Failure> {
        let mut bytes = lines.saturating_mul(LINE_GUESS).max(1);
        loop {
            let mut page = self.page(Beginning::End(bytes), usize::MAX).await?;
            let (first, mut ends) = (page.from, Vec::new());
            loop {
                line_ends(&page, &mut ends);
                if page.next >= page.total || page.pieces.is_empty() {
                    break;
                }
                page = self.page(Beginning::At(page.next), usize::MAX).await?;
            }
            // The end of the last line begins no line.
            ends.pop_if(|end| *end == page.next);
            let wanted = usize::try_from(lines).unwrap_or(usize::MAX);
            if wanted == 0 {
                return Ok(Beginning::At(page.next));
            }
            if let Some(at) = ends.len().checked_sub(wanted) {
                return Ok(Beginning::At(ends[at]));
            }
            if first == 0 {
                return Ok(Beginning::At(0));
            }
            bytes = bytes.saturating_mul(4);
        }
    }

    async fn search(&mut self, pattern: String, ignore_case: bool) -> Result<Exit, Failure> {
        let (target, which) = (self.target.clone(), self.which);
        let search = Search { target, which, pattern, ignore_case, max_matches: MATCHES };
        let matches = self.context.ask_over(&mut self.client, search).await?;
        if self.context.json {
            show::json(&matches)?;
        } else {
            for line in &matches.lines {
                show::result(&line.text)?;
            }
            if matches.more {
                show::note(&format!("only the first {} matches are shown", matches.lines.len()));
            }
            if matches.cut > 0 {
                show::note(&format!("{} bytes of output are not kept", matches.cut));
            }
        }
        Ok(if matches.lines.is_empty() { Exit::NO_MATCH } else { Exit::SUCCEEDED })
    }

    fn print(&mut self, page: &OutputPage) -> Result<(), Failure> {
        if !self.context.json {
            return self.printer.page(page).map_err(show::unwritable);
        }
        for piece in &page.pieces {
            show::json(&match piece {
                OutputPiece::Stdout(bytes) => text("stdout", bytes),
                OutputPiece::Stderr(bytes) => text("stderr", bytes),
                OutputPiece::Cut(bytes) => serde_json::json!({ "cut": bytes }),
            })?;
        }
        Ok(())
    }
}

/// Prints what an agent said, as far as a terminal may have it.
fn said(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(PlainText::of(text).as_str().as_bytes()).and_then(|()| out.flush());
    written.map_err(show::unwritable)
}

/// As much of the end of a text as is wanted.
fn end_of(text: &str, tail: Option<Tail>) -> &str {
    let from = match tail {
        None => 0,
        Some(Tail::Bytes(bytes)) => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            text.ceil_char_boundary(text.len().saturating_sub(bytes))
        }
        Some(Tail::Lines(0)) => text.len(),
        Some(Tail::Lines(lines)) => {
            let before = usize::try_from(lines - 1).unwrap_or(usize::MAX);
            let body = text.trim_end_matches('\n');
            body.rmatch_indices('\n').nth(before).map_or(0, |(at, _)| at + 1)
        }
    };
    &text[from..]
}

/// Text where it is text; what is not is marked by replacement characters.
fn text(stream: &str, bytes: &Bytes) -> serde_json::Value {
    serde_json::json!({ stream: String::from_utf8_lossy(&bytes.0) })
}

/// The positions after each line's end.
fn line_ends(page: &OutputPage, ends: &mut Vec<u64>) {
    let mut at = page.from;
    for piece in &page.pieces {
        match piece {
            OutputPiece::Stdout(Bytes(bytes)) | OutputPiece::Stderr(Bytes(bytes)) => {
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
    fn tails_are_read() {
        for (text, expect) in [
            ("20", Tail::Lines(20)),
            ("512B", Tail::Bytes(512)),
            ("64k", Tail::Bytes(65_536)),
            ("1M", Tail::Bytes(1 << 20)),
        ] {
            assert_eq!(text.parse(), Ok(expect));
        }
        for bad in ["", "-1", "K", "3x", "99999999999999M"] {
            assert!(bad.parse::<Tail>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_end_of_a_conversation() {
        let text = "one\ntwo\nthréé\n";
        for (tail, expect) in [
            (Tail::Lines(0), ""),
            (Tail::Lines(1), "thréé\n"),
            (Tail::Lines(2), "two\nthréé\n"),
            (Tail::Lines(9), text),
            (Tail::Bytes(4), "é\n"),
            (Tail::Bytes(99), text),
        ] {
            assert_eq!(end_of(text, Some(tail)), expect, "{tail:?}");
        }
    }
}
