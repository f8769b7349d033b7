//! The file tools of agents.

use brigade_agent::definition::{Definition, DefinitionDir};
use brigade_agent::permission::PermissionRules;
use brigade_agent::{ToolEffect, ToolReply};
use brigade_model::refusal::RefusalKind;
use brigade_runtime::{AgentOptions, AgentTask, NewTask, TaskHandle};
use brigade_testkit::TestRuntime;
use tempfile::TempDir;

use crate::support::{FunctionTool, final_message, script, transcript};

fn rules(allow: &[&str], deny: &[&str]) -> PermissionRules {
    let all = |rules: &[&str]| rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let mut rules = PermissionRules::all();
    (rules.allow, rules.deny) = (Some(all(allow)), all(deny));
    rules
}

struct Kitchen {
    dir: TempDir,
    runtime: TestRuntime,
}

impl Kitchen {
    async fn new(options: AgentOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, runtime: TestRuntime::new(|builder| builder.agents(options)).await }
    }

    fn put(&self, name: &str, content: &str) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }

    fn has(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    async fn run(&self, task: NewTask<AgentTask<String>>) -> (TaskHandle<String>, String) {
        let task = task.cwd(self.dir.path());
        let agent = self.runtime.session.spawn(task).await.unwrap();
        let final_message = final_message(&agent.wait().await.unwrap());
        (agent, final_message)
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_reads_edits_and_writes_in_its_directory() {
    let text = r#"agent A
turn
  call list_files {}
  call search_files {"pattern": "salt"}
turn
  when recipe.md (18 bytes)
  when recipe.md:2: no salt
  call read_file {"path": "recipe.md"}
turn
  when 2	no salt
  call edit_file {"path": "recipe.md", "edits": [{"old": "no salt", "new": "some salt"}]}
  call write_file {"path": "menu/today.md", "content": "Leeks.\n"}
turn
  when Edited `recipe.md`: 1 replacement in lines 2
  when Created `menu/today.md`
  say Cooked.
"#;
    let kitchen = Kitchen::new(script(text)).await;
    kitchen.put("recipe.md", "leeks\nno salt\noil\n");
    assert_eq!(kitchen.run(NewTask::agent("cook").name("A")).await.1, "Cooked.");
    assert_eq!(kitchen.has("recipe.md"), "leeks\nsome salt\noil\n");
    assert_eq!(kitchen.has("menu/today.md"), "Leeks.\n");
}

#[tokio::test(start_paused = true)]
async fn rules_hold_for_paths_however_they_are_written() {
    let text = r#"agent A
turn
  call read_file {"path": ".env"}
  call read_file {"path": "./menu/../.env"}
  call read_file {"path": "link"}
  call write_file {"path": "other.md", "content": "x"}
  call write_file {"path": "menu/x.md", "content": "x"}
turn
  say Tried.
"#;
    let kitchen = Kitchen::new(script(text)).await;
    kitchen.put(".env", "KEY=1\n");
    std::os::unix::fs::symlink(".env", kitchen.dir.path().join("link")).unwrap();
    let allowed = rules(&["read_file", "write_file(menu/*)"], &["read_file(.env*)"]);
    let task = NewTask::agent("cook").name("A").permissions(allowed);
    let (agent, _) = kitchen.run(task).await;
    let transcript_text = transcript(&kitchen.runtime, &agent).await;
    assert!(!transcript_text.contains("KEY"), "{transcript_text}");
    assert_eq!(
        transcript_text.matches("`read_file(.env)` is not permitted").count(),
        3,
        "{transcript_text}"
    );
    assert!(transcript_text.contains("`link` is a link to `.env`"), "{transcript_text}");
    assert!(transcript_text.contains("allows only `write_file(menu/*)`"), "{transcript_text}");
    assert_eq!(kitchen.has("menu/x.md"), "x");
    assert!(!kitchen.dir.path().join("other.md").exists());
}

#[tokio::test(start_paused = true)]
async fn a_child_has_the_directory_and_no_more_permissions_than_its_parent() {
    let text = r#"agent A
turn
  call spawn_agent {"task": "read", "name": "B", "wait": true}
turn
  when It says leeks, and I cannot write.
  say Fine.

agent B
turn
  call read_file {"path": "recipe.md"}
  call write_file {"path": "recipe.md", "content": ""}
turn
  when leeks
  when no tool "write_file"
  say It says leeks, and I cannot write.
"#;
    let kitchen = Kitchen::new(script(text)).await;
    kitchen.put("recipe.md", "leeks\n");
    let task = NewTask::agent("cook")
        .name("A")
        .permissions(rules(&["*_agent", "*_tasks", "read_file"], &[]));
    assert_eq!(kitchen.run(task).await.1, "Fine.");
    assert_eq!(kitchen.has("recipe.md"), "leeks\n");
}

#[tokio::test(start_paused = true)]
async fn without_a_directory_there_are_no_file_tools() {
    let text = "agent A\nturn\n call read_file {\"path\": \"x\"}\nturn\n when no tool \"read_file\"\n say None.\n";
    let kitchen = Kitchen::new(script(text)).await;
    let task = NewTask::agent("cook").name("A");
    let agent = kitchen.runtime.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "None.");
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_the_program_replaces_a_file_tool() {
    let text = "agent A\nturn\n call read_file {\"path\": \"x\"}\nturn\n when mine\n say Mine.\n";
    let own =
        FunctionTool::new("read_file", ToolEffect::Pure, || async { Ok(ToolReply::text("mine")) });
    let kitchen = Kitchen::new(script(text).tool(own)).await;
    assert_eq!(kitchen.run(NewTask::agent("cook").name("A")).await.1, "Mine.");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_refused_wherever_it_is_named() {
    let cook = Definition::new("cook").prompt("Cook.").tools(["read_file", "raed_file"]);
    let options = script("agent *\nturn\n say Never.\n").definition(cook).unwrap();
    let options = options.definition_dirs(|cwd| cwd.map(DefinitionDir::user).into_iter().collect());
    let kitchen = Kitchen::new(options).await;
    let refused = async |task: NewTask<AgentTask<String>>| {
        let task = task.cwd(kitchen.dir.path());
        kitchen.runtime.session.spawn(task).await.unwrap_err()
    };
    let refusal = refused(NewTask::agent("x").definition("cook")).await;
    let expect = "there is no tool \"raed_file\"; did you mean `read_file`?";
    assert!(refusal.message.contains(expect), "{refusal}");
    kitchen
        .put("chef.md", "---\nname: chef\ndescription: C.\ntools:\n  - wirte_file\n---\nCook.\n");
    let refusal = refused(NewTask::agent("x").definition("chef")).await;
    let expect = "chef.md:5: `tools`: `wirte_file` can never match";
    assert!(refusal.message.contains(expect), "{refusal}");
    let deny =
        PermissionRules { deny: vec!["run_proces".parse().unwrap()], ..PermissionRules::all() };
    let refusal = refused(NewTask::agent("x").permissions(deny)).await;
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(refusal.message.contains("did you mean `run_process`?"), "{refusal}");
    assert!(kitchen.runtime.session.list().is_empty());
}
