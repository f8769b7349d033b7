//! Gives leave, or not.

use std::io::{self, IsTerminal, Write};

use brigade_agent::permission::PermissionRule;
use brigade_model::approval::{self, ApprovalVerdict, CallDigest};
use brigade_model::plain_text::PlainText;
use brigade_server::requests::{self, ListApprovalsReply, PendingApprovalItem};
use brigade_server::task_info::ApprovalInfo;
use brigade_server::{TaskInfo, TaskTarget};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};
use crate::{call_card, live_view, pending_input};

/// List pending approvals, or allow or deny one
///
/// Agents ask where their permissions say `ask`. A call is allowed when it has been shown whole: at a
/// terminal it is shown and asked about; elsewhere --show shows it with its digest, and --digest allows
/// exactly that. Without more it is allowed this once; with --always the very same is not asked about
/// again in this session and directory, by anybody, and with --rule nothing is that the rule allows. What
/// somebody denies by a rule stays denied. A denial is told to the agent, which goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApproveArgs {
    /// Who asks
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Which of its calls, when several wait
    #[arg(value_name = "CALL", requires = "address")]
    call: Option<u32>,
    /// Print the whole call, and its digest
    #[arg(long, requires = "address", conflicts_with_all = ["parse_digest", "always", "deny"])]
    show: bool,
    /// Allow the call that was shown with this digest, and no other
    #[arg(long, value_name = "DIGEST", requires = "address", value_parser = parse_digest)]
    digest: Option<CallDigest>,
    /// From now on in this session and directory, not just this once
    #[arg(long, requires = "address")]
    always: bool,
    /// What to allow always, when it is more than this call: 'run_process(cargo *)'
    #[arg(long, value_name = "RULE", value_parser = super::run::parse_rule, requires = "always")]
    rule: Option<PermissionRule>,
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
const LISTED_LINES_MAX: usize = 12;
const LISTED_COLUMNS: usize = 100;

fn parse_digest(text: &str) -> Result<CallDigest, String> {
    text.parse().map_err(|refusal: brigade_model::refusal::Refusal| refusal.message)
}

impl ApproveArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        if let Some(grant) = self.revoke {
            let revoke = requests::RevokeGrantRequest { session: context.session_name()?, grant };
            let asked = context.call(revoke).await;
            asked.map_err(|failure| {
                failure.hint_if_not_found("`brigade approve` lists what is allowed")
            })?;
            return print_confirmation(context, serde_json::json!({ "revoked": grant }), "revoked");
        }
        let Some(address) = &self.address else { return list(context).await };
        let target = context.target(address)?;
        // By its number from here on: somebody else may take the name.
        let task = context.call(requests::ShowTaskRequest { target: target.clone() }).await?;
        let target = TaskTarget { session: task.session.clone(), task: task.address.clone() };
        let meant = self.select_approval(&task)?;
        if self.show {
            return print_call(context, &task, meant.ok_or_else(|| no_approval_error(&task))?);
        }
        let verdict = self.to_verdict();
        let (call, digest) = match meant {
            _ if self.deny => (meant.map(|approval| approval.call).or(self.call), self.digest),
            // What waits no longer was perhaps answered just like this.
            None => (self.call, self.digest),
            Some(approval) => {
                let digest = match self.digest {
                    Some(digest) => Some(digest),
                    None => Some(confirm_call(&task, approval, &verdict)?),
                };
                (Some(approval.call), digest)
            }
        };
        let word = verdict.to_string();
        let line = match meant {
            Some(approval) if verdict == (ApprovalVerdict::AllowAlways { rule: None }) => {
                render_always_allowed(approval)
            }
            Some(approval) => format!("{}: {word}", render::render_one_line(&approval.text)),
            None => word.clone(),
        };
        if digest.is_none() && !self.deny {
            return Err(no_approval_error(&task));
        }
        let asked = context.call(requests::ApproveRequest { target, call, digest, verdict }).await;
        asked.map_err(|failure| {
            failure.hint_if_not_found("`brigade approve` lists what waits for leave")
        })?;
        let json = serde_json::json!({ "approved": address, "call": call, "verdict": word });
        print_confirmation(context, json, &line)
    }

    /// The call that is meant among those that wait.
    fn select_approval<'a>(
        &self,
        task: &'a TaskInfo,
    ) -> Result<Option<&'a ApprovalInfo>, CliError> {
        let meant = |approval: &&ApprovalInfo| {
            self.call.is_none_or(|call| approval.call == call)
                && self.digest.is_none_or(|digest| approval.digest == Some(digest))
        };
        let calls: Vec<&ApprovalInfo> = task.approvals.iter().filter(meant).collect();
        match calls.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            several => {
                let numbers: Vec<String> =
                    several.iter().map(|approval| approval.call.to_string()).collect();
                let numbers = numbers.join(", ");
                let called = render::render_label(task);
                let message =
                    format!("{called} waits for several approvals; say which call: {numbers}");
                Err(CliError::new(CliExitCode::FAILED, message))
            }
        }
    }

    fn to_verdict(&self) -> ApprovalVerdict {
        if self.deny {
            return ApprovalVerdict::Deny {
                reason: self.reason.as_deref().unwrap_or_default().into(),
            };
        }
        if self.always {
            return ApprovalVerdict::AllowAlways { rule: self.rule.clone() };
        }
        ApprovalVerdict::AllowOnce
    }
}

fn print_confirmation(
    context: &CliContext,
    json: serde_json::Value,
    line: &str,
) -> Result<CliExitCode, CliError> {
    if context.json {
        render::print_json(&json)?;
    } else {
        render::print_line(line)?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

/// What is allowed from now on, as `brigade approve` lists it.
fn render_always_allowed(approval: &ApprovalInfo) -> String {
    let what = approval::render_exact_call(&approval.tool, &approval.arguments);
    let directory = approval.directory.as_deref().map(|directory| format!(" in {directory}"));
    PlainText::line(&format!("{what}{}: allowed always", directory.unwrap_or_default()))
        .into_string()
}

fn no_approval_error(task: &TaskInfo) -> CliError {
    let called = render::render_label(task);
    if !task.alive {
        return CliError::new(CliExitCode::FAILED, format!("{called} has ended ({})", task.state));
    }
    CliError::new(CliExitCode::NOT_FOUND, format!("{called} waits for no such approval"))
        .with_hint("`brigade approve` lists what waits for leave")
}

/// Prints a call whole, and how exactly that is allowed.
fn print_call(
    context: &CliContext,
    task: &TaskInfo,
    approval: &ApprovalInfo,
) -> Result<CliExitCode, CliError> {
    if context.json {
        render::print_json(approval)?;
        return Ok(CliExitCode::SUCCEEDED);
    }
    render::print_line(format!(
        "{} asks for leave: {}",
        render::render_label(task),
        approval.tool
    ))?;
    for line in render_call(approval) {
        render::print_line(line)?;
    }
    render::print_line(format!("  ({})", pending_input::render_rule(approval)))?;
    if let Some(digest) = approval.digest {
        render::print_line(format!(
            "  {}",
            render_allow_command(&task.address, approval.call, digest)
        ))?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

fn render_call(approval: &ApprovalInfo) -> Vec<String> {
    match approval.card() {
        Some(card) => call_card::render_card(&card, render::terminal_width()),
        None => pending_input::render_elided_call(approval, render::terminal_width()),
    }
}

fn render_allow_command(address: &str, call: u32, digest: CallDigest) -> String {
    format!("brigade approve {address} {call} --digest {digest}")
}

/// Shows a call whole to whoever sits here, and asks whether it is to be allowed. One that the screen
/// has no room for is allowed by typing its digest, which stands below all of it.
fn confirm_call(
    task: &TaskInfo,
    approval: &ApprovalInfo,
    verdict: &ApprovalVerdict,
) -> Result<CallDigest, CliError> {
    let show = format!("`brigade approve {} {} --show`", task.address, approval.call);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::usage(
            "nothing is allowed that was not shown, and this is no terminal",
        )
        .with_hint(format!("{show} shows it with its digest; `--digest DIGEST` allows that")));
    }
    let screen = live_view::screen_size();
    let Some(digest) = approval.digest else {
        return Err(CliError::usage("the call cannot be shown whole, so it can only be denied"));
    };
    let fits = pending_input::render_whole_call(approval, screen).is_some();
    let mut text = PlainText::line(&format!(
        "{} asks for leave: {}",
        render::render_label(task),
        approval.tool
    ))
    .into_string();
    for line in call_card::render_card(
        &approval.card().ok_or_else(|| no_approval_error(task))?,
        Some(screen.columns),
    ) {
        text.push_str(&format!("\n{line}"));
    }
    text.push_str(&format!("\n  ({})\n", pending_input::render_rule(approval)));
    let what = match verdict {
        ApprovalVerdict::AllowAlways { rule: Some(rule) } => {
            format!("always, as {}", PlainText::line(&rule.to_string()))
        }
        ApprovalVerdict::AllowAlways { rule: None } => "always".to_owned(),
        _ => "once".to_owned(),
    };
    text.push_str(&match fits {
        true => format!("Allow it {what}? [y/n] "),
        false => format!(
            "It is longer than this screen. Digest: {digest}\nType the digest to allow it {what}: "
        ),
    });
    let mut err = io::stderr();
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).map_err(render::output_error)?;
    // An answer is one that was begun below the question.
    live_view::flush_terminal_input();
    let mut said = String::new();
    io::stdin().read_line(&mut said)?;
    let said = said.trim();
    let is_yes = if fits { said.eq_ignore_ascii_case("y") } else { said == digest.to_string() };
    if is_yes {
        Ok(digest)
    } else {
        Err(CliError::new(CliExitCode::CANCELLED, "nothing was allowed; it goes on waiting"))
    }
}

async fn list(context: &CliContext) -> Result<CliExitCode, CliError> {
    let session = Some(context.session_name()?);
    let all = context.call(requests::ListApprovalsRequest { session }).await?;
    if context.json {
        render::print_json(&all)?;
    } else {
        print(&all)?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

fn print(all: &ListApprovalsReply) -> Result<(), CliError> {
    if all.pending.is_empty() {
        render::print_note("nothing waits for leave here");
    }
    for pending in &all.pending {
        print_pending(pending)?;
    }
    if !all.grants.is_empty() {
        let mut table = TextTable::new(&["GRANT", "SINCE", "ALLOWED ALWAYS", "IN", "FOR"]);
        for grant in &all.grants {
            let whom = grant.client.clone().unwrap_or_else(|| "all".to_owned());
            table.add_row([
                grant.grant.to_string().into(),
                render::render_age(grant.granted_at).into(),
                grant.rule.clone().into(),
                grant.directory.as_deref().unwrap_or("-").into(),
                whom.into(),
            ]);
        }
        table.print()?;
    }
    Ok(())
}

/// Whether a list has room for the whole call, also where it is printed to no terminal.
fn is_short(approval: &ApprovalInfo) -> bool {
    let columns = render::terminal_width().unwrap_or(LISTED_COLUMNS);
    approval
        .card()
        .is_some_and(|card| call_card::render_card(&card, Some(columns)).len() <= LISTED_LINES_MAX)
}

/// A call with the digest to allow it by, where it is short enough to be shown whole; else without.
fn print_pending(pending: &PendingApprovalItem) -> Result<(), CliError> {
    let PendingApprovalItem { address, name, approval, .. } = pending;
    let name = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let (call, since) = (approval.call, render::render_age(approval.requested_at));
    render::print_line(format!(
        "{address}{name}, call {call}, {since}, asks for leave: {}",
        approval.tool
    ))?;
    match approval.digest {
        Some(digest) if is_short(approval) => {
            render_call(approval).iter().try_for_each(render::print_line)?;
            render::print_line(format!("  ({})", pending_input::render_rule(approval)))?;
            render::print_line(format!("  {}", render_allow_command(address, call, digest)))
        }
        _ => {
            pending_input::render_elided_call(approval, render::terminal_width())
                .iter()
                .try_for_each(render::print_line)?;
            render::print_line(format!("  ({})", pending_input::render_rule(approval)))?;
            render::print_line(format!(
                "  too long for a list: brigade approve {address} {call} --show"
            ))
        }
    }
}
