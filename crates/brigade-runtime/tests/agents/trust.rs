//! Workspace definitions before and after they are trusted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use brigade_agent::AgentOverrides;
use brigade_agent::definition::{DefinitionDigest, DefinitionDir, DefinitionSet, repository_of};
use brigade_agent::permission::PermissionRules;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::agents::DefinitionTrust;
use brigade_runtime::{AgentOptions, AgentTask, NewTask};
use brigade_testkit::TestRuntime;
use tempfile::TempDir;

use crate::support::{final_message, script};

#[derive(Clone, Debug, Default)]
struct Trust(Arc<Mutex<BTreeSet<(PathBuf, DefinitionDigest)>>>);

impl DefinitionTrust for Trust {
    fn is_trusted(&self, repository: &Path, digest: &DefinitionDigest) -> bool {
        self.0.lock().unwrap().contains(&(repository.to_owned(), digest.clone()))
    }
}

/// A cloned repository.
struct Clone {
    dir: TempDir,
    trust: Trust,
    runtime: TestRuntime,
}

const SCRIPT: &str = r#"agent Boss
turn
  call spawn_agent {"task": "cook", "agent": "cook", "name": "Cook", "wait": true}
turn
  say Delegated.
agent Sly
turn
  call spawn_agent {"task": "cook", "agent": "user:cook", "name": "Cook", "wait": true}
turn
  say Tried.
agent *
turn
  call write_file {"path": "written", "content": "x"}
turn
  say Done.
"#;

impl Clone {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("work/.git")).unwrap();
        let trust = Trust::default();
        let options: AgentOptions =
            script(SCRIPT).definition_trust(Arc::new(trust.clone())).definition_dirs(|cwd| {
                let work = cwd.map(DefinitionDir::of_workspace);
                let users = cwd.and_then(Path::parent).map(DefinitionDir::of_user);
                work.into_iter().chain(users).collect()
            });
        let runtime = TestRuntime::new(|builder| builder.agents(options)).await;
        Self { dir, trust, runtime }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn define(&self, text: &str) -> DefinitionDigest {
        let dir = DefinitionDir::of_workspace(&self.work());
        std::fs::create_dir_all(&dir.path).unwrap();
        std::fs::write(dir.path.join("cook.md"), text).unwrap();
        DefinitionSet::read_texts(&dir)[0].source.digest.clone()
    }

    fn trust(&self, digest: DefinitionDigest) {
        self.trust.0.lock().unwrap().insert((repository_of(&self.work()), digest));
    }

    /// Runs the task and returns true if its agent wrote a file.
    async fn writes(&self, task: NewTask<AgentTask<String>>) -> bool {
        let agent = self.runtime.session.spawn(task.cwd(self.work())).await.unwrap();
        final_message(&agent.wait().await.unwrap());
        std::fs::remove_file(self.work().join("written")).is_ok()
    }
}

fn cook() -> NewTask<AgentTask<String>> {
    NewTask::agent("cook").definition("cook")
}

const COOK: &str = "---\nname: cook\ndescription: Cooks.\ntools: [write_file]\n---\nCook.\n";

#[tokio::test(start_paused = true)]
async fn an_untrusted_definition_writes_nothing_and_a_trusted_one_does() {
    let clone = Clone::new().await;
    let digest = clone.define(COOK);
    assert!(!clone.writes(cook()).await, "nobody trusts it");
    clone.trust(digest);
    assert!(clone.writes(cook()).await);
    assert!(clone.writes(NewTask::agent("go").name("Boss")).await, "as a child too");
    // Other content is another definition.
    let edited = clone.define(&format!("{COOK}Season."));
    assert!(!clone.writes(cook()).await);
    clone.trust(edited);
    assert!(clone.writes(cook()).await);
}

#[tokio::test(start_paused = true)]
async fn delegates_of_an_untrusted_definition_write_nothing() {
    let clone = Clone::new().await;
    let users = clone.dir.path().join("brigade/agents");
    std::fs::create_dir_all(&users).unwrap();
    std::fs::write(users.join("cook.md"), COOK).unwrap();
    assert!(clone.writes(NewTask::agent("go").name("Boss")).await, "the user's own is trusted");
    let boss = "---\nname: boss\ndescription: Bosses.\n---\nBoss.\n";
    std::fs::create_dir_all(clone.work().join(".brigade/agents")).unwrap();
    std::fs::write(clone.work().join(".brigade/agents/boss.md"), boss).unwrap();
    assert!(!clone.writes(NewTask::agent("go").name("Boss").definition("boss")).await);
}

#[tokio::test(start_paused = true)]
async fn an_unattended_untrusted_definition_is_refused_with_the_command_to_trust_it() {
    let clone = Clone::new().await;
    let digest = clone.define(COOK);
    let spawn =
        |task: NewTask<AgentTask<String>>| clone.runtime.session.spawn(task.cwd(clone.work()));
    let refused = spawn(cook().unattended()).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Forbidden);
    assert!(refused.message.contains(&format!("`brigade trust grant {digest}`")), "{refused}");
    assert!(clone.runtime.session.list().is_empty());
    clone.trust(digest);
    assert!(clone.writes(cook().unattended()).await);
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_name_is_refused_with_both_names() {
    let clone = Clone::new().await;
    let digest = clone.define(COOK);
    clone.trust(digest);
    let users = clone.dir.path().join("brigade/agents");
    std::fs::create_dir_all(&users).unwrap();
    std::fs::write(users.join("cook.md"), COOK.replace("[write_file]", "[read_file]")).unwrap();
    let refused = clone.runtime.session.spawn(cook().cwd(clone.work())).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    for name in ["`user:cook`", "`workspace:cook`"] {
        assert!(refused.message.contains(name), "{refused}");
    }
    assert!(!clone.writes(NewTask::agent("x").definition("user:cook")).await);
    assert!(clone.writes(NewTask::agent("x").definition("workspace:cook")).await);
}

#[tokio::test(start_paused = true)]
async fn a_rule_on_a_name_holds_for_the_name_with_its_origin() {
    let clone = Clone::new().await;
    let users = clone.dir.path().join("brigade/agents");
    std::fs::create_dir_all(&users).unwrap();
    std::fs::write(users.join("cook.md"), COOK).unwrap();
    let sly = || NewTask::agent("go").name("Sly");
    assert!(clone.writes(sly()).await);
    for list in ["deny", "ask"] {
        let rules = serde_json::json!({ list: ["spawn_agent(cook)"] });
        let rules: PermissionRules = serde_json::from_value(rules).unwrap();
        assert!(!clone.writes(sly().permissions(rules)).await, "{list}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_untrusted_definition_runs_no_other_program() {
    let clone = Clone::new().await;
    let spawn =
        |task: NewTask<AgentTask<String>>| clone.runtime.session.spawn(task.cwd(clone.work()));
    for runs in ["claude", "{ acp: [sh, -c, 'touch written'] }"] {
        let text = format!("---\nname: cook\ndescription: Cooks.\nruns: {runs}\n---\nCook.\n");
        let digest = clone.define(&text);
        let refused = spawn(cook()).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Forbidden, "{refused}");
        assert!(refused.message.contains("it runs another program"), "{refused}");
        assert!(refused.message.contains(&format!("`brigade trust grant {digest}`")), "{refused}");
        clone.trust(digest);
        let refused = spawn(cook()).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Invalid, "trusted, and there is none: {refused}");
    }
    clone.define(COOK);
    let overrides = AgentOverrides { backend: Some("claude".into()), ..AgentOverrides::default() };
    let refused = spawn(cook().overrides(&overrides)).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Forbidden, "an override changes nothing: {refused}");
    assert!(clone.runtime.session.list().is_empty());
}
