//! The prompt on the terminal, and the typed lines that answer it.

use crate::pending_input::PendingInput;

/// The prompt on the terminal.
///
/// A terminal holds a line until it is entered. A read that started under one prompt may return a
/// line that was entered under the next. So a line answers a prompt only if the prompt was there
/// before it.
#[derive(Debug, Default)]
pub(super) struct TerminalPrompt {
    shown: Option<PendingInput>,
    /// Another prompt was replaced without an answer, and no line was entered since.
    has_changed: bool,
}

/// The meaning of a typed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptInput {
    /// An answer to this input.
    Answer(PendingInput),
    /// It may be meant for a prompt that was replaced.
    Outdated,
    Ignored,
}

impl TerminalPrompt {
    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    pub(super) fn is_same_call(&self, input: &PendingInput) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.is_same_call(input))
    }

    /// Shows a prompt in place of the last one. `is_flushed` says that all earlier typed input was
    /// dropped.
    pub(super) fn show(&mut self, input: PendingInput, is_flushed: bool) {
        self.has_changed |= self.shown.is_some() || !is_flushed;
        self.shown = Some(input);
    }

    /// Removes a prompt that needs no answer any more.
    pub(super) fn withdraw(&mut self) {
        self.has_changed |= self.shown.take().is_some();
    }

    /// Removes a prompt that was answered here, or never will be.
    pub(super) fn close(&mut self) -> Option<PendingInput> {
        self.shown.take()
    }

    /// Returns the meaning of an entered line.
    pub(super) fn take_line(&mut self) -> PromptInput {
        match &self.shown {
            Some(_) if std::mem::take(&mut self.has_changed) => PromptInput::Outdated,
            Some(input) => PromptInput::Answer(input.clone()),
            None => PromptInput::Ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(task: &str, call: u32) -> PendingInput {
        let shown_digest = "ab".repeat(16).parse().ok();
        PendingInput::Approval { task: task.to_owned(), call, shown_digest }
    }

    #[test]
    fn a_line_answers_the_prompt_that_was_there_before_it() {
        let mut prompt = TerminalPrompt::default();
        assert_eq!(prompt.take_line(), PromptInput::Ignored);
        prompt.show(approval("agent:2", 4), true);
        assert_eq!(prompt.take_line(), PromptInput::Answer(approval("agent:2", 4)));
        // A line that was not an answer: the prompt is still the same.
        assert_eq!(prompt.take_line(), PromptInput::Answer(approval("agent:2", 4)));
        prompt.close();
        prompt.show(approval("agent:3", 4), true);
        assert_eq!(
            prompt.take_line(),
            PromptInput::Answer(approval("agent:3", 4)),
            "the other was answered"
        );
    }

    #[test]
    fn the_first_line_after_a_change_answers_nothing() {
        let mut prompt = TerminalPrompt::default();
        prompt.show(approval("agent:2", 4), true);
        // `y` is typed, agent:2 is stopped, and agent:3 needs approval.
        prompt.show(approval("agent:3", 4), true);
        assert_eq!(prompt.take_line(), PromptInput::Outdated);
        assert_eq!(prompt.take_line(), PromptInput::Answer(approval("agent:3", 4)));
    }

    #[test]
    fn a_line_for_a_withdrawn_prompt_does_not_answer_the_next_one() {
        let mut prompt = TerminalPrompt::default();
        prompt.show(approval("agent:2", 4), true);
        prompt.withdraw();
        assert!(!prompt.is_shown());
        // A line that is entered without a prompt is still to be read.
        assert_eq!(prompt.take_line(), PromptInput::Ignored);
        prompt.show(approval("agent:3", 4), true);
        assert_eq!(prompt.take_line(), PromptInput::Outdated);
        assert_eq!(prompt.take_line(), PromptInput::Answer(approval("agent:3", 4)));
    }

    #[test]
    fn input_that_cannot_be_flushed_answers_nothing() {
        let mut prompt = TerminalPrompt::default();
        prompt.show(approval("agent:2", 4), false);
        assert_eq!(prompt.take_line(), PromptInput::Outdated);
        assert_eq!(prompt.take_line(), PromptInput::Answer(approval("agent:2", 4)));
    }
}
