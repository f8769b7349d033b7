//! Searches for matching lines.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use brigade_process::output::{
    LineMatch, OutputSearch, OutputView, ProcessOutput, ReadStart, SearchBounds, SearchCursor,
    SearchError, SearchResult, StdStream,
};
use brigade_process::shim::layout::FileLayout;

use crate::writer::{Random, Writer};

fn search_for(pattern: &str) -> OutputSearch<'_> {
    OutputSearch {
        view: OutputView::Combined,
        pattern,
        ignore_case: false,
        cursor: SearchCursor::default(),
        max_matches: 1_000_000,
        max_line_bytes: 200,
        bounds: SearchBounds::default(),
    }
}

fn texts(found: &SearchResult) -> Vec<&str> {
    found.lines.iter().map(|line| line.text.as_str()).collect()
}

fn written(cap: u64, write: impl FnOnce(&mut Writer)) -> (tempfile::TempDir, ProcessOutput) {
    let dir = tempfile::tempdir().unwrap();
    write(&mut Writer::new(dir.path(), cap));
    let output = ProcessOutput::open(dir.path()).unwrap();
    (dir, output)
}

#[test]
fn lines_are_found_with_their_position() {
    let (_dir, output) = written(1_000, |writer| {
        writer.out("first error\r\nfine\n");
        writer.err("Error 2\n");
        writer.out("last error");
        writer.end();
    });
    let found = output.search(search_for("error")).unwrap();
    let line = |at, text: &str| LineMatch {
        at,
        stream: StdStream::Stdout,
        text: text.into(),
        unfinished: false,
    };
    assert_eq!(found.lines, [line(0, "first error"), line(26, "last error")]);
    assert_eq!(
        (found.next_cursor, found.dropped_bytes, found.ended),
        (SearchCursor::at(36), 0, true)
    );
    let found = output.search(OutputSearch { ignore_case: true, ..search_for("error") }).unwrap();
    assert_eq!(texts(&found), ["first error", "Error 2", "last error"]);
    let stderr = OutputSearch { view: OutputView::Stderr, ..search_for("^E") };
    let found = output.search(stderr).unwrap();
    assert_eq!((found.lines[0].at, found.lines[0].stream), (0, StdStream::Stderr));
    let anchored = output.search(search_for("error$")).unwrap();
    assert_eq!(anchored.lines.len(), 2, "a carriage return is not part of the line");
}

#[test]
fn a_line_is_whole_despite_bytes_of_the_other_stream() {
    let (_dir, output) = written(1_000, |writer| {
        writer.out("half and ");
        writer.err("warning: a");
        writer.out("half\n");
        writer.err("nd b\n");
    });
    let found = output.search(search_for("and")).unwrap();
    assert_eq!(texts(&found), ["half and half", "warning: and b"]);
    assert_eq!(found.lines.iter().map(|line| line.at).collect::<Vec<_>>(), [0, 9]);
}

#[test]
fn a_continued_search_finds_each_line_once() {
    for seed in 0..60 {
        let random = &mut Random(seed);
        let mut expected = Vec::new();
        let (_dir, output) = written(1 << 20, |writer| {
            let mut open: [String; 2] = Default::default();
            for _ in 0..300 {
                let stream = random.stream();
                let text = random.pick(&["a", "b\n", "cc", "\n", "a\nb", "x\ny\n"]);
                writer.put(stream, text.as_bytes());
                for part in text.split_inclusive('\n') {
                    let line = &mut open[stream as usize];
                    line.push_str(part);
                    if line.ends_with('\n') {
                        expected.push(line.trim_end().to_owned());
                        line.clear();
                    }
                }
            }
            let rest = open.into_iter().filter(|line| !line.is_empty());
            expected.extend(rest);
            writer.end();
        });
        expected.retain(|line| line.contains('a'));
        let max_matches = random.pick(&[1, 2, 5, 1_000]);
        let mut all = Vec::new();
        let mut cursor = SearchCursor::default();
        loop {
            let search = OutputSearch { cursor, max_matches, ..search_for("a") };
            let found = output.search(search).unwrap();
            assert!(found.lines.len() <= max_matches + 1);
            assert!(found.next_cursor != cursor || found.ended, "seed {seed}: no progress");
            all.extend(found.lines.into_iter().map(|line| line.text));
            cursor = found.next_cursor;
            if found.ended {
                break;
            }
        }
        assert_eq!(all, expected, "seed {seed} by {max_matches}");
    }
}

#[test]
fn an_unfinished_line_is_found_again_only_when_it_has_grown() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 1_000);
    let output = ProcessOutput::open(dir.path()).unwrap();
    let search_at = |cursor| output.search(OutputSearch { cursor, ..search_for("word") }).unwrap();
    writer.out("x\npassword:");
    let found = search_at(SearchCursor::default());
    assert_eq!(texts(&found), ["password:"]);
    assert!(found.lines[0].unfinished && !found.ended);
    let again = search_at(found.next_cursor);
    assert_eq!((texts(&again), again.next_cursor), (vec![], found.next_cursor));
    writer.out(" ok\n");
    let grown = search_at(again.next_cursor);
    assert_eq!(texts(&grown), ["password: ok"]);
    assert!(!grown.lines[0].unfinished);
    assert_eq!(texts(&search_at(grown.next_cursor)), Vec::<&str>::new());
}

#[test]
fn lines_are_found_across_the_boundaries_of_the_ring() {
    let cap = 50_000;
    let numbers = 0..40_000;
    let (_dir, output) = written(cap, |writer| {
        for number in numbers.clone() {
            writer.out(&format!("line {number:05}\n"));
        }
        writer.end();
    });
    let found = output.search(search_for("^line [0-9]{5}$")).unwrap();
    let dropped = FileLayout::bytes(cap).dropped_range(40_000 * 11);
    assert_eq!(found.dropped_bytes, dropped.end - dropped.start);
    let is_stored = |number: &u64| {
        let start = number * 11;
        let end = start + 11;
        end <= dropped.start || start >= dropped.end
    };
    // The remains of the lines at the dropped range do not match.
    let expected: Vec<String> =
        numbers.filter(is_stored).map(|number| format!("line {number:05}")).collect();
    assert!(expected.len() > 4_000);
    assert_eq!(texts(&found), expected);
}

#[test]
fn dropped_bytes_end_a_line() {
    let (_dir, output) = written(20, |writer| {
        writer.out("0123456-ab");
        writer.out(&"x".repeat(100));
        writer.out("cd-3456789");
    });
    let found = output.search(search_for("ab$|^cd")).unwrap();
    assert_eq!(texts(&found), ["0123456-ab", "cd-3456789"]);
    assert_eq!((found.dropped_bytes, found.lines[1].at), (100, 110));
    assert!(output.search(search_for("ab.*cd")).unwrap().lines.is_empty());
}

#[test]
fn long_lines_are_searched_whole_and_truncated() {
    let filler = "é".repeat(100_000);
    let (_dir, output) = written(1 << 20, |writer| {
        writer.out(&format!("begin{filler}needle{filler}end\nshort\n"));
    });
    let excerpt = |pattern: &str| {
        let found = output.search(search_for(pattern)).unwrap();
        assert!(found.lines.len() <= 1, "{pattern} {found:?}");
        found.lines.into_iter().next().map(|line| line.text)
    };
    let needle = excerpt("needle").unwrap();
    assert!(needle.starts_with("[... 199955 bytes before ...]é"), "{needle}");
    assert!(needle.contains("éneedleé") && needle.len() < 300, "{needle}");
    assert!(needle.ends_with(&format!("[... {} bytes more ...]", 400_014 - 199_955 - 200)));
    assert!(excerpt("^begin").unwrap().starts_with("beginé"));
    assert!(excerpt("end$").unwrap().ends_with("éend"));
    assert!(excerpt("begin.*").unwrap().starts_with("beginé"));
    for absent in ["^needle", "needle$", "^\u{e9}", "begin$", "^[^bs]", "[^dt]$", "begin.*short"] {
        assert_eq!(excerpt(absent), None, "{absent}");
    }
    assert_eq!(excerpt("^short$").as_deref(), Some("short"));
}

#[test]
fn a_match_across_two_windows_is_found() {
    const WINDOW: usize = 64 * 1024;
    for before in WINDOW - 7..WINDOW + 2 {
        let (_dir, output) = written(1 << 20, |writer| {
            writer.out(&format!("{}needle{}\n", "x".repeat(before), "x".repeat(WINDOW)));
        });
        assert_eq!(output.search(search_for("needle")).unwrap().lines.len(), 1, "{before}");
    }
}

#[test]
fn an_invalid_pattern_is_explained_in_one_line() {
    let (_dir, output) = written(10, |writer| writer.out("x"));
    for (pattern, problem) in
        [("a(b", "unclosed group"), ("(?:x{1000}){1000}", "too large"), ("[z-a]", "range")]
    {
        let error = output.search(search_for(pattern)).unwrap_err();
        assert!(matches!(error, SearchError::Pattern(_)));
        let message = error.to_string();
        assert!(message.contains(problem) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn a_search_may_start_anywhere() {
    let (_dir, output) = written(100, |writer| writer.out("one\ntwo\nthree\n"));
    let found =
        output.search(OutputSearch { cursor: SearchCursor::at(4), ..search_for("o|e") }).unwrap();
    assert_eq!(texts(&found), ["two", "three"]);
    let page = output.read(brigade_process::output::OutputRead {
        view: OutputView::Combined,
        start: ReadStart::At(found.lines[1].at),
        max_bytes: 5,
    });
    assert_eq!(brigade_process::output::page_text(&page.unwrap()), "three");
}

#[test]
fn bounded_calls_find_what_one_call_finds() {
    let (_dir, output) = written(1 << 30, |writer| {
        for number in 0..100_000 {
            writer.out(&format!("line {number} of the output\n"));
        }
        writer.end();
    });
    let whole = output.search(search_for("7 of")).unwrap();
    assert!(whole.is_complete);
    assert_eq!(whole.lines.len(), 10_000);
    let past = SearchBounds { deadline: Some(Instant::now()), ..SearchBounds::default() };
    let small = SearchBounds { max_bytes: Some(1), ..SearchBounds::default() };
    for bounds in [past, small] {
        let mut lines = Vec::new();
        let mut cursor = SearchCursor::default();
        let mut calls = 0;
        loop {
            let found =
                output.search(OutputSearch { cursor, bounds, ..search_for("7 of") }).unwrap();
            calls += 1;
            lines.extend(found.lines);
            if found.is_complete {
                break;
            }
            assert!(found.next_cursor.searched_to > cursor.searched_to, "no progress");
            cursor = found.next_cursor.without_long_lines();
        }
        assert!(calls > 5, "{calls} calls");
        assert_eq!(lines, whole.lines);
    }
    let stop = AtomicBool::new(true);
    let bounds = SearchBounds { stop: Some(&stop), ..SearchBounds::default() };
    let stopped = output.search(OutputSearch { bounds, ..search_for("never there") }).unwrap();
    assert!(!stopped.is_complete);
    assert!(stopped.next_cursor.searched_to < 1_000_000, "{:?}", stopped.next_cursor);
}

#[test]
fn a_bound_holds_within_one_read() {
    let (_dir, output) = written(1 << 30, |writer| {
        writer.out(&"a".repeat(200 * 1024));
        writer.end();
    });
    let bounds = SearchBounds { deadline: Some(Instant::now()), ..SearchBounds::default() };
    let found = output.search(OutputSearch { bounds, ..search_for("b") }).unwrap();
    assert!(!found.is_complete);
    assert!(found.next_cursor.searched_to <= 32 * 1024, "{:?}", found.next_cursor);
    let costly = output.search(search_for("(a{1,50}){1,50}b")).unwrap_err();
    assert!(costly.to_string().contains("too large"), "{costly}");
}

#[test]
fn a_bounded_call_reads_little_of_a_long_line_again() {
    let (_dir, output) = written(1 << 30, |writer| {
        writer.out("salt");
        writer.out(&"x".repeat(3 << 20));
        writer.out("pepper\n");
        writer.end();
    });
    let bounds = SearchBounds { max_bytes: Some(1), ..SearchBounds::default() };
    let mut cursor = SearchCursor::default();
    let mut lines = Vec::new();
    loop {
        let search = OutputSearch { cursor, bounds, ..search_for("salt|pepper") };
        let found = output.search(search).unwrap();
        lines.extend(found.lines.iter().map(|line| line.text.replace('x', "")));
        if found.is_complete {
            break;
        }
        cursor = found.next_cursor;
        assert!(cursor.searched_to - cursor.read_from <= 1 << 20, "{cursor:?}");
    }
    assert!(lines.first().is_some_and(|line| line.contains("salt")), "{lines:?}");
    assert!(lines.last().is_some_and(|line| line.contains("pepper")), "{lines:?}");
}
