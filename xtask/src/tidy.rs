//! `cargo xtask tidy`: checks that no compiler makes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{dependencies, names};

/// The allowed dependencies of each crate on our crates.
const LAYERS: [(&str, &[&str]); 20] = [
    ("brigade-model", &[]),
    ("brigade-llm", &["brigade-model"]),
    ("brigade-agent", &["brigade-llm", "brigade-model"]),
    ("brigade-delegation", &["brigade-model"]),
    ("brigade-macros", &[]),
    ("brigade-external", &["brigade-agent", "brigade-llm", "brigade-model"]),
    ("brigade-file-tools", &["brigade-agent", "brigade-llm", "brigade-model"]),
    ("brigade-store", &["brigade-model"]),
    ("brigade-sqlite", &["brigade-model", "brigade-store"]),
    ("brigade-postgres", &["brigade-model", "brigade-store"]),
    ("brigade-process", &[]),
    (
        "brigade-protocol",
        &[
            "brigade-agent",
            "brigade-delegation",
            "brigade-file-tools",
            "brigade-model",
            "brigade-process",
        ],
    ),
    (
        "brigade-mcp",
        &[
            "brigade-agent",
            "brigade-delegation",
            "brigade-llm",
            "brigade-model",
            "brigade-process",
            "brigade-protocol",
        ],
    ),
    ("brigade-acp", &["brigade-agent", "brigade-model", "brigade-protocol"]),
    (
        "brigade-runtime",
        &[
            "brigade-agent",
            "brigade-delegation",
            "brigade-file-tools",
            "brigade-llm",
            "brigade-mcp",
            "brigade-model",
            "brigade-process",
            "brigade-store",
        ],
    ),
    (
        "brigade-server",
        &[
            "brigade-agent",
            "brigade-external",
            "brigade-file-tools",
            "brigade-mcp",
            "brigade-model",
            "brigade-process",
            "brigade-protocol",
            "brigade-runtime",
            "brigade-store",
        ],
    ),
    (
        "brigade-cli",
        &[
            "brigade-acp",
            "brigade-agent",
            "brigade-file-tools",
            "brigade-llm",
            "brigade-mcp",
            "brigade-model",
            "brigade-postgres",
            "brigade-process",
            "brigade-protocol",
            "brigade-runtime",
            "brigade-server",
            "brigade-sqlite",
            "brigade-store",
        ],
    ),
    ("brigade-testkit", &["brigade-model", "brigade-runtime", "brigade-store"]),
    (
        "brigade",
        &[
            "brigade-agent",
            "brigade-external",
            "brigade-llm",
            "brigade-macros",
            "brigade-mcp",
            "brigade-model",
            "brigade-process",
            "brigade-runtime",
            "brigade-sqlite",
            "brigade-store",
        ],
    ),
    ("xtask", &[]),
];

/// Code that the model must not contain.
const IMPURE: [&str; 6] =
    ["std::fs", "std::net", "std::time::Instant", "SystemTime", "async fn", "std::thread"];

const LINES_MAX: usize = 600;

/// The only crate whose manifest names rmcp.
const MCP_CRATE: &str = "brigade-mcp";

/// Checks layers, dependencies and files.
pub(crate) fn run() -> Result<(), String> {
    let root = workspace_root();
    let mut faults = Vec::new();
    check_layers(&root, &mut faults)?;
    let dependencies = dependencies::check(&root, &mut faults)?;
    let mut files = Vec::new();
    find_sources(&root, &mut files)?;
    for path in &files {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        check_file(&name, &text, &mut faults);
    }
    names::check(&root, &files, &mut faults)?;
    if faults.is_empty() {
        println!("tidy: {} files, {} crates, {dependencies}", files.len(), LAYERS.len());
        return Ok(());
    }
    Err(format!("{} fault(s)\n  {}", faults.len(), faults.join("\n  ")))
}

pub(crate) fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn check_layers(root: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let crates = fs::read_dir(root.join("crates")).map_err(|e| format!("crates: {e}"))?;
    let mut manifests: Vec<PathBuf> =
        crates.filter_map(Result::ok).map(|entry| entry.path().join("Cargo.toml")).collect();
    manifests.push(root.join("xtask/Cargo.toml"));
    for manifest in manifests.iter().filter(|path| path.exists()) {
        let text =
            fs::read_to_string(manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
        let dir = manifest.parent().and_then(Path::file_name).unwrap_or_default();
        let dir = dir.to_string_lossy();
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == dir) else {
            faults.push(format!("{dir}: add the crate to LAYERS in xtask/src/tidy.rs"));
            continue;
        };
        if !text.contains(&format!("name = \"{dir}\"")) {
            faults.push(format!("{dir}: name the crate like its directory"));
        }
        if text.contains("\nrmcp") && dir != MCP_CRATE {
            faults.push(format!("{dir}: only {MCP_CRATE} knows rmcp"));
        }
        for dependency in read_dependencies(&text) {
            if dependency.starts_with("brigade") && !allowed.contains(&dependency.as_str()) {
                faults.push(format!("{dir}: must not depend on {dependency}"));
            }
        }
    }
    Ok(())
}

/// Returns the names under `[dependencies]`. Dependencies of tests are free.
pub(crate) fn read_dependencies(manifest: &str) -> Vec<String> {
    let mut in_dependencies = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_dependencies = line == "[dependencies]";
        } else if in_dependencies && let Some(name) = line.split(['.', ' ', '=']).next() {
            found.push(name.to_owned());
        }
    }
    found
}

fn find_sources(dir: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_dir() {
            let is_installed = name.starts_with("target") || name == "node_modules";
            // A linked directory is checked where it lies.
            if !name.starts_with('.') && !is_installed && !path.is_symlink() {
                find_sources(&path, found)?;
            }
        } else if name.ends_with(".rs") || name.ends_with(".md") || name.ends_with(".toml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

fn check_file(name: &str, text: &str, faults: &mut Vec<String>) {
    let mut fault = |line: usize, text: &str| faults.push(format!("{name}:{line}: {text}"));
    if name.ends_with(".rs") {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            fault(lines, &format!("{lines} lines, more than {LINES_MAX}; split the file"));
        }
        if !text.starts_with("//!") {
            fault(1, "begin the file with a `//!` doc");
        }
    }
    let pure = name.starts_with("crates/brigade-model/src");
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        if line.ends_with([' ', '\t']) {
            fault(at, "remove the white space at the end");
        }
        if pure && let Some(word) = IMPURE.iter().find(|word| line.contains(**word)) {
            fault(at, &format!("the model is pure; remove {word}"));
        }
        if name.ends_with(".rs") && is_separator(line) {
            fault(at, "remove the drawn separator");
        }
        if mentions_ticket(line) {
            fault(at, "describe the project instead of a ticket");
        }
    }
}

/// Checks for a comment that is only a drawn line.
fn is_separator(line: &str) -> bool {
    let comment = line.trim_start().strip_prefix("//").map(str::trim);
    comment.is_some_and(|c| c.len() > 4 && c.bytes().all(|b| b == b'-' || b == b'=' || b == b'*'))
}

fn mentions_ticket(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let marks = [("tick", "et #"), ("iss", "ue #"), ("to", "do:"), ("fix", "me"), ("xx", "x:")];
    marks.iter().any(|(head, tail)| line.contains(&format!("{head}{tail}")))
}
