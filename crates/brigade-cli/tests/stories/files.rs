//! Agents with files: what they may do with nobody saying so, and what not.

use crate::kitchen::Kitchen;

const WRITER: &str = r#"
agent *
turn
  call read_file {"path": "recipe.md"}
  call edit_file {"path": "recipe.md", "edits": [{"old": "no salt", "new": "salt"}]}
  call write_file {"path": "menu.md", "content": "Leeks.\n"}
turn
  when no tool "edit_file"
  when no tool "write_file"
  when no salt
  say I only read.
turn
  when Edited
  when no tool "write_file"
  say I edited.
turn
  when Edited
  when Created
  say I wrote.
turn
  repeat
  say Something else happened.
"#;

fn kitchen() -> Kitchen {
    let kitchen = Kitchen::new();
    kitchen.script(WRITER);
    std::fs::write(kitchen.project().join("recipe.md"), "no salt\n").unwrap();
    kitchen
}

fn has(kitchen: &Kitchen, name: &str) -> Option<String> {
    std::fs::read_to_string(kitchen.project().join(name)).ok()
}

#[test]
fn without_a_word_files_are_read_and_not_written() {
    let kitchen = kitchen();
    assert_eq!(kitchen.ok(["run", "cook"]), "I only read.\n");
    assert_eq!(has(&kitchen, "recipe.md").as_deref(), Some("no salt\n"));
    assert_eq!(has(&kitchen, "menu.md"), None);
    let help = kitchen.ok(["run", "--help"]);
    assert!(help.contains("write_file, edit_file"), "{help}");
}

#[test]
fn files_are_written_where_that_is_allowed() {
    let kitchen = kitchen();
    assert_eq!(kitchen.ok(["run", "--allow", "edit_file(*.md)", "cook"]), "I edited.\n");
    assert_eq!(has(&kitchen, "recipe.md").as_deref(), Some("salt\n"));
    assert_eq!(has(&kitchen, "menu.md"), None);
}

#[test]
fn a_definition_that_is_named_may_say_that_it_writes() {
    let kitchen = kitchen();
    let define = |name: &str, tools: &str| {
        let text = format!("---\nname: {name}\ndescription: C.\ntools: [{tools}]\n---\nCook.\n");
        kitchen.define(name, &text);
    };
    define("general", "read_file, edit_file, write_file");
    define("all", "\"*\"");
    define("cook", "read_file, edit_file, write_file");
    kitchen.trust();
    // One that nobody asked for gives itself nothing, and neither does one that does not say what.
    assert_eq!(kitchen.ok(["run", "cook"]), "I only read.\n");
    assert_eq!(kitchen.ok(["run", "--agent", "all", "cook"]), "I only read.\n");
    assert_eq!(kitchen.ok(["run", "--agent", "cook", "cook"]), "I wrote.\n");
    assert_eq!(has(&kitchen, "menu.md").as_deref(), Some("Leeks.\n"));
}

#[test]
fn a_mistyped_tool_is_told_before_anything_starts() {
    let kitchen = kitchen();
    let ran = kitchen.run(["run", "--deny", "raed_file(.env)", "cook"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("there is no tool \"raed_file\"; did you mean `read_file`?"),
        "{}",
        ran.err
    );
    kitchen.define("cook", "---\nname: cook\ndescription: C.\ntools: [wirte_file]\n---\nCook.\n");
    let listed = kitchen.run(["agents"]);
    let expect = "cook.md:4: `tools`: `wirte_file` can never match: there is no tool";
    assert!(listed.err.contains(expect), "{}", listed.err);
    assert_eq!(kitchen.json(["ps", "--ended"]), serde_json::json!([]), "nothing was started");
}
