//! Trust in the agent definitions of a workspace.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use brigade_agent::definition::DefinitionDigest;
use brigade_model::plain_text::PlainText;
use brigade_server::Client;
use brigade_server::requests::{
    DefinitionShown, GrantTrust, ListTrust, RevokeTrust, ShowTrust, WorkspaceTrust,
};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::{show, workspace};

/// More than this nobody reads before pressing a key, in bytes.
const ASKED_MAX: usize = 64 * 1024;

/// Trust agent definitions that come with a directory, or end that
///
/// Definitions in .brigade/agents of a directory are part of its repository, whoever wrote it. Until you
/// trust one, its agents write no files, run no processes and use no MCP servers, and without a terminal
/// they are not run at all. Trust is in the content of a file: when it changes, the file is untrusted again.
/// It holds for the repository with all its worktrees.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Trust {
    #[command(subcommand)]
    what: TrustCommand,
}

const EXAMPLES: &str = "\
Examples:
  brigade trust show                 all definitions here, whole, with digests
  brigade trust grant                look at what is not trusted, and decide
  brigade trust grant sha256:9f86..  where there is no terminal
  brigade trust list
  brigade trust revoke --all";

#[derive(Debug, clap::Subcommand)]
enum TrustCommand {
    /// Show the definitions of this directory whole, with their digests
    Show,
    /// List all trusted definitions
    List,
    /// Trust definitions of this directory: those with these digests, or those that you are shown
    Grant {
        #[arg(value_name = "DIGEST")]
        digests: Vec<DefinitionDigest>,
    },
    /// End the trust in definitions
    #[command(group = clap::ArgGroup::new("which").required(true).args(["digests", "all"]))]
    Revoke {
        #[arg(value_name = "DIGEST")]
        digests: Vec<DefinitionDigest>,
        /// All definitions of the repository
        #[arg(long)]
        all: bool,
        /// A repository as `brigade trust list` shows it, instead of the one of this directory
        #[arg(long, value_name = "PATH")]
        repository: Option<PathBuf>,
    },
}

impl Trust {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let cwd = current_directory()?;
        match self.what {
            TrustCommand::Show => show_all(context, cwd).await,
            TrustCommand::List => list(context).await,
            TrustCommand::Grant { digests } if digests.is_empty() => {
                let mut client = context.daemon().await?;
                ask_here(context, &mut client, cwd).await
            }
            TrustCommand::Grant { digests } => {
                let granted = context.ask(GrantTrust { cwd, digests }).await?;
                if context.json {
                    show::json(&granted)?;
                } else {
                    let names: Vec<&str> =
                        granted.definitions.iter().map(|it| it.name.as_str()).collect();
                    show::line(format!("trusted: {}", names.join(", ")))?;
                }
                Ok(Exit::SUCCEEDED)
            }
            TrustCommand::Revoke { digests, repository, all: _ } => {
                let revoked = context.ask(RevokeTrust { cwd, repository, digests }).await?;
                if context.json {
                    show::json(&serde_json::json!({ "revoked": revoked }))?;
                } else {
                    let count = show::count(revoked as u64, "definition");
                    show::line(format!("{count} not trusted any more"))?;
                }
                Ok(Exit::SUCCEEDED)
            }
        }
    }
}

async fn show_all(context: &Context, cwd: String) -> Result<Exit, Failure> {
    let shown = context.ask(ShowTrust { cwd }).await?;
    if context.json {
        show::json(&shown)?;
        return Ok(Exit::SUCCEEDED);
    }
    show::line(format!("repository: {}", show::one_line(&shown.repository)))?;
    if shown.definitions.is_empty() {
        show::line("it has no agent definitions here")?;
    }
    for definition in &shown.definitions {
        show::line(whole(definition))?;
    }
    Ok(Exit::SUCCEEDED)
}

async fn list(context: &Context) -> Result<Exit, Failure> {
    let trusted = context.ask(ListTrust {}).await?;
    if context.json {
        show::json(&trusted)?;
        return Ok(Exit::SUCCEEDED);
    }
    for repository in &trusted {
        show::line(show::one_line(&repository.repository))?;
        for definition in &repository.definitions {
            show::line(format!("  {}  {}", definition.digest, show::one_line(&definition.name)))?;
        }
    }
    Ok(Exit::SUCCEEDED)
}

async fn ask_here(context: &Context, client: &mut Client, cwd: String) -> Result<Exit, Failure> {
    if !is_at_terminal() || context.json {
        return Err(Failure::usage("there is no terminal to ask at")
            .hint("name the digests that `brigade trust show` tells"));
    }
    match ask(context, client, cwd).await? {
        Asked::Nothing => show::note("all definitions here are trusted"),
        Asked::Granted => show::note("trusted"),
        Asked::Declined => return Ok(Exit::FORBIDDEN),
        Asked::TooMuch => {
            return Err(Failure::usage("there is too much to be shown before a key is pressed")
                .hint("`brigade trust show` shows it; then grant the digests"));
        }
    }
    Ok(Exit::SUCCEEDED)
}

/// What came of asking somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Nothing is untrusted.
    Nothing,
    Granted,
    Declined,
    TooMuch,
}

/// Whether somebody sees a question here, and can answer it.
pub(crate) fn is_at_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Shows the untrusted definitions of a directory whole, and asks whether they are to be trusted: those
/// that were shown, by their digests.
pub(crate) async fn ask(
    context: &Context,
    client: &mut Client,
    cwd: String,
) -> Result<Asked, Failure> {
    let shown = context.ask_over(client, ShowTrust { cwd: cwd.clone() }).await?;
    let untrusted: Vec<&DefinitionShown> =
        shown.definitions.iter().filter(|definition| !definition.trusted).collect();
    if untrusted.is_empty() {
        return Ok(Asked::Nothing);
    }
    if untrusted.iter().map(|definition| definition.text.len()).sum::<usize>() > ASKED_MAX {
        return Ok(Asked::TooMuch);
    }
    if !confirm(question(&shown, &untrusted)).await? {
        return Ok(Asked::Declined);
    }
    let digests = untrusted.into_iter().map(|definition| definition.digest.clone()).collect();
    context.ask_over(client, GrantTrust { cwd, digests }).await?;
    Ok(Asked::Granted)
}

fn question(shown: &WorkspaceTrust, untrusted: &[&DefinitionShown]) -> String {
    let repository = show::one_line(&shown.repository);
    let mut text = format!("agent definitions of {repository} that nobody has trusted:\n");
    for definition in untrusted {
        text.push_str(&whole(definition));
        text.push('\n');
    }
    text.push_str(
        "Trust them as they are shown here? Their agents may then do all that you allow. [y/N] ",
    );
    text
}

/// A definition with each of its lines behind a mark, so that none of them looks like ours.
fn whole(definition: &DefinitionShown) -> String {
    let state = if definition.trusted { "trusted" } else { "not trusted" };
    let (name, file) = (show::one_line(&definition.name), show::one_line(&definition.file));
    let mut text = format!("{name} ({state})\n  file:   {file}\n  digest: {}", definition.digest);
    for line in PlainText::exact(&definition.text) {
        text.push_str("\n  │ ");
        text.push_str(line.as_str());
    }
    text
}

/// Asks on the standard error, so that the output stays what it is.
async fn confirm(question: String) -> Result<bool, Failure> {
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

pub(crate) fn current_directory() -> Result<String, Failure> {
    let cwd = workspace::current_directory()?.into_os_string().into_string();
    cwd.map_err(|cwd| Failure::usage(format!("the directory {cwd:?} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_definition_looks_like_ours() {
        let text = "---\nname: x\n---\nHi\r\u{1b}[2K\u{202e}\u{200b}\nTrust them? [y/N]\n\tend";
        let definition = DefinitionShown {
            name: "x\nfile: other".to_owned(),
            file: "/a/\u{1b}[1m.md".to_owned(),
            digest: DefinitionDigest::of(text.as_bytes()),
            trusted: false,
            text: text.to_owned(),
        };
        let shown = whole(&definition);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "x file: other (not trusted)");
        assert!(lines[3..].iter().all(|line| line.starts_with("  │ ")), "{shown}");
        assert!(shown.contains(r"  │ Hi\u{d}\u{1b}[2K\u{202e}\u{200b}⏎"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\r', '\u{202e}']), "{shown}");
    }
}
