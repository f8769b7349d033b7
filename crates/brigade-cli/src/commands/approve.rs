//! Gives leave, or not.

use std::io::{self, IsTerminal, Write};

use brigade_agent::permission::Rule;
use brigade_model::approval::{self, CallDigest, Verdict};
use brigade_model::plain_text::PlainText;
use brigade_server::info::Approval;
use brigade_server::requests::{self, ApprovalsInfo, PendingInfo};
use brigade_server::{Target, TaskInfo};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show::{self, Table};
use crate::{asking, card, live};

/// List pending approvals, or allow or deny one
///
/// Agents ask where their permissions say `ask`. A call is allowed when it has been shown whole: at a
/// terminal it is shown and asked about; elsewhere --show shows it with its digest, and --digest allows
/// exactly that. Without more it is allowed this once; with --always the very same is not asked about
/// again in this session and directory, by anybody, and with --rule nothing is that the rule allows. What
/// somebody denies by a rule stays denied. A denial is told to the agent, which goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Approve {
    /// Who asks
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Which of its calls, when several wait
    #[arg(value_name = "CALL", requires = "address")]
    call: Option<u32>,
    /// Print the whole call, and its digest
    #[arg(long, requires = "address", conflicts_with_all = ["digest", "always", "deny"])]
    show: bool,
    /// Allow the call that was shown with this digest, and no other
    #[arg(long, value_name = "DIGEST", requires = "address", value_parser = digest)]
    digest: Option<CallDigest>,
    /// From now on in this session and directory, not just this once
    #[arg(long, requires = "address")]
    always: bool,
    /// What to allow always, when it is more than this call: 'run_process(cargo *)'
    #[arg(long, value_name = "RULE", value_parser = super::run::rule, requires = "always")]
    rule: Option<Rule>,
    /// Say no
    #[arg(long, requires = "address", conflicts_with = "always")]
    deny: bool,
    /// Why not: the agent is told
    #[arg(long, value_name = "TEXT", requires = "deny")]
    reason: Option<String>,
    /// List what waits, and what was allowed always
    #[arg(long, conflicts_with_all = ["address", "revoke"])]
    list: bool,
    /// Ask about it again: the number is in the list
    #[arg(long, value_name = "NUMBER", conflicts_with = "address")]
    revoke: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  brigade approve
  brigade approve agent:2
  brigade approve agent:2 8 --show
  brigade approve agent:2 8 --digest 9f86d081884c7d659a2feaa0c55ad015
  brigade approve agent:2 8 --always --rule 'run_process(cargo *)'
  brigade approve agent:2 --deny --reason 'not before the release'
  brigade approve --revoke 1";

/// The most lines of a call that the list shows whole, and how wide they are taken to be elsewhere than
/// on a terminal.
const LISTED_LINES: usize = 12;
const LISTED_COLUMNS: usize = 100;

fn digest(text: &str) -> Result<CallDigest, String> {
    text.parse().map_err(|refusal: brigade_model::refusal::Refusal| refusal.message)
}

impl Approve {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        if let Some(grant) = self.revoke {
            let revoke = requests::Revoke { session: context.session()?, grant };
            let asked = context.ask(revoke).await;
            asked.map_err(|failure| {
                failure.not_found_hint("`brigade approve` lists what is allowed")
            })?;
            return told(context, serde_json::json!({ "revoked": grant }), "revoked");
        }
        let Some(address) = &self.address else { return list(context).await };
        let target = context.target(address)?;
        // By its number from here on: somebody else may take the name.
        let task = context.ask(requests::Show { target: target.clone() }).await?;
        let target = Target { session: task.session.clone(), task: task.address.clone() };
        let meant = self.meant(&task)?;
        if self.show {
            return shown(context, &task, meant.ok_or_else(|| nothing_waits(&task))?);
        }
        let verdict = self.verdict();
        let (call, digest) = match meant {
            _ if self.deny => (meant.map(|approval| approval.call).or(self.call), self.digest),
            // What waits no longer was perhaps answered just like this.
            None => (self.call, self.digest),
            Some(approval) => {
                let digest = match self.digest {
                    Some(digest) => Some(digest),
                    None => Some(confirmed(&task, approval, &verdict)?),
                };
                (Some(approval.call), digest)
            }
        };
        let word = verdict.to_string();
        let line = match meant {
            Some(approval) if verdict == (Verdict::AllowAlways { rule: None }) => {
                always_line(approval)
            }
            Some(approval) => format!("{}: {word}", show::one_line(&approval.text)),
            None => word.clone(),
        };
        if digest.is_none() && !self.deny {
            return Err(nothing_waits(&task));
        }
        let asked = context.ask(requests::Approve { target, call, digest, verdict }).await;
        asked.map_err(|failure| {
            failure.not_found_hint("`brigade approve` lists what waits for leave")
        })?;
        let json = serde_json::json!({ "approved": address, "call": call, "verdict": word });
        told(context, json, &line)
    }

    /// The call that is meant among those that wait.
    fn meant<'a>(&self, task: &'a TaskInfo) -> Result<Option<&'a Approval>, Failure> {
        let meant = |approval: &&Approval| {
            self.call.is_none_or(|call| approval.call == call)
                && self.digest.is_none_or(|digest| approval.digest == Some(digest))
        };
        let calls: Vec<&Approval> = task.approvals.iter().filter(meant).collect();
        match calls.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            several => {
                let numbers: Vec<String> =
                    several.iter().map(|approval| approval.call.to_string()).collect();
                let numbers = numbers.join(", ");
                let called = show::called(task);
                let message =
                    format!("{called} waits for several approvals; say which call: {numbers}");
                Err(Failure::new(Exit::FAILED, message))
            }
        }
    }

    fn verdict(&self) -> Verdict {
        if self.deny {
            return Verdict::Deny { reason: self.reason.as_deref().unwrap_or_default().into() };
        }
        if self.always {
            return Verdict::AllowAlways { rule: self.rule.clone() };
        }
        Verdict::AllowOnce
    }
}

fn told(context: &Context, json: serde_json::Value, line: &str) -> Result<Exit, Failure> {
    if context.json {
        show::json(&json)?;
    } else {
        show::line(line)?;
    }
    Ok(Exit::SUCCEEDED)
}

/// What is allowed from now on, as `brigade approve` lists it.
fn always_line(approval: &Approval) -> String {
    let what = approval::remembered(&approval.tool, &approval.arguments);
    let directory = approval.directory.as_deref().map(|directory| format!(" in {directory}"));
    PlainText::line(&format!("{what}{}: allowed always", directory.unwrap_or_default()))
        .into_string()
}

fn nothing_waits(task: &TaskInfo) -> Failure {
    let called = show::called(task);
    if !task.living {
        return Failure::new(Exit::FAILED, format!("{called} has ended ({})", task.state));
    }
    Failure::new(Exit::NOT_FOUND, format!("{called} waits for no such approval"))
        .hint("`brigade approve` lists what waits for leave")
}

/// Prints a call whole, and how exactly that is allowed.
fn shown(context: &Context, task: &TaskInfo, approval: &Approval) -> Result<Exit, Failure> {
    if context.json {
        show::json(approval)?;
        return Ok(Exit::SUCCEEDED);
    }
    show::line(format!("{} asks for leave: {}", show::called(task), approval.tool))?;
    for line in whole(approval) {
        show::line(line)?;
    }
    show::line(format!("  ({})", asking::why(approval)))?;
    if let Some(digest) = approval.digest {
        show::line(format!("  {}", allows(&task.address, approval.call, digest)))?;
    }
    Ok(Exit::SUCCEEDED)
}

fn whole(approval: &Approval) -> Vec<String> {
    match approval.card() {
        Some(card) => card::lines(&card, show::width()),
        None => asking::elided(approval, show::width()),
    }
}

fn allows(address: &str, call: u32, digest: CallDigest) -> String {
    format!("brigade approve {address} {call} --digest {digest}")
}

/// Shows a call whole to whoever sits here, and asks whether it is to be allowed. One that the screen
/// has no room for is allowed by typing its digest, which stands below all of it.
fn confirmed(
    task: &TaskInfo,
    approval: &Approval,
    verdict: &Verdict,
) -> Result<CallDigest, Failure> {
    let show = format!("`brigade approve {} {} --show`", task.address, approval.call);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(
            "nothing is allowed that was not shown, and this is no terminal",
        )
        .hint(format!("{show} shows it with its digest; `--digest DIGEST` allows that")));
    }
    let screen = live::screen();
    let Some(digest) = approval.digest else {
        return Err(Failure::usage("the call cannot be shown whole, so it can only be denied"));
    };
    let fits = asking::whole(approval, screen).is_some();
    let mut text =
        PlainText::line(&format!("{} asks for leave: {}", show::called(task), approval.tool))
            .into_string();
    for line in
        card::lines(&approval.card().ok_or_else(|| nothing_waits(task))?, Some(screen.columns))
    {
        text.push_str(&format!("\n{line}"));
    }
    text.push_str(&format!("\n  ({})\n", asking::why(approval)));
    let what = match verdict {
        Verdict::AllowAlways { rule: Some(rule) } => {
            format!("always, as {}", PlainText::line(&rule.to_string()))
        }
        Verdict::AllowAlways { rule: None } => "always".to_owned(),
        _ => "once".to_owned(),
    };
    text.push_str(&match fits {
        true => format!("Allow it {what}? [y/n] "),
        false => format!(
            "It is longer than this screen. Digest: {digest}\nType the digest to allow it {what}: "
        ),
    });
    let mut err = io::stderr();
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).map_err(show::unwritable)?;
    // An answer is one that was begun below the question.
    live::flush_typed();
    let mut said = String::new();
    io::stdin().read_line(&mut said)?;
    let said = said.trim();
    let is_yes = if fits { said.eq_ignore_ascii_case("y") } else { said == digest.to_string() };
    if is_yes {
        Ok(digest)
    } else {
        Err(Failure::new(Exit::CANCELLED, "nothing was allowed; it goes on waiting"))
    }
}

async fn list(context: &Context) -> Result<Exit, Failure> {
    let session = Some(context.session()?);
    let all = context.ask(requests::Approvals { session }).await?;
    if context.json {
        show::json(&all)?;
    } else {
        print(&all)?;
    }
    Ok(Exit::SUCCEEDED)
}

fn print(all: &ApprovalsInfo) -> Result<(), Failure> {
    if all.pending.is_empty() {
        show::note("nothing waits for leave here");
    }
    for pending in &all.pending {
        print_pending(pending)?;
    }
    if !all.grants.is_empty() {
        let mut table = Table::new(&["GRANT", "SINCE", "ALLOWED ALWAYS", "IN", "FOR"]);
        for grant in &all.grants {
            let whom = grant.client.clone().unwrap_or_else(|| "all".to_owned());
            table.row([
                grant.grant.to_string().into(),
                show::age(grant.at).into(),
                grant.allows.clone().into(),
                grant.directory.as_deref().unwrap_or("-").into(),
                whom.into(),
            ]);
        }
        table.print()?;
    }
    Ok(())
}

/// Whether a list has room for the whole call, also where it is printed to no terminal.
fn is_short(approval: &Approval) -> bool {
    let columns = show::width().unwrap_or(LISTED_COLUMNS);
    approval.card().is_some_and(|card| card::lines(&card, Some(columns)).len() <= LISTED_LINES)
}

/// A call with the digest to allow it by, where it is short enough to be shown whole; else without.
fn print_pending(pending: &PendingInfo) -> Result<(), Failure> {
    let PendingInfo { address, name, approval, .. } = pending;
    let name = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let (call, since) = (approval.call, show::age(approval.since));
    show::line(format!(
        "{address}{name}, call {call}, {since}, asks for leave: {}",
        approval.tool
    ))?;
    match approval.digest {
        Some(digest) if is_short(approval) => {
            whole(approval).iter().try_for_each(show::line)?;
            show::line(format!("  ({})", asking::why(approval)))?;
            show::line(format!("  {}", allows(address, call, digest)))
        }
        _ => {
            asking::elided(approval, show::width()).iter().try_for_each(show::line)?;
            show::line(format!("  ({})", asking::why(approval)))?;
            show::line(format!("  too long for a list: brigade approve {address} {call} --show"))
        }
    }
}
