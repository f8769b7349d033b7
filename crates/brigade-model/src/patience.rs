//! How long a caller may say it wants to wait.

use crate::ids::Millis;
use crate::refusal::Refusal;

/// The longest wait that is granted; a longer one is cut to it.
pub const WAIT_MAX_SECS: u64 = 24 * 60 * 60;
/// Beyond this a number of seconds is taken for a mistake.
const ABSURD_SECS: f64 = 1e9;

/// Reads a `timeout_secs` from outside. Nothing waits for less than a second.
pub fn wait_timeout(secs: f64) -> Result<Millis, Refusal> {
    let problem = if secs.is_nan() || secs.is_infinite() || secs > ABSURD_SECS {
        "is not a sensible number"
    } else if secs < 0.0 {
        "is negative"
    } else if secs.fract() != 0.0 {
        "is not whole"
    } else {
        let secs = (secs as u64).clamp(1, WAIT_MAX_SECS);
        return Ok(Millis(secs * 1_000));
    };
    Err(Refusal::invalid(format!(
        "timeout_secs {secs} {problem}; give whole seconds from 0 to {WAIT_MAX_SECS}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_from_outside() {
        assert_eq!(wait_timeout(0.0), Ok(Millis(1_000)));
        assert_eq!(wait_timeout(7.0), Ok(Millis(7_000)));
        assert_eq!(wait_timeout(1e6), Ok(Millis(WAIT_MAX_SECS * 1_000)));
        for bad in [-1.0, 0.5, f64::NAN, f64::INFINITY, 1e12] {
            assert!(wait_timeout(bad).is_err(), "{bad}");
        }
    }
}
