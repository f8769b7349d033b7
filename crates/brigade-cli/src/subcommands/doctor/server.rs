//! The check of the chosen servers.

use brigade_process::doctor::{HealthFinding, HealthState};
use brigade_protocol::frames::ClientRole;
use brigade_protocol::requests::StatusRequest;
use brigade_protocol::{ClientError, DaemonConnection};

use super::new_finding;
use crate::configured_server::ServerSetting;
use crate::duration;

/// Connects to each server, since each of them may have to serve alone.
pub(super) async fn check_servers(servers: &ServerSetting) -> Vec<HealthFinding> {
    let mut findings = Vec::new();
    for (url, remote) in servers.to_single_daemons() {
        let checked = match remote.connect(ClientRole::Operator).await {
            Ok(connection) => describe_daemon(&connection, url.as_str()).await,
            Err(error) => Err(error),
        };
        findings.push(match checked {
            Ok(text) => new_finding("server", HealthState::Healthy, text),
            Err(error) => new_finding("server", HealthState::Broken, error.to_string()),
        });
    }
    findings
}

async fn describe_daemon(connection: &DaemonConnection, url: &str) -> Result<String, ClientError> {
    let status = connection.call(StatusRequest {}).await?;
    let uptime = duration::render_duration(status.uptime_ms);
    Ok(format!(
        "{url}: version {}, protocol {}, for {uptime}; it accepts the token",
        status.version, status.protocol
    ))
}
