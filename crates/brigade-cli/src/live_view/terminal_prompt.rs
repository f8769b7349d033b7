//! The prompt on the terminal, and which typed lines are for it.

use crate::pending_input::PendingInput;

/// What is asked on the terminal, and whether a line may have been begun for something else.
///
/// A terminal keeps the letters of a line until it is entered, and a read that was begun for one prompt
/// takes a line that is entered under the next. So a line counts only if its prompt was there before it.
#[derive(Debug, Default)]
pub(super) struct TerminalPrompt {
    shown: Option<PendingInput>,
    /// Another prompt went away unanswered, and no line was entered since.
    has_changed: bool,
}

/// What is to be done with a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PromptInput {
    /// It answers this.
    Answer(PendingInput),
    /// It may have been meant for a prompt that is gone.
    Outdated,
    Ignored,
}

impl TerminalPrompt {
    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    pub(super) fn is_same_call(&self, asking: &PendingInput) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.is_same_call(asking))
    }

    /// Puts a prompt on the terminal, in place of the one that is there. `is_flushed` says that nothing
    /// is left of what was typed before.
    pub(super) fn show(&mut self, asking: PendingInput, is_flushed: bool) {
        self.has_changed |= self.shown.is_some() || !is_flushed;
        self.shown = Some(asking);
    }

    /// Takes away a prompt that needs no answer any more.
    pub(super) fn withdraw(&mut self) {
        self.has_changed |= self.shown.take().is_some();
    }

    /// Takes away a prompt that was answered here, or never will be.
    pub(super) fn close(&mut self) -> Option<PendingInput> {
        self.shown.take()
    }

    /// Takes a line that was entered.
    pub(super) fn take_line(&mut self) -> PromptInput {
        match &self.shown {
            Some(_) if std::mem::take(&mut self.has_changed) => PromptInput::Outdated,
            Some(asking) => PromptInput::Answer(asking.clone()),
            None => PromptInput::Ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(task: &str, call: u32) -> PendingInput {
        let shown = "ab".repeat(16).parse().ok();
        PendingInput::Approval { task: task.to_owned(), call, shown_digest: shown }
    }

    #[test]
    fn a_line_is_for_the_prompt_that_was_there_before_it() {
        let mut prompt = TerminalPrompt::default();
        assert_eq!(prompt.take_line(), PromptInput::Ignored);
        prompt.show(leave("agent:2", 4), true);
        assert_eq!(prompt.take_line(), PromptInput::Answer(leave("agent:2", 4)));
        // A line that was no answer: the prompt is still the same.
        assert_eq!(prompt.take_line(), PromptInput::Answer(leave("agent:2", 4)));
        prompt.close();
        prompt.show(leave("agent:3", 4), true);
        assert_eq!(
            prompt.take_line(),
            PromptInput::Answer(leave("agent:3", 4)),
            "the other was answered"
        );
    }

    #[test]
    fn the_first_line_after_a_change_answers_nothing() {
        let mut prompt = TerminalPrompt::default();
        prompt.show(leave("agent:2", 4), true);
        // `y` is typed, agent:2 is stopped, and agent:3 asks.
        prompt.show(leave("agent:3", 4), true);
        assert_eq!(prompt.take_line(), PromptInput::Outdated);
        assert_eq!(prompt.take_line(), PromptInput::Answer(leave("agent:3", 4)));
    }

    #[test]
    fn a_prompt_that_went_away_leaves_no_line_to_the_next_one() {
        let mut prompt = TerminalPrompt::default();
        prompt.show(leave("agent:2", 4), true);
        prompt.withdraw();
        assert!(!prompt.is_shown());
        // A line that is entered with no prompt is still to be read.
        assert_eq!(prompt.take_line(), PromptInput::Ignored);
        prompt.show(leave("agent:3", 4), true);
        assert_eq!(prompt.take_line(), PromptInput::Outdated);
        assert_eq!(prompt.take_line(), PromptInput::Answer(leave("agent:3", 4)));
    }

    #[test]
    fn what_cannot_be_flushed_answers_nothing() {
        let mut prompt = TerminalPrompt::default();
        prompt.show(leave("agent:2", 4), false);
        assert_eq!(prompt.take_line(), PromptInput::Outdated);
        assert_eq!(prompt.take_line(), PromptInput::Answer(leave("agent:2", 4)));
    }
}
