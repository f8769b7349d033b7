//! Checks the database of a store on PostgreSQL.

use std::time::Duration;

use brigade_postgres::{ClockSkew, DatabaseReport, TableState};
use brigade_process::doctor::{HealthFinding, HealthState};

use super::new_finding;
use crate::configured_store::StoreSetting;
use crate::duration::render_duration;

/// The difference of two clocks from which on it is reported. Deadlines and expiries are off by it.
const SKEW_MAX: Duration = Duration::from_secs(2);

/// Checks the database of the configured store. There is nothing to check for a store in the state
/// directory.
pub(super) async fn check_database(store: &StoreSetting) -> Vec<HealthFinding> {
    let options = match store.read_options() {
        Ok(Some(options)) => options,
        Ok(None) => return Vec::new(),
        Err(problem) => return vec![new_finding("store", HealthState::Broken, problem)],
    };
    match DatabaseReport::inspect(&options).await {
        Ok(report) => render_report(&options.to_string(), &report),
        Err(error) => {
            let text = format!("{options}: {error}");
            vec![new_finding("store", HealthState::Broken, text)]
        }
    }
}

fn render_report(url: &str, report: &DatabaseReport) -> Vec<HealthFinding> {
    let mut findings = vec![
        check_tables(url, report),
        check_rights(report),
        check_durability(report),
        check_clock(report.clock_skew),
    ];
    findings.extend(check_timeouts(report));
    findings.extend(check_pooling(report));
    findings
}

fn check_tables(url: &str, report: &DatabaseReport) -> HealthFinding {
    let DatabaseReport { server_version, schema, .. } = report;
    let tables = match report.tables {
        TableState::Absent => "no tables yet, the first daemon creates them".to_owned(),
        TableState::Older { version, newest } => {
            format!("tables of version {version}, the next daemon migrates them to {newest}")
        }
        TableState::Current { version } => format!("tables of version {version}"),
    };
    let text = format!("{url}: PostgreSQL {server_version}, schema {schema}: {tables}");
    new_finding("store", HealthState::Healthy, text)
}

fn check_rights(report: &DatabaseReport) -> HealthFinding {
    let check = "store rights";
    if report.missing_rights.is_empty() {
        return new_finding(check, HealthState::Healthy, "can write and create partitions");
    }
    let missing = report.missing_rights.join(", ");
    let text = format!("the user of the URL lacks: {missing}; grant them, or name another user");
    new_finding(check, HealthState::Broken, text)
}

fn check_durability(report: &DatabaseReport) -> HealthFinding {
    let check = "store commits";
    let setting = &report.synchronous_commit;
    if setting == "off" {
        let text = "synchronous_commit is off: a crash of the server loses acknowledged commits; set it \
                    to on for the user of the URL";
        return new_finding(check, HealthState::Degraded, text);
    }
    if !report.has_synchronous_standby {
        let text = format!(
            "synchronous_commit is {setting}, and no synchronous standby is configured: acknowledged \
             commits can be lost when a standby is promoted; set synchronous_standby_names"
        );
        return new_finding(check, HealthState::Degraded, text);
    }
    let text = format!("synchronous_commit is {setting}, with a synchronous standby");
    new_finding(check, HealthState::Healthy, text)
}

fn check_clock(skew: ClockSkew) -> HealthFinding {
    let check = "store clock";
    let ClockSkew { millis, error_millis } = skew;
    let difference = render_duration(millis.unsigned_abs());
    let certain = Duration::from_millis(millis.abs().saturating_sub(error_millis).max(0) as u64);
    if certain < SKEW_MAX {
        let text = format!("{difference} from this machine's");
        return new_finding(check, HealthState::Healthy, text);
    }
    let direction = if millis > 0 { "ahead of" } else { "behind" };
    let text = format!(
        "the database is {difference} {direction} this machine: deadlines are off by it; synchronize \
         both clocks (NTP)"
    );
    new_finding(check, HealthState::Degraded, text)
}

fn check_timeouts(report: &DatabaseReport) -> Option<HealthFinding> {
    let timeouts = report.timeouts.iter().map(|it| {
        let limit = u64::try_from(it.timeout.as_millis()).unwrap_or(u64::MAX);
        format!("{} ({})", it.name, render_duration(limit))
    });
    let timeouts: Vec<String> = timeouts.collect();
    if timeouts.is_empty() {
        return None;
    }
    let text = format!(
        "these timeouts apply to commits, which fail and are repeated after them: {}; set them to 0 for \
         the user of the URL (ALTER ROLE … SET …)",
        timeouts.join(", ")
    );
    Some(new_finding("store timeouts", HealthState::Degraded, text))
}

fn check_pooling(report: &DatabaseReport) -> Option<HealthFinding> {
    let text = "a pooler hands out another connection for each transaction: notifications of other \
                daemons (LISTEN) do not arrive; connect directly, or use session pooling";
    report.is_transaction_pooled.then(|| new_finding("store pooler", HealthState::Degraded, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_wrong_only_if_the_query_was_fast_enough_to_tell() {
        let state = |millis, error_millis| check_clock(ClockSkew { millis, error_millis }).state;
        assert_eq!(state(1_900, 0), HealthState::Healthy);
        assert_eq!(state(-5_000, 4_000), HealthState::Healthy);
        assert_eq!(state(-5_000, 10), HealthState::Degraded);
        let ahead = check_clock(ClockSkew { millis: 90_000, error_millis: 1 });
        assert!(ahead.text.contains("ahead of this machine"), "{ahead:?}");
    }
}
