//! What edits do to a text: all of them, or nothing.

use std::borrow::Cow;

use memchr::memmem;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::render::pluralize;

/// Places that are named when a text is found more than once.
const LINES_SHOWN_MAX: usize = 8;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextEdit {
    /// Exactly what is there, with its white space, and enough of it to be found once.
    pub(crate) old: String,
    /// What is to be there instead.
    pub(crate) new: String,
    /// Replace every occurrence, instead of one that must be the only one.
    #[serde(default)]
    pub(crate) all: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EditedText {
    pub(crate) content: Vec<u8>,
    /// Where something was replaced, at the time that it was.
    pub(crate) lines: Vec<u64>,
}

/// Applies each edit to what the ones before it left. An error says which one does not fit, and why.
pub(crate) fn apply_edits(
    content: &[u8],
    edits: &[TextEdit],
    most: usize,
) -> Result<EditedText, String> {
    let mut edited = EditedText { content: content.to_owned(), lines: Vec::new() };
    for (at, edit) in edits.iter().enumerate() {
        let (content, lines) = apply_edit(&edited.content, edit, most)
            .map_err(|problem| format!("`edits[{at}]`: {problem}"))?;
        edited.content = content;
        edited.lines.extend(lines);
    }
    Ok(edited)
}

fn apply_edit(content: &[u8], edit: &TextEdit, most: usize) -> Result<(Vec<u8>, Vec<u64>), String> {
    if edit.old.is_empty() {
        return Err("`old` is empty; give the text that is to be replaced".to_owned());
    }
    if edit.old == edit.new {
        return Err("`old` and `new` are the same".to_owned());
    }
    let (old, new) = match has_crlf(content) {
        true => (with_crlf(&edit.old), with_crlf(&edit.new)),
        false => (Cow::Borrowed(edit.old.as_str()), Cow::Borrowed(edit.new.as_str())),
    };
    let places = find_occurrences(content, old.as_bytes(), edit.all);
    match places.as_slice() {
        [] => return Err(describe_not_found(content, &old, &new)),
        [_] => (),
        [..] if edit.all => (),
        several => return Err(describe_ambiguity(content, several)),
    }
    if content.len() + places.len() * new.len() > most + places.len() * old.len() {
        return Err(format!("the file would be larger than {most} bytes"));
    }
    let mut out = Vec::with_capacity(content.len() + new.len());
    let (mut from, mut line, mut lines) = (0, 1, Vec::with_capacity(places.len()));
    for place in places {
        line += count_line_ends(&content[from..place]);
        lines.push(line);
        line += count_line_ends(new.as_bytes());
        out.extend_from_slice(&content[from..place]);
        out.extend_from_slice(new.as_bytes());
        from = place + old.len();
    }
    out.extend_from_slice(&content[from..]);
    Ok((out, lines))
}

/// Whether all lines of a text end like this.
fn has_crlf(content: &[u8]) -> bool {
    let both = memmem::find_iter(content, b"\r\n").count();
    both > 0 && both as u64 == count_line_ends(content)
}

/// A model writes `\n`, whatever the file has.
fn with_crlf(text: &str) -> Cow<'_, str> {
    if !text.contains('\n') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n"))
}

/// Where it is. Places that overlap are two, unless all are to be replaced.
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
        // A thousand places are as ambiguous as all of them.
        if found.len() >= 1_000 {
            break;
        }
    }
    found
}

fn count_line_ends(content: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', content).count() as u64
}

fn line_number(content: &[u8], place: usize) -> u64 {
    count_line_ends(&content[..place]) + 1
}

fn describe_ambiguity(content: &[u8], places: &[usize]) -> String {
    let shown =
        places.iter().take(LINES_SHOWN_MAX).map(|place| line_number(content, *place).to_string());
    let shown: Vec<String> = shown.collect();
    let more = if places.len() > LINES_SHOWN_MAX { ", .." } else { "" };
    format!(
        "`old` is there {} times, in lines {}{more}; give more of the text around the one you mean, or \
         all: true",
        places.len(),
        shown.join(", ")
    )
}

fn describe_not_found(content: &[u8], old: &str, new: &str) -> String {
    let mut problem = "`old` is not in the file".to_owned();
    if !new.trim().is_empty()
        && let Some(place) = memmem::find(content, new.as_bytes())
    {
        let line = line_number(content, place);
        problem.push_str(&format!(
            ", but `new` is, in line {line}: it may have been applied already; read the file"
        ));
        return problem;
    }
    let text = String::from_utf8_lossy(content);
    match find_similar(&text, old) {
        Some(SimilarText::WhitespaceDiffers(line)) => problem.push_str(&format!(
            "; the text in line {line} differs from it in white space only: give it exactly as it is"
        )),
        Some(SimilarText::FirstLineMatches(line, of)) => problem.push_str(&format!(
            "; its first line is in line {line}, but of its {} what follows is different",
            pluralize(of, "line")
        )),
        None => problem.push_str("; read the file and give the text exactly as it is there"),
    }
    problem
}

enum SimilarText {
    /// The same but for white space, in this line.
    WhitespaceDiffers(u64),
    /// Its first line is there.
    FirstLineMatches(u64, u64),
}

fn find_similar(text: &str, old: &str) -> Option<SimilarText> {
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted: Vec<String> = old.lines().map(squeezed).skip_while(String::is_empty).collect();
    let first = wanted.first()?;
    let lines: Vec<String> = text.lines().map(squeezed).collect();
    let begins = |at: &usize| lines[*at].contains(first.as_str());
    let at = (0..lines.len()).find(|at| {
        begins(at)
            && wanted[1..].iter().enumerate().all(|(next, wanted)| {
                lines.get(at + 1 + next).is_some_and(|line| line.starts_with(wanted.as_str()))
            })
    });
    if let Some(at) = at {
        return Some(SimilarText::WhitespaceDiffers(at as u64 + 1));
    }
    let at = (0..lines.len()).find(begins).filter(|_| wanted.len() > 1)?;
    Some(SimilarText::FirstLineMatches(at as u64 + 1, wanted.len() as u64))
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
    fn edits_are_applied_one_after_the_other() {
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
        // In a mixed text nothing is guessed.
        assert_eq!(applied("a\nb\r\n", &edits).0, "a\nnew\nb\r\n");
        let edited = apply_edits(b"\xff\xfeabc", &[edit("b", "B")], 1_000).unwrap();
        assert_eq!(edited.content, b"\xff\xfeaBc");
    }

    #[test]
    fn what_does_not_fit_is_said() {
        refused("a a a", &[edit("a", "b")], "`old` is there 3 times, in lines 1, 1, 1");
        refused("aaa", &[edit("aa", "b")], "there 2 times");
        refused("text", &[edit("", "b")], "`old` is empty");
        refused("text", &[edit("t", "t")], "the same");
        refused(
            "let x =  1;\n",
            &[edit("let x = 1;", "y")],
            "in line 1 differs from it in white space",
        );
        refused("a\nfn f() {\nb", &[edit("fn f() {\nc", "y")], "its first line is in line 2");
        refused("done", &[edit("do it", "done")], "it may have been applied already");
        refused("a b", &[edit("a", "c"), edit("x", "y")], "`edits[1]`: `old` is not in the file");
        let all = TextEdit { all: true, ..edit("a", &"b".repeat(600)) };
        refused("aa", &[all], "larger than 1000 bytes");
    }
}
