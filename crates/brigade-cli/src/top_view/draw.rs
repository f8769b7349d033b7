//! How the full-screen view looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};

use brigade_server::task_info::ApprovalInfo;

use super::state::{DraftSubject, MessageDraft, TopLine, TopMode, TopScope, TopState};
use crate::pending_input::ScreenSize;
use crate::{call_card, pending_input, render};

/// Below this height the output gives way to the list.
const OUTPUT_HEIGHT_MIN: u16 = 14;
/// The least of a command that is worth a column.
const COMMAND_WIDTH_MIN: usize = 8;
/// What a command has before other columns are wanted beside it.
const COMMAND_WIDTH_ENOUGH: usize = 16;
/// The most of a name or a workspace that a column has.
const NAME_WIDTH_MAX: usize = 24;
const COLUMN_GAP: usize = 2;

/// What the keys do: the first that fits is shown.
const KEYS: [&str; 4] = [
    "up/down select   o output   m message   s stop   K kill   a all   q quit",
    "o output  m message  s stop  K kill  a all  q quit",
    "o out  m msg  s stop  K kill  a all  q",
    "o m s K a q",
];
const KEYS_READING: [&str; 3] = ["o back   up/down another task   q back", "o back  q back", "o q"];

/// `workspace` is what the list is of; `now` in milliseconds since the epoch.
pub(crate) fn draw(frame: &mut Frame<'_>, board: &TopState, workspace: &str, now: u64) {
    let area = frame.area();
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(area);
    draw_heading(frame, head, board, workspace);
    if let TopMode::Typing(MessageDraft {
        task, subject: DraftSubject::Approval(approval), ..
    }) = &board.mode
    {
        draw_approval(frame, body, (task, approval));
    } else if board.mode == TopMode::Reading {
        draw_output(frame, body, board);
    } else if body.height >= OUTPUT_HEIGHT_MIN {
        let [list, rest] =
            Layout::vertical([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(body);
        draw_table(frame, list, board, now);
        draw_detail(frame, rest, board);
    } else {
        draw_table(frame, body, board, now);
    }
    draw_footer(frame, foot, board);
}

fn draw_heading(frame: &mut Frame<'_>, area: Rect, board: &TopState, workspace: &str) {
    let living = board.lines.iter().filter(|line| line.task.alive).count();
    let place = match board.scope {
        TopScope::Workspace => workspace,
        TopScope::AllWorkspaces => "everywhere",
    };
    let count = format!("{living} living, {} in all  ", board.lines.len());
    let room = usize::from(area.width).saturating_sub("brigade ".len() + count.len());
    let text = Text::from(vec![
        Span::styled("brigade ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(count),
        Span::styled(truncate_start(place, room), Style::new().fg(Color::DarkGray)),
    ]);
    frame.render_widget(Paragraph::new(text), area);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, board: &TopState, now: u64) {
    if board.lines.is_empty() {
        let text = "Nothing runs here. Start something: brigade exec -d -- COMMAND, or brigade run -d PROMPT";
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let columns = fit_columns(board, usize::from(area.width), now);
    let heading = columns.iter().map(|(column, _)| column.title());
    let heading = Row::new(heading.collect::<Vec<_>>()).style(Style::new().fg(Color::DarkGray));
    let rows = board
        .lines
        .iter()
        .map(|line| Row::new(columns.iter().map(|(column, width)| column.cell(line, *width, now))));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width as u16));
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .column_spacing(COLUMN_GAP as u16)
        .header(heading)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(board.selected_index());
    frame.render_stateful_widget(table, area, &mut state);
}

/// In the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TopColumn {
    Workspace,
    Task,
    Name,
    /// The name, or for want of one the command: where there is no room for both.
    Label,
    State,
    Age,
    Command,
}

/// Those that there is room for, with their widths. The address and the state are always there; what
/// else is wanted comes in the order of how much it tells.
fn fit_columns(board: &TopState, width: usize, now: u64) -> Vec<(TopColumn, usize)> {
    let widest = |column: TopColumn| {
        let cells = board.lines.iter().map(|line| column.text(line, now).chars().count());
        cells.max().unwrap_or(0)
    };
    let natural = |column: TopColumn| match widest(column) {
        0 => 0,
        widest => widest.min(NAME_WIDTH_MAX).max(column.title().len()),
    };
    let task = natural(TopColumn::Task).min(width);
    let state = natural(TopColumn::State).min(width.saturating_sub(task + COLUMN_GAP));
    let mut chosen = vec![(TopColumn::Task, task), (TopColumn::State, state)];
    let mut room = width.saturating_sub(task + state + COLUMN_GAP);
    let mut wanted =
        vec![(TopColumn::Name, 0), (TopColumn::Age, COLUMN_GAP + COMMAND_WIDTH_ENOUGH)];
    if board.scope == TopScope::AllWorkspaces {
        wanted.insert(0, (TopColumn::Workspace, 0));
    }
    for (column, beside) in wanted {
        let needed = natural(column) + COLUMN_GAP;
        if needed > COLUMN_GAP && needed + beside <= room {
            chosen.push((column, natural(column)));
            room -= needed;
        }
    }
    if room >= COMMAND_WIDTH_MIN + COLUMN_GAP {
        chosen.push((TopColumn::Command, room - COLUMN_GAP));
    } else if let Some(name) = chosen.iter_mut().find(|(column, _)| *column == TopColumn::Name) {
        *name = (TopColumn::Label, name.1 + room);
    }
    chosen.sort();
    chosen
}

impl TopColumn {
    fn title(self) -> &'static str {
        match self {
            Self::Workspace => "WORKSPACE",
            Self::Task => "TASK",
            Self::Name | Self::Label => "NAME",
            Self::State => "STATE",
            Self::Age => "AGE",
            Self::Command => "COMMAND",
        }
    }

    fn text(self, line: &TopLine, now: u64) -> String {
        let task = &line.task;
        match self {
            Self::Workspace => {
                let last = task.session.rsplit('/').find(|part| !part.is_empty());
                render::render_one_line(last.unwrap_or(&task.session))
            }
            Self::Task => {
                format!("{}{}", "  ".repeat(line.depth), render::render_one_line(&task.address))
            }
            Self::Name => render::render_one_line(task.name.as_deref().unwrap_or_default()),
            Self::Label => render::render_one_line(task.name.as_ref().unwrap_or(&task.description)),
            Self::State => render::render_one_line(&render::render_state(task)),
            Self::Age => {
                let end = task.ended_at.unwrap_or(now);
                crate::duration::render_duration(end.saturating_sub(task.spawned_at))
            }
            Self::Command => {
                let doing = render::render_activity(task).filter(|_| task.alive);
                render::render_one_line(&doing.unwrap_or_else(|| task.description.clone()))
            }
        }
    }

    fn cell(self, line: &TopLine, width: usize, now: u64) -> Cell<'static> {
        let cell = Cell::from(render::truncate_to_width(&self.text(line, now), width));
        let asks = line.task.alive && render::render_pending_input(&line.task).is_some();
        match self {
            Self::State => cell.style(Style::new().fg(state_color(&line.task.state))),
            Self::Command if asks => cell.style(Style::new().fg(Color::Yellow)),
            _ => cell,
        }
    }
}

fn state_color(state: &str) -> Color {
    match state {
        "running" => Color::Cyan,
        "succeeded" => Color::Green,
        "failed" => Color::Red,
        "stopping" | "closing" | "cancelled" => Color::Yellow,
        _ => Color::Reset,
    }
}

/// What the selected task asks leave for, or else the last lines of its output that fit.
fn draw_detail(frame: &mut Frame<'_>, area: Rect, board: &TopState) {
    let asking = board.selected().filter(|task| task.alive);
    let Some((task, approval)) = asking.and_then(|task| Some((task, task.approvals.first()?)))
    else {
        return draw_output(frame, area, board);
    };
    let block = approval_block(task.label(), approval);
    let columns = usize::from(area.width);
    let room = usize::from(block.inner(area).height);
    let mut lines = match approval.card() {
        Some(card) => call_card::render_card(&card, Some(columns)),
        None => Vec::new(),
    };
    if lines.is_empty() || lines.len() + 2 > room {
        lines = pending_input::render_elided_call(approval, Some(columns));
        // The end of it gives way, with a mark.
        if lines.len() + 2 > room {
            lines.truncate(room.saturating_sub(3));
            lines.push("  …".to_owned());
        }
    }
    lines.push(format!("  ({})", pending_input::render_rule(approval)));
    lines.push("  m shows it whole and answers".to_owned());
    let text: Vec<Text<'_>> = lines.into_iter().map(Text::from).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// The call about which something is typed, whole if there is room for it.
fn draw_approval(frame: &mut Frame<'_>, area: Rect, (task, approval): (&str, &ApprovalInfo)) {
    let block = approval_block(task, approval);
    let columns = usize::from(area.width);
    // With the first and the last line of the screen.
    let screen = ScreenSize { columns, rows: usize::from(area.height) + 2 };
    let (mut lines, answers) = match pending_input::render_whole_call(approval, screen) {
        Some(lines) => (lines, pending_input::APPROVAL_KEYS.to_owned()),
        None => (
            pending_input::render_elided_call(approval, Some(columns)),
            pending_input::render_too_long(task, approval),
        ),
    };
    lines.push(format!("  ({})", pending_input::render_rule(approval)));
    lines.push(format!("  {answers}"));
    let text: Vec<Text<'_>> = lines.into_iter().map(Text::from).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn approval_block(task: &str, approval: &ApprovalInfo) -> Block<'static> {
    let title = format!(" {task} asks for leave: {} ", approval.tool);
    Block::new().borders(Borders::TOP).title(render::render_one_line(&title))
}

/// The last lines of the output that fit.
fn draw_output(frame: &mut Frame<'_>, area: Rect, board: &TopState) {
    let Some(task) = board.selected() else { return };
    let title = render::render_one_line(&format!(" output of {} ", task.label()));
    let block = Block::new().borders(Borders::TOP).title(title);
    let room = usize::from(block.inner(area).height);
    let lines: Vec<&str> = board.output.lines().collect();
    let shown = &lines[lines.len().saturating_sub(room)..];
    let text: Vec<Text<'_>> =
        shown.iter().map(|line| Text::from(render::render_one_line(line))).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, board: &TopState) {
    let width = usize::from(area.width);
    let text = match (&board.mode, &board.note) {
        (TopMode::Typing(draft), None) => {
            let what = match &draft.subject {
                DraftSubject::Nothing => "message",
                DraftSubject::Question(_) => "answer",
                DraftSubject::Approval(_) => "y, a or n",
            };
            render_draft(what, &draft.text, width)
        }
        (_, Some(note)) => render::truncate_to_width(&render::render_one_line(note), width),
        (TopMode::Reading, None) => first_fitting(&KEYS_READING, width).to_owned(),
        (TopMode::Watching, None) => first_fitting(&KEYS, width).to_owned(),
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().fg(Color::DarkGray)), area);
}

fn render_draft(what: &str, text: &str, width: usize) -> String {
    let message = format!("{what}: {text}_");
    let whole = format!("{message}   enter sends, esc gives up");
    if whole.chars().count() <= width { whole } else { truncate_start(&message, width) }
}

fn first_fitting(texts: &[&'static str], width: usize) -> &'static str {
    let fitting = texts.iter().find(|text| text.chars().count() <= width);
    fitting.or(texts.last()).copied().unwrap_or_default()
}

/// The end of a text, with `…` where something is missing.
fn truncate_start(text: &str, most: usize) -> String {
    let surplus = text.chars().count().saturating_sub(most);
    if surplus == 0 {
        return text.to_owned();
    }
    let end: String = text.chars().skip(surplus + 1).collect();
    if most == 0 { end } else { format!("…{end}") }
}

#[cfg(test)]
mod tests {
    use brigade_model::json::Json;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::tests::{asking_for_leave, task, type_in};
    use super::*;

    fn screen(board: &TopState, width: u16, height: u16) -> String {
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

    fn board() -> TopState {
        let mut board = TopState::default();
        let mut tests = task("process:2", Some("1"), "running");
        tests.name = Some("Tests".to_owned());
        let mut ended = task("process:3", None, "failed");
        (ended.exit_code, ended.ended_at) = (Some(7), Some(3_000));
        board.update(vec![task("job:1", None, "waiting"), tests, ended]);
        board.output = "one\ntwo\tthree\n".to_owned();
        board
    }

    #[test]
    fn a_wide_screen_shows_everything() {
        let shown = screen(&board(), 83, 16);
        let expect = "\
brigade 3 living, 3 in all  /src/soup
TASK         NAME   STATE       AGE  COMMAND
job:1               waiting     65s  cargo test --workspace
  process:2  Tests  running     65s  cargo test --workspace
process:3           failed (7)  3s   cargo test --workspace




one
two three



up/down select   o output   m message   s stop   K kill   a all   q quit
";
        assert!(shown.contains(" output of job:1 ─"), "{shown}");
        let body: String = shown
            .lines()
            .filter(|line| !line.contains('─'))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(body, expect);
    }

    #[test]
    fn a_narrower_screen_shows_what_matters_most() {
        let expect = "\
brigade 3 living, 3 in all  /src/soup
TASK         NAME   STATE       AGE  COMMAND
job:1               waiting     65s  cargo test --workspace
  process:2  Tests  running     65s  cargo test --workspace
process:3           failed (7)  3s   cargo test --workspace


o output  m message  s stop  K kill  a all  q quit
";
        assert_eq!(screen(&board(), 60, 8), expect);
        let expect = "\
brigade 3 living, 3 in all  /src/soup
TASK         NAME   STATE       COMMAND
job:1               waiting     cargo t…
  process:2  Tests  running     cargo t…
process:3           failed (7)  cargo t…


o out  m msg  s stop  K kill  a all  q
";
        assert_eq!(screen(&board(), 40, 8), expect);
        let expect = "\
brigade 3 living, 3 in al
TASK         STATE
job:1        waiting
  process:2  running
process:3    failed (7)


o m s K a q
";
        assert_eq!(screen(&board(), 25, 8), expect);
        let shown = screen(&board(), 36, 8);
        assert!(
            shown.contains("\njob:1        cargo test…  waiting\n"),
            "for want of a name: {shown}"
        );
    }

    #[test]
    fn agents_are_shown_with_what_they_are_at() {
        let mut board = TopState::default();
        let mut asking = task("agent:1", None, "waiting");
        let questions = r#"[{"call":3,"text":"Red or blue?"}]"#;
        asking.questions = serde_json::from_str(questions).expect("a question");
        let mut thinking = task("agent:2", Some("1"), "running");
        let progress = r#"{"step":4,"doing":"thinking","words":"I look around."}"#;
        thinking.progress = Some(Json::parse(progress).expect("a note"));
        board.update(vec![asking, thinking]);
        let expect = "\
brigade 2 living, 2 in all  /src/soup
TASK       STATE    AGE  COMMAND
agent:1    waiting  65s  asks: Red or blue?
  agent:2  running  65s  step 4, thinking — I look around.


o output  m message  s stop  K kill  a all  q quit
";
        assert_eq!(screen(&board, 60, 7), expect);
        type_in(&mut board, "red");
        assert!(screen(&board, 60, 7).contains("answer: red_"));
    }

    #[test]
    fn what_leave_is_asked_for_is_shown_whole_before_it_is_given() {
        let mut board = TopState::default();
        board.update(vec![asking_for_leave()]);
        board.output = "what it said".to_owned();
        let shown = screen(&board, 80, 18);
        assert!(shown.contains(" agent:4 asks for leave: run_process ─"), "{shown}");
        let expect = "
  command │ cargo publish
  cwd     │ /src/soup
  (the operator asks about run_process)
  m shows it whole and answers
";
        assert!(shown.contains(expect), "{shown}");
        type_in(&mut board, "n no");
        let shown = screen(&board, 80, 7);
        assert!(shown.contains("y, a or n: n no_"), "{shown}");
        assert!(
            shown.contains("  command │ cargo publish\n") && shown.contains("y: once"),
            "{shown}"
        );
        board.mode = TopMode::Reading;
        assert!(screen(&board, 80, 18).contains("what it said"));
    }

    #[test]
    fn no_screen_is_too_small() {
        let mut board = board();
        type_in(&mut board, &"hello".repeat(9));
        for mode in [board.mode.clone(), TopMode::Watching, TopMode::Reading] {
            board.mode = mode;
            for (width, height) in [(1, 1), (2, 9), (5, 2), (20, 3), (200, 60)] {
                screen(&board, width, height);
            }
        }
    }

    #[test]
    fn a_view_of_everything_says_where_it_is() {
        let mut board = board();
        board.scope = TopScope::AllWorkspaces;
        let shown = screen(&board, 80, 8);
        assert!(shown.contains("everywhere") && shown.contains("\nWORKSPACE  TASK "), "{shown}");
        assert!(shown.contains("\nsoup       job:1 "), "{shown}");
    }

    #[test]
    fn the_end_of_what_is_typed_stays_in_sight() {
        assert_eq!(
            render_draft("message", "hello", 60),
            "message: hello_   enter sends, esc gives up"
        );
        assert_eq!(render_draft("message", "hello there", 12), "…ello there_");
        assert_eq!(truncate_start("/home/me/project", 10), "…e/project");
    }

    #[test]
    fn an_empty_list_says_what_to_do() {
        assert!(screen(&TopState::default(), 80, 10).contains("brigade exec -d -- COMMAND"));
        assert!(screen(&TopState::default(), 40, 10).contains("COMMAND"));
    }
}
