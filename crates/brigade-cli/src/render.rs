//! How things look: JSON for programs; tables for people, coloured on a terminal only.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use brigade_agent::AgentProgress;
use brigade_model::limits::Usage;
use brigade_model::plain_text::PlainText;
use brigade_model::sandbox::TerminalSize;
use brigade_runtime::{Clock, SystemClock};
use brigade_server::TaskInfo;
use brigade_server::requests::InboxItem;
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::duration;
use crate::exit_code::CliError;
use crate::styled_line::StyledLine;

/// The narrowest column that is cut; below it a table is wider than its terminal.
const COLUMN_WIDTH_MIN: usize = 6;
/// Spaces between columns.
const COLUMN_GAP: usize = 2;

/// Prints one JSON value on one line.
pub(crate) fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<(), CliError> {
    let mut text = serde_json::to_string(value).map_err(io::Error::from)?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(output_error)
}

/// That our own output is full is not to be taken for something else that is.
pub(crate) fn output_error(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => CliError::internal(format!("our output cannot be written: {error}")),
    }
}

/// So many of them.
pub(crate) fn render_count(number: u64, one: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {one}{end}")
}

/// So much memory, as it is typed where it is a round number.
pub(crate) fn render_bytes(number: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")];
    let unit = units.iter().find(|(size, _)| number >= *size && number.is_multiple_of(*size));
    unit.map_or_else(
        || render_count(number, "byte"),
        |(size, unit)| format!("{}{unit}", number / size),
    )
}

/// Prints a line of text, with its colours if they are wanted.
pub(crate) fn print_line(line: impl Into<StyledLine>) -> Result<(), CliError> {
    let line = line.into();
    let mut out = anstream::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(output_error)
}

/// Prints a text that is the result of something: to a program as it is, to a person filtered.
pub(crate) fn print_result(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() {
        return print_line(text);
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(output_error)
}

/// Says something beside the output.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(anstream::stderr(), "brigade: {}", PlainText::of(text));
}

/// How wide the terminal is, if the output goes to one.
pub(crate) fn terminal_width() -> Option<usize> {
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
pub(crate) fn now_millis() -> u64 {
    SystemClock.now().0
}

/// How long ago.
pub(crate) fn render_age(since: u64) -> String {
    duration::render_duration(now_millis().saturating_sub(since))
}

/// How long it is until then.
pub(crate) fn render_until(time: u64) -> String {
    match time.saturating_sub(now_millis()) {
        0 => "now".to_owned(),
        left => format!("in {}", duration::render_duration(left)),
    }
}

/// The state in one word with what is most wanted beside it.
pub(crate) fn render_state(task: &TaskInfo) -> String {
    match (task.exit_code, task.signal) {
        (Some(code), _) if code != 0 => format!("{} ({code})", task.state),
        (_, Some(signal)) => format!("{} (signal {signal})", task.state),
        _ if task.stalled => format!("{} (stalled)", task.state),
        _ => task.state.clone(),
    }
}

/// The same with the reason why it failed, where a code does not say it.
pub(crate) fn render_state_and_reason(task: &TaskInfo) -> String {
    let reason = task.detail.as_deref().filter(|_| task.state == "failed");
    match reason.and_then(|detail| detail.strip_prefix("failed ")) {
        Some(reason) if task.exit_code.is_none() && task.signal.is_none() => {
            format!("failed {}", render_one_line(reason))
        }
        _ => render_state(task),
    }
}

/// Whether it is alive, and apart from that whether it moves. Of a command nobody knows what it does in
/// silence; of what waits or has ended there is nothing to say.
pub(crate) fn render_liveness(task: &TaskInfo) -> Option<String> {
    if !matches!(task.state.as_str(), "running" | "stopping") {
        return None;
    }
    let since = render_age(task.last_activity_at);
    let nudged = match task.nudge_count {
        0 => String::new(),
        times => format!(", nudged {}", render_count(times.into(), "time")),
    };
    Some(match (task.stalled, task.is_process()) {
        (true, _) => format!("yes, but nothing has happened for {since}: stalled{nudged}"),
        (false, true) => "yes".to_owned(),
        (false, false) => format!("yes, and something happened {since} ago{nudged}"),
    })
}

pub(crate) fn state_style(state: &str) -> Style {
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
pub(crate) fn render_label(task: &TaskInfo) -> String {
    match &task.name {
        Some(name) => format!("{} ({name})", task.address),
        None => task.address.clone(),
    }
}

/// Who sent a note.
pub(crate) fn render_sender(note: &InboxItem) -> String {
    match &note.name {
        Some(name) => format!("{} ({name})", note.from),
        None => note.from.clone(),
    }
}

/// What a task waits for somebody with: leave, an answer, or what its client is to do.
pub(crate) fn render_pending_input(task: &TaskInfo) -> Option<String> {
    if let Some(approval) = task.approvals.first() {
        return Some(format!("asks for leave: {}", render_one_line(&approval.text)));
    }
    task.questions.first().map(|question| format!("{}: {}", question.verb(), question.text))
}

/// What a task that lives is at, as far as it says: its question, an agent's step and last words.
pub(crate) fn render_activity(task: &TaskInfo) -> Option<String> {
    let step = render_step(task)?;
    let said = decode_progress(task)
        .filter(|_| render_pending_input(task).is_none())
        .map(|progress| progress.last_text);
    let words = said.as_deref().and_then(|words| words.lines().last()).unwrap_or_default();
    Some(if words.is_empty() { step } else { format!("{step} — {words}") })
}

/// The same without the words, which change with every piece of them that comes.
pub(crate) fn render_step(task: &TaskInfo) -> Option<String> {
    render_pending_input(task).or_else(|| {
        let AgentProgress { step, activity: doing, .. } = decode_progress(task)?;
        Some(format!("step {step}, {doing}"))
    })
}

fn decode_progress(task: &TaskInfo) -> Option<AgentProgress> {
    let progress: AgentProgress = task.progress.as_ref()?.decode().ok()?;
    Some(progress).filter(|progress| progress.step > 0)
}

/// Its open question, or else what it was told to do.
pub(crate) fn render_description(task: &TaskInfo) -> String {
    render_pending_input(task).unwrap_or_else(|| task.description.clone())
}

/// One line of filtered text, whatever a command's text has in it.
pub(crate) fn render_one_line(text: &str) -> String {
    PlainText::line(text).into_string()
}

/// Rows under a heading, cut to the width of the terminal.
#[derive(Debug)]
pub(crate) struct TextTable {
    rows: Vec<Vec<TableCell>>,
    /// The column that is never cut: what is typed again must be whole.
    whole_column: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct TableCell {
    text: PlainText,
    style: Style,
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self { text: PlainText::line(&text), style: Style::new() }
    }
}

impl From<&str> for TableCell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The widest state in a list: enough for why something failed.
const STATE_WIDTH_MAX: usize = 48;

impl TableCell {
    pub(crate) fn for_state(task: &TaskInfo) -> Self {
        let text = truncate_to_width(&render_state_and_reason(task), STATE_WIDTH_MAX);
        Self { text: PlainText::line(&text), style: state_style(&task.state) }
    }
}

impl TextTable {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let style = Style::new().dimmed();
        let heading = heading.iter().map(|text| TableCell { text: PlainText::line(text), style });
        Self { rows: vec![heading.collect()], whole_column: None }
    }

    /// Never cuts the column of this heading.
    #[must_use]
    pub(crate) fn never_truncate(mut self, heading: &str) -> Self {
        self.whole_column = self.rows[0].iter().position(|cell| cell.text.as_str() == heading);
        self
    }

    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn print(&self) -> Result<(), CliError> {
        let mut out = anstream::stdout().lock();
        for line in self.render_lines(terminal_width()) {
            writeln!(out, "{line}").map_err(output_error)?;
        }
        out.flush().map_err(output_error)
    }

    fn render_lines(&self, width: Option<usize>) -> Vec<String> {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| display_width(cell.text.as_str())).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..count).map(widest).collect();
        if let Some(width) = width {
            narrow_columns(&mut widths, self.whole_column, width);
        }
        let line = |row: &Vec<TableCell>| {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let text = truncate_to_width(cell.text.as_str(), widths[at]);
                let missing = widths[at].saturating_sub(display_width(&text));
                line.push_str(&format!("{}{text}{:#}", cell.style, cell.style));
                if at + 1 < row.len() {
                    line.push_str(&" ".repeat(missing + COLUMN_GAP));
                }
            }
            line
        };
        self.rows.iter().map(line).collect()
    }
}

/// Takes from the widest column, of several the last, until they all fit or none is worth less.
fn narrow_columns(widths: &mut [usize], whole: Option<usize>, room: usize) {
    let between = COLUMN_GAP * widths.len().saturating_sub(1);
    let mut surplus = (widths.iter().sum::<usize>() + between).saturating_sub(room);
    while surplus > 0 {
        let columns = widths.iter_mut().enumerate().filter(|(at, _)| Some(*at) != whole);
        match columns.map(|(_, width)| width).max_by_key(|width| **width) {
            Some(widest) if *widest > COLUMN_WIDTH_MIN => *widest -= 1,
            _ => return,
        }
        surplus -= 1;
    }
}

/// As much of a text as has room after the beginning of its line.
pub(crate) fn truncate_to_terminal(before: &StyledLine, text: &str) -> String {
    match terminal_width() {
        Some(width) => {
            truncate_to_width(text, width.saturating_sub(before.columns()).max(COLUMN_WIDTH_MIN))
        }
        None => text.to_owned(),
    }
}

/// So many tokens, in short.
pub(crate) fn render_tokens(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} tokens"),
        10_000..=9_999_999 => format!("{}k tokens", count / 1_000),
        _ => format!("{}M tokens", count / 1_000_000),
    }
}

/// What was used, in short, if anything was.
pub(crate) fn render_usage(usage: &Usage) -> Option<String> {
    match (usage.tokens, usage.money.0) {
        (0, 0) => None,
        (used, 0) => Some(render_tokens(used)),
        (used, money) => Some(format!("{}, ${:.4}", render_tokens(used), money as f64 / 1e6)),
    }
}

/// A text in lines that fit, broken between words where that is possible.
pub(crate) fn wrap_words(text: &str, wide: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if display_width(line) + 1 + display_width(word) <= wide => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// How many columns of a terminal a text takes.
pub(crate) fn display_width(text: &str) -> usize {
    text.width()
}

/// A text and spaces, so that together they take so many columns.
pub(crate) fn pad_to_width(text: &str, wide: usize) -> String {
    format!("{text}{}", " ".repeat(wide.saturating_sub(display_width(text))))
}

/// The beginning of a text, with `…` where something is missing.
pub(crate) fn truncate_to_width(text: &str, most: usize) -> String {
    if display_width(text) <= most {
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

    fn table() -> TextTable {
        let mut table = TextTable::new(&["TASK", "COMMAND"]).never_truncate("TASK");
        table.add_row(["process:1".into(), "sleep 30".into()]);
        table.add_row(["process:12".into(), "cargo test\n--workspace".into()]);
        table
    }

    fn plain(width: Option<usize>) -> String {
        let lines = table().render_lines(width);
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string() + "\n").collect()
    }

    #[test]
    fn nothing_turns_a_text_around() {
        assert_eq!(render_one_line("rm \u{202e}txt.a\u{2069}\n"), "rm \u{fffd}txt.a\u{fffd} ");
        let mut table = TextTable::new(&["TASK"]);
        table.add_row(["\u{1b}[2Jx\u{e0041}".into()]);
        assert_eq!(table.render_lines(None)[1], "\u{fffd}[2Jx");
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
        assert_eq!(truncate_to_width("leek soup", 9), "leek soup");
        assert_eq!(truncate_to_width("leek soup", 6), "leek …");
        assert_eq!(truncate_to_width("日本語", 6), "日本語");
        assert_eq!(truncate_to_width("日本語", 5), "日本…");
        assert_eq!(truncate_to_width("日本語", 4), "日…");
        assert_eq!(pad_to_width("日本", 6), "日本  ");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap_words("stopping agent:1 and agent:2", 16), "stopping agent:1\nand agent:2");
        assert_eq!(wrap_words("a-very-long-word and more", 8), "a-very-long-word\nand more");
        assert_eq!(wrap_words("", 8), "");
    }

    #[test]
    fn a_narrow_terminal_cuts_the_last_column() {
        let expect = "TASK        COMMAND\n\
                      process:1   sleep 30\n\
                      process:12  cargo te…\n";
        assert_eq!(plain(Some(21)), expect);
        assert!(plain(Some(1)).lines().all(|line| line.chars().count() <= 12 + COLUMN_WIDTH_MIN));
    }

    #[test]
    fn room_is_taken_from_the_widest_and_never_from_the_address() {
        let narrowed = |widths: [usize; 4], room: usize| {
            let mut widths = widths;
            narrow_columns(&mut widths, Some(0), room);
            widths
        };
        assert_eq!(narrowed([10, 24, 21, 60], 200), [10, 24, 21, 60]);
        assert_eq!(narrowed([10, 24, 21, 60], 80), [10, 22, 21, 21]);
        assert_eq!(narrowed([10, 24, 21, 60], 40), [10, 8, 8, 8]);
        assert_eq!(narrowed([10, 4, 9, 60], 20), [10, 4, 6, 6], "no further");
    }
}
