//! The card of a tool call on a terminal, wrapped so that each line starts with a mark of ours.

use brigade_model::approval::{CallCard, CardLine};
use unicode_width::UnicodeWidthChar;

use crate::render;

/// Columns before each line of a card.
const INDENT: usize = 2;
/// The least width of the text, however narrow the terminal is.
const TEXT_WIDTH_MIN: usize = 8;

/// Renders all lines of a card, wrapped to `columns` if there is a limit.
pub(crate) fn render_card(card: &CallCard, columns: Option<usize>) -> Vec<String> {
    let mark_width = INDENT + CardLine::LABEL_COLUMNS + render::display_width(CardLine::MARK);
    let text_width = columns.map(|columns| columns.saturating_sub(mark_width).max(TEXT_WIDTH_MIN));
    card.lines().iter().flat_map(|line| wrap_card_line(line, text_width)).collect()
}

fn wrap_card_line(line: &CardLine, width: Option<usize>) -> Vec<String> {
    let pieces = match width {
        Some(width) => break_text(line.text.as_str(), width),
        None => vec![line.text.as_str()],
    };
    let indent = " ".repeat(INDENT);
    let label_width = CardLine::LABEL_COLUMNS;
    let first = format!("{indent}{:<label_width$}{}", line.label, CardLine::MARK);
    let further = format!("{indent}{:<label_width$}{}", "", CardLine::MARK_WRAPPED);
    let marks = std::iter::once(first).chain(std::iter::repeat(further));
    marks.zip(pieces).map(|(mark, piece)| format!("{mark}{piece}")).collect()
}

/// Breaks a text into parts that fit into `width`, in order.
fn break_text(text: &str, width: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        let letter_width = letter.width().unwrap_or(0);
        if used + letter_width > width && at > start {
            pieces.push(&text[start..at]);
            start = at;
            used = 0;
        }
        used += letter_width;
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
