//! What somebody at the terminal is asked, and what the line means that they type.

use anstyle::Style;
use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_model::plain_text::PlainText;
use brigade_server::TaskInfo;
use brigade_server::task_info::{ApprovalInfo, QuestionInfo};

use crate::styled_line::StyledLine;
use crate::{call_card, render};

/// How much of a call is shown that the screen has no room for.
const ELIDED_LINES: usize = 5;

/// What waits for somebody, of a task and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PendingInput {
    /// A question of the one at the top: those of others are their parents' to answer.
    Question { call: u32 },
    /// Leave, for whichever task: only a person gives it.
    Approval {
        task: String,
        call: u32,
        /// The call that was shown whole. Where it was not, it cannot be allowed here.
        shown_digest: Option<CallDigest>,
    },
}

/// How large the screen is on which somebody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScreenSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Default for ScreenSize {
    /// What is supposed of a terminal that does not say how large it is.
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

impl PendingInput {
    /// The first thing that waits, and in what words it is put.
    pub(crate) fn first_pending(tasks: &[TaskInfo], screen: ScreenSize) -> Option<(Self, String)> {
        let root = tasks.first()?;
        if let Some(question) = root.questions.first() {
            return Some((Self::Question { call: question.call }, render_question(root, question)));
        }
        let task = tasks.iter().find(|task| task.alive && !task.approvals.is_empty())?;
        let approval = task.approvals.first()?;
        let shown = approval.digest.filter(|_| render_whole_call(approval, screen).is_some());
        let asking =
            Self::Approval { task: task.address.clone(), call: approval.call, shown_digest: shown };
        Some((asking, render_approval(task, approval, screen)))
    }

    /// Whether it is about the same, however it was shown.
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

    /// How it is answered from elsewhere.
    pub(crate) fn answer_command(&self, root: &str) -> String {
        match self {
            Self::Question { .. } => format!("brigade answer {root} TEXT"),
            Self::Approval { task, call, .. } => format!("brigade approve {task} {call}"),
        }
    }
}

/// All of a call in lines, if the screen has room for it and for the question. Only then can it be
/// allowed with a key.
pub(crate) fn render_whole_call(
    approval: &ApprovalInfo,
    screen: ScreenSize,
) -> Option<Vec<String>> {
    /// The heading, the rule, the answers, and the line to type on.
    const BESIDE: usize = 5;
    let lines = call_card::render_card(&approval.card()?, Some(screen.columns.saturating_sub(1)));
    (lines.len() + BESIDE <= screen.rows).then_some(lines)
}

fn render_question(task: &TaskInfo, question: &QuestionInfo) -> String {
    let heading = format!("{} {}:", render::render_label(task), question.verb());
    let line = StyledLine::new().styled(Style::new().bold(), heading);
    // Further lines of it do not pass for ours.
    let text = PlainText::of(&question.text).into_string().replace('\n', "\n  ");
    format!("{}\n> ", line.text(" ").text(text))
}

fn render_approval(task: &TaskInfo, approval: &ApprovalInfo, screen: ScreenSize) -> String {
    let whole = render_whole_call(approval, screen);
    let heading = format!("{} asks for leave:", render::render_label(task));
    let heading =
        StyledLine::new().styled(Style::new().bold(), heading).text(" ").text(&approval.tool);
    let why = render_rule(approval);
    let columns = screen.columns.saturating_sub(1);
    let (lines, answers) = match whole {
        Some(lines) => (lines, APPROVAL_KEYS.to_owned()),
        None => {
            (render_elided_call(approval, Some(columns)), render_too_long(&task.address, approval))
        }
    };
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{heading}\n{lines}  ({why})\n  {answers}\n> ")
}

pub(crate) const APPROVAL_KEYS: &str =
    "y: once, a: always in this session and directory, n: no (n and a reason)";

/// The head and the tail of a call that is not shown whole.
pub(crate) fn render_elided_call(approval: &ApprovalInfo, columns: Option<usize>) -> Vec<String> {
    match approval.card() {
        Some(card) => call_card::render_card(&card.truncate_middle(ELIDED_LINES), columns),
        None => vec![format!("  {}", PlainText::line(&approval.text))],
    }
}

/// What can be done about a call that is not shown whole.
pub(crate) fn render_too_long(address: &str, approval: &ApprovalInfo) -> String {
    format!(
        "too long to be allowed here: `brigade approve {address} {} --show`; n: no (n and a reason)",
        approval.call
    )
}

/// Who wants it asked about, by which rule.
pub(crate) fn render_rule(approval: &ApprovalInfo) -> PlainText {
    PlainText::line(&format!("{} asks about {}", approval.rule_source, approval.rule))
}

/// The verdict that a line is. None is one that is no answer.
pub(crate) fn parse_verdict(line: &str) -> Option<ApprovalVerdict> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_lowercase().as_str(), rest.trim()) {
        ("y" | "yes" | "o" | "once", "") => Some(ApprovalVerdict::AllowOnce),
        ("a" | "always", "") => Some(ApprovalVerdict::AllowAlways { rule: None }),
        ("n" | "no" | "d" | "deny", reason) => {
            Some(ApprovalVerdict::Deny { reason: reason.into() })
        }
        _ => None,
    }
}

/// The same for a call that was shown whole, or else can only be denied.
pub(crate) fn parse_verdict_on(line: &str, shown: Option<CallDigest>) -> Option<ApprovalVerdict> {
    parse_verdict(line)
        .filter(|verdict| shown.is_some() || matches!(verdict, ApprovalVerdict::Deny { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top_view::state::tests::{asking_for, asking_for_leave};

    #[test]
    fn a_line_is_a_verdict_or_none() {
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

    fn asked(task: &TaskInfo, columns: usize, rows: usize) -> (Option<CallDigest>, String) {
        let screen = ScreenSize { columns, rows };
        match PendingInput::first_pending(std::slice::from_ref(task), screen) {
            Some((PendingInput::Approval { shown_digest: shown, .. }, text)) => {
                (shown, anstream::adapter::strip_str(&text).to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn leave_is_asked_for_with_the_whole_call() {
        let (shown, text) = asked(&asking_for_leave(), 80, 24);
        assert!(shown.is_some());
        let expect = "\
agent:4 asks for leave: run_process
  command │ cargo publish
  cwd     │ /src/soup
  (the operator asks about run_process)
  y: once, a: always in this session and directory, n: no (n and a reason)
> ";
        assert_eq!(text, expect);
    }

    #[test]
    fn what_the_screen_cannot_show_whole_is_not_allowed_with_a_key() {
        // A variable that would push the command out of sight, and a prompt that is none of ours.
        let long = "x".repeat(5_000);
        let forged = "ls\n".repeat(60) + "\x1b[2J\x1b[Hagent:4 asks for leave: ls\n> ";
        for arguments in [
            serde_json::json!({ "command": "rm -rf x", "env": { "A": long } }),
            serde_json::json!({ "command": forged }),
        ] {
            let task = asking_for(&arguments);
            let (shown, text) = asked(&task, 80, 24);
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
            let wide = asked(&task, 400, 200);
            assert!(wide.0.is_some(), "{}", wide.1);
        }
        let task = asking_for(&serde_json::json!({ "command": "rm -rf x", "env": { "A": long } }));
        assert!(asked(&task, 80, 24).1.contains("\n  command │ rm -rf x\n"), "it comes first");
    }
}
