//! One agent by itself.

use brigade_model::outcome::{Failure, Outcome};

use crate::support::{final_message, playing, run, spawn, transcript};

#[tokio::test(start_paused = true)]
async fn the_last_message_is_the_result() {
    let runtime = playing("agent A\nturn\n say Soup is ready.\n").await;
    assert_eq!(final_message(&run(&runtime, "A", "make soup").await), "Soup is ready.");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_refused_and_the_run_continues() {
    let runtime = playing(
        "agent A\nturn\n call fly {}\nturn\n when there is no tool \"fly\"\n say I cannot fly.\n",
    )
    .await;
    assert_eq!(final_message(&run(&runtime, "A", "fly").await), "I cannot fly.");
}

#[tokio::test(start_paused = true)]
async fn malformed_arguments_are_refused() {
    let runtime =
        playing("agent A\nturn\n malformed list_tasks {oops\nturn\n when malformed\n say Sorry.\n")
            .await;
    assert_eq!(final_message(&run(&runtime, "A", "list").await), "Sorry.");
}

#[tokio::test(start_paused = true)]
async fn wrong_missing_and_extra_arguments_are_named() {
    let text = "agent A\nturn
  call spawn_agent {}
  call spawn_agent {\"task\": 7}
  call spawn_agent {\"task\": \"x\", \"colour\": \"red\"}
  call spawn_agent {\"task\": \"  \"}
turn
  say Done.
";
    let runtime = playing(text).await;
    let agent = spawn(&runtime, "A", "try").await;
    agent.wait().await.unwrap();
    let transcript_text = transcript(&runtime, &agent).await;
    for part in [
        "missing argument `task`",
        "the argument `task` must be a string, not 7",
        "unknown argument `colour`",
        "the argument `task` is blank",
    ] {
        assert!(transcript_text.contains(part), "{part:?} is not in {transcript_text}");
    }
    assert_eq!(runtime.session.list().len(), 0, "a malformed call starts nothing");
}

#[tokio::test(start_paused = true)]
async fn the_same_calls_again_and_again_are_a_loop() {
    let runtime = playing("agent A\nturn\n repeat\n call list_tasks {}\n").await;
    let run_result = run(&runtime, "A", "list").await;
    let Outcome::Failed(failed) = &*run_result.outcome else { panic!("{:?}", run_result.outcome) };
    assert_eq!(failed.failure, Failure::Loop { times: 6 });
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_ends_the_run_truthfully() {
    let runtime = playing("agent A\nturn\n fault 500 x99\n say Never.\n").await;
    let run_result = run(&runtime, "A", "try").await;
    assert!(run_result.outcome.to_string().contains("the model:"), "{}", run_result.outcome);
    assert_eq!(run_result.outcome.label(), "failed");
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_effect_inside_a_hung_model_call() {
    let runtime = playing("agent A\nturn\n fault hang\n say Never.\n").await;
    let agent = spawn(&runtime, "A", "hang").await;
    agent.stop(Some("enough")).await.unwrap();
    assert_eq!(agent.wait().await.unwrap().outcome.label(), "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_message_opens_the_next_run_on_the_same_transcript() {
    let runtime =
        playing("agent A\nturn\n say First.\nturn\n when and now\n say Second, after First.\n")
            .await;
    let agent = spawn(&runtime, "A", "begin").await;
    assert_eq!(final_message(&agent.wait().await.unwrap()), "First.");
    agent.send("and now?").await.unwrap();
    let run_result = agent.wait().await.unwrap();
    assert_eq!(
        (run_result.run.0, final_message(&run_result)),
        (2, "Second, after First.".to_owned())
    );
    let transcript_text = transcript(&runtime, &agent).await;
    assert!(
        transcript_text.contains("First.") && transcript_text.contains("and now?"),
        "{transcript_text}"
    );
}
