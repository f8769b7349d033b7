//! The stage `package` of `cargo xtask test`: the crates can be published.
//!
//! It reads manifests and the file lists of `cargo package --list`, needs no network and builds
//! nothing. `cargo publish --workspace --dry-run` does the rest before a release.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use syn::visit::Visit;
use syn::{Item, LitStr, Macro};
use toml::{Table, Value};

use crate::cargo::cargo_command;
use crate::crate_source::{attributes_of, is_for_tests, source_text};
use crate::tidy::workspace_root;

/// The prefix of our crates.
const OURS: &str = "brigade";
/// Dependencies whose next version breaks. No type of theirs is in a public API.
const PINNED: [&str; 3] = ["a2a-lf", "agent-client-protocol", "agent-client-protocol-schema"];
/// Fields that a published crate has.
const REQUIRED: [&str; 7] =
    ["description", "license", "readme", "keywords", "categories", "include", "metadata"];
/// Directories that no package contains.
const UNPACKAGED: [&str; 3] = ["tests/", "benches/", "scripts/"];
/// Files that each package contains.
const PACKAGED: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// The bytes that the files of one package may have.
const BYTES_MAX: u64 = 3 << 20;

/// Checks the manifests and the files of all packages.
pub(crate) fn check() -> Result<(), String> {
    let root = workspace_root();
    let mut faults = Vec::new();
    let workspace = read_table(&root.join("Cargo.toml"))?;
    check_workspace(&workspace, &mut faults);
    let mut packages = 0;
    let entries = fs::read_dir(root.join("crates")).map_err(|e| format!("crates: {e}"))?;
    let mut directories: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    directories.sort();
    for directory in directories.iter().filter(|path| path.join("Cargo.toml").exists()) {
        let manifest = read_table(&directory.join("Cargo.toml"))?;
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if manifest["package"].get("publish") == Some(&Value::Boolean(false)) {
            continue;
        }
        check_manifest(&name, &manifest, &mut faults);
        check_files(&name, directory, &mut faults)?;
        packages += 1;
    }
    if faults.is_empty() {
        println!("package: {packages} crates can be published");
        return Ok(());
    }
    Err(format!("{} fault(s)\n  {}", faults.len(), faults.join("\n  ")))
}

fn read_table(path: &Path) -> Result<Table, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    text.parse().map_err(|e| format!("{}: {e}", path.display()))
}

/// Checks the dependencies that the crates inherit.
fn check_workspace(workspace: &Table, faults: &mut Vec<String>) {
    let settings = &workspace["workspace"];
    let version = settings["package"]["version"].as_str();
    let Some(dependencies) = settings["dependencies"].as_table() else { return };
    for (name, dependency) in dependencies {
        let required = dependency.as_str().or_else(|| dependency.get("version")?.as_str());
        if name.starts_with(OURS) && required != version {
            faults.push(format!("Cargo.toml: give {name} the version of the workspace"));
        }
        let is_pinned = required.is_some_and(|required| required.starts_with('='));
        if is_pinned && !PINNED.contains(&name.as_str()) {
            faults.push(format!("Cargo.toml: {name} is pinned; users may need another patch"));
        }
    }
}

/// Checks the fields of a manifest and its dependencies on our crates.
fn check_manifest(name: &str, manifest: &Table, faults: &mut Vec<String>) {
    for field in REQUIRED {
        if manifest["package"].get(field).is_none() {
            faults.push(format!("{name}: add `{field}` to its manifest"));
        }
    }
    for (ours, dependency) in our_dependencies(manifest, "dependencies") {
        if dependency.get("workspace") != Some(&Value::Boolean(true)) {
            faults.push(format!("{name}: inherit {ours} from the workspace"));
        }
    }
    for (ours, dependency) in our_dependencies(manifest, "dev-dependencies") {
        if dependency.get("path").is_none() || dependency.get("version").is_some() {
            faults.push(format!(
                "{name}: name {ours} by `path` alone under [dev-dependencies]; with a version, the \
                 crates cannot be published in any order"
            ));
        }
    }
}

fn our_dependencies<'a>(
    manifest: &'a Table,
    section: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let table = manifest.get(section).and_then(Value::as_table);
    table.into_iter().flatten().filter(|(name, _)| name.starts_with(OURS))
}

/// Checks that a package has all files that its sources embed, and no files of tests.
fn check_files(name: &str, directory: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let files = list_files(name)?;
    for file in PACKAGED.iter().filter(|file| !files.contains(**file)) {
        faults.push(format!("{name}: its package lacks {file}"));
    }
    let mut bytes = 0;
    for file in &files {
        if UNPACKAGED.iter().any(|prefix| file.starts_with(prefix)) {
            faults.push(format!("{name}: remove {file} from the package by `include`"));
        }
        let path = directory.join(file);
        bytes += fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if !file.ends_with(".rs") || is_test_file(file) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for embedded in embedded_files(file, &text)? {
            if !files.contains(&embedded) {
                faults.push(format!("{name}: {file} embeds {embedded}, which is not packaged"));
            }
        }
    }
    if bytes > BYTES_MAX {
        faults.push(format!("{name}: its package has {bytes} bytes, more than {BYTES_MAX}"));
    }
    Ok(())
}

fn list_files(name: &str) -> Result<BTreeSet<String>, String> {
    let mut command = cargo_command();
    command.args(["package", "--list", "--allow-dirty", "--offline", "--package", name]);
    let output = command.output().map_err(|e| format!("cargo package: {e}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo package --list --package {name}: {stderr}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Checks for a module that only a test build has.
fn is_test_file(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

/// Returns the files that a source embeds, with paths inside its package.
fn embedded_files(file: &str, text: &str) -> Result<BTreeSet<String>, String> {
    let parsed = syn::parse_file(text).map_err(|e| format!("{file}: {e}"))?;
    let mut found = EmbeddedFiles::default();
    found.visit_file(&parsed);
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    Ok(found.literals.iter().map(|literal| normalize(&directory.join(literal))).collect())
}

/// Resolves `..` in a path. A path that is outside the package begins with it.
fn normalize(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::ParentDir if parts.last().is_some_and(|last| last != "..") => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}

/// The literal paths of `include_str!` and `include_bytes!` outside of unit tests.
#[derive(Default)]
struct EmbeddedFiles {
    literals: Vec<String>,
}

impl<'ast> Visit<'ast> for EmbeddedFiles {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_doctest =
            attributes_of(item).iter().any(|attribute| source_text(attribute).contains("doctest"));
        // Guides are embedded for doc tests, which users can run.
        if !is_for_tests(attributes_of(item)) || is_doctest {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let is_embedding =
            ["include_str", "include_bytes"].iter().any(|name| call.path.is_ident(name));
        // A path that a build script writes is no literal.
        if is_embedding && let Ok(literal) = call.parse_body::<LitStr>() {
            self.literals.push(literal.value());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_files_are_found_unless_unit_tests_embed_them() {
        let text = r#"
            const A: &str = include_str!("a.txt");
            static B: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/b"));
            #[cfg(doctest)]
            #[doc = include_str!("../docs/guide.md")]
            mod guide {}
            fn read() -> &'static str { include_str!("../../outside.md") }
            #[cfg(test)]
            mod tests { const C: &str = include_str!("c.txt"); }
        "#;
        let found = embedded_files("src/lib.rs", text).expect("the source parses");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["../outside.md", "docs/guide.md", "src/a.txt"]
        );
    }

    #[test]
    fn a_manifest_that_cannot_be_published_has_faults() {
        let manifest = r#"
            [package]
            name = "brigade-store"
            [dependencies]
            brigade-model = { path = "../brigade-model" }
            [dev-dependencies]
            brigade-testkit.workspace = true
        "#;
        let manifest: Table = manifest.parse().expect("the manifest parses");
        let mut faults = Vec::new();
        check_manifest("brigade-store", &manifest, &mut faults);
        assert_eq!(faults.len(), REQUIRED.len() + 2, "{faults:#?}");
        let workspace = r#"
            [workspace.package]
            version = "0.2.0"
            [workspace.dependencies]
            brigade-model = { version = "0.1.0", path = "crates/brigade-model" }
            brigade-store = { version = "0.2.0", path = "crates/brigade-store" }
            rig-core = "=0.44.0"
            serde = "1"
        "#;
        let workspace: Table = workspace.parse().expect("the manifest parses");
        faults.clear();
        check_workspace(&workspace, &mut faults);
        assert_eq!(faults.len(), 2, "{faults:#?}");
    }
}
