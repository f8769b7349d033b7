//! Holds back the output of a process for readers that must not miss any.
//!
//! The shim reads nothing from a pipe that would displace output which a reader with a valid lease
//! has not read. The process then waits as for any slow reader of a pipe.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::layout::{self, PIECE, SWITCHES_HALF};
use super::lease::LeaseTable;
use super::record::ShimRecord;

/// The bounds of the pause between reads of the leases while output is held. It doubles each time.
const POLL_PAUSE_MIN: Duration = Duration::from_millis(1);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(50);
/// The interval between checks for a first lease.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The interval at which the held time is written into the record.
const HELD_RECORD_INTERVAL: Duration = Duration::from_millis(500);

/// The number of switches between two marks.
const SWITCHES_PER_MARK: u64 = 256;
const MARKS_MAX: usize = 2 * (SWITCHES_HALF / SWITCHES_PER_MARK) as usize;
/// The most unread switches, before the oldest one that a reader needs could be overwritten.
const UNREAD_SWITCHES_MAX: u64 = SWITCHES_HALF - 2;

#[derive(Debug)]
pub(super) struct OutputHold {
    leases_path: PathBuf,
    /// `None` until a reader has a lease.
    leases_file: Option<File>,
    /// The time of the next check for a first lease.
    next_lease_check: Option<Instant>,
    /// The time until which output is held for a first reader.
    first_reader_deadline: Option<Instant>,
    /// The time from which nothing is held.
    release_at: Option<Instant>,
    switch_marks: VecDeque<SwitchMark>,
    /// `None` while nothing is held.
    held_since: Option<Instant>,
    /// The held time of earlier holds.
    held_before: Duration,
    poll_pause: Duration,
}

/// A switch between the streams, with the bytes of both streams before it.
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

    /// Returns how many bytes of a stream may be read now. `switches` is true if they would follow
    /// bytes of the other stream.
    pub(super) fn readable_bytes(
        &mut self,
        stream: usize,
        switches: bool,
        record: &ShimRecord,
    ) -> u64 {
        let uncapped = record.output_cap.saturating_sub(record.produced_bytes[stream]);
        let has_switch_space = !switches || record.switch_count < 2 * SWITCHES_HALF;
        if record.output_cap == 0 || (uncapped >= PIECE && has_switch_space) {
            return PIECE;
        }
        let Some(position) = self.slowest_position() else { return PIECE };
        if !has_switch_space && self.unread_switches(position, record) >= UNREAD_SWITCHES_MAX {
            return 0;
        }
        let unread = (record.produced_bytes[0] + record.produced_bytes[1]).saturating_sub(position);
        let tail = record.output_cap - record.output_cap / 2;
        tail.saturating_sub(unread).max(uncapped).min(PIECE)
    }

    /// Records a switch between the streams. Call it after each one.
    pub(super) fn note_switch(&mut self, record: &ShimRecord) {
        if record.switch_count.is_multiple_of(SWITCHES_PER_MARK) {
            let position = record.produced_bytes[0] + record.produced_bytes[1];
            self.switch_marks.push_back(SwitchMark { position, switches: record.switch_count });
            if self.switch_marks.len() > MARKS_MAX {
                self.switch_marks.pop_front();
            }
        }
    }

    /// Updates the held time. Returns true if the record must be written.
    pub(super) fn update_held(&mut self, is_held: bool, record: &mut ShimRecord) -> bool {
        let now = Instant::now();
        let since = match (self.held_since, is_held) {
            (None, false) => return false,
            (None, true) => now,
            (Some(since), _) => since,
        };
        self.held_since = is_held.then_some(since);
        let held = self.held_before + (now - since);
        if !is_held {
            self.held_before = held;
        }
        let held = held.as_millis() as u64;
        let must_write =
            !is_held || held >= record.held_ms + HELD_RECORD_INTERVAL.as_millis() as u64;
        if must_write {
            record.held_ms = held;
        }
        must_write
    }

    /// Returns the pause before the next read of the leases, each time longer.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.poll_pause;
        self.poll_pause = (pause * 2).min(POLL_PAUSE_MAX);
        pause
    }

    /// Shortens the pause again, after a reader has progressed.
    pub(super) fn reset_pause(&mut self) {
        self.poll_pause = POLL_PAUSE_MIN;
    }

    /// Ends all holds after this time. An earlier end stays.
    pub(super) fn release_after(&mut self, time: Duration) {
        self.release_at.get_or_insert_with(|| Instant::now() + time);
    }

    /// Returns the position of the slowest reader, or `None` without a valid lease.
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

    /// Returns an upper bound of the switches that a reader at this position needs.
    fn unread_switches(&self, position: u64, record: &ShimRecord) -> u64 {
        let read = self.switch_marks.iter().rev().find(|mark| mark.position <= position);
        record.switch_count - read.map_or(0, |mark| mark.switches)
    }
}
