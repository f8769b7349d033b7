//! The state of a turn while its events arrive.

use brigade_model::truncate::tail_bytes;
use serde::{Deserialize, Serialize};

use crate::answer_text::AnswerText;
use crate::event_reader::LineContent;
use crate::turn_events::{NoticeLevel, TextPart, TurnClosing, TurnEvent};

/// The maximum size of the text that a failed turn reports, in bytes.
pub(crate) const LAST_TEXT_MAX: usize = 8 * 1024;

/// The facts about a turn that its outcome needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnProgress {
    session_id: Option<String>,
    /// The text of the agent. It is empty if the closing event has the result.
    answer: AnswerText,
    /// True if the next text does not belong to the answer so far.
    starts_answer: bool,
    pub(crate) closing: Option<TurnClosing>,
    pub(crate) last_error: Option<String>,
    pub(crate) event_lines: u64,
    text_lines: u64,
    pub(crate) text_tail: String,
    /// True if a step began or ended and another one must follow.
    pub(crate) has_open_step: bool,
}

impl TurnProgress {
    /// Counts a line of the standard output. Its events are passed to [`Self::observe_event`].
    pub fn observe_line(&mut self, content: &LineContent) {
        match content {
            LineContent::Event(_) => self.event_lines += 1,
            LineContent::Text(text) => {
                self.text_lines += 1;
                if !self.text_tail.is_empty() {
                    self.text_tail.push('\n');
                }
                self.text_tail.push_str(text);
                self.text_tail = tail_bytes(&self.text_tail, LAST_TEXT_MAX).to_owned();
            }
        }
    }

    pub fn observe_event(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::SessionStarted { id } => self.session_id = Some(id.clone()),
            TurnEvent::Text(part) => self.add_text(part),
            TurnEvent::ToolCall { .. } | TurnEvent::ToolResult { .. } => self.starts_answer = true,
            TurnEvent::Step { is_last } => self.has_open_step = !is_last,
            TurnEvent::Closed(closing) => self.close(closing),
            TurnEvent::Notice(notice) if notice.level == NoticeLevel::Error => {
                self.last_error = Some(tail_bytes(&notice.text, LAST_TEXT_MAX).to_owned());
            }
            TurnEvent::Notice(_)
            | TurnEvent::Reasoning { .. }
            | TurnEvent::PermissionRequest(_)
            | TurnEvent::RequestWithdrawn { .. }
            | TurnEvent::Question(_)
            | TurnEvent::OtherRequest { .. }
            | TurnEvent::Usage(_) => {}
        }
    }

    /// Returns the last id of the agent's session.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// Returns the result of the closing event, or else the text after the last tool call, which is
    /// the answer if the turn is over. An answer that is too large to be stored is truncated, and
    /// says so.
    pub fn answer(&self) -> &str {
        let result = self.closing.as_ref().and_then(|closing| closing.result.as_deref());
        result.unwrap_or(self.answer.as_str())
    }

    /// Removes the part of the text that an earlier state of the turn has. Returns its size in bytes.
    pub(crate) fn remove_earlier_text(&mut self, earlier: &Self) -> usize {
        self.answer.remove_earlier(&earlier.answer)
    }

    /// Adds the removed part again. Returns false if the earlier state has another text.
    pub(crate) fn restore_earlier_text(&mut self, earlier: Self, length: usize) -> bool {
        self.answer.restore_earlier(earlier.answer, length)
    }

    /// Returns the number of lines that are not events.
    pub fn text_lines(&self) -> u64 {
        self.text_lines
    }

    /// Checks that the turn has its closing event, so that the program may end.
    pub fn is_closed(&self) -> bool {
        self.closing.is_some()
    }

    /// Checks that the agent ended the turn because its money was spent.
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.closing.as_ref().is_some_and(|closing| closing.budget_spent)
    }

    fn add_text(&mut self, part: &TextPart) {
        if self.starts_answer {
            self.answer = AnswerText::default();
            self.starts_answer = false;
        }
        if !part.is_delta && !self.answer.as_str().is_empty() {
            self.answer.push("\n\n");
        }
        self.answer.push(&part.text);
    }

    /// Stores the closing event. The result of a failed turn is not used, and that of another one
    /// replaces the text, so that the state has the answer once.
    fn close(&mut self, closing: &TurnClosing) {
        let result = closing.result.as_deref().filter(|_| closing.success);
        let error = closing.error.as_deref();
        if result.is_some() {
            self.answer = AnswerText::default();
        }
        self.closing = Some(TurnClosing {
            success: closing.success,
            result: result.map(|result| AnswerText::new(result).into_string()),
            error: error.map(|error| tail_bytes(error, LAST_TEXT_MAX).to_owned()),
            budget_spent: closing.budget_spent,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(text: &str, is_delta: bool) -> TurnEvent {
        TurnEvent::Text(TextPart { text: text.into(), is_delta })
    }

    fn call() -> TurnEvent {
        TurnEvent::ToolCall { id: "1".into(), name: "x".into(), arguments: Value::Null }
    }

    #[test]
    fn the_answer_is_the_text_after_the_last_tool_call() {
        let cases: [(&[TurnEvent], &str); 5] = [
            (&[], ""),
            (&[text("a", false), text("b", false)], "a\n\nb"),
            (&[text("a", true), text("b", true)], "ab"),
            (&[text("plan", true), call(), text("do", true), text("ne", true)], "done"),
            (&[text("last words", false), call()], "last words"),
        ];
        for (events, expected) in cases {
            let mut progress = TurnProgress::default();
            events.iter().for_each(|event| progress.observe_event(event));
            assert_eq!(progress.answer(), expected);
        }
    }

    #[test]
    fn lines_are_counted_and_only_the_end_of_text_is_stored() {
        let mut progress = TurnProgress::default();
        progress.observe_line(&LineContent::Event(json!({})));
        progress.observe_line(&LineContent::Text("first".into()));
        progress.observe_line(&LineContent::Text("x".repeat(LAST_TEXT_MAX - 1)));
        assert_eq!(progress.event_lines, 1);
        assert_eq!(progress.text_lines(), 2);
        assert_eq!(progress.text_tail.len(), LAST_TEXT_MAX);
    }
}
