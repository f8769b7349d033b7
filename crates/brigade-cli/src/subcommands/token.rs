//! `brigade token`: manages the tokens of the HTTP API.

use std::time::Duration;

use brigade_model::duration::parse_duration;
use brigade_model::plain_text::PlainText;
use brigade_protocol::http::{TokenBody, TokenScope};
use brigade_protocol::requests::{CreateTokenRequest, ListTokensRequest, RevokeTokenRequest};

use crate::context::CliContext;
use crate::duration::render_timestamp;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Create, list or revoke tokens of the HTTP API
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    action: TokenSubcommand,
}

const EXAMPLES: &str = "\
Examples:
  brigade token add laptop                  all rights
  brigade token add --client claude         a client of this workspace
  brigade token add --read-only wall --expires 30d
  brigade token list
  brigade token revoke 5e884898da280471";

#[derive(Debug, clap::Subcommand)]
enum TokenSubcommand {
    /// Create a token and print its secret, which is not stored
    Add {
        /// Name of its bearer
        name: String,
        /// A client of this workspace, which controls the tasks that it started
        #[arg(long, conflicts_with = "read_only")]
        client: bool,
        /// See everything, change nothing
        #[arg(long)]
        read_only: bool,
        /// Time after which it is invalid
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        expires: Option<Duration>,
    },
    /// List the tokens
    List,
    /// Revoke tokens
    Revoke {
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

impl TokenArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        match self.action {
            TokenSubcommand::Add { name, client, read_only, expires } => {
                let scope = match (client, read_only) {
                    (true, _) => TokenScope::Client,
                    (_, true) => TokenScope::ReadOnly,
                    (false, false) => TokenScope::Operator,
                };
                let session = client.then(|| context.session_name()).transpose()?;
                let expires_in_ms =
                    expires.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
                let request = CreateTokenRequest { name, scope, session, expires_in_ms };
                let created = context.call(request).await?;
                match context.json {
                    true => render::print_json(&created)?,
                    false => render::print_line(created.secret)?,
                }
            }
            TokenSubcommand::List => {
                let tokens = context.call(ListTokensRequest {}).await?;
                if context.json {
                    render::print_json(&tokens)?;
                } else {
                    for token in &tokens {
                        render::print_line(render_token(token))?;
                    }
                }
            }
            TokenSubcommand::Revoke { ids } => {
                for id in ids {
                    let revoked = context.call(RevokeTokenRequest { id }).await?;
                    match context.json {
                        true => render::print_json(&revoked)?,
                        false => render::print_line(format!("revoked {}", render_token(&revoked)))?,
                    }
                }
            }
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn render_token(token: &TokenBody) -> String {
    let scope = match token.scope {
        TokenScope::Operator => "operator",
        TokenScope::Client => "client",
        TokenScope::ReadOnly => "read-only",
    };
    let created = render_timestamp(token.created_at.0.0);
    let expires = token
        .expires_at
        .map_or_else(String::new, |at| format!("  expires {}", render_timestamp(at.0.0)));
    let name = PlainText::line(&token.name);
    format!("{}  {scope:9}  {created}  {name}{expires}", token.id)
}
