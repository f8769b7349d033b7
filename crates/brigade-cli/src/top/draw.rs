//! How the full-screen view looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::board::{Board, Line, Mode, Scope};
use crate::show;

/// Below this height the output gives way to the list.
const OUTPUT_FROM: u16 = 14;
/// Below this width only the address, the state and the command are shown.
const WIDE: u16 = 70;

/// `workspace` is what the list is of; `now` in milliseconds since the epoch.
pub(crate) fn draw(frame: &mut Frame<'_>, board: &Board, workspace: &str, now: u64) {
    let area = frame.area();
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(area);
    heading(frame, head, board, workspace);
    if board.mode == Mode::Reading {
        output(frame, body, board);
    } else if body.height >= OUTPUT_FROM {
        let [list, below] =
            Layout::vertical([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(body);
        table(frame, list, board, now);
        output(frame, below, board);
    } else {
        table(frame, body, board, now);
    }
    footing(frame, foot, board);
}

fn heading(frame: &mut Frame<'_>, area: Rect, board: &Board, workspace: &str) {
    let living = board.lines.iter().filter(|line| line.task.living).count();
    let place = match board.scope {
        Scope::Here => workspace,
        Scope::Everywhere => "everywhere",
    };
    let text = Text::from(vec![
        Span::styled("brigade ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("{living} living, {} in all  ", board.lines.len())),
        Span::styled(place.to_owned(), Style::new().fg(Color::DarkGray)),
    ]);
    frame.render_widget(Paragraph::new(text), area);
}

fn table(frame: &mut Frame<'_>, area: Rect, board: &Board, now: u64) {
    if board.lines.is_empty() {
        let text = "Nothing runs here. Start something: brigade exec -d -- COMMAND";
        return frame.render_widget(Paragraph::new(text), area);
    }
    let wide = area.width >= WIDE;
    let rows = board.lines.iter().map(|line| row(line, wide, now));
    let heading = if wide {
        vec!["TASK", "NAME", "STATE", "AGE", "COMMAND"]
    } else {
        vec!["TASK", "STATE", "COMMAND"]
    };
    let widths = if wide {
        vec![
            Constraint::Length(18),
            Constraint::Length(16),
            Constraint::Length(16),
            Constraint::Length(6),
            Constraint::Fill(1),
        ]
    } else {
        vec![Constraint::Length(12), Constraint::Length(10), Constraint::Fill(1)]
    };
    let heading = Row::new(heading).style(Style::new().fg(Color::DarkGray));
    let table = Table::new(rows, widths)
        .header(heading)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(board.at());
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(line: &Line, wide: bool, now: u64) -> Row<'static> {
    let task = &line.task;
    let address = format!("{}{}", "  ".repeat(line.depth), task.address);
    let state = Cell::from(show::state(task)).style(Style::new().fg(colour(&task.state)));
    let what = Cell::from(show::one_line(&task.what));
    if !wide {
        return Row::new([Cell::from(address), state, what]);
    }
    let end = task.ended.unwrap_or(now);
    let age = crate::span::short(end.saturating_sub(task.spawned));
    let name = task.name.clone().unwrap_or_default();
    Row::new([Cell::from(address), Cell::from(name), state, Cell::from(age), what])
}

fn colour(state: &str) -> Color {
    match state {
        "running" => Color::Cyan,
        "succeeded" => Color::Green,
        "failed" => Color::Red,
        "stopping" | "closing" | "cancelled" => Color::Yellow,
        _ => Color::Reset,
    }
}

/// The last lines of the output that fit.
fn output(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let Some(task) = board.selected() else { return };
    let title = format!(" output of {} ", task.label());
    let block = Block::new().borders(Borders::TOP).title(title);
    let room = usize::from(block.inner(area).height);
    let lines: Vec<&str> = board.output.lines().collect();
    let shown = &lines[lines.len().saturating_sub(room)..];
    let text: Vec<Text<'_>> = shown.iter().map(|line| Text::from(show::one_line(line))).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn footing(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let text = match (&board.mode, &board.note) {
        (Mode::Typing(text), _) => format!("message: {text}_   enter sends, esc gives up"),
        (_, Some(note)) => note.clone(),
        (Mode::Reading, None) => "o back   up/down another task   q back".to_owned(),
        (Mode::Watching, None) => {
            "up/down select   o output   m message   s stop   K kill   a all   q quit".to_owned()
        }
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().fg(Color::DarkGray)), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::board::tests::task;
    use super::*;

    fn screen(board: &Board, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| draw(frame, board, "/src/soup", 65_000)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let mut text = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn board() -> Board {
        let mut board = Board::default();
        let mut tests = task("process:2", Some("1"), "running");
        tests.name = Some("Tests".to_owned());
        let mut ended = task("process:3", None, "failed");
        (ended.exit_code, ended.ended) = (Some(7), Some(3_000));
        board.update(vec![task("job:1", None, "waiting"), tests, ended]);
        board.output = "one\ntwo\tthree\n".to_owned();
        board
    }

    #[test]
    fn a_wide_screen_shows_everything() {
        let expect = "\
brigade 3 living, 3 in all  /src/soup
TASK               NAME             STATE            AGE    COMMAND
job:1                               waiting          65s    cargo test --workspace
  process:2        Tests            running          65s    cargo test --workspace
process:3                           failed (7)       3s     cargo test --workspace




───────── output of job:1 ─────────────────────────────────────────────────────────
one
two three



up/down select   o output   m message   s stop   K kill   a all   q quit
";
        let shown = screen(&board(), 83, 16);
        assert!(shown.contains(" output of job:1 ─"), "{shown}");
        let body = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.contains('─')).map(str::to_owned).collect()
        };
        assert_eq!(body(&shown), body(expect), "{shown}");
    }

    #[test]
    fn a_narrow_or_low_screen_shows_what_matters_most() {
        let shown = screen(&board(), 36, 8);
        let expect = "\
brigade 3 living, 3 in all  /src/sou
TASK         STATE      COMMAND
job:1        waiting    cargo test -
  process:2  running    cargo test -
process:3    failed (7) cargo test -


up/down select   o output   m messag
";
        assert_eq!(shown, expect);
        for (width, height) in [(1, 1), (5, 2), (20, 3), (200, 60)] {
            screen(&board(), width, height);
        }
    }

    #[test]
    fn an_empty_list_says_what_to_do() {
        assert!(screen(&Board::default(), 80, 10).contains("brigade exec -d -- COMMAND"));
    }
}
