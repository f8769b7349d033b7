//! The measured part of a work.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The times of one work, and its memory where the work measures memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub wall: Duration,
    /// User and system time of the whole process, or of a whole process tree.
    pub cpu: Duration,
    pub resident_bytes: Option<u64>,
    /// The items of the work, if they were fewer than asked for.
    pub count: Option<usize>,
}

impl Sample {
    /// Adds the resident bytes that the work needed.
    pub fn with_resident_bytes(self, bytes: u64) -> Self {
        Self { resident_bytes: Some(bytes), ..self }
    }

    /// Sets the number of items, for a peer that is too slow for all of them.
    pub fn with_count(self, count: usize) -> Self {
        Self { count: Some(count), ..self }
    }
}

/// Both clocks, running. The setup of a work comes before its start.
#[derive(Debug)]
pub struct Stopwatch {
    started_at: Instant,
    cpu_at_start: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { started_at: Instant::now(), cpu_at_start: cpu_time() }
    }

    pub fn stop(self) -> Sample {
        let wall = self.started_at.elapsed();
        let cpu = cpu_time().saturating_sub(self.cpu_at_start);
        Sample { wall, cpu, resident_bytes: None, count: None }
    }
}

/// Returns the user and system time that all threads of this process have used.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
