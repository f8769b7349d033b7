//! Nodes that cannot read a session, because a newer version wrote it.

use brigade_model::refusal::RefusalKind;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_session_goes_to_a_node_that_can_read_it() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let old = fleet.node("old").await;
    let session = one.session("kitchen").await;
    let there = old.session("kitchen").await;
    old.connection.set_unreadable(session.id());
    session.spawn(SLEEP.with(600)).await.unwrap();
    drop((session, one));
    // The old node claims it, and gives it up.
    tokio::time::sleep(2 * LEASE).await;
    for _ in 0..50 {
        assert_eq!(old.owner(&there).await, None, "it is not claimed again at once");
        tokio::time::sleep(SECOND / 5).await;
    }
    let refused = there.spawn(SLEEP.with(1)).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    assert!(refused.message.contains("written by a newer version"), "{refused}");

    let new = fleet.node("new").await;
    old.wait_for_owner(&there, Some("new")).await;
    let again = new.session("kitchen").await;
    let task = again.spawn(SLEEP.with(1)).await.unwrap();
    assert_eq!(task.result().await.unwrap(), 1);
    // The old node passes requests on.
    let task = there.spawn(ECHO.with(())).await.unwrap();
    assert_eq!(new.owner(&again).await.as_deref(), Some("new"));
    again.send(task.no(), "read").await.unwrap();
    assert!(again.task(task.no()).await.unwrap().wait().await.is_ok());
}
