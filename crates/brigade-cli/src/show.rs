//! How things look: JSON for programs; tables for people, coloured on a terminal only.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use brigade_agent::Progress;
use brigade_model::enclosure::TerminalSize;
use brigade_model::limits::Usage;
use brigade_model::plain_text::PlainText;
use brigade_runtime::{Clock, SystemClock};
use brigade_server::TaskInfo;
use brigade_server::requests::Note;
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::exit::Failure;
use crate::span;
use crate::styled_line::StyledLine;

/// The narrowest column that is cut; below it a table is wider than its terminal.
const NARROWEST: usize = 6;
/// Spaces between columns.
const BETWEEN: usize = 2;

/// Prints one JSON value on one line.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<(), Failure> {
    let mut text = serde_json::to_string(value).map_err(io::Error::from)?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(unwritable)
}

/// That our own output is full is not to be taken for something else that is.
pub(crate) fn unwritable(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => Failure::broken(format!("our output cannot be written: {error}")),
    }
}

/// So many of them.
pub(crate) fn count(number: u64, one: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {one}{end}")
}

/// So much memory, as it is typed where it is a round number.
pub(crate) fn bytes(number: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")];
    let unit = units.iter().find(|(size, _)| number >= *size && number.is_multiple_of(*size));
    unit.map_or_else(|| count(number, "byte"), |(size, unit)| format!("{}{unit}", number / size))
}

/// Prints a line of text, with its colours if they are wanted.
pub(crate) fn line(line: impl Into<StyledLine>) -> Result<(), Failure> {
    let line = line.into();
    let mut out = anstream::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(unwritable)
}

/// Prints a text that is the result of something: to a program as it is, to a person filtered.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        return line(text);
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(unwritable)
}

/// Says something beside the output.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "brigade: {}", PlainText::of(text));
}

/// How wide the terminal is, if the output goes to one.
pub(crate) fn width() -> Option<usize> {
    terminal_size().map(|size| usize::from(size.columns))
}

/// How large it is, if it says so.
pub(crate) fn terminal_size() -> Option<TerminalSize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    let size = TerminalSize { rows: size.ws_row, columns: size.ws_col };
    Some(size).filter(|size| size.rows > 0 && size.columns > 0)
}

/// Now, in milliseconds since the epoch.
pub(crate) fn now() -> u64 {
    SystemClock.now().0
}

/// How long ago.
pub(crate) fn age(since: u64) -> String {
    span::short(now().saturating_sub(since))
}

/// How long it is until then.
pub(crate) fn until(time: u64) -> String {
    match time.saturating_sub(now()) {
        0 => "now".to_owned(),
        left => format!("in {}", span::short(left)),
    }
}

/// The state in one word with what is most wanted beside it.
pub(crate) fn state(task: &TaskInfo) -> String {
    match (task.exit_code, task.signal) {
        (Some(code), _) if code != 0 => format!("{} ({code})", task.state),
        (_, Some(signal)) => format!("{} (signal {signal})", task.state),
        _ if task.stalled => format!("{} (stalled)", task.state),
        _ => task.state.clone(),
    }
}

/// The same with the reason why it failed, where a code does not say it.
pub(crate) fn state_and_reason(task: &TaskInfo) -> String {
    let reason = task.detail.as_deref().filter(|_| task.state == "failed");
    match reason.and_then(|detail| detail.strip_prefix("failed ")) {
        Some(reason) if task.exit_code.is_none() && task.signal.is_none() => {
            format!("failed {}", one_line(reason))
        }
        _ => state(task),
    }
}

/// Whether it is alive, and apart from that whether it moves. Of a command nobody knows what it does in
/// silence; of what waits or has ended there is nothing to say.
pub(crate) fn liveness(task: &TaskInfo) -> Option<String> {
    if !matches!(task.state.as_str(), "running" | "stopping") {
        return None;
    }
    let since = age(task.moved);
    let nudged = match task.nudged {
        0 => String::new(),
        times => format!(", nudged {}", count(times.into(), "time")),
    };
    Some(match (task.stalled, task.is_command()) {
        (true, _) => format!("yes, but nothing has happened for {since}: stalled{nudged}"),
        (false, true) => "yes".to_owned(),
        (false, false) => format!("yes, and something happened {since} ago{nudged}"),
    })
}

pub(crate) fn style(state: &str) -> Style {
    let colour = match state {
        "running" => AnsiColor::Cyan,
        "succeeded" => AnsiColor::Green,
        "failed" => AnsiColor::Red,
        "stopping" | "closing" | "cancelled" => AnsiColor::Yellow,
        _ => return Style::new(),
    };
    Style::new().fg_color(Some(colour.into()))
}

/// A task by its address, and its name if it has one.
pub(crate) fn called(task: &TaskInfo) -> String {
    match &task.name {
        Some(name) => format!("{} ({name})", task.address),
        None => task.address.clone(),
    }
}

/// Who sent a note.
pub(crate) fn sender(note: &Note) -> String {
    match &note.name {
        Some(name) => format!("{} ({name})", note.from),
        None => note.from.clone(),
    }
}

/// What a task waits for somebody with: leave, an answer, or what its client is to do.
pub(crate) fn asks(task: &TaskInfo) -> Option<String> {
    if let Some(approval) = task.approvals.first() {
        return Some(format!("asks for leave: {}", one_line(&approval.text)));
    }
    task.questions.first().map(|question| format!("{}: {}", question.verb(), question.text))
}

/// What a task that lives is at, as far as it says: its question, an agent's step and last words.
pub(crate) fn doing(task: &TaskInfo) -> Option<String> {
    let step = step(task)?;
    let said = progress(task).filter(|_| asks(task).is_none()).map(|progress| progress.words);
    let words = said.as_deref().and_then(|words| words.lines().last()).unwrap_or_default();
    Some(if words.is_empty() { step } else { format!("{step} — {words}") })
}

/// The same without the words, which change with every piece of them that comes.
pub(crate) fn step(task: &TaskInfo) -> Option<String> {
    asks(task).or_else(|| {
        let Progress { step, doing, .. } = progress(task)?;
        Some(format!("step {step}, {doing}"))
    })
}

fn progress(task: &TaskInfo) -> Option<Progress> {
    let progress: Progress = task.progress.as_ref()?.decode().ok()?;
    Some(progress).filter(|progress| progress.step > 0)
}

/// Its open question, or else what it was told to do.
pub(crate) fn asked_or_told(task: &TaskInfo) -> String {
    asks(task).unwrap_or_else(|| task.what.clone())
}

/// One line of filtered text, whatever a command's text has in it.
pub(crate) fn one_line(text: &str) -> String {
    PlainText::line(text).into_string()
}

/// Rows under a heading, cut to the width of the terminal.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    /// The column that is never cut: what is typed again must be whole.
    whole: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: PlainText,
    style: Style,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text: PlainText::line(&text), style: Style::new() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The widest state in a list: enough for why something failed.
const STATE_COLUMNS: usize = 48;

impl Cell {
    pub(crate) fn state(task: &TaskInfo) -> Self {
        let text = cut(&state_and_reason(task), STATE_COLUMNS);
        Self { text: PlainText::line(&text), style: style(&task.state) }
    }
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let style = Style::new().dimmed();
        let heading = heading.iter().map(|text| Cell { text: PlainText::line(text), style });
        Self { rows: vec![heading.collect()], whole: None }
    }

    /// Never cuts the column of this heading.
    #[must_use]
    pub(crate) fn whole(mut self, heading: &str) -> Self {
        self.whole = self.rows[0].iter().position(|cell| cell.text.as_str() == heading);
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut out = anstream::stdout().lock();
        for line in self.lines(width()) {
            writeln!(out, "{line}").map_err(unwritable)?;
        }
        out.flush().map_err(unwritable)
    }

    fn lines(&self, width: Option<usize>) -> Vec<String> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| columns(cell.text.as_str())).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..count).map(widest).collect();
        if let Some(width) = width {
            narrow(&mut widths, self.whole, width);
        }
        let line = |row: &Vec<Cell>| {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let text = cut(cell.text.as_str(), widths[at]);
                let missing = widths[at].saturating_sub(columns(&text));
                line.push_str(&format!("{}{text}{:#}", cell.style, cell.style));
                if at + 1 < row.len() {
                    line.push_str(&" ".repeat(missing + BETWEEN));
                }
            }
            line
        };
        self.rows.iter().map(line).collect()
    }
}

/// Takes from the widest column, of several the last, until they all fit or none is worth less.
fn narrow(widths: &mut [usize], whole: Option<usize>, room: usize) {
    let between = BETWEEN * widths.len().saturating_sub(1);
    let mut surplus = (widths.iter().sum::<usize>() + between).saturating_sub(room);
    while surplus > 0 {
        let columns = widths.iter_mut().enumerate().filter(|(at, _)| Some(*at) != whole);
        match columns.map(|(_, width)| width).max_by_key(|width| **width) {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => return,
        }
        surplus -= 1;
    }
}

/// As much of a text as has room after the beginning of its line.
pub(crate) fn to_the_edge(before: &StyledLine, text: &str) -> String {
    match width() {
        Some(width) => cut(text, width.saturating_sub(before.columns()).max(NARROWEST)),
        None => text.to_owned(),
    }
}

/// So many tokens, in short.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} tokens"),
        10_000..=9_999_999 => format!("{}k tokens", count / 1_000),
        _ => format!("{}M tokens", count / 1_000_000),
    }
}

/// What was used, in short, if anything was.
pub(crate) fn spent(usage: &Usage) -> Option<String> {
    match (usage.tokens, usage.money.0) {
        (0, 0) => None,
        (used, 0) => Some(tokens(used)),
        (used, money) => Some(format!("{}, ${:.4}", tokens(used), money as f64 / 1e6)),
    }
}

/// A text in lines that fit, broken between words where that is possible.
pub(crate) fn wrapped(text: &str, wide: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= wide => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// How many columns of a terminal a text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// A text and spaces, so that together they take so many columns.
pub(crate) fn padded(text: &str, wide: usize) -> String {
    format!("{text}{}", " ".repeat(wide.saturating_sub(columns(text))))
}

/// The beginning of a text, with `…` where something is missing.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let (mut short, mut taken) = (String::new(), 0);
    for letter in text.chars() {
        taken += letter.width().unwrap_or(0);
        if taken >= most {
            break;
        }
        short.push(letter);
    }
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["TASK", "COMMAND"]).whole("TASK");
        table.row(["process:1".into(), "sleep 30".into()]);
        table.row(["process:12".into(), "cargo test\n--workspace".into()]);
        table
    }

    fn plain(width: Option<usize>) -> String {
        let lines = table().lines(width);
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string() + "\n").collect()
    }

    #[test]
    fn nothing_turns_a_text_around() {
        assert_eq!(one_line("rm \u{202e}txt.a\u{2069}\n"), "rm \u{fffd}txt.a\u{fffd} ");
        let mut table = Table::new(&["TASK"]);
        table.row(["\u{1b}[2Jx\u{e0041}".into()]);
        assert_eq!(table.lines(None)[1], "\u{fffd}[2Jx");
    }

    #[test]
    fn columns_are_lined_up() {
        let expect = "TASK        COMMAND\n\
                      process:1   sleep 30\n\
                      process:12  cargo test --workspace\n";
        assert_eq!(plain(None), expect);
        assert_eq!(plain(Some(200)), expect);
    }

    #[test]
    fn a_text_is_cut_by_the_room_that_it_takes() {
        assert_eq!(cut("leek soup", 9), "leek soup");
        assert_eq!(cut("leek soup", 6), "leek …");
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(padded("日本", 6), "日本  ");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("stopping agent:1 and agent:2", 16), "stopping agent:1\nand agent:2");
        assert_eq!(wrapped("a-very-long-word and more", 8), "a-very-long-word\nand more");
        assert_eq!(wrapped("", 8), "");
    }

    #[test]
    fn a_narrow_terminal_cuts_the_last_column() {
        let expect = "TASK        COMMAND\n\
                      process:1   sleep 30\n\
                      process:12  cargo te…\n";
        assert_eq!(plain(Some(21)), expect);
        assert!(plain(Some(1)).lines().all(|line| line.chars().count() <= 12 + NARROWEST));
    }

    #[test]
    fn room_is_taken_from_the_widest_and_never_from_the_address() {
        let narrowed = |widths: [usize; 4], room: usize| {
            let mut widths = widths;
            narrow(&mut widths, Some(0), room);
            widths
        };
        assert_eq!(narrowed([10, 24, 21, 60], 200), [10, 24, 21, 60]);
        assert_eq!(narrowed([10, 24, 21, 60], 80), [10, 22, 21, 21]);
        assert_eq!(narrowed([10, 24, 21, 60], 40), [10, 8, 8, 8]);
        assert_eq!(narrowed([10, 4, 9, 60], 20), [10, 4, 6, 6], "no further");
    }
}
