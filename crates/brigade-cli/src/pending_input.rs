//! Questions and approvals at the terminal, and the meaning of the typed line.

use anstyle::Style;
use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_model::plain_text::PlainText;
use brigade_protocol::TaskInfo;
use brigade_protocol::task_info::{ApprovalInfo, QuestionInfo};

use crate::styled_line::StyledLine;
use crate::{call_card, render};

/// Lines of a call that does not fit the screen.
const ELIDED_LINES: usize = 5;

/// A question or approval that a task or its descendants wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PendingInput {
    /// A question of the root task. Questions of its descendants are for their parents.
    Question { call: u32 },
    /// An approval that any task of the tree needs. Only a person gives it.
    Approval {
        task: String,
        call: u32,
        /// The digest of a call that was shown whole. Without it the call cannot be allowed here.
        shown_digest: Option<CallDigest>,
    },
}

/// A pending input with the text of its prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) input: PendingInput,
    pub(crate) text: String,
}

/// The size of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScreenSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Default for ScreenSize {
    /// The usual size, for a terminal that does not report its own.
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

impl PendingInput {
    /// Returns the first pending input, with the text of its prompt.
    pub(crate) fn first_pending(tasks: &[TaskInfo], screen: ScreenSize) -> Option<Prompt> {
        let root = tasks.first()?;
        if let Some(question) = root.questions.first() {
            let input = Self::Question { call: question.call };
            return Some(Prompt { input, text: render_question(root, question) });
        }
        let task = tasks.iter().find(|task| task.alive && !task.approvals.is_empty())?;
        let approval = task.approvals.first()?;
        let shown_digest =
            approval.digest.filter(|_| render_whole_call(approval, screen).is_some());
        let input =
            Self::Approval { task: task.address.clone(), call: approval.call, shown_digest };
        Some(Prompt { input, text: render_approval(task, approval, screen) })
    }

    /// Returns true if both are about the same call, however it was shown.
    pub(crate) fn is_same_call(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Question { call }, Self::Question { call: other }) => call == other,
            (
                Self::Approval { task, call, .. },
                Self::Approval { task: other, call: other_call, .. },
            ) => (task, call) == (other, other_call),
            _ => false,
        }
    }

    /// Returns the command line that answers it from elsewhere.
    pub(crate) fn answer_command(&self, root: &str) -> String {
        match self {
            Self::Question { .. } => format!("brigade answer {root} TEXT"),
            Self::Approval { task, call, .. } => format!("brigade approve {task} {call}"),
        }
    }
}

/// Renders a whole call, if the screen has space for it and its prompt. Only then can a key allow
/// it.
pub(crate) fn render_whole_call(
    approval: &ApprovalInfo,
    screen: ScreenSize,
) -> Option<Vec<String>> {
    /// Lines for the heading, the rule, the keys and the typed answer.
    const PROMPT_LINES: usize = 5;
    let lines = call_card::render_card(&approval.card()?, Some(screen.columns.saturating_sub(1)));
    (lines.len() + PROMPT_LINES <= screen.rows).then_some(lines)
}

fn render_question(task: &TaskInfo, question: &QuestionInfo) -> String {
    let heading = format!("{} {}:", render::render_label(task), question.verb());
    let line = StyledLine::new().styled(Style::new().bold(), heading);
    // The indent keeps further lines of the question from looking like ours.
    let text = PlainText::of(&question.text).into_string().replace('\n', "\n  ");
    format!("{}\n> ", line.text(" ").text(text))
}

fn render_approval(task: &TaskInfo, approval: &ApprovalInfo, screen: ScreenSize) -> String {
    let whole = render_whole_call(approval, screen);
    let heading = format!("{} needs approval:", render::render_label(task));
    let heading =
        StyledLine::new().styled(Style::new().bold(), heading).text(" ").text(&approval.tool);
    let rule = render_rule(approval);
    let columns = screen.columns.saturating_sub(1);
    let (lines, keys) = match whole {
        Some(lines) => (lines, APPROVAL_KEYS.to_owned()),
        None => {
            (render_elided_call(approval, Some(columns)), render_too_long(&task.address, approval))
        }
    };
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{heading}\n{lines}  ({rule})\n  {keys}\n> ")
}

pub(crate) const APPROVAL_KEYS: &str =
    "y: once, a: always in this session and directory, n: no (n and a reason)";

/// Renders the head and the tail of a call that is not shown whole.
pub(crate) fn render_elided_call(approval: &ApprovalInfo, columns: Option<usize>) -> Vec<String> {
    match approval.card() {
        Some(card) => call_card::render_card(&card.truncate_middle(ELIDED_LINES), columns),
        None => vec![format!("  {}", PlainText::line(&approval.text))],
    }
}

/// Renders the hint for a call that is not shown whole.
pub(crate) fn render_too_long(address: &str, approval: &ApprovalInfo) -> String {
    format!(
        "too long to be allowed here: `brigade approve {address} {} --show`; n: no (n and a reason)",
        approval.call
    )
}

/// Renders the rule that requires the approval, with its source.
pub(crate) fn render_rule(approval: &ApprovalInfo) -> PlainText {
    PlainText::line(&format!("{} asks about {}", approval.rule_source, approval.rule))
}

/// Parses a typed line as a verdict; `None` if it is not one.
pub(crate) fn parse_verdict(line: &str) -> Option<ApprovalVerdict> {
    let line = line.trim();
    let (word, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_lowercase().as_str(), reason.trim()) {
        ("y" | "yes" | "o" | "once", "") => Some(ApprovalVerdict::AllowOnce),
        ("a" | "always", "") => Some(ApprovalVerdict::AllowAlways { rule: None }),
        ("n" | "no" | "d" | "deny", reason) => {
            Some(ApprovalVerdict::Deny { reason: reason.into() })
        }
        _ => None,
    }
}

/// Parses a verdict on a call. A call that was not shown whole can only be denied.
pub(crate) fn parse_verdict_on(
    line: &str,
    shown_digest: Option<CallDigest>,
) -> Option<ApprovalVerdict> {
    parse_verdict(line)
        .filter(|verdict| shown_digest.is_some() || matches!(verdict, ApprovalVerdict::Deny { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top_view::state::tests::{awaiting_approval, awaiting_approval_of};

    #[test]
    fn a_typed_line_is_parsed_as_a_verdict() {
        let deny = |reason: &str| Some(ApprovalVerdict::Deny { reason: reason.into() });
        for (line, expect) in [
            ("y", Some(ApprovalVerdict::AllowOnce)),
            (" Yes ", Some(ApprovalVerdict::AllowOnce)),
            ("a", Some(ApprovalVerdict::AllowAlways { rule: None })),
            ("n", deny("")),
            ("n  not on a Friday", deny("not on a Friday")),
            ("", None),
            ("yes please", None),
            ("maybe", None),
        ] {
            assert_eq!(parse_verdict(line), expect, "{line:?}");
        }
    }

    fn prompt(task: &TaskInfo, columns: usize, rows: usize) -> (Option<CallDigest>, String) {
        let screen = ScreenSize { columns, rows };
        match PendingInput::first_pending(std::slice::from_ref(task), screen) {
            Some(Prompt { input: PendingInput::Approval { shown_digest, .. }, text }) => {
                (shown_digest, anstream::adapter::strip_str(&text).to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_approval_prompt_shows_the_whole_call() {
        let (shown, text) = prompt(&awaiting_approval(), 80, 24);
        assert!(shown.is_some());
        let expect = "\
agent:4 needs approval: run_process
  command │ cargo publish
  cwd     │ /src/soup
  (the operator asks about run_process)
  y: once, a: always in this session and directory, n: no (n and a reason)
> ";
        assert_eq!(text, expect);
    }

    #[test]
    fn a_key_does_not_allow_a_call_that_the_screen_cannot_show_whole() {
        // A variable that would push the command out of sight, and a forged prompt.
        let long = "x".repeat(5_000);
        let forged = "ls\n".repeat(60) + "\x1b[2J\x1b[Hagent:4 needs approval: ls\n> ";
        for arguments in [
            serde_json::json!({ "command": "rm -rf x", "env": { "A": long } }),
            serde_json::json!({ "command": forged }),
        ] {
            let task = awaiting_approval_of(&arguments);
            let (shown, text) = prompt(&task, 80, 24);
            assert_eq!(shown, None, "{text}");
            assert!(
                text.contains("too long to be allowed here: `brigade approve agent:4 7 --show`")
            );
            assert!(text.lines().count() <= 24, "{text}");
            assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
            for key in ["y", "a"] {
                assert_eq!(parse_verdict_on(key, shown), None);
            }
            assert!(parse_verdict_on("n", shown).is_some());
            let wide = prompt(&task, 400, 200);
            assert!(wide.0.is_some(), "{}", wide.1);
        }
        let task = awaiting_approval_of(
            &serde_json::json!({ "command": "rm -rf x", "env": { "A": long } }),
        );
        assert!(
            prompt(&task, 80, 24).1.contains("\n  command │ rm -rf x\n"),
            "the command comes first"
        );
    }
}
