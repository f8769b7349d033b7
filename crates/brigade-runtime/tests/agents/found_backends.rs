//! Agents that are run by a program with its own models: no model of the runtime, no key, and a
//! price only if somebody knows one.

use std::path::Path;
use std::sync::{Arc, Mutex};

use brigade_agent::definition::{Definition, DefinitionDir};
use brigade_agent::{
    AgentExit, AgentOverrides, Backend, BackendModels, BackendRun, BoxFuture, ClientTool,
};
use brigade_llm::ReasoningEffort;
use brigade_model::json::Json;
use brigade_model::limits::{Limits, Money};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_runtime::agents::{BackendChoice, BackendSource};
use brigade_runtime::{AgentOptions, ModelProviders, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::{final_message, script};

/// A backend that ends with the model that it got.
#[derive(Clone, Debug)]
struct Program {
    reports_cost: bool,
    models: Arc<Mutex<Vec<String>>>,
}

impl Backend for Program {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move {
            let model = run.agent.model_name.to_string();
            self.models.lock().unwrap().push(model.clone());
            match run.host.finish(Vec::new(), Json::of(&model).unwrap()).await {
                Ok(_) => AgentExit::Finished,
                Err(refusal) => AgentExit::Refused(refusal),
            }
        })
    }

    fn models(&self) -> BackendModels {
        BackendModels::OfProgram { reports_cost: self.reports_cost }
    }
}

/// Two programs: `thrifty` reports its cost, `silent` does not. `absent` is not installed.
#[derive(Clone, Debug, Default)]
struct Programs {
    models: Arc<Mutex<Vec<String>>>,
    commands: Arc<Mutex<Vec<Vec<String>>>>,
}

impl BackendSource for Programs {
    fn find(&self, choice: BackendChoice<'_>) -> Result<Arc<dyn Backend>, Refusal> {
        self.commands.lock().unwrap().push(choice.command.to_vec());
        let reports_cost = match choice.name {
            "thrifty" | "acp" => true,
            "silent" | "absent" => false,
            other => return Err(Refusal::unavailable(format!("there is no program {other:?}"))),
        };
        Ok(Arc::new(Program { reports_cost, models: self.models.clone() }))
    }

    fn check_ready(&self, choice: BackendChoice<'_>) -> Result<(), Refusal> {
        match choice.name {
            "absent" => Err(Refusal::invalid("absent is not installed")),
            _ => Ok(()),
        }
    }

    fn definitions(&self) -> Vec<Definition> {
        let of = |name: &str| Definition::new(name).description("A program.").backend(name);
        ["thrifty", "silent", "absent"].map(of).to_vec()
    }
}

/// Starts a runtime without a model and without keys.
async fn without_model(programs: &Programs) -> TestRuntime {
    let options = AgentOptions::new(ModelProviders::new());
    let options = options.backend_source(Arc::new(programs.clone()));
    TestRuntime::new(|builder| builder.agents(options)).await
}

fn dollars() -> Limits {
    Limits { money: Some(Money(1_000_000)), ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn a_program_needs_no_model_and_gets_the_named_one_as_it_is() {
    let programs = Programs::default();
    let runtime = without_model(&programs).await;
    let task = || NewTask::agent("dig").definition("thrifty");
    for (task, expect) in [(task(), ""), (task().model("opus"), "opus")] {
        let agent = runtime.session.spawn(task).await.unwrap();
        assert_eq!(final_message(&agent.wait().await.unwrap()), expect);
    }
    let refused = runtime.session.spawn(NewTask::agent("dig")).await.unwrap_err();
    assert!(refused.message.contains("names no model"), "the own loop needs one: {refused}");
}

#[tokio::test(start_paused = true)]
async fn a_default_model_of_the_runtime_is_not_for_programs() {
    let programs = Programs::default();
    let text = "agent Boss\nturn\n call spawn_agent {\"agent\": \"thrifty\", \"task\": \"Dig.\", \
                \"wait\": true}\nturn\n say Done.\n";
    let options = script(text).backend_source(Arc::new(programs.clone()));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let boss = runtime.session.spawn(NewTask::agent("dig").name("Boss")).await.unwrap();
    assert_eq!(final_message(&boss.wait().await.unwrap()), "Done.");
    assert_eq!(*programs.models.lock().unwrap(), [""]);
}

#[tokio::test(start_paused = true)]
async fn a_money_budget_needs_a_cost_or_a_known_price() {
    let runtime = without_model(&Programs::default()).await;
    let spawn = |name: &str, model: Option<&str>| {
        let task = NewTask::agent("dig").definition(name).limits(dollars());
        let task = match model {
            Some(model) => task.model(model),
            None => task,
        };
        runtime.session.spawn(task)
    };
    for model in [None, Some("opus")] {
        assert!(spawn("thrifty", model).await.is_ok(), "it reports its cost");
        let refused = spawn("silent", model).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Invalid);
        let expect = model.unwrap_or("the model of silent");
        let expect = format!("the program reports no cost, and the price of {expect} is not known");
        assert!(refused.message.contains(&expect), "{refused}");
    }
    assert!(spawn("silent", Some("claude-opus-4-5")).await.is_ok(), "its price is known");
    assert!(runtime.session.spawn(NewTask::agent("dig").definition("silent")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_definition_that_a_program_would_not_see_are_refused() {
    let settings = "runs: thrifty\neffort: low\nlimits: {steps: 3}";
    let text = format!("---\nname: cook\ndescription: x\n{settings}\n---\nCook.\n");
    let cook = Definition::parse("cook.md", &text).unwrap();
    let options = AgentOptions::new(ModelProviders::new()).definition(cook).unwrap();
    let options = options.backend_source(Arc::new(Programs::default()));
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("dig").definition("cook");
    let refused = runtime.session.spawn(task).await.unwrap_err();
    let expect = "effort, steps in the definition cook are not possible with thrifty";
    assert!(refused.message.starts_with(expect), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn settings_that_a_program_would_not_see_are_refused_by_name() {
    let runtime = without_model(&Programs::default()).await;
    let none = AgentOverrides::default;
    let tool: ClientTool = serde_json::from_str(r#"{"name": "open"}"#).unwrap();
    for (overrides, expect) in [
        (AgentOverrides { steps: Some(3), ..none() }, "steps is not possible with thrifty"),
        (AgentOverrides { effort: Some(ReasoningEffort::High), ..none() }, "effort is not"),
        (AgentOverrides { max_output: Some(9), ..none() }, "max_output is not"),
        (AgentOverrides { client_tools: vec![tool], ..none() }, "client_tools is not"),
        (
            AgentOverrides { temperature: Some(1.0), steps: Some(3), ..none() },
            "temperature, steps are not possible with thrifty",
        ),
    ] {
        let task = NewTask::agent("dig").definition("thrifty").overrides(&overrides);
        let refused = runtime.session.spawn(task).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Invalid);
        assert!(refused.message.starts_with(expect), "{expect}: {refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_program_is_refused_before_anything_starts() {
    let runtime = without_model(&Programs::default()).await;
    let refused =
        runtime.session.spawn(NewTask::agent("dig").definition("absent")).await.unwrap_err();
    assert_eq!(refused.message, "absent is not installed");
    let overrides = AgentOverrides { backend: Some("nobodys".into()), ..AgentOverrides::default() };
    let task = NewTask::agent("dig").overrides(&overrides);
    let refused = runtime.session.spawn(task).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert!(refused.message.contains("\"nobodys\""), "{refused}");
    assert!(runtime.session.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_replaces_the_definition_of_a_program_and_can_have_a_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let user = DefinitionDir::of_user(dir.path());
    std::fs::create_dir_all(&user.path).unwrap();
    let define = |name: &str, runs: &str, model: &str| {
        let text =
            format!("---\nname: {name}\ndescription: x\nruns: {runs}\nmodel: {model}\n---\n");
        std::fs::write(user.path.join(format!("{name}.md")), text).unwrap();
    };
    define("thrifty", "silent", "mine");
    define("goose", "{ acp: [goose, acp] }", "other");
    let programs = Programs::default();
    let options = AgentOptions::new(ModelProviders::new())
        .backend_source(Arc::new(programs.clone()))
        .definition_dirs(|cwd| cwd.map(DefinitionDir::of_user).into_iter().collect());
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    for (name, expect) in [("thrifty", "mine"), ("goose", "other")] {
        let task = NewTask::agent("dig").definition(name).cwd(Path::new(dir.path()));
        let agent = runtime.session.spawn(task).await.unwrap();
        assert_eq!(final_message(&agent.wait().await.unwrap()), expect);
    }
    let commands = programs.commands.lock().unwrap();
    let last: &[String] = commands.last().unwrap();
    assert_eq!(last, ["goose", "acp"], "each attempt gets it from the blueprint");
}
