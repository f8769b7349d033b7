//! Approvals of tool calls: pending, decided, and granted for good.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_agent::definition::Definition;
use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_agent::{
    BoxFuture, ExecutionHints, ToolEffect, ToolError, ToolHandler, ToolInvocation, ToolReply,
    ToolSubject,
};
use brigade_llm::ToolSpec;
use brigade_model::approval::ApprovalVerdict;
use brigade_model::call::RunResult;
use brigade_model::refusal::RefusalKind;
use brigade_model::task::TaskState;
use brigade_runtime::{NewTask, PendingApproval, Session, TaskHandle};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::TestRuntime;

use crate::support::{FunctionTool, final_message, paused, reply, script, transcript, until_idle};

fn list(rules: &[&str]) -> Vec<PermissionRule> {
    rules.iter().map(|rule| rule.parse().unwrap()).collect()
}

fn asking(rules: &[&str]) -> PermissionRules {
    PermissionRules { ask: list(rules), ..PermissionRules::all() }
}

fn denied(reason: &str) -> ApprovalVerdict {
    ApprovalVerdict::Deny { reason: reason.into() }
}

/// A tool that records its calls.
#[derive(Debug)]
struct Bake {
    spec: ToolSpec,
    baked: Arc<Mutex<Vec<String>>>,
}

impl Bake {
    fn new() -> (Self, Arc<Mutex<Vec<String>>>) {
        let baked = Arc::new(Mutex::new(Vec::new()));
        let parameters = Arc::new(serde_json::json!({ "type": "object" }));
        let spec = ToolSpec { name: "bake".into(), description: "Bakes.".into(), parameters };
        (Self { spec, baked: baked.clone() }, baked)
    }
}

impl ToolHandler for Bake {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Once)
    }

    fn subject(&self, arguments: &serde_json::Value) -> ToolSubject {
        ToolSubject::Text(arguments["what"].as_str().unwrap_or_default().to_owned())
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        let what = call.arguments["what"].as_str().unwrap_or_default().to_owned();
        self.baked.lock().unwrap().push(what.clone());
        Box::pin(async move { Ok(ToolReply::text(format!("{what} is baked"))) })
    }
}

/// Polls until this many approvals are pending.
async fn pending(session: &Session, count: usize) -> Vec<PendingApproval> {
    for _ in 0..600 {
        let found = session.approvals();
        if found.len() == count {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("there are {} approvals, not {count}", session.approvals().len());
}

async fn end<T>(task: &TaskHandle<T>) -> RunResult {
    let run_result = task.wait_within(Duration::from_secs(600)).await.unwrap();
    run_result.expect("it ends")
}

async fn baker(
    text: &str,
    rules: PermissionRules,
) -> (TestRuntime, TaskHandle<String>, Arc<Mutex<Vec<String>>>) {
    let (bake, baked) = Bake::new();
    let options = script(text).tool(bake);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").name("A").permissions(rules);
    let agent = runtime.session.spawn(task).await.unwrap();
    (runtime, agent, baked)
}

const BREAD: &str = "agent A
turn
  call bake {\"what\": \"bread\"}
turn
  when bread is baked
  say Baked.
turn
  say Not baked.
";

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_approval_and_runs_once() {
    let (runtime, agent, baked) = baker(BREAD, asking(&["bake"])).await;
    let asked = pending(&runtime.session, 1).await.remove(0);
    until_idle(&runtime).await;
    assert_eq!(agent.get().await.unwrap().state, TaskState::Waiting, "it holds nothing");
    assert_eq!(asked.request.to_string(), "bake(bread)");
    assert_eq!(
        (&*asked.request.rule_source, asked.request.rule.to_string()),
        ("the caller", "bake".into())
    );
    assert!(asked.requested_at >= TestRuntime::START);
    assert!(baked.lock().unwrap().is_empty());
    runtime.session.approve(&agent, None, ApprovalVerdict::AllowOnce).await.unwrap();
    assert_eq!(final_message(&end(&agent).await), "Baked.");
    assert_eq!(*baked.lock().unwrap(), ["bread"]);
    let transcript_text = transcript(&runtime, &agent).await;
    assert!(transcript_text.contains("[approval]\n  allowed once"), "{transcript_text}");
}

#[tokio::test(start_paused = true)]
async fn a_denial_reaches_the_model_with_its_reason() {
    let (runtime, agent, baked) = baker(BREAD, asking(&["bake(br*)"])).await;
    pending(&runtime.session, 1).await;
    runtime.session.approve(&agent, None, denied("the oven is cold")).await.unwrap();
    assert_eq!(final_message(&end(&agent).await), "Not baked.");
    let transcript_text = transcript(&runtime, &agent).await;
    let expect = "`bake(bread)` is not permitted: the caller asks about `bake(br*)`, and it \
                  was denied: the oven is cold.";
    assert!(transcript_text.contains(expect), "{transcript_text}");
    assert!(baked.lock().unwrap().is_empty());
}

const TWO: &str = "agent A
turn
  call bake {\"what\": \"bread\"}
  call bake {\"what\": \"cake\"}
turn
  when bread is baked
  when cake is baked
  say Both.
";

#[tokio::test(start_paused = true)]
async fn two_calls_of_one_message_are_answered_in_either_order() {
    for order in [[0, 1], [1, 0]] {
        let (runtime, agent, baked) = baker(TWO, asking(&["bake"])).await;
        let asked = pending(&runtime.session, 2).await;
        let which = runtime.session.approve(&agent, None, ApprovalVerdict::AllowOnce).await;
        assert_eq!(which.unwrap_err().kind, RefusalKind::Conflict);
        for at in order {
            let call = Some(asked[at].call);
            runtime.session.approve(&agent, call, ApprovalVerdict::AllowOnce).await.unwrap();
            until_idle(&runtime).await;
        }
        assert_eq!(final_message(&end(&agent).await), "Both.");
        baked.lock().unwrap().sort();
        assert_eq!(*baked.lock().unwrap(), ["bread", "cake"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_covers_the_same_call_of_every_agent_in_the_session() {
    let text = "agent A
turn
  call bake {\"what\": \"bread\"}
turn
  when bread is baked
  call bake {\"what\": \"bread\"}
  call bake {\"what\": \"brioche\"}
turn
  say Enough.

agent B
turn
  call bake {\"what\": \"bread\"}
turn
  when bread is baked
  say Me too.

agent C
turn
  call bake {\"what\": \"bread\"}
turn
  when does not allow this tool
  say Never.
turn
  when there is no tool
  say Never.
";
    let (runtime, agent, baked) = baker(text, asking(&["bake"])).await;
    let other = NewTask::agent("go").name("B").permissions(asking(&["bake"]));
    let other = runtime.session.spawn(other).await.unwrap();
    let asked = pending(&runtime.session, 2).await;
    let always = ApprovalVerdict::AllowAlways { rule: None };
    runtime.session.approve(&agent, Some(asked[0].call), always).await.unwrap();
    assert_eq!(final_message(&end(&other).await), "Me too.", "it was waiting for the same");
    let brioche = pending(&runtime.session, 1).await.remove(0);
    assert_eq!(
        brioche.request.to_string(),
        "bake(brioche)",
        "the second bread was not asked about"
    );
    let never = PermissionRules { deny: list(&["bake"]), ..PermissionRules::all() };
    let never = NewTask::agent("go").name("C").permissions(never);
    let never = runtime.session.spawn(never).await.unwrap();
    assert_eq!(final_message(&end(&never).await), "Never.", "a deny wins over a grant");
    let grants = runtime.session.grants();
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].scope.to_string(), r#"bake {"what":"bread"} exactly"#);
    runtime.session.revoke(grants[0].no).await.unwrap();
    assert!(runtime.session.grants().is_empty());
    runtime.session.approve(&agent, None, denied("")).await.unwrap();
    assert_eq!(final_message(&end(&agent).await), "Enough.");
    assert_eq!(*baked.lock().unwrap(), ["bread"; 3]);
}

/// A boss, its lead and a worker that bakes.
const THREE: &str = "agent A
turn
  call spawn_agent {\"task\": \"go\", \"agent\": \"lead\", \"wait\": true}
turn
  say Heard.

agent lead
turn
  call spawn_agent {\"task\": \"go\", \"agent\": \"worker\", \"wait\": true}
turn
  say Heard too.

agent worker
turn
  call bake {\"what\": \"bread\"}
turn
  when bread is baked
  say Baked.
turn
  say Not baked.
";

/// Runs three levels of agents with these rules. Returns the number of approvals and the baked
/// items.
async fn three_levels(rules: [PermissionRules; 3], unattended: bool) -> (usize, Vec<String>) {
    let [boss, lead, worker] = rules;
    let (bake, baked) = Bake::new();
    let options = script(THREE)
        .tool(bake)
        .definition(Definition::new("lead").prompt("Lead.").permissions(lead))
        .and_then(|options| {
            options.definition(Definition::new("worker").prompt("Work.").permissions(worker))
        })
        .unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").name("A").permissions(boss);
    let task = if unattended { task.unattended() } else { task };
    let agent = runtime.session.spawn(task).await.unwrap();
    until_idle(&runtime).await;
    let asked = runtime.session.approvals();
    for pending in &asked {
        assert_eq!(pending.top_task, agent.no(), "an approval names the top-level task");
        let call = Some(pending.call);
        runtime.session.approve(pending.task, call, ApprovalVerdict::AllowOnce).await.unwrap();
    }
    end(&agent).await;
    let baked = baked.lock().unwrap().clone();
    (asked.len(), baked)
}

#[tokio::test(start_paused = true)]
async fn the_strictest_of_three_levels_decides() {
    let allow = || PermissionRules::all();
    let only =
        |rules: &[&str]| PermissionRules { allow: Some(list(rules)), ..PermissionRules::all() };
    let ask = || asking(&["bake"]);
    let deny = || PermissionRules { deny: list(&["bake"]), ..PermissionRules::all() };
    let all: &[&str] = &["*"];
    for (rules, asked, baked) in [
        ([allow(), allow(), allow()], 0, true),
        ([ask(), allow(), allow()], 1, true),
        ([ask(), only(all), only(all)], 1, true),
        ([allow(), ask(), allow()], 1, true),
        ([allow(), allow(), ask()], 1, true),
        ([ask(), ask(), ask()], 1, true),
        ([deny(), ask(), allow()], 0, false),
        ([ask(), allow(), deny()], 0, false),
        ([ask(), only(&["spawn_agent"]), only(all)], 0, false),
    ] {
        let case = format!("{rules:?}");
        let expect = (asked, if baked { vec!["bread".to_owned()] } else { Vec::new() });
        assert_eq!(three_levels(rules, false).await, expect, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unattended_run_denies_approvals_at_all_levels() {
    for rules in [
        [asking(&["bake"]), PermissionRules::all(), PermissionRules::all()],
        [PermissionRules::all(), PermissionRules::all(), asking(&["bake"])],
    ] {
        assert_eq!(three_levels(rules, true).await, (0, Vec::new()));
    }
    let options = script(BREAD).tool(Bake::new().0);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").name("A").permissions(asking(&["bake"])).unattended();
    let alone = runtime.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&end(&alone).await), "Not baked.");
    let transcript_text = transcript(&runtime, &alone).await;
    assert!(
        transcript_text.contains("nobody is there to be asked, for the run is unattended"),
        "{transcript_text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_an_agent_that_waits_for_approval() {
    let (runtime, agent, baked) = baker(BREAD, asking(&["bake"])).await;
    pending(&runtime.session, 1).await;
    agent.stop(Some("enough")).await.unwrap();
    assert_eq!(end(&agent).await.outcome.label(), "cancelled");
    assert!(runtime.session.approvals().is_empty());
    let late = runtime.session.approve(&agent, None, ApprovalVerdict::AllowOnce).await.unwrap_err();
    assert_eq!(late.kind, RefusalKind::Ended, "{late}");
    until_idle(&runtime).await;
    assert!(baked.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_approved_tool_call_can_park_itself() {
    let text = "agent A
turn
  call ask_parent {\"question\": \"How much salt?\"}
turn
  when The answer: a pinch
  say Salted.
";
    let (runtime, agent, _) = baker(text, asking(&["ask_parent"])).await;
    pending(&runtime.session, 1).await;
    runtime.session.approve(&agent, None, ApprovalVerdict::AllowOnce).await.unwrap();
    until_idle(&runtime).await;
    assert!(runtime.session.approvals().is_empty(), "it is not asked about twice");
    runtime.session.answer(&agent, reply("a pinch")).await.unwrap();
    assert_eq!(final_message(&end(&agent).await), "Salted.");
}

#[tokio::test(start_paused = true)]
async fn other_calls_of_the_message_do_not_wait_for_an_approval() {
    let looked = Arc::new(AtomicU32::new(0));
    let counted = looked.clone();
    let look = FunctionTool::new("look", ToolEffect::Pure, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(ToolReply::text("seen")) }
    });
    let text = "agent A
turn
  call bake {\"what\": \"bread\"}
  call look {}
turn
  say Done.
";
    let (bake, _) = Bake::new();
    let options = script(text).tool(bake).tool(look);
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").name("A").permissions(asking(&["bake"]));
    let agent = runtime.session.spawn(task).await.unwrap();
    pending(&runtime.session, 1).await;
    until_idle(&runtime).await;
    assert_eq!(looked.load(Ordering::Relaxed), 1);
    runtime.session.approve(&agent, None, denied("no")).await.unwrap();
    assert_eq!(final_message(&end(&agent).await), "Done.");
    assert_eq!(looked.load(Ordering::Relaxed), 1, "a completed call is not repeated");
}

#[tokio::test(start_paused = true)]
async fn a_path_is_normalized_before_it_is_authorized() {
    let text = "agent A
turn
  call spawn_agent {\"task\": \"go\", \"agent\": \"worker\", \"wait\": true}
turn
  say Heard.

agent worker
turn
  call bake {\"what\": \"oven/../secret/cake\"}
  call bake {\"what\": \"oven/bread\"}
turn
  say Done.
";
    let (bake, baked) = Bake::new();
    let all = PermissionRules { allow: Some(list(&["*"])), ..PermissionRules::all() };
    let worker = Definition::new("worker").prompt("Work.").permissions(all);
    let options = script(text).tool(bake).definition(worker).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let rules = PermissionRules {
        allow: Some(list(&["spawn_agent", "bake(oven/**)"])),
        ask: list(&["bake(secret/**)"]),
        ..PermissionRules::all()
    };
    let task = NewTask::agent("go").name("A").permissions(rules);
    let agent = runtime.session.spawn(task).await.unwrap();
    let asked = pending(&runtime.session, 1).await.remove(0);
    assert_eq!(asked.request.to_string(), "bake(oven/../secret/cake)");
    runtime.session.approve(asked.task, None, denied("")).await.unwrap();
    end(&agent).await;
    assert_eq!(*baked.lock().unwrap(), ["oven/bread"]);
}

/// Runs the life of one process on a store that outlives it.
fn life<T>(store: &Arc<dyn Store>, act: impl AsyncFnOnce(&TestRuntime) -> T) -> T {
    let store = store.clone();
    paused().block_on(async {
        let (bake, _) = Bake::new();
        let options = script(TWO).tool(bake);
        let runtime = TestRuntime::on_store(store, |builder| builder.agents(options)).await;
        act(&runtime).await
    })
}

#[test]
fn approvals_and_grants_survive_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let spawn = async |runtime: &TestRuntime, name: &str| {
        let task = NewTask::agent("go").name(name).key(name).permissions(asking(&["bake"]));
        runtime.session.spawn(task).await.unwrap()
    };
    let before = life(&store, async |runtime| {
        spawn(runtime, "A").await;
        pending(&runtime.session, 2).await
    });
    life(&store, async |runtime| {
        let agent = spawn(runtime, "A").await;
        let after = pending(&runtime.session, 2).await;
        let seen = |all: &[PendingApproval]| -> Vec<_> {
            all.iter().map(|one| (one.call, one.request.to_string(), one.requested_at)).collect()
        };
        assert_eq!(seen(&after), seen(&before));
        let always = ApprovalVerdict::AllowAlways { rule: Some("bake".parse().unwrap()) };
        runtime.session.approve(&agent, Some(after[0].call), always).await.unwrap();
    });
    life(&store, async |runtime| {
        let agent = spawn(runtime, "A").await;
        assert_eq!(final_message(&end(&agent).await), "Both.");
        assert_eq!(runtime.session.grants()[0].scope.to_string(), "bake");
        let next = NewTask::agent("go").definition("general").permissions(asking(&["bake"]));
        let next = runtime.session.spawn(next.name("A")).await.unwrap();
        assert_eq!(final_message(&end(&next).await), "Both.", "it was not asked about");
    });
}
