//! Gives leave, or not.

use brigade_agent::permission::Rule;
use brigade_model::approval::Verdict;
use brigade_server::requests::{self, ApprovalsInfo};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show::{self, Table};

/// Allow or deny what an agent asks leave for; without an address, list it
///
/// Agents ask where their permissions say `ask`. Without more it is allowed this once; with --always
/// the very same is not asked about again in this session, by anybody, and with --rule nothing is that
/// the rule allows. What somebody denies by a rule stays denied. A denial is told to the agent, which
/// goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Approve {
    /// Who asks
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Which of its calls, when several wait
    #[arg(value_name = "CALL", requires = "address")]
    call: Option<u32>,
    /// From now on in this session, not just this once
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
  brigade approve agent:2 8 --always
  brigade approve agent:2 --always --rule 'run_process(cargo *)'
  brigade approve agent:2 --deny --reason 'not before the release'
  brigade approve --revoke 1";

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
        let (target, verdict) = (context.target(address)?, self.verdict());
        let word = verdict.to_string();
        let (mut call, mut line) = (self.call, word.clone());
        if call.is_none() {
            // By its number, so that it is this one and no other that came meanwhile; and it is said
            // which one that was.
            let task = context.ask(requests::Show { target: target.clone() }).await?;
            if let [only] = &task.approvals[..] {
                call = Some(only.call);
                line = format!("{}: {word}", show::one_line(&only.text));
            }
        }
        let asked = context.ask(requests::Approve { target, call, verdict }).await;
        asked.map_err(|failure| {
            failure.not_found_hint("`brigade approve` lists what waits for leave")
        })?;
        let json = serde_json::json!({ "approved": address, "call": call, "verdict": word });
        told(context, json, &line)
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
    } else {
        let mut table =
            Table::new(&["TASK", "CALL", "SINCE", "ASKS FOR LEAVE", "RULE"]).whole("TASK");
        for pending in &all.pending {
            let name = pending.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            table.row([
                format!("{}{name}", pending.address).into(),
                pending.approval.call.to_string().into(),
                show::age(pending.approval.since).into(),
                pending.approval.text.clone().into(),
                pending.approval.rule.clone().into(),
            ]);
        }
        table.print()?;
    }
    if !all.grants.is_empty() {
        let mut table = Table::new(&["GRANT", "SINCE", "ALLOWED ALWAYS", "FOR"]);
        for grant in &all.grants {
            let whom = grant.client.clone().unwrap_or_else(|| "all".to_owned());
            table.row([
                grant.grant.to_string().into(),
                show::age(grant.at).into(),
                grant.allows.clone().into(),
                whom.into(),
            ]);
        }
        table.print()?;
    }
    Ok(())
}
