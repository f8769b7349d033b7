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
use super::record::Record;

/// Between two looks at the leases while output is held: soon at first, then more and more seldom.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(50);
/// Between two looks for leases where there are none.
const LOOK_FOR_ANY: Duration = Duration::from_millis(5);
/// How often the record is told how long it has been.
const TELL: Duration = Duration::from_millis(500);

/// So many changes between the streams are remembered as one.
const MARK_EVERY: u64 = 256;
const MARKS_MAX: usize = 2 * (SWITCHES_HALF / MARK_EVERY) as usize;
/// Changes that may be kept before the oldest that a reader needs is in danger.
const SWITCHES_SAFE: u64 = SWITCHES_HALF - 2;

#[derive(Debug)]
pub(super) struct Hold {
    path: PathBuf,
    /// None until somebody has a lease.
    leases: Option<File>,
    /// When it is looked again whether somebody has.
    look_at: Option<Instant>,
    /// Until then a first reader is waited for, if none has come.
    first_reader: Option<Instant>,
    /// From then on nothing is held any more.
    release_at: Option<Instant>,
    marks: VecDeque<SwitchMark>,
    /// None while nothing is held.
    began: Option<Instant>,
    /// What was held before that.
    before: Duration,
    pause: Duration,
}

/// A change between the streams, by what both had produced then.
#[derive(Clone, Copy, Debug)]
struct SwitchMark {
    position: u64,
    switches: u64,
}

impl Hold {
    pub(super) fn new(directory: &std::path::Path, first_reader: Option<Duration>) -> Self {
        Self {
            path: directory.join(layout::LEASES),
            leases: None,
            look_at: None,
            first_reader: first_reader.map(|time| Instant::now() + time),
            release_at: None,
            marks: VecDeque::new(),
            began: None,
            before: Duration::ZERO,
            pause: LOOK_FIRST,
        }
    }

    /// How many bytes of a stream may be read now. `switches` says that they would follow bytes of the
    /// other stream.
    pub(super) fn room(&mut self, stream: usize, switches: bool, record: &Record) -> u64 {
        let kept_whole = record.cap.saturating_sub(record.produced[stream]);
        let orders_whole = !switches || record.switches < 2 * SWITCHES_HALF;
        if record.cap == 0 || (kept_whole >= PIECE && orders_whole) {
            return PIECE;
        }
        let Some(position) = self.position() else { return PIECE };
        if !orders_whole && self.unread_switches(position, record) >= SWITCHES_SAFE {
            return 0;
        }
        let unread = (record.produced[0] + record.produced[1]).saturating_sub(position);
        let tail = record.cap - record.cap / 2;
        tail.saturating_sub(unread).max(kept_whole).min(PIECE)
    }

    /// To be called with each change between the streams.
    pub(super) fn note_switch(&mut self, record: &Record) {
        if record.switches.is_multiple_of(MARK_EVERY) {
            let position = record.produced[0] + record.produced[1];
            self.marks.push_back(SwitchMark { position, switches: record.switches });
            if self.marks.len() > MARKS_MAX {
                self.marks.pop_front();
            }
        }
    }

    /// Says whether output waits for a reader. True when the record is to be written.
    pub(super) fn note_held(&mut self, is_held: bool, record: &mut Record) -> bool {
        let now = Instant::now();
        let since = match (self.began, is_held) {
            (None, false) => return false,
            (None, true) => now,
            (Some(began), _) => began,
        };
        self.began = is_held.then_some(since);
        let held = self.before + (now - since);
        if !is_held {
            self.before = held;
        }
        let held = held.as_millis() as u64;
        let is_news = !is_held || held >= record.held_ms + TELL.as_millis() as u64;
        if is_news {
            record.held_ms = held;
        }
        is_news
    }

    /// How long to wait before the leases are looked at again, each time longer.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LOOK_LAST);
        pause
    }

    /// The reader has read on.
    pub(super) fn reset_pause(&mut self) {
        self.pause = LOOK_FIRST;
    }

    /// Ends all holding when this time is over. An earlier end stays.
    pub(super) fn release_after(&mut self, time: Duration) {
        self.release_at.get_or_insert_with(|| Instant::now() + time);
    }

    /// How far the slowest reader has read. None when nobody has a fresh lease.
    fn position(&mut self) -> Option<u64> {
        if self.release_at.is_some_and(|then| Instant::now() >= then) {
            return None;
        }
        if self.leases.is_none() && self.look_at.is_none_or(|then| Instant::now() >= then) {
            self.leases = File::open(&self.path).ok();
            self.look_at = Some(Instant::now() + LOOK_FOR_ANY);
        }
        match self.leases.as_ref().and_then(LeaseTable::read_from) {
            Some(table) => {
                self.first_reader = None;
                table.position(LeaseTable::now())
            }
            None => self.first_reader.filter(|until| Instant::now() < *until).map(|_| 0),
        }
    }

    /// At most so many changes are needed by who has read so far.
    fn unread_switches(&self, position: u64, record: &Record) -> u64 {
        let read = self.marks.iter().rev().find(|mark| mark.position <= position);
        record.switches - read.map_or(0, |mark| mark.switches)
    }
}
