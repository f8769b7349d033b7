//! A chef delegates three courses to three agents, heats the oven with a process, and sums up when
//! all have ended. The program prints events as they happen.
//!
//! `cargo run -p brigade --example sub_agents` plays a script: offline, no key.
//! `BRIGADE_MODEL=anthropic/claude-haiku-4-5 cargo run -p brigade --example sub_agents` asks a real
//! model, with the key in the provider's usual environment variable.

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use brigade::agent::render_result;
use brigade::model::truncate_chars;
use brigade::{
    AgentOptions, AgentProgress, Definition, Event, FeedCursor, FeedUpdate, Limits, ModelProviders,
    NewTask, OneModel, Outcome, PermissionRule, PermissionRules, Permissions, ProcessOptions,
    Runtime, Script, ScriptedModel, Session, TaskHandle, TaskNo, Tool, ToolEffect, ToolError,
};

const TASK: &str = "Plan a dinner of three courses from what is in the pantry. Hand each course to an \
    agent `cook` of its own, named Soup, Main and Dessert, and meanwhile heat the oven: run the command \
    `sh oven.sh` in the background, named Oven. Then tell me the menu in three lines.";

const OVEN: &str = "for t in 60 90 120 150 180; do sleep 0.3; echo oven: $t degrees; done\n";

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("oven.sh"), OVEN)?;
    let runtime = Runtime::builder()
        .processes(ProcessOptions::new(dir.path().join("processes")))
        .agents(agent_options()?)
        .start()
        .await?;
    // An upper bound for the cost of whatever a model does.
    let limits = Limits { tokens: Some(500_000), total: Some(20), ..Limits::default() };
    let session = runtime.session_with("kitchen", limits).await?;
    let chef = NewTask::agent(TASK).name("Chef").definition("chef").cwd(dir.path());
    let chef = session.spawn(chef.deadline(Duration::from_secs(600))).await?;
    print_events(&runtime.operator_session(session.id()).await?, &chef).await?;
    let result = chef.wait().await?;
    println!("\nThe chef {}{}", result.outcome, render_outcome(&result.outcome));
    let row = session.get(chef.no()).await?.row;
    println!("{} tokens were used in all.", row.usage().tokens);
    runtime.shutdown().await?;
    Ok(if result.outcome.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the agents with their model, tools and permissions.
fn agent_options() -> Result<AgentOptions, Box<dyn Error>> {
    let options = match std::env::var("BRIGADE_MODEL") {
        Ok(model) => AgentOptions::new(ModelProviders::new()).model(&model),
        Err(_) => {
            let script = Script::parse("sub_agents.script", include_str!("sub_agents.script"))?;
            AgentOptions::new(OneModel(Arc::new(ScriptedModel::new(script)))).model("scripted")
        }
    };
    let chef = Definition::new("chef")
        .description("Plans a dinner and hands it out.")
        .prompt("You are a chef. You delegate, and do not cook yourself.")
        .delegates_to(["cook"]);
    let cook = Definition::new("cook")
        .description("Thinks up one course.")
        .prompt(
            "You are a cook. Look into the pantry first, then name one dish and how long it takes.",
        )
        .tools(["look_in_pantry"])
        .steps(5);
    let only_the_oven = PermissionRules {
        allow: Some(
            ["look_in_pantry", "*_agent", "*_task*", "run_process(sh oven.sh)"]
                .map(str::parse::<PermissionRule>)
                .into_iter()
                .collect::<Result<_, _>>()?,
        ),
        ..PermissionRules::default()
    };
    Ok(options
        .definition(chef)?
        .definition(cook)?
        .tool(pantry())
        .permissions(Permissions::of("this example", only_the_oven)))
}

/// Returns a tool of this program that lists ingredients.
fn pantry() -> Tool {
    let description = "Lists the ingredients in the pantry.";
    Tool::from_fn("look_in_pantry", description, ToolEffect::Pure, |(): ()| async {
        Ok::<_, ToolError>("Leeks, potatoes, mushrooms, rice, apples, cream, flour.")
    })
}

/// Prints events and output until the chef has ended.
async fn print_events<T>(operator: &Session, chef: &TaskHandle<T>) -> Result<(), Box<dyn Error>> {
    let mut feed = operator.subscribe(FeedCursor::START);
    let mut names: HashMap<TaskNo, String> = HashMap::new();
    let mut last_lines: HashMap<TaskNo, String> = HashMap::new();
    let mut poll = tokio::time::interval(Duration::from_millis(100));
    loop {
        let message = tokio::select! {
            update = feed.next() => match update {
                Some(update) => update?,
                None => return Ok(()),
            },
            _ = poll.tick() => {
                for (no, last_line) in &mut last_lines {
                    print_new_line(operator, *no, &names[no], last_line).await?;
                }
                continue;
            }
        };
        let FeedUpdate::Event(item) = message else { continue };
        match &item.record.event {
            Event::Spawned(spawned) => {
                let no = spawned.no;
                let spec = &spawned.spec;
                let kind = spec.work.kind();
                let name = spec.name.as_ref().map_or_else(String::new, |name| name.to_string());
                let name = format!("{:<10} {name:<8}", format!("{kind}:{no}"));
                println!("{name} starts: {}", short(&spec.work.description()));
                if kind == brigade::model::TaskKind::Process {
                    last_lines.insert(no, String::new());
                }
                names.insert(no, name);
            }
            Event::Progressed { no, note } => {
                let Ok(progress) = note.decode::<AgentProgress>() else { continue };
                let used = match progress.last_tools.as_str() {
                    "" => String::new(),
                    tools => format!(" after {tools}"),
                };
                println!("{} step {}: {}{used}", names[no], progress.step, progress.activity);
            }
            Event::Ended { no, outcome, .. } => {
                if let Some(mut last_line) = last_lines.remove(no) {
                    print_new_line(operator, *no, &names[no], &mut last_line).await?;
                }
                println!("{} {outcome}{}", names[no], short(&render_outcome(outcome)));
                if *no == chef.no() {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

/// Prints the last line of a process if it has changed.
async fn print_new_line(
    operator: &Session,
    no: TaskNo,
    name: &str,
    last_line: &mut String,
) -> Result<(), Box<dyn Error>> {
    let tail = operator.output(no).await?.tail_text(1024)?;
    let line = tail.lines().last().unwrap_or_default();
    if line != last_line {
        println!("{name} says: {line}");
        line.clone_into(last_line);
    }
    Ok(())
}

/// Renders the result of a task, or its partial result.
fn render_outcome(outcome: &Outcome) -> String {
    let result = match outcome {
        Outcome::Succeeded { result } => Some(result),
        Outcome::Failed(failed) => failed.partial.as_ref(),
        Outcome::Cancelled(_) => None,
    };
    result.map_or_else(String::new, |result| format!(": {}", render_result(result).trim_end()))
}

/// Returns the text on one line of at most 60 characters.
fn short(text: &str) -> String {
    truncate_chars(&text.replace('\n', " "), 60)
}
