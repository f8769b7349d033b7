//! Checks the licences and sources of all dependencies with Cargo's metadata. `deny.toml` has the
//! same rules for cargo-deny.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::licence::Licence;

/// Licences of dependencies that a program under MIT or Apache-2.0 may have.
const ALLOWED_LICENCES: [&str; 11] = [
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    // The root certificates of Mozilla, as data.
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Cargo's prefix of a registry's address.
const REGISTRY: &str = "registry+";
const ALLOWED_REGISTRIES: [&str; 1] = ["https://github.com/rust-lang/crates.io-index"];

/// Checks all dependencies and returns a summary with their number.
pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> Result<String, String> {
    let deny = read_toml(&root.join("deny.toml"))?;
    compare_rules(&deny, faults);
    let lock = read_toml(&root.join("Cargo.lock"))?;
    let locked = check_sources(&lock, faults);
    let metadata = read_metadata(root)?;
    let packages = check_packages(&metadata.document, faults);
    let scripts = packages.build_scripts;
    let mut summary = format!("{} dependencies, {scripts} with build scripts", packages.foreign);
    if !metadata.is_whole {
        let missing = locked.saturating_sub(packages.all);
        summary.push_str(&format!("; {missing} for other platforms are not downloaded"));
    }
    Ok(summary)
}

fn read_toml(path: &Path) -> Result<toml::Table, String> {
    let with_path = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| with_path(&error))?;
    text.parse().map_err(|error: toml::de::Error| with_path(&error))
}

/// The output of `cargo metadata`.
#[derive(Debug)]
struct CargoMetadata {
    document: Value,
    /// True if the packages for all platforms are included.
    is_whole: bool,
}

/// Reads the packages for all platforms. Downloads those that are missing, and reads those for this
/// platform if that fails.
fn read_metadata(root: &Path) -> Result<CargoMetadata, String> {
    let run = |extra: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--format-version", "1", "--locked", "--offline"]).args(extra);
        cargo.current_dir(root).output().map_err(|error| format!("cargo metadata: {error}"))
    };
    let mut output = run(&[])?;
    if !output.status.success() && fetch(root)? {
        output = run(&[])?;
    }
    let is_whole = output.status.success();
    if !is_whole {
        output = run(&["--filter-platform", &host_platform()?])?;
    }
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata: {}", message.trim()));
    }
    let document = serde_json::from_slice(&output.stdout);
    let document = document.map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(CargoMetadata { document, is_whole })
}

/// Downloads the locked packages. Returns false if that fails.
fn fetch(root: &Path) -> Result<bool, String> {
    println!("downloading the locked packages");
    let mut cargo = Command::new(env!("CARGO"));
    let status = cargo.args(["fetch", "--locked", "--quiet"]).current_dir(root).status();
    status.map(|status| status.success()).map_err(|error| format!("cargo fetch: {error}"))
}

fn host_platform() -> Result<String, String> {
    let output = Command::new(env!("CARGO")).args(["--version", "--verbose"]).output();
    let output = output.map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "`cargo --version --verbose` prints no host".to_owned())
}

/// Checks the source of every locked package, for all platforms. Returns the number of packages.
fn check_sources(lock: &toml::Table, faults: &mut Vec<String>) -> usize {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.map_or(&[] as &[toml::Value], Vec::as_slice);
    for package in packages {
        let field = |name: &str| package.get(name).and_then(toml::Value::as_str);
        let name = field("name").unwrap_or("?");
        // A package without a source is a path. `check_packages` refuses paths outside of the
        // workspace.
        if let Some(source) = field("source").filter(|source| !is_allowed_source(source)) {
            faults.push(format!("{name}: comes from {source}"));
        } else if field("source").is_some() && field("checksum").is_none() {
            faults.push(format!("{name}: has no checksum"));
        }
    }
    packages.len()
}

fn is_allowed_source(source: &str) -> bool {
    source.strip_prefix(REGISTRY).is_some_and(|registry| ALLOWED_REGISTRIES.contains(&registry))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct PackageCounts {
    all: usize,
    /// Packages that are not of this workspace.
    foreign: usize,
    build_scripts: usize,
}

fn check_packages(metadata: &Value, faults: &mut Vec<String>) -> PackageCounts {
    let texts = |value: &Value| -> BTreeSet<String> {
        let values = value.as_array().into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let members = texts(&metadata["workspace_members"]);
    let mut counts = PackageCounts::default();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("?");
        let is_member = package["id"].as_str().is_some_and(|id| members.contains(id));
        counts.all += 1;
        check_licence(name, package["license"].as_str(), faults);
        match package["source"].as_str() {
            Some(source) if !is_allowed_source(source) => {
                faults.push(format!("{name}: comes from {source}"));
            }
            None if !is_member => {
                faults.push(format!("{name}: is a path outside of the workspace"));
            }
            _ => (),
        }
        if !is_member {
            counts.foreign += 1;
            let mut targets = package["targets"].as_array().into_iter().flatten();
            let is_script = |target: &Value| texts(&target["kind"]).contains("custom-build");
            counts.build_scripts += usize::from(targets.any(is_script));
        }
    }
    counts
}

fn check_licence(name: &str, licence: Option<&str>, faults: &mut Vec<String>) {
    let Some(text) = licence else {
        faults.push(format!("{name}: names no licence (a file alone is not enough)"));
        return;
    };
    match Licence::parse(text) {
        Err(problem) => {
            faults.push(format!("{name}: the licence {text:?} cannot be read: {problem}"))
        }
        Ok(licence) if !licence.is_satisfied_by(&ALLOWED_LICENCES) => {
            faults.push(format!("{name}: the licence {text:?} is not allowed"));
        }
        Ok(_) => (),
    }
}

/// Checks that `deny.toml` has the rules of this file.
fn compare_rules(deny: &toml::Table, faults: &mut Vec<String>) {
    let value = |table: &str, key: &str| deny.get(table).and_then(|table| table.get(key));
    let list = |table: &str, key: &str| -> Vec<String> {
        let values = value(table, key).and_then(toml::Value::as_array).into_iter().flatten();
        values.filter_map(toml::Value::as_str).map(str::to_owned).collect()
    };
    for (table, key, expected) in [
        ("licenses", "allow", &ALLOWED_LICENCES[..]),
        ("sources", "allow-registry", &ALLOWED_REGISTRIES[..]),
    ] {
        let listed = list(table, key);
        if listed != expected {
            faults.push(format!(
                "deny.toml: `{table}.{key}` is {listed:?}, and xtask/src/dependencies.rs has {expected:?}"
            ));
        }
    }
    for key in ["unknown-registry", "unknown-git"] {
        if value("sources", key).and_then(toml::Value::as_str) != Some("deny") {
            faults.push(format!("deny.toml: `sources.{key}` is not \"deny\""));
        }
    }
    let widening = [("licenses", "exceptions"), ("licenses", "clarify"), ("sources", "allow-git")];
    for (table, key) in widening {
        if value(table, key).is_some() {
            faults.push(format!("deny.toml: `{table}.{key}` allows more than tidy does"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

    fn package(name: &str, licence: Value, source: Value) -> Value {
        json!({"name": name, "id": name, "license": licence, "source": source, "targets": [
            {"kind": ["lib"]}, {"kind": ["custom-build"]},
        ]})
    }

    #[test]
    fn a_fault_names_its_package() {
        let metadata = json!({"workspace_members": ["ours"], "packages": [
            package("ours", json!("MIT OR Apache-2.0"), Value::Null),
            package("fine", json!("GPL-3.0 OR MIT"), json!(CRATES_IO)),
            package("copyleft", json!("MIT AND GPL-3.0"), json!(CRATES_IO)),
            package("bare", Value::Null, json!(CRATES_IO)),
            package("odd", json!("see LICENSE"), json!(CRATES_IO)),
            package("forked", json!("MIT"), json!("git+https://example.com/forked")),
            package("private", json!("MIT"), json!("registry+https://example.com/index")),
            package("beside", json!("MIT"), Value::Null),
        ]});
        let mut faults = Vec::new();
        let counts = check_packages(&metadata, &mut faults);
        assert_eq!(counts, PackageCounts { all: 8, foreign: 7, build_scripts: 7 });
        let fault_count =
            |name: &str| faults.iter().filter(|it| it.starts_with(&format!("{name}:"))).count();
        for name in ["copyleft", "bare", "odd", "forked", "private", "beside"] {
            assert_eq!(fault_count(name), 1, "{name}: {faults:?}");
        }
        assert_eq!(faults.len(), 6, "{faults:?}");
    }

    #[test]
    fn a_locked_package_has_a_known_source_and_a_checksum() {
        let lock = format!(
            "[[package]]\nname = \"ours\"\n[[package]]\nname = \"fine\"\nsource = \"{CRATES_IO}\"\n\
             checksum = \"0\"\n[[package]]\nname = \"loose\"\nsource = \"{CRATES_IO}\"\n\
             [[package]]\nname = \"forked\"\nsource = \"git+https://example.com/forked#1\"\n"
        );
        let mut faults = Vec::new();
        assert_eq!(check_sources(&lock.parse().expect("a lock file"), &mut faults), 4);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("loose:") && faults[1].starts_with("forked:"), "{faults:?}");
    }

    #[test]
    fn rules_that_differ_are_faults() {
        let root = crate::tidy::workspace_root();
        let same = fs::read_to_string(root.join("deny.toml")).expect("deny.toml");
        let faults = |text: &str| {
            let mut faults = Vec::new();
            compare_rules(&text.parse().expect("TOML"), &mut faults);
            faults
        };
        assert_eq!(faults(&same), Vec::<String>::new());
        for (part, instead) in [
            ("\"ISC\",", "\"ISC\", \"GPL-3.0\","),
            ("\"ISC\",", ""),
            ("unknown-git = \"deny\"", "unknown-git = \"warn\""),
            ("unknown-git", "allow-git = [\"https://example.com\"]\nunknown-git"),
            ("crates.io-index", "other-index"),
        ] {
            assert!(same.contains(part), "{part}");
            assert_eq!(faults(&same.replace(part, instead)).len(), 1, "{part} -> {instead}");
        }
    }
}
