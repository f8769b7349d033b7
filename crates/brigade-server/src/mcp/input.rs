//! Numbers from outside that are not what they should be.

use brigade_model::patience::wait_timeout;
use brigade_model::refusal::Refusal;
use std::time::Duration;

/// Shorter than what most clients give a tool before they give it up.
const PATIENCE_DEFAULT: f64 = 50.0;
const DEADLINE_MAX: f64 = 1e8;

/// `timeout_secs`: how long the caller wants to wait.
pub(super) fn patience(secs: Option<f64>) -> Result<Duration, Refusal> {
    let millis = wait_timeout(secs.unwrap_or(PATIENCE_DEFAULT))?;
    Ok(Duration::from_millis(millis.0))
}

/// `deadline_secs`: how long the work may take, in milliseconds.
pub(super) fn deadline(secs: f64) -> Result<u64, Refusal> {
    if (1.0..=DEADLINE_MAX).contains(&secs) && secs.fract() == 0.0 {
        return Ok(secs as u64 * 1_000);
    }
    Err(Refusal::invalid(format!(
        "deadline_secs {secs} is not a time to work in; give whole seconds from 1 to {DEADLINE_MAX}"
    )))
}
