//! Definitions in the language of whoever looks.

use crate::kitchen::Kitchen;

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
fn agents_are_listed_in_the_language_that_is_asked_for() {
    let kitchen = Kitchen::new();
    kitchen.define("reviewer", REVIEWER);
    let plain = kitchen.ok(["agents"]);
    assert!(plain.contains("Reads a change.") && !plain.contains("Prüferin"), "{plain}");
    let german = kitchen.ok(["agents", "--lang", "de"]);
    assert!(german.contains("reviewer (Prüferin)"), "{german}");
    assert!(german.contains("Liest eine Änderung."), "{german}");
    let out = kitchen.command(["agents"]).env("LANG", "de_AT.UTF-8").output().unwrap();
    let austrian = String::from_utf8(out.stdout).unwrap();
    assert!(austrian.contains("reviewer (Leserin)"), "{austrian}");
    assert!(austrian.contains("Liest eine Änderung."), "what is not there is as in German");
    let french = kitchen.json(["agents", "--lang", "fr"]);
    let agents = french["agents"].as_array().unwrap();
    let reviewer = agents.iter().find(|agent| agent["name"] == "reviewer").unwrap();
    assert_eq!(reviewer["description"], "Reads a change.");
    assert_eq!(reviewer.get("title"), None);
    let ran = kitchen.run(["agents", "--lang", "german"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("`german` is no language tag"), "{}", ran.err);
}
