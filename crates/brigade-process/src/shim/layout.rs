//! The layout of the files in a shim's directory.
//!
//! A stream file stores the beginning and the end of its stream. The first half of the cap is
//! written once. The rest is a ring, slightly longer than the promised length. So a reader can read
//! a stored position while the shim writes the next piece.

use std::ops::Range;

/// The claim with the record, see `record`. It appears with its whole content at once.
pub const CLAIM: &str = "claim";
/// The stored output of each stream. A file exists from the first byte on.
pub const STREAMS: [&str; 2] = ["stdout", "stderr"];
/// The switches between the streams, see `StreamSwitch`. Output starts with stdout, so a process
/// that writes only to stdout has no such file.
pub const ORDER: &str = "order";
/// A named pipe. It exists while the process accepts input.
pub const STDIN: &str = "stdin";
/// The path of the process's control group, if it has one. The shim reads it at its start.
pub const GROUP: &str = "group";
/// The grace period of a stop, in decimal milliseconds. It replaces the shim's own.
pub const GRACE: &str = "grace";

/// Bytes for the stdin of the process, see `input_spool`. Written by the runtime.
pub const SPOOL: &str = "input";
/// The readers that must not miss output, and their positions, see `lease`. Written by the runtime.
pub const LEASES: &str = "leases";

/// The most bytes of one write to a stream's file.
pub const PIECE: u64 = 64 * 1024;
/// The switches stored from the beginning, and as many from the end.
pub const SWITCHES_HALF: u64 = 8 * 1024;
pub const SWITCH_BYTES: u64 = 16;

/// The layout of one file, in bytes or entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    head: u64,
    tail: u64,
    /// The units of the ring that may be overwritten while a reader reads.
    slack: u64,
}

/// The place of a position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    pub offset: u64,
    /// The units from there on without a break.
    pub contiguous: u64,
}

impl FileLayout {
    /// Returns the layout of a stream with this cap, in bytes.
    pub fn bytes(cap: u64) -> Self {
        let head = cap / 2;
        Self { head, tail: cap - head, slack: PIECE }
    }

    /// Returns the layout of the order file, in entries.
    pub fn switches() -> Self {
        Self { head: SWITCHES_HALF, tail: SWITCHES_HALF, slack: 1 }
    }

    /// Returns the place of a position in the file.
    pub fn locate(&self, position: u64) -> FileRange {
        if position < self.head {
            return FileRange { offset: position, contiguous: self.head - position };
        }
        let ring = self.tail + self.slack;
        let at = (position - self.head) % ring;
        FileRange { offset: self.head + at, contiguous: ring - at }
    }

    /// Returns the dropped range after this much output. It is empty if nothing was dropped.
    pub fn dropped_range(&self, produced: u64) -> Range<u64> {
        let tail_from = produced.saturating_sub(self.tail).max(self.head);
        self.head..tail_from
    }
}

/// An entry of the order file: bytes of `stream` follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSwitch {
    /// 0 for stdout, 1 for stderr.
    pub stream: usize,
    /// The bytes of each stream before the switch.
    pub at: [u64; 2],
}

impl StreamSwitch {
    const STDERR: u64 = 1 << 63;

    pub fn encode(&self) -> [u8; SWITCH_BYTES as usize] {
        let mark = if self.stream == 0 { 0 } else { Self::STDERR };
        let mut bytes = [0; SWITCH_BYTES as usize];
        bytes[..8].copy_from_slice(&self.at[0].to_le_bytes());
        bytes[8..].copy_from_slice(&(self.at[1] | mark).to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; SWITCH_BYTES as usize]) -> Self {
        let number = |from: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(part)
        };
        let out = number(0);
        let err = number(8);
        Self { stream: usize::from(err & Self::STDERR != 0), at: [out, err & !Self::STDERR] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_stored() {
        let layout = FileLayout::bytes(100);
        assert!(layout.dropped_range(0).is_empty());
        assert!(layout.dropped_range(100).is_empty());
        assert_eq!(layout.dropped_range(101), 50..51);
        assert_eq!(layout.dropped_range(1_000), 50..950);
    }

    #[test]
    fn stored_bytes_are_not_overwritten_by_the_next_piece() {
        let layout = FileLayout::bytes(100);
        for produced in (0..400_000).step_by(997) {
            let stored_from = layout.dropped_range(produced).end.max(50);
            for next in [produced, produced + PIECE - 1] {
                let offset = layout.locate(next).offset;
                for stored in stored_from..produced {
                    assert_ne!(layout.locate(stored).offset, offset, "{stored} of {produced}");
                }
            }
        }
    }

    #[test]
    fn switches_round_trip() {
        for stream in [0, 1] {
            let switch = StreamSwitch { stream, at: [1 << 40, 7] };
            assert_eq!(StreamSwitch::decode(&switch.encode()), switch);
        }
    }
}
