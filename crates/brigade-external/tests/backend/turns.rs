//! Turns: their results, sessions, messages, usage and transcripts.

use brigade_model::ids::TaskNo;
use brigade_model::limits::{Money, Usage};
use brigade_runtime::NewTask;

use crate::support::{World, answer, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn every_built_in_agent_runs_a_turn() {
    let world = World::open().await;
    assert_eq!(answer(&world.run("claude", "begin").await), "Turn 1.");
    for vendor in ["gemini", "opencode", "qwen"] {
        assert_eq!(answer(&world.run(vendor, "count").await), "There are 12 plates.", "{vendor}");
    }
    assert_eq!(answer(&world.run("codex", "count").await), "There are 12 plates, turn 1.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_the_next_turn_of_the_same_session() {
    for (vendor, results) in [
        ("claude", ["Turn 1.", "Turn 2."]),
        ("codex", ["There are 12 plates, turn 1.", "There are 12 plates, turn 2."]),
    ] {
        let world = World::open().await;
        let agent = world.spawn(vendor, "begin").await;
        assert_eq!(answer(&agent.wait().await.unwrap()), results[0]);
        agent.send("go on").await.unwrap();
        assert_eq!(answer(&agent.wait().await.unwrap()), results[1], "{vendor}");
        // Claude and Codex report the totals of their session: each turn is charged once.
        let used = world.task(1).await.row.usage();
        let expected = match vendor {
            "claude" => Usage { tokens: 220, money: Money(2_000) },
            _ => Usage { tokens: 480, money: Money(0) },
        };
        assert_eq!(used, expected, "{vendor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_during_a_turn_is_read_after_it() {
    let world = World::open().await;
    let agent = world.spawn("claude", "wait for the gate").await;
    world.wait_for_transcript("Waiting.").await;
    agent.send("and then").await.unwrap();
    world.open_gate();
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 2.");
    assert_eq!(world.read_vendor_file("starts").lines().count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_stops_the_turn_and_the_session_goes_on() {
    let world = World::open().await;
    let agent = world.spawn("claude", "hang").await;
    world.wait_for_transcript("Hanging.").await;
    world.session.interrupt(&agent, "something else").await.unwrap();
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 2.");
    assert!(world.is_ended(2).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transcript_has_texts_calls_and_results() {
    let world = World::open().await;
    let agent = world.spawn("codex", "count").await;
    agent.wait().await.unwrap();
    let transcript = world.session.transcript((&agent).into()).await.unwrap().unwrap();
    for part in ["count", "-> command_execution", "ls plates", "12", "There are 12 plates, turn 1."]
    {
        assert!(transcript.contains(part), "{part}: {transcript}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_is_a_part_of_its_agent_and_ends_with_its_turn() {
    let world = World::open().await;
    world.run("claude", "begin").await;
    let program = world.task(2).await;
    assert!(program.row.spec.part_of_parent);
    assert!(!program.row.is_alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_program_and_all_that_it_started() {
    let world = World::open().await;
    let agent = world.spawn("claude", "hang").await;
    world.wait_for_transcript("Hanging.").await;
    agent.stop(None).await.unwrap();
    let ended = agent.wait().await.unwrap();
    assert_eq!(ended.outcome.label(), "cancelled");
    eventually(async || world.is_ended(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_ends_the_agent_before_its_next_turn() {
    let world = World::open().await;
    let limits = brigade_model::limits::Limits { tokens: Some(100), ..Default::default() };
    let task: NewTask<_> = world.agent("claude", "begin").limits(limits);
    let agent = world.session.spawn(task).await.unwrap();
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 1.");
    agent.send("go on").await.unwrap();
    let ended = agent.wait().await.unwrap();
    assert!(ended.outcome.to_string().contains("tokens"), "{}", ended.outcome);
    assert_eq!(world.read_vendor_file("starts").lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_ends_a_turn_that_reports_its_steps() {
    let world = World::open().await;
    let limits = brigade_model::limits::Limits { money: Some(Money(450)), ..Default::default() };
    let task = world.agent("opencode", "spend for ever").limits(limits);
    let agent = world.session.spawn(task).await.unwrap();
    let ended = agent.wait().await.unwrap();
    assert!(ended.outcome.to_string().contains("money"), "{}", ended.outcome);
    eventually(async || world.is_ended(2).await).await;
    let used = world.task(1).await.row.usage();
    assert!(used.money >= Money(450) && used.money < Money(5_000), "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_ends_a_turn_that_reports_its_model_calls() {
    let world = World::open().await;
    let limits = brigade_model::limits::Limits { tokens: Some(10_000), ..Default::default() };
    let task = world.agent("claude", "spend for ever").limits(limits);
    let agent = world.session.spawn(task).await.unwrap();
    let ended = agent.wait().await.unwrap();
    assert!(ended.outcome.to_string().contains("tokens"), "{}", ended.outcome);
    eventually(async || world.is_ended(2).await).await;
    // Each reply has 1,001 tokens and two lines, and is charged once.
    let used = world.task(1).await.row.usage().tokens;
    assert!(used >= 10_000 && used.is_multiple_of(1_001), "{used}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_turn_costs_what_its_model_calls_reported() {
    let world = World::open().await;
    let agent = world.spawn("claude", "spend and hang").await;
    world.wait_for_transcript("Hanging.").await;
    agent.stop(None).await.unwrap();
    assert_eq!(agent.wait().await.unwrap().outcome.label(), "cancelled");
    assert_eq!(world.task(1).await.row.usage().tokens, 1_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_turn_is_counted_beside_the_totals_of_the_next() {
    let world = World::open().await;
    let agent = world.spawn("claude", "spend and die").await;
    assert_eq!(agent.wait().await.unwrap().outcome.label(), "failed");
    assert_eq!(world.task(1).await.row.usage().tokens, 1_001);
    agent.send("go on").await.unwrap();
    assert_eq!(answer(&agent.wait().await.unwrap()), "Turn 2.");
    assert_eq!(world.task(1).await.row.usage().tokens, 1_001 + 220);
}

#[tokio::test(flavor = "multi_thread")]
async fn money_that_nobody_limited_is_not_spent() {
    let world = World::open().await;
    let ended = world.run("claude", "spend the money").await;
    let outcome = ended.outcome.to_string();
    assert!(outcome.contains("Reached maximum budget"), "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_spent_its_money_ends_by_the_budget() {
    let world = World::open().await;
    let limits =
        brigade_model::limits::Limits { money: Some(Money(250_000)), ..Default::default() };
    let task = world.agent("claude", "spend the money").limits(limits);
    let ended = world.session.spawn(task).await.unwrap().wait().await.unwrap();
    assert_eq!(ended.outcome.to_string(), "failed (budget: money)");
    let expected = Usage { tokens: 1_050, money: Money(300_000) };
    assert_eq!(world.task(1).await.row.usage(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_learns_the_money_that_remains() {
    let world = World::open().await;
    let limits =
        brigade_model::limits::Limits { money: Some(Money(250_000)), ..Default::default() };
    let task = world.agent("claude", "begin").limits(limits);
    world.session.spawn(task).await.unwrap().wait().await.unwrap();
    let program = world.task(2).await;
    let command = format!("{:?}", program.row.spec.work);
    assert!(command.contains("--max-budget-usd") && command.contains("0.25"), "{command}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_is_the_result_and_only_a_longer_one_is_truncated() {
    let world = World::open().await;
    let whole = answer(&world.run("claude", "write a book of 400000 bytes").await);
    assert_eq!(whole.len(), 400_000);
    let truncated = answer(&world.run("claude", "write a book of 1500000 bytes").await);
    assert!(truncated.starts_with(&"x".repeat(500_000)));
    let end = &truncated[truncated.len() - 80..];
    assert!(end.ends_with(" bytes are stored.]"), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_takes_no_repair_from_the_agent() {
    let world = World::open().await;
    let schema = serde_json::json!({ "type": "object" });
    let task = world.agent("claude", "hang").result_schema(&schema);
    let agent = world.session.spawn(task).await.unwrap();
    world.wait_for_transcript("Hanging.").await;
    world.session.interrupt(&agent, "something else").await.unwrap();
    let ended = agent.wait().await.unwrap();
    assert!(ended.outcome.to_string().contains("no usable result"), "{}", ended.outcome);
    // The turn that was interrupted, its continuation, and each repair.
    let repairs = brigade_agent::StopPolicy::default().max_repairs as usize;
    assert_eq!(world.read_vendor_file("starts").lines().count(), 2 + repairs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_talks_for_ever_is_stored_in_the_space_of_its_output() {
    let world = World::open().await;
    assert_eq!(answer(&world.run("claude", "talk for ever").await), "All are clean.");
    let session = world.session.id();
    let journal = world.store.journal(session, TaskNo::new(1).unwrap()).await.unwrap();
    let sizes = journal.iter().map(|it| serde_json::to_string(&it.completion).unwrap().len());
    let stored: usize = sizes.sum();
    // Each of the 20,000 lines has more than 150 bytes.
    assert!(stored < 3 * 20_000 * 150, "{stored}");
    let transcript = world.session.transcript(TaskNo::new(1).unwrap().into()).await.unwrap();
    assert!(transcript.unwrap().contains("Plate 19999 is clean."));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_result_take_bounded_space_in_the_state() {
    let world = World::open().await;
    assert_eq!(answer(&world.run("claude", "make many calls").await), "Called.");
    let session = world.session.id();
    let journal = world.store.journal(session, TaskNo::new(1).unwrap()).await.unwrap();
    let last = serde_json::to_string(&journal.last().unwrap().completion).unwrap();
    assert_eq!(last.matches("toolu_").count(), 64);
    assert!(last.contains("toolu_199"));
}
