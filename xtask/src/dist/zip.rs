//! A writer of zip archives whose bytes depend only on names, modes and content.

use super::files;

/// The first moment that a zip archive can name, 1980-01-01 00:00. All entries have it.
const DATE: u16 = 1 << 5 | 1;
const TIME: u16 = 0;
/// The version of the format that knows compression.
const VERSION_NEEDED: u16 = 20;
/// The system of the file modes: Unix.
const MADE_BY: u16 = 3 << 8 | VERSION_NEEDED;
const DEFLATED: u16 = 8;
/// The mark of a regular file in a Unix mode.
const REGULAR_FILE: u32 = 0o100_000;
/// The header of a gzip stream without a name.
const GZIP_HEADER_BYTES: usize = 10;
const GZIP_TRAILER_BYTES: usize = 8;

/// An archive in memory.
#[derive(Debug, Default)]
pub(super) struct ZipWriter {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    count: u16,
}

/// The parts of a gzip stream that a zip archive has too.
struct DeflatedData {
    bytes: Vec<u8>,
    crc: u32,
}

impl ZipWriter {
    /// Adds a file with a Unix mode.
    pub(super) fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<(), String> {
        let data = deflate(content)?;
        let offset = field(self.bytes.len())?;
        let mut shared = Vec::new();
        for number in [VERSION_NEEDED, 0, DEFLATED, TIME, DATE] {
            shared.extend(number.to_le_bytes());
        }
        for number in [data.crc, field(data.bytes.len())?, field(content.len())?] {
            shared.extend(number.to_le_bytes());
        }
        shared.extend(field::<u16>(name.len())?.to_le_bytes());
        // No extra field.
        shared.extend(0_u16.to_le_bytes());

        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&shared);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(data.bytes);

        self.directory.extend(b"PK\x01\x02");
        self.directory.extend(MADE_BY.to_le_bytes());
        self.directory.extend(shared);
        // No comment, the first disk, no internal attributes.
        self.directory.extend([0; 6]);
        self.directory.extend(((REGULAR_FILE | mode) << 16).to_le_bytes());
        self.directory.extend::<[u8; 4]>(u32::to_le_bytes(offset));
        self.directory.extend(name.as_bytes());
        self.count += 1;
        Ok(())
    }

    /// Returns the bytes of the archive.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, String> {
        let offset: u32 = field(self.bytes.len())?;
        let length: u32 = field(self.directory.len())?;
        self.bytes.extend(self.directory);
        self.bytes.extend(b"PK\x05\x06");
        // This disk and the disk with the directory.
        self.bytes.extend([0; 4]);
        for _ in 0..2 {
            self.bytes.extend(self.count.to_le_bytes());
        }
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(offset.to_le_bytes());
        // No comment.
        self.bytes.extend([0; 2]);
        Ok(self.bytes)
    }
}

fn field<T: TryFrom<usize>>(number: usize) -> Result<T, String> {
    number.try_into().map_err(|_| format!("{number} is too large for a zip archive"))
}

/// Compresses with gzip and removes what only gzip needs.
fn deflate(content: &[u8]) -> Result<DeflatedData, String> {
    let stream = files::gzip(content)?;
    let end = stream.len().checked_sub(GZIP_TRAILER_BYTES);
    let bytes = end.and_then(|end| stream.get(GZIP_HEADER_BYTES..end));
    let sum = end.and_then(|end| stream[end..].first_chunk());
    match (bytes, sum) {
        (Some(bytes), Some(sum)) => {
            Ok(DeflatedData { bytes: bytes.to_vec(), crc: u32::from_le_bytes(*sum) })
        }
        _ => Err("gzip wrote no complete stream".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A reader that shares no code with the writer. It checks each sum.
    const READER: &str = "\
import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
for info in archive.infolist():
    text = archive.read(info).decode()
    print(info.filename, oct(info.external_attr >> 16), info.date_time, len(text), text[:5])
";

    #[test]
    fn another_reader_finds_the_same_files() {
        let large = "x".repeat(1 << 20);
        let mut zip = ZipWriter::default();
        zip.add("a/run", 0o755, b"hello").expect("gzip");
        zip.add("large", 0o644, large.as_bytes()).expect("gzip");
        zip.add("empty", 0o644, b"").expect("gzip");
        let bytes = zip.finish().expect("a small archive");
        let path = std::env::temp_dir().join(format!("xtask-zip-{}.zip", std::process::id()));
        files::write(&path, &bytes).expect("a temporary file");
        let mut python = Command::new("python3");
        let read = files::run_quiet(python.args(["-c", READER]).arg(&path));
        std::fs::remove_file(&path).expect("the file exists");
        assert_eq!(
            String::from_utf8_lossy(&read.expect("python3")),
            "a/run 0o100755 (1980, 1, 1, 0, 0, 0) 5 hello\n\
             large 0o100644 (1980, 1, 1, 0, 0, 0) 1048576 xxxxx\n\
             empty 0o100644 (1980, 1, 1, 0, 0, 0) 0 \n"
        );
    }
}
