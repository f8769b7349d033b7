//! Limits that end an agent. Each outcome has its reason and the last message.

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::definition::Definition;
use brigade_llm::Model;
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_model::ids::TaskNo;
use brigade_model::limits::{LimitKind, Limits, Money};
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_runtime::{AgentOptions, ChosenModel, ModelCost, ModelSource, NewTask, OneModel};
use brigade_testkit::TestRuntime;

use crate::support::{failure, playing, script};

#[tokio::test(start_paused = true)]
async fn an_agent_fails_at_its_step_limit() {
    let text = "agent A
turn
  say One.
  call list_tasks {}
turn
  say Two.
  call list_tasks {\"state\": \"alive\"}
turn
  say Never.
";
    let few = Definition::new("few").prompt("Work.").steps(2);
    let options = script(text).definition(few).unwrap();
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let task = NewTask::agent("go").name("A").definition("few");
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(failure(&run_result), (Failure::MaxSteps { steps: 2 }, Some("Two.".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_spent_token_budget_ends_the_run_and_more_lets_it_resume() {
    let text = "agent A
usage input=100 output=6000
turn
  say So far.
  call list_tasks {}
turn
  say All of it.
";
    let runtime = playing(text).await;
    let limits = Limits { tokens: Some(5_000), ..Limits::default() };
    let task = NewTask::agent("go").name("A").limits(limits);
    let agent = runtime.session.spawn(task).await.unwrap();
    let run_result = agent.wait().await.unwrap();
    let budget = Failure::Budget { limit: LimitKind::Tokens };
    assert_eq!(failure(&run_result), (budget, Some("So far.".to_owned())));
    let more = Limits { tokens: Some(50_000), ..Limits::default() };
    runtime.session.resume(agent.no(), Some(more)).await.unwrap();
    let run_result = agent.wait().await.unwrap();
    assert_eq!(
        (run_result.run.0, crate::support::final_message(&run_result)),
        (2, "All of it.".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_passes_inside_a_model_call() {
    let runtime = playing("agent A\nturn\n fault hang\n say Never.\n").await;
    let task = NewTask::agent("go").name("A").deadline(Duration::from_secs(60));
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert!(matches!(failure(&run_result).0, Failure::Timeout { .. }), "{}", run_result.outcome);
}

#[tokio::test(start_paused = true)]
async fn a_money_budget_requires_known_prices() {
    let script = Script::parse("test", "agent *\nturn\n  say Done.\n").unwrap();
    let model = Unpriced(Arc::new(ScriptedModel::new(script)));
    let options = AgentOptions::new(model).model("mystery");
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let money = Limits { money: Some(Money(1_000_000)), ..Limits::default() };
    let own = runtime.session.spawn(NewTask::agent("go").limits(money)).await.unwrap_err();
    assert!(own.message.contains("the price of mystery is not known"), "{own}");
    let free = runtime.session.spawn(NewTask::agent("go")).await.unwrap();
    free.wait().await.unwrap();
    let resumed = runtime.session.resume(free.no(), Some(money)).await.unwrap_err();
    assert!(resumed.message.contains("the price of mystery is not known"), "{resumed}");
    // The session's budget holds for every task in it.
    let session = runtime.runtime.session_with("counted", money).await.unwrap();
    let refused = session.spawn(NewTask::agent("go")).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert!(refused.message.contains("the session counted has a budget of money"), "{refused}");
    assert_eq!(session.list().len(), 0);
}

/// A model that costs a thousandth of a dollar for a thousand tokens.
#[derive(Debug)]
struct Priced(Arc<dyn Model>);

impl ModelSource for Priced {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let price = serde_json::json!({ "input": 1.0, "output": 1.0 });
        let price = serde_json::from_value(price).expect("a price");
        let chosen = OneModel(self.0.clone()).find(name)?;
        Ok(ChosenModel { cost: ModelCost::Known(price), ..chosen })
    }
}

#[tokio::test(start_paused = true)]
async fn a_money_budget_holds_for_kept_children() {
    let step = |step| format!("turn\n  call list_tasks {{\"name\": \"{step}\"}}\n");
    let steps: String = (0..20).map(step).collect();
    let text = format!(
        "agent Boss\nusage input=100 output=3900\nturn\n  \
         call spawn_agent {{\"name\": \"One\", \"task\": \"Cook.\", \"keep\": true}}\n  \
         call spawn_agent {{\"name\": \"Two\", \"task\": \"Cook.\", \"keep\": true}}\n\
         turn\n  say They cook.\n\n\
         agent *\nusage input=100 output=3900\n{steps}turn\n  say All of it.\n"
    );
    let script = Script::parse("test", &text).unwrap();
    let options = AgentOptions::new(Priced(Arc::new(ScriptedModel::new(script)))).model("priced");
    let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
    let money = Limits { money: Some(Money(40_000)), ..Limits::default() };
    let boss = NewTask::agent("go").name("Boss").limits(money);
    let boss = runtime.session.spawn(boss).await.unwrap();
    boss.wait().await.unwrap();
    let operator = runtime.runtime.operator_session(runtime.session.id()).await.unwrap();
    for no in [2, 3].map(|no| TaskNo::new(no).unwrap()) {
        let waited = operator.wait_all([no]).await.unwrap();
        let Outcome::Failed(failed) = &*waited[0].outcome else { panic!("{:?}", waited[0]) };
        assert_eq!(failed.failure, Failure::Budget { limit: LimitKind::Money });
    }
    let row = operator.get(boss.no()).await.unwrap().row;
    assert!((30_000..=40_000).contains(&row.usage().money.0), "{:?}", row.usage());
    assert_eq!(row.own_usage().money, Money(8_000));
}

#[derive(Debug)]
struct Unpriced(Arc<dyn Model>);

impl ModelSource for Unpriced {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let chosen = OneModel(self.0.clone()).find(name)?;
        Ok(ChosenModel { cost: ModelCost::Unknown, ..chosen })
    }
}

#[tokio::test(start_paused = true)]
async fn failed_calls_in_a_row_end_the_run() {
    let mut text = String::from("agent A\n");
    for n in 0..30 {
        text.push_str(&format!("turn\n call nothing_{n} {{}}\n"));
    }
    let runtime = playing(&text).await;
    let task = NewTask::agent("go").name("A");
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    let (Failure::Errors { count, last }, _) = failure(&run_result) else {
        panic!("{}", run_result.outcome)
    };
    assert_eq!(count, 20);
    assert!(last.contains("nothing_19"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_child_deeper_than_allowed_is_refused_with_the_reason() {
    let text = "agent A
turn
  call spawn_agent {\"task\": \"more\"}
turn
  when limit:
  say I do it myself.
";
    let runtime = playing(text).await;
    let limits = Limits { depth: Some(0), ..Limits::default() };
    let task = NewTask::agent("go").name("A").limits(limits);
    let run_result = runtime.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(crate::support::final_message(&run_result), "I do it myself.");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_cut_off_is_continued() {
    let text = "agent A
turn
  say Once upon
  stop length
turn
  when cut off
  say a time.
";
    let runtime = playing(text).await;
    let run_result = runtime.session.spawn(NewTask::agent("go").name("A")).await.unwrap();
    assert_eq!(crate::support::final_message(&run_result.wait().await.unwrap()), "a time.");
}
