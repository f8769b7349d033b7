//! System calls about other processes, and the kinds of sockets.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use brigade_process::{LayerAccess, NetworkAccess, ProcessExit};

use crate::attack::attempt;
use crate::support::{Place, Ran, Run, be_a_user, can};

const REFUSED: &str = "Operation not permitted (os error 1)";

/// A process outside that belongs to the same user.
struct Stranger(Child);

impl Stranger {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn answer<'a>(ran: &'a Ran, name: &str) -> &'a str {
    let mut lines = ran.text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    lines.next().unwrap_or_else(|| panic!("{name}: {}", ran.text))
}

fn assert_refused(free: &Ran, ran: &Ran, names: &[&str]) {
    for name in names {
        // Without a sandbox it is done, or this kernel cannot do it at all.
        assert_ne!(answer(free, name), REFUSED, "{name} is no test");
        assert_eq!(answer(ran, name), REFUSED, "{name}");
    }
}

#[tokio::test]
async fn processes_outside_are_not_changed() {
    if !can("confinement", |_| true) {
        return;
    }
    be_a_user();
    let (place, stranger) = (Place::new(), Stranger::new());
    let others = [
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
    let own = ["own limit", "own affinity", "own priority"];
    let names = [&others[..], &own].concat();
    let target = stranger.0.id().into();
    let free = attempt(&Run::default(), &place, &names, target).await;
    for name in ["prlimit", "prlimit of the shim", "affinity", "priority"] {
        assert_eq!(answer(&free, name), "done", "{name} is no test");
    }
    let run = Run { layers: vec![place.layer()], ..Run::default() };
    for run in [run, place.sandboxed()] {
        let ran = attempt(&run, &place, &names, target).await;
        assert_refused(&free, &ran, &others);
        for name in own {
            assert_eq!(answer(&ran, name), "done", "{name}");
        }
    }
}

#[tokio::test]
async fn the_numbers_of_other_architectures_are_no_way_out() {
    if !can("confinement", |_| true) || !cfg!(target_arch = "x86_64") {
        return;
    }
    be_a_user();
    let place = Place::new();
    let run = Run { layers: vec![place.layer()], ..Run::default() };
    assert_eq!(answer(&attempt(&run, &place, &["x32"], 0).await, "x32"), REFUSED);
    let ran = attempt(&run, &place, &["foreign"], 0).await;
    assert!(!ran.text.contains("done"), "{}", ran.text);
    assert_ne!(ran.record.exit, Some(ProcessExit::Code(0)));
}

/// `clone3` puts a child into a control group that its caller may not write. Refused as a call that the
/// kernel does not have, it makes libraries use `clone`.
#[tokio::test]
async fn clone3_is_no_call_of_this_kernel() {
    if !can("confinement", |_| true) {
        return;
    }
    let place = Place::new();
    let free = attempt(&Run::default(), &place, &["clone3"], 0).await;
    assert_eq!(answer(&free, "clone3"), "Invalid argument (os error 22)");
    let run = Run { layers: vec![place.layer()], ..Run::default() };
    let refused = attempt(&run, &place, &["clone3"], 0).await;
    assert_eq!(answer(&refused, "clone3"), "Function not implemented (os error 38)");
    let ran = run.script(&place, "(echo forked) | cat").await;
    assert_eq!(ran.text, "forked\n");
}

/// Listens outside, and says afterwards whether anybody came.
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

    fn heard(&self) -> Option<String> {
        let (mut stream, _) = self.0.accept().ok()?;
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Some(text)
    }
}

#[tokio::test]
async fn without_tcp_no_protocol_with_connections_is_left() {
    if !can("confinement", |_| true) {
        return;
    }
    be_a_user();
    let (place, port) = (Place::new(), Port::new());
    let free = attempt(&Run::default(), &place, &["fast open"], port.number()).await;
    assert_eq!((answer(&free, "fast open"), port.heard().as_deref()), ("done", Some("out")));
    let tcp = ["tcp", "tcp with flags", "fast open", "mptcp", "sctp", "sctp stream", "dccp"];
    let more = ["smc", "rds", "vsock"];
    let names = [&tcp[..], &more].concat();
    let free = attempt(&Run::default(), &place, &names, port.number()).await;
    while port.heard().is_some() {}
    let layer = LayerAccess { network: NetworkAccess::NoTcp, ..place.layer() };
    let run = Run { layers: vec![layer], ..place.sandboxed() };
    let ran = attempt(&run, &place, &names, port.number()).await;
    assert_refused(&free, &ran, &names);
    assert_eq!(port.heard(), None);
    let left = ["udp", "netlink", "local"];
    let ran = attempt(&run, &place, &left, port.number()).await;
    for name in left {
        assert_eq!(answer(&ran, name), "done", "{name}");
    }
}

#[tokio::test]
async fn without_a_network_only_local_sockets_are_left() {
    if !can("confinement", |_| true) {
        return;
    }
    be_a_user();
    let (place, port) = (Place::new(), Port::new());
    let names = ["tcp", "fast open", "mptcp", "udp", "netlink", "vsock"];
    let free = attempt(&Run::default(), &place, &names, port.number()).await;
    while port.heard().is_some() {}
    let layer = || LayerAccess { network: NetworkAccess::None, ..place.layer() };
    // Without a namespace of its own the filter holds by itself.
    let filtered = Run { layers: vec![layer()], ..Run::default() };
    for run in [filtered, Run { layers: vec![layer()], ..place.sandboxed() }] {
        let ran = attempt(&run, &place, &names, port.number()).await;
        assert_refused(&free, &ran, &names);
        assert_eq!(answer(&attempt(&run, &place, &["local"], 0).await, "local"), "done");
        assert_eq!(port.heard(), None);
    }
    let run = Run { layers: vec![layer()], ..place.sandboxed() };
    if run.namespaces.is_some_and(|namespaces| namespaces.network.is_available()) {
        let ran = run.script(&place, "tail -n +3 /proc/self/net/dev | grep -vc ' lo:'").await;
        assert_eq!((ran.text.as_str(), ran.record.sandbox.network), ("0\n", true));
    }
}

#[tokio::test]
async fn a_grandchild_that_nobody_knows_stays_below_its_shim() {
    if !can("confinement", |_| true) {
        return;
    }
    be_a_user();
    let place = Place::new();
    // Twice forked, in a session of its own, without an environment: it has only its parent left.
    let script = "env -i /usr/bin/setsid /bin/sh -c '/bin/sh -c \"
             while [ \\\"\\$(cut -d\\  -f4 /proc/\\$\\$/stat)\\\" != $0 ]; do sleep 0.01; done; echo below > found
         \" & exec true' $PPID </dev/null
         while [ ! -s found ]; do sleep 0.01; done; cat found";
    assert_eq!(place.sandboxed().script(&place, script).await.text, "below\n");
}
