//! `brigade metrics`: prints the daemon's metrics.

use brigade_protocol::requests;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Print metrics in Prometheus format
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetricsArgs {}

const EXAMPLES: &str = "\
Examples:
  brigade metrics
  brigade metrics > /var/lib/node_exporter/brigade.prom";

impl MetricsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let text = context.call(requests::MetricsRequest {}).await?;
        if context.json {
            render::print_json(&serde_json::json!({ "prometheus": text }))?;
        } else {
            render::print_line(text.trim_end())?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
