//! Work belongs to a directory.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::kitchen::Kitchen;

#[test]
fn a_repository_is_one_workspace_and_another_directory_is_not() {
    let kitchen = Kitchen::new();
    std::fs::create_dir(kitchen.project().join(".git")).unwrap();
    let below = kitchen.folder("project/src/deep");
    let elsewhere = kitchen.folder("elsewhere");
    kitchen.ok(["exec", "-d", "--name", "Here", "--", "sleep", "60"]);
    let seen = |folder: &std::path::Path| kitchen.run_in(folder, ["ps"]).out.contains("Here");
    assert!(seen(&kitchen.project()) && seen(&below));
    assert!(!seen(&elsewhere));
    assert!(kitchen.run_in(&elsewhere, ["ps", "--all"]).out.contains("Here"));
    assert!(kitchen.run_in(&elsewhere, ["tree", "--all"]).out.contains("Here"));
    assert!(kitchen.run_in(&elsewhere, ["events", "--all"]).out.contains("Here"));
    assert_eq!(kitchen.run_in(&elsewhere, ["show", "Here"]).code, 127);
    let there = kitchen.run_in(&below, ["exec", "--", "pwd"]);
    assert_eq!(
        there.out.trim(),
        below.to_str().unwrap(),
        "the command runs where it was asked for"
    );
}

#[test]
fn a_workspace_can_be_named() {
    let kitchen = Kitchen::new();
    let elsewhere = kitchen.folder("elsewhere");
    kitchen.ok(["exec", "-d", "-w", "release", "--name", "Build", "--", "sleep", "60"]);
    assert!(!kitchen.ok(["ps"]).contains("Build"));
    assert!(kitchen.run_in(&elsewhere, ["ps", "-w", "release"]).out.contains("Build"));
    assert_eq!(kitchen.run_in(&elsewhere, ["show", "release/Build"]).code, 0);
    assert_eq!(kitchen.run_in(&elsewhere, ["show", "release/process:1"]).code, 0);
    kitchen.ok(["stop", "--now", "--wait", "release/Build"]);
    assert_eq!(kitchen.ok(["close", "release"]), "closed release\n");
}

#[test]
fn the_same_name_in_two_workspaces_is_two_tasks() {
    let kitchen = Kitchen::new();
    let elsewhere = kitchen.folder("elsewhere");
    kitchen.ok(["exec", "-d", "--name", "Twin", "--", "sleep", "60"]);
    let ran = kitchen.run_in(&elsewhere, ["exec", "-d", "--name", "Twin", "--", "sleep", "60"]);
    assert_eq!((ran.code, &*ran.out), (0, "process:1\n"), "{}", ran.err);
    assert_eq!(kitchen.json(["ps", "--all"]).as_array().unwrap().len(), 2);
}

#[test]
fn what_ended_in_a_closed_workspace_is_still_listed() {
    let kitchen = Kitchen::new();
    let elsewhere = kitchen.folder("elsewhere");
    kitchen.ok(["exec", "-w", "old", "--name", "Past", "--", "true"]);
    kitchen.ok(["close", "old"]);
    kitchen.ok(["exec", "--name", "Present", "--", "true"]);
    let names = |args: [&str; 4]| -> Vec<String> {
        let tasks = kitchen.json(args);
        let tasks = tasks.as_array().unwrap().iter();
        tasks.map(|task| task["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(["ps", "--all", "--ended", "--newest=9"]), ["Present", "Past"]);
    assert_eq!(names(["ps", "--all", "--ended", "--newest=1"]), ["Present"], "by age");
    assert!(kitchen.ok(["tree", "--all", "--ended"]).contains("Past"));
    assert!(!kitchen.ok(["ps", "--ended"]).contains("Past"), "not of this workspace");
    assert!(!kitchen.ok(["ps", "--all"]).contains("Past"), "it does not run");
    assert!(!kitchen.run_in(&elsewhere, ["ps", "--ended"]).out.contains("Past"));
}

/// Asks one thing as an MCP client of this workspace, and returns the answer's text.
fn ask_as_client(kitchen: &Kitchen, options: &[&str], tool: &str, arguments: Value) -> String {
    let client = json!({ "name": "cook", "version": "1" });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": tool, "arguments": arguments });
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ];
    let mut command = kitchen.command(["mcp"].iter().chain(options));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bridge = command.spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    let said = BufReader::new(bridge.stdout.take().unwrap()).lines();
    let answers = said.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2).unwrap();
    drop(input);
    bridge.wait().unwrap();
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn clients_steer_the_users_work_only_where_that_is_shared() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Oven", "--", "sleep", "600"]);
    let stop = || json!({ "task": "Oven" });
    let refused = ask_as_client(&kitchen, &[], "stop_task", stop());
    assert!(refused.contains("process:1 was started by the operator"), "{refused}");
    assert!(refused.contains("`brigade stop process:1`"), "{refused}");
    assert!(refused.contains("`shared = true`"), "{refused}");
    assert!(ask_as_client(&kitchen, &[], "list_tasks", json!({})).contains("Oven"));
    assert_eq!(kitchen.state_of("Oven"), "running");
    kitchen.configure("shared = [\"/elsewhere\"]\n");
    ask_as_client(&kitchen, &[], "stop_task", stop());
    assert_eq!(kitchen.state_of("Oven"), "running");
    kitchen.configure("shared = true\n");
    ask_as_client(&kitchen, &[], "stop_task", stop());
    kitchen.until_state("Oven", "cancelled");
    kitchen.configure("");
    kitchen.ok(["exec", "-d", "--name", "Stove", "--", "sleep", "600"]);
    ask_as_client(&kitchen, &["--shared"], "stop_task", json!({ "task": "Stove" }));
    kitchen.until_state("Stove", "cancelled");
}
