//! Extensions of a program for its agents: plugins, shared state, client tools, another backend.

use std::sync::{Arc, Mutex};

use brigade_agent::definition::Definition;
use brigade_agent::{
    AgentExit, AgentOverrides, Backend, BackendRun, BoxFuture, ClientTool, ClientToolCall,
    ExecutionHints, HookContext, HookDecision, HookFuture, JournalRecord, Plugin, StateKey,
    StateScope, Tool, ToolEffect, ToolError, ToolHandler, ToolInvocation, ToolReply,
};
use brigade_llm::ToolSpec;
use brigade_model::address::TaskRef;
use brigade_model::call::{CallCompletion, Condition};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::NewTask;
use brigade_store::MemoryStore;
use brigade_testkit::TestRuntime;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::{final_message, reply, run, script, spawn, transcript, until_idle};

/// The items that all agents of a session have found.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found(Vec<String>);

impl StateKey for Found {
    const NAME: &'static str = "found";
    const SCOPE: StateScope = StateScope::Session;
}

/// A tool that adds to the found items.
#[derive(Debug)]
struct Find(ToolSpec);

impl Find {
    fn new() -> Self {
        let parameters = Arc::new(json!({ "type": "object" }));
        Self(ToolSpec { name: "find".into(), description: "Finds.".into(), parameters })
    }
}

impl ToolHandler for Find {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Idempotent)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let what = call.arguments["what"].as_str().unwrap_or("nothing").to_owned();
            let found = call.state.update(|found: &mut Found| {
                found.0.push(what);
                found.0.join(" and ")
            });
            found.map(ToolReply::text).map_err(|error| ToolError::new(error.to_string()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn agents_of_a_session_share_state() {
    let options = script(
        "agent North\nturn\n call find {\"what\": \"wood\"}\nturn\n say Found.\n\
         agent South\nturn\n call find {\"what\": \"water\"}\nturn\n when wood and water\n say Both.\n",
    );
    let runtime = TestRuntime::new(|builder| builder.agents(options.tool(Find::new()))).await;
    run(&runtime, "North", "find").await;
    assert_eq!(final_message(&run(&runtime, "South", "find").await), "Both.");
    let row = runtime.session.row();
    let found: Found = row.shared_values.get("found").unwrap().value.decode().unwrap();
    assert_eq!(found.0, ["wood", "water"]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_write_the_same_shared_state_conflict_and_nothing_is_lost() {
    let options = script(
        "agent A\nturn\n call find {\"what\": \"wood\"}\n call find {\"what\": \"water\"}\n\
         turn\n when was changed by somebody else\n call find {\"what\": \"fire\"}\n\
         turn\n say Enough.\n",
    );
    let runtime = TestRuntime::new(|builder| builder.agents(options.tool(Find::new()))).await;
    assert_eq!(final_message(&run(&runtime, "A", "find").await), "Enough.");
    let row = runtime.session.row();
    let found: Found = row.shared_values.get("found").unwrap().value.decode().unwrap();
    assert_eq!(found.0.len(), 2, "{found:?}");
    assert_eq!(found.0[1], "fire");
}

fn with_client_tool() -> AgentOverrides {
    let parameters = json!({ "type": "object", "properties": { "file": { "type": "string" } } });
    let description = "Opens a file in the editor.".into();
    let tool = ClientTool { name: "open_editor".into(), description, parameters };
    AgentOverrides { client_tools: vec![tool], ..AgentOverrides::default() }
}

#[tokio::test(start_paused = true)]
async fn a_client_tool_parks_the_run_until_the_client_answers() {
    let runtime = TestRuntime::new(|builder| {
        builder.agents(script(
            "agent A\nturn\n call open_editor {\"file\": \"soup.md\"}\nturn\n when the cook likes it\n \
             say Read.\n",
        ))
    })
    .await;
    let task = NewTask::agent("show it").name("A").overrides(&with_client_tool());
    let agent = runtime.session.spawn(task).await.unwrap();
    until_idle(&runtime).await;
    let row = runtime.session.get(&agent).await.unwrap().row;
    assert_eq!(row.state.label(), "waiting");
    let [call] = &row.parked_calls[..] else { panic!("{:?}", row.parked_calls) };
    let Condition::ClientTool { request } = &call.condition else { panic!("{call:?}") };
    let asked: ClientToolCall = request.decode().unwrap();
    assert_eq!((&*asked.tool, &asked.arguments["file"]), ("open_editor", &json!("soup.md")));
    runtime.session.answer(&agent, reply("the cook likes it")).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Read.");
}

#[tokio::test(start_paused = true)]
async fn client_tool_arguments_must_match_the_schema() {
    let runtime = TestRuntime::new(|builder| {
        builder.agents(script(
            "agent A\nturn\n call open_editor {\"file\": 5}\nturn\n when the arguments do not fit: /file\n \
             say It takes a name.\n",
        ))
    })
    .await;
    let task = NewTask::agent("show it").name("A").overrides(&with_client_tool());
    let agent = runtime.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "It takes a name.");
}

#[tokio::test(start_paused = true)]
async fn a_client_tool_that_the_definition_does_not_list_is_refused() {
    let reader =
        Definition::new("reader").description("Reads.").prompt("You read.").tools(["list_tasks"]);
    let runtime = TestRuntime::new(|builder| {
        builder.agents(script("agent A\nturn\n say Never.\n").definition(reader).unwrap())
    })
    .await;
    let task = NewTask::agent("show it").definition("reader").overrides(&with_client_tool());
    let refusal = runtime.session.spawn(task).await.unwrap_err();
    assert!(refusal.message.contains("\"open_editor\" is not among them"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn invalid_overrides_are_refused_before_the_start() {
    let runtime =
        TestRuntime::new(|builder| builder.agents(script("agent A\nturn\n say Never.\n"))).await;
    let named = |name: &str| {
        let mut overrides = with_client_tool();
        overrides.client_tools[0].name = name.to_owned();
        overrides
    };
    let taking = |parameters| {
        let mut overrides = with_client_tool();
        overrides.client_tools[0].parameters = parameters;
        overrides
    };
    let mut twice = with_client_tool();
    twice.client_tools.extend(with_client_tool().client_tools);
    let cases = [
        (AgentOverrides { temperature: Some(9.0), ..AgentOverrides::default() }, "temperature"),
        (AgentOverrides { steps: Some(0), ..AgentOverrides::default() }, "steps"),
        (AgentOverrides { max_output: Some(0), ..AgentOverrides::default() }, "max_output"),
        (
            AgentOverrides { backend: Some("theirs".into()), ..AgentOverrides::default() },
            "\"theirs\"",
        ),
        (named("open editor"), "is no name for a tool"),
        (taking(json!({ "type": "object", "properties": 5 })), "no usable JSON schema"),
        (taking(json!({ "type": "string" })), "a schema of type object"),
        (twice, "two with the name \"open_editor\""),
    ];
    for (overrides, part) in cases {
        let refusal = runtime.session.spawn(NewTask::agent("x").overrides(&overrides)).await;
        let refusal = refusal.unwrap_err();
        assert!(refusal.message.contains(part), "{refusal}");
    }
    assert_eq!(runtime.session.list().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_may_have_fewer_steps_than_its_definition_grants() {
    let text =
        "agent A\nturn\n call list_tasks {}\nturn\n call list_tasks {\"state\": \"ended\"}\n";
    let runtime = TestRuntime::new(|builder| builder.agents(script(text))).await;
    let overrides = AgentOverrides { steps: Some(1), ..AgentOverrides::default() };
    let task = NewTask::agent("list").name("A").overrides(&overrides);
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert!(run_result.outcome.to_string().contains("max steps: 1"), "{}", run_result.outcome);
}

#[tokio::test(start_paused = true)]
async fn overrides_hold_for_the_next_run_too() {
    let text = "agent A\nturn\n repeat\n call list_tasks {}\n";
    let runtime = TestRuntime::new(|builder| builder.agents(script(text))).await;
    let overrides = AgentOverrides { steps: Some(1), ..AgentOverrides::default() };
    let task = NewTask::agent("list").name("A").overrides(&overrides);
    let agent = runtime.session.spawn(task).await.unwrap();
    agent.wait().await.unwrap();
    runtime.session.resume(&agent, None).await.unwrap();
    let run_result = agent.wait().await.unwrap();
    assert_eq!(run_result.run, RunNo(2));
    assert!(run_result.outcome.to_string().contains("max steps: 1"), "{}", run_result.outcome);
}

#[tokio::test(start_paused = true)]
async fn a_client_answers_after_a_restart_once_and_not_after_a_stop() {
    let text =
        "agent *\nturn\n call open_editor {\"file\": \"soup.md\"}\nturn\n when open\n say Read.\n";
    let store = Arc::new(MemoryStore::new());
    let on = || TestRuntime::on_store(store.clone(), |builder| builder.agents(script(text)));
    let runtime = on().await;
    for name in ["A", "B"] {
        let task = NewTask::agent("show it").name(name).overrides(&with_client_tool());
        runtime.session.spawn(task).await.unwrap();
    }
    until_idle(&runtime).await;
    drop(runtime);
    let runtime = on().await;
    let session = &runtime.session;
    let [a, b] = ["A", "B"].map(|name| name.parse::<TaskRef>().unwrap());
    session.answer(a.clone(), reply("it is open")).await.unwrap();
    let again = session.answer(a.clone(), reply("it is open")).await.unwrap_err();
    assert!([RefusalKind::NotFound, RefusalKind::Ended].contains(&again.kind), "{again}");
    session.stop(b.clone(), None).await.unwrap();
    let late = session.answer(b.clone(), reply("it is open")).await.unwrap_err();
    assert_eq!(late.kind, RefusalKind::Ended, "{late}");
    until_idle(&runtime).await;
    let transcript_text = session.transcript(a).await.unwrap().unwrap();
    assert_eq!(transcript_text.matches("it is open").count(), 1, "{transcript_text}");
    assert!(transcript_text.ends_with("Read.\n"), "{transcript_text}");
}

/// A backend without a model: it records one step and ends.
#[derive(Debug, Default)]
struct Theirs {
    started: Arc<Mutex<Vec<usize>>>,
}

impl Backend for Theirs {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move {
            self.started.lock().unwrap().push(run.input.journal.len());
            if run.input.journal.is_empty() {
                let answer = Arc::new(CallCompletion::Value(Json::of("step one").unwrap()));
                let record = JournalRecord::new(CallIndex(0), EntryLabel::custom("theirs"), answer);
                if let Err(refusal) = run.host.record(vec![record]).await {
                    return AgentExit::Refused(refusal);
                }
            }
            let result = Json::of(&format!("{}: done elsewhere", run.agent.task)).unwrap();
            match run.host.finish(Vec::new(), result).await {
                Ok(_) => AgentExit::Finished,
                Err(refusal) => AgentExit::Refused(refusal),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_can_run_an_agent_without_the_agent_loop() {
    let theirs = Theirs::default();
    let started = theirs.started.clone();
    let runtime = TestRuntime::new(|builder| {
        builder.agents(script("agent A\nturn\n say Never.\n").backend("theirs", theirs))
    })
    .await;
    let overrides = AgentOverrides { backend: Some("theirs".into()), ..AgentOverrides::default() };
    let task = NewTask::agent("dig").overrides(&overrides);
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(final_message(&run_result), "dig: done elsewhere");
    assert_eq!(*started.lock().unwrap(), [0]);
}

/// A plugin that brings a tool, and refuses the end of a run that has not used it.
#[derive(Debug)]
struct Thorough;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Looked(bool);

impl StateKey for Looked {
    const NAME: &'static str = "looked";
}

#[derive(Debug)]
struct Look(ToolSpec);

impl ToolHandler for Look {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Pure)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            call.state.set(&Looked(true)).map_err(|error| ToolError::new(error.to_string()))?;
            Ok(ToolReply::text("trees"))
        })
    }
}

impl Plugin for Thorough {
    fn name(&self) -> &str {
        "thorough"
    }

    fn is_for(&self, definition: &str) -> bool {
        definition == "general"
    }

    fn tools(&self) -> Vec<Tool> {
        let parameters = Arc::new(json!({ "type": "object" }));
        let name = "look".into();
        let description = "Looks.".into();
        vec![Look(ToolSpec { name, description, parameters }).into()]
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            Ok(match at.state.get::<Looked>()?.0 {
                true => HookDecision::Pass,
                false => HookDecision::Refuse("look first".into()),
            })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_brings_tools_and_can_refuse_the_end_of_a_run() {
    let options = script(
        "agent A\nturn\n say Done.\nturn\n when You cannot end yet: look first\n call look {}\nturn\n \
         say Now it is.\n",
    );
    let runtime = TestRuntime::new(|builder| builder.agents(options.plugin(Thorough))).await;
    let agent = spawn(&runtime, "A", "look").await;
    assert_eq!(final_message(&agent.wait().await.unwrap()), "Now it is.");
    let transcript_text = transcript(&runtime, &agent).await;
    assert_eq!(transcript_text.matches("look first").count(), 1, "{transcript_text}");
}
