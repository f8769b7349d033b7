//! A line for a person: filtered text in parts, each with a style.

use std::fmt;

use anstyle::Style;
use brigade_model::plain_text::PlainText;

use crate::render;

/// Text in parts, each with a style. Escape sequences come from the styles only: all text is
/// filtered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StyledLine(Vec<StyledPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct StyledPart {
    style: Style,
    text: PlainText,
}

impl StyledLine {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds text without a style.
    #[must_use]
    pub(crate) fn text(self, text: impl AsRef<str>) -> Self {
        self.styled(Style::new(), text)
    }

    /// Adds text with a style.
    #[must_use]
    pub(crate) fn styled(mut self, style: Style, text: impl AsRef<str>) -> Self {
        self.0.push(StyledPart { style, text: PlainText::of(text.as_ref()) });
        self
    }

    /// Returns the width in terminal columns.
    pub(crate) fn columns(&self) -> usize {
        self.0.iter().map(|part| render::display_width(part.text.as_str())).sum()
    }
}

impl<T: AsRef<str>> From<T> for StyledLine {
    fn from(text: T) -> Self {
        Self::new().text(text)
    }
}

impl fmt::Display for StyledLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for StyledPart { style, text } in &self.0 {
            write!(f, "{style}{text}{style:#}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_styles_reach_a_terminal() {
        let bold = Style::new().bold();
        let line = StyledLine::from("a\x1b[31mb").styled(bold, "c\x1b]0;x\x07").text("\u{e0041}d");
        let shown = line.to_string();
        assert_eq!(shown, format!("a\u{fffd}[31mb{bold}c\u{fffd}]0;x\u{fffd}{bold:#}d"));
        assert_eq!(line.columns(), "a?[31mbc?]0;x?d".len());
    }
}
