//! The identity of a process: the operator needs a key, a process of a task acts as that task, and
//! nobody can shut out the operator.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::story_env::{BRIGADE, StoryEnv, kill, poll};

/// Sends a hello as a process outside of all tasks, and returns the reply.
fn send_hello(story: &StoryEnv, hello: &Value) -> Value {
    let mut stream = UnixStream::connect(story.socket()).unwrap();
    stream.set_read_timeout(Some(crate::story_env::TOO_LONG)).unwrap();
    stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn without_the_operator_key_nobody_is_operator_or_client() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    let key = story.operator_key();
    let wrong = key.chars().rev().collect::<String>();
    for role in [json!("operator"), json!({ "client": "cook" })] {
        let hello = |key: Value| json!({ "protocol": 2, "version": "0.1.0", "role": role, "operator_key": key });
        for shown in [Value::Null, json!(""), json!(wrong), json!(&key[..63])] {
            let reply = send_hello(&story, &hello(shown));
            assert_eq!(reply["refused"]["kind"], "forbidden", "{reply}");
            let message = reply["refused"]["message"].as_str().unwrap();
            assert!(message.contains("operator.key") && !message.contains(&key), "{message}");
        }
        assert_eq!(send_hello(&story, &hello(json!(key)))["protocol"], 2);
    }
}

#[test]
fn a_missing_key_is_reported() {
    let story = StoryEnv::new();
    story.ok(["daemon", "start"]);
    fs::remove_file(story.state().join("operator.key")).unwrap();
    let ran = story.run(["ps"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    assert!(ran.err.contains("operator key is missing"), "{ran:?}");
    let lock = fs::read_to_string(story.state().join("daemon.lock")).unwrap();
    kill(lock.lines().next().unwrap().parse().unwrap(), Signal::TERM);
    // The next daemon creates a new one.
    poll("the next daemon", || (story.run(["ps"]).code == 0).then_some(()));
}

#[test]
fn a_process_of_a_task_stays_that_task_with_the_operator_key() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    // Without a sandbox it can read the key, and sends it.
    let ran = story.run(["exec", "--", BRIGADE, "stop", "1"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    assert_eq!(story.state_of("Sibling"), "running");
}

/// After its shim was killed, the next daemon sees a process with the ancestors of a login shell.
#[test]
fn a_process_that_outlived_its_shim_is_not_the_operator_without_the_key() {
    let story = StoryEnv::new();
    let orphan = "import os, socket, sys, time, json\n\
        os.setsid()\n\
        first = os.getpid()\n\
        if os.fork(): sys.exit()\n\
        while os.getppid() == first: time.sleep(0.01)\n\
        open('orphan', 'w').write(str(os.getpid()) + '\\n')\n\
        while not os.path.exists('go'): time.sleep(0.02)\n\
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
        hello = {'protocol': 2, 'version': '0.1.0', 'role': 'operator'}\n\
        s.send((json.dumps(hello) + '\\n').encode())\n\
        open('reply.new', 'wb').write(s.makefile('rb').readline())\n\
        os.rename('reply.new', 'reply')\n";
    fs::write(story.project().join("orphan.py"), orphan).unwrap();
    let socket = story.socket().display().to_string();
    // Without a mark in its environment the daemon cannot find it.
    let script = format!("env -i python3 orphan.py {socket}; sleep 60");
    story.ok(["exec", "-d", "--shell", &script]);
    let orphan: u32 = story.file("orphan").trim().parse().unwrap();
    let shim = parent_of(orphan);
    story.kill_daemon();
    kill(shim, Signal::KILL);
    poll("its shim is dead", || (parent_of(orphan) != shim).then_some(()));
    story.ok(["ps"]);
    fs::write(story.project().join("go"), "").unwrap();
    let reply: Value = serde_json::from_str(&story.file("reply")).unwrap();
    assert_eq!(reply["refused"]["kind"], "forbidden", "{reply}");
}

fn parent_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn tasks_that_open_many_connections_shut_nobody_out() {
    let story = StoryEnv::new();
    let flood = "import socket, sys\n\
        held = []\n\
        hello = b'{\"protocol\":2,\"version\":\"0.1.0\",\"role\":\"operator\"}\\n'\n\
        for n in range(700):\n\
        \x20   s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]); held.append(s)\n\
        replies = [s.recv(4096) for s in held]\n\
        print(sum(b'refused' in reply for reply in replies), 'of', len(replies), 'refused', flush=True)\n\
        sys.stdin.read()\n";
    fs::write(story.project().join("flood.py"), flood).unwrap();
    let socket = story.socket().display().to_string();
    for name in ["One", "Two"] {
        story.ok(["exec", "-d", "--stdin", "--name", name, "--", "python3", "flood.py", &socket]);
    }
    for name in ["One", "Two"] {
        let counts = poll("its count", || Some(story.ok(["logs", name])).filter(|s| !s.is_empty()));
        let refused: usize = counts.split(' ').next().unwrap().parse().unwrap();
        // All but its 64 connections, though none of them sent a hello.
        assert_eq!(refused, 636, "{counts}");
    }
    assert_eq!(story.json(["ps"]).as_array().unwrap().len(), 2);
}

#[test]
fn unfinished_lines_of_tasks_use_bounded_memory() {
    let story = StoryEnv::new();
    let flood = "import socket, sys\n\
        held = []\n\
        hello = b'{\"protocol\":2,\"version\":\"0.1.0\",\"role\":\"operator\"}\\n'\n\
        for n in range(40):\n\
        \x20   s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]); held.append(s)\n\
        \x20   s.send(hello); s.recv(4096)\n\
        \x20   try: s.sendall(b'x' * (15 << 20))\n\
        \x20   except OSError: pass\n\
        print('sent', flush=True)\n\
        sys.stdin.read()\n";
    fs::write(story.project().join("flood.py"), flood).unwrap();
    story.ok(["daemon", "start"]);
    let pid = story.daemon_pid();
    let before = resident_kib(pid);
    let socket = story.socket().display().to_string();
    story.ok(["exec", "-d", "--stdin", "--", "python3", "flood.py", &socket]);
    poll("all is sent", || (story.ok(["logs", "1"]) == "sent\n").then_some(()));
    let grown = resident_kib(pid).saturating_sub(before) / 1024;
    // 600 MiB were sent. The limit is 48 MiB; a growing buffer has up to twice its content, and the
    // allocator returns freed memory later.
    assert!(grown < 300, "{grown} MiB");
    assert_eq!(story.daemon_pid(), pid);
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_daemon_hides_its_environment_and_can_read_it() {
    let story = StoryEnv::new();
    story.configure("pass_env = [\"*\"]\n");
    let started = story
        .command(["daemon", "start"])
        .env("OPENAI_API_KEY", "sk-hidden-from-others")
        .env("HARMLESS", "not-hidden-from-commands")
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    let pid = story.daemon_pid();
    // Root may read it, others may not.
    let shown = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    assert!(shown.iter().all(|byte| *byte == 0), "{}", String::from_utf8_lossy(&shown));
    assert_eq!(
        story.ok(["exec", "--shell", "echo $HARMLESS; env | grep -c sk-hidden; true"]),
        "not-hidden-from-commands\n0\n"
    );
    let exec = ["exec", "--env-from", "KEY=OPENAI_API_KEY", "--shell", "echo $KEY"];
    assert_eq!(story.ok(exec), "sk-hidden-from-others\n");
    // Processes get the usual limit of open files, whatever the daemon has.
    let usual = std::process::Command::new("sh").args(["-c", "ulimit -n"]).output().unwrap();
    let usual = String::from_utf8(usual.stdout).unwrap();
    assert_eq!(story.ok(["exec", "--shell", "ulimit -n"]), usual);
}

#[test]
fn a_task_cannot_pass_on_a_provider_key() {
    let story = StoryEnv::new();
    let started = story
        .command(["daemon", "start"])
        .env("ANTHROPIC_API_KEY", "sk-hidden-from-tasks")
        .env("HARMLESS", "shown")
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    let pass_on = |variable: &str| {
        let reference = format!("K={variable}");
        let exec = ["exec", "--", BRIGADE, "exec", "--env-from", &reference, "--", "env"];
        story.run(exec)
    };
    let ran = pass_on("ANTHROPIC_API_KEY");
    assert!(ran.code == 126 && ran.err.contains("provider's key"), "{ran:?}");
    assert!(!ran.out.contains("sk-hidden"), "{ran:?}");
    assert!(pass_on("HARMLESS").out.contains("K=shown"));
}

/// The agent works in a directory that contains the state directory and the configuration of its
/// user.
#[test]
fn file_tools_reach_neither_the_state_nor_the_configuration() {
    let story = StoryEnv::new();
    let root = story.state().parent().unwrap().to_owned();
    let evil = "home/.config/brigade/agents/evil.md";
    let calls = [
        r#"call read_file {"path": "state/operator.key"}"#,
        r#"call write_file {"path": "state/operator.key", "content": "0"}"#,
        r#"call search_files {"pattern": "[0-9a-f]{64}"}"#,
        &format!(r#"call write_file {{"path": "{evil}", "content": "x"}}"#),
        r#"call write_file {"path": "fine.txt", "content": "x"}"#,
    ];
    let turns: String = calls.iter().map(|call| format!("turn\n  {call}\n")).collect();
    story.script(&format!("agent *\n{turns}turn\n  say Done.\n"));
    let allowed = ["run", "--allow", "read_file", "--allow", "write_file", "--allow"];
    let run = [&allowed[..], &["search_files", "Look."]].concat();
    let ran = story.command(run).current_dir(&root).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let logs = story.command(["logs", "1"]).current_dir(&root).output().unwrap();
    let transcript = String::from_utf8(logs.stdout).unwrap();
    assert_eq!(transcript.matches("is Brigade's own directory").count(), 3, "{transcript}");
    assert!(!transcript.contains(&story.operator_key()), "{transcript}");
    assert!(!root.join(evil).exists());
    assert!(root.join("fine.txt").exists(), "{transcript}");
}

/// The process makes a directory too deep for recursive removal, and one without permissions.
#[test]
fn a_hostile_scratch_directory_harms_no_daemon() {
    let story = StoryEnv::new();
    let dig = "import os\n\
        os.chdir(os.environ['TMPDIR']); os.mkdir('closed'); os.mkdir('closed/in'); os.chmod('closed', 0)\n\
        for _ in range(20000): os.mkdir('d'); os.chdir('d')\n";
    let ran = story.run(["exec", "--sandbox", "--", "python3", "-c", dig]);
    assert_eq!(ran.code, 0, "{ran:?}");
    story.ok(["ps"]);
    let scratch = find(&story.state().join("processes"), "tmp");
    poll("the removal of the scratch directory", || {
        (!scratch.as_ref().is_some_and(|it| it.exists())).then_some(())
    });
    story.ok(["prune", "--older", "0"]);
}

fn find(directory: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let sessions = fs::read_dir(directory).ok()?.flatten();
    let executions =
        sessions.flat_map(|it| fs::read_dir(it.path()).into_iter().flatten().flatten());
    executions.map(|it| it.path().join(name)).find(|path| path.exists())
}

/// The shim runs outside of the sandbox, so variables of the process must not affect it.
#[test]
fn a_shim_does_not_get_the_environment_of_its_process() {
    let story = StoryEnv::new();
    let look = "tr '\\0' '\\n' < /proc/$PPID/environ; echo own $SAUCE $LD_BIND_NOW";
    let variables = ["exec", "--env", "SAUCE=red", "--env", "LD_BIND_NOW=1", "--shell", look];
    let printed = story.ok(variables);
    let shims: Vec<&str> = printed.lines().filter(|line| !line.starts_with("BRIGADE_")).collect();
    assert_eq!(shims, ["own red 1"], "{printed}");
    assert!(printed.contains("BRIGADE_SHIM="), "{printed}");
}
