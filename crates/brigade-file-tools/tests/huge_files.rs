//! Files that are larger than what there is to spare. By itself in its process, whose memory it measures.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{Seek, SeekFrom, Write};

use brigade_file_tools::{WorkingDirectory, file_tools};
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::{ToolInvocation, ToolReply};
use serde_json::{Value, json};

/// The most memory that this process ever had, in bytes.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_gigabyte_is_read_listed_and_searched_in_a_few_megabytes() {
    const GIGABYTE: u64 = 1 << 30;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
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
        folder.path(),
        Permissions::of("the operator", PermissionRules::all()),
    ));
    let call = async |name: &str, arguments: Value| {
        let tool = tools.iter().find(|tool| &*tool.spec().name == name).unwrap();
        match tool.call(ToolInvocation::standalone(arguments)).await {
            Ok(ToolReply::Text(text)) => text,
            other => format!("{other:?}"),
        }
    };
    let before = most_memory();
    let told = call("read_file", json!({ "path": "sparse" })).await;
    assert!(told.contains("binary file") && told.contains("1073741824 bytes"), "{told}");
    let told = call("read_file", json!({ "path": "mixed", "to_line": 3 })).await;
    assert!(told.starts_with("     1\tsome text\n"), "{told}");
    assert!(told.ends_with("lines 1 to 3, 1073741833 bytes; read on with from_line 4]"), "{told}");
    let told = call("read_file", json!({ "path": "mixed", "offset": GIGABYTE + 1 })).await;
    assert!(told.starts_with("the end\n["), "{told}");
    let told = call("read_file", json!({ "path": "line" })).await;
    assert!(told.contains("[cut: 67106864 more bytes of this line"), "{told}");
    let told = call("search_files", json!({ "pattern": "b|end" })).await;
    assert!(told.contains("1 file could not be searched"), "{told}");
    let edits = json!([{ "old": "the end", "new": "?" }]);
    let told = call("edit_file", json!({ "path": "mixed", "edits": edits })).await;
    assert!(told.contains("too large"), "{told}");
    let grown = most_memory() - before;
    assert!(grown < 64 << 20, "{grown} bytes of memory");
}
