//! The HTTP server as a process in a sandbox sees it.

use std::fs;

use serde_json::Value;

use crate::http::send;
use crate::sandboxed::can_sandbox;
use crate::story_env::StoryEnv;

/// Sends a request for each line of `routes`, and prints the line with the status. A connection
/// needs nothing but bash.
const SEND_ALL: &str = r#"
while read -r method path; do
    exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n' \
        "$method" "$path" >&3
    read -r _ status _ <&3
    exec 3>&-
    echo "$method $path $status"
done < routes
"#;

/// Prints every place where a secret of the server might be.
const READ_ALL: &str = r#"
env
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline
cat "$1"/* "$1"/*/*
grep -r "brg""_" "$1" "$HOME"
echo over
"#;

/// Returns the lines `METHOD PATH` of all routes, with values for the parameters of their paths.
fn list_routes(url: &str) -> Vec<String> {
    let document = send(url, "GET /openapi.json", "", "");
    let document: Value = serde_json::from_str(&document.body).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let parts = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        let methods = item.as_object().unwrap().keys();
        routes.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    for method in ["GET", "POST", "DELETE", "PUT", "OPTIONS"] {
        routes.push(format!("{method} /mcp"));
        routes.push(format!("{method} /mcp/1"));
        routes.push(format!("{method} /nothing"));
    }
    routes
}

#[test]
fn a_sandboxed_process_with_tcp_needs_a_token_for_every_route() {
    let story = StoryEnv::new();
    if !can_sandbox(&story) {
        return;
    }
    let url = story.json(["dashboard"])["url"].as_str().unwrap().to_owned();
    let (url, code) = url.split_once("/#code=").unwrap();
    let port = url.rsplit_once(':').unwrap().1;
    let secret = story.ok(["token", "add", "laptop"]);
    let secret = secret.trim();
    assert_eq!(send(url, "GET /v1/tasks", secret, "").status, 200);
    let routes = list_routes(url);
    assert!(routes.len() > 50, "{routes:?}");
    let public = ["GET /healthz", "GET /readyz", "GET /openapi.json", "GET /docs", "GET /"];
    let listed = routes.iter().map(String::as_str).chain(public);
    fs::write(story.project().join("routes"), listed.collect::<Vec<_>>().join("\n") + "\n")
        .unwrap();
    let ran = story.run(["exec", "--sandbox", "--", "bash", "-c", SEND_ALL, "bash", port]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut answers = ran.out.lines();
    for route in &routes {
        // A login needs no token, but a code, and a body for it.
        let status = if route == "POST /v1/login" { 415 } else { 401 };
        assert_eq!(answers.next().unwrap(), format!("{route} {status}"));
    }
    for route in public {
        assert_eq!(answers.next().unwrap(), format!("{route} 200"));
    }
    assert_eq!(answers.next(), None);
    let state = story.state();
    let state = state.to_str().unwrap();
    let ran = story.run(["exec", "--sandbox", "--", "bash", "-c", READ_ALL, "bash", state]);
    assert!(ran.out.ends_with("over\n"), "{ran:?}");
    let key = story.operator_key();
    for hidden in [secret, code, key.trim(), "brg_"] {
        assert!(!ran.out.contains(hidden), "{hidden} in {}", ran.out);
        assert!(!ran.err.contains(hidden), "{hidden} in {}", ran.err);
    }
}
