//! The text of an answer, bounded in its size.

use brigade_model::json::PAYLOAD_MAX;
use brigade_model::truncate::{head_json_bytes, json_bytes};
use serde::{Deserialize, Serialize};

/// The largest size of an answer in JSON, in bytes. It leaves half of a journal entry for the other
/// state of a turn.
const ANSWER_BYTES_MAX: usize = PAYLOAD_MAX / 2;

/// An answer. The part of it that is too large is replaced by a note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(crate) struct AnswerText {
    text: String,
    /// The size of the text in JSON.
    size: usize,
}

impl AnswerText {
    pub(crate) fn new(text: &str) -> Self {
        let mut answer = Self::default();
        answer.push(text);
        answer
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_string(self) -> String {
        self.text
    }

    /// Removes the text of an earlier answer from the start. Returns its size in bytes, or 0 if this
    /// answer does not begin with it.
    pub(crate) fn remove_earlier(&mut self, earlier: &Self) -> usize {
        match self.text.strip_prefix(&earlier.text) {
            Some(rest) => {
                *self = Self::from(rest.to_owned());
                earlier.text.len()
            }
            None => 0,
        }
    }

    /// Adds an earlier answer at the start again. Returns false if it is not the one that was
    /// removed.
    pub(crate) fn restore_earlier(&mut self, earlier: Self, length: usize) -> bool {
        if length == 0 {
            return true;
        }
        if earlier.text.len() != length {
            return false;
        }
        let rest = std::mem::replace(self, earlier);
        self.text.push_str(&rest.text);
        self.size += rest.size;
        true
    }

    /// Adds text at the end, unless the answer is truncated.
    pub(crate) fn push(&mut self, text: &str) {
        if self.size > ANSWER_BYTES_MAX {
            return;
        }
        let head = head_json_bytes(text, ANSWER_BYTES_MAX - self.size);
        self.text.push_str(head);
        self.size += json_bytes(head);
        if head.len() < text.len() {
            let shown = self.text.len();
            self.text.push_str(&format!(
                "\n[The answer is truncated: only its first {shown} bytes are stored.]"
            ));
            self.size = ANSWER_BYTES_MAX + 1;
        }
    }
}

impl From<String> for AnswerText {
    fn from(text: String) -> Self {
        let size = json_bytes(&text);
        Self { text, size }
    }
}

impl From<AnswerText> for String {
    fn from(answer: AnswerText) -> Self {
        answer.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_truncated_once_with_a_note() {
        for (piece, pieces) in [("x", ANSWER_BYTES_MAX + 1), ("\u{1}", 90_000), ("süß\n", 200_000)]
        {
            let whole = piece.repeat(pieces);
            let mut answer = AnswerText::default();
            whole.chars().for_each(|c| answer.push(c.encode_utf8(&mut [0; 4])));
            assert_eq!(answer.as_str(), AnswerText::new(&whole).as_str());
            assert_eq!(answer.as_str().matches("truncated").count(), 1);
            let saved = serde_json::to_string(&answer).unwrap();
            assert!(saved.len() < ANSWER_BYTES_MAX + 100, "{}", saved.len());
            let mut restored: AnswerText = serde_json::from_str(&saved).unwrap();
            restored.push("more");
            assert_eq!(restored.as_str(), answer.as_str(), "a restored answer is truncated too");
        }
    }

    #[test]
    fn an_answer_that_fits_is_whole() {
        let whole = "x".repeat(ANSWER_BYTES_MAX);
        assert_eq!(AnswerText::new(&whole).as_str(), whole);
    }
}
