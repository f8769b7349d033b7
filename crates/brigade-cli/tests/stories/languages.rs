//! Definitions in the language of the user.

use crate::story_env::StoryEnv;

const REVIEWER: &str = "---
name: reviewer
description: Reads a change.
localized:
  de: { name: Prüferin, description: Liest eine Änderung. }
  de-AT: { name: Leserin }
---
You are a careful reviewer.
";

#[test]
fn agents_are_listed_in_the_requested_language() {
    let story = StoryEnv::new();
    story.define("reviewer", REVIEWER);
    let plain = story.ok(["agents"]);
    assert!(plain.contains("Reads a change.") && !plain.contains("Prüferin"), "{plain}");
    let german = story.ok(["agents", "--lang", "de"]);
    assert!(german.contains("reviewer (Prüferin)"), "{german}");
    assert!(german.contains("Liest eine Änderung."), "{german}");
    let out = story.command(["agents"]).env("LANG", "de_AT.UTF-8").output().unwrap();
    let austrian = String::from_utf8(out.stdout).unwrap();
    assert!(austrian.contains("reviewer (Leserin)"), "{austrian}");
    assert!(austrian.contains("Liest eine Änderung."), "missing texts come from German");
    let french = story.json(["agents", "--lang", "fr"]);
    let agents = french["agents"].as_array().unwrap();
    let reviewer = agents.iter().find(|agent| agent["name"] == "reviewer").unwrap();
    assert_eq!(reviewer["description"], "Reads a change.");
    assert_eq!(reviewer.get("title"), None);
    let ran = story.run(["agents", "--lang", "german"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("`german` is no language tag"), "{}", ran.err);
}
