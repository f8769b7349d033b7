//! Agent programs of other vendors: as listed, as checked, and as the loop of a definition.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::story_env::{Ran, StoryEnv, poll};

/// A story whose search path has programs of its own.
pub(crate) struct ProgramStory {
    pub(crate) story: StoryEnv,
    programs: PathBuf,
}

impl ProgramStory {
    /// Creates a story with the stand-ins for programs of other vendors.
    pub(crate) fn with_fakes() -> Self {
        Self { story: StoryEnv::new(), programs: FAKES.into() }
    }

    fn new() -> Self {
        let story = StoryEnv::new();
        let programs = story.directory("programs");
        Self { story, programs }
    }

    fn install(&self, name: &str, script: &str) {
        let path = self.programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes an adapter file of the user.
    fn adapt(&self, name: &str, text: &str) {
        let folder = self.story.home().join(".config/brigade/adapters");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }

    /// Trusts the definitions of the project, with a daemon that finds the programs.
    fn trust(&self) {
        self.ok(["daemon", "start"]);
        self.story.trust();
    }

    pub(crate) fn run<'a>(&self, args: impl AsRef<[&'a str]>) -> Ran {
        let search_path = format!("{}:/usr/bin:/bin", self.programs.display());
        self.story.command(args.as_ref()).env("PATH", search_path).output().unwrap().into()
    }

    #[track_caller]
    pub(crate) fn ok<'a>(&self, args: impl AsRef<[&'a str]>) -> String {
        let args = args.as_ref();
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    #[track_caller]
    fn listed(&self) -> Value {
        serde_json::from_str(&self.ok(["agents", "--json"])).unwrap()
    }
}

fn find_program<'a>(listed: &'a Value, name: &str) -> &'a Value {
    let mut programs = listed["programs"].as_array().unwrap().iter();
    programs.find(|program| program["name"] == name).unwrap()
}

const COOK: &str = r#"
name = "cook"
title = "Cook"
format = "json_lines"
program = "cook"
start = ["run", "{access}", "{prompt}"]
resume = ["run", "{access}", "--session", "{session_id}", "{prompt}"]
session_id = "reported"
prompt = "argument"
closing = "event"

[access]
read = []
edit = []
full = []

[[events]]
match = { type = "end" }
session = { id = "session" }
text = { text = "answer" }
closed = { success = { status = "ok" }, result = "answer" }
"#;

#[test]
fn programs_are_listed_with_path_version_and_login() {
    let story = ProgramStory::new();
    story.install("claude", "echo '2.1.325 (Claude Code)'");
    story.install("codex", "ls -A; echo never >&2; exit 1");
    story.install("cook", "echo cook 1.0");
    story.adapt("cook.toml", COOK);
    fs::create_dir_all(story.story.home().join(".claude")).unwrap();
    fs::write(story.story.home().join(".claude/.credentials.json"), "{}").unwrap();
    let listed = story.listed();
    let claude = find_program(&listed, "claude");
    let path = story.programs.join("claude");
    assert_eq!(claude["path"], path.to_str().unwrap());
    assert_eq!(claude["version"], "2.1.325 (Claude Code)");
    assert_eq!(claude["login"], "found");
    assert_eq!(claude["protocol"], "adapter");
    let codex = find_program(&listed, "codex");
    assert_eq!(codex.get("version"), None, "its directory is empty: {codex}");
    assert_eq!(codex["login"], "not_found");
    let over_acp = find_program(&listed, "codex-acp");
    assert_eq!((&over_acp["protocol"], &over_acp["login"]), (&"acp".into(), &"not_found".into()));
    let qwen = find_program(&listed, "qwen");
    assert_eq!(qwen.get("path"), None, "{qwen}");
    let cook = find_program(&listed, "cook");
    assert_eq!(cook["login"], "unknown");
    assert!(cook["file"].as_str().unwrap().ends_with("/brigade/adapters/cook.toml"), "{cook}");
    let names: Vec<&Value> =
        listed["agents"].as_array().unwrap().iter().map(|agent| &agent["name"]).collect();
    for name in ["claude", "codex", "cook", "gemini", "general", "opencode", "qwen"] {
        assert!(names.iter().any(|known| *known == name), "{name}: {names:?}");
    }
    let table = story.ok(["agents"]);
    assert!(table.contains("2.1.325 (Claude Code)"), "{table}");
    assert!(table.contains("not found: run `codex login`"), "{table}");
    assert_eq!(table.matches("Claude Code, run as").count(), 0, "it is listed once: {table}");
}

#[test]
fn a_faulty_adapter_file_is_named_wherever_it_is_needed() {
    let story = ProgramStory::new();
    story.install("cook", "echo cook 1.0");
    story.adapt("cook.toml", &COOK.replace("[access]", "[acess]"));
    story.story.define("baker", "---\nname: baker\ndescription: Bakes.\nruns: cook\n---\nBake.\n");
    story.trust();
    let fault = "/brigade/adapters/cook.toml: acess: unknown field";
    let ran = story.run(["agents"]);
    assert!(ran.err.contains(fault), "{ran:?}");
    let problems = story.listed()["problems"].to_string();
    assert!(problems.contains(fault), "{problems}");
    let ran = story.run(["doctor"]);
    assert!(ran.out.contains(fault), "{ran:?}");
    let ran = story.run(["run", "--agent", "baker", "Bake."]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains(fault), "{ran:?}");
    let ran = story.run(["run", "--agent", "cook", "Bake."]);
    let file = story.story.home().join(".config/brigade/adapters/cook.toml");
    let expect = format!("brigade: {}: acess: unknown field", file.display());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.starts_with(&expect), "the fault comes first: {ran:?}");
    // The file is read again at each use.
    story.adapt("cook.toml", COOK);
    assert_eq!(story.listed()["problems"].to_string(), "[]");
}

#[test]
fn a_workspace_has_no_adapter_files() {
    let story = ProgramStory::new();
    for folder in [".brigade/adapters", "brigade/adapters"] {
        let folder = story.story.project().join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cook.toml"), COOK).unwrap();
    }
    let listed = story.listed();
    let mut programs = listed["programs"].as_array().unwrap().iter();
    assert!(programs.all(|program| program["name"] != "cook"), "{listed}");
}

#[test]
fn doctor_names_what_definitions_of_this_directory_lack() {
    let story = ProgramStory::new();
    let define = |name: &str, runs: &str| {
        let text = format!("---\nname: {name}\ndescription: x\nruns: {runs}\n---\nDo it.\n");
        story.story.define(name, &text);
    };
    define("missing", "codex");
    define("outside", "claude");
    define("unknown", "cloude");
    define("goose", "{ acp: [goose, acp] }");
    define("elsewhere", "{ acp: [/no/such/agent] }");
    define("spoken", "{ acp: [claude, --acp] }");
    define("remote", "{ a2a: \"https://agents.example/a2a/cook\" }");
    story.install("claude", "echo 2.1.325");
    let check = || story.ok(["doctor"]);
    for is_daemon_running in [false, true] {
        if is_daemon_running {
            story.ok(["daemon", "start"]);
        }
        let found = check();
        for expect in [
            "missing runs codex: Codex is not installed; there is no `codex` in the search path",
            "outside runs claude: no login was found; run `claude` and log in",
            "unknown runs cloude, which is no usable agent program",
            "goose runs goose: goose is not installed; there is no `goose` in the search path",
            "elsewhere runs /no/such/agent: /no/such/agent is not installed; there is no such file",
            &format!("spoken runs {}/claude over ACP", story.programs.display()),
        ] {
            assert!(found.contains(expect), "{expect}\n{found}");
        }
        assert!(!found.contains("remote runs"), "it is no program: {found}");
    }
    fs::create_dir_all(story.story.home().join(".claude")).unwrap();
    fs::write(story.story.home().join(".claude/.credentials.json"), "{}").unwrap();
    let found = check();
    assert!(found.contains("outside runs claude (2.1.325)"), "{found}");
}

#[test]
fn a_file_that_cannot_be_executed_is_no_installed_program() {
    let story = ProgramStory::new();
    let define = |name: &str, runs: &str| {
        let text = format!("---\nname: {name}\ndescription: x\nruns: {runs}\n---\nDo it.\n");
        story.story.define(name, &text);
    };
    story.install("codex", "echo 1.0");
    let codex = story.programs.join("codex");
    fs::set_permissions(&codex, fs::Permissions::from_mode(0o644)).unwrap();
    story.install("claude", "");
    let claude = story.programs.join("claude");
    fs::write(&claude, b"\x7fELF\0\0\0\0").unwrap();
    define("first", "codex");
    define("second", "claude");
    define("third", "{ acp: [codex, acp] }");
    story.trust();
    let listed = story.listed();
    for (name, path, problem) in [
        ("codex", &codex, "is not executable; chmod +x makes it so"),
        (
            "claude",
            &claude,
            "has a format that this machine cannot execute; is its installation complete?",
        ),
    ] {
        let program = find_program(&listed, name);
        assert_eq!(program.get("path"), None, "{program}");
        assert_eq!(program["problem"], format!("{} {problem}", path.display()));
    }
    let found = story.ok(["doctor"]);
    for expect in [
        format!("first runs codex: {} is not executable", codex.display()),
        format!("second runs claude: {} has a format", claude.display()),
        format!("third runs codex: {} is not executable", codex.display()),
    ] {
        assert!(found.contains(&expect), "{expect}\n{found}");
    }
    let ran = story.run(["run", "--agent", "first", "Cook."]);
    let expect = format!("Codex cannot be started: {} is not executable", codex.display());
    assert!(ran.err.contains(&expect), "{ran:?}");
}

#[test]
fn a_program_that_cannot_start_fails_with_one_sentence() {
    let story = ProgramStory::new();
    story.install("cook", "echo cook 1.0");
    fs::write(story.programs.join("cook"), "#!/no/such/interpreter\n").unwrap();
    story.adapt("cook.toml", COOK);
    let ran = story.run(["run", "--agent", "cook", "Cook."]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.err.matches("failed").count(), 1, "{ran:?}");
    assert_eq!(ran.err.matches("error:").count(), 1, "{ran:?}");
}

#[test]
fn the_failure_of_a_program_that_prints_much_is_truncated() {
    let story = ProgramStory::new();
    story.install(
        "cook",
        "[ \"$1\" = --version ] && exit\ni=0\nwhile [ $i -lt 200 ]; do echo \"garbage $i\" >&2; \
         i=$((i + 1)); done; exit 3",
    );
    story.adapt("cook.toml", COOK);
    let ran = story.run(["run", "--agent", "cook", "Cook."]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("its program exited with code 3"), "{ran:?}");
    assert!(ran.err.contains("garbage 199"), "the end is shown: {ran:?}");
    assert!(ran.err.matches("garbage").count() <= 20, "{ran:?}");
    let hint = "`brigade logs process:2` prints the output of its program";
    assert!(ran.err.contains(hint), "{ran:?}");
    let logged = story.run(["logs", "process:2"]);
    assert!(logged.err.contains("garbage 150"), "the hint is true: {logged:?}");
}

#[test]
fn a_key_that_only_the_caller_has_is_named() {
    let story = ProgramStory::new();
    story.install("claude", "echo 2.1.325");
    story.ok(["daemon", "start"]);
    let list = |value: &str| -> Ran {
        let mut command = story.story.command(["agents"]);
        command.env("ANTHROPIC_API_KEY", value).output().unwrap().into()
    };
    let expect = "ANTHROPIC_API_KEY is set here, but not in the environment of the daemon, which runs \
                  claude; run `brigade daemon stop`, and the next daemon has it";
    assert!(list("key").err.contains(expect), "{:?}", list("key"));
    assert!(!list("").err.contains("is set here"), "an empty value is none");
    let variables = find_program(&story.listed(), "claude")["unset_variables"].to_string();
    assert!(variables.contains("ANTHROPIC_API_KEY"), "{variables}");
}

#[test]
fn a_missing_or_unknown_program_is_refused_before_anything_starts() {
    let story = ProgramStory::new();
    let ran = story.run(["run", "--agent", "codex", "Cook."]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("Codex is not installed"), "{ran:?}");
    assert!(!ran.err.contains("no model is set"), "{ran:?}");
    story.story.define("cook", "---\nname: cook\ndescription: x\nruns: cloude\n---\nCook.\n");
    story.trust();
    let ran = story.run(["run", "--agent", "cook", "Cook."]);
    assert!(ran.err.contains("no agent program \"cloude\"; did you mean `claude`?"), "{ran:?}");
    let acp = "---\nname: goose\ndescription: x\nruns: { acp: [goose, acp] }\n---\nCook.\n";
    story.story.define("goose", acp);
    story.story.trust();
    let ran = story.run(["run", "--agent", "goose", "Cook."]);
    assert!(ran.err.contains("goose is not installed"), "{ran:?}");
    let ran = story.run(["run", "--agent", "claude", "--record", "calls", "Cook."]);
    assert!(ran.err.contains("--record cannot see them"), "{ran:?}");
    story.install("claude", "echo 2.1.325");
    let ran = story.run(["run", "--agent", "claude", "--steps", "3", "--effort", "low", "Cook."]);
    assert!(ran.err.contains("effort, steps are not possible with claude"), "{ran:?}");
    assert_eq!(story.ok(["ps", "--all", "--json"]).trim(), "[]");
}

/// Stand-ins for agent programs of other vendors.
pub(crate) const FAKES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../brigade-external/tests/fakes");

#[test]
fn a_program_runs_as_an_agent_without_a_model_and_a_definition() {
    let story = ProgramStory::with_fakes();
    for program in ["claude", "codex", "gemini", "opencode", "qwen"] {
        let allow = "--allow=run_process";
        let ran = story.run(["run", "--agent", program, allow, "Count the plates."]);
        assert_eq!(ran.code, 0, "{program}: {ran:?}");
        assert!(!ran.out.trim().is_empty(), "{program}: {ran:?}");
        assert!(!ran.err.contains("process:"), "the program is a part of the agent: {ran:?}");
    }
    let ran = story.run(["run", "--agent", "codex", "--budget", "$1", "Count the plates."]);
    assert_ne!(ran.code, 0);
    let expect = "the program reports no cost, and the price of the model of codex is not known";
    assert!(ran.err.contains(expect), "{ran:?}");
}

#[test]
fn a_run_names_the_calls_that_its_program_could_not_make() {
    let story = ProgramStory::with_fakes();
    let read_only =
        "codex could only read files; `--allow edit_file --allow write_file` lets it edit";
    let ran = story.run(["run", "--agent", "codex", "Count the plates."]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains(read_only), "{ran:?}");
    let ran = story.run(["run", "--agent", "codex", "--allow", "run_process", "Count the plates."]);
    assert!(!ran.err.contains("could only read"), "{ran:?}");
    let touch = "Please touch the proof.";
    let ran = story.run(["run", "--agent", "claude", touch]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let denied = "1 tool call was denied because nobody was there to approve it; --allow RULE";
    assert!(ran.err.contains(denied), "{ran:?}");
    assert!(!ran.err.contains("could only read"), "it asks before its calls: {ran:?}");
    for option in ["--allow=run_process", "--deny=run_process"] {
        let ran = story.run(["run", "--agent", "claude", option, touch]);
        assert!(!ran.err.contains("nobody was there"), "{option}: {ran:?}");
    }
}

#[test]
fn a_failed_run_names_a_key_that_only_the_caller_has() {
    let story = ProgramStory::with_fakes();
    story.ok(["daemon", "start"]);
    let run = |prompt: &str| -> Ran {
        let mut command = story.story.command(["run", "--agent", "claude", prompt]);
        command.env("ANTHROPIC_API_KEY", "key").output().unwrap().into()
    };
    let expect = "ANTHROPIC_API_KEY is set here, but not in the environment of the daemon";
    let failed = run("Meet an API error.");
    assert_ne!(failed.code, 0, "{failed:?}");
    assert!(failed.err.contains(expect), "{failed:?}");
    let succeeded = run("Count the plates.");
    assert!(!succeeded.err.contains(expect), "{succeeded:?}");
}

#[test]
fn a_sandbox_that_hides_a_program_or_its_login_is_named() {
    let story = ProgramStory::with_fakes();
    let login = story.story.home().join(".claude");
    fs::create_dir_all(&login).unwrap();
    fs::write(login.join(".credentials.json"), "{}").unwrap();
    let folder = |path: PathBuf| path.canonicalize().unwrap().display().to_string();
    let program = folder(FAKES.into());
    let login = folder(login);
    let hides_program = format!("hides Claude Code; --sandbox-read {program} shows it");
    let hides_login = format!("hides the login of Claude Code; --sandbox-read {login} shows it");
    let ran = story.run(["run", "-d", "--agent", "claude", "--sandbox", "Count."]);
    assert!(ran.err.contains(&hides_program) && ran.err.contains(&hides_login), "{ran:?}");
    let read = format!("--sandbox-read={program}");
    let ran = story.run(["run", "-d", "--agent", "claude", &read, "Count."]);
    assert!(!ran.err.contains(&hides_program) && ran.err.contains(&hides_login), "{ran:?}");
    let ran = story.run(["run", "-d", "--agent", "claude", "Count."]);
    assert!(!ran.err.contains("hides"), "{ran:?}");
}

#[test]
fn a_call_of_a_program_is_approved_by_a_person() {
    let story = ProgramStory::with_fakes();
    let proof = story.story.project().join("proof");
    let prompt = "Please touch the proof.";
    let ran = story.run(["run", "--agent", "claude", prompt]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!proof.exists(), "nobody is there to be asked");
    story.ok(["run", "-d", "--agent", "claude", "--deny", "run_process", "--name", "No", prompt]);
    story.ok(["wait", "No"]);
    assert!(!proof.exists(), "it is denied without a question");
    story.ok(["run", "-d", "--agent", "claude", "--name", "Yes", prompt]);
    let pending = poll("a pending approval", || {
        let pending = story.story.json(["approve", "--list"])["pending"].as_array()?.clone();
        pending.first().cloned()
    });
    assert!(pending.to_string().contains("touch proof"), "{pending}");
    assert!(!proof.exists());
    let call = pending["call"].to_string();
    story.ok(["approve", "Yes", &call, "--digest", pending["digest"].as_str().unwrap()]);
    story.ok(["wait", "Yes"]);
    assert!(proof.exists());
}

#[test]
fn a_definition_and_an_adapter_of_the_user_run_a_program() {
    let story = ProgramStory::new();
    story.install(
        "cook",
        r#"[ "$1" = --version ] && { echo cook 1.0; exit; }
printf '{"type": "end", "session": "s1", "status": "ok", "answer": "soup"}\n'"#,
    );
    story.adapt("cook.toml", COOK);
    story.story.define("chef", "---\nname: chef\ndescription: x\nruns: cook\n---\nCook.\n");
    story.trust();
    for agent in ["chef", "cook"] {
        let ran = story.run(["run", "--agent", agent, "Cook."]);
        assert_eq!((ran.code, ran.out.trim()), (0, "soup"), "{agent}: {ran:?}");
    }
}

/// Returns the only block of the guide in this language.
fn guide_block(language: &str) -> &'static str {
    let guide = include_str!("../../../../docs/other-agents.md");
    let fence = format!("```{language}\n");
    let mut blocks = guide.split(&fence).skip(1);
    let block = blocks.next().unwrap().split("```").next().unwrap();
    assert_eq!(blocks.count(), 0, "there is one block of {language}");
    block
}

#[test]
fn the_adapter_of_the_guide_runs_the_program_of_the_guide() {
    let story = ProgramStory::new();
    let events = guide_block("json");
    story.install(
        "cook",
        &format!("[ \"$1\" = --version ] && exit\necho \"$@\" >> args\ncat <<'END'\n{events}END"),
    );
    story.adapt("cook.toml", guide_block("toml"));
    assert_eq!(story.listed()["problems"].to_string(), "[]");
    let run = ["run", "--agent", "cook", "--model", "big", "--name", "Cook", "Bake."];
    let ran = story.run(run);
    assert_eq!((ran.code, ran.out.trim()), (0, "Bread."), "{ran:?}");
    let shown = story.story.json(["show", "Cook"]);
    assert!(shown.to_string().contains("\"tokens\":940"), "{shown}");
    let transcript = story.ok(["logs", "Cook"]);
    assert!(transcript.contains("flour"), "{transcript}");
    story.ok(["send", "Cook", "More."]);
    story.ok(["wait", "Cook"]);
    let args = fs::read_to_string(story.story.project().join("args")).unwrap();
    let turns: Vec<&str> = args.lines().filter(|line| line.starts_with("run --json")).collect();
    assert_eq!(turns.len(), 2, "{args}");
    assert!(turns[0].starts_with("run --json --read-only --model big You "), "{args}");
    assert!(turns[1].starts_with("run --json --read-only --model big --session s1 "), "{args}");
}

#[test]
fn an_untrusted_definition_runs_no_program() {
    let story = ProgramStory::new();
    story.install("claude", "touch ran; echo 2.1.325");
    story.story.define("cook", "---\nname: cook\ndescription: x\nruns: claude\n---\nCook.\n");
    let ran = story.run(["run", "-d", "--agent", "cook", "Cook."]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("it runs another program (claude)"), "{ran:?}");
    assert!(!story.story.project().join("ran").exists());
}
