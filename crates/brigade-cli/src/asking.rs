//! What somebody at the terminal is asked, and what the line means that they type.

use anstyle::Style;
use brigade_model::approval::Verdict;
use brigade_server::TaskInfo;
use brigade_server::info::{Approval, Question};

use crate::show;

/// What waits for somebody, of a task and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// A question of the one at the top: those of others are their parents' to answer.
    Question { call: u32 },
    /// Leave, for whichever task: only a person gives it.
    Leave { task: String, call: u32 },
}

impl Asking {
    /// The first thing that waits, and in what words it is put.
    pub(crate) fn first(tasks: &[TaskInfo]) -> Option<(Self, String)> {
        let root = tasks.first()?;
        if let Some(question) = root.questions.first() {
            return Some((Self::Question { call: question.call }, question_text(root, question)));
        }
        let task = tasks.iter().find(|task| task.living && !task.approvals.is_empty())?;
        let approval = task.approvals.first()?;
        let asking = Self::Leave { task: task.address.clone(), call: approval.call };
        Some((asking, leave_text(task, approval)))
    }

    /// How it is answered from elsewhere.
    pub(crate) fn command(&self, root: &str) -> String {
        match self {
            Self::Question { .. } => format!("brigade answer {root} TEXT"),
            Self::Leave { task, call } => format!("brigade approve {task} {call}"),
        }
    }
}

fn question_text(task: &TaskInfo, question: &Question) -> String {
    let style = Style::new().bold();
    let (called, verb) = (show::called(task), question.verb());
    format!("{style}{called} {verb}:{style:#} {}\n> ", show::plain(&question.text))
}

fn leave_text(task: &TaskInfo, approval: &Approval) -> String {
    let style = Style::new().bold();
    let (called, text) = (show::called(task), show::plain(&approval.text));
    let [with, why] = details(approval);
    format!(
        "{style}{called} asks for leave:{style:#} {text}\n  {with}\n  ({why})\n  y: once, a: always in \
         this session, n: no (n and a reason)\n> "
    )
}

/// What one should know before one gives leave: all that the call has, and who wants it asked about.
pub(crate) fn details(approval: &Approval) -> [String; 2] {
    [
        show::one_line(&format!("with {}", approval.arguments)),
        show::one_line(&format!("{} asks about {}", approval.by, approval.rule)),
    ]
}

/// The verdict that a line is. None is one that is no answer.
pub(crate) fn verdict(line: &str) -> Option<Verdict> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_lowercase().as_str(), rest.trim()) {
        ("y" | "yes" | "o" | "once", "") => Some(Verdict::AllowOnce),
        ("a" | "always", "") => Some(Verdict::AllowAlways { rule: None }),
        ("n" | "no" | "d" | "deny", reason) => Some(Verdict::Deny { reason: reason.into() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_verdict_or_none() {
        let deny = |reason: &str| Some(Verdict::Deny { reason: reason.into() });
        for (line, expect) in [
            ("y", Some(Verdict::AllowOnce)),
            (" Yes ", Some(Verdict::AllowOnce)),
            ("a", Some(Verdict::AllowAlways { rule: None })),
            ("n", deny("")),
            ("n  not on a Friday", deny("not on a Friday")),
            ("", None),
            ("yes please", None),
            ("maybe", None),
        ] {
            assert_eq!(verdict(line), expect, "{line:?}");
        }
    }
}
