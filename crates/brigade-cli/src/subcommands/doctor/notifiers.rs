//! Checks the configured notifiers, and what they have not delivered.

use brigade_process::doctor::{HealthFinding, HealthState};
use brigade_protocol::DaemonConnection;
use brigade_protocol::requests::{ListNotifiersRequest, NotifierInfo};
use brigade_server::external_programs::find_executable;

use super::new_finding;
use crate::configured_notifiers::NotifySetting;
use crate::context::CliContext;
use crate::render::render_count;

const CHECK: &str = "notifier";

/// Checks that each command can be found, and asks the daemon for problems of deliveries.
pub(super) async fn check_notifiers(
    context: &CliContext,
    client: Option<&DaemonConnection>,
) -> Vec<HealthFinding> {
    let commands = configured_commands(&context.config.notify);
    let missing = commands.iter().filter_map(|(name, program)| check_program(name, program));
    let mut findings: Vec<HealthFinding> = missing.collect();
    let Some(client) = client else { return findings };
    // A daemon of an earlier version has no notifiers.
    let Ok(listed) = client.call(ListNotifiersRequest {}).await else { return findings };
    findings.extend(listed.notifiers.iter().map(check_deliveries));
    if listed.gaps > 0 {
        let text = format!(
            "retention removed events before notifications were created for them ({}); choose a \
             longer `retention`",
            render_count(listed.gaps, "gap")
        );
        findings.push(new_finding(CHECK, HealthState::Degraded, text));
    }
    findings
}

/// Returns the names and programs of the notifiers that are commands.
fn configured_commands(notify: &NotifySetting) -> Vec<(&str, &str)> {
    match notify {
        NotifySetting::Command(command) => {
            command.first().map(|program| ("default", program.as_str())).into_iter().collect()
        }
        NotifySetting::Notifiers(tables) => {
            let commands = tables.iter().filter_map(|(name, config)| {
                Some((name.as_str(), config.command.first()?.as_str()))
            });
            commands.collect()
        }
    }
}

fn check_program(name: &str, program: &str) -> Option<HealthFinding> {
    let text =
        format!("{name}: {program} cannot be found; name its absolute path in the configuration");
    find_executable(program).is_none().then(|| new_finding(CHECK, HealthState::Degraded, text))
}

fn check_deliveries(notifier: &NotifierInfo) -> HealthFinding {
    let NotifierInfo { name, pending, dead_letters, .. } = notifier;
    let pending = format!("{} pending", render_count(*pending, "notification"));
    let dead = render_count(*dead_letters, "dead letter");
    let unknown = if notifier.is_configured { "" } else { "; it is not configured" };
    match &notifier.problem {
        Some(problem) => {
            let text = format!("{name}: {pending}, {dead}{unknown}; the last problem: {problem}");
            new_finding(CHECK, HealthState::Degraded, text)
        }
        None => new_finding(CHECK, HealthState::Healthy, format!("{name}: {pending}{unknown}")),
    }
}
