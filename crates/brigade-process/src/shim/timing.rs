//! The times that a shim keeps by itself, as it is told them, in one word.

use std::fmt;
use std::time::Duration;

/// Between two looks at the directory of a shim that has nothing else to do.
const DIR_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// `look=MS reader=MS deadline=MS`, each part of it optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShimTiming {
    /// How often a shim looks whether its directory is still there.
    pub dir_check_interval: Duration,
    /// How long a first reader is waited for who must not miss any output. None when nobody is.
    pub first_reader_timeout: Option<Duration>,
    /// How long the command may run. The runtime ends it then; a shim without one does, a little later.
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
    fn times_are_understood_as_they_were_told() {
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
