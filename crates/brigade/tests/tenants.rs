//! The `tenants` example over a real socket: tenants do not see each other, an order is placed
//! once, and a restart after SIGTERM or SIGKILL loses nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Returns the path of the example, which is beside the directory of the test programs.
fn example() -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    let target = me.parent().and_then(Path::parent).expect("in target/debug/deps");
    target.join("examples/tenants")
}

/// A running server, which is killed when the test ends.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(store: &Path) -> Self {
        let mut child = Command::new(example())
            .arg(store)
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example is built (cargo build --examples)");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("the address").to_owned();
        Self { child, output, address }
    }

    /// Sends one request and returns the status and the body.
    fn request(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let body = body.map_or_else(String::new, |body| body.to_string());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        let status = reply[9..12].parse().expect("a status");
        let body = reply.split_once("\r\n\r\n").expect("a body").1;
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// Sends SIGTERM, and returns the output until the end.
    fn terminate(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("ended").success());
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn order(cake: &str, layers: u32) -> Option<Value> {
    Some(json!({ "cake": cake, "layers": layers }))
}

#[test]
fn tenants_place_orders_once_and_see_only_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(&dir.path().join("bakery.db"));
    let placed = json!({ "task": 1 });
    assert_eq!(server.request("PUT", "/ada/orders/7", order("Sacher", 2)), (201, placed.clone()));
    assert_eq!(server.request("PUT", "/ada/orders/7", order("Sacher", 2)), (200, placed));
    assert_eq!(server.request("PUT", "/ada/orders/7", order("Linzer", 1)).0, 409);
    let baked = json!({ "state": "succeeded", "result": "Sacher with 2 layers" });
    assert_eq!(server.request("GET", "/ada/tasks/1", None), (200, baked.clone()));
    assert_eq!(server.request("GET", "/ada/tasks/1", None), (200, baked));
    assert_eq!(server.request("GET", "/bob/tasks/1", None).0, 404);
    assert_eq!(server.request("DELETE", "/bob/tasks/1", None).0, 404);
    assert_eq!(server.request("PUT", "/ada/orders/8", Some(json!({ "cake": 3 }))).0, 422);

    assert_eq!(server.request("PUT", "/bob/orders/7", order("Opera", 1_000_000)).0, 201);
    assert_eq!(server.request("DELETE", "/bob/tasks/1", None).0, 202);
    let stopped = json!({ "state": "cancelled" });
    assert_eq!(server.request("GET", "/bob/tasks/1", None), (200, stopped));
}

#[test]
fn orders_survive_a_drain_and_a_kill() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("bakery.db");
    let server = Server::start(&store);
    assert_eq!(server.request("PUT", "/ada/orders/7", order("Sacher", 5)).0, 201);
    let text = server.terminate();
    assert!(text.starts_with("drained: "), "{text}");

    let mut server = Server::start(&store);
    server.child.kill().expect("killed");
    drop(server);

    let server = Server::start(&store);
    assert_eq!(server.request("PUT", "/ada/orders/7", order("Sacher", 5)).0, 200);
    let baked = json!({ "state": "succeeded", "result": "Sacher with 5 layers" });
    assert_eq!(server.request("GET", "/ada/tasks/1", None), (200, baked));
}

#[test]
fn the_guide_shows_this_program() {
    let program = include_str!("../examples/tenants.rs");
    let listing = &program[program.find("use std::").expect("imports")..];
    let guide = include_str!("../../../docs/embedding.md");
    assert!(guide.contains(listing), "copy examples/tenants.rs into docs/embedding.md");
}
