//! The card of a call on a terminal: wrapped to its width, so that every line has our mark before it.

use brigade_model::approval::{CallCard, CardLine};
use unicode_width::UnicodeWidthChar;

use crate::render;

/// The columns before each line of a card.
const INDENT: usize = 2;
/// The least that a line has of a text, however narrow the terminal.
const NARROWEST: usize = 8;

/// All lines of a card, each of at most so many columns where there is a limit.
pub(crate) fn render_card(card: &CallCard, columns: Option<usize>) -> Vec<String> {
    let mark = INDENT + CardLine::LABEL_COLUMNS + render::display_width(CardLine::MARK);
    let room = columns.map(|columns| columns.saturating_sub(mark).max(NARROWEST));
    card.lines().iter().flat_map(|line| wrap_card_line(line, room)).collect()
}

fn wrap_card_line(line: &CardLine, room: Option<usize>) -> Vec<String> {
    let pieces = match room {
        Some(room) => break_text(line.text.as_str(), room),
        None => vec![line.text.as_str()],
    };
    let (indent, labels) = (" ".repeat(INDENT), CardLine::LABEL_COLUMNS);
    let first = format!("{indent}{:<labels$}{}", line.label, CardLine::MARK);
    let further = format!("{indent}{:<labels$}{}", "", CardLine::MARK_WRAPPED);
    let marks = std::iter::once(first).chain(std::iter::repeat(further));
    marks.zip(pieces).map(|(mark, piece)| format!("{mark}{piece}")).collect()
}

/// Parts of a text that each have room, in the order in which they stand.
fn break_text(text: &str, room: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut taken) = (0, 0);
    for (at, letter) in text.char_indices() {
        let width = letter.width().unwrap_or(0);
        if taken + width > room && at > start {
            pieces.push(&text[start..at]);
            (start, taken) = (at, 0);
        }
        taken += width;
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_wrapped_behind_our_mark() {
        let call = r#"{"command": "echo 日本語日本語\n  > y", "name": "Tests"}"#;
        let card = CallCard::of("run_process", call, None);
        let expect = [
            "  command │ echo 日",
            "          ┊ 本語日本",
            "          ┊ 語⏎",
            "          │ ··> y",
            "  with    │ name: Te",
            "          ┊ sts",
        ];
        assert_eq!(render_card(&card, Some(20)), expect);
        assert!(render_card(&card, Some(20)).iter().all(|line| render::display_width(line) <= 20));
        assert_eq!(render_card(&card, None).len(), 3);
        for columns in 0..30 {
            let all: String = render_card(&card, Some(columns))
                .iter()
                .filter_map(|line| line.split_once(['│', '┊']))
                .map(|(_, text)| &text[1..])
                .collect();
            assert_eq!(all, "echo 日本語日本語⏎··> yname: Tests", "{columns}: nothing is lost");
        }
    }
}
