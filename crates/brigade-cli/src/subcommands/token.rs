//! `brigade token`: manages the tokens of the HTTP API.

use std::time::Duration;

use brigade_model::duration::parse_duration;
use brigade_model::plain_text::PlainText;
use brigade_protocol::http::{NewTokenBody, TokenBody, TokenScope};
use brigade_protocol::requests::{CreateTokenRequest, ListTokensRequest, RevokeTokenRequest};

use crate::context::CliContext;
use crate::duration::render_timestamp;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};

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
    Add(AddArgs),
    /// List the tokens
    List {
        /// Also list the logins of browsers
        #[arg(long)]
        all: bool,
    },
    /// Revoke tokens
    Revoke {
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Name of its bearer
    name: String,
    /// A client of this workspace, which controls the tasks that it started
    #[arg(long, conflicts_with = "read_only")]
    client: bool,
    /// See everything, change nothing
    #[arg(long)]
    read_only: bool,
    /// Time after which it is invalid, with its unit: 12h, 30d
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    expires: Option<Duration>,
}

impl TokenArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        match self.action {
            TokenSubcommand::Add(args) => args.run(context).await?,
            TokenSubcommand::List { all } => list_tokens(context, all).await?,
            TokenSubcommand::Revoke { ids } => {
                for id in ids {
                    revoke_token(context, id).await?;
                }
            }
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

impl AddArgs {
    async fn run(self, context: &CliContext) -> Result<(), CliError> {
        let scope = match (self.client, self.read_only) {
            (true, _) => TokenScope::Client,
            (_, true) => TokenScope::ReadOnly,
            (false, false) => TokenScope::Operator,
        };
        let session = self.client.then(|| context.session_name()).transpose()?;
        let expires_in_ms =
            self.expires.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let request = CreateTokenRequest { name: self.name, scope, session, expires_in_ms };
        let created = context.call(request).await?;
        if context.json {
            return render::print_json(&created);
        }
        let NewTokenBody { secret, token } = created;
        let tokens = context.call(ListTokensRequest {}).await?;
        let has_same_name = |other: &&TokenBody| {
            other.name == token.name && other.id != token.id && !other.from_login
        };
        if let Some(other) = tokens.iter().find(has_same_name) {
            render::print_note(&format!(
                "the token {} has the name {:?} too; `brigade token revoke {}` removes it",
                other.id, token.name, other.id
            ));
        }
        render::print_line(secret)
    }
}

async fn list_tokens(context: &CliContext, all: bool) -> Result<(), CliError> {
    let mut tokens = context.call(ListTokensRequest {}).await?;
    if context.json {
        return render::print_json(&tokens);
    }
    // Logins come last, and the oldest of each kind first.
    tokens.sort_by_key(|token| (token.from_login, token.created_at.0.0));
    let logins = tokens.iter().filter(|token| token.from_login).count();
    let shown: Vec<&TokenBody> = tokens.iter().filter(|token| all || !token.from_login).collect();
    if !shown.is_empty() {
        let heading = ["TOKEN", "SCOPE", "NAME", "CREATED", "EXPIRES"];
        let mut table = TextTable::new(&heading).never_truncate("TOKEN");
        for token in shown {
            let created = render_timestamp(token.created_at.0.0);
            let expires = token.expires_at.map(|at| render_timestamp(at.0.0)).unwrap_or_default();
            let cells = [token.id.clone(), render_scope(token).to_owned(), token.name.clone()];
            table.add_row(cells.into_iter().chain([created, expires]).map(Into::into));
        }
        table.print()?;
    }
    if !all && logins > 0 {
        let logins = render::render_count(logins as u64, "login");
        render::print_note(&format!("{logins} of browsers: `brigade token list --all`"));
    }
    Ok(())
}

async fn revoke_token(context: &CliContext, id: String) -> Result<(), CliError> {
    let revoked = context.call(RevokeTokenRequest { id }).await;
    let revoked = revoked.map_err(|error| {
        error.hint_if_not_found("`brigade token list --all` lists the tokens and their ids")
    })?;
    match context.json {
        true => render::print_json(&revoked),
        false => {
            let name = PlainText::line(&revoked.name);
            let scope = render_scope(&revoked);
            render::print_line(format!("revoked {} ({scope} {name})", revoked.id))
        }
    }
}

fn render_scope(token: &TokenBody) -> &'static str {
    match token.scope {
        TokenScope::Operator if token.from_login => "login",
        TokenScope::Operator => "operator",
        TokenScope::Client => "client",
        TokenScope::ReadOnly => "read-only",
    }
}

/// Parses the lifetime of a token. A number alone would be seconds, which nobody means here.
fn parse_lifetime(text: &str) -> Result<Duration, String> {
    match text.trim().parse::<f64>() {
        Ok(number) => Err(format!("give a unit, such as {number}d, {number}h or {number}m")),
        Err(_) => parse_duration(text),
    }
}
