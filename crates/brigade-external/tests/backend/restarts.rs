//! Runtimes that end in mid-turn: the program goes on, and nothing is sent or counted twice.

use brigade_model::limits::{Money, Usage};

use crate::support::{World, answer};

#[tokio::test(flavor = "multi_thread")]
async fn the_next_runtime_goes_on_in_mid_turn() {
    let world = World::open().await;
    let agent = world.spawn("claude", "wait for the gate").await;
    let no = agent.no();
    world.wait_for_transcript("Waiting.").await;
    drop(agent);
    let world = world.restart().await;
    world.open_gate();
    let results = world.session.wait_all([no]).await.unwrap();
    assert_eq!(answer(&results[0]), "The gate is open.");
    assert_eq!(world.read_vendor_file("starts").lines().count(), 1);
    let used = world.task(1).await.row.usage();
    assert_eq!(used, Usage { tokens: 110, money: Money(1_000) });
    let transcript = world.session.transcript(no.into()).await.unwrap().unwrap();
    assert_eq!(transcript.matches("Waiting.").count(), 1, "{transcript}");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_of_the_time_between_two_runtimes_is_read() {
    let world = World::open().await;
    let agent = world.spawn("codex", "wait for the gate").await;
    let no = agent.no();
    crate::support::eventually(async || !world.read_vendor_file("starts").is_empty()).await;
    drop(agent);
    world.open_gate();
    let world = world.restart().await;
    let results = world.session.wait_all([no]).await.unwrap();
    assert_eq!(answer(&results[0]), "There are 12 plates, turn 1.");
    assert_eq!(world.read_vendor_file("starts").lines().count(), 1);
}
