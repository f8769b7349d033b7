//! As whom a process acts: the operator shows a key, a process of a task is that task, and nobody can
//! shut out the operator.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kitchen::{BRIGADE, Kitchen, kill, poll};

/// Says hello as a process that runs below no task, and returns the answer.
fn greet(kitchen: &Kitchen, hello: &Value) -> Value {
    let mut stream = UnixStream::connect(kitchen.socket()).unwrap();
    stream.set_read_timeout(Some(crate::kitchen::TOO_LONG)).unwrap();
    stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn without_the_operator_key_nobody_is_operator_or_client() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    let key = kitchen.operator_key();
    let wrong = key.chars().rev().collect::<String>();
    for who in [json!("operator"), json!({ "client": "cook" })] {
        let hello = |key: Value| json!({ "protocol": 1, "version": "0.1.0", "who": who, "operator_key": key });
        for shown in [Value::Null, json!(""), json!(wrong), json!(&key[..63])] {
            let answer = greet(&kitchen, &hello(shown));
            assert_eq!(answer["refused"]["kind"], "forbidden", "{answer}");
            let message = answer["refused"]["message"].as_str().unwrap();
            assert!(message.contains("operator.key") && !message.contains(&key), "{message}");
        }
        assert_eq!(greet(&kitchen, &hello(json!(key)))["protocol"], 1);
    }
}

#[test]
fn the_command_without_a_readable_key_says_so() {
    let kitchen = Kitchen::new();
    kitchen.ok(["daemon", "start"]);
    fs::remove_file(kitchen.state().join("operator.key")).unwrap();
    let ran = kitchen.run(["ps"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    assert!(ran.err.contains("operator key is missing"), "{ran:?}");
    let lock = fs::read_to_string(kitchen.state().join("daemon.lock")).unwrap();
    kill(lock.lines().next().unwrap().parse().unwrap(), Signal::TERM);
    // The next daemon makes a new one.
    poll("the next daemon", || (kitchen.run(["ps"]).code == 0).then_some(()));
}

#[test]
fn a_process_of_a_task_stays_that_task_with_the_operator_key() {
    let kitchen = Kitchen::new();
    kitchen.ok(["exec", "-d", "--name", "Sibling", "--", "sleep", "60"]);
    // It may read the key, not being sandboxed, and sends it.
    let ran = kitchen.run(["exec", "--", BRIGADE, "stop", "1"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    assert_eq!(kitchen.state_of("Sibling"), "running");
}

/// A process whose shim was killed has the ancestors of a login shell for the next daemon.
#[test]
fn a_process_that_outlived_its_shim_is_not_the_operator_without_the_key() {
    let kitchen = Kitchen::new();
    let orphan = "import os, socket, sys, time, json\n\
        os.setsid()\n\
        first = os.getpid()\n\
        if os.fork(): sys.exit()\n\
        while os.getppid() == first: time.sleep(0.01)\n\
        open('orphan', 'w').write(str(os.getpid()) + '\\n')\n\
        while not os.path.exists('go'): time.sleep(0.02)\n\
        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
        hello = {'protocol': 1, 'version': '0.1.0', 'who': 'operator'}\n\
        s.send((json.dumps(hello) + '\\n').encode())\n\
        open('said.new', 'wb').write(s.makefile('rb').readline())\n\
        os.rename('said.new', 'said')\n";
    fs::write(kitchen.project().join("orphan.py"), orphan).unwrap();
    let socket = kitchen.socket().display().to_string();
    // Without a mark in its environment nobody finds it.
    let script = format!("env -i python3 orphan.py {socket}; sleep 60");
    kitchen.ok(["exec", "-d", "--shell", &script]);
    let orphan: u32 = kitchen.file("orphan").trim().parse().unwrap();
    let shim = parent_of(orphan);
    kitchen.kill_daemon();
    kill(shim, Signal::KILL);
    poll("its shim is dead", || (parent_of(orphan) != shim).then_some(()));
    kitchen.ok(["ps"]);
    fs::write(kitchen.project().join("go"), "").unwrap();
    let said: Value = serde_json::from_str(&kitchen.file("said")).unwrap();
    assert_eq!(said["refused"]["kind"], "forbidden", "{said}");
}

fn parent_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn tasks_that_open_many_connections_shut_nobody_out() {
    let kitchen = Kitchen::new();
    let flood = "import socket, sys\n\
        held = []\n\
        hello = b'{\"protocol\":1,\"version\":\"0.1.0\",\"who\":\"operator\"}\\n'\n\
        for n in range(700):\n\
        \x20   s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]); held.append(s)\n\
        said = [s.recv(4096) for s in held]\n\
        print(sum(b'refused' in one for one in said), 'of', len(said), 'refused', flush=True)\n\
        sys.stdin.read()\n";
    fs::write(kitchen.project().join("flood.py"), flood).unwrap();
    let socket = kitchen.socket().display().to_string();
    for name in ["One", "Two"] {
        kitchen.ok(["exec", "-d", "--stdin", "--name", name, "--", "python3", "flood.py", &socket]);
    }
    for name in ["One", "Two"] {
        let said = poll("its count", || Some(kitchen.ok(["logs", name])).filter(|s| !s.is_empty()));
        let refused: usize = said.split(' ').next().unwrap().parse().unwrap();
        // All but its 64 places, though none of them said hello.
        assert_eq!(refused, 636, "{said}");
    }
    assert_eq!(kitchen.json(["ps"]).as_array().unwrap().len(), 2);
}

#[test]
fn unfinished_lines_of_tasks_cost_a_bounded_amount_of_memory() {
    let kitchen = Kitchen::new();
    let flood = "import socket, sys\n\
        held = []\n\
        hello = b'{\"protocol\":1,\"version\":\"0.1.0\",\"who\":\"operator\"}\\n'\n\
        for n in range(40):\n\
        \x20   s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]); held.append(s)\n\
        \x20   s.send(hello); s.recv(4096)\n\
        \x20   try: s.sendall(b'x' * (15 << 20))\n\
        \x20   except OSError: pass\n\
        print('sent', flush=True)\n\
        sys.stdin.read()\n";
    fs::write(kitchen.project().join("flood.py"), flood).unwrap();
    kitchen.ok(["daemon", "start"]);
    let pid = kitchen.daemon_pid();
    let before = resident_kib(pid);
    let socket = kitchen.socket().display().to_string();
    kitchen.ok(["exec", "-d", "--stdin", "--", "python3", "flood.py", &socket]);
    poll("all is sent", || (kitchen.ok(["logs", "1"]) == "sent\n").then_some(()));
    let grown = resident_kib(pid).saturating_sub(before) / 1024;
    // 48 MiB are the most; a growing buffer has up to twice what it holds.
    assert!(grown < 150, "{grown} MiB");
    assert_eq!(kitchen.daemon_pid(), pid);
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_daemon_shows_its_environment_to_nobody_and_reads_it_still() {
    let kitchen = Kitchen::new();
    kitchen.configure("pass_env = [\"*\"]\n");
    let started = kitchen
        .command(["daemon", "start"])
        .env("OPENAI_API_KEY", "sk-hidden-from-others")
        .env("HARMLESS", "not-hidden-from-commands")
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    let pid = kitchen.daemon_pid();
    // Whoever runs this is root and may look, or not and may not.
    let shown = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    assert!(shown.iter().all(|byte| *byte == 0), "{}", String::from_utf8_lossy(&shown));
    assert_eq!(
        kitchen.ok(["exec", "--shell", "echo $HARMLESS; env | grep -c sk-hidden; true"]),
        "not-hidden-from-commands\n0\n"
    );
    let asked = ["exec", "--env-from", "KEY=OPENAI_API_KEY", "--shell", "echo $KEY"];
    assert_eq!(kitchen.ok(asked), "sk-hidden-from-others\n");
    // Programs get the usual number of files, whatever the daemon has.
    let usual = std::process::Command::new("sh").args(["-c", "ulimit -n"]).output().unwrap();
    let usual = String::from_utf8(usual.stdout).unwrap();
    assert_eq!(kitchen.ok(["exec", "--shell", "ulimit -n"]), usual);
}

#[test]
fn a_task_has_no_key_passed_on() {
    let kitchen = Kitchen::new();
    let started = kitchen
        .command(["daemon", "start"])
        .env("ANTHROPIC_API_KEY", "sk-hidden-from-tasks")
        .env("HARMLESS", "shown")
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    let ask = |variable: &str| {
        let reference = format!("K={variable}");
        let asked = ["exec", "--", BRIGADE, "exec", "--env-from", &reference, "--", "env"];
        kitchen.run(asked)
    };
    let ran = ask("ANTHROPIC_API_KEY");
    assert!(ran.code == 126 && ran.err.contains("provider's key"), "{ran:?}");
    assert!(!ran.out.contains("sk-hidden"), "{ran:?}");
    assert!(ask("HARMLESS").out.contains("K=shown"));
}

/// The agent works in a directory that contains the state and the configuration of its user.
#[test]
fn file_tools_reach_neither_the_state_nor_the_configuration() {
    let kitchen = Kitchen::new();
    let root = kitchen.state().parent().unwrap().to_owned();
    let evil = "home/.config/brigade/agents/evil.md";
    let calls = [
        r#"call read_file {"path": "state/operator.key"}"#,
        r#"call write_file {"path": "state/operator.key", "content": "0"}"#,
        r#"call search_files {"pattern": "[0-9a-f]{64}"}"#,
        &format!(r#"call write_file {{"path": "{evil}", "content": "x"}}"#),
        r#"call write_file {"path": "fine.txt", "content": "x"}"#,
    ];
    let turns: String = calls.iter().map(|call| format!("turn\n  {call}\n")).collect();
    kitchen.script(&format!("agent *\n{turns}turn\n  say Done.\n"));
    let allowed = ["run", "--allow", "read_file", "--allow", "write_file", "--allow"];
    let run = [&allowed[..], &["search_files", "Look."]].concat();
    let ran = kitchen.command(run).current_dir(&root).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let logs = kitchen.command(["logs", "1"]).current_dir(&root).output().unwrap();
    let said = String::from_utf8(logs.stdout).unwrap();
    assert_eq!(said.matches("is Brigade's own directory").count(), 3, "{said}");
    assert!(!said.contains(&kitchen.operator_key()), "{said}");
    assert!(!root.join(evil).exists());
    assert!(root.join("fine.txt").exists(), "{said}");
}

/// A folder that cannot be removed by recursion, and one that is closed to its owner.
#[test]
fn what_a_confined_command_leaves_in_its_scratch_folder_harms_no_daemon() {
    let kitchen = Kitchen::new();
    let dig = "import os\n\
        os.chdir(os.environ['TMPDIR']); os.mkdir('closed'); os.mkdir('closed/in'); os.chmod('closed', 0)\n\
        for _ in range(20000): os.mkdir('d'); os.chdir('d')\n";
    let ran = kitchen.run(["exec", "--confine", "--", "python3", "-c", dig]);
    assert_eq!(ran.code, 0, "{ran:?}");
    kitchen.ok(["ps"]);
    let scratch = find(&kitchen.state().join("processes"), "tmp");
    poll("the scratch folder is gone", || {
        (!scratch.as_ref().is_some_and(|it| it.exists())).then_some(())
    });
    kitchen.ok(["prune", "--older", "0"]);
}

fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let sessions = fs::read_dir(folder).ok()?.flatten();
    let executions =
        sessions.flat_map(|it| fs::read_dir(it.path()).into_iter().flatten().flatten());
    executions.map(|it| it.path().join(name)).find(|path| path.exists())
}

/// It runs outside of the sandbox that it makes, and must obey nothing that the command brings.
#[test]
fn a_shim_has_none_of_the_environment_of_its_command() {
    let kitchen = Kitchen::new();
    let look = "tr '\\0' '\\n' < /proc/$PPID/environ; echo own $SAUCE $LD_BIND_NOW";
    let variables = ["exec", "--env", "SAUCE=red", "--env", "LD_BIND_NOW=1", "--shell", look];
    let said = kitchen.ok(variables);
    let shims: Vec<&str> = said.lines().filter(|line| !line.starts_with("BRIGADE_")).collect();
    assert_eq!(shims, ["own red 1"], "{said}");
    assert!(said.contains("BRIGADE_SHIM="), "{said}");
}
