//! `brigade approve`: lists, allows and denies pending approvals.

use std::io::{self, IsTerminal};

use brigade_agent::permission::PermissionRule;
use brigade_model::approval::{self, ApprovalVerdict, CallDigest};
use brigade_model::plain_text::PlainText;
use brigade_protocol::requests::{self, ListApprovalsReply, PendingApprovalItem};
use brigade_protocol::task_info::ApprovalInfo;
use brigade_protocol::{TaskInfo, TaskTarget};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};
use crate::{call_card, live_view, pending_input};

/// List pending approvals, or allow or deny one
///
/// A call needs approval where a rule says `ask`. You can allow a call only after it was shown
/// whole: a terminal shows it and asks; elsewhere --show prints it with its digest, and --digest
/// allows exactly that call. By default it is allowed once. --always allows the same call from now
/// on in this session and directory, for all agents; with --rule it allows all calls that the rule
/// matches. A deny rule still denies. The agent gets the denial and continues.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApproveArgs {
    /// Task that waits
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Number of the call, if several wait
    #[arg(value_name = "CALL", requires = "address")]
    call: Option<u32>,
    /// Print the whole call and its digest
    #[arg(long, requires = "address", conflicts_with_all = ["digest", "always", "deny"])]
    show: bool,
    /// Allow the call with this digest, and no other
    #[arg(long, value_name = "DIGEST", requires = "address", value_parser = parse_digest)]
    digest: Option<CallDigest>,
    /// Allow it always in this session and directory
    #[arg(long, requires = "address")]
    always: bool,
    /// Rule to allow always instead of this one call: 'run_process(cargo *)'
    #[arg(long, value_name = "RULE", value_parser = super::run::parse_rule, requires = "always")]
    rule: Option<PermissionRule>,
    /// Deny it
    #[arg(long, requires = "address", conflicts_with = "always")]
    deny: bool,
    /// Reason, shown to the agent
    #[arg(long, value_name = "TEXT", requires = "deny")]
    reason: Option<String>,
    /// List pending approvals and grants
    #[arg(long, conflicts_with_all = ["address", "revoke"])]
    list: bool,
    /// Revoke a grant by its number
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

/// The most lines of a call that the list shows whole, and their width without a terminal.
const LISTED_LINES_MAX: usize = 12;
const LISTED_COLUMNS: usize = 100;

fn parse_digest(text: &str) -> Result<CallDigest, String> {
    text.parse().map_err(|refusal: brigade_model::refusal::Refusal| refusal.message)
}

impl ApproveArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        if let Some(grant) = self.revoke {
            let revoke = requests::RevokeGrantRequest { session: context.session_name()?, grant };
            let reply = context.call(revoke).await;
            reply.map_err(|error| error.hint_if_not_found("`brigade approve` lists the grants"))?;
            return print_confirmation(context, serde_json::json!({ "revoked": grant }), "revoked");
        }
        let Some(address) = &self.address else { return list(context).await };
        let target = context.target(address)?;
        // By its address from here on: another task may take the name.
        let task = context.call(requests::ShowTaskRequest { target: target.clone() }).await?;
        let target = TaskTarget { session: task.session.clone(), task: task.address.clone() };
        let selected = self.select_approval(&task)?;
        if self.show {
            return print_call(context, &task, selected.ok_or_else(|| no_approval_error(&task))?);
        }
        let verdict = self.to_verdict();
        let (call, digest) = match selected {
            _ if self.deny => (selected.map(|approval| approval.call).or(self.call), self.digest),
            // A call that is no longer pending may have been decided by this same request.
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
        let line = match selected {
            Some(approval) if verdict == (ApprovalVerdict::AllowAlways { rule: None }) => {
                render_always_allowed(approval)
            }
            Some(approval) => format!("{}: {word}", render::render_one_line(&approval.text)),
            None => word.clone(),
        };
        if digest.is_none() && !self.deny {
            return Err(no_approval_error(&task));
        }
        let reply = context.call(requests::ApproveRequest { target, call, digest, verdict }).await;
        reply.map_err(|error| {
            error.hint_if_not_found("`brigade approve` lists pending approvals")
        })?;
        let json = serde_json::json!({ "approved": address, "call": call, "verdict": word });
        print_confirmation(context, json, &line)
    }

    /// Returns the pending call that the arguments select.
    fn select_approval<'a>(
        &self,
        task: &'a TaskInfo,
    ) -> Result<Option<&'a ApprovalInfo>, CliError> {
        let matches = |approval: &&ApprovalInfo| {
            self.call.is_none_or(|call| approval.call == call)
                && self.digest.is_none_or(|digest| approval.digest == Some(digest))
        };
        let calls: Vec<&ApprovalInfo> = task.approvals.iter().filter(matches).collect();
        match calls.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            several => {
                let numbers: Vec<String> =
                    several.iter().map(|approval| approval.call.to_string()).collect();
                let numbers = numbers.join(", ");
                let label = render::render_label(task);
                let message = format!("{label} needs several approvals; name the call: {numbers}");
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

/// Renders a new grant as `brigade approve` lists it.
fn render_always_allowed(approval: &ApprovalInfo) -> String {
    let call = approval::render_exact_call(&approval.tool, &approval.arguments);
    let directory = approval.directory.as_deref().map(|directory| format!(" in {directory}"));
    PlainText::line(&format!("{call}{}: allowed always", directory.unwrap_or_default()))
        .into_string()
}

fn no_approval_error(task: &TaskInfo) -> CliError {
    let label = render::render_label(task);
    if !task.alive {
        return CliError::new(CliExitCode::FAILED, format!("{label} has ended ({})", task.state));
    }
    CliError::new(CliExitCode::NOT_FOUND, format!("{label} has no such pending approval"))
        .with_hint("`brigade approve` lists pending approvals")
}

/// Prints a whole call, and the command line that allows it.
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
        "{} needs approval: {}",
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

/// Shows a whole call on the terminal, and asks whether to allow it. A call that does not fit the
/// screen is allowed by typing the digest below it.
fn confirm_call(
    task: &TaskInfo,
    approval: &ApprovalInfo,
    verdict: &ApprovalVerdict,
) -> Result<CallDigest, CliError> {
    let show_command = format!("`brigade approve {} {} --show`", task.address, approval.call);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::usage("the call was not shown, and this is not a terminal")
            .with_hint(format!(
                "{show_command} shows it with its digest; `--digest DIGEST` allows it"
            )));
    }
    let screen = live_view::screen_size();
    let Some(digest) = approval.digest else {
        return Err(CliError::usage("the call cannot be shown whole; deny it with --deny"));
    };
    let fits = pending_input::render_whole_call(approval, screen).is_some();
    let mut text = PlainText::line(&format!(
        "{} needs approval: {}",
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
    let extent = match verdict {
        ApprovalVerdict::AllowAlways { rule: Some(rule) } => {
            format!("always, as {}", PlainText::line(&rule.to_string()))
        }
        ApprovalVerdict::AllowAlways { rule: None } => "always".to_owned(),
        _ => "once".to_owned(),
    };
    text.push_str(&match fits {
        true => format!("Allow it {extent}? [y/n] "),
        false => format!(
            "It is longer than this screen. Digest: {digest}\nType the digest to allow it {extent}: "
        ),
    });
    live_view::write_question(&text)?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let answer = line.trim();
    let is_yes = if fits { answer.eq_ignore_ascii_case("y") } else { answer == digest.to_string() };
    if is_yes {
        Ok(digest)
    } else {
        Err(CliError::new(CliExitCode::CANCELLED, "nothing was allowed; the call stays pending"))
    }
}

async fn list(context: &CliContext) -> Result<CliExitCode, CliError> {
    let session = Some(context.session_name()?);
    let reply = context.call(requests::ListApprovalsRequest { session }).await?;
    if context.json {
        render::print_json(&reply)?;
    } else {
        print(&reply)?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

fn print(reply: &ListApprovalsReply) -> Result<(), CliError> {
    if reply.pending.is_empty() {
        render::print_note("no pending approvals");
    }
    for pending in &reply.pending {
        print_pending(pending)?;
    }
    if !reply.grants.is_empty() {
        let mut table = TextTable::new(&["GRANT", "SINCE", "ALLOWED ALWAYS", "IN", "FOR"]);
        for grant in &reply.grants {
            let client = grant.client.clone().unwrap_or_else(|| "all".to_owned());
            table.add_row([
                grant.grant.to_string().into(),
                render::render_age(grant.granted_at).into(),
                grant.rule.clone().into(),
                grant.directory.as_deref().unwrap_or("-").into(),
                client.into(),
            ]);
        }
        table.print()?;
    }
    Ok(())
}

/// Returns true if the whole call fits the list, also without a terminal.
fn is_short(approval: &ApprovalInfo) -> bool {
    let columns = render::terminal_width().unwrap_or(LISTED_COLUMNS);
    approval
        .card()
        .is_some_and(|card| call_card::render_card(&card, Some(columns)).len() <= LISTED_LINES_MAX)
}

/// Prints a pending approval. A short call is printed whole, with the command line that allows it.
fn print_pending(pending: &PendingApprovalItem) -> Result<(), CliError> {
    let PendingApprovalItem { address, name, approval, .. } = pending;
    let name = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let call = approval.call;
    let age = render::render_age(approval.requested_at);
    render::print_line(format!(
        "{address}{name}, call {call}, {age}, needs approval: {}",
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
