//! Other processes: signals, memory, sockets.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use brigade_process::{LandlockSupport, LayerAccess, NetworkAccess, ProcessExit};

use crate::support::{ProcessSettings, TestDirs, can, has};

#[tokio::test]
async fn no_signal_leaves_the_sandbox() {
    if !can("keeping signals inside", LandlockSupport::has_scopes) {
        return;
    }
    let dirs = TestDirs::new();
    let mut unrelated = Command::new("sleep").arg("1000").spawn().unwrap();
    // Its own shim is outside too. Its own children are not.
    let script = format!(
        "kill -9 {}; kill -9 $PPID; sleep 1000 & kill $! && echo own; wait; echo alive",
        unrelated.id()
    );
    let result = dirs.landlocked(&script).await;
    let is_alive = unrelated.try_wait().unwrap().is_none();
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
    assert!(is_alive, "{}", result.text);
    assert!(result.text.ends_with("own\nalive\n"), "{}", result.text);
    assert_eq!(result.text.matches("not permitted").count(), 2, "{}", result.text);
    assert_eq!(result.record.exit, Some(ProcessExit::Code(0)));
}

#[tokio::test]
async fn other_processes_cannot_be_inspected() {
    if !can("a sandbox", |_| true) {
        return;
    }
    let dirs = TestDirs::new();
    let mut unrelated = Command::new("sleep").arg("1000").env("SECRET", "hidden").spawn().unwrap();
    let pid = unrelated.id();
    let script =
        format!("cat /proc/{pid}/environ; ls /proc/{pid}/cwd/; cat /proc/{pid}/root/etc/passwd");
    let result = dirs.landlocked(&script).await;
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
    assert!(!result.text.contains("hidden"), "{}", result.text);
    assert_eq!(result.text.matches("ermission denied").count(), 3, "{}", result.text);
}

#[tokio::test]
async fn abstract_sockets_outside_are_denied() {
    if !can("keeping abstract sockets inside", LandlockSupport::has_scopes) || !has("python3") {
        return;
    }
    let dirs = TestDirs::new();
    let name = format!("brigade-test-{}", std::process::id());
    let _listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let script = format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\"); print(\"connected\")'"
    );
    let free = ProcessSettings::default().script(&dirs, &script).await;
    assert_eq!(free.text, "connected\n");
    let result = dirs.landlocked(&script).await;
    assert!(result.text.contains("PermissionError"), "{}", result.text);
}

#[tokio::test]
async fn tcp_is_allowed_unless_it_is_denied() {
    if !can("denying TCP", LandlockSupport::has_tcp_rules) || !has("bash") {
        return;
    }
    let dirs = TestDirs::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'");
    assert_eq!(dirs.landlocked(&script).await.text, "connected\n");
    let layer = LayerAccess { network: NetworkAccess::NoTcp, ..dirs.layer() };
    let result = ProcessSettings { layers: vec![layer], ..ProcessSettings::default() }
        .script(&dirs, &script)
        .await;
    assert!(result.text.contains("not permitted"), "{}", result.text);
}
