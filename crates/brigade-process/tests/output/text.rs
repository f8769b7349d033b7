//! Decodes output as text.

use brigade_process::output::{
    OutputRead, OutputView, ProcessOutput, ReadStart, StdStream, TextDecoder, ViewPage, page_text,
};

use crate::writer::{Random, Writer};

fn pages(
    output: &ProcessOutput,
    view: OutputView,
    max_bytes: usize,
    end_on_character: bool,
) -> Vec<ViewPage> {
    let mut pages: Vec<ViewPage> = Vec::new();
    loop {
        let from = ReadStart::At(pages.last().map_or(0, |page| page.next));
        let page = output.read(OutputRead { view, start: from, max_bytes }).unwrap();
        let page = if end_on_character { page.end_on_character() } else { page };
        if page.is_empty() {
            return pages;
        }
        pages.push(page);
    }
}

#[test]
fn characters_survive_page_boundaries() {
    let characters = ["a", "é", "€", "😀", "\n"];
    for seed in 0..30 {
        let random = &mut Random(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(dir.path(), 1 << 20);
        let written: String = (0..200).map(|_| random.pick(&characters)).collect();
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
fn a_page_too_small_for_a_character_still_progresses() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.out("€");
    let output = ProcessOutput::open(dir.path()).unwrap();
    assert_eq!(pages(&output, OutputView::Stdout, 1, true).len(), 3);
    // An incomplete character at the end of a running process waits for its other bytes.
    writer.put(StdStream::Stdout, b"x\xc3");
    assert_eq!(pages(&output, OutputView::Stdout, 100, true).last().unwrap().next, 4);
    writer.end();
    assert_eq!(pages(&output, OutputView::Stdout, 100, true).last().unwrap().next, 5);
}

#[test]
fn a_character_is_whole_despite_bytes_of_the_other_stream() {
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
fn dropped_bytes_show_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 4);
    writer.out("abcdefg");
    let page = &pages(&ProcessOutput::open(dir.path()).unwrap(), OutputView::Stdout, 100, false)[0];
    assert_eq!(page_text(page), "ab\n[... 3 bytes dropped ...]\nfg");
}

#[test]
fn dropped_bytes_end_a_character() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 4);
    writer.put(StdStream::Stdout, b"a\xe2\x82\xacb\xacc");
    let page = &pages(&ProcessOutput::open(dir.path()).unwrap(), OutputView::Stdout, 100, false)[0];
    assert_eq!(page_text(page), "a\u{fffd}\n[... 3 bytes dropped ...]\n\u{fffd}c");
}

#[test]
fn the_tail_begins_with_a_line_if_possible() {
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
fn the_tail_of_much_output_marks_dropped_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 10);
    writer.out("0123456789abcdef\n");
    let output = ProcessOutput::open(dir.path()).unwrap();
    assert_eq!(output.tail_text(9).unwrap(), "\n[... 4 bytes dropped ...]\ncdef\n");
    assert_eq!(output.tail_text(5).unwrap(), "cdef\n");
}
