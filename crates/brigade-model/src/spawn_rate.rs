//! The rate at which a subtree may grow.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Millis, Time};
use crate::truncate::truncate_chars;

/// A number of new tasks per time span. All of them may be spawned at once. After that, one is
/// allowed each time its share of the span has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRate {
    pub count: u32,
    pub per: Millis,
}

/// The time until which a holder's spawns are accounted for, at one share of the span each. It is
/// in microseconds since the epoch, so that shares are exact enough at any rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpawnMeter(u64);

impl SpawnMeter {
    pub(crate) fn is_unused(&self) -> bool {
        self.0 == 0
    }
}

impl SpawnRate {
    /// Returns the time that the next spawn has to wait. `None` if it may happen now.
    pub fn wait_time(self, meter: SpawnMeter, now: Time) -> Option<Millis> {
        let Some(share) = self.interval_micros() else { return Some(Millis(u64::MAX)) };
        let ahead = meter.0.saturating_sub(to_micros(now));
        let allowed = share.saturating_mul(u64::from(self.count) - 1);
        let surplus = ahead.saturating_sub(allowed);
        (surplus > 0).then(|| Millis(surplus.div_ceil(1_000)))
    }

    /// Returns the meter after one more spawn.
    #[must_use]
    pub fn record_spawn(self, meter: SpawnMeter, now: Time) -> SpawnMeter {
        SpawnMeter(meter.0.max(to_micros(now)).saturating_add(self.interval_micros().unwrap_or(0)))
    }

    /// Returns the rate that allows fewer spawns in the long run, or fewer at once if they are
    /// equal.
    #[must_use]
    pub fn tighter_of(self, other: Self) -> Self {
        let long = |rate: Self| rate.interval_micros().unwrap_or(u64::MAX);
        let order = long(other).cmp(&long(self)).then(self.count.cmp(&other.count));
        if order.is_le() { self } else { other }
    }

    /// Returns the microseconds per task. `None` if no task may be spawned.
    fn interval_micros(self) -> Option<u64> {
        let span = self.per.0.saturating_mul(1_000);
        span.checked_div(u64::from(self.count)).map(|share| share.max(1))
    }
}

fn to_micros(time: Time) -> u64 {
    time.0.saturating_mul(1_000)
}

impl fmt::Display for SpawnRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        let per = self.per.0;
        match per {
            1_000 => write!(f, "{count}/s"),
            60_000 => write!(f, "{count}/min"),
            3_600_000 => write!(f, "{count}/h"),
            86_400_000 => write!(f, "{count}/d"),
            _ if per.is_multiple_of(1_000) => write!(f, "{count}/{}s", per / 1_000),
            _ => write!(f, "{count}/{per}ms"),
        }
    }
}

/// A text that is not a spawn rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate; write a number of tasks and a time span, such as 10/min or 100/2h")]
pub struct SpawnRateError(String);

impl std::str::FromStr for SpawnRate {
    type Err = SpawnRateError;

    fn from_str(text: &str) -> Result<Self, SpawnRateError> {
        let wrong = || SpawnRateError(truncate_chars(text, 40));
        let (count, span) = text.split_once('/').ok_or_else(wrong)?;
        let count = count.trim().parse().map_err(|_| wrong())?;
        let span = span.trim();
        let digits = span.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (times, unit) = span.split_at(digits);
        let times: u64 = if times.is_empty() { 1 } else { times.parse().map_err(|_| wrong())? };
        let unit = match unit {
            "ms" => 1,
            "s" | "sec" | "second" => 1_000,
            "m" | "min" | "minute" => 60_000,
            "h" | "hour" => 3_600_000,
            "d" | "day" => 86_400_000,
            _ => return Err(wrong()),
        };
        let per = times.checked_mul(unit).filter(|span| *span > 0).ok_or_else(wrong)?;
        Ok(Self { count, per: Millis(per) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_as_they_are_printed() {
        for text in ["10/min", "3/s", "100/h", "1/d", "5/90s", "7/250ms", "0/s"] {
            let rate: SpawnRate = text.parse().expect(text);
            assert_eq!(rate.to_string(), text);
        }
        assert_eq!("100/2h".parse::<SpawnRate>().map(|rate| rate.per), Ok(Millis(7_200_000)));
        for wrong in ["", "10", "10/", "/min", "10/0s", "-1/s", "10/week", "1.5/s", "10/min/min"] {
            assert!(wrong.parse::<SpawnRate>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_tighter_of_two_rates_is_chosen() {
        let [slow, fast] = ["10/min", "1/s"].map(|text| text.parse::<SpawnRate>().expect("a rate"));
        assert_eq!((slow.tighter_of(fast), fast.tighter_of(slow)), (slow, slow));
        let [few, many] = ["1/s", "60/min"].map(|text| text.parse::<SpawnRate>().expect("a rate"));
        assert_eq!((few.tighter_of(many), many.tighter_of(few)), (few, few));
        let none: SpawnRate = "0/s".parse().expect("a rate");
        assert_eq!((none.tighter_of(few), few.tighter_of(none)), (none, none));
    }
}
