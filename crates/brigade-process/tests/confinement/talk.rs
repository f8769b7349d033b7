//! Other processes: signals, memory, sockets.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use brigade_process::{LandlockSupport, LayerAccess, NetworkAccess, ProcessExit};

use crate::support::{Place, Run, can, has};

#[tokio::test]
async fn no_signal_leaves_the_confinement() {
    if !can("keeping signals inside", LandlockSupport::has_scopes) {
        return;
    }
    let place = Place::new();
    let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
    // Its own shim is a stranger too; what it started itself is not.
    let script = format!(
        "kill -9 {}; kill -9 $PPID; sleep 1000 & kill $! && echo own; wait; echo lives",
        stranger.id()
    );
    let ran = place.confined(&script).await;
    let lives = stranger.try_wait().unwrap().is_none();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(lives, "{}", ran.text);
    assert!(ran.text.ends_with("own\nlives\n"), "{}", ran.text);
    assert_eq!(ran.text.matches("not permitted").count(), 2, "{}", ran.text);
    assert_eq!(ran.record.exit, Some(ProcessExit::Code(0)));
}

#[tokio::test]
async fn others_are_not_looked_into() {
    if !can("confinement", |_| true) {
        return;
    }
    let place = Place::new();
    let mut stranger = Command::new("sleep").arg("1000").env("SECRET", "hidden").spawn().unwrap();
    let pid = stranger.id();
    let script =
        format!("cat /proc/{pid}/environ; ls /proc/{pid}/cwd/; cat /proc/{pid}/root/etc/passwd");
    let ran = place.confined(&script).await;
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(!ran.text.contains("hidden"), "{}", ran.text);
    assert_eq!(ran.text.matches("ermission denied").count(), 3, "{}", ran.text);
}

#[tokio::test]
async fn abstract_sockets_outside_are_out_of_reach() {
    if !can("keeping abstract sockets inside", LandlockSupport::has_scopes) || !has("python3") {
        return;
    }
    let place = Place::new();
    let name = format!("brigade-test-{}", std::process::id());
    let _listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let script = format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{name}\"); print(\"connected\")'"
    );
    let free = Run::default().script(&place, &script).await;
    assert_eq!(free.text, "connected\n");
    let ran = place.confined(&script).await;
    assert!(ran.text.contains("PermissionError"), "{}", ran.text);
}

#[tokio::test]
async fn tcp_is_left_alone_unless_it_is_denied() {
    if !can("denying TCP", LandlockSupport::has_tcp_rules) || !has("bash") {
        return;
    }
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'");
    assert_eq!(place.confined(&script).await.text, "connected\n");
    let layer = LayerAccess { network: NetworkAccess::NoTcp, ..place.layer() };
    let ran = Run { layers: vec![layer], ..Run::default() }.script(&place, &script).await;
    assert!(ran.text.contains("not permitted"), "{}", ran.text);
}
