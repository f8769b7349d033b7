//! Runs a model to its end and reports the size of its state space.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// The threads of a checker.
const THREADS: usize = 2;

/// Visits every reachable state, and panics with a path to one that breaks a property.
/// Panics also if a `sometimes` property has no example: such a model proves nothing.
pub(crate) fn assert_properties<M>(title: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let started = Instant::now();
    let properties = model.properties().len();
    let checker =
        model.checker().threads(THREADS).finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
    let checker = checker.join();
    checker.assert_properties();
    println!(
        "{title}: {} states, {} transitions, depth {}, {properties} properties, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed().as_secs_f64(),
    );
}

/// Asserts that a mutant breaks these properties and no others, and prints a shortest way to each.
pub(crate) fn assert_breaks<M>(title: &str, model: M, expected: &[&'static str])
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let failures: BTreeSet<&str> = find_failures(title, model.clone()).into_iter().collect();
    assert_eq!(failures, expected.iter().copied().collect(), "the broken properties of {title}");
    for property in expected {
        println!("{title} breaks {property:?}:");
        for action in find_shortest_path(&model, property) {
            println!("    {action:?}");
        }
    }
}

fn find_failures<M>(title: &str, model: M) -> Vec<&'static str>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let failing = |property: &Property<M>| property.expectation.discovery_is_failure();
    let failing: Vec<&str> =
        model.properties().iter().filter(|it| failing(it)).map(|it| it.name).collect();
    // No model breaks all properties, so the checker visits every state.
    let checker = model.checker().finish_when(HasDiscoveries::All).spawn_bfs().join();
    println!("{title}: {} states", checker.unique_state_count());
    let found = checker.discoveries();
    failing.into_iter().filter(|name| found.contains_key(name)).collect()
}

/// Returns the actions on a shortest path to a state that breaks a property: the checker itself
/// reports some path.
fn find_shortest_path<M>(model: &M, property: &'static str) -> Vec<M::Action>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    // The checker does not examine the states at the greatest depth.
    (2..)
        .find_map(|depth| {
            let checker = model.clone().checker().target_max_depth(depth).spawn_bfs().join();
            checker.discovery(property).map(|path| path.into_actions())
        })
        .unwrap_or_default()
}
