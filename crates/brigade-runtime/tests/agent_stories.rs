//! Stories of agents that have the same result wherever they are cut.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]

#[path = "stories/harness.rs"]
mod harness;

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::permission::PermissionRules;
use brigade_agent::{
    BoxFuture, ExecutionHints, HookContext, HookDecision, HookFuture, Plugin, StateKey, StateScope,
    ToolEffect, ToolError, ToolHandler, ToolInvocation, ToolReply,
};
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_llm::{ModelReply, ToolCall, ToolResult, ToolSpec};
use brigade_model::approval::ApprovalVerdict;
use brigade_model::json::Json;
use brigade_runtime::{AgentOptions, NewTask, OneModel, RuntimeBuilder, Session};
use harness::{Log, ONCE, Pace, Story};

/// A tool that logs its calls.
#[derive(Debug)]
struct Trace {
    spec: ToolSpec,
    effect: ToolEffect,
    log: Log,
}

impl Trace {
    fn new(name: &str, effect: ToolEffect, log: &Log) -> Self {
        let parameters = Arc::new(serde_json::json!({ "type": "object" }));
        let spec = ToolSpec { name: name.into(), description: name.into(), parameters };
        Self { spec, effect, log: log.clone() }
    }
}

impl ToolHandler for Trace {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(self.effect)
    }

    fn call(&self, _call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async {
            let prefix = if self.effect == ToolEffect::Once { ONCE } else { "" };
            self.log.lock().unwrap().push(format!("{prefix}{}", self.spec.name));
            Ok(ToolReply::text("done"))
        })
    }
}

async fn run_boss(session: Session) {
    let boss = NewTask::agent("Find out.").name("Boss").key("boss");
    session.spawn(boss).await.unwrap().wait().await.unwrap();
}

fn options(log: &Log, script: &str) -> AgentOptions {
    let model = ScriptedModel::new(Script::parse("story", script).unwrap());
    AgentOptions::new(OneModel(Arc::new(model)))
        .model("scripted")
        .tool(Trace::new("look", ToolEffect::Idempotent, log))
        .tool(Trace::new("pay", ToolEffect::Once, log))
}

fn playing(builder: RuntimeBuilder, log: &Log, script: &str) -> RuntimeBuilder {
    builder.agents(options(log, script))
}

fn story(build: fn(RuntimeBuilder, Log) -> RuntimeBuilder) -> Story {
    // A question or a message may come before or after other inbox items.
    let act: harness::Act = |session| Box::pin(run_boss(session));
    Story { build, act, compare_journals: false, pace: Pace::Paused }
}

#[test]
fn one_agent_with_tools() {
    story(|builder, log| {
        playing(
            builder,
            &log,
            "agent Boss
usage input=100 output=10
turn
  call look {}
  call pay {}
turn
  say Looked and paid.
",
        )
    })
    .cut_everywhere();
}

/// A plugin that counts steps and calls, for the run and for the session.
#[derive(Debug)]
struct Counting(Log);

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Steps(u32);

impl StateKey for Steps {
    const NAME: &'static str = "steps";
}

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct AllCalls(u32);

impl StateKey for AllCalls {
    const NAME: &'static str = "all calls";
    const SCOPE: StateScope = StateScope::Session;
}

impl Plugin for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn step_end<'a>(&'a self, at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        Box::pin(async {
            at.state.update(|all: &mut AllCalls| all.0 += 1)?;
            Ok(at.state.update(|steps: &mut Steps| steps.0 += 1)?)
        })
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            let steps = at.state.get::<Steps>()?.0;
            let all = at.state.get::<AllCalls>()?.0;
            self.0.lock().unwrap().push(format!("{} counted {steps}, {all} in all", at.agent));
            Ok(HookDecision::Pass)
        })
    }
}

/// Counts each step once wherever the story is cut, for the run and for the session.
#[test]
fn plugin_state_is_restored() {
    story(|builder, log| {
        let text = "agent Boss
turn
  call look {}
turn
  call pay {}
  call look {}
turn
  say Looked and paid.
";
        builder.agents(options(&log, text).plugin(Counting(log)))
    })
    .cut_everywhere();
}

/// A plugin that refuses the first end: of a run, or of all runs in the session.
#[derive(Debug)]
struct Refusing(StateScope);

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Ends(u32);

impl StateKey for Ends {
    const NAME: &'static str = "ends";
}

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct AllEnds(u32);

impl StateKey for AllEnds {
    const NAME: &'static str = "all ends";
    const SCOPE: StateScope = StateScope::Session;
}

impl Plugin for Refusing {
    fn name(&self) -> &str {
        "refusing"
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            let first = match self.0 {
                StateScope::Run => at.state.update(|Ends(so_far)| {
                    *so_far += 1;
                    *so_far == 1
                }),
                StateScope::Session => at.state.update(|AllEnds(so_far)| {
                    *so_far += 1;
                    *so_far == 1
                }),
            };
            Ok(if first? {
                HookDecision::Refuse("once more".to_owned())
            } else {
                HookDecision::Pass
            })
        })
    }
}

const ENDS_TWICE: &str = "agent Boss
usage input=100 output=10
turn
  call look {}
turn
  call pay {}
turn
  say Is that all?
turn
  when You cannot end yet: once more
  say Now it is.
";

/// A refusal in the state of a plugin has reached the model.
#[test]
fn an_end_that_a_plugin_refuses_once() {
    story(|builder, log| {
        builder.agents(options(&log, ENDS_TWICE).plugin(Refusing(StateScope::Run)))
    })
    .cut_everywhere();
    story(|builder, log| {
        builder.agents(options(&log, ENDS_TWICE).plugin(Refusing(StateScope::Session)))
    })
    .cut_everywhere();
}

/// A plugin that counts the model's replies to all agents.
#[derive(Debug)]
struct Tallying(Log);

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Replies(u32);

impl StateKey for Replies {
    const NAME: &'static str = "replies";
    const SCOPE: StateScope = StateScope::Session;
}

impl Plugin for Tallying {
    fn name(&self) -> &str {
        "tallying"
    }

    fn after_model<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _reply: &'a ModelReply,
    ) -> HookFuture<'a, ()> {
        Box::pin(async { Ok(at.state.update(|replies: &mut Replies| replies.0 += 1)?) })
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            let replies = at.state.get::<Replies>()?.0;
            self.0.lock().unwrap().push(format!("{replies} replies"));
            Ok(HookDecision::Pass)
        })
    }
}

/// The session's count of a reply is stored together with the reply.
#[test]
fn replies_that_are_counted_for_the_session() {
    story(|builder, log| {
        let text = "agent Boss
turn
  call look {}
turn
  call pay {}
turn
  say All is well.
";
        builder.agents(options(&log, text).plugin(Tallying(log)))
    })
    .cut_everywhere();
}

/// Polls for pending approvals and decides them. A verdict that was lost with a process is given
/// again; a stored one counts once.
async fn decide_approvals(session: &Session) {
    loop {
        for pending in session.approvals() {
            let verdict = match (&*pending.request.tool, pending.request.to_string().as_str()) {
                ("look", _) => ApprovalVerdict::AllowOnce,
                (_, "pay {\"to\":\"nobody\"}") => {
                    ApprovalVerdict::Deny { reason: "to whom?".into() }
                }
                _ => ApprovalVerdict::AllowAlways { rule: None },
            };
            let _ = session.approve(pending.task, Some(pending.call), verdict).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn run_asking_boss(session: Session) {
    let ask = ["look", "pay"].map(|rule| rule.parse().unwrap()).to_vec();
    let boss = NewTask::agent("Find out.").name("Boss").key("boss");
    let boss = boss.permissions(PermissionRules { ask, ..PermissionRules::all() });
    let boss = session.spawn(boss).await.unwrap();
    tokio::select! {
        run_result = boss.wait() => drop(run_result.unwrap()),
        () = decide_approvals(&session) => {}
    }
}

/// A plugin that counts calls that start and calls that end.
#[derive(Debug)]
struct Clerk(Log);

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Started(u32);

impl StateKey for Started {
    const NAME: &'static str = "started";
}

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Over(u32);

impl StateKey for Over {
    const NAME: &'static str = "over";
}

impl Plugin for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn before_tool<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _call: &'a ToolCall,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            at.state.update(|Started(count)| *count += 1)?;
            Ok(HookDecision::Pass)
        })
    }

    fn after_tool<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _call: &'a ToolCall,
        _result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        Box::pin(async { Ok(at.state.update(|Over(count)| *count += 1)?) })
    }

    fn run_end<'a>(
        &'a self,
        at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(async {
            let started = at.state.get::<Started>()?.0;
            let over = at.state.get::<Over>()?.0;
            self.0.lock().unwrap().push(format!("{}: {started} started, {over} over", at.agent));
            Ok(HookDecision::Pass)
        })
    }
}

#[test]
fn an_agent_and_its_child_that_need_approvals() {
    let build = |builder: RuntimeBuilder, log: Log| {
        let options = options(
            &log,
            "agent Boss
turn
  call look {}
  call pay {\"to\": \"nobody\"}
  call pay {\"to\": \"the cook\"}
turn
  when it was denied: to whom?
  call spawn_agent {\"name\": \"North\", \"task\": \"Pay.\", \"wait\": true}
turn
  say All is paid.

agent North
turn
  call look {}
  call list_tasks {}
turn
  say I looked.
",
        );
        builder.agents(options.plugin(Clerk(log)))
    };
    let act: harness::Act = |session| Box::pin(run_asking_boss(session));
    Story { act, ..story(build) }.cut_everywhere();
}

/// Returns a script with three children, messages both ways, a question, a budget that ends, and
/// one more call.
fn three_children(also: &str) -> String {
    format!(
        "agent Boss
turn
  call spawn_agent {{\"name\": \"North\", \"task\": \"Look.\"}}
  call spawn_agent {{\"name\": \"South\", \"task\": \"Look.\"}}
  call spawn_agent {{\"name\": \"West\", \"task\": \"Look.\", \"budget\": {{\"tokens\": 5000}}}}
  {also}
  call pay {{}}
turn
  repeat
  when Which side
  call send_message {{\"to\": \"North\", \"message\": \"The left one.\"}}
turn
  repeat
  when South is here
  call send_message {{\"to\": \"South\", \"message\": \"Look deeper.\"}}
turn
  repeat
  say I have what I need.

agent North
turn
  call ask_parent {{\"question\": \"Which side?\"}}
turn
  when The answer: The left one.
  call look {{}}
turn
  say Left it is.

agent South
turn
  call send_message {{\"to\": \"parent\", \"message\": \"South is here.\"}}
turn
  when Look deeper.
  say Deep water.
turn
  repeat
  say Waiting for orders.

agent West
usage input=1000 output=6000
turn
  call list_tasks {{}}
turn
  say Never said.
"
    )
}

#[test]
fn three_children_messages_a_question_and_a_budget() {
    story(|builder, log| playing(builder, &log, &three_children("# nothing else")))
        .cut_everywhere();
}

/// A real process, which continues under its shim while there is no runtime.
const COUNT: &str = "call run_process {\"name\": \"Count\", \"command\": \"sleep 0.2; exit 3\", \
    \"background\": true}";

#[test]
fn three_children_with_a_process() {
    let build = |builder: RuntimeBuilder, log: Log| playing(builder, &log, &three_children(COUNT));
    Story { pace: Pace::Real, ..story(build) }.cut_here_and_there(8);
}
