//! Applies edits to a text: all of them, or none.

use std::borrow::Cow;

use memchr::memmem;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::render::pluralize;

/// The maximum number of line numbers in an error about an ambiguous text.
const LINES_SHOWN_MAX: usize = 8;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextEdit {
    /// The exact text to replace, with its white space, and enough of it to be unique.
    pub(crate) old: String,
    /// The replacement.
    pub(crate) new: String,
    /// Replace every occurrence, instead of the only one.
    #[serde(default)]
    pub(crate) all: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EditedText {
    pub(crate) content: Vec<u8>,
    /// The lines of the replacements, each numbered when it was made.
    pub(crate) lines: Vec<u64>,
}

/// Applies each edit to the result of the previous ones. An error names the edit and the problem.
pub(crate) fn apply_edits(
    content: &[u8],
    edits: &[TextEdit],
    max: usize,
) -> Result<EditedText, String> {
    let mut edited = EditedText { content: content.to_owned(), lines: Vec::new() };
    for (at, edit) in edits.iter().enumerate() {
        let result = apply_edit(&edited.content, edit, max)
            .map_err(|problem| format!("`edits[{at}]`: {problem}"))?;
        edited.content = result.content;
        edited.lines.extend(result.lines);
    }
    Ok(edited)
}

fn apply_edit(content: &[u8], edit: &TextEdit, max: usize) -> Result<EditedText, String> {
    if edit.old.is_empty() {
        return Err("`old` is empty; give the text to replace".to_owned());
    }
    if edit.old == edit.new {
        return Err("`old` and `new` are the same".to_owned());
    }
    let (old, new) = match has_crlf(content) {
        true => (with_crlf(&edit.old), with_crlf(&edit.new)),
        false => (Cow::Borrowed(edit.old.as_str()), Cow::Borrowed(edit.new.as_str())),
    };
    let offsets = find_occurrences(content, old.as_bytes(), edit.all);
    match offsets.as_slice() {
        [] => return Err(describe_not_found(content, &old, &new)),
        [_] => (),
        [..] if edit.all => (),
        several => return Err(describe_ambiguity(content, several)),
    }
    if content.len() + offsets.len() * new.len() > max + offsets.len() * old.len() {
        return Err(format!("the file would be larger than {max} bytes"));
    }
    let mut out = Vec::with_capacity(content.len() + new.len());
    let mut from = 0;
    let mut line = 1;
    let mut lines = Vec::with_capacity(offsets.len());
    for offset in offsets {
        line += count_line_ends(&content[from..offset]);
        lines.push(line);
        line += count_line_ends(new.as_bytes());
        out.extend_from_slice(&content[from..offset]);
        out.extend_from_slice(new.as_bytes());
        from = offset + old.len();
    }
    out.extend_from_slice(&content[from..]);
    Ok(EditedText { content: out, lines })
}

/// Returns true if all lines end with CRLF.
fn has_crlf(content: &[u8]) -> bool {
    let both = memmem::find_iter(content, b"\r\n").count();
    both > 0 && both as u64 == count_line_ends(content)
}

/// Converts the line ends of a model's text, which are `\n` for any file.
fn with_crlf(text: &str) -> Cow<'_, str> {
    if !text.contains('\n') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n"))
}

/// Returns the offsets of the text. Overlapping occurrences count separately unless all are
/// replaced.
fn find_occurrences(content: &[u8], old: &[u8], all: bool) -> Vec<usize> {
    let finder = memmem::Finder::new(old);
    if all {
        return finder.find_iter(content).collect();
    }
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = content.get(from..).and_then(|rest| finder.find(rest)) {
        found.push(from + at);
        from += at + 1;
        // A thousand occurrences are as ambiguous as more.
        if found.len() >= 1_000 {
            break;
        }
    }
    found
}

fn count_line_ends(content: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', content).count() as u64
}

fn line_number(content: &[u8], offset: usize) -> u64 {
    count_line_ends(&content[..offset]) + 1
}

fn describe_ambiguity(content: &[u8], offsets: &[usize]) -> String {
    let shown = offsets
        .iter()
        .take(LINES_SHOWN_MAX)
        .map(|offset| line_number(content, *offset).to_string());
    let shown: Vec<String> = shown.collect();
    let more = if offsets.len() > LINES_SHOWN_MAX { ", .." } else { "" };
    format!(
        "`old` occurs {} times, in lines {}{more}; give more of the text around the intended one, or \
         all: true",
        offsets.len(),
        shown.join(", ")
    )
}

fn describe_not_found(content: &[u8], old: &str, new: &str) -> String {
    let mut problem = "`old` is not in the file".to_owned();
    if !new.trim().is_empty()
        && let Some(offset) = memmem::find(content, new.as_bytes())
    {
        let line = line_number(content, offset);
        problem.push_str(&format!(
            ", but `new` is, in line {line}: the edit may have been applied already; read the file"
        ));
        return problem;
    }
    let text = String::from_utf8_lossy(content);
    match find_similar(&text, old) {
        Some(SimilarText::WhitespaceDiffers(line)) => problem.push_str(&format!(
            "; the text in line {line} differs only in white space: give it exactly as it is"
        )),
        Some(SimilarText::FirstLineMatches { line, line_count }) => problem.push_str(&format!(
            "; the first of its {} is in line {line}, but the text after it differs",
            pluralize(line_count, "line")
        )),
        None => problem.push_str("; read the file and give the text exactly as it is in the file"),
    }
    problem
}

enum SimilarText {
    /// A text in this line that differs only in white space.
    WhitespaceDiffers(u64),
    /// A line that equals the first line.
    FirstLineMatches { line: u64, line_count: u64 },
}

fn find_similar(text: &str, old: &str) -> Option<SimilarText> {
    let normalize = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted: Vec<String> = old.lines().map(normalize).skip_while(String::is_empty).collect();
    let first = wanted.first()?;
    let lines: Vec<String> = text.lines().map(normalize).collect();
    let matches_first = |at: &usize| lines[*at].contains(first.as_str());
    let at = (0..lines.len()).find(|at| {
        matches_first(at)
            && wanted[1..].iter().enumerate().all(|(next, wanted)| {
                lines.get(at + 1 + next).is_some_and(|line| line.starts_with(wanted.as_str()))
            })
    });
    if let Some(at) = at {
        return Some(SimilarText::WhitespaceDiffers(at as u64 + 1));
    }
    let at = (0..lines.len()).find(matches_first).filter(|_| wanted.len() > 1)?;
    Some(SimilarText::FirstLineMatches { line: at as u64 + 1, line_count: wanted.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> TextEdit {
        TextEdit { old: old.to_owned(), new: new.to_owned(), all: false }
    }

    #[track_caller]
    fn applied(content: &str, edits: &[TextEdit]) -> (String, Vec<u64>) {
        let edited = apply_edits(content.as_bytes(), edits, 1_000).unwrap();
        (String::from_utf8(edited.content).unwrap(), edited.lines)
    }

    #[track_caller]
    fn refused(content: &str, edits: &[TextEdit], expect: &str) {
        let problem = apply_edits(content.as_bytes(), edits, 1_000).unwrap_err();
        assert!(problem.contains(expect), "{problem}");
    }

    #[test]
    fn edits_are_applied_in_order() {
        let edits = [edit("one", "two"), edit("two three", "four")];
        assert_eq!(applied("a\none three\n", &edits), ("a\nfour\n".to_owned(), vec![2, 2]));
        let all = TextEdit { all: true, ..edit("x", "x\nx") };
        assert_eq!(applied("x\nx", &[all]), ("x\nx\nx\nx".to_owned(), vec![1, 3]));
    }

    #[test]
    fn line_ends_and_marks_are_kept() {
        let edits = [edit("a\nb", "a\nnew\nb")];
        assert_eq!(applied("\u{feff}a\r\nb\r\n", &edits).0, "\u{feff}a\r\nnew\r\nb\r\n");
        assert_eq!(applied("a\nb", &edits).0, "a\nnew\nb");
        // In a text with mixed line ends nothing is converted.
        assert_eq!(applied("a\nb\r\n", &edits).0, "a\nnew\nb\r\n");
        let edited = apply_edits(b"\xff\xfeabc", &[edit("b", "B")], 1_000).unwrap();
        assert_eq!(edited.content, b"\xff\xfeaBc");
    }

    #[test]
    fn an_edit_that_does_not_apply_is_explained() {
        refused("a a a", &[edit("a", "b")], "`old` occurs 3 times, in lines 1, 1, 1");
        refused("aaa", &[edit("aa", "b")], "occurs 2 times");
        refused("text", &[edit("", "b")], "`old` is empty");
        refused("text", &[edit("t", "t")], "the same");
        refused(
            "let x =  1;\n",
            &[edit("let x = 1;", "y")],
            "in line 1 differs only in white space",
        );
        refused(
            "a\nfn f() {\nb",
            &[edit("fn f() {\nc", "y")],
            "the first of its 2 lines is in line 2",
        );
        refused("done", &[edit("do it", "done")], "the edit may have been applied already");
        refused("a b", &[edit("a", "c"), edit("x", "y")], "`edits[1]`: `old` is not in the file");
        let all = TextEdit { all: true, ..edit("a", &"b".repeat(600)) };
        refused("aa", &[all], "larger than 1000 bytes");
    }
}
