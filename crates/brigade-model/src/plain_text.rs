//! Foreign text, filtered for a person: without terminal control sequences and invisible
//! characters.
//!
//! There are two filters. [`PlainText::of`] and [`PlainText::line`] make text easy to read and drop
//! characters without meaning. [`PlainText::exact`] loses nothing: different texts look different,
//! as a person needs to decide about one of them.

use std::fmt;

use crate::truncate::{MARKER, head_chars, tail_chars};

/// The maximum number of spaces that are shown as marks. A longer run is shown as a count.
const SPACES_SHOWN: usize = 8;

const LINE_END: char = '⏎';
const TAB: char = '⇥';
const SPACE: char = '·';

/// Text without control, direction and invisible characters. Only the filters of this module create
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlainText(String);

impl PlainText {
    /// Filters text of several lines. Line ends and tabs stay.
    pub fn of(text: &str) -> Self {
        Self(text.chars().filter_map(|letter| filter_char(letter, "\n\t")).collect())
    }

    /// Filters text into one line. Line ends and tabs become spaces.
    pub fn line(text: &str) -> Self {
        let spaced =
            text.chars().map(|letter| if "\n\r\t".contains(letter) { ' ' } else { letter });
        Self(spaced.filter_map(|letter| filter_char(letter, "")).collect())
    }

    /// Renders text exactly, as lines for display. Each line end is `⏎` and a new line, a tab is
    /// `⇥`, and a space that is easy to overlook is `·`. Any other invisible character is an escape
    /// such as `\u{200b}`. Different texts give different lines.
    pub fn exact(text: &str) -> Vec<Self> {
        let mut lines: Vec<Self> = Vec::new();
        let mut rest = text.split('\n').peekable();
        while let Some(line) = rest.next() {
            let mut shown = exact_line(line);
            if rest.peek().is_some() {
                shown.push(LINE_END);
            }
            lines.push(Self(shown));
        }
        lines
    }

    /// Truncates a text to at max `max` letters in its middle, with the number of omitted bytes.
    /// Use it only for displays on which nobody decides.
    pub fn truncate_middle(text: &str, max: usize) -> Self {
        let line = Self::line(text);
        if line.0.chars().count() <= max {
            return line;
        }
        let tail_max = max / 3;
        let head = head_chars(&line.0, max - tail_max);
        let tail = tail_chars(&line.0, tail_max);
        let omitted = line.0.len() - head.len() - tail.len();
        Self(format!("{head} {MARKER}[{omitted} bytes]{MARKER} {tail}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }

    /// Splits the text at a byte offset, or before the letter at that offset.
    #[must_use]
    pub fn split_at_floor(&self, bytes: usize) -> (Self, Self) {
        let (head, tail) = self.0.split_at(self.0.floor_char_boundary(bytes));
        (Self(head.to_owned()), Self(tail.to_owned()))
    }
}

impl AsRef<str> for PlainText {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlainText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn filter_char(letter: char, kept: &str) -> Option<char> {
    match letter {
        letter if kept.contains(letter) => Some(letter),
        letter if letter.is_control() || is_direction_mark(letter) || is_line_end(letter) => {
            Some(char::REPLACEMENT_CHARACTER)
        }
        letter if is_ignorable(letter) => None,
        letter => Some(letter),
    }
}

fn exact_line(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        if letter == ' ' {
            let run = rest.len() - rest.trim_start_matches(' ').len();
            let at_edge = shown.is_empty() || run == rest.len();
            match run {
                1 if !at_edge => shown.push(' '),
                ..=SPACES_SHOWN => shown.extend(std::iter::repeat_n(SPACE, run)),
                _ => shown.push_str(&format!("\\u{{20*{run}}}")),
            }
            rest = &rest[run..];
            continue;
        }
        match letter {
            '\t' => shown.push(TAB),
            // Otherwise it would look like one of our own escapes.
            '\\' if rest.starts_with("\\u{") => shown.push_str("\\u{5c}"),
            LINE_END | TAB | SPACE => shown.push_str(&escape_char(letter)),
            letter if is_ambiguous(letter) => shown.push_str(&escape_char(letter)),
            letter => shown.push(letter),
        }
        rest = &rest[letter.len_utf8()..];
    }
    shown
}

fn escape_char(letter: char) -> String {
    format!("\\u{{{:x}}}", u32::from(letter))
}

/// Returns whether a letter is invisible, easy to mistake, or changes the look of its neighbours.
fn is_ambiguous(letter: char) -> bool {
    letter.is_control()
        || is_direction_mark(letter)
        || is_line_end(letter)
        || is_ignorable(letter)
        || is_blank(letter)
        || is_stacked(letter)
        || is_private(letter)
}

/// Returns whether a display may show nothing for a character, or only use it to change the
/// direction of text.
pub fn is_invisible(letter: char) -> bool {
    is_ignorable(letter) || is_direction_mark(letter)
}

/// Returns whether a character changes the direction of text. With it, a command can read as
/// another.
fn is_direction_mark(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_line_end(letter: char) -> bool {
    matches!(letter, '\u{2028}' | '\u{2029}')
}

/// Returns whether Unicode lets a display omit the character. Tags are among these.
fn is_ignorable(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        // Marks of scripts that format numbers, which have no glyph of their own.
        | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
    )
}

/// Returns whether a character looks like a space, but is not one to a shell.
fn is_blank(letter: char) -> bool {
    letter != ' ' && letter.is_whitespace() || letter == '\u{2800}'
}

/// Returns whether a mark is drawn over the letter before it.
fn is_stacked(letter: char) -> bool {
    matches!(
        letter,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}'
        | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}'
    )
}

/// Returns whether a character is in a private-use area, or is not a character.
fn is_private(letter: char) -> bool {
    let letter = u32::from(letter);
    matches!(letter, 0xe000..=0xf8ff | 0xfdd0..=0xfdef | 0xf_0000..) || letter & 0xfffe == 0xfffe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns deceptive texts, combined in every order.
    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("\n".to_owned()),
            Just("\r\n".to_owned()),
            Just("\t".to_owned()),
            Just("\u{1b}[2J".to_owned()),
            Just("\u{202e}".to_owned()),
            Just("\u{200b}".to_owned()),
            Just("\u{e0041}".to_owned()),
            Just("\u{2028}".to_owned()),
            Just("\u{a0}".to_owned()),
            Just("\u{301}".to_owned()),
            Just("⏎".to_owned()),
            Just("·".to_owned()),
            Just("\\u{200b}".to_owned()),
            Just("\\u{20*12}".to_owned()),
            Just("\\".to_owned()),
            " {0,14}",
            "[a-z{}*0-9]{0,3}",
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    /// Reads the shown text back by the documented rules.
    fn read_back(lines: &[PlainText]) -> String {
        let mut text = String::new();
        for line in lines {
            let mut rest = line.as_str();
            while let Some(letter) = rest.chars().next() {
                if let Some(escape) = rest.strip_prefix("\\u{") {
                    let (code, after) = escape.split_once('}').expect("an escape is closed");
                    match code.strip_prefix("20*") {
                        Some(count) => text.push_str(&" ".repeat(count.parse().expect("a count"))),
                        None => {
                            let code = u32::from_str_radix(code, 16).expect("a number");
                            text.push(char::from_u32(code).expect("a letter"));
                        }
                    }
                    rest = after;
                    continue;
                }
                text.push(match letter {
                    LINE_END => '\n',
                    TAB => '\t',
                    SPACE => ' ',
                    letter => letter,
                });
                rest = &rest[letter.len_utf8()..];
            }
        }
        text
    }

    fn is_clean(text: &str) -> bool {
        text.chars().all(|c| {
            !c.is_control() && !is_direction_mark(c) && !is_line_end(c) && !is_ignorable(c)
        })
    }

    proptest! {
        #[test]
        fn an_exact_text_can_be_read_back_and_has_nothing_hidden(text in hostile()) {
            let lines = PlainText::exact(&text);
            prop_assert_eq!(read_back(&lines), text);
            for line in &lines {
                prop_assert!(is_clean(line.as_str()), "{:?}", line);
                prop_assert!(!line.as_str().contains("  ") && !line.as_str().ends_with(' '));
                prop_assert!(!line.as_str().chars().any(|c| is_blank(c) || is_stacked(c)));
            }
        }

        #[test]
        fn filtered_texts_have_nothing_hidden(text in hostile(), max in 0usize..20) {
            prop_assert!(is_clean(PlainText::line(&text).as_str()));
            prop_assert!(is_clean(PlainText::truncate_middle(&text, max).as_str()));
            let several = PlainText::of(&text);
            prop_assert!(is_clean(&several.as_str().replace(['\n', '\t'], "")));
        }
    }

    #[test]
    fn an_exact_text_shows_every_character() {
        let shown = |text: &str| -> Vec<String> {
            PlainText::exact(text).into_iter().map(PlainText::into_string).collect()
        };
        for (text, expect) in [
            ("cargo publish", &["cargo publish"][..]),
            ("a\n b\t", &["a⏎", "·b⇥"]),
            ("a  b ", &["a··b·"]),
            (&format!("a{}b", " ".repeat(900)), &["a\\u{20*900}b"]),
            ("rm\u{200b} \u{202e}x", &["rm\\u{200b} \\u{202e}x"]),
            ("grep '\\d' \\u{20}", &["grep '\\d' \\u{5c}u{20}"]),
            ("日本 é", &["日本 é"]),
            ("", &[""]),
        ] {
            assert_eq!(shown(text), expect, "{text:?}");
        }
    }

    #[test]
    fn a_filtered_text_omits_invisible_characters() {
        assert_eq!(PlainText::line("rm\u{1b}[2J\n\u{202e}x").as_str(), "rm\u{fffd}[2J \u{fffd}x");
        assert_eq!(PlainText::of("a\n\tb\u{e0041}\u{200b}c").as_str(), "a\n\tbc");
        assert_eq!(PlainText::line("⚠\u{fe0f} hot").as_str(), "⚠ hot");
    }

    #[test]
    fn a_truncated_text_has_its_head_and_its_tail() {
        assert_eq!(PlainText::truncate_middle("short", 9).as_str(), "short");
        let long = format!("{}; rm -rf x", "a".repeat(100));
        assert_eq!(PlainText::truncate_middle(&long, 12).as_str(), "aaaaaaaa …[98 bytes]… rf x");
    }
}
