//! The `sub_agents` example plays its script to the end and prints true events.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of the example, which is beside the directory of the test programs.
fn example() -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    let target = me.parent().and_then(Path::parent).expect("in target/debug/deps");
    target.join("examples/sub_agents")
}

#[test]
fn the_chef_gets_the_results_of_three_agents_and_a_process() {
    let output = Command::new(example())
        .env_remove("BRIGADE_MODEL")
        .output()
        .expect("the example is built (cargo build --examples)");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    for part in [
        "Soup     step 2: thinking after look_in_pantry",
        "Main     succeeded: Mushroom risotto, 30 minutes.",
        "Dessert  succeeded",
        "Oven     says: oven: 180 degrees",
        "Oven     succeeded",
        "Chef     succeeded",
        "The chef succeeded: The oven is hot.",
        "\n2. Mushroom risotto\n",
        "5100 tokens were used in all.",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let first = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in\n{text}"));
    assert!(first("Oven     succeeded") < first("Chef     succeeded"), "{text}");
}

#[test]
fn an_unknown_provider_is_an_error() {
    let output = Command::new(example())
        .env("BRIGADE_MODEL", "antropic/claude")
        .output()
        .expect("the example is built (cargo build --examples)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("no provider is named `antropic`"), "{errors}");
}
