//! System calls that affect other processes, and kinds of sockets.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use brigade_process::{LayerAccess, NetworkAccess, ProcessExit};

use crate::attack::attempt;
use crate::support::{ProcessResult, ProcessSettings, TestDirs, become_user, can};

const DENIED: &str = "Operation not permitted (os error 1)";

/// A process outside with the same user.
struct UnrelatedProcess(Child);

impl UnrelatedProcess {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }
}

impl Drop for UnrelatedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reply<'a>(result: &'a ProcessResult, name: &str) -> &'a str {
    let mut lines =
        result.text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    lines.next().unwrap_or_else(|| panic!("{name}: {}", result.text))
}

fn assert_denied(free: &ProcessResult, result: &ProcessResult, names: &[&str]) {
    for name in names {
        // Without a sandbox it succeeds, or this kernel does not support it.
        assert_ne!(reply(free, name), DENIED, "{name} is allowed without a sandbox");
        assert_eq!(reply(result, name), DENIED, "{name}");
    }
}

#[tokio::test]
async fn processes_outside_are_not_changed() {
    if !can("a sandbox", |_| true) {
        return;
    }
    become_user();
    let dirs = TestDirs::new();
    let unrelated = UnrelatedProcess::new();
    let denied = [
        "prlimit",
        "prlimit of the shim",
        "affinity",
        "scheduler",
        "priority",
        "group priority",
        "user priority",
        "io priority",
        "kcmp",
        "io_uring",
        "keyring",
    ];
    let allowed = ["own limit", "own affinity", "own priority"];
    let names = [&denied[..], &allowed].concat();
    let target = unrelated.0.id().into();
    let free = attempt(&ProcessSettings::default(), &dirs, &names, target).await;
    for name in ["prlimit", "prlimit of the shim", "affinity", "priority"] {
        assert_eq!(reply(&free, name), "done", "{name} is allowed without a sandbox");
    }
    let run = ProcessSettings { layers: vec![dirs.layer()], ..ProcessSettings::default() };
    for run in [run, dirs.sandboxed()] {
        let result = attempt(&run, &dirs, &names, target).await;
        assert_denied(&free, &result, &denied);
        for name in allowed {
            assert_eq!(reply(&result, name), "done", "{name}");
        }
    }
}

#[tokio::test]
async fn system_calls_of_other_architectures_are_denied() {
    if !can("a sandbox", |_| true) || !cfg!(target_arch = "x86_64") {
        return;
    }
    become_user();
    let dirs = TestDirs::new();
    let run = ProcessSettings { layers: vec![dirs.layer()], ..ProcessSettings::default() };
    assert_eq!(reply(&attempt(&run, &dirs, &["x32"], 0).await, "x32"), DENIED);
    let result = attempt(&run, &dirs, &["foreign"], 0).await;
    assert!(!result.text.contains("done"), "{}", result.text);
    assert_ne!(result.record.exit, Some(ProcessExit::Code(0)));
}

/// `clone3` could start a child in a control group that its caller may not write. With `ENOSYS`,
/// libraries use `clone` instead.
#[tokio::test]
async fn clone3_is_reported_as_missing() {
    if !can("a sandbox", |_| true) {
        return;
    }
    let dirs = TestDirs::new();
    let free = attempt(&ProcessSettings::default(), &dirs, &["clone3"], 0).await;
    assert_eq!(reply(&free, "clone3"), "Invalid argument (os error 22)");
    let run = ProcessSettings { layers: vec![dirs.layer()], ..ProcessSettings::default() };
    let denied = attempt(&run, &dirs, &["clone3"], 0).await;
    assert_eq!(reply(&denied, "clone3"), "Function not implemented (os error 38)");
    let result = run.script(&dirs, "(echo forked) | cat").await;
    assert_eq!(result.text, "forked\n");
}

/// A listener outside that reports connections.
struct Port(TcpListener);

impl Port {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn number(&self) -> u64 {
        self.0.local_addr().unwrap().port().into()
    }

    fn received(&self) -> Option<String> {
        let (mut stream, _) = self.0.accept().ok()?;
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Some(text)
    }
}

#[tokio::test]
async fn without_tcp_every_protocol_with_connections_is_denied() {
    if !can("a sandbox", |_| true) {
        return;
    }
    become_user();
    let dirs = TestDirs::new();
    let port = Port::new();
    let free = attempt(&ProcessSettings::default(), &dirs, &["fast open"], port.number()).await;
    assert_eq!((reply(&free, "fast open"), port.received().as_deref()), ("done", Some("out")));
    let tcp = ["tcp", "tcp with flags", "fast open", "mptcp", "sctp", "sctp stream", "dccp"];
    let more = ["smc", "rds", "vsock"];
    let names = [&tcp[..], &more].concat();
    let free = attempt(&ProcessSettings::default(), &dirs, &names, port.number()).await;
    while port.received().is_some() {}
    let layer = LayerAccess { network: NetworkAccess::NoTcp, ..dirs.layer() };
    let run = ProcessSettings { layers: vec![layer], ..dirs.sandboxed() };
    let result = attempt(&run, &dirs, &names, port.number()).await;
    assert_denied(&free, &result, &names);
    assert_eq!(port.received(), None);
    let allowed = ["udp", "netlink", "local"];
    let result = attempt(&run, &dirs, &allowed, port.number()).await;
    for name in allowed {
        assert_eq!(reply(&result, name), "done", "{name}");
    }
}

#[tokio::test]
async fn without_a_network_only_local_sockets_are_allowed() {
    if !can("a sandbox", |_| true) {
        return;
    }
    become_user();
    let dirs = TestDirs::new();
    let port = Port::new();
    let names = ["tcp", "fast open", "mptcp", "udp", "netlink", "vsock"];
    let free = attempt(&ProcessSettings::default(), &dirs, &names, port.number()).await;
    while port.received().is_some() {}
    let layer = || LayerAccess { network: NetworkAccess::None, ..dirs.layer() };
    // Without a network namespace the filter alone denies them.
    let filtered = ProcessSettings { layers: vec![layer()], ..ProcessSettings::default() };
    for run in [filtered, ProcessSettings { layers: vec![layer()], ..dirs.sandboxed() }] {
        let result = attempt(&run, &dirs, &names, port.number()).await;
        assert_denied(&free, &result, &names);
        assert_eq!(reply(&attempt(&run, &dirs, &["local"], 0).await, "local"), "done");
        assert_eq!(port.received(), None);
    }
    let run = ProcessSettings { layers: vec![layer()], ..dirs.sandboxed() };
    if run.namespaces.is_some_and(|namespaces| namespaces.network.is_available()) {
        let result = run.script(&dirs, "tail -n +3 /proc/self/net/dev | grep -vc ' lo:'").await;
        assert_eq!((result.text.as_str(), result.record.sandbox.network), ("0\n", true));
    }
}

#[tokio::test]
async fn a_detached_grandchild_is_inherited_by_its_shim() {
    if !can("a sandbox", |_| true) {
        return;
    }
    become_user();
    let dirs = TestDirs::new();
    // Forked twice, in its own session, without an environment: only its parent identifies it.
    let script = "env -i /usr/bin/setsid /bin/sh -c '/bin/sh -c \"
             while [ \\\"\\$(cut -d\\  -f4 /proc/\\$\\$/stat)\\\" != $0 ]; do sleep 0.01; done; echo inherited > found
         \" & exec true' $PPID </dev/null
         while [ ! -s found ]; do sleep 0.01; done; cat found";
    assert_eq!(dirs.sandboxed().script(&dirs, script).await.text, "inherited\n");
}
