//! `brigade dashboard`: opens the dashboard in a browser.

use std::process::{Command, Stdio};

use brigade_protocol::requests::{CreateLoginRequest, ListenHttpReply, ListenHttpRequest};

use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Open the dashboard: see, steer and stop tasks in a browser
///
/// Prints a URL that logs a browser in once, within 60 seconds. While `brigade serve` listens for
/// other machines, prints their URL too, with the same code: pass --no-open and open it there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DashboardArgs {
    /// Only print the URL
    #[arg(long)]
    no_open: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade dashboard
  brigade dashboard --no-open";

impl DashboardArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let daemon = context.connect_daemon().await?;
        let listener = match context.server_name() {
            // A server listens where the command line has reached it.
            Some(url) => ListenHttpReply { url, public_url: None },
            None => call_over(&daemon, ListenHttpRequest {}).await?,
        };
        let login = call_over(&daemon, CreateLoginRequest {}).await?;
        let login_url = |url: &str| format!("{url}/#code={}", login.code);
        let url = login_url(&listener.url);
        let public_url = listener.public_url.as_deref().map(login_url);
        if context.json {
            let mut printed = serde_json::json!({ "url": url });
            if let Some(public_url) = public_url {
                printed["public_url"] = public_url.into();
            }
            render::print_json(&printed)?;
        } else {
            render::print_line(url.as_str())?;
            if let Some(public_url) = public_url {
                render::print_line(format!("from other machines: {public_url}"))?;
            }
            render::print_note("the URL is valid once, for 60 seconds");
        }
        if !self.no_open && !context.json && has_display() {
            open_browser(&url);
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn has_display() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || is_set("WAYLAND_DISPLAY") || is_set("DISPLAY")
}

/// Opens the URL. Without a browser, the printed URL is what the user has.
fn open_browser(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.spawn();
}
