//! `brigade run`: runs an agent.

use brigade_model::duration::parse_duration;
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
use brigade_model::token_count::parse_tokens;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{self, AgentInfo, ListAgentsRequest, StartReply};
use brigade_protocol::{TaskInfo, TaskTarget};
use tokio::io::AsyncReadExt;

use crate::attach::{AttachResult, OutputDisplay, TaskAttachment, listen_for_interrupts};
use crate::configured_notifiers::to_requested_notifier;
use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::limit_args::LimitArgs;
use crate::live_view::LiveView;
use crate::override_args::OverrideArgs;
use crate::sandbox_args::SandboxArgs;
use crate::{configured_models, render};

use self::program_notes::NoteOptions;
use super::exec::{print_started, render_still_running};
use super::trust::{self, TrustAnswer};

mod failure_text;
mod program_notes;

/// Give an agent a task, and stay with it until it ends
///
/// Shows the progress of the agent and its descendants on stderr, and prints the result to stdout.
/// The agent may delegate to sub-agents, wait, ask, and read, list and search the files of this
/// directory. It may write files (write_file, edit_file) where --allow or the definition that
/// --agent names permits it. It may run processes (run_process) only where --allow permits it. An
/// agent program (--agent claude) that asks before its calls gets your approval or denial. It
/// ends after all its descendants. If this terminal closes, the agent keeps running; find it again
/// with `brigade wait` and `brigade show`. Ctrl-C asks it to stop, a second one forces it, a third
/// one detaches.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Task of the agent; `-` reads it from stdin
    #[arg(value_name = "PROMPT")]
    prompt: String,
    /// Agent definition or agent program (claude, codex) to use; `brigade agents` lists them
    #[arg(long, short, value_name = "NAME")]
    agent: Option<String>,
    /// Model as provider/model, instead of the definition's or the configured one
    #[arg(long, short, value_name = "MODEL")]
    model: Option<String>,
    /// Record all model calls to FILE; replay with --model replay:FILE
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Budget of the agent and its descendants: dollars as $2.50, tokens as 500k, or both: $1,200k
    #[arg(long, short, value_name = "AMOUNT", value_parser = parse_budget)]
    budget: Option<Limits>,
    /// End the task as failed after this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// After this long without activity, nudge the agent, then end it as failed; `off` disables
    #[arg(long, value_name = "TIME|off", value_parser = parse_stall)]
    stall: Option<StallPolicy>,
    /// Allow a tool or some of its calls: edit_file, 'run_process(cargo *)', 'write_file(src/**)'
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    allow: Vec<PermissionRule>,
    /// Require approval for a tool or some of its calls: here, or with `brigade approve`
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    ask: Vec<PermissionRule>,
    /// Deny a tool or some of its calls, whatever else allows it
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    deny: Vec<PermissionRule>,
    /// Allow the tools of a configured MCP server, all of them unless --deny names some
    #[arg(long, value_name = "SERVER")]
    mcp: Vec<String>,
    /// Name of the task, unique among running tasks of this workspace
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Idempotency key: the same key starts the task once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Settings for the definition, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    config: Option<Json>,
    /// JSON schema of the result
    #[arg(long, value_name = "FILE")]
    result_schema: Option<PathBuf>,
    /// Deny calls that need approval (the default without a terminal)
    #[arg(long)]
    unattended: bool,
    /// Work in a git worktree of its own, on a new branch from HEAD; removed if it holds no work
    #[arg(long)]
    worktree: bool,
    /// Call this notifier of the daemon's configuration for the task, else all of them
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true)]
    notify: Option<Option<String>>,
    /// Print the address and return at once
    #[arg(long, short)]
    detach: bool,
    /// Wait at most this long; the task keeps running and the exit code is 124, or 123 if input is
    /// required
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "detach")]
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
  brigade run --allow edit_file --allow 'run_process(cargo *)' 'Fix the tests'
  brigade run --allow run_process --ask 'run_process(git push*)' 'Release it'
  brigade run --allow run_process --sandbox --sandbox-read ~/.cargo 'Run tests'
  brigade run --agent claude --allow edit_file 'Fix the test'
  brigade run --agent reviewer --budget '$0.50' 'Review the last commit'
  brigade run --mcp github 'Which issues were opened this week?'
  brigade run --effort high --client-tools editor.json 'Show me the parser'
  brigade run --worktree --allow edit_file 'Rename the parser'
  brigade run -d --name Research 'Compare the three designs in docs/'
  brigade wait Research && brigade show Research";

impl RunArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let client = context.connect_daemon().await?;
        let cwd = trust::current_directory()?;
        let definition = self.find_definition(context, &client, &cwd).await?;
        let request = self.to_request(context, definition.as_ref(), cwd).await?;
        let session = request.session.clone();
        let program = definition.as_ref().and_then(|definition| definition.runs.as_deref());
        if let (Some(program), Some(sandbox), Some(cwd)) = (program, &request.sandbox, &request.cwd)
        {
            program_notes::print_hidden_parts(&client, program, sandbox, cwd).await;
        }
        let interrupts = listen_for_interrupts()?;
        let mut started = call_over(&client, request).await.map_err(|error| {
            if error.is_not_found() {
                error.with_hint("`brigade agents` lists the definitions of this directory")
            } else if Self::is_missing_server(context, &error) {
                error.with_hint(
                    "the configuration has it: run `brigade daemon stop`, and the next daemon has it",
                )
            } else {
                error
            }
        })?;
        started.forget_existed_without_key(self.key.as_deref());
        let address = started.task.address.clone();
        if self.detach {
            print_started(context, &started, &address)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let target = TaskTarget { session, task: address.clone() };
        let (live, notice_sender) = LiveView::new(context, target.clone());
        let mut live = if self.timeout.is_none() { live.exit_on_question() } else { live };
        let display = OutputDisplay::Hidden;
        let attachment = TaskAttachment::new(target.clone(), display, self.timeout, interrupts);
        let result = tokio::select! {
            attached = attachment.with_notice_sender(notice_sender).run(client.clone()) => attached,
            stuck = live.run(client.clone()) => stuck.map(|()| AttachResult::StillRunning),
        };
        live.finish().await?;
        let result = result.inspect_err(|_| render::print_note(&render_still_running(&address)))?;
        let ended = match &result {
            AttachResult::Ended(task) | AttachResult::EndedWithGaps(task, _) => Some(task.clone()),
            _ => None,
        };
        let exit = report_result(context, started, result, &live)?;
        if let (Some(task), Some(definition)) = (ended, &definition) {
            let options = NoteOptions {
                definition,
                is_unattended: self.is_unattended(context),
                denies_writing: self.deny.iter().any(|rule| is_writing_tool(rule.tool())),
            };
            program_notes::print_run_notes(&client, &target, &task, options).await;
        }
        Ok(exit)
    }

    async fn to_request(
        &self,
        context: &CliContext,
        definition: Option<&AgentInfo>,
        cwd: String,
    ) -> Result<requests::RunRequest, CliError> {
        let mut limits = self.limits.add_to(self.budget.unwrap_or_default());
        limits.time = self.deadline.map(Into::into);
        limits.stall = self.stall;
        let model = self.resolve_model(context, definition)?;
        let overrides = self.overrides.to_overrides()?;
        let result_schema = match &self.result_schema {
            Some(path) => {
                let invalid =
                    |problem: String| CliError::usage(format!("{}: {problem}", path.display()));
                let text =
                    std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
                Some(Json::parse(&text).map_err(|refusal| invalid(refusal.message))?)
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
            permissions: self.permissions(definition, &overrides)?,
            unattended: self.is_unattended(context),
            worktree: self.worktree,
            notify: to_requested_notifier(self.notify.as_ref()),
            sandbox: self.sandbox.to_sandbox_request()?,
            resources: self.sandbox.to_resources(),
            mcp_servers: self.mcp.clone(),
            overrides: (!overrides.is_empty()).then(|| Box::new(overrides)),
            ..requests::RunRequest::new(context.session_name()?, self.read_prompt().await?)
        })
    }

    /// Returns the model of the request, if the definition does not decide it.
    fn resolve_model(
        &self,
        context: &CliContext,
        definition: Option<&AgentInfo>,
    ) -> Result<Option<String>, CliError> {
        let Some(file) = &self.record else {
            return self.model.as_deref().map(configured_models::absolute_model).transpose();
        };
        let model =
            self.model.as_deref().or(definition.and_then(|definition| definition.model.as_deref()));
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

    /// Builds the permission rules: the default tools, those of `--allow`, `--mcp` and
    /// `--client-tools`, and the write tools of a definition that `--agent` names.
    fn permissions(
        &self,
        definition: Option<&AgentInfo>,
        overrides: &AgentOverrides,
    ) -> Result<PermissionRules, CliError> {
        let write_rules = definition
            .filter(|_| self.agent.is_some())
            .map(|definition| definition.write_rules.clone());
        let server_rule =
            |server: &String| parse_rule(&format!("{server}__*")).map_err(CliError::usage);
        let server_rules: Result<Vec<PermissionRule>, CliError> =
            self.mcp.iter().map(server_rule).collect();
        let client_rule = |tool: &ClientTool| parse_rule(&tool.name).map_err(CliError::usage);
        // A rule for a tool that is denied whole could never match.
        let is_denied =
            |tool: &&ClientTool| self.deny.iter().any(|rule| rule.to_string() == tool.name);
        let allowed = overrides.client_tools.iter().filter(|tool| !is_denied(tool));
        let client_rules: Result<Vec<PermissionRule>, CliError> =
            allowed.map(client_rule).collect();
        let extra = self.allow.iter().cloned().chain(server_rules?).chain(client_rules?);
        let allow: Vec<PermissionRule> = extra.chain(write_rules.into_iter().flatten()).collect();
        let runs_program = definition.is_some_and(|definition| definition.runs.is_some());
        let asked = match runs_program {
            true => self.rules_without_flag(&allow),
            false => Vec::new(),
        };
        let ask = self.ask.iter().cloned().chain(asked.iter().cloned()).collect();
        let defaults = requests::RunRequest::default_permissions(allow.into_iter().chain(asked));
        Ok(PermissionRules { ask, deny: self.deny.clone(), ..defaults })
    }

    /// Returns rules for the tools that change something and that no other rule names. An agent
    /// program has such tools in any case, so a person is asked about their calls. An unattended run
    /// denies them and records it.
    fn rules_without_flag(&self, allow: &[PermissionRule]) -> Vec<PermissionRule> {
        let given = || allow.iter().chain(&self.ask).chain(&self.deny);
        let is_given = |tool: &&str| given().any(|rule| rule.tool() == *tool);
        writing_tools()
            .filter(|tool| !is_given(tool))
            .filter_map(|tool| tool.parse().ok())
            .collect()
    }

    /// Returns true if nobody can approve calls: a detached run is approved later, any other needs
    /// a terminal.
    fn is_unattended(&self, context: &CliContext) -> bool {
        let is_visible = std::io::stderr().is_terminal() && !context.json;
        self.unattended || !self.detach && !is_visible
    }

    /// Returns true if the error names a server that was configured after the daemon started.
    fn is_missing_server(context: &CliContext, error: &CliError) -> bool {
        let mut configured = context.config.mcp_servers.keys();
        context.server().is_none()
            && configured.any(|name| error.message_contains(&format!("MCP server {name:?}")))
    }

    /// Notes servers that the definition names and the rules do not permit: it may come from a
    /// repository.
    fn print_server_notes(&self, agent: &str, wanted: &[String]) {
        for server in wanted.iter().filter(|server| !self.mcp.contains(server)) {
            let is_of_server =
                |rule: &PermissionRule| rule.to_string().starts_with(&format!("{server}__"));
            if !self.allow.iter().any(is_of_server) {
                render::print_note(&format!(
                    "{agent} names the MCP server {server}, which it may not use; --mcp {server} \
                     lets it"
                ));
            }
        }
        let has = |server: &str| self.mcp.iter().chain(wanted).any(|name| name == server);
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

    /// Returns the definition to run. Reports a missing model or key before anything starts.
    async fn find_definition(
        &self,
        context: &CliContext,
        client: &DaemonClient,
        cwd: &str,
    ) -> Result<Option<AgentInfo>, CliError> {
        let known =
            call_over(client, ListAgentsRequest { cwd: cwd.to_owned(), lang: None }).await?;
        let agent = self.agent.as_deref().unwrap_or("general");
        let is_named =
            |known: &AgentInfo| known.name == agent || known.origin.qualify(&known.name) == agent;
        let Some(definition) = known.agents.into_iter().find(is_named) else {
            // The daemon reports an unknown definition with suggestions.
            return Ok(None);
        };
        if definition.untrusted && !self.is_unattended(context) {
            return self.confirm_trust(context, client, definition, cwd).await;
        }
        self.check_definition(context, definition).map(Some)
    }

    /// Asks whether to trust a definition, and returns it.
    async fn confirm_trust(
        &self,
        context: &CliContext,
        client: &DaemonClient,
        mut definition: AgentInfo,
        cwd: &str,
    ) -> Result<Option<AgentInfo>, CliError> {
        let name = definition.name.clone();
        let granted = trust::is_at_terminal()
            && trust::ask_for_trust(client, cwd.to_owned()).await? == TrustAnswer::Granted;
        if granted {
            let known = ListAgentsRequest { cwd: cwd.to_owned(), lang: None };
            let known = call_over(client, known).await?.agents;
            match known.into_iter().find(|known| known.name == name) {
                Some(known) => definition = known,
                None => return Ok(None),
            }
        }
        if definition.untrusted {
            render::print_note(&format!(
                "{name} is not trusted: it writes no files, runs no processes and uses no MCP \
                 servers; `brigade trust show` shows it"
            ));
        }
        self.check_definition(context, definition).map(Some)
    }

    fn check_definition(
        &self,
        context: &CliContext,
        definition: AgentInfo,
    ) -> Result<AgentInfo, CliError> {
        self.print_server_notes(&definition.name, &definition.mcp_servers);
        if let Some(program) = &definition.runs {
            if self.record.is_some() {
                let problem =
                    format!("{program} calls its models itself; --record cannot see them");
                return Err(CliError::usage(problem));
            }
            // The program has its own models and keys.
            return Ok(definition);
        }
        if context.server().is_some() {
            // A server has a configuration and keys of its own.
            return Ok(definition);
        }
        let model = self
            .model
            .clone()
            .or_else(|| definition.model.clone())
            .or_else(|| context.config.model.clone());
        configured_models::check_model(model.as_deref(), &context.config)?;
        Ok(definition)
    }
}

fn report_result(
    context: &CliContext,
    started: StartReply,
    result: AttachResult,
    live: &LiveView<'_>,
) -> Result<CliExitCode, CliError> {
    let last_seen = live.root();
    let address = &started.task.address;
    let question = last_seen.and_then(|task| task.questions.first());
    let approval = last_seen.and_then(|task| task.approvals.first());
    let (exit, note) = match result {
        AttachResult::Ended(task) | AttachResult::EndedWithGaps(task, _) => {
            let exit = CliExitCode::for_task(&task);
            if context.json {
                render::print_json(&StartReply { task: *task, existed: started.existed })?;
            } else {
                print_task_result(&task, live.program())?;
            }
            return Ok(exit);
        }
        AttachResult::StillRunning if approval.is_some() => {
            let next = format!("`brigade approve {address} --show`, then `brigade wait {address}`");
            (CliExitCode::INPUT_REQUIRED, format!("{address} needs approval: {next}"))
        }
        AttachResult::StillRunning => match question {
            Some(question) => {
                let verb = question.verb();
                let text = PlainText::of(&question.text);
                render::print_note(&format!("{address} {verb}: {text}"));
                let next =
                    format!("`brigade answer {address} TEXT`, then `brigade wait {address}`");
                (CliExitCode::INPUT_REQUIRED, format!("input required: {next}"))
            }
            None => (CliExitCode::TIMED_OUT, render_still_running(address)),
        },
        AttachResult::Detached => (
            CliExitCode::INTERRUPTED,
            format!("{address} was asked to stop; `brigade show {address}` prints its outcome"),
        ),
    };
    render::print_note(&note);
    if context.json {
        let task = last_seen.unwrap_or(&started.task).clone();
        render::print_json(&StartReply { task, ..started })?;
    }
    Ok(exit)
}

/// Prints the result to stdout, and another outcome to stderr. A stopped task prints no partial
/// result: `brigade show` has it.
fn print_task_result(task: &TaskInfo, program: Option<&str>) -> Result<(), CliError> {
    let is_stopped =
        matches!(&task.outcome, Some(Outcome::Cancelled(cancelled)) if cancelled.late.is_none());
    if let Some(result) = task.result.as_ref().filter(|_| !is_stopped) {
        let text: String = result.decode().unwrap_or_else(|_| result.as_str().to_owned());
        render::print_result(&text)?;
    }
    if matches!(task.outcome, Some(Outcome::Succeeded { .. })) {
        return Ok(());
    }
    let detail = task.detail.as_deref().unwrap_or(&task.state);
    let shown = failure_text::truncate_failure(detail);
    render::print_note(&format!("{} {shown}", task.address));
    if shown != detail {
        let whole = match program {
            Some(program) => format!("`brigade logs {program}` prints the output of its program"),
            None => format!("`brigade show {}` prints all of it", task.address),
        };
        render::print_note(&whole);
    }
    if CliExitCode::for_task(task) == CliExitCode::BUDGET_EXHAUSTED {
        let resume = format!("brigade resume {} --budget AMOUNT", task.address);
        render::print_note(&format!("a larger budget resumes it: `{resume}`"));
    }
    if let Some(hint) = configured_models::model_failure_hint(detail) {
        render::print_note(&hint);
    }
    Ok(())
}

pub(super) fn parse_budget(text: &str) -> Result<Limits, String> {
    let invalid =
        || format!("{text:?} is not a budget; write dollars as $2.50, tokens as 500k or 1.5M");
    let mut limits = Limits::default();
    for part in text.split(',').map(str::trim) {
        if let Some(dollars) = part.strip_prefix('$') {
            let dollars: f64 = dollars.parse().map_err(|_| invalid())?;
            if !(0.0..=1e9).contains(&dollars) {
                return Err(invalid());
            }
            limits.money = Some(Money((dollars * 1e6).round() as u64));
            continue;
        }
        limits.tokens = Some(parse_tokens(part).map_err(|_| invalid())?);
    }
    Ok(limits)
}

pub(super) fn parse_stall(text: &str) -> Result<StallPolicy, String> {
    if text == "off" {
        return Ok(StallPolicy::Off);
    }
    match parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(StallPolicy::after(time)),
        Ok(_) => Err("the time must not be zero; `off` disables the check".to_owned()),
        Err(problem) => Err(format!("{problem}, or `off`")),
    }
}

pub(super) fn parse_rule(text: &str) -> Result<PermissionRule, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn parse_json(text: &str) -> Result<Json, String> {
    Json::parse(text).map_err(|refusal| refusal.message)
}

/// Returns the tools that change something.
fn writing_tools() -> impl Iterator<Item = &'static str> {
    brigade_file_tools::WRITING_TOOLS.into_iter().chain(["run_process"])
}

fn is_writing_tool(name: &str) -> bool {
    writing_tools().any(|tool| tool == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_times_are_parsed() {
        assert_eq!(parse_stall("off"), Ok(StallPolicy::Off));
        assert_eq!(parse_stall("10m"), Ok(StallPolicy::after(Duration::from_secs(600))));
        for invalid in ["0", "never", "-1s", ""] {
            assert!(parse_stall(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn budgets_are_parsed() {
        let both = parse_budget("$1.50, 200k").unwrap();
        assert_eq!((both.money, both.tokens), (Some(Money(1_500_000)), Some(200_000)));
        assert_eq!(parse_budget("3m").unwrap().tokens, Some(3_000_000));
        assert_eq!(parse_budget("1.5M").unwrap().tokens, Some(1_500_000));
        assert_eq!(parse_budget("77").unwrap().tokens, Some(77));
        for invalid in ["", "$", "$-1", "k", "1.5", "99999999999999999999", "2 euros"] {
            assert!(parse_budget(invalid).is_err(), "{invalid:?}");
        }
    }
}
