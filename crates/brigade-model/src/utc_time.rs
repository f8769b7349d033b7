//! Times as people read them in texts that the model makes.

use crate::ids::Time;

const DAY_SECONDS: u64 = 86_400;
/// The days of 400 years, after which the calendar repeats itself.
const ERA_DAYS: u64 = 146_097;

/// Renders a time to the second: `2026-11-18 19:40:12Z`.
pub(crate) fn render_utc(time: Time) -> String {
    let seconds = time.0 / 1_000;
    let in_day = seconds % DAY_SECONDS;
    // Years begin in March here, so that a leap day is the last one of its year.
    let days = seconds / DAY_SECONDS + 719_468;
    let day_of_era = days % ERA_DAYS;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = days / ERA_DAYS * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (in_day / 3_600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_of_the_calendar() {
        let table = [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (1_795_030_812, "2026-11-18 19:40:12Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(render_utc(Time(seconds * 1_000 + 999)), text);
        }
    }
}
