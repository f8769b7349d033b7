//! Prints the output of a process byte by byte, and reports gaps.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc as blocking;

use brigade_protocol::requests::{OutputPageItem, OutputPiece};
use tokio::sync::mpsc;

/// Gaps that are reported in place. A process that is faster than its reader has hundreds, which
/// are only counted.
const GAPS_REPORTED: u64 = 3;

/// A printer of both output streams.
#[derive(Debug, Default)]
pub(crate) struct OutputPrinter {
    unfinished_line: Option<UnfinishedLine>,
    /// Bytes of the current gap. A page can end within a gap.
    gap: u64,
    gaps: u64,
    missing: u64,
    unwritten: u64,
    /// Bytes lost in total, also after `finish`.
    lost_bytes: u64,
}

/// The stream of the last byte, if it did not end its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnfinishedLine {
    Stdout,
    Stderr,
}

impl OutputPrinter {
    pub(crate) fn print_page(&mut self, page: &OutputPageItem) -> io::Result<()> {
        // Stderr is not locked, so that notices get through while nobody reads stdout.
        self.print_page_to(page, &mut io::stdout().lock(), &mut io::stderr())
    }

    /// Reports the lost bytes in total, if there is more than one gap.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.finish_to(&mut io::stdout().lock(), &mut io::stderr())
    }

    /// Prints a page, or the final report. Returns the bytes lost so far.
    fn print_or_finish(&mut self, page: Option<OutputPageItem>) -> io::Result<u64> {
        match page {
            Some(page) => self.print_page(&page)?,
            None => self.finish()?,
        }
        Ok(self.lost_bytes)
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
                    // Earlier stdout appears before this.
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
        // Reported once, even if `finish` is called again.
        let Self { gaps, missing, unwritten, lost_bytes, .. } = std::mem::take(self);
        self.lost_bytes = lost_bytes;
        if gaps > 1 {
            let text = format!("{missing} bytes of output are not kept in all, in {gaps} gaps");
            self.print_notice(&text, out, err)?;
        }
        if unwritten > 0 {
            let text = format!("{unwritten} bytes of output were lost on a full disk");
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

    /// Prints a notice on its own line.
    fn print_notice(
        &mut self,
        text: &str,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> io::Result<()> {
        out.flush()?;
        let is_within_line = match self.unfinished_line.take() {
            None => false,
            Some(UnfinishedLine::Stderr) => true,
            Some(UnfinishedLine::Stdout) => {
                io::stdout().is_terminal() && io::stderr().is_terminal()
            }
        };
        let before = if is_within_line { "\n" } else { "" };
        writeln!(err, "{before}brigade: {text}")
    }
}

/// A printer on its own thread, since the reader of our output may be slow or stop.
///
/// The thread starts with the first page, because many processes print nothing. Without a thread,
/// pages are printed at once, and Ctrl-C waits for the reader of our output.
#[derive(Debug)]
pub(crate) struct PrinterThread {
    worker: PrinterWorker,
    /// The result of a page that was printed without a thread.
    printed: Option<io::Result<u64>>,
    is_busy: bool,
    lost_bytes: u64,
}

#[derive(Debug)]
enum PrinterWorker {
    NotStarted,
    Thread {
        pages: blocking::Sender<Option<OutputPageItem>>,
        results: mpsc::UnboundedReceiver<io::Result<u64>>,
    },
    NoThread(OutputPrinter),
}

impl PrinterWorker {
    fn start() -> Self {
        let (pages, queued) = blocking::channel::<Option<OutputPageItem>>();
        let (done, results) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("stdout".into());
        let thread = thread.spawn(move || {
            let mut printer = OutputPrinter::default();
            while let Ok(page) = queued.recv() {
                if done.send(printer.print_or_finish(page)).is_err() {
                    return;
                }
            }
        });
        match thread {
            Ok(_) => Self::Thread { pages, results },
            Err(_) => Self::NoThread(OutputPrinter::default()),
        }
    }
}

impl PrinterThread {
    pub(crate) fn new() -> Self {
        Self { worker: PrinterWorker::NotStarted, printed: None, is_busy: false, lost_bytes: 0 }
    }

    /// Waits until the started page is printed. A cancelled call loses nothing.
    pub(crate) async fn wait_idle(&mut self) -> io::Result<()> {
        if self.is_busy {
            let result = match (&mut self.worker, self.printed.take()) {
                (_, Some(printed)) => Some(printed),
                (PrinterWorker::Thread { results, .. }, None) => results.recv().await,
                (PrinterWorker::NotStarted | PrinterWorker::NoThread(_), None) => None,
            };
            self.is_busy = false;
            self.lost_bytes = result.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))?;
        }
        Ok(())
    }

    /// Returns the bytes lost so far.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// Starts to print a page, or the final report. The last page must be printed.
    pub(crate) fn start_page(&mut self, page: Option<OutputPageItem>) {
        if matches!(self.worker, PrinterWorker::NotStarted) {
            if page.is_none() {
                // Nothing was printed, so that there is nothing to report.
                return;
            }
            self.worker = PrinterWorker::start();
        }
        match &mut self.worker {
            PrinterWorker::NotStarted => {}
            PrinterWorker::Thread { pages, .. } => {
                // `wait_idle` reports a thread that has ended.
                let _ = pages.send(page);
            }
            PrinterWorker::NoThread(printer) => self.printed = Some(printer.print_or_finish(page)),
        }
        self.is_busy = true;
    }
}

#[cfg(test)]
mod tests {
    use brigade_protocol::requests::Base64Bytes;

    use super::*;

    fn printed(pages: &[&[OutputPiece]]) -> (String, String) {
        let mut out = Vec::new();
        let mut err = Vec::new();
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
    fn a_gap_across_pages_is_reported_once() {
        let (_, notices) = printed(&[&[out("a\n"), cut(5)], &[cut(6), cut(7)], &[out("z\n")]]);
        assert_eq!(notices, "brigade: 18 bytes of output are not kept\n");
        let (_, notices) = printed(&[&[out("a\n")], &[cut(5)]]);
        assert_eq!(notices, "brigade: 5 bytes of output are not kept\n", "at the end too");
    }

    #[test]
    fn many_gaps_are_reported_in_total() {
        let page: &[OutputPiece] = &[cut(10), out("x\n")];
        let (shown, notices) = printed(&[page; 40]);
        assert_eq!(shown, "x\n".repeat(40));
        let expect = "brigade: 10 bytes of output are not kept\n\
                      brigade: 10 bytes of output are not kept\n\
                      brigade: 10 bytes of output are not kept; further gaps are counted\n\
                      brigade: 400 bytes of output are not kept in all, in 40 gaps\n";
        assert_eq!(notices, expect);
    }

    #[test]
    fn a_gap_within_a_line_is_reported_on_its_own_line() {
        let (_, notices) = printed(&[&[err("half"), cut(4), err("rest\n")]]);
        assert_eq!(notices, "half\nbrigade: 4 bytes of output are not kept\nrest\n");
    }
}
