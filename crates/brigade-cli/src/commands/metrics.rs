//! Prints what the daemon counts.

use brigade_server::requests;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;

/// Print what the daemon has counted since it started, as Prometheus reads it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Metrics {}

const EXAMPLES: &str = "\
Examples:
  brigade metrics
  brigade metrics > /var/lib/node_exporter/brigade.prom";

impl Metrics {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let text = context.ask(requests::Metrics {}).await?;
        if context.json {
            show::json(&serde_json::json!({ "prometheus": text }))?;
        } else {
            show::line(text.trim_end())?;
        }
        Ok(Exit::SUCCEEDED)
    }
}
