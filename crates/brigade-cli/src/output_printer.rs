//! A command's output on ours, byte by byte as it was, with a word where some of it is missing.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc as blocking;

use brigade_server::requests::{OutputPageItem, OutputPiece};
use tokio::sync::mpsc;

/// So many gaps are told where they are. The output of a command that is faster than its reader has
/// hundreds, which are only counted.
const GAPS_REPORTED: u64 = 3;

/// Writes each stream to ours.
#[derive(Debug, Default)]
pub(crate) struct OutputPrinter {
    unfinished_line: Option<UnfinishedLine>,
    /// The bytes of the gap that is being read: pages can end in the middle of one.
    gap: u64,
    gaps: u64,
    missing: u64,
    unwritten: u64,
    /// Bytes that were missing, also after the end was told.
    lost_bytes: u64,
}

/// Where the last byte went, when it did not end its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnfinishedLine {
    Stdout,
    Stderr,
}

impl OutputPrinter {
    pub(crate) fn print_page(&mut self, page: &OutputPageItem) -> io::Result<()> {
        // While it is not taken, other things are still said beside it.
        self.print_page_to(page, &mut io::stdout().lock(), &mut io::stderr())
    }

    /// Tells what is missing in all, when the gaps have not told it.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.finish_to(&mut io::stdout().lock(), &mut io::stderr())
    }

    fn print_page_to(
        &mut self,
        page: &OutputPageItem,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> io::Result<()> {
        self.unwritten = self.unwritten.max(page.unwritten);
        for piece in &page.pieces {
            match piece {
                OutputPiece::Stdout(bytes) => {
                    self.end_gap(out, err)?;
                    out.write_all(&bytes.0)?;
                    self.note_unfinished_line(UnfinishedLine::Stdout, &bytes.0);
                }
                OutputPiece::Stderr(bytes) => {
                    self.end_gap(out, err)?;
                    // What came before it is seen before it.
                    out.flush()?;
                    err.write_all(&bytes.0)?;
                    self.note_unfinished_line(UnfinishedLine::Stderr, &bytes.0);
                }
                OutputPiece::Cut(bytes) => self.gap += bytes,
            }
        }
        out.flush()
    }

    fn finish_to(&mut self, out: &mut impl Write, err: &mut impl Write) -> io::Result<()> {
        self.end_gap(out, err)?;
        // Said once, however often the end is come to.
        let Self { gaps, missing, unwritten, lost_bytes: lost, .. } = std::mem::take(self);
        self.lost_bytes = lost;
        if gaps > 1 {
            let text = format!("{missing} bytes of output are not kept in all, in {gaps} gaps");
            self.print_notice(&text, out, err)?;
        }
        if unwritten > 0 {
            let text = format!("a full disk did not take {unwritten} bytes of output");
            self.print_notice(&text, out, err)?;
        }
        Ok(())
    }

    fn note_unfinished_line(&mut self, to: UnfinishedLine, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.unfinished_line = (*last != b'\n').then_some(to);
        }
    }

    fn end_gap(&mut self, out: &mut impl Write, err: &mut impl Write) -> io::Result<()> {
        let gap = std::mem::take(&mut self.gap);
        if gap == 0 {
            return Ok(());
        }
        self.gaps += 1;
        self.missing += gap;
        self.lost_bytes += gap;
        match self.gaps {
            ..GAPS_REPORTED => {
                self.print_notice(&format!("{gap} bytes of output are not kept"), out, err)
            }
            GAPS_REPORTED => {
                let text = format!("{gap} bytes of output are not kept; further gaps are counted");
                self.print_notice(&text, out, err)
            }
            _ => Ok(()),
        }
    }

    /// On a line of its own, where that can be seen.
    fn print_notice(
        &mut self,
        text: &str,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> io::Result<()> {
        out.flush()?;
        let within_a_line = match self.unfinished_line.take() {
            None => false,
            Some(UnfinishedLine::Stderr) => true,
            Some(UnfinishedLine::Stdout) => {
                io::stdout().is_terminal() && io::stderr().is_terminal()
            }
        };
        let before = if within_a_line { "\n" } else { "" };
        writeln!(err, "{before}brigade: {text}")
    }
}

/// The same beside everything else: whoever reads our output may be slow, or never come back to it. A thread
/// of its own writes, which is started before anything depends on it.
#[derive(Debug)]
pub(crate) struct PrinterThread {
    pages: blocking::Sender<Option<OutputPageItem>>,
    results: mpsc::UnboundedReceiver<io::Result<u64>>,
    is_busy: bool,
    lost_bytes: u64,
}

impl PrinterThread {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (pages, waiting) = blocking::channel::<Option<OutputPageItem>>();
        let (done, written) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("stdout".into());
        thread.spawn(move || {
            let mut printer = OutputPrinter::default();
            while let Ok(page) = waiting.recv() {
                let printed = match page {
                    Some(page) => printer.print_page(&page),
                    None => printer.finish(),
                };
                if done.send(printed.map(|()| printer.lost_bytes)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { pages, results: written, is_busy: false, lost_bytes: 0 })
    }

    /// Returns when what was begun is written. Nothing is lost when the call is abandoned.
    pub(crate) async fn wait_idle(&mut self) -> io::Result<()> {
        if self.is_busy {
            let written = self.results.recv().await;
            self.is_busy = false;
            self.lost_bytes = written.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(())
    }

    /// How many bytes were missing in what is written.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// Begins to write a page, or what there is to say at the end. What was begun before is written.
    pub(crate) fn start_page(&mut self, page: Option<OutputPageItem>) {
        // A thread that is gone is noticed by who waits for it.
        let _ = self.pages.send(page);
        self.is_busy = true;
    }
}

#[cfg(test)]
mod tests {
    use brigade_server::requests::Base64Bytes;

    use super::*;

    fn printed(pages: &[&[OutputPiece]]) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut printer = OutputPrinter::default();
        for pieces in pages {
            let pieces = pieces.to_vec();
            let page =
                OutputPageItem { from: 0, next: 0, total: 0, pieces, unwritten: 0, ended: false };
            printer.print_page_to(&page, &mut out, &mut err).unwrap();
        }
        printer.finish_to(&mut out, &mut err).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    fn out(text: &str) -> OutputPiece {
        OutputPiece::Stdout(Base64Bytes(text.into()))
    }

    fn err(text: &str) -> OutputPiece {
        OutputPiece::Stderr(Base64Bytes(text.into()))
    }

    const fn cut(bytes: u64) -> OutputPiece {
        OutputPiece::Cut(bytes)
    }

    #[test]
    fn a_gap_that_pages_tear_apart_is_told_once() {
        let (_, told) = printed(&[&[out("a\n"), cut(5)], &[cut(6), cut(7)], &[out("z\n")]]);
        assert_eq!(told, "brigade: 18 bytes of output are not kept\n");
        let (_, told) = printed(&[&[out("a\n")], &[cut(5)]]);
        assert_eq!(told, "brigade: 5 bytes of output are not kept\n", "at the end too");
    }

    #[test]
    fn many_gaps_are_told_in_all() {
        let page: &[OutputPiece] = &[cut(10), out("x\n")];
        let (shown, told) = printed(&[page; 40]);
        assert_eq!(shown, "x\n".repeat(40));
        let expect = "brigade: 10 bytes of output are not kept\n\
                      brigade: 10 bytes of output are not kept\n\
                      brigade: 10 bytes of output are not kept; further gaps are counted\n\
                      brigade: 400 bytes of output are not kept in all, in 40 gaps\n";
        assert_eq!(told, expect);
    }

    #[test]
    fn a_gap_within_a_line_is_told_on_another() {
        let (_, told) = printed(&[&[err("half"), cut(4), err("rest\n")]]);
        assert_eq!(told, "half\nbrigade: 4 bytes of output are not kept\nrest\n");
    }
}
