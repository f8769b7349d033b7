//! Random histories of a tree, each command held against a naive reference and a set of rules.
//!
//! `PROPTEST_CASES` sets how many histories each test plays. A failing one is shrunk, and its seed
//! is printed and kept in `proptest-regressions`.

mod approvals;
mod checks;
mod finale;
mod ledger;
mod naive;
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

/// A history: the numbers of its steps, in what they choose from.
fn history() -> impl Strategy<Value = Vec<Gene>> {
    let gene = (0u8..100, any::<u32>(), any::<u32>()).prop_map(|(what, a, b)| Gene(what, a, b));
    proptest::collection::vec(gene, 1..120)
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(700), max_shrink_iters: 2_000, ..Default::default() }
}

fn run(limits: Limits, history: &[Gene]) {
    let mut world = World::new(limits);
    for gene in history {
        play(&mut world, *gene);
    }
    finale::drive_to_the_end(&mut world);
    round_trip(world.tree.row());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_session_without_limits(history in history()) {
        run(Limits::default(), &history);
    }

    #[test]
    fn a_session_in_which_few_run_at_once(history in history(), running in 1u32..4) {
        run(Limits { running: Some(running), ..Limits::default() }, &history);
    }

    #[test]
    fn a_session_with_every_limit(history in history(), most in 2u32..5) {
        let limits = Limits {
            depth: Some(3),
            width: Some(most * 2),
            total: Some(most * 3),
            running: Some(most),
            tokens: Some(400),
            time: Some(Millis(20_000)),
            spawn_rate: Some(player::RATE),
            ..Limits::default()
        };
        run(limits, &history);
    }
}

/// Both wire forms give back what went in, and a reader ignores what a newer writer added.
pub(crate) fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let packed = rmp_serde::to_vec_named(value).expect("it packs");
    assert_eq!(*value, rmp_serde::from_slice::<T>(&packed).expect("it unpacks"));
    let mut json = serde_json::to_value(value).expect("it is JSON");
    if let Some(object) = json.as_object_mut() {
        object.insert("added_by_a_newer_version".to_owned(), serde_json::json!({"a": [1]}));
    }
    assert_eq!(*value, T::deserialize(json).expect("JSON gives it back, whatever was added"));
}

/// A row as a newer version may write it.
#[derive(Serialize)]
struct Newer {
    #[serde(flatten)]
    row: TaskRow,
    added_by_a_newer_version: Vec<u32>,
}

/// The packed form too is read by name, so that an older reader gets by with a newer row.
#[test]
fn a_packed_row_with_an_unknown_field_is_read() {
    let mut world = World::new(Limits::default());
    play(&mut world, Gene(1, 1, 1));
    let row = world.store.tasks.values().next().expect("the first step spawns").clone();
    let newer = Newer { row: row.clone(), added_by_a_newer_version: vec![1, 2] };
    let packed = rmp_serde::to_vec_named(&newer).expect("it packs");
    assert_eq!(rmp_serde::from_slice::<TaskRow>(&packed).expect("it unpacks"), row);
}
