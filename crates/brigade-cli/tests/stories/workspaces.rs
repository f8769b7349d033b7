//! Tasks belong to the workspace of a directory.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::story_env::StoryEnv;

#[test]
fn a_repository_is_one_workspace_and_another_directory_is_not() {
    let story = StoryEnv::new();
    std::fs::create_dir(story.project().join(".git")).unwrap();
    let nested = story.directory("project/src/deep");
    let elsewhere = story.directory("elsewhere");
    story.ok(["exec", "-d", "--name", "Here", "--", "sleep", "60"]);
    let seen = |directory: &std::path::Path| story.run_in(directory, ["ps"]).out.contains("Here");
    assert!(seen(&story.project()) && seen(&nested));
    assert!(!seen(&elsewhere));
    assert!(story.run_in(&elsewhere, ["ps", "--all"]).out.contains("Here"));
    assert!(story.run_in(&elsewhere, ["tree", "--all"]).out.contains("Here"));
    assert!(story.run_in(&elsewhere, ["events", "--all"]).out.contains("Here"));
    assert_eq!(story.run_in(&elsewhere, ["show", "Here"]).code, 127);
    let there = story.run_in(&nested, ["exec", "--", "pwd"]);
    assert_eq!(
        there.out.trim(),
        nested.to_str().unwrap(),
        "the process runs in the caller's directory"
    );
}

#[test]
fn a_workspace_can_be_named() {
    let story = StoryEnv::new();
    let elsewhere = story.directory("elsewhere");
    story.ok(["exec", "-d", "-w", "release", "--name", "Build", "--", "sleep", "60"]);
    assert!(!story.ok(["ps"]).contains("Build"));
    assert!(story.run_in(&elsewhere, ["ps", "-w", "release"]).out.contains("Build"));
    assert_eq!(story.run_in(&elsewhere, ["show", "release/Build"]).code, 0);
    assert_eq!(story.run_in(&elsewhere, ["show", "release/process:1"]).code, 0);
    story.ok(["stop", "--now", "--wait", "release/Build"]);
    assert_eq!(story.ok(["close", "release"]), "closed release\n");
}

#[test]
fn the_same_name_in_two_workspaces_is_two_tasks() {
    let story = StoryEnv::new();
    let elsewhere = story.directory("elsewhere");
    story.ok(["exec", "-d", "--name", "Twin", "--", "sleep", "60"]);
    let ran = story.run_in(&elsewhere, ["exec", "-d", "--name", "Twin", "--", "sleep", "60"]);
    assert_eq!((ran.code, &*ran.out), (0, "process:1\n"), "{}", ran.err);
    assert_eq!(story.json(["ps", "--all"]).as_array().unwrap().len(), 2);
}

#[test]
fn tasks_of_a_closed_session_are_listed_with_ended() {
    let story = StoryEnv::new();
    let elsewhere = story.directory("elsewhere");
    story.ok(["exec", "-w", "old", "--name", "Past", "--", "true"]);
    story.ok(["close", "old"]);
    story.ok(["exec", "--name", "Present", "--", "true"]);
    let names = |args: [&str; 4]| -> Vec<String> {
        let tasks = story.json(args);
        let tasks = tasks.as_array().unwrap().iter();
        tasks.map(|task| task["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(["ps", "--all", "--ended", "--newest=9"]), ["Present", "Past"]);
    assert_eq!(names(["ps", "--all", "--ended", "--newest=1"]), ["Present"], "the newest");
    assert!(story.ok(["tree", "--all", "--ended"]).contains("Past"));
    assert!(!story.ok(["ps", "--ended"]).contains("Past"), "another workspace");
    assert!(!story.ok(["ps", "--all"]).contains("Past"), "it has ended");
    assert!(!story.run_in(&elsewhere, ["ps", "--ended"]).out.contains("Past"));
}

/// Calls one tool as an MCP client of this workspace, and returns the text of the reply.
fn call_as_client(story: &StoryEnv, options: &[&str], tool: &str, arguments: Value) -> String {
    let client = json!({ "name": "cook", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": tool, "arguments": arguments });
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ];
    let mut command = story.command(["mcp"].iter().chain(options));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let replies = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let reply = replies.into_iter().find(|reply| reply["id"] == 2).unwrap();
    drop(input);
    server.wait().unwrap();
    reply["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn clients_control_tasks_of_others_only_in_shared_workspaces() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Oven", "--", "sleep", "600"]);
    let stop = || json!({ "task": "Oven" });
    let refused = call_as_client(&story, &[], "stop_task", stop());
    assert!(refused.contains("process:1 was started by the operator"), "{refused}");
    assert!(refused.contains("`brigade stop process:1`"), "{refused}");
    assert!(refused.contains("`shared = true`"), "{refused}");
    assert!(call_as_client(&story, &[], "list_tasks", json!({})).contains("Oven"));
    assert_eq!(story.state_of("Oven"), "running");
    story.configure("shared = [\"/elsewhere\"]\n");
    call_as_client(&story, &[], "stop_task", stop());
    assert_eq!(story.state_of("Oven"), "running");
    story.configure("shared = true\n");
    call_as_client(&story, &[], "stop_task", stop());
    story.until_state("Oven", "cancelled");
    story.configure("");
    story.ok(["exec", "-d", "--name", "Stove", "--", "sleep", "600"]);
    call_as_client(&story, &["--shared"], "stop_task", json!({ "task": "Stove" }));
    story.until_state("Stove", "cancelled");
}
