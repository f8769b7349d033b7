//! The tool that reads a part of a file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use schemars::JsonSchema;
use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3Default;

use crate::FileTool;
use crate::call_deadline::{CallDeadline, DeadlineReader};
use crate::rel_path::RelPath;
use crate::render::{
    BODY_MAX, SNIFF_BYTES, binary_kind, open_file_error, pluralize, quote_name, read_error,
};
use crate::working_directory::{LocatedPath, WorkingDirectory};
use brigade_agent::tool::{ExecutionHints, ToolEffect, ToolError};

const LINES_MAX: u64 = 2_000;
/// The maximum length of a rendered line.
const LINE_MAX: usize = 2_000;
const BYTES_DEFAULT: u64 = 8_000;
/// Files up to this size are read completely, for their line count and digest.
const COUNTED_MAX: u64 = 16 * 1024 * 1024;
const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    /// The file, relative to your directory.
    path: String,
    /// The first line, counted from 1. Default: 1.
    #[serde(default)]
    from_line: Option<u64>,
    /// The last line. Default: as many lines as fit, at most 2000.
    #[serde(default)]
    to_line: Option<u64>,
    /// The position of the first byte, instead of lines. For files with very long lines.
    #[serde(default)]
    offset: Option<u64>,
    /// With offset: the number of bytes. Default 8000, at most 40000.
    #[serde(default)]
    max_bytes: Option<u64>,
}

impl FileTool for ReadFile {
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str = "Read a text file in your directory: numbered lines from the \
        beginning or from from_line, or bytes from offset. The result says how to continue if there is \
        more. It contains a digest with which write_file and edit_file check that the file is unchanged. \
        Read a file before you edit it. The line numbers and the tab after them are not part of the \
        file. For directories use list_files; to find text in many files use search_files.";
    const HINTS: ExecutionHints = ExecutionHints::of(ToolEffect::Pure);

    fn path(&self) -> &str {
        &self.path
    }

    fn run(
        self,
        working_dir: &WorkingDirectory,
        deadline: &CallDeadline,
    ) -> Result<String, ToolError> {
        self.check_arguments()?;
        let LocatedPath { root, name } = working_dir.locate(Self::NAME, &self.path)?;
        let (mut file, stat) =
            root.open_file(&name).map_err(|why| open_file_error(&root, &name, why))?;
        let info = FileInfo { name: &name, size: u64::try_from(stat.st_size).unwrap_or_default() };
        let to_error = |error: io::Error| read_error(&name, &error, deadline);
        if let Some(kind) = detect_binary(&mut file).map_err(to_error)? {
            let name = quote_name(name.as_str());
            let size = pluralize(info.size, "byte");
            return Err(ToolError::new(format!("{name} is a binary file: {kind}, {size}")));
        }
        let result = match self.offset {
            Some(offset) => self.read_bytes(file, offset, info),
            None => {
                let source = DigestReader {
                    reader: DeadlineReader { reader: file, deadline },
                    digest: None,
                };
                self.read_lines(source, info)
            }
        };
        result.map_err(|error| match error {
            ReadError::Io(error) => to_error(error),
            ReadError::Refused(error) => error,
        })
    }
}

/// The name and size of the file.
#[derive(Clone, Copy)]
struct FileInfo<'a> {
    name: &'a RelPath,
    size: u64,
}

enum ReadError {
    Io(io::Error),
    Refused(ToolError),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl ReadFile {
    fn check_arguments(&self) -> Result<(), ToolError> {
        let invalid = |problem: &str| Err(ToolError::new(problem));
        let by_lines = self.from_line.is_some() || self.to_line.is_some();
        match (self.offset, self.max_bytes) {
            (Some(_), _) | (None, Some(_)) if by_lines => {
                invalid("give either from_line and to_line, or offset and max_bytes")
            }
            (None, Some(_)) => {
                invalid("`max_bytes` goes with `offset`; limit lines with `to_line`")
            }
            (_, Some(0)) => invalid("the argument `max_bytes` is 0; give 1 to 40000"),
            _ if self.from_line == Some(0) => invalid("lines are counted from 1"),
            _ if self.to_line.is_some_and(|to| to < self.from_line.unwrap_or(1)) => {
                invalid("the argument `to_line` is before `from_line`")
            }
            _ => Ok(()),
        }
    }

    /// Reads bytes from a position and omits an incomplete character at the end.
    fn read_bytes(
        &self,
        mut file: File,
        offset: u64,
        info: FileInfo<'_>,
    ) -> Result<String, ReadError> {
        let size = info.size;
        let shown = quote_name(info.name.as_str());
        if offset >= size && size > 0 {
            return Err(ReadError::Refused(ToolError::new(format!(
                "{shown} has {}; the offset {offset} is past its end",
                pluralize(size, "byte")
            ))));
        }
        let max = self.max_bytes.unwrap_or(BYTES_DEFAULT).clamp(4, BODY_MAX as u64);
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(max).read_to_end(&mut bytes)?;
        let is_truncated = offset + (bytes.len() as u64) < size;
        if is_truncated {
            bytes.truncate(whole_chars_len(&bytes));
        }
        let next = offset + bytes.len() as u64;
        let (text, mut notes) = decode_lossy(&bytes);
        if is_truncated {
            notes.push_str(&format!("; continue with offset {next}"));
        }
        let body = text.trim_end_matches('\n');
        Ok(format!("{body}\n[{shown}: bytes {offset} to {next} of {size}{notes}]"))
    }

    fn read_lines(
        &self,
        mut source: DigestReader<'_>,
        info: FileInfo<'_>,
    ) -> Result<String, ReadError> {
        let size = info.size;
        let is_counted = size <= COUNTED_MAX;
        source.digest = is_counted.then(Xxh3Default::new);
        let mut lines = FileLines {
            reader: BufReader::with_capacity(SNIFF_BYTES * 8, source),
            lines_read: 0,
            bytes_read: 0,
        };
        let from = self.from_line.unwrap_or(1);
        while lines.lines_read + 1 < from && lines.skip()? {}
        let mut page = FilePage::default();
        let last = self.to_line.unwrap_or(u64::MAX).min(from.saturating_add(LINES_MAX - 1));
        while lines.lines_read < last && page.has_space() {
            let Some(line) = lines.next()? else { break };
            page.add(&line);
        }
        let shown_to = lines.lines_read;
        let has_more = !lines.is_at_end()?;
        while is_counted && lines.skip()? {}
        let shown = quote_name(info.name.as_str());
        if page.body.is_empty() && from > 1 {
            let line_count = pluralize(lines.lines_read, "line");
            return Err(ReadError::Refused(ToolError::new(format!(
                "{shown} has {line_count}; from_line {from} is past its end"
            ))));
        }
        let total = if is_counted { format!(" of {}", lines.lines_read) } else { String::new() };
        let digest = lines.reader.get_ref().digest.as_ref();
        let digest = digest.map(|digest| format!(", digest {:016x}", digest.digest()));
        let range = match page.body.is_empty() {
            true => "empty".to_owned(),
            false => format!("lines {from} to {shown_to}{total}"),
        };
        let size = pluralize(lines.bytes_read.max(size), "byte");
        let notes = page.notes(has_more.then_some(shown_to + 1));
        let digest = digest.unwrap_or_default();
        Ok(format!("{}[{shown}: {range}, {size}{digest}{notes}]", page.body))
    }
}

/// Returns the kind of a file that is not text.
fn detect_binary(file: &mut File) -> io::Result<Option<&'static str>> {
    let mut beginning = Vec::new();
    file.take(SNIFF_BYTES as u64).read_to_end(&mut beginning)?;
    file.rewind()?;
    Ok(binary_kind(&beginning))
}

/// A reader that computes the digest.
struct DigestReader<'a> {
    reader: DeadlineReader<'a, File>,
    digest: Option<Xxh3Default>,
}

impl Read for DigestReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if let Some(digest) = &mut self.digest {
            digest.update(&buffer[..read]);
        }
        Ok(read)
    }
}

/// A line reader with bounded memory, however long the lines are.
struct FileLines<'a> {
    reader: BufReader<DigestReader<'a>>,
    lines_read: u64,
    bytes_read: u64,
}

struct FileLine {
    number: u64,
    /// The beginning of the line.
    bytes: Vec<u8>,
    /// The part that is not shown.
    cut_range: Option<CutRange>,
    is_ended: bool,
}

#[derive(Clone, Copy)]
struct CutRange {
    offset: u64,
    bytes: u64,
}

impl FileLines<'_> {
    fn skip(&mut self) -> io::Result<bool> {
        let read = self.reader.skip_until(b'\n')?;
        self.lines_read += u64::from(read > 0);
        self.bytes_read += read as u64;
        Ok(read > 0)
    }

    fn next(&mut self) -> io::Result<Option<FileLine>> {
        let mut bytes = Vec::new();
        let max = LINE_MAX as u64 + 2;
        let read = (&mut self.reader).take(max).read_until(b'\n', &mut bytes)? as u64;
        if read == 0 {
            return Ok(None);
        }
        let line_start = self.bytes_read;
        self.lines_read += 1;
        self.bytes_read += read;
        let mut is_ended = bytes.ends_with(b"\n");
        let mut cut_range = None;
        if !is_ended && read == max {
            bytes.truncate(LINE_MAX);
            bytes.truncate(whole_chars_len(&bytes));
            self.bytes_read += self.reader.skip_until(b'\n')? as u64;
            let offset = line_start + bytes.len() as u64;
            cut_range = Some(CutRange { offset, bytes: self.bytes_read - offset });
            is_ended = true;
        }
        Ok(Some(FileLine { number: self.lines_read, bytes, cut_range, is_ended }))
    }

    fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.reader.fill_buf()?.is_empty())
    }
}

/// The rendered part of a file.
#[derive(Default)]
struct FilePage {
    body: String,
    has_bom: bool,
    is_lossy: bool,
    has_crlf: bool,
    is_unended: bool,
}

impl FilePage {
    fn has_space(&self) -> bool {
        self.body.len() + LINE_MAX <= BODY_MAX
    }

    fn add(&mut self, line: &FileLine) {
        let mut bytes = line.bytes.as_slice();
        if line.number == 1 && bytes.starts_with(BOM) {
            self.has_bom = true;
            bytes = &bytes[BOM.len()..];
        }
        bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if let Some(without) = bytes.strip_suffix(b"\r") {
            self.has_crlf = true;
            bytes = without;
        }
        let text = String::from_utf8_lossy(bytes);
        self.is_lossy |= matches!(text, std::borrow::Cow::Owned(_));
        self.is_unended = !line.is_ended;
        self.body.push_str(&format!("{:>6}\t{text}", line.number));
        if let Some(CutRange { offset, bytes }) = line.cut_range {
            let cut =
                format!(" [truncated: {bytes} more bytes of this line, from offset {offset} on]");
            self.body.push_str(&cut);
        }
        self.body.push('\n');
    }

    fn notes(&self, next: Option<u64>) -> String {
        let mut notes = String::new();
        let conditions = [
            (self.has_bom, "; begins with a byte order mark"),
            (self.has_crlf, "; lines end with CRLF, which edit_file keeps"),
            (self.is_unended, "; the last line has no line end"),
            (self.is_lossy, NOT_UTF8),
        ];
        conditions.iter().filter(|(holds, _)| *holds).for_each(|(_, note)| notes.push_str(note));
        if let Some(next) = next {
            notes.push_str(&format!("; continue with from_line {next}"));
        }
        notes
    }
}

const NOT_UTF8: &str = "; some bytes are not UTF-8 and are shown as \u{fffd}";

fn decode_lossy(bytes: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(bytes);
    let is_lossy = matches!(text, std::borrow::Cow::Owned(_));
    let note = if is_lossy { NOT_UTF8 } else { "" };
    (text.into_owned(), note.to_owned())
}

/// Returns the length without an incomplete character at the end.
fn whole_chars_len(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        // Only an incomplete character has no error length.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}
