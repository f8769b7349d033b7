//! The daemon on a PostgreSQL store. Each story has a schema of its own in a private server.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use brigade_postgres::test_server::TestServer;
use rustix::process::Signal;

use crate::story_env::{Ran, StoryEnv, kill, poll};

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

/// A password that must be shown nowhere. The server trusts the users of its socket.
const PASSWORD: &str = "s3cret";

pub(crate) fn store_url(schema: &str) -> String {
    url_for("brigade", schema)
}

fn url_for(user: &str, schema: &str) -> String {
    format!("{}?schema={schema}", SERVER.url_of(&format!("{user}:{PASSWORD}")))
}

/// Returns a command whose variable names the store.
fn command_with_store<const N: usize>(story: &StoryEnv, url: &str, args: [&str; N]) -> Command {
    let mut command = story.command(args);
    command.env("BRIGADE_STORE", url);
    command
}

fn run_with_store<const N: usize>(story: &StoryEnv, url: &str, args: [&str; N]) -> Ran {
    command_with_store(story, url, args).output().unwrap().into()
}

/// A `brigade serve` in the foreground.
pub(crate) struct ServingDaemon {
    child: Child,
}

impl ServingDaemon {
    /// Starts a daemon by its flag, and waits until it listens.
    pub(crate) fn start(story: &StoryEnv, url: &str) -> Self {
        Self::start_by(story.command(serve_args(story, url)))
    }

    fn start_by(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        if !first.starts_with("listening on ") {
            let ran: Ran = child.wait_with_output().unwrap().into();
            panic!("it does not listen: {first}{ran:?}");
        }
        Self { child }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Shuts the daemon down, and returns its log.
    pub(crate) fn stop(mut self) -> String {
        kill(self.pid(), Signal::TERM);
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }

    pub(crate) fn kill(mut self) {
        kill(self.pid(), Signal::KILL);
        self.child.wait().unwrap();
    }
}

fn serve_args(story: &StoryEnv, url: &str) -> Vec<String> {
    let state = story.state().display().to_string();
    let args = ["serve", "--state", &state, "--listen", "127.0.0.1:0", "--store", url];
    args.map(str::to_owned).to_vec()
}

/// Runs a `brigade serve` that must be refused.
fn refused_serve(story: &StoryEnv, url: &str) -> Ran {
    story.command(serve_args(story, url)).output().unwrap().into()
}

#[track_caller]
fn check_hidden(ran: &Ran) {
    assert!(!ran.out.contains(PASSWORD) && !ran.err.contains(PASSWORD), "{ran:?}");
}

#[test]
fn tasks_survive_a_killed_daemon() {
    let story = StoryEnv::new();
    let url = store_url("survival");
    let daemon = ServingDaemon::start(&story, &url);
    let ran = story.run(["exec", "--shell", "echo soup; exit 3"]);
    assert_eq!((ran.code, &*ran.out), (3, "soup\n"), "{ran:?}");
    let script = "until [ -e go ]; do sleep 0.02; done; echo done; exit 4";
    story.ok(["exec", "-d", "--name", "Long", "--shell", script]);
    story.until_state("Long", "running");
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 2);
    daemon.kill();

    // No client starts another one.
    let ran = story.run(["ps"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("no daemon is running: the store is postgres://brigade@"), "{ran:?}");
    assert!(ran.err.contains(" --store postgres://brigade@"), "{ran:?}");
    assert_eq!(story.run(["daemon", "status"]).code, 127);

    fs::write(story.project().join("go"), "").unwrap();
    let daemon = ServingDaemon::start(&story, &url);
    let ran = story.run(["wait", "Long"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(story.ok(["logs", "Long"]), "done\n");
    assert_eq!(story.ok(["logs", "1"]), "soup\n");
    assert!(!story.state().join("brigade.db").exists());
    daemon.stop();
}

#[test]
fn a_client_that_stays_reaches_the_next_daemon() {
    let story = StoryEnv::new();
    let url = store_url("reconnection");
    let daemon = ServingDaemon::start(&story, &url);
    let client = story.start(["exec", "--shell", "until [ -e go ]; do sleep 0.02; done; exit 5"]);
    story_task_runs(&story);
    daemon.kill();
    let daemon = ServingDaemon::start(&story, &url);
    fs::write(story.project().join("go"), "").unwrap();
    let ran: Ran = client.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 5, "{ran:?}");
    daemon.stop();
}

fn story_task_runs(story: &StoryEnv) {
    poll("the task runs", || {
        let tasks = story.json(["ps"]);
        (tasks[0]["state"] == "running").then_some(())
    });
}

#[test]
fn the_variable_and_the_configuration_name_the_store() {
    let story = StoryEnv::new();
    let state = story.state().display().to_string();
    let args = ["serve", "--state", &state, "--listen", "127.0.0.1:0"];
    story.configure(&format!("store = \"{}\"\n", store_url("configured")));
    let shown = story.ok(["config"]);
    assert!(shown.contains("postgres://brigade@") && !shown.contains(PASSWORD), "{shown}");
    let daemon = ServingDaemon::start_by(story.command(args));
    story.ok(["exec", "--name", "Configured", "--", "true"]);
    daemon.stop();
    let sessions = |schema: &str| {
        let sql = "SELECT count(*) FROM pg_tables WHERE tablename = 'sessions' AND schemaname";
        SERVER.execute(&format!("{sql} = '{schema}'"))
    };
    assert_eq!(sessions("configured"), "1");
    // The variable has precedence over the file, and the flag over the variable.
    let other = StoryEnv::new();
    other.configure("store = \"postgres://nobody@127.0.0.1:1/nowhere\"\n");
    let other_state = other.state().display().to_string();
    let args = ["serve", "--state", &other_state, "--listen", "127.0.0.1:0"];
    let daemon = ServingDaemon::start_by(command_with_store(&other, &store_url("variable"), args));
    daemon.stop();
    assert_eq!(sessions("variable"), "1");
    let third = StoryEnv::new();
    let mut command = third.command(serve_args(&third, &store_url("flag")));
    command.env("BRIGADE_STORE", "postgres://nobody@127.0.0.1:1/nowhere");
    ServingDaemon::start_by(command).stop();
    assert_eq!(sessions("flag"), "1");
}

#[test]
fn the_password_is_shown_nowhere() {
    let story = StoryEnv::new();
    story.configure("pass_env = [\"*\"]\n");
    let url = store_url("password");
    let programs = story.directory("programs");
    let seen = story.project().join("seen");
    let script = format!("#!/bin/sh\nenv >'{}'\necho 2.1.0\n", seen.display());
    fs::write(programs.join("claude"), script).unwrap();
    fs::set_permissions(programs.join("claude"), Permissions::from_mode(0o755)).unwrap();
    let search_path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
    let mut command = story.command(serve_args(&story, &url));
    command.env("BRIGADE_LOG", "trace").env("PATH", &search_path);
    let daemon = ServingDaemon::start_by(command);
    let words = fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    let words = String::from_utf8(words).unwrap();
    assert!(words.contains("serve") && !words.contains("--store"), "{words}");
    let env = story.ok(["exec", "--", "env"]);
    assert!(env.contains("BRIGADE_LOG=trace") && !env.contains("BRIGADE_STORE"), "{env}");
    for args in [["daemon", "status"], ["doctor", "--json"], ["config", "--json"]] {
        let ran = run_with_store(&story, &url, args);
        assert_eq!(ran.code, 0, "{ran:?}");
        check_hidden(&ran);
    }
    // The daemon asks agent programs for their version.
    let listed: Ran = story.command(["agents"]).env("PATH", &search_path).output().unwrap().into();
    assert!(listed.out.contains("2.1.0"), "{listed:?}");
    let env = fs::read_to_string(&seen).unwrap();
    assert!(env.contains("BRIGADE_LOG=trace") && !env.contains("BRIGADE_STORE"), "{env}");
    let log = daemon.stop();
    assert!(log.contains("serving") && !log.contains(PASSWORD), "{log}");
    let files = [story.state().join("store.json"), story.state().join("daemon.lock")];
    for file in files {
        assert!(!fs::read_to_string(&file).unwrap().contains(PASSWORD), "{}", file.display());
    }
}

#[test]
fn no_client_starts_a_daemon_for_a_configured_database() {
    let story = StoryEnv::new();
    let url = store_url("never_opened");
    for args in [&["exec", "--", "true"][..], &["daemon", "start"], &["ps"]] {
        let mut command = story.command(args);
        let ran: Ran = command.env("BRIGADE_STORE", &url).output().unwrap().into();
        assert_eq!(ran.code, 125, "{args:?}: {ran:?}");
        assert!(ran.err.contains("run `brigade serve --state "), "{ran:?}");
        check_hidden(&ran);
    }
    assert_eq!(story.processes(), Vec::<u32>::new());
    assert!(!story.state().exists());
}

#[test]
fn an_older_daemon_of_a_database_is_not_replaced() {
    let story = StoryEnv::new();
    fs::create_dir_all(story.socket().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(story.socket()).unwrap();
    let old = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        lines.next().unwrap().unwrap();
        writeln!(&stream, r#"{{"protocol":2,"version":"0.0.9","pid":1}}"#).unwrap();
        let request = lines.next().unwrap().unwrap();
        writeln!(&stream, r#"{{"id":1,"reply":[]}}"#).unwrap();
        request
    });
    let ran = run_with_store(&story, &store_url("older"), ["sessions", "--json"]);
    assert_eq!((ran.code, ran.out.trim()), (0, "[]"), "{ran:?}");
    let request = old.join().unwrap();
    assert!(request.contains("list_sessions"), "{request}");
}

#[test]
fn a_state_directory_belongs_to_one_store() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--", "sleep", "1000"]);
    story.until_state("1", "running");
    let pid = story.daemon_pid();
    // The daemon on SQLite keeps running, and so does its process.
    let ran = refused_serve(&story, &store_url("second"));
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("belongs to the store in it, which has 1 workspace"), "{ran:?}");
    check_hidden(&ran);
    assert_eq!((story.daemon_pid(), story.state_of("1").as_str()), (pid, "running"));
    story.kill_daemon();
    assert_eq!(refused_serve(&story, &store_url("second")).code, 2);
    assert_eq!(story.state_of("1"), "running");
    assert!(!story.state().join("store.json").exists());

    let bound = StoryEnv::new();
    let daemon = ServingDaemon::start(&bound, &store_url("first"));
    bound.ok(["exec", "-d", "--", "sleep", "1000"]);
    bound.until_state("1", "running");
    daemon.kill();
    let ran = refused_serve(&bound, &store_url("second"));
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("belongs to the store postgres://brigade@"), "{ran:?}");
    assert!(ran.err.contains("?schema=first; nothing in it was changed"), "{ran:?}");
    let ran = bound.run(["daemon", "start", "--foreground"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("belongs to the store postgres://brigade@"), "{ran:?}");
    let daemon = ServingDaemon::start(&bound, &store_url("first"));
    assert_eq!(bound.state_of("1"), "running");
    daemon.stop();
    // The tables were removed, and those that the next daemon creates are another store.
    SERVER.execute("DROP SCHEMA first CASCADE");
    let ran = refused_serve(&bound, &store_url("first"));
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("belongs to another store at the same URL"), "{ran:?}");
}

#[test]
fn doctor_reports_the_database() {
    let story = StoryEnv::new();
    let url = store_url("healthy");
    let ran = run_with_store(&story, &url, ["doctor"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("schema healthy: no tables yet"), "{}", ran.out);
    assert!(ran.out.contains("it does not start by itself; run `brigade serve"), "{}", ran.out);
    let daemon = ServingDaemon::start(&story, &url);
    let ran = run_with_store(&story, &url, ["doctor"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in [
        "schema healthy: tables of version",
        "can write and create partitions",
        "no synchronous standby is configured: acknowledged commits can be lost",
        "from this machine's",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(!ran.out.contains("timeouts") && !ran.out.contains("pooler"), "{}", ran.out);
    daemon.stop();
    SERVER.execute(
        "CREATE ROLE waiter LOGIN SUPERUSER; ALTER ROLE waiter SET statement_timeout = '30s'",
    );
    let ran = run_with_store(&story, &url_for("waiter", "healthy"), ["doctor"]);
    assert!(
        ran.out.contains("apply to commits") && ran.out.contains("statement_timeout"),
        "{}",
        ran.out
    );
}

/// Checks that neither `serve` nor `doctor` accepts a store, and that both say why in one line.
#[track_caller]
fn check_refused(url: &str, reason: &str) {
    let story = StoryEnv::new();
    let ran = refused_serve(&story, url);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.starts_with("brigade: postgres://") && ran.err.contains(reason), "{ran:?}");
    assert_eq!((ran.err.lines().count(), &*ran.out), (1, ""), "{ran:?}");
    check_hidden(&ran);
    let ran = run_with_store(&story, url, ["doctor"]);
    assert_eq!(ran.code, 120, "{ran:?}");
    let broken: Vec<&str> = ran.out.lines().filter(|line| line.starts_with("broken")).collect();
    assert_eq!(broken.len(), 1, "{ran:?}");
    assert!(broken[0].contains("postgres://") && broken[0].contains(reason), "{ran:?}");
    check_hidden(&ran);
    assert!(!story.state().exists(), "nothing was changed");
}

#[test]
fn unusable_databases_are_named_in_one_line() {
    check_refused(&format!("postgres://ada:{PASSWORD}@127.0.0.1:1/kitchen"), "Connection refused");
    check_refused(&url_for("nobody_knows", "any"), "role \"nobody_knows\" does not exist");
    SERVER.execute("CREATE SCHEMA foreign_one; CREATE TABLE foreign_one.recipes(dish text)");
    check_refused(&store_url("foreign_one"), "has tables of another program");
    assert_eq!(
        SERVER.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'foreign_one'"),
        "1"
    );
    let story = StoryEnv::new();
    ServingDaemon::start(&story, &store_url("newer")).stop();
    SERVER.execute("UPDATE newer.meta SET value = 99 WHERE name = 'version'");
    check_refused(&store_url("newer"), "newer version; upgrade this program");
    let replica = TestServer::start_replica();
    let url = replica.url_of(&format!("brigade:{PASSWORD}"));
    check_refused(&url, "replica; connect to the primary");
}

#[test]
fn missing_rights_are_named() {
    SERVER.execute("CREATE ROLE guest LOGIN");
    let story = StoryEnv::new();
    let url = url_for("guest", "denied");
    let ran = refused_serve(&story, &url);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("permission denied") && ran.err.lines().count() == 1, "{ran:?}");
    let ran = run_with_store(&story, &url, ["doctor"]);
    assert_eq!(ran.code, 120, "{ran:?}");
    assert!(ran.out.contains("lacks: CREATE on database postgres"), "{ran:?}");
    assert!(!story.state().exists(), "nothing was changed");
}

#[test]
fn a_wrong_password_is_refused() {
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = certificate.signing_key.serialize_pem();
    let server = TestServer::start_on_loopback(&certificate.cert.pem(), &key);
    server.execute("CREATE ROLE ada LOGIN PASSWORD 'right'");
    let url = server.loopback_url(&format!("ada:{PASSWORD}"), "127.0.0.1");
    check_refused(&url, "password authentication failed for user \"ada\"");
}

#[test]
fn a_wrong_url_is_refused_without_its_text() {
    let story = StoryEnv::new();
    for url in ["mysql://ada:s3cret@db/k", "postgres://ada:s3cret@db", "s3cret"] {
        let ran = refused_serve(&story, url);
        assert_eq!((ran.code, ran.err.lines().count()), (2, 1), "{ran:?}");
        assert!(ran.err.contains("--store: the URL of the database is not valid"), "{ran:?}");
        check_hidden(&ran);
        let ran = run_with_store(&story, url, ["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!((ran.code, ran.err.lines().count()), (2, 1), "{ran:?}");
        check_hidden(&ran);
        let ran = run_with_store(&story, url, ["doctor"]);
        assert_eq!(ran.code, 120, "{ran:?}");
        assert!(ran.out.contains("the URL of the database is not valid"), "{ran:?}");
        check_hidden(&ran);
        story.configure(&format!("store = \"{url}\"\n"));
        let ran = story.run(["ps"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("config.toml: store: the URL of the database"), "{ran:?}");
        check_hidden(&ran);
        story.configure("");
    }
    assert!(!story.state().exists(), "nothing was changed");
}

#[test]
fn a_demonstration_has_a_store_of_its_own() {
    let story = StoryEnv::new();
    let ran = run_with_store(&story, &store_url("demo"), ["demo"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let schemas = SERVER.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'demo'");
    assert_eq!(schemas, "0");
}

#[test]
fn tasks_wait_until_the_database_is_back() {
    let story = StoryEnv::new();
    SERVER.execute("CREATE DATABASE outage");
    let url = SERVER.url().replace("/postgres", "/outage");
    let daemon = ServingDaemon::start(&story, &url);
    let script = "until [ -e go ]; do sleep 0.02; done; echo done; exit 6";
    story.ok(["exec", "-d", "--name", "Long", "--shell", script]);
    story.until_state("Long", "running");
    SERVER.execute("ALTER DATABASE outage ALLOW_CONNECTIONS false");
    SERVER
        .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'outage'");
    let ran = story.run(["ps"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("the store is unavailable: cannot connect"), "{ran:?}");
    let client = story.start(["exec", "--", "echo", "late"]);
    fs::write(story.project().join("go"), "").unwrap();
    SERVER.execute("ALTER DATABASE outage ALLOW_CONNECTIONS true");
    let mut ran: Ran = client.wait_with_output().unwrap().into();
    if ran.code != 0 {
        // The request came before the database was back. A refused request has started nothing.
        assert_eq!(ran.code, 125, "{ran:?}");
        assert!(ran.err.contains("the store is unavailable: cannot connect"), "{ran:?}");
        ran = story.run(["exec", "--", "echo", "late"]);
    }
    assert_eq!((ran.code, &*ran.out), (0, "late\n"), "{ran:?}");
    assert_eq!(story.ok(["ps", "--ended"]).matches("echo late").count(), 1);
    assert_eq!(story.run(["wait", "Long"]).code, 6);
    assert_eq!(story.ok(["logs", "Long"]), "done\n");
    daemon.stop();
}

/// Returns the numbers of the events within their session.
fn sequence_numbers(text: &str) -> Vec<u64> {
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.map(|item| item["event"]["seq"].as_u64().unwrap()).collect()
}

/// Each daemon writes a lane of its own, in which positions begin again.
#[test]
fn events_of_several_daemons_are_printed_once() {
    let story = StoryEnv::new();
    let url = store_url("lanes");
    let daemon = ServingDaemon::start(&story, &url);
    story.ok(["exec", "--", "true"]);
    let output = story.project().join("events");
    let mut follow = story.command(["events", "-f", "--json"]);
    let mut follow = follow.stdout(fs::File::create(&output).unwrap()).spawn().unwrap();
    let seen = || sequence_numbers(&fs::read_to_string(&output).unwrap());
    let mut daemon = daemon;
    for _ in 0..3 {
        let all = sequence_numbers(&story.ok(["events", "--json"]));
        poll("all events so far", || (seen().len() >= all.len()).then_some(()));
        daemon.kill();
        daemon = ServingDaemon::start(&story, &url);
        story.ok(["exec", "--", "true"]);
    }
    let all = sequence_numbers(&story.ok(["events", "--json"]));
    poll("all events", || (seen().len() >= all.len()).then_some(()));
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert_eq!(seen(), all, "each once");
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());

    // A position names its lane.
    let text = story.ok(["events"]);
    let middle = text.lines().nth(all.len() / 2).unwrap().split_whitespace().next().unwrap();
    assert!(middle.contains(':'), "{text}");
    let items = story.ok(["events", "--json"]);
    let mut place = std::collections::BTreeMap::new();
    for item in items.lines().take(all.len() / 2 + 1) {
        let item: serde_json::Value = serde_json::from_str(item).unwrap();
        let lane = item["event"]["lane"].as_u64().unwrap_or(0);
        place.insert(lane, item["event"]["position"].as_u64().unwrap());
    }
    let place: Vec<String> = place.iter().map(|(lane, no)| format!("{lane}:{no}")).collect();
    let rest = sequence_numbers(&story.ok(["events", "--json", "--from", &place.join(",")]));
    assert_eq!(rest, all[all.len() / 2 + 1..]);
    assert_eq!(story.run(["events", "--from", "soup"]).code, 2);
    daemon.stop();
}
