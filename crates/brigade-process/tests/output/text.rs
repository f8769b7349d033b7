//! Output as text.

use brigade_process::output::{
    OutputRead, OutputView, ProcessOutput, ReadStart, StdStream, TextDecoder, ViewPage, page_text,
};

use crate::writer::{Random, Writer};

fn pages(
    output: &ProcessOutput,
    which: OutputView,
    max_bytes: usize,
    whole: bool,
) -> Vec<ViewPage> {
    let mut pages: Vec<ViewPage> = Vec::new();
    loop {
        let from = ReadStart::At(pages.last().map_or(0, |page| page.next));
        let page = output.read(OutputRead { view: which, start: from, max_bytes }).unwrap();
        let page = if whole { page.end_on_character() } else { page };
        if page.is_empty() {
            return pages;
        }
        pages.push(page);
    }
}

#[test]
fn characters_survive_page_borders() {
    let words = ["a", "é", "€", "😀", "\n"];
    for seed in 0..30 {
        let random = &mut Random(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), 1 << 20);
        let written: String = (0..200).map(|_| random.pick(&words)).collect();
        writer.out(&written);
        writer.end();
        let output = ProcessOutput::open(dir.path()).unwrap();
        for max_bytes in 1..10 {
            let mut decoder = TextDecoder::default();
            let pages_read = pages(&output, OutputView::Stdout, max_bytes, false);
            let mut decoded: String =
                pages_read.iter().map(|page| decoder.decode_page(page)).collect();
            decoded.push_str(&decoder.finish());
            assert_eq!(decoded, written, "seed {seed} by {max_bytes}");
        }
        for max_bytes in 4..10 {
            let alone = pages(&output, OutputView::Stdout, max_bytes, true);
            assert_eq!(alone.iter().map(page_text).collect::<String>(), written, "seed {seed}");
        }
    }
}

#[test]
fn a_page_too_small_for_a_character_still_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.out("€");
    let output = ProcessOutput::open(dir.path()).unwrap();
    assert_eq!(pages(&output, OutputView::Stdout, 1, true).len(), 3);
    // Half a character at the end of a running command waits for its other half.
    writer.put(StdStream::Stdout, b"x\xc3");
    assert_eq!(pages(&output, OutputView::Stdout, 100, true).last().unwrap().next, 4);
    writer.end();
    assert_eq!(pages(&output, OutputView::Stdout, 100, true).last().unwrap().next, 5);
}

#[test]
fn a_character_is_whole_although_the_other_stream_came_between() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.put(StdStream::Stdout, b"1\xe2\x82");
    writer.err("é");
    writer.put(StdStream::Stdout, b"\xac2\xff");
    let page =
        &pages(&ProcessOutput::open(dir.path()).unwrap(), OutputView::Combined, 100, false)[0];
    assert_eq!(page_text(page), "1é€2\u{fffd}");
}

#[test]
fn a_cut_shows_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 4);
    writer.out("abcdefg");
    let page = &pages(&ProcessOutput::open(dir.path()).unwrap(), OutputView::Stdout, 100, false)[0];
    assert_eq!(page_text(page), "ab\n[... 3 bytes cut ...]\nfg");
}

#[test]
fn a_cut_ends_a_character() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 4);
    writer.put(StdStream::Stdout, b"a\xe2\x82\xacb\xacc");
    let page = &pages(&ProcessOutput::open(dir.path()).unwrap(), OutputView::Stdout, 100, false)[0];
    assert_eq!(page_text(page), "a\u{fffd}\n[... 3 bytes cut ...]\n\u{fffd}c");
}

#[test]
fn the_tail_begins_with_a_line_where_it_can() {
    for (written, max_bytes, expected) in [
        ("", 10, ""),
        ("one\ntwo\n", 100, "one\ntwo\n"),
        ("one\ntwo\n", 8, "one\ntwo\n"),
        ("one\ntwo\n", 7, "two\n"),
        ("one\ntwo\n", 4, "two\n"),
        ("one\ntwo\n", 3, "wo\n"),
        ("long line", 4, "line"),
        ("x€€", 5, "€"),
        ("x€€", 6, "€€"),
        ("one\ntwo\n", 0, ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), 1_000);
        if !written.is_empty() {
            writer.out(written);
        }
        let tail = ProcessOutput::open(dir.path()).unwrap().tail_text(max_bytes).unwrap();
        assert_eq!(tail, expected, "{written:?} {max_bytes}");
    }
}

#[test]
fn the_tail_of_much_output_marks_what_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 10);
    writer.out("0123456789abcdef\n");
    let output = ProcessOutput::open(dir.path()).unwrap();
    assert_eq!(output.tail_text(9).unwrap(), "\n[... 4 bytes cut ...]\ncdef\n");
    assert_eq!(output.tail_text(5).unwrap(), "cdef\n");
}
