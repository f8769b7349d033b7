//! Renders the full-screen view.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};

use brigade_protocol::task_info::ApprovalInfo;

use super::state::{DraftSubject, MessageDraft, TopLine, TopMode, TopScope, TopState};
use crate::pending_input::ScreenSize;
use crate::{call_card, pending_input, render};

/// The least height for the output beside the list.
const OUTPUT_HEIGHT_MIN: u16 = 14;
/// The least width of a useful description.
const DESCRIPTION_WIDTH_MIN: usize = 8;
/// The width of the description before other columns are added.
const DESCRIPTION_WIDTH_ENOUGH: usize = 16;
/// The largest width of a name or a workspace.
const NAME_WIDTH_MAX: usize = 24;
const COLUMN_GAP: usize = 2;

/// The help of the keys: the first that fits is shown.
const KEYS: [&str; 4] = [
    "up/down select   o output   m message   s stop   K kill   a all   q quit",
    "o output  m message  s stop  K kill  a all  q quit",
    "o out  m msg  s stop  K kill  a all  q",
    "o m s K a q",
];
const KEYS_READING: [&str; 3] = ["o back   up/down another task   q back", "o back  q back", "o q"];

/// Draws a frame. `workspace` names the list; `now` is in milliseconds since the epoch.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &TopState, workspace: &str, now: u64) {
    let area = frame.area();
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
            .areas(area);
    draw_heading(frame, head, state, workspace);
    if let TopMode::Typing(MessageDraft {
        task, subject: DraftSubject::Approval(approval), ..
    }) = &state.mode
    {
        draw_approval(frame, body, task, approval);
    } else if state.mode == TopMode::Reading {
        draw_output(frame, body, state);
    } else if body.height >= OUTPUT_HEIGHT_MIN {
        let [list, detail] =
            Layout::vertical([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(body);
        draw_table(frame, list, state, now);
        draw_detail(frame, detail, state);
    } else {
        draw_table(frame, body, state, now);
    }
    draw_footer(frame, foot, state);
}

fn draw_heading(frame: &mut Frame<'_>, area: Rect, state: &TopState, workspace: &str) {
    let alive = state.lines.iter().filter(|line| line.task.alive).count();
    let scope = match state.scope {
        TopScope::Workspace => workspace,
        TopScope::AllWorkspaces => "all workspaces",
    };
    let count = format!("{alive} alive, {} total  ", state.lines.len());
    let width = usize::from(area.width).saturating_sub("brigade ".len() + count.len());
    let text = Text::from(vec![
        Span::styled("brigade ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(count),
        Span::styled(
            render::truncate_start_to_width(scope, width),
            Style::new().fg(Color::DarkGray),
        ),
    ]);
    frame.render_widget(Paragraph::new(text), area);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &TopState, now: u64) {
    if state.lines.is_empty() {
        let text =
            "No tasks run here. Start one: brigade exec -d -- COMMAND, or brigade run -d PROMPT";
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let columns = fit_columns(state, usize::from(area.width), now);
    let heading = columns.iter().map(|fitted| fitted.column.title());
    let heading = Row::new(heading.collect::<Vec<_>>()).style(Style::new().fg(Color::DarkGray));
    let rows = state
        .lines
        .iter()
        .map(|line| Row::new(columns.iter().map(|fitted| fitted.cell(line, now))));
    let widths = columns.iter().map(|fitted| Constraint::Length(fitted.width as u16));
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .column_spacing(COLUMN_GAP as u16)
        .header(heading)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut table_state = TableState::new().with_selected(state.selected_index());
    frame.render_stateful_widget(table, area, &mut table_state);
}

/// The columns, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TopColumn {
    Workspace,
    Task,
    Name,
    /// The name, or the description without one, if there is no space for both.
    Label,
    State,
    Age,
    Description,
}

/// A column with its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ColumnWidth {
    column: TopColumn,
    width: usize,
}

/// Selects the columns that fit, with their widths. The address and the state are always included;
/// the others follow in order of importance.
fn fit_columns(state: &TopState, width: usize, now: u64) -> Vec<ColumnWidth> {
    let widest = |column: TopColumn| {
        let cells = state.lines.iter().map(|line| column.text(line, now).chars().count());
        cells.max().unwrap_or(0)
    };
    let natural = |column: TopColumn| match widest(column) {
        0 => 0,
        widest => widest.min(NAME_WIDTH_MAX).max(column.title().len()),
    };
    let task_width = natural(TopColumn::Task).min(width);
    let state_width = natural(TopColumn::State).min(width.saturating_sub(task_width + COLUMN_GAP));
    let mut chosen = vec![
        ColumnWidth { column: TopColumn::Task, width: task_width },
        ColumnWidth { column: TopColumn::State, width: state_width },
    ];
    let mut remaining = width.saturating_sub(task_width + state_width + COLUMN_GAP);
    // Each optional column with the width that must stay free beside it.
    let mut optional =
        vec![(TopColumn::Name, 0), (TopColumn::Age, COLUMN_GAP + DESCRIPTION_WIDTH_ENOUGH)];
    if state.scope == TopScope::AllWorkspaces {
        optional.insert(0, (TopColumn::Workspace, 0));
    }
    for (column, beside) in optional {
        let needed = natural(column) + COLUMN_GAP;
        if needed > COLUMN_GAP && needed + beside <= remaining {
            chosen.push(ColumnWidth { column, width: natural(column) });
            remaining -= needed;
        }
    }
    if remaining >= DESCRIPTION_WIDTH_MIN + COLUMN_GAP {
        let width = remaining - COLUMN_GAP;
        chosen.push(ColumnWidth { column: TopColumn::Description, width });
    } else if let Some(name) = chosen.iter_mut().find(|it| it.column == TopColumn::Name) {
        *name = ColumnWidth { column: TopColumn::Label, width: name.width + remaining };
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
            Self::Description => "DESCRIPTION",
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
            Self::Description => {
                let activity = render::render_activity(task).filter(|_| task.alive);
                render::render_one_line(&activity.unwrap_or_else(|| task.description.clone()))
            }
        }
    }
}

impl ColumnWidth {
    fn cell(self, line: &TopLine, now: u64) -> Cell<'static> {
        let text = self.column.text(line, now);
        let cell = Cell::from(render::truncate_to_width(&text, self.width));
        let needs_input = line.task.alive && render::render_pending_input(&line.task).is_some();
        match self.column {
            TopColumn::State => cell.style(Style::new().fg(state_color(&line.task.state))),
            TopColumn::Description if needs_input => cell.style(Style::new().fg(Color::Yellow)),
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

/// Draws the pending approval of the selected task, or else the last lines of its output.
fn draw_detail(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let alive = state.selected().filter(|task| task.alive);
    let Some((task, approval)) = alive.and_then(|task| Some((task, task.approvals.first()?)))
    else {
        return draw_output(frame, area, state);
    };
    let block = approval_block(task.label(), approval);
    let columns = usize::from(area.width);
    let height = usize::from(block.inner(area).height);
    let mut lines = match approval.card() {
        Some(card) => call_card::render_card(&card, Some(columns)),
        None => Vec::new(),
    };
    if lines.is_empty() || lines.len() + 2 > height {
        lines = pending_input::render_elided_call(approval, Some(columns));
        // The end is truncated, with a mark.
        if lines.len() + 2 > height {
            lines.truncate(height.saturating_sub(3));
            lines.push("  …".to_owned());
        }
    }
    lines.push(format!("  ({})", pending_input::render_rule(approval)));
    lines.push("  m shows the whole call and answers".to_owned());
    let text: Vec<Text<'_>> = lines.into_iter().map(Text::from).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// Draws the call of a typed verdict, whole if it fits.
fn draw_approval(frame: &mut Frame<'_>, area: Rect, task: &str, approval: &ApprovalInfo) {
    let block = approval_block(task, approval);
    let columns = usize::from(area.width);
    // The screen also has the heading and the footer.
    let screen = ScreenSize { columns, rows: usize::from(area.height) + 2 };
    let (mut lines, keys) = match pending_input::render_whole_call(approval, screen) {
        Some(lines) => (lines, pending_input::APPROVAL_KEYS.to_owned()),
        None => (
            pending_input::render_elided_call(approval, Some(columns)),
            pending_input::render_too_long(task, approval),
        ),
    };
    lines.push(format!("  ({})", pending_input::render_rule(approval)));
    lines.push(format!("  {keys}"));
    let text: Vec<Text<'_>> = lines.into_iter().map(Text::from).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn approval_block(task: &str, approval: &ApprovalInfo) -> Block<'static> {
    let title = format!(" {task} needs approval: {} ", approval.tool);
    Block::new().borders(Borders::TOP).title(render::render_one_line(&title))
}

/// Draws the last lines of the output.
fn draw_output(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let Some(task) = state.selected() else { return };
    let title = render::render_one_line(&format!(" output of {} ", task.label()));
    let block = Block::new().borders(Borders::TOP).title(title);
    let height = usize::from(block.inner(area).height);
    let lines: Vec<&str> = state.output.lines().collect();
    let shown = &lines[lines.len().saturating_sub(height)..];
    let text: Vec<Text<'_>> =
        shown.iter().map(|line| Text::from(render::render_one_line(line))).collect();
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let width = usize::from(area.width);
    let text = match (&state.mode, &state.note) {
        (TopMode::Typing(draft), None) => {
            let label = match &draft.subject {
                DraftSubject::Nothing => "message",
                DraftSubject::Question(_) => "answer",
                DraftSubject::Approval(_) => "y, a or n",
            };
            render_draft(label, &draft.text, width)
        }
        (_, Some(note)) => render::truncate_to_width(&render::render_one_line(note), width),
        (TopMode::Reading, None) => first_fitting(&KEYS_READING, width).to_owned(),
        (TopMode::Watching, None) => first_fitting(&KEYS, width).to_owned(),
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().fg(Color::DarkGray)), area);
}

fn render_draft(label: &str, text: &str, width: usize) -> String {
    let message = format!("{label}: {text}_");
    let whole = format!("{message}   enter sends, esc cancels");
    if render::display_width(&whole) <= width {
        whole
    } else {
        render::truncate_start_to_width(&message, width)
    }
}

fn first_fitting(texts: &[&'static str], width: usize) -> &'static str {
    let fitting = texts.iter().find(|text| text.chars().count() <= width);
    fitting.or(texts.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use brigade_model::json::Json;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::tests::{awaiting_approval, task, type_in};
    use super::*;

    fn screen(state: &TopState, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| draw(frame, state, "/src/soup", 65_000)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let mut text = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn state() -> TopState {
        let mut state = TopState::default();
        let mut tests = task("process:2", Some("1"), "running");
        tests.name = Some("Tests".to_owned());
        let mut ended = task("process:3", None, "failed");
        ended.exit_code = Some(7);
        ended.ended_at = Some(3_000);
        state.update(vec![task("job:1", None, "waiting"), tests, ended]);
        state.output = "one\ntwo\tthree\n".to_owned();
        state
    }

    #[test]
    fn a_wide_screen_shows_everything() {
        let shown = screen(&state(), 83, 16);
        let expect = "\
brigade 3 alive, 3 total  /src/soup
TASK         NAME   STATE       AGE  DESCRIPTION
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
brigade 3 alive, 3 total  /src/soup
TASK         NAME   STATE       AGE  DESCRIPTION
job:1               waiting     65s  cargo test --workspace
  process:2  Tests  running     65s  cargo test --workspace
process:3           failed (7)  3s   cargo test --workspace


o output  m message  s stop  K kill  a all  q quit
";
        assert_eq!(screen(&state(), 60, 8), expect);
        let expect = "\
brigade 3 alive, 3 total  /src/soup
TASK         NAME   STATE       DESCRIPT
job:1               waiting     cargo t…
  process:2  Tests  running     cargo t…
process:3           failed (7)  cargo t…


o out  m msg  s stop  K kill  a all  q
";
        assert_eq!(screen(&state(), 40, 8), expect);
        let expect = "\
brigade 3 alive, 3 total
TASK         STATE
job:1        waiting
  process:2  running
process:3    failed (7)


o m s K a q
";
        assert_eq!(screen(&state(), 25, 8), expect);
        let shown = screen(&state(), 36, 8);
        assert!(
            shown.contains("\njob:1        cargo test…  waiting\n"),
            "the description without a name: {shown}"
        );
    }

    #[test]
    fn agents_are_shown_with_their_activity() {
        let mut state = TopState::default();
        let mut agent = task("agent:1", None, "waiting");
        let questions = r#"[{"call":3,"text":"Red or blue?"}]"#;
        agent.questions = serde_json::from_str(questions).expect("a question");
        let mut thinking = task("agent:2", Some("1"), "running");
        let progress = r#"{"step":4,"activity":"thinking","last_text":"I look around."}"#;
        thinking.progress = Some(Json::parse(progress).expect("a note"));
        state.update(vec![agent, thinking]);
        let expect = "\
brigade 2 alive, 2 total  /src/soup
TASK       STATE    AGE  DESCRIPTION
agent:1    waiting  65s  asks: Red or blue?
  agent:2  running  65s  step 4, thinking — I look around.


o output  m message  s stop  K kill  a all  q quit
";
        assert_eq!(screen(&state, 60, 7), expect);
        type_in(&mut state, "red");
        assert!(screen(&state, 60, 7).contains("answer: red_"));
    }

    #[test]
    fn a_call_is_shown_whole_before_it_is_approved() {
        let mut state = TopState::default();
        state.update(vec![awaiting_approval()]);
        state.output = "output of the agent".to_owned();
        let shown = screen(&state, 80, 18);
        assert!(shown.contains(" agent:4 needs approval: run_process ─"), "{shown}");
        let expect = "
  command │ cargo publish
  cwd     │ /src/soup
  (the operator asks about run_process)
  m shows the whole call and answers
";
        assert!(shown.contains(expect), "{shown}");
        type_in(&mut state, "n no");
        let shown = screen(&state, 80, 7);
        assert!(shown.contains("y, a or n: n no_"), "{shown}");
        assert!(
            shown.contains("  command │ cargo publish\n") && shown.contains("y: once"),
            "{shown}"
        );
        state.mode = TopMode::Reading;
        assert!(screen(&state, 80, 18).contains("output of the agent"));
    }

    #[test]
    fn no_screen_is_too_small() {
        let mut state = state();
        type_in(&mut state, &"hello".repeat(9));
        for mode in [state.mode.clone(), TopMode::Watching, TopMode::Reading] {
            state.mode = mode;
            for (width, height) in [(1, 1), (2, 9), (5, 2), (20, 3), (200, 60)] {
                screen(&state, width, height);
            }
        }
    }

    #[test]
    fn a_view_of_all_workspaces_has_a_workspace_column() {
        let mut state = state();
        state.scope = TopScope::AllWorkspaces;
        let shown = screen(&state, 80, 8);
        assert!(
            shown.contains("all workspaces") && shown.contains("\nWORKSPACE  TASK "),
            "{shown}"
        );
        assert!(shown.contains("\nsoup       job:1 "), "{shown}");
    }

    #[test]
    fn the_end_of_a_typed_text_stays_visible() {
        assert_eq!(
            render_draft("message", "hello", 60),
            "message: hello_   enter sends, esc cancels"
        );
        assert_eq!(render_draft("message", "hello there", 12), "…ello there_");
    }

    #[test]
    fn an_empty_list_says_what_to_do() {
        assert!(screen(&TopState::default(), 80, 10).contains("brigade exec -d -- COMMAND"));
        assert!(screen(&TopState::default(), 40, 10).contains("COMMAND"));
    }
}
