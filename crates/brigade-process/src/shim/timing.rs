//! The intervals and deadlines of a shim, passed to it in one argument.

use std::fmt;
use std::time::Duration;

/// The default interval between checks for the directory.
const DIR_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// `look=MS reader=MS deadline=MS`, with each part optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShimTiming {
    /// The interval at which a shim checks that its directory exists.
    pub dir_check_interval: Duration,
    /// The time for which output is held for a first reader with a lease, if any.
    pub first_reader_timeout: Option<Duration>,
    /// The time that the process may run. The runtime enforces it; without a runtime the shim does,
    /// slightly later.
    pub deadline: Option<Duration>,
}

impl Default for ShimTiming {
    fn default() -> Self {
        Self { dir_check_interval: DIR_CHECK_INTERVAL, first_reader_timeout: None, deadline: None }
    }
}

impl ShimTiming {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parsed = Self::default();
        for part in text.split(' ').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            let time = Duration::from_millis(value.parse().ok()?);
            match name {
                "look" => parsed.dir_check_interval = time,
                "reader" => parsed.first_reader_timeout = Some(time),
                "deadline" => parsed.deadline = Some(time),
                _ => return None,
            }
        }
        Some(parsed)
    }
}

impl fmt::Display for ShimTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "look={}", self.dir_check_interval.as_millis())?;
        for (name, time) in [("reader", self.first_reader_timeout), ("deadline", self.deadline)] {
            if let Some(time) = time {
                write!(f, " {name}={}", time.as_millis())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_round_trips() {
        let all = ShimTiming {
            dir_check_interval: Duration::from_millis(7),
            first_reader_timeout: Some(Duration::from_secs(10)),
            deadline: Some(Duration::from_secs(3600)),
        };
        for given in [all, ShimTiming::default()] {
            assert_eq!(ShimTiming::parse(&given.to_string()), Some(given));
        }
        assert_eq!(ShimTiming::parse(""), Some(ShimTiming::default()));
        for wrong in ["look", "look=-1", "look=1s", "nap=1"] {
            assert_eq!(ShimTiming::parse(wrong), None, "{wrong}");
        }
    }
}
