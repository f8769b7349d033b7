//! Messages between agents, parents and the operator.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::command::{Caller, Command, Recipient, SendCommand};
use brigade_model::json::Json;
use brigade_model::message::MessageSender;
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use brigade_store::MemoryStore;
use brigade_testkit::{CrashStore, CutMode, CutPoint, TestRuntime};

use crate::support::{STORY, final_message, paused, playing, run, script, spawn, transcript};

#[tokio::test(start_paused = true)]
async fn an_urgent_message_interrupts_a_model_call() {
    let runtime =
        playing("agent A\nturn\n when stew\n say Stew.\nturn\n fault hang always\n say Never.\n")
            .await;
    let agent = spawn(&runtime, "A", "make soup").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let to = Recipient::Task(agent.no().into());
    let body = Json::of("No: stew.").unwrap();
    let send = SendCommand { interrupt: true, ..SendCommand::new(Caller::Operator, to, body) };
    runtime.submit(Command::Send(send)).await.0.unwrap();
    let run_result = agent.wait_within(Duration::from_secs(60)).await.unwrap();
    assert_eq!(final_message(&run_result.expect("it got the message")), "Stew.");
}

#[tokio::test(start_paused = true)]
async fn a_message_to_all_reaches_each_and_one_to_the_parent_is_marked() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
  call spawn_agent {\"name\": \"South\", \"task\": \"Look.\"}
turn
  when has started
  call send_message {\"to\": \"all\", \"message\": \"Come home.\"}
turn
  when was sent to 2 tasks
  say I wait.
turn
  repeat
  when North comes
  say North said so.
turn
  repeat
  say I still wait.

agent North
turn
  when Come home.
  call send_message {\"to\": \"parent\", \"message\": \"North comes.\"}
turn
  when was sent to parent
  say Home.
turn
  delay 10s
  call list_tasks {}

agent South
turn
  when Come home.
  say Home.
turn
  delay 10s
  call list_tasks {}
",
    )
    .await;
    let boss = spawn(&runtime, "Boss", "go").await;
    boss.wait().await.unwrap();
    let transcript_text = transcript(&runtime, &boss).await;
    assert!(
        transcript_text.contains("<message from=\"task 2\">\n    North comes.\n  </message>"),
        "{transcript_text}"
    );
    assert_eq!(transcript_text.matches("outcome=\"succeeded\"").count(), 2, "{transcript_text}");
}

#[tokio::test(start_paused = true)]
async fn at_top_level_the_parent_is_the_session() {
    let text = "agent A\nturn\n call send_message {\"to\": \"parent\", \"message\": \"Half done.\"}\nturn\n say Done.\n";
    let runtime = playing(text).await;
    let agent = spawn(&runtime, "A", "go").await;
    agent.wait().await.unwrap();
    let inbox = runtime.session.inbox(10).await.unwrap();
    assert_eq!(inbox.len(), 1);
    assert_eq!(
        (inbox[0].from.clone(), inbox[0].body.as_str()),
        (MessageSender::Child(agent.no()), "\"Half done.\"")
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_names_its_messages() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
turn
  when North comes
  call send_message {\"to\": \"North\", \"message\": \"Yes.\", \"name\": \"approval\"}
turn
  when Shall I
  call send_message {\"to\": \"North\", \"message\": \"Yes.\", \"name\": \"approval\"}
turn
  when omit `name`
  call send_message {\"to\": \"North\", \"message\": \"Yes.\"}
turn
  repeat
  say I wait.

agent North
turn
  call send_message {\"to\": \"parent\", \"message\": \"x\", \"name\": \" progress\"}
turn
  when starts or ends with a space
  call send_message {\"to\": \"parent\", \"message\": \"North comes.\", \"name\": \"progress\"}
turn
  when was sent to parent
  delay 10s
  call list_tasks {}
turn
  when named \"approval\"
  call ask_parent {\"question\": \"Shall I?\"}
turn
  when Yes.
  say Home.
",
    )
    .await;
    let boss = spawn(&runtime, "Boss", "go").await;
    boss.wait().await.unwrap();
    let text = transcript(&runtime, &boss).await;
    let named =
        "<message from=\"task 2\" message_name=\"progress\">\n    North comes.\n  </message>";
    assert!(text.contains(named), "{text}");
    assert_eq!(text.matches("<message from").count(), 1, "the invalid name sent nothing: {text}");
    assert!(text.contains("waits for an answer, which has no name"), "{text}");
    assert!(text.contains("Home."), "{text}");
}

/// A job that waits for a name gets the message of its agent.
#[tokio::test(start_paused = true)]
async fn a_job_waits_for_a_named_message_of_its_agent() {
    let options = script(
        "agent *\nturn\n  call send_message {\"to\": \"parent\", \"message\": \"Thinking.\"}\n  \
         call send_message {\"to\": \"parent\", \"message\": \"Soup.\", \"name\": \"plan\"}\n\
         turn\n  say Done.\n",
    );
    let runtime = TestRuntime::new(|builder| {
        builder.agents(options).job(Job::new("chef"), |ctx: JobContext, (): ()| async move {
            ctx.spawn(NewTask::agent("Plan a menu.").name("Planner")).await?;
            Ok::<_, JobError>(ctx.receive_as::<String>("plan").await?)
        })
    })
    .await;
    let chef = runtime.session.spawn(NewTask::job("chef", ())).await.unwrap();
    assert_eq!(final_message(&chef.wait().await.unwrap()), "Soup.");
}

#[tokio::test(start_paused = true)]
async fn the_parent_names_the_question_that_it_answers() {
    let runtime = playing(
        "agent Boss
turn
  call spawn_agent {\"name\": \"North\", \"task\": \"Look.\"}
turn
  when has started
  say I wait.
turn
  when waits for answers to 2 questions
  call send_message {\"to\": \"North\", \"message\": \"left\", \"reply_to\": 1}
  call send_message {\"to\": \"North\", \"message\": \"soon\", \"reply_to\": 2}
turn
  when Which side
  when reply_to 2
  call send_message {\"to\": \"North\", \"message\": \"left\"}
turn
  when is answered
  say Both are answered.
turn
  repeat
  when left soon
  say It was heard.
turn
  repeat
  say I still wait.

agent North
turn
  call ask_parent {\"question\": \"Which side?\"}
  call ask_parent {\"question\": \"When?\"}
turn
  when The answer: left
  when The answer: soon
  say left soon
",
    )
    .await;
    assert_eq!(final_message(&run(&runtime, "Boss", "look").await), "It was heard.");
}

#[test]
fn a_short_store_failure_does_not_reach_an_agent() {
    let run_story = |cut: Option<CutPoint>| {
        paused().block_on(async {
            let store = CrashStore::new(Arc::new(MemoryStore::new()), cut);
            let runtime =
                TestRuntime::on_store(store.clone(), |builder| builder.agents(script(STORY))).await;
            let boss = spawn(&runtime, "Boss", "look").await;
            let wait = || boss.wait_within(Duration::from_secs(600));
            let run_result = match wait().await {
                // The client's own commit may be the one that fails.
                Err(_) => wait().await.unwrap(),
                Ok(run_result) => run_result,
            };
            let transcript_text = transcript(&runtime, &boss).await;
            let run_result =
                run_result.unwrap_or_else(|| panic!("after {cut:?} it hangs:\n{transcript_text}"));
            assert_eq!(
                final_message(&run_result),
                "All is well.",
                "after {cut:?}:\n{transcript_text}"
            );
            for trouble in ["unavailable", "unknown:", "internal"] {
                assert!(
                    !transcript_text.contains(trouble),
                    "after {cut:?} the model got it:\n{transcript_text}"
                );
            }
            store.commits()
        })
    };
    let commits = run_story(None);
    assert!(commits > 20, "{commits} commits");
    // The first two open the session and spawn the agent, which is the client's part.
    for commit in 2..commits {
        for durable in [false, true] {
            run_story(Some(CutPoint { commit, durable, mode: CutMode::Fail }));
        }
    }
}
