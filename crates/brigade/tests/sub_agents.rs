//! The `sub_agents` example plays its script to the end, and tells of it truthfully.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Examples lie beside the folder of the test programs.
fn example() -> PathBuf {
    let me = std::env::current_exe().expect("a test knows where it is");
    let target = me.parent().and_then(Path::parent).expect("in target/debug/deps");
    target.join("examples/sub_agents")
}

#[test]
fn three_agents_and_a_command_come_back_to_the_chef() {
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
fn a_model_that_is_not_there_is_told() {
    let output = Command::new(example())
        .env("BRIGADE_MODEL", "antropic/claude")
        .output()
        .expect("the example is built (cargo build --examples)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("no provider is named `antropic`"), "{errors}");
}
