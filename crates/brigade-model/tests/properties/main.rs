//! Random histories of a session. Each command is compared with a naive reference and checked
//! against invariants.
//!
//! `PROPTEST_CASES` sets the number of histories per test. A failing history is shrunk, and its
//! seed is printed and stored in `proptest-regressions`.

mod approvals;
mod checks;
mod finale;
mod ledger;
mod naive;
mod naive_messages;
mod naive_waits;
mod player;
mod rows;
mod world;

use std::fmt::Debug;

use brigade_model::ids::Millis;
use brigade_model::limits::Limits;
use brigade_model::task::TaskRow;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::player::{Gene, play};
use crate::world::World;

/// Generates a history: the numbers of its steps.
fn history() -> impl Strategy<Value = Vec<Gene>> {
    let gene = (0u8..100, any::<u32>(), any::<u32>()).prop_map(|(kind, a, b)| Gene(kind, a, b));
    proptest::collection::vec(gene, 1..120)
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(700), max_shrink_iters: 2_000, ..Default::default() }
}

fn run(limits: Limits, history: &[Gene]) {
    run_in(World::new(limits), history);
}

fn run_in(mut world: World, history: &[Gene]) {
    for gene in history {
        play(&mut world, *gene);
    }
    finale::drive_to_the_end(&mut world);
    round_trip(world.tree.row());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_session_without_limits_keeps_all_invariants(history in history()) {
        run(Limits::default(), &history);
    }

    #[test]
    fn a_session_with_a_running_limit_keeps_all_invariants(history in history(), running in 1u32..4) {
        run(Limits { running: Some(running), ..Limits::default() }, &history);
    }

    #[test]
    fn a_session_of_a_runtime_with_few_slots_keeps_all_invariants(
        history in history(),
        running in proptest::option::of(1u32..4),
        dice: u32,
    ) {
        let mut world = World::new(Limits { running, ..Limits::default() });
        world.runtime_dice = Some(dice);
        run_in(world, &history);
    }

    #[test]
    fn a_session_with_every_limit_keeps_all_invariants(history in history(), max in 2u32..5) {
        let limits = Limits {
            depth: Some(3),
            width: Some(max * 2),
            total: Some(max * 3),
            running: Some(max),
            tokens: Some(400),
            time: Some(Millis(20_000)),
            spawn_rate: Some(player::RATE),
            ..Limits::default()
        };
        run(limits, &history);
    }
}

/// Checks that both wire forms return the same value, and that a reader ignores fields of a newer
/// writer.
pub(crate) fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let packed = rmp_serde::to_vec_named(value).expect("it packs");
    assert_eq!(*value, rmp_serde::from_slice::<T>(&packed).expect("it unpacks"));
    let mut json = serde_json::to_value(value).expect("it is JSON");
    if let Some(object) = json.as_object_mut() {
        object.insert("added_by_a_newer_version".to_owned(), serde_json::json!({"a": [1]}));
    }
    assert_eq!(*value, T::deserialize(json).expect("an added field is ignored"));
}

/// A row as a newer version may write it.
#[derive(Serialize)]
struct Newer {
    #[serde(flatten)]
    row: TaskRow,
    added_by_a_newer_version: Vec<u32>,
}

/// The packed form is read by name too, so that an older reader can read a newer row.
#[test]
fn a_packed_row_with_an_unknown_field_is_read() {
    let mut world = World::new(Limits::default());
    play(&mut world, Gene(1, 1, 1));
    let row = world.store.tasks.values().next().expect("the first step spawns").clone();
    let newer = Newer { row: row.clone(), added_by_a_newer_version: vec![1, 2] };
    let packed = rmp_serde::to_vec_named(&newer).expect("it packs");
    assert_eq!(rmp_serde::from_slice::<TaskRow>(&packed).expect("it unpacks"), row);
}
