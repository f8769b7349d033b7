//! Runs an agent.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_agent::{AgentOverrides, ClientTool};
use brigade_model::json::Json;
use brigade_model::limits::{Limits, Money};
use brigade_model::outcome::Outcome;
use brigade_model::plain_text::PlainText;
use brigade_model::stall::StallPolicy;
use brigade_server::requests::{self, AgentInfo, ListAgentsRequest, StartReply};
use brigade_server::{DaemonConnection, TaskInfo, TaskTarget};
use tokio::io::AsyncReadExt;

use crate::attach::{AttachResult, OutputDisplay, TaskAttachment};
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::limit_args::LimitArgs;
use crate::live_view::LiveView;
use crate::override_args::OverrideArgs;
use crate::sandbox_args::SandboxArgs;
use crate::{configured_models, duration, render};

use super::exec::{print_started, render_still_running};
use super::trust::{self, TrustAnswer};

/// Give an agent a task, and see it and all that it starts through
///
/// What it and its sub-agents do appears here as it happens, and its result on the standard output. It
/// may delegate to sub-agents, wait, ask, and read, list and search the files of this directory. Files it
/// may write (write_file, edit_file) where --allow says so, or the definition that --agent names; commands
/// it may run (run_process) only where --allow says so. It ends when nothing that it started runs any
/// more. When this terminal goes away the agent goes on; `brigade wait` and `brigade show` find it again.
/// Ctrl-C asks it to stop, a second one forces it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// What it is to do; `-` reads it from the standard input
    #[arg(value_name = "PROMPT")]
    prompt: String,
    /// Which definition it is made from; `brigade agents` lists them
    #[arg(long, short, value_name = "NAME")]
    agent: Option<String>,
    /// The model, as provider/model, instead of the definition's or the configured one
    #[arg(long, short, value_name = "MODEL")]
    model: Option<String>,
    /// Write all that its model is asked and says to a file, to be played again with --model replay:FILE
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The most that it and all below it may use: dollars as $2.50, tokens as 500k, or both: $1,200k
    #[arg(long, short, value_name = "AMOUNT", value_parser = parse_budget)]
    budget: Option<Limits>,
    /// End it as failed when it has run for this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration)]
    deadline: Option<Duration>,
    /// When nothing happens for this long, nudge it, and the next time end it as failed; or off
    #[arg(long, value_name = "TIME|off", value_parser = parse_stall)]
    stall: Option<StallPolicy>,
    /// Let it use a tool, as edit_file, or some calls of one, as 'run_process(cargo *)' or 'write_file(src/**)'
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    allow: Vec<PermissionRule>,
    /// Ask before it uses a tool or makes some calls of one: here, or `brigade approve` elsewhere
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    ask: Vec<PermissionRule>,
    /// Keep it from a tool or some calls of one, whatever else allows them
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    deny: Vec<PermissionRule>,
    /// Give it the tools of an MCP server of the configuration, all of them unless --deny says otherwise
    #[arg(long, value_name = "SERVER")]
    mcp: Vec<String>,
    /// What to call it: unique among what runs here
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// With the same key it is the same agent: started once, however often it is asked for
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Settings that its definition asks for, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    config: Option<Json>,
    /// A file with a JSON schema that its result must fit
    #[arg(long, value_name = "FILE")]
    result_schema: Option<PathBuf>,
    /// Nobody is there to be asked: deny what is to be asked about. So it is too without a terminal
    #[arg(long)]
    unattended: bool,
    /// Print its address and return at once
    #[arg(long, short)]
    detach: bool,
    /// Stay no longer than this; then it goes on in the background and the exit code is 124, or 123
    /// when it waits for an answer
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration, conflicts_with = "detach")]
    timeout: Option<Duration>,
    #[command(flatten)]
    overrides: OverrideArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

const EXAMPLES: &str = "\
Examples:
  brigade run 'What is this project about?'
  brigade run --allow edit_file --allow 'run_process(cargo *)' 'Mend the tests'
  brigade run --allow run_process --ask 'run_process(git push*)' 'Release it'
  brigade run --allow run_process --confine --confine-read ~/.cargo 'Run tests'
  brigade run --agent reviewer --budget '$0.50' 'Review the last commit'
  brigade run --mcp github 'Which issues were opened this week?'
  brigade run --effort high --client-tools editor.json 'Show me the parser'
  brigade run -d --name Research 'Compare the three designs in docs/'
  brigade wait Research && brigade show Research";

impl RunArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let mut client = context.connect_daemon().await?;
        let request = self.to_request(context, &mut client).await?;
        let session = request.session.clone();
        let mut started = context.call_over(&mut client, request).await.map_err(|failure| {
            if failure.is_not_found() {
                failure.with_hint("`brigade agents` lists those that can be run here")
            } else if Self::is_missing_server(context, &failure) {
                failure.with_hint(
                    "it is in the configuration: the daemon after `brigade daemon stop` has it",
                )
            } else {
                failure
            }
        })?;
        started.forget_existed_without_key(self.key.as_deref());
        let address = started.task.address.clone();
        if self.detach {
            print_started(context, &started, &address)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let target = TaskTarget { session, task: address.clone() };
        let (live, aside) = LiveView::new(context, target.clone());
        let mut live = if self.timeout.is_none() { live.exit_on_question() } else { live };
        let attachment = TaskAttachment::new(context, target, OutputDisplay::Hidden, self.timeout)?;
        let attended = tokio::select! {
            attended = attachment.with_notice_sender(aside).run(client.clone()) => attended,
            left = live.run(client) => left.map(|()| AttachResult::StillRunning),
        };
        live.finish().await?;
        let attended =
            attended.inspect_err(|_| render::print_note(&render_still_running(&address)))?;
        report_result(context, started, attended, live.root())
    }

    async fn to_request(
        &self,
        context: &CliContext,
        client: &mut DaemonConnection,
    ) -> Result<requests::RunRequest, CliError> {
        let cwd = trust::current_directory()?;
        let defined = self.find_definition(context, client, &cwd).await?;
        let mut limits = self.limits.add_to(self.budget.unwrap_or_default());
        limits.time = self.deadline.map(Into::into);
        limits.stall = self.stall;
        let model = self.resolve_model(context, defined.as_ref())?;
        let overrides = self.overrides.to_overrides()?;
        let result_schema = match &self.result_schema {
            Some(path) => {
                let wrong =
                    |problem: String| CliError::usage(format!("{}: {problem}", path.display()));
                let text =
                    std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
                Some(Json::parse(&text).map_err(|refusal| wrong(refusal.message))?)
            }
            None => None,
        };
        Ok(requests::RunRequest {
            name: self.name.clone(),
            key: Some(self.key.clone().unwrap_or_else(brigade_runtime::new_key)),
            agent: self.agent.clone(),
            model,
            config: self.config.clone(),
            result_schema,
            cwd: Some(cwd),
            limits: Box::new(limits),
            permissions: self.permissions(defined.as_ref(), &overrides)?,
            unattended: self.is_unattended(context),
            sandbox: self.sandbox.to_sandbox_request()?,
            resources: self.sandbox.to_resources(),
            mcp_servers: self.mcp.clone(),
            overrides: (!overrides.is_empty()).then(|| Box::new(overrides)),
            ..requests::RunRequest::new(context.session_name()?, self.read_prompt().await?)
        })
    }

    /// The model, where it is not left to the definition.
    fn resolve_model(
        &self,
        context: &CliContext,
        defined: Option<&AgentInfo>,
    ) -> Result<Option<String>, CliError> {
        let Some(file) = &self.record else {
            return self.model.as_deref().map(configured_models::absolute_model).transpose();
        };
        let model = self.model.as_deref().or(defined.and_then(|defined| defined.model.as_deref()));
        let model = model.or(context.config.model.as_deref());
        model.map(|model| configured_models::recording_model(model, file)).transpose()
    }

    async fn read_prompt(&self) -> Result<String, CliError> {
        if self.prompt != "-" {
            return Ok(self.prompt.clone());
        }
        let mut text = String::new();
        tokio::io::stdin().read_to_string(&mut text).await?;
        Ok(text)
    }

    /// All tools but the shell and those that write, and what was allowed besides: here, or by a
    /// definition that was asked for by its name.
    fn permissions(
        &self,
        defined: Option<&AgentInfo>,
        overrides: &AgentOverrides,
    ) -> Result<PermissionRules, CliError> {
        let writes =
            defined.filter(|_| self.agent.is_some()).map(|defined| defined.write_rules.clone());
        let of_server =
            |server: &String| parse_rule(&format!("{server}__*")).map_err(CliError::usage);
        let of_servers: Result<Vec<PermissionRule>, CliError> =
            self.mcp.iter().map(of_server).collect();
        let of_client = |tool: &ClientTool| parse_rule(&tool.name).map_err(CliError::usage);
        // To allow what is denied whole would be a rule that cannot match.
        let is_denied =
            |tool: &&ClientTool| self.deny.iter().any(|rule| rule.to_string() == tool.name);
        let given = overrides.client_tools.iter().filter(|tool| !is_denied(tool));
        let of_client = given.map(of_client);
        let of_client: Result<Vec<PermissionRule>, CliError> = of_client.collect();
        let more = self.allow.iter().cloned().chain(of_servers?).chain(of_client?);
        let usual =
            requests::RunRequest::default_permissions(more.chain(writes.into_iter().flatten()));
        Ok(PermissionRules { ask: self.ask.clone(), deny: self.deny.clone(), ..usual })
    }

    /// Whoever leaves it to itself comes back to it; whoever stays with it has a terminal, or is a
    /// program that nobody looks at.
    fn is_unattended(&self, context: &CliContext) -> bool {
        let seen = std::io::stderr().is_terminal() && !context.json;
        self.unattended || !self.detach && !seen
    }

    /// Whether a server is missing that was configured after the daemon was started.
    fn is_missing_server(context: &CliContext, failure: &CliError) -> bool {
        let mut configured = context.config.mcp_servers.keys();
        configured.any(|name| failure.message_contains(&format!("MCP server {name:?}")))
    }

    /// What a definition wants is not yet what it may have: it may come with a repository.
    fn print_server_notes(&self, agent: &str, wanted: &[String]) {
        for server in wanted.iter().filter(|server| !self.mcp.contains(server)) {
            let begins =
                |rule: &PermissionRule| rule.to_string().starts_with(&format!("{server}__"));
            if !self.allow.iter().any(begins) {
                render::print_note(&format!(
                    "{agent} names the MCP server {server}, which it may not use; --mcp {server} \
                     lets it"
                ));
            }
        }
        let has = |server: &str| self.mcp.iter().chain(wanted).any(|given| given == server);
        for rule in &self.allow {
            let server = rule.tool().split_once("__").map(|(server, _)| server);
            if let Some(server) = server.filter(|server| !server.contains('*') && !has(server)) {
                render::print_note(&format!(
                    "--allow '{rule}' gives {agent} nothing: it does not have the MCP server {server}, \
                     which --mcp {server} or `mcp_servers` of its definition gives it"
                ));
            }
        }
    }

    /// The definition that is meant. Says what is missing before anything starts.
    async fn find_definition(
        &self,
        context: &CliContext,
        client: &mut DaemonConnection,
        cwd: &str,
    ) -> Result<Option<AgentInfo>, CliError> {
        let known = context
            .call_over(client, ListAgentsRequest { cwd: cwd.to_owned(), lang: None })
            .await?;
        let agent = self.agent.as_deref().unwrap_or("general");
        let is_meant =
            |known: &AgentInfo| known.name == agent || known.origin.qualify(&known.name) == agent;
        let Some(defined) = known.agents.into_iter().find(is_meant) else {
            // The daemon knows better what is to be said of it.
            return Ok(None);
        };
        if defined.untrusted && !self.is_unattended(context) {
            return self.confirm_trust(context, client, defined, cwd).await;
        }
        self.check_definition(context, defined).map(Some)
    }

    /// The definition, once somebody was asked whether to trust it.
    async fn confirm_trust(
        &self,
        context: &CliContext,
        client: &mut DaemonConnection,
        mut defined: AgentInfo,
        cwd: &str,
    ) -> Result<Option<AgentInfo>, CliError> {
        let name = defined.name.clone();
        let granted = trust::is_at_terminal()
            && trust::ask_for_trust(context, client, cwd.to_owned()).await? == TrustAnswer::Granted;
        if granted {
            let known = ListAgentsRequest { cwd: cwd.to_owned(), lang: None };
            let known = context.call_over(client, known).await?.agents;
            match known.into_iter().find(|known| known.name == name) {
                Some(known) => defined = known,
                None => return Ok(None),
            }
        }
        if defined.untrusted {
            render::print_note(&format!(
                "{name} is not trusted: it writes no files, runs no processes and uses no MCP \
                 servers; `brigade trust show` shows it"
            ));
        }
        self.check_definition(context, defined).map(Some)
    }

    fn check_definition(
        &self,
        context: &CliContext,
        defined: AgentInfo,
    ) -> Result<AgentInfo, CliError> {
        self.print_server_notes(&defined.name, &defined.mcp_servers);
        let model = self
            .model
            .clone()
            .or_else(|| defined.model.clone())
            .or_else(|| context.config.model.clone());
        configured_models::check_model(model.as_deref(), &context.config)?;
        Ok(defined)
    }
}

fn report_result(
    context: &CliContext,
    started: StartReply,
    attended: AttachResult,
    seen: Option<&TaskInfo>,
) -> Result<CliExitCode, CliError> {
    let address = &started.task.address;
    let question = seen.and_then(|task| task.questions.first());
    let leave = seen.and_then(|task| task.approvals.first());
    let (exit, note) = match attended {
        AttachResult::Ended(task) | AttachResult::EndedWithGaps(task, _) => {
            let exit = CliExitCode::for_task(&task);
            if context.json {
                render::print_json(&StartReply { task: *task, existed: started.existed })?;
            } else {
                print_task_result(&task)?;
            }
            return Ok(exit);
        }
        AttachResult::StillRunning if leave.is_some() => {
            let then = format!("`brigade approve {address} --show`, then `brigade wait {address}`");
            (CliExitCode::INPUT_REQUIRED, format!("{address} waits for leave: {then}"))
        }
        AttachResult::StillRunning => match question {
            Some(question) => {
                let (verb, text) = (question.verb(), PlainText::of(&question.text));
                render::print_note(&format!("{address} {verb}: {text}"));
                let then =
                    format!("`brigade answer {address} TEXT`, then `brigade wait {address}`");
                (CliExitCode::INPUT_REQUIRED, format!("it waits for the answer: {then}"))
            }
            None => (CliExitCode::TIMED_OUT, render_still_running(address)),
        },
        AttachResult::Detached => (
            CliExitCode::INTERRUPTED,
            format!("{address} was told to end; `brigade show {address}` says how"),
        ),
    };
    render::print_note(&note);
    if context.json {
        let task = seen.unwrap_or(&started.task).clone();
        render::print_json(&StartReply { task, ..started })?;
    }
    Ok(exit)
}

/// The result goes to the output; how it ended otherwise beside it. Whoever stopped it wants no part
/// of one there: `brigade show` has it.
fn print_task_result(task: &TaskInfo) -> Result<(), CliError> {
    let is_stopped = matches!(&task.outcome, Some(Outcome::Cancelled(one)) if one.late.is_none());
    if let Some(result) = task.result.as_ref().filter(|_| !is_stopped) {
        let text: String = result.decode().unwrap_or_else(|_| result.as_str().to_owned());
        render::print_result(&text)?;
    }
    if matches!(task.outcome, Some(Outcome::Succeeded { .. })) {
        return Ok(());
    }
    let detail = task.detail.as_deref().unwrap_or(&task.state);
    render::print_note(&format!("{} {detail}", task.address));
    if CliExitCode::for_task(task) == CliExitCode::BUDGET_EXHAUSTED {
        let more = format!("brigade resume {} --budget AMOUNT", task.address);
        render::print_note(&format!("with more to spend it goes on: `{more}`"));
    }
    if let Some(hint) = configured_models::model_failure_hint(detail) {
        render::print_note(&hint);
    }
    Ok(())
}

pub(super) fn parse_budget(text: &str) -> Result<Limits, String> {
    let wrong = || format!("{text:?} is no amount; write dollars as $2.50, tokens as 500k");
    let mut limits = Limits::default();
    for part in text.split(',').map(str::trim) {
        if let Some(dollars) = part.strip_prefix('$') {
            let dollars: f64 = dollars.parse().map_err(|_| wrong())?;
            if !(0.0..=1e9).contains(&dollars) {
                return Err(wrong());
            }
            limits.money = Some(Money((dollars * 1e6).round() as u64));
            continue;
        }
        let (digits, times) = match part.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1_000),
            None => match part.strip_suffix(['m', 'M']) {
                Some(digits) => (digits, 1_000_000),
                None => (part, 1),
            },
        };
        let tokens: u64 = digits.trim().parse().map_err(|_| wrong())?;
        limits.tokens = Some(tokens.checked_mul(times).ok_or_else(wrong)?);
    }
    Ok(limits)
}

pub(super) fn parse_stall(text: &str) -> Result<StallPolicy, String> {
    if text == "off" {
        return Ok(StallPolicy::Off);
    }
    match duration::parse_duration(text) {
        Ok(span) if !span.is_zero() => Ok(StallPolicy::after(span)),
        Ok(_) => Err("without any silence nothing could run; `off` allows it all".to_owned()),
        Err(problem) => Err(format!("{problem}; or write off")),
    }
}

pub(super) fn parse_rule(text: &str) -> Result<PermissionRule, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn parse_json(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|refusal| refusal.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silences() {
        assert_eq!(parse_stall("off"), Ok(StallPolicy::Off));
        assert_eq!(parse_stall("10m"), Ok(StallPolicy::after(Duration::from_secs(600))));
        for wrong in ["0", "never", "-1s", ""] {
            assert!(parse_stall(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn amounts() {
        let both = parse_budget("$1.50, 200k").unwrap();
        assert_eq!((both.money, both.tokens), (Some(Money(1_500_000)), Some(200_000)));
        assert_eq!(parse_budget("3m").unwrap().tokens, Some(3_000_000));
        assert_eq!(parse_budget("77").unwrap().tokens, Some(77));
        for wrong in ["", "$", "$-1", "k", "1.5k", "99999999999999999999", "2 euros"] {
            assert!(parse_budget(wrong).is_err(), "{wrong:?}");
        }
    }
}
