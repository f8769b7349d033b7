//! Holding back the output of a command for a reader who must not miss anything.
//!
//! Nothing is read from a pipe that would push out what a reader with a fresh lease has not read. The
//! command then waits as it would for any slow reader of a pipe.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::layout::{self, PIECE, SWITCHES_HALF};
use super::lease::LeaseTable;
use super::record::ShimRecord;

/// Between two looks at the leases while output is held: soon at first, then more and more seldom.
const POLL_PAUSE_MIN: Duration = Duration::from_millis(1);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Between two looks for leases where there are none.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// How often the record is told how long it has been.
const HELD_RECORD_INTERVAL: Duration = Duration::from_millis(500);

/// So many changes between the streams are remembered as one.
const SWITCHES_PER_MARK: u64 = 256;
const MARKS_MAX: usize = 2 * (SWITCHES_HALF / SWITCHES_PER_MARK) as usize;
/// Changes that may be kept before the oldest that a reader needs is in danger.
const UNREAD_SWITCHES_MAX: u64 = SWITCHES_HALF - 2;

#[derive(Debug)]
pub(super) struct OutputHold {
    leases_path: PathBuf,
    /// None until somebody has a lease.
    leases_file: Option<File>,
    /// When it is looked again whether somebody has.
    next_lease_check: Option<Instant>,
    /// Until then a first reader is waited for, if none has come.
    first_reader_deadline: Option<Instant>,
    /// From then on nothing is held any more.
    release_at: Option<Instant>,
    switch_marks: VecDeque<SwitchMark>,
    /// None while nothing is held.
    held_since: Option<Instant>,
    /// What was held before that.
    held_before: Duration,
    poll_pause: Duration,
}

/// A change between the streams, by what both had produced then.
#[derive(Clone, Copy, Debug)]
struct SwitchMark {
    position: u64,
    switches: u64,
}

impl OutputHold {
    pub(super) fn new(directory: &std::path::Path, first_reader: Option<Duration>) -> Self {
        Self {
            leases_path: directory.join(layout::LEASES),
            leases_file: None,
            next_lease_check: None,
            first_reader_deadline: first_reader.map(|time| Instant::now() + time),
            release_at: None,
            switch_marks: VecDeque::new(),
            held_since: None,
            held_before: Duration::ZERO,
            poll_pause: POLL_PAUSE_MIN,
        }
    }

    /// How many bytes of a stream may be read now. `switches` says that they would follow bytes of the
    /// other stream.
    pub(super) fn readable_bytes(
        &mut self,
        stream: usize,
        switches: bool,
        record: &ShimRecord,
    ) -> u64 {
        let kept_whole = record.output_cap.saturating_sub(record.produced_bytes[stream]);
        let orders_whole = !switches || record.switch_count < 2 * SWITCHES_HALF;
        if record.output_cap == 0 || (kept_whole >= PIECE && orders_whole) {
            return PIECE;
        }
        let Some(position) = self.slowest_position() else { return PIECE };
        if !orders_whole && self.unread_switches(position, record) >= UNREAD_SWITCHES_MAX {
            return 0;
        }
        let unread = (record.produced_bytes[0] + record.produced_bytes[1]).saturating_sub(position);
        let tail = record.output_cap - record.output_cap / 2;
        tail.saturating_sub(unread).max(kept_whole).min(PIECE)
    }

    /// To be called with each change between the streams.
    pub(super) fn note_switch(&mut self, record: &ShimRecord) {
        if record.switch_count.is_multiple_of(SWITCHES_PER_MARK) {
            let position = record.produced_bytes[0] + record.produced_bytes[1];
            self.switch_marks.push_back(SwitchMark { position, switches: record.switch_count });
            if self.switch_marks.len() > MARKS_MAX {
                self.switch_marks.pop_front();
            }
        }
    }

    /// Says whether output waits for a reader. True when the record is to be written.
    pub(super) fn update_held(&mut self, is_held: bool, record: &mut ShimRecord) -> bool {
        let now = Instant::now();
        let since = match (self.held_since, is_held) {
            (None, false) => return false,
            (None, true) => now,
            (Some(began), _) => began,
        };
        self.held_since = is_held.then_some(since);
        let held = self.held_before + (now - since);
        if !is_held {
            self.held_before = held;
        }
        let held = held.as_millis() as u64;
        let is_news = !is_held || held >= record.held_ms + HELD_RECORD_INTERVAL.as_millis() as u64;
        if is_news {
            record.held_ms = held;
        }
        is_news
    }

    /// How long to wait before the leases are looked at again, each time longer.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.poll_pause;
        self.poll_pause = (pause * 2).min(POLL_PAUSE_MAX);
        pause
    }

    /// The reader has read on.
    pub(super) fn reset_pause(&mut self) {
        self.poll_pause = POLL_PAUSE_MIN;
    }

    /// Ends all holding when this time is over. An earlier end stays.
    pub(super) fn release_after(&mut self, time: Duration) {
        self.release_at.get_or_insert_with(|| Instant::now() + time);
    }

    /// How far the slowest reader has read. None when nobody has a fresh lease.
    fn slowest_position(&mut self) -> Option<u64> {
        if self.release_at.is_some_and(|then| Instant::now() >= then) {
            return None;
        }
        if self.leases_file.is_none()
            && self.next_lease_check.is_none_or(|then| Instant::now() >= then)
        {
            self.leases_file = File::open(&self.leases_path).ok();
            self.next_lease_check = Some(Instant::now() + LEASE_CHECK_INTERVAL);
        }
        match self.leases_file.as_ref().and_then(LeaseTable::read_from) {
            Some(table) => {
                self.first_reader_deadline = None;
                table.slowest_position(LeaseTable::now_millis())
            }
            None => self.first_reader_deadline.filter(|until| Instant::now() < *until).map(|_| 0),
        }
    }

    /// At most so many changes are needed by who has read so far.
    fn unread_switches(&self, position: u64, record: &ShimRecord) -> u64 {
        let read = self.switch_marks.iter().rev().find(|mark| mark.position <= position);
        record.switch_count - read.map_or(0, |mark| mark.switches)
    }
}
