//! The protocol as it should be: all properties hold in every reachable state.

use crate::exhaustive::assert_properties;
use crate::feed::FeedModel;
use crate::leases::LeaseModel;
use crate::wakeups::WakeupModel;
use crate::writers::{WriterBounds, WriterModel};

/// Three nodes, two sessions, two moves of each.
const FLEET: WriterBounds =
    WriterBounds { nodes: 3, sessions: 2, epochs: 3, events: 2, calls: 0, losses: 1, lanes: 3 };

fn check_writers(title: &str, bounds: WriterBounds, is_reduced: bool) {
    let title = format!("writers, {title}: {bounds:?}");
    assert_properties(&title, WriterModel { bounds, mutants: Vec::new(), is_reduced });
}

#[test]
fn writers_with_a_lost_answer() {
    check_writers("a lost answer", FLEET, true);
}

#[test]
fn writers_with_a_call() {
    let bounds = WriterBounds { calls: 1, losses: 0, ..FLEET };
    check_writers("a call", bounds, true);
}

#[test]
fn writers_of_one_session_with_a_call_and_two_lost_answers() {
    let bounds = WriterBounds { sessions: 1, calls: 1, losses: 2, ..FLEET };
    check_writers("a call and two lost answers", bounds, true);
}

/// The reduction hides no failure of a small fleet: without it, all properties hold as well.
#[test]
fn writers_without_reduction() {
    let bounds = WriterBounds { nodes: 2, sessions: 1, calls: 1, losses: 1, lanes: 2, ..FLEET };
    check_writers("not reduced", bounds, false);
}

#[test]
fn writers_that_join_again() {
    let bounds = WriterBounds { nodes: 2, sessions: 1, calls: 1, losses: 1, lanes: 3, ..FLEET };
    check_writers("with a new incarnation", bounds, false);
}

#[test]
#[ignore = "4 minutes, 3 GB: cargo test -p brigade-store --test fleet_protocol -- --ignored"]
fn writers_with_calls_and_a_lost_answer() {
    let bounds = WriterBounds { calls: 1, ..FLEET };
    check_writers("a call and a lost answer", bounds, true);
}

#[test]
fn leases_of_a_fleet() {
    let model =
        LeaseModel { nodes: 3, sessions: 2, epochs: 3, ttl: 2, margin: 1, jumps: 0, mutant: None };
    assert_properties(&format!("leases: {model:?}"), model);
}

/// A jump of the database's clock is harmless if it is shorter than the margin.
#[test]
fn leases_with_a_jump_within_the_margin() {
    let model =
        LeaseModel { nodes: 2, sessions: 1, epochs: 3, ttl: 3, margin: 2, jumps: 1, mutant: None };
    assert_properties(&format!("leases, a jump: {model:?}"), model);
}

#[test]
fn feed_across_lanes() {
    let model = FeedModel { lanes: 3, sessions: 2, moves: 2, events: 3, mutant: None };
    assert_properties(&format!("feed: {model:?}"), model);
}

#[test]
fn wakeups_of_a_fleet() {
    let model = WakeupModel { nodes: 3, sessions: 2, releases: 1, mutant: None };
    assert_properties(&format!("wake-ups: {model:?}"), model);
}
