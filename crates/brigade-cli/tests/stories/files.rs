//! Agents with file tools: permitted and denied calls.

use crate::story_env::StoryEnv;

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

fn story() -> StoryEnv {
    let story = StoryEnv::new();
    story.script(WRITER);
    std::fs::write(story.project().join("recipe.md"), "no salt\n").unwrap();
    story
}

fn read(story: &StoryEnv, name: &str) -> Option<String> {
    std::fs::read_to_string(story.project().join(name)).ok()
}

#[test]
fn by_default_files_are_read_and_not_written() {
    let story = story();
    assert_eq!(story.ok(["run", "cook"]), "I only read.\n");
    assert_eq!(read(&story, "recipe.md").as_deref(), Some("no salt\n"));
    assert_eq!(read(&story, "menu.md"), None);
    let help = story.ok(["run", "--help"]);
    assert!(help.contains("write_file, edit_file"), "{help}");
}

#[test]
fn files_are_written_where_that_is_allowed() {
    let story = story();
    assert_eq!(story.ok(["run", "--allow", "edit_file(*.md)", "cook"]), "I edited.\n");
    assert_eq!(read(&story, "recipe.md").as_deref(), Some("salt\n"));
    assert_eq!(read(&story, "menu.md"), None);
}

#[test]
fn a_named_definition_may_allow_writes() {
    let story = story();
    let define = |name: &str, tools: &str| {
        let text = format!("---\nname: {name}\ndescription: C.\ntools: [{tools}]\n---\nCook.\n");
        story.define(name, &text);
    };
    define("general", "read_file, edit_file, write_file");
    define("all", "\"*\"");
    define("cook", "read_file, edit_file, write_file");
    story.trust();
    // A definition that `--agent` does not name gets no write tools, nor does one with a wildcard.
    assert_eq!(story.ok(["run", "cook"]), "I only read.\n");
    assert_eq!(story.ok(["run", "--agent", "all", "cook"]), "I only read.\n");
    assert_eq!(story.ok(["run", "--agent", "cook", "cook"]), "I wrote.\n");
    assert_eq!(read(&story, "menu.md").as_deref(), Some("Leeks.\n"));
}

#[test]
fn a_mistyped_tool_is_reported_before_anything_starts() {
    let story = story();
    let ran = story.run(["run", "--deny", "raed_file(.env)", "cook"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("there is no tool \"raed_file\"; did you mean `read_file`?"),
        "{}",
        ran.err
    );
    story.define("cook", "---\nname: cook\ndescription: C.\ntools: [wirte_file]\n---\nCook.\n");
    let listed = story.run(["agents"]);
    let expect = "cook.md:4: `tools`: `wirte_file` can never match: there is no tool";
    assert!(listed.err.contains(expect), "{}", listed.err);
    assert_eq!(story.json(["ps", "--ended"]), serde_json::json!([]), "nothing was started");
}
