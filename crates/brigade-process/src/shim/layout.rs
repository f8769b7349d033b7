//! Where the bytes of a stream lie in its file, and what is in a shim's directory.
//!
//! A stream keeps its beginning and its end. The first half of the cap is written once; the rest is
//! a ring, a little longer than what it promises to hold, so that a reader who sees a position as
//! kept can read it while the shim writes the next piece.

use std::ops::Range;

/// The record, see `record`. Its name appears with its content, at once.
pub const CLAIM: &str = "claim";
/// Kept output of each stream. Made with its first byte.
pub const STREAMS: [&str; 2] = ["stdout", "stderr"];
/// Which stream went on where, see `Switch`. It begins with stdout, without an entry: a command that
/// prints to stdout only has no such file.
pub const ORDER: &str = "order";
/// A pipe with a name, there while input is wanted and not closed.
pub const STDIN: &str = "stdin";
/// The path of the command's control group, read by the shim when it starts. Only where there is one.
pub const GROUP: &str = "group";
/// Milliseconds in decimal, read by the shim when it is asked to stop: instead of its own grace.
pub const GRACE: &str = "grace";

/// Bytes for the command's input, see `spool`. Written by the runtime.
pub const SPOOL: &str = "input";
/// Who must not miss any output, and how far they have read, see `lease`. Written by the runtime.
pub const LEASES: &str = "leases";

/// The most that is written to a stream's file at once.
pub const PIECE: u64 = 64 * 1024;
/// Switches kept from the beginning, and as many again from the end.
pub const SWITCHES_HALF: u64 = 8 * 1024;
pub const SWITCH_BYTES: u64 = 16;

/// How one stream is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    head: u64,
    tail: u64,
    /// Units of the ring that are being overwritten while a reader may look.
    slack: u64,
}

impl FileLayout {
    /// Of a stream with this cap, in bytes.
    pub fn bytes(cap: u64) -> Self {
        let head = cap / 2;
        Self { head, tail: cap - head, slack: PIECE }
    }

    /// Of the order file, in entries.
    pub fn switches() -> Self {
        Self { head: SWITCHES_HALF, tail: SWITCHES_HALF, slack: 1 }
    }

    /// Where the position lies in the file, and how many units follow it there without a break.
    pub fn locate(&self, position: u64) -> (u64, u64) {
        if position < self.head {
            return (position, self.head - position);
        }
        let ring = self.tail + self.slack;
        let at = (position - self.head) % ring;
        (self.head + at, ring - at)
    }

    /// What has been dropped when this much was produced. Empty when nothing was.
    pub fn dropped_range(&self, produced: u64) -> Range<u64> {
        let tail_from = produced.saturating_sub(self.tail).max(self.head);
        self.head..tail_from
    }
}

/// An entry of the order file: from here on, in each stream, bytes of `stream` follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSwitch {
    /// 0 for stdout, 1 for stderr.
    pub stream: usize,
    /// Bytes each stream had produced when it began.
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
        let (out, err) = (number(0), number(8));
        Self { stream: usize::from(err & Self::STDERR != 0), at: [out, err & !Self::STDERR] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let layout = FileLayout::bytes(100);
        assert!(layout.dropped_range(0).is_empty());
        assert!(layout.dropped_range(100).is_empty());
        assert_eq!(layout.dropped_range(101), 50..51);
        assert_eq!(layout.dropped_range(1_000), 50..950);
    }

    #[test]
    fn what_is_kept_is_not_overwritten_by_the_next_piece() {
        let layout = FileLayout::bytes(100);
        for produced in (0..400_000).step_by(997) {
            let kept_from = layout.dropped_range(produced).end.max(50);
            for next in [produced, produced + PIECE - 1] {
                let (place, _) = layout.locate(next);
                for kept in kept_from..produced {
                    assert_ne!(layout.locate(kept).0, place, "{kept} of {produced}");
                }
            }
        }
    }

    #[test]
    fn switches_survive_their_encoding() {
        for stream in [0, 1] {
            let switch = StreamSwitch { stream, at: [1 << 40, 7] };
            assert_eq!(StreamSwitch::decode(&switch.encode()), switch);
        }
    }
}
