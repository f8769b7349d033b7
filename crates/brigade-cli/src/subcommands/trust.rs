//! `brigade trust`: manages trust in the agent definitions of a directory.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use brigade_agent::definition::DefinitionDigest;
use brigade_model::plain_text::PlainText;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{
    DefinitionItem, GrantTrustRequest, ListTrustRequest, RevokeTrustRequest, ShowTrustReply,
    ShowTrustRequest,
};

use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::{render, workspace};

/// The most bytes of definitions that are shown before a key grants trust.
const PROMPT_BYTES_MAX: usize = 64 * 1024;

/// Trust agent definitions of this directory, or revoke trust
///
/// Definitions in .brigade/agents of a directory are part of its repository. Until you trust one,
/// its agents write no files, run no processes and use no MCP servers; without a terminal they do
/// not run. Trust is bound to the content of a file: a changed file is untrusted. It applies to the
/// repository with all its worktrees.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrustArgs {
    #[command(subcommand)]
    action: TrustSubcommand,
}

const EXAMPLES: &str = "\
Examples:
  brigade trust show                 print definitions with digests
  brigade trust grant                review untrusted ones, and decide
  brigade trust grant sha256:9f86..  without a terminal
  brigade trust list
  brigade trust revoke --all";

#[derive(Debug, clap::Subcommand)]
enum TrustSubcommand {
    /// Print the definitions of this directory in full, with their digests
    Show,
    /// List all trusted definitions
    List,
    /// Trust definitions of this directory: those with these digests, or those shown to you
    Grant {
        #[arg(value_name = "DIGEST")]
        digests: Vec<DefinitionDigest>,
    },
    /// Revoke trust in definitions
    #[command(group = clap::ArgGroup::new("which").required(true).args(["digests", "all"]))]
    Revoke {
        #[arg(value_name = "DIGEST")]
        digests: Vec<DefinitionDigest>,
        /// All definitions of the repository
        #[arg(long)]
        all: bool,
        /// Repository as `brigade trust list` prints it, instead of this directory's
        #[arg(long, value_name = "PATH")]
        repository: Option<PathBuf>,
    },
}

impl TrustArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let cwd = current_directory()?;
        match self.action {
            TrustSubcommand::Show => print_definitions(context, cwd).await,
            TrustSubcommand::List => print_trusted(context).await,
            TrustSubcommand::Grant { digests } if digests.is_empty() => {
                let client = context.connect_daemon().await?;
                grant_at_terminal(context, &client, cwd).await
            }
            TrustSubcommand::Grant { digests } => {
                let granted = context.call(GrantTrustRequest { cwd, digests }).await?;
                if context.json {
                    render::print_json(&granted)?;
                } else {
                    let names: Vec<&str> =
                        granted.definitions.iter().map(|it| it.name.as_str()).collect();
                    render::print_line(format!("trusted: {}", names.join(", ")))?;
                }
                Ok(CliExitCode::SUCCEEDED)
            }
            TrustSubcommand::Revoke { digests, repository, all: _ } => {
                let revoked = context.call(RevokeTrustRequest { cwd, repository, digests }).await?;
                if context.json {
                    render::print_json(&serde_json::json!({ "revoked": revoked }))?;
                } else {
                    let count = render::render_count(revoked as u64, "definition");
                    render::print_line(format!("revoked trust in {count}"))?;
                }
                Ok(CliExitCode::SUCCEEDED)
            }
        }
    }
}

async fn print_definitions(context: &CliContext, cwd: String) -> Result<CliExitCode, CliError> {
    let shown = context.call(ShowTrustRequest { cwd }).await?;
    if context.json {
        render::print_json(&shown)?;
        return Ok(CliExitCode::SUCCEEDED);
    }
    render::print_line(format!("repository: {}", render::render_one_line(&shown.repository)))?;
    if shown.definitions.is_empty() {
        render::print_line("no agent definitions here")?;
    }
    for definition in &shown.definitions {
        render::print_line(render_definition(definition))?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

async fn print_trusted(context: &CliContext) -> Result<CliExitCode, CliError> {
    let trusted = context.call(ListTrustRequest {}).await?;
    if context.json {
        render::print_json(&trusted)?;
        return Ok(CliExitCode::SUCCEEDED);
    }
    for repository in &trusted {
        render::print_line(render::render_one_line(&repository.repository))?;
        for definition in &repository.definitions {
            render::print_line(format!(
                "  {}  {}",
                definition.digest,
                render::render_one_line(&definition.name)
            ))?;
        }
    }
    Ok(CliExitCode::SUCCEEDED)
}

async fn grant_at_terminal(
    context: &CliContext,
    client: &DaemonClient,
    cwd: String,
) -> Result<CliExitCode, CliError> {
    if !is_at_terminal() || context.json {
        return Err(CliError::usage("this is not a terminal")
            .with_hint("pass the digests that `brigade trust show` prints"));
    }
    match ask_for_trust(client, cwd).await? {
        TrustAnswer::NothingUntrusted => render::print_note("all definitions here are trusted"),
        TrustAnswer::Granted => render::print_note("trusted"),
        TrustAnswer::Declined => return Ok(CliExitCode::FORBIDDEN),
        TrustAnswer::TooLong => {
            return Err(CliError::usage("the definitions are too long for a prompt")
                .with_hint("read `brigade trust show`, then grant the digests"));
        }
    }
    Ok(CliExitCode::SUCCEEDED)
}

/// The result of a trust prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrustAnswer {
    /// All definitions are trusted.
    NothingUntrusted,
    Granted,
    Declined,
    TooLong,
}

/// Returns true if stdin and stderr are a terminal.
pub(crate) fn is_at_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Shows the untrusted definitions of a directory in full, and asks whether to trust them. Trusts
/// exactly the shown ones, by digest.
pub(crate) async fn ask_for_trust(
    client: &DaemonClient,
    cwd: String,
) -> Result<TrustAnswer, CliError> {
    let shown = call_over(client, ShowTrustRequest { cwd: cwd.clone() }).await?;
    let untrusted: Vec<&DefinitionItem> =
        shown.definitions.iter().filter(|definition| !definition.trusted).collect();
    if untrusted.is_empty() {
        return Ok(TrustAnswer::NothingUntrusted);
    }
    if untrusted.iter().map(|definition| definition.text.len()).sum::<usize>() > PROMPT_BYTES_MAX {
        return Ok(TrustAnswer::TooLong);
    }
    if !confirm(render_question(&shown, &untrusted)).await? {
        return Ok(TrustAnswer::Declined);
    }
    let digests = untrusted.into_iter().map(|definition| definition.digest.clone()).collect();
    call_over(client, GrantTrustRequest { cwd, digests }).await?;
    Ok(TrustAnswer::Granted)
}

fn render_question(shown: &ShowTrustReply, untrusted: &[&DefinitionItem]) -> String {
    let repository = render::render_one_line(&shown.repository);
    let mut text = format!("untrusted agent definitions of {repository}:\n");
    for definition in untrusted {
        text.push_str(&render_definition(definition));
        text.push('\n');
    }
    text.push_str("Trust them as shown? Their agents may then do all that you allow. [y/N] ");
    text
}

/// Renders a definition with a mark before each line, so that none looks like ours.
fn render_definition(definition: &DefinitionItem) -> String {
    let state = if definition.trusted { "trusted" } else { "not trusted" };
    let name = render::render_one_line(&definition.name);
    let file = render::render_one_line(&definition.file);
    let mut text = format!("{name} ({state})\n  file:   {file}\n  digest: {}", definition.digest);
    for line in PlainText::exact(&definition.text) {
        text.push_str("\n  │ ");
        text.push_str(line.as_str());
    }
    text
}

/// Asks on stderr, since stdout is for the result.
async fn confirm(question: String) -> Result<bool, CliError> {
    let read = move || -> std::io::Result<bool> {
        let mut out = anstream::stderr().lock();
        write!(out, "{question}")?;
        out.flush()?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Ok(false),
    }
}

pub(crate) fn current_directory() -> Result<String, CliError> {
    let cwd = workspace::current_directory()?.into_os_string().into_string();
    cwd.map_err(|cwd| CliError::usage(format!("the directory {cwd:?} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_definition_looks_like_ours() {
        let text = "---\nname: x\n---\nHi\r\u{1b}[2K\u{202e}\u{200b}\nTrust them? [y/N]\n\tend";
        let definition = DefinitionItem {
            name: "x\nfile: other".to_owned(),
            file: "/a/\u{1b}[1m.md".to_owned(),
            digest: DefinitionDigest::of(text.as_bytes()),
            trusted: false,
            text: text.to_owned(),
        };
        let shown = render_definition(&definition);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "x file: other (not trusted)");
        assert!(lines[3..].iter().all(|line| line.starts_with("  │ ")), "{shown}");
        assert!(shown.contains(r"  │ Hi\u{d}\u{1b}[2K\u{202e}\u{200b}⏎"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\r', '\u{202e}']), "{shown}");
    }
}
