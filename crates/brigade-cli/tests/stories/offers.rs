//! Suggestions for unknown addresses, and counts.

use crate::story_env::{StoryEnv, poll};

#[test]
fn numbers_and_single_letters_get_no_suggestion() {
    let story = StoryEnv::new();
    story.ok(["exec", "--name", "a", "--", "true"]);
    story.ok(["exec", "--name", "go", "--", "true"]);
    for typed in ["9", "77", "process:9", "process:77", "x", "og", "zz"] {
        let ran = story.run(["show", typed]);
        assert_eq!(ran.code, 127, "{typed}: {}", ran.err);
        assert!(!ran.err.contains("did you mean"), "{typed}: {}", ran.err);
    }
}

#[test]
fn status_uses_singular_and_plural() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "60"]);
    // Clients count until the daemon notices that they disconnected.
    let prints = |text: &str| {
        poll(text, || story.ok(["daemon", "status"]).contains(text).then_some(()));
    };
    prints("1 client, 1 workspace, 1 alive task\n");
    story.ok(["stop", "--wait", "1"]);
    prints("1 client, 1 workspace, 0 alive tasks\n");
}
