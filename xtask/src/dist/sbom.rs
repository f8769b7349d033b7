//! The list of the crates in the program, in the format CycloneDX.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::release::Release;
use super::{TARGET, files};
use crate::cargo::cargo_command;
use crate::tidy::workspace_root;

/// The package whose program it is.
const ROOT: &str = "brigade-cli";

/// A crate in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CrateVersion {
    name: String,
    version: String,
}

/// Writes `brigade-VERSION.cdx.json`.
pub(super) fn write(release: &Release, out: &Path) -> Result<Vec<String>, String> {
    let crates = parse_tree(&read_cargo(&[
        "tree",
        "--locked",
        "--package",
        ROOT,
        "--target",
        TARGET,
        "--prefix",
        "none",
        "--edges",
        "normal,no-proc-macro",
        "--format",
        "{p}",
    ])?);
    let metadata = read_cargo(&[
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        TARGET,
    ])?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let lock: toml::Table = files::read_text(&workspace_root().join("Cargo.lock"))?
        .parse()
        .map_err(|error| format!("Cargo.lock: {error}"))?;
    let mut document = bill_of_materials(&crates, &metadata, &read_checksums(&lock))?;
    document["metadata"]["timestamp"] = files::format_date(release.date)?.into();
    let name = format!("brigade-{}.cdx.json", release.version);
    files::write(&out.join(&name), format!("{document:#}\n").as_bytes())?;
    Ok(vec![name])
}

fn read_cargo(args: &[&str]) -> Result<String, String> {
    let mut cargo = cargo_command();
    let output = files::run_quiet(cargo.args(args).current_dir(workspace_root()))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Returns the crates that `cargo tree` lists: `NAME vVERSION`, and more words.
fn parse_tree(tree: &str) -> BTreeSet<CrateVersion> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let version = words.next()?.strip_prefix('v')?.to_owned();
        Some(CrateVersion { name, version })
    };
    tree.lines().filter_map(parse).collect()
}

/// Returns the checksums that the lock file has for crates of registries.
fn read_checksums(lock: &toml::Table) -> BTreeMap<CrateVersion, String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let field = |package: &toml::Value, name| package.get(name)?.as_str().map(str::to_owned);
    let entries = packages.into_iter().flatten().filter_map(|package| {
        let [name, version] = ["name", "version"].map(|name| field(package, name));
        let key = CrateVersion { name: name?, version: version? };
        Some((key, field(package, "checksum")?))
    });
    entries.collect()
}

/// Returns the document without its time. `metadata` is the output of `cargo metadata`.
fn bill_of_materials(
    crates: &BTreeSet<CrateVersion>,
    metadata: &Value,
    checksums: &BTreeMap<CrateVersion, String>,
) -> Result<Value, String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut references = BTreeMap::new();
    let mut components = Vec::new();
    let mut root = None;
    for package in packages {
        let Some(named) = crate_of(package).filter(|named| crates.contains(named)) else {
            continue;
        };
        let component = component_of(package, &named, checksums.get(&named));
        references.insert(package["id"].as_str().unwrap_or_default(), reference_of(&named));
        match named.name == ROOT {
            true => root = Some(component),
            false => components.push(component),
        }
    }
    let mut root = root.ok_or_else(|| format!("{ROOT} is not among the packages"))?;
    root["type"] = "application".into();
    if references.len() != crates.len() {
        return Err(format!("{} crates have {} packages", crates.len(), references.len()));
    }
    components.sort_by_key(|component| component["bom-ref"].to_string());
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": root },
        "components": components,
        "dependencies": dependency_edges(metadata, &references),
    }))
}

fn crate_of(package: &Value) -> Option<CrateVersion> {
    let field = |name: &str| package[name].as_str().map(str::to_owned);
    Some(CrateVersion { name: field("name")?, version: field("version")? })
}

fn reference_of(named: &CrateVersion) -> String {
    // `+` begins metadata of a build, and has another meaning in such an address.
    format!("pkg:cargo/{}@{}", named.name, named.version.replace('+', "%2B"))
}

fn component_of(package: &Value, named: &CrateVersion, checksum: Option<&String>) -> Value {
    let reference = reference_of(named);
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "name": named.name,
        "version": named.version,
        "purl": reference,
    });
    if let Some(licence) = package["license"].as_str() {
        // An older way to write OR.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

/// Returns the dependencies between the crates in the program, without those for builds and tests.
fn dependency_edges(metadata: &Value, references: &BTreeMap<&str, String>) -> Vec<Value> {
    let nodes = metadata["resolve"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut edges = BTreeMap::new();
    for node in nodes {
        let Some(reference) = references.get(node["id"].as_str().unwrap_or_default()) else {
            continue;
        };
        let dependencies = node["deps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_normal = |dependency: &&Value| {
            let kinds = dependency["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        let targets: BTreeSet<&String> = dependencies
            .iter()
            .filter(is_normal)
            .filter_map(|dependency| references.get(dependency["pkg"].as_str()?))
            .collect();
        edges.insert(reference, targets);
    }
    let edge = |(reference, targets)| json!({ "ref": reference, "dependsOn": targets });
    edges.into_iter().map(edge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> Value {
        json!({ "id": format!("id {name}"), "name": name, "version": "1.0.0", "license": "MIT/Zlib" })
    }

    fn dependency(name: &str, kind: Value) -> Value {
        json!({ "pkg": format!("id {name}"), "dep_kinds": [{ "kind": kind }] })
    }

    #[test]
    fn the_list_has_the_crates_of_the_program_alone() {
        let crates =
            parse_tree("brigade-cli v1.0.0 (/somewhere)\nserde v1.0.0\nserde v1.0.0 (*)\n");
        assert_eq!(crates.len(), 2);
        let metadata = json!({
            "packages": [package("serde"), package("brigade-cli"), package("tempfile")],
            "resolve": { "nodes": [
                { "id": "id brigade-cli", "deps": [
                    dependency("serde", Value::Null),
                    dependency("tempfile", "dev".into()),
                ] },
                { "id": "id serde", "deps": [dependency("brigade-cli", "dev".into())] },
                { "id": "id tempfile", "deps": [] },
            ] },
        });
        let serde = CrateVersion { name: "serde".into(), version: "1.0.0".into() };
        let checksums = BTreeMap::from([(serde, "00ff".to_owned())]);
        let bill = bill_of_materials(&crates, &metadata, &checksums).expect("a list");
        assert_eq!(bill["metadata"]["component"]["type"], "application");
        assert_eq!(bill["metadata"]["component"]["name"], "brigade-cli");
        assert_eq!(bill["components"].as_array().map(Vec::len), Some(1));
        let component = &bill["components"][0];
        assert_eq!(component["purl"], "pkg:cargo/serde@1.0.0");
        assert_eq!(component["licenses"], json!([{ "expression": "MIT OR Zlib" }]));
        assert_eq!(component["hashes"][0]["content"], "00ff");
        assert_eq!(
            bill["dependencies"],
            json!([
                { "ref": "pkg:cargo/brigade-cli@1.0.0", "dependsOn": ["pkg:cargo/serde@1.0.0"] },
                { "ref": "pkg:cargo/serde@1.0.0", "dependsOn": [] },
            ])
        );
    }

    #[test]
    fn a_crate_without_a_package_is_an_error() {
        let crates = parse_tree("brigade-cli v1.0.0\nserde v2.0.0\n");
        let metadata = json!({ "packages": [package("serde"), package("brigade-cli")] });
        let error = bill_of_materials(&crates, &metadata, &BTreeMap::new());
        assert_eq!(error, Err("2 crates have 1 packages".into()));
    }
}
