//! A test with files larger than the memory to spare. It has its own process, whose memory it
//! measures.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{Seek, SeekFrom, Write};

use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::{ToolInvocation, ToolReply};
use brigade_file_tools::{WorkingDirectory, file_tools};
use serde_json::{Value, json};

/// Returns the peak memory of this process in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn huge_files_need_little_memory() {
    const GIGABYTE: u64 = 1 << 30;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| std::fs::File::create(directory.path().join(name)).unwrap();
    file("sparse").set_len(GIGABYTE).unwrap();
    let mut mixed = file("mixed");
    mixed.write_all("some text\n".repeat(1_000).as_bytes()).unwrap();
    mixed.seek(SeekFrom::Start(GIGABYTE)).unwrap();
    mixed.write_all(b"\nthe end\n").unwrap();
    let mut line = file("line");
    for _ in 0..64 {
        line.write_all(&vec![b'a'; 1 << 20]).unwrap();
    }
    let tools = file_tools(WorkingDirectory::new(
        directory.path(),
        Permissions::of("the operator", PermissionRules::all()),
    ));
    let call = async |name: &str, arguments: Value| {
        let tool = tools.iter().find(|tool| &*tool.spec().name == name).unwrap();
        match tool.call(ToolInvocation::standalone(arguments)).await {
            Ok(ToolReply::Text(text)) => text,
            other => format!("{other:?}"),
        }
    };
    let before = peak_memory();
    let reply = call("read_file", json!({ "path": "sparse" })).await;
    assert!(reply.contains("binary file") && reply.contains("1073741824 bytes"), "{reply}");
    let reply = call("read_file", json!({ "path": "mixed", "to_line": 3 })).await;
    assert!(reply.starts_with("     1\tsome text\n"), "{reply}");
    assert!(
        reply.ends_with("lines 1 to 3, 1073741833 bytes; continue with from_line 4]"),
        "{reply}"
    );
    let reply = call("read_file", json!({ "path": "mixed", "offset": GIGABYTE + 1 })).await;
    assert!(reply.starts_with("the end\n["), "{reply}");
    let reply = call("read_file", json!({ "path": "line" })).await;
    assert!(reply.contains("[truncated: 67106864 more bytes of this line"), "{reply}");
    let reply = call("search_files", json!({ "pattern": "b|end" })).await;
    assert!(reply.contains("1 file could not be searched"), "{reply}");
    let edits = json!([{ "old": "the end", "new": "?" }]);
    let reply = call("edit_file", json!({ "path": "mixed", "edits": edits })).await;
    assert!(reply.contains("too large"), "{reply}");
    let grown = peak_memory() - before;
    assert!(grown < 64 << 20, "{grown} bytes of memory");
}
