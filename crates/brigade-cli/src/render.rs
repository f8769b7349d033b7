//! Prints JSON for programs, and text and tables for people. Colours appear on a terminal only.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use brigade_agent::AgentProgress;
use brigade_model::limits::Usage;
use brigade_model::plain_text::PlainText;
use brigade_model::sandbox::TerminalSize;
use brigade_model::truncate::MARKER;
use brigade_protocol::requests::InboxItem;
use brigade_protocol::{RetryInfo, TaskInfo};
use brigade_runtime::{Clock, SystemClock};
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::duration;
use crate::exit_code::CliError;
use crate::styled_line::StyledLine;

/// The narrowest column that is truncated; a narrower table exceeds its terminal.
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

/// Converts an error of our own output. The text says that it is ours, not a task's.
pub(crate) fn output_error(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => CliError::internal(format!("our output cannot be written: {error}")),
    }
}

/// Renders a count with its noun.
pub(crate) fn render_count(number: u64, noun: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{end}")
}

/// Renders a size in the largest unit that divides it.
pub(crate) fn render_bytes(number: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")];
    let unit = units.iter().find(|(size, _)| number >= *size && number.is_multiple_of(*size));
    unit.map_or_else(
        || render_count(number, "byte"),
        |(size, unit)| format!("{}{unit}", number / size),
    )
}

/// Prints a line of text, with colours on a terminal.
pub(crate) fn print_line(line: impl Into<StyledLine>) -> Result<(), CliError> {
    let line = line.into();
    let mut out = anstream::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(output_error)
}

/// Prints a result: unchanged for a program, filtered for a person.
pub(crate) fn print_result(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() {
        return print_line(text);
    }
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(output_error)
}

/// Prints a note to stderr.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(anstream::stderr(), "brigade: {}", PlainText::of(text));
}

/// Returns the width of the terminal, if stdout is one.
pub(crate) fn terminal_width() -> Option<usize> {
    terminal_size().map(|size| usize::from(size.columns))
}

/// Returns the size of the terminal, if stdout is one that reports it.
pub(crate) fn terminal_size() -> Option<TerminalSize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    let size = TerminalSize { rows: size.ws_row, columns: size.ws_col };
    Some(size).filter(|size| size.rows > 0 && size.columns > 0)
}

/// Returns the current time in milliseconds since the epoch.
pub(crate) fn now_millis() -> u64 {
    SystemClock.now().0
}

/// Renders the time since `since`.
pub(crate) fn render_age(since: u64) -> String {
    duration::render_duration(now_millis().saturating_sub(since))
}

/// Renders the time until `time`.
pub(crate) fn render_until(time: u64) -> String {
    match time.saturating_sub(now_millis()) {
        0 => "now".to_owned(),
        remaining => format!("in {}", duration::render_duration(remaining)),
    }
}

/// Renders the state, with the exit code, signal, stall, readiness or absent node.
pub(crate) fn render_state(task: &TaskInfo) -> String {
    if let Some(away) = &task.away {
        return format!("{} ({}, {})", task.state, away.node, render_age(away.since));
    }
    match (task.exit_code, task.signal) {
        (Some(code), _) if code != 0 => format!("{} ({code})", task.state),
        (_, Some(signal)) => format!("{} (signal {signal})", task.state),
        _ if task.stalled => format!("{} (stalled)", task.state),
        _ if task.is_ready() => format!("{} (ready)", task.state),
        _ => task.state.clone(),
    }
}

/// Renders the state, with the reason of a failure that has no exit code or signal.
pub(crate) fn render_state_and_reason(task: &TaskInfo) -> String {
    let reason = task.detail.as_deref().filter(|_| task.state == "failed");
    match reason.and_then(|detail| detail.strip_prefix("failed ")) {
        Some(reason) if task.exit_code.is_none() && task.signal.is_none() => {
            format!("failed {}", render_one_line(reason))
        }
        _ => render_state(task),
    }
}

/// Renders the activity of a running task. The silence of a process means nothing, and a waiting or
/// ended task has no activity.
pub(crate) fn render_liveness(task: &TaskInfo) -> Option<String> {
    if !matches!(task.state.as_str(), "running" | "stopping") {
        return None;
    }
    let age = render_age(task.last_activity_at);
    let nudged = match task.nudge_count {
        0 => String::new(),
        times => format!(", nudged {}", render_count(times.into(), "time")),
    };
    Some(match (task.stalled, task.is_process()) {
        (true, _) => format!("yes, but nothing has happened for {age}: stalled{nudged}"),
        (false, true) => "yes".to_owned(),
        (false, false) => format!("yes, last activity {age} ago{nudged}"),
    })
}

pub(crate) fn state_style(state: &str) -> Style {
    let colour = match state {
        "running" => AnsiColor::Cyan,
        "succeeded" => AnsiColor::Green,
        "failed" | "expired" => AnsiColor::Red,
        "stopping" | "closing" | "cancelled" | "draining" => AnsiColor::Yellow,
        _ => return Style::new(),
    };
    Style::new().fg_color(Some(colour.into()))
}

/// Renders the address of a task, with its name if it has one.
pub(crate) fn render_label(task: &TaskInfo) -> String {
    match &task.name {
        Some(name) => format!("{} ({name})", task.address),
        None => task.address.clone(),
    }
}

/// Renders the sender of a message.
pub(crate) fn render_sender(note: &InboxItem) -> String {
    match &note.name {
        Some(name) => format!("{} ({name})", note.from),
        None => note.from.clone(),
    }
}

/// Renders the name of a message, with escapes: `named "progress"`. Nothing in the name can end it.
pub(crate) fn render_message_name(name: &str) -> String {
    format!("named {name:?}")
}

/// Renders the input that a task waits for: an approval, an answer, or the result of a client tool.
pub(crate) fn render_pending_input(task: &TaskInfo) -> Option<String> {
    if let Some(approval) = task.approvals.first() {
        return Some(format!("needs approval: {}", render_one_line(&approval.text)));
    }
    task.questions.first().map(|question| format!("{}: {}", question.verb(), question.text))
}

/// Renders a call that is made again, with the time until then.
pub(crate) fn render_retry(retry: &RetryInfo) -> String {
    format!("{}; retries {}", render_one_line(&retry.to_string()), render_until(retry.retry_at))
}

/// Renders the activity of an alive task: its pending input, or an agent's step and last text.
pub(crate) fn render_activity(task: &TaskInfo) -> Option<String> {
    let step = render_step(task)?;
    let last_text = decode_progress(task)
        .filter(|_| render_pending_input(task).is_none())
        .map(|progress| progress.last_text);
    let text = last_text.as_deref().and_then(|text| text.lines().last()).unwrap_or_default();
    Some(if text.is_empty() { step } else { format!("{step} — {text}") })
}

/// Renders the pending input or the step of a task, without the text that changes all the time.
pub(crate) fn render_step(task: &TaskInfo) -> Option<String> {
    let retry = || task.retries.first().map(render_retry);
    render_pending_input(task).or_else(retry).or_else(|| {
        let AgentProgress { step, activity, .. } = decode_progress(task)?;
        Some(format!("step {step}, {activity}"))
    })
}

fn decode_progress(task: &TaskInfo) -> Option<AgentProgress> {
    let progress: AgentProgress = task.progress.as_ref()?.decode().ok()?;
    Some(progress).filter(|progress| progress.step > 0)
}

/// Renders the pending input of a task, or else its description.
pub(crate) fn render_description(task: &TaskInfo) -> String {
    render_pending_input(task).unwrap_or_else(|| task.description.clone())
}

/// Renders a text as one filtered line.
pub(crate) fn render_one_line(text: &str) -> String {
    PlainText::line(text).into_string()
}

/// A line of `brigade show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelledLine {
    pub(crate) label: &'static str,
    pub(crate) text: String,
}

impl LabelledLine {
    pub(crate) fn new(label: &'static str, text: String) -> Self {
        Self { label, text }
    }
}

/// A table with a heading, truncated to the width of the terminal.
#[derive(Debug)]
pub(crate) struct TextTable {
    rows: Vec<Vec<TableCell>>,
    /// The column that is never truncated, since people copy its text.
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

/// The widest state in a list, with space for the reason of a failure.
const STATE_WIDTH_MAX: usize = 48;

impl TableCell {
    pub(crate) fn for_state(task: &TaskInfo) -> Self {
        let text = truncate_to_width(&render_state_and_reason(task), STATE_WIDTH_MAX);
        Self { text: PlainText::line(&text), style: state_style(&task.state) }
    }

    /// Returns a cell with the state of a thing that is no task.
    pub(crate) fn with_state_style(state: &str) -> Self {
        Self { text: PlainText::line(state), style: state_style(state) }
    }
}

impl TextTable {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let style = Style::new().dimmed();
        let heading = heading.iter().map(|text| TableCell { text: PlainText::line(text), style });
        Self { rows: vec![heading.collect()], whole_column: None }
    }

    /// Never truncates the column with this heading.
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

    /// Renders the table for a test, without colours and without spaces at the ends of lines.
    #[cfg(test)]
    pub(crate) fn render_plain(&self) -> String {
        let lines = self.render_lines(None);
        let lines = lines.iter().map(|line| anstream::adapter::strip_str(line).to_string());
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
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

/// Narrows the widest column, of several the last, until all fit or none can be narrower.
fn narrow_columns(widths: &mut [usize], whole_column: Option<usize>, width: usize) {
    let gaps = COLUMN_GAP * widths.len().saturating_sub(1);
    let mut surplus = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    while surplus > 0 {
        let columns = widths.iter_mut().enumerate().filter(|(at, _)| Some(*at) != whole_column);
        match columns.map(|(_, width)| width).max_by_key(|width| **width) {
            Some(widest) if *widest > COLUMN_WIDTH_MIN => *widest -= 1,
            _ => return,
        }
        surplus -= 1;
    }
}

/// Truncates a text to the rest of its line on the terminal.
pub(crate) fn truncate_to_terminal(line: &StyledLine, text: &str) -> String {
    match terminal_width() {
        Some(width) => {
            truncate_to_width(text, width.saturating_sub(line.columns()).max(COLUMN_WIDTH_MIN))
        }
        None => text.to_owned(),
    }
}

/// Renders a number of tokens, rounded down to thousands or millions.
pub(crate) fn render_tokens(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} tokens"),
        10_000..=9_999_999 => format!("{}k tokens", count / 1_000),
        _ => format!("{}M tokens", count / 1_000_000),
    }
}

/// Renders usage, if there is any.
pub(crate) fn render_usage(usage: &Usage) -> Option<String> {
    match (usage.tokens, usage.money.0) {
        (0, 0) => None,
        (used, 0) => Some(render_tokens(used)),
        (used, money) => Some(format!("{}, ${:.4}", render_tokens(used), money as f64 / 1e6)),
    }
}

/// Wraps a text to a width, between words where possible.
pub(crate) fn wrap_words(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if display_width(line) + 1 + display_width(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// Returns the width of a text in terminal columns.
pub(crate) fn display_width(text: &str) -> usize {
    text.width()
}

/// Pads a text with spaces to a width.
pub(crate) fn pad_to_width(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(display_width(text))))
}

/// Truncates a text to a width, with `…` in place of the rest.
pub(crate) fn truncate_to_width(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut truncated = String::new();
    let mut used = 0;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used >= width {
            break;
        }
        truncated.push(letter);
    }
    truncated.push_str(MARKER);
    truncated
}

/// Truncates the start of a text to a width, with `…` in its place.
pub(crate) fn truncate_start_to_width(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let mut start = text.len();
    let mut used = 0;
    for (at, letter) in text.char_indices().rev() {
        used += letter.width().unwrap_or(0);
        if used >= width {
            break;
        }
        start = at;
    }
    let marker = if width == 0 { "" } else { MARKER };
    format!("{marker}{}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(&["TASK", "DESCRIPTION"]).never_truncate("TASK");
        table.add_row(["process:1".into(), "sleep 30".into()]);
        table.add_row(["process:12".into(), "cargo test\n--workspace".into()]);
        table
    }

    fn plain(width: Option<usize>) -> String {
        let lines = table().render_lines(width);
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string() + "\n").collect()
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(render_one_line("rm \u{202e}txt.a\u{2069}\n"), "rm \u{fffd}txt.a\u{fffd} ");
        let mut table = TextTable::new(&["TASK"]);
        table.add_row(["\u{1b}[2Jx\u{e0041}".into()]);
        assert_eq!(table.render_lines(None)[1], "\u{fffd}[2Jx");
    }

    #[test]
    fn columns_are_aligned() {
        let expect = "TASK        DESCRIPTION\n\
                      process:1   sleep 30\n\
                      process:12  cargo test --workspace\n";
        assert_eq!(plain(None), expect);
        assert_eq!(plain(Some(200)), expect);
    }

    #[test]
    fn a_text_is_truncated_by_its_display_width() {
        assert_eq!(truncate_to_width("leek soup", 9), "leek soup");
        assert_eq!(truncate_to_width("leek soup", 6), "leek …");
        assert_eq!(truncate_to_width("日本語", 6), "日本語");
        assert_eq!(truncate_to_width("日本語", 5), "日本…");
        assert_eq!(truncate_to_width("日本語", 4), "日…");
        assert_eq!(truncate_start_to_width("/home/me/project", 10), "…e/project");
        assert_eq!(truncate_start_to_width("leek soup", 9), "leek soup");
        assert_eq!(truncate_start_to_width("leek soup", 0), "");
        assert_eq!(truncate_start_to_width("日本語", 5), "…本語");
        assert_eq!(truncate_start_to_width("日本語", 4), "…語");
        assert_eq!(pad_to_width("日本", 6), "日本  ");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrap_words("stopping agent:1 and agent:2", 16), "stopping agent:1\nand agent:2");
        assert_eq!(wrap_words("a-very-long-word and more", 8), "a-very-long-word\nand more");
        assert_eq!(wrap_words("", 8), "");
    }

    #[test]
    fn a_narrow_terminal_truncates_the_last_column() {
        let expect = "TASK        DESCRIPT…\n\
                      process:1   sleep 30\n\
                      process:12  cargo te…\n";
        assert_eq!(plain(Some(21)), expect);
        assert!(plain(Some(1)).lines().all(|line| line.chars().count() <= 12 + COLUMN_WIDTH_MIN));
    }

    #[test]
    fn the_widest_columns_are_narrowed_and_never_the_address() {
        let narrowed = |widths: [usize; 4], width: usize| {
            let mut widths = widths;
            narrow_columns(&mut widths, Some(0), width);
            widths
        };
        assert_eq!(narrowed([10, 24, 21, 60], 200), [10, 24, 21, 60]);
        assert_eq!(narrowed([10, 24, 21, 60], 80), [10, 22, 21, 21]);
        assert_eq!(narrowed([10, 24, 21, 60], 40), [10, 8, 8, 8]);
        assert_eq!(narrowed([10, 4, 9, 60], 20), [10, 4, 6, 6], "not below the minimum");
    }
}
