//! `cargo xtask api`: the public API of the facade as a sorted list, one item per line.
//!
//! The list is read from the sources with `syn`: it follows the `pub use` declarations of
//! `crates/brigade` to the definitions. So it needs no build and no unstable output of rustdoc.
//! Types in signatures stand as their source writes them. Items that a macro declares are listed by
//! the macro's arguments and definition.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::Item;

use crate::api_items::ItemLines;
use crate::crate_source::{
    CrateSource, ModulePath, attributes_of, defined_name, flatten_use, is_public, source_text,
};
use crate::tidy::{read_dependencies, workspace_root};

const FACADE: &str = "brigade";
const SNAPSHOT: &str = "crates/brigade/public-api.txt";
/// Re-exports that lead to re-exports, at most.
const HOPS_MAX: usize = 8;

/// Writes the snapshot.
pub(crate) fn write() -> Result<(), String> {
    let root = workspace_root();
    let api = read_api(&root)?;
    fs::write(root.join(SNAPSHOT), &api.text).map_err(|e| format!("{SNAPSHOT}: {e}"))?;
    println!("api: {} lines in {SNAPSHOT}", api.text.lines().count());
    api.ensure_named()
}

/// Fails if the snapshot differs from the sources, with the lines that differ, or if a signature
/// mentions a type of ours that the facade does not export.
pub(crate) fn check() -> Result<(), String> {
    let root = workspace_root();
    let api = read_api(&root)?;
    api.ensure_named()?;
    let stored = fs::read_to_string(root.join(SNAPSHOT)).unwrap_or_default();
    let changes = compare_lines(&stored, &api.text);
    if changes.is_empty() {
        println!("api: {} lines, as in {SNAPSHOT}", api.text.lines().count());
        return Ok(());
    }
    Err(format!(
        "the public API of the facade differs from {SNAPSHOT}:\n{}\n\
         if this is intended, run `cargo xtask api` and commit the file with the change",
        changes.join("\n")
    ))
}

/// Returns the removed lines with `-` and the added ones with `+`, in the order of the list.
fn compare_lines(stored: &str, current: &str) -> Vec<String> {
    let before: Vec<&str> = stored.lines().collect();
    let after: Vec<&str> = current.lines().collect();
    let known: BTreeSet<&str> = before.iter().copied().collect();
    let present: BTreeSet<&str> = after.iter().copied().collect();
    let removed = before.iter().filter(|line| !present.contains(*line)).map(|line| ('-', *line));
    let added = after.iter().filter(|line| !known.contains(*line)).map(|line| ('+', *line));
    let mut changes: Vec<(char, &str)> = removed.chain(added).collect();
    changes.sort_by_key(|(sign, line)| (item_path(line), *sign == '+'));
    changes.into_iter().map(|(sign, line)| format!("{sign} {line}")).collect()
}

/// Returns the path of the item in a line, which the list is sorted by.
fn item_path(line: &str) -> &str {
    let start = line.find("brigade::").unwrap_or_default();
    let rest = &line[start..];
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != ':' && c != '_');
    rest[..end.unwrap_or(rest.len())].trim_end_matches(':')
}

/// Types of ours that signatures mention and that users cannot name: they seal a trait, or are
/// passed on unseen.
const UNNAMED_ON_PURPOSE: [&str; 2] = ["SealedType", "StepDraft"];

/// The API of the facade.
struct FacadeApi {
    text: String,
    /// Types of ours that signatures mention and that have no name in the facade.
    unnamed: Vec<String>,
}

impl FacadeApi {
    fn ensure_named(&self) -> Result<(), String> {
        if self.unnamed.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the facade's signatures mention types that it does not export; add them to a module \
             of crates/{FACADE}/src:\n  {}",
            self.unnamed.join("\n  ")
        ))
    }
}

fn read_api(root: &Path) -> Result<FacadeApi, String> {
    let mut sources = Sources::load(root)?;
    let exported = sources.collect_exports();
    let mut foreign = std::mem::take(&mut sources.foreign);
    let mut lines = ItemLines::new(&sources.crates);
    let mut first_paths: BTreeMap<Definition, String> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for export in exported {
        names.extend(export.path.rsplit("::").next().map(str::to_owned));
        lines.add_condition(&export.path, &export.condition);
        match first_paths.get(&export.definition) {
            Some(first) => lines.add_alias(&export.path, first),
            None => {
                lines.add(&export.path, &export.definition);
                first_paths.insert(export.definition, export.path);
            }
        }
    }
    if !sources.unresolved.is_empty() {
        return Err(format!("no definition found for:\n  {}", sources.unresolved.join("\n  ")));
    }
    let mut lines = lines.finish();
    lines.append(&mut foreign);
    lines.sort_by(|a, b| item_path(a).cmp(item_path(b)).then_with(|| a.cmp(b)));
    lines.dedup();
    let missing: BTreeSet<String> =
        sources.public_types().into_iter().filter(|name| !names.contains(name)).collect();
    let mut missing = missing;
    missing.retain(|name| !UNNAMED_ON_PURPOSE.contains(&name.as_str()));
    let unnamed = find_mentions(&lines, &missing);
    Ok(FacadeApi { text: lines.join("\n") + "\n", unnamed })
}

/// Returns the types that signatures mention, each with its first mention.
fn find_mentions(lines: &[String], types: &BTreeSet<String>) -> Vec<String> {
    let mut reported = BTreeSet::new();
    let mut mentions = Vec::new();
    let signatures = lines.iter().filter(|line| !line.starts_with("impl ") && is_signature(line));
    for line in signatures {
        let path = item_path(line);
        let rest = line.replacen(path, "", 1);
        for word in rest.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if types.contains(word) && reported.insert(word.to_owned()) {
                mentions.push(format!("{word}, by {path}"));
            }
        }
    }
    mentions
}

fn is_signature(line: &str) -> bool {
    !line.starts_with("macro_rules ") && !line.starts_with("pub macro ")
}

/// The place of a definition: an item of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Definition {
    pub(crate) crate_name: String,
    pub(crate) module: ModulePath,
    pub(crate) index: usize,
    /// The name of an item that the macro call at `index` declares.
    pub(crate) declared: Option<String>,
}

/// One name of the facade.
struct ExportedName {
    path: String,
    /// The `cfg` attributes of the declarations that export it.
    condition: String,
    definition: Definition,
}

/// The facade and the crates of ours that it names.
struct Sources {
    crates: BTreeMap<String, CrateSource>,
    unresolved: Vec<String>,
    /// The lines of names from crates that are not ours.
    foreign: Vec<String>,
}

/// A module of one crate.
#[derive(Clone)]
struct Scope {
    crate_name: String,
    module: ModulePath,
}

/// The meaning of a name.
enum Resolved {
    Item(Definition),
    Module(Scope),
    /// A path into a crate that is not ours.
    Foreign(String),
}

impl Sources {
    fn load(root: &Path) -> Result<Self, String> {
        let crates_dir = root.join("crates");
        let facade_dir = crates_dir.join(FACADE);
        let manifest = fs::read_to_string(facade_dir.join("Cargo.toml"));
        let manifest = manifest.map_err(|e| format!("{FACADE}: {e}"))?;
        let mut crates = BTreeMap::new();
        let ours = read_dependencies(&manifest).into_iter().filter(|name| name.starts_with(FACADE));
        for name in ours.chain([FACADE.to_owned()]) {
            let source = CrateSource::load(&crates_dir.join(name))?;
            crates.insert(source.name.clone(), source);
        }
        Ok(Self { crates, unresolved: Vec::new(), foreign: Vec::new() })
    }

    /// Returns all names of the facade, those with the shortest paths first.
    fn collect_exports(&mut self) -> Vec<ExportedName> {
        let mut exported = Vec::new();
        let root = Scope { crate_name: FACADE.to_owned(), module: Vec::new() };
        self.collect_module(&root, FACADE, "", &mut exported);
        exported.sort_by_key(|export| (export.path.matches("::").count(), export.path.clone()));
        exported
    }

    fn collect_module(
        &mut self,
        scope: &Scope,
        path: &str,
        condition: &str,
        exported: &mut Vec<ExportedName>,
    ) {
        for name in self.public_names(scope, 0) {
            if self.is_hidden(scope, &name) {
                continue;
            }
            let found = self.resolve(scope, &name, 0);
            let condition = format!("{condition}{}", self.export_condition(scope, &name));
            let path = format!("{path}::{name}");
            if found.is_empty() {
                self.unresolved.push(path.clone());
            }
            for resolved in found {
                match resolved {
                    Resolved::Item(definition) => {
                        let path = path.clone();
                        let condition = condition.clone();
                        exported.push(ExportedName { path, condition, definition });
                    }
                    Resolved::Module(inner) => {
                        self.collect_module(&inner, &path, &condition, exported);
                    }
                    Resolved::Foreign(target) => {
                        self.foreign.push(format!("{condition}pub use {path} = {target}"));
                    }
                }
            }
        }
    }

    /// Returns the `cfg` attributes under which a module exports a name.
    fn export_condition(&self, scope: &Scope, name: &str) -> String {
        let exporting = self.items(scope).iter().filter(|item| is_public(item)).find(|item| {
            let Item::Use(declaration) = item else {
                return matches!(item, Item::Mod(module) if module.ident == name);
            };
            flatten_use(&declaration.tree).iter().any(|import| import.name == name)
        });
        let attributes = exporting.map_or(&[][..], attributes_of).iter();
        let conditions = attributes.filter(|attribute| attribute.path().is_ident("cfg"));
        conditions.map(|attribute| source_text(attribute) + " ").collect()
    }

    /// Returns true for a module that is hidden from the documentation: it is for our macros only.
    fn is_hidden(&self, scope: &Scope, name: &str) -> bool {
        self.items(scope).iter().any(|item| {
            matches!(item, Item::Mod(module) if module.ident == name)
                && attributes_of(item)
                    .iter()
                    .any(|attribute| source_text(attribute).contains("hidden"))
        })
    }

    fn items(&self, scope: &Scope) -> &[Item] {
        let source = self.crates.get(&scope.crate_name);
        source.and_then(|source| source.modules.get(&scope.module)).map_or(&[], Vec::as_slice)
    }

    /// Returns the names of all public types and traits of our crates.
    fn public_types(&self) -> BTreeSet<String> {
        let modules = self.crates.values().flat_map(|source| source.modules.values());
        let items = modules.flatten().filter(|item| {
            let is_type = matches!(item, Item::Struct(_) | Item::Enum(_) | Item::Trait(_));
            is_public(item) && is_type
        });
        let defined = items.filter_map(defined_name);
        defined.chain(self.crates.values().flat_map(declared_types)).collect()
    }

    /// Returns the public names of a module, those of globs included.
    fn public_names(&self, scope: &Scope, hops: usize) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for item in self.items(scope).iter().filter(|item| is_public(item)) {
            names.extend(defined_name(item));
            let Item::Use(declaration) = item else { continue };
            for import in flatten_use(&declaration.tree) {
                if import.name != "*" {
                    names.insert(import.name);
                } else if hops < HOPS_MAX {
                    for resolved in self.resolve_path(scope, &import.path, hops + 1) {
                        if let Resolved::Module(inner) = resolved {
                            names.extend(self.public_names(&inner, hops + 1));
                        }
                    }
                }
            }
        }
        names
    }

    /// Finds a name in a module: a type and a function can have the same one.
    fn resolve(&self, scope: &Scope, name: &str, hops: usize) -> Vec<Resolved> {
        let mut found = Vec::new();
        let mut declared_by_macro = None;
        for (index, item) in self.items(scope).iter().enumerate() {
            let definition = |declared: Option<String>| Definition {
                crate_name: scope.crate_name.clone(),
                module: scope.module.clone(),
                index,
                declared,
            };
            match item {
                Item::Use(declaration) => {
                    for import in flatten_use(&declaration.tree) {
                        let path = match import.name.as_str() {
                            "*" => [import.path, vec![name.to_owned()]].concat(),
                            given if given == name => import.path,
                            _ => continue,
                        };
                        if hops < HOPS_MAX {
                            let mut resolved = self.resolve_path(scope, &path, hops + 1);
                            // A foreign glob may have any name, and most names it has not.
                            resolved.retain(|resolved| {
                                import.name != "*" || !matches!(resolved, Resolved::Foreign(_))
                            });
                            found.extend(resolved);
                        }
                    }
                }
                Item::Mod(module) if module.ident == name => {
                    let mut module = scope.module.clone();
                    module.push(name.to_owned());
                    let crate_name = scope.crate_name.clone();
                    found.push(Resolved::Module(Scope { crate_name, module }));
                }
                Item::Macro(call) if call.ident.is_none() => {
                    let tokens = call.mac.tokens.clone().into_iter();
                    if tokens.into_iter().any(|token| token.to_string() == name) {
                        declared_by_macro.get_or_insert_with(|| definition(Some(name.to_owned())));
                    }
                }
                item if defined_name(item).as_deref() == Some(name) => {
                    found.push(Resolved::Item(definition(None)));
                }
                _ => {}
            }
        }
        if found.is_empty() {
            found.extend(declared_by_macro.map(Resolved::Item));
        }
        found
    }

    fn resolve_path(&self, scope: &Scope, path: &[String], hops: usize) -> Vec<Resolved> {
        let Some((name, modules)) = path.split_last() else { return Vec::new() };
        let mut scope = scope.clone();
        for (at, segment) in modules.iter().enumerate() {
            match segment.as_str() {
                "crate" => scope.module.clear(),
                "self" => {}
                "super" => {
                    scope.module.pop();
                }
                segment if at == 0 && self.crates.contains_key(segment) => {
                    scope = Scope { crate_name: segment.to_owned(), module: Vec::new() };
                }
                segment => {
                    let inner = self.resolve(&scope, segment, hops).into_iter();
                    let module = inner.into_iter().find_map(|resolved| match resolved {
                        Resolved::Module(inner) => Some(inner),
                        Resolved::Item(_) | Resolved::Foreign(_) => None,
                    });
                    let Some(module) = module else {
                        let foreign = (at == 0).then(|| Resolved::Foreign(path.join("::")));
                        return foreign.into_iter().collect();
                    };
                    scope = module;
                }
            }
        }
        if modules.is_empty() && self.crates.contains_key(name) {
            let root = Scope { crate_name: name.clone(), module: Vec::new() };
            return vec![Resolved::Module(root)];
        }
        self.resolve(&scope, name, hops)
    }
}

/// Returns the types that the calls of macros declare, such as `counter! { Position(u64) }`.
fn declared_types(source: &CrateSource) -> Vec<String> {
    let calls = source.modules.values().flatten().filter_map(|item| match item {
        Item::Macro(call) if call.ident.is_none() => Some(call.mac.tokens.clone()),
        _ => None,
    });
    let words = calls.flatten().map(|token| token.to_string());
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_signature_shows_as_a_removed_and_an_added_line() {
        let stored = "pub fn brigade::Session::list(&self)\npub struct brigade::Session { .. }\n";
        let current = "pub fn brigade::Session::list(&self, all: bool)\n\
                       pub struct brigade::Session { .. }\n";
        assert_eq!(
            compare_lines(stored, current),
            [
                "- pub fn brigade::Session::list(&self)",
                "+ pub fn brigade::Session::list(&self, all: bool)",
            ]
        );
        assert_eq!(compare_lines(stored, stored), [""; 0]);
    }

    #[test]
    fn a_type_that_a_signature_mentions_is_found() {
        let lines = [
            "impl From<Draft> for brigade::Session".to_owned(),
            "pub brigade::Event::Draft { row: TaskRow }".to_owned(),
            "pub fn brigade::Session::list(&self) -> Vec<TaskRow>".to_owned(),
            "pub struct brigade::Session".to_owned(),
        ];
        let types = ["Draft", "TaskRow"].map(str::to_owned).into();
        assert_eq!(find_mentions(&lines, &types), ["TaskRow, by brigade::Event::Draft"]);
    }

    #[test]
    fn the_list_follows_re_exports_to_definitions() {
        let root = std::env::temp_dir().join(format!("brigade-api-{}", std::process::id()));
        let manifest = "[dependencies]\nbrigade-model.workspace = true\n\
                        brigade-runtime.workspace = true\n";
        let model = r#"
            pub mod task;
            mod hidden;
            pub use hidden::Owner as TaskOwner;
        "#;
        let task = r#"
            macro_rules! counter { ($name:ident) => { pub struct $name(pub u64); }; }
            counter! { Position }
            /// A task.
            #[derive(Clone)]
            #[non_exhaustive]
            pub struct TaskRow { pub owner: TaskOwner, secret: u8 }
            impl TaskRow {
                pub fn owner(
                    &self,
                    // A comment.
                    all: bool,
                ) -> Option<Draft> { None }
                fn private(&self) {}
            }
            pub struct Draft;
            #[cfg(test)]
            mod tests { pub struct Unseen; }
        "#;
        let runtime = "pub struct Handle; impl From<Handle> for brigade_model::task::TaskRow {}";
        let facade = r#"
            #[cfg(feature = "sqlite")]
            pub mod model { pub use brigade_model::task::{Position, TaskRow}; }
            pub use brigade_model::{TaskOwner, task::TaskRow};
            pub use schemars::JsonSchema;
        "#;
        for (file, text) in [
            ("brigade/Cargo.toml", manifest),
            ("brigade/src/lib.rs", facade),
            ("brigade-model/src/lib.rs", model),
            ("brigade-model/src/task.rs", task),
            ("brigade-model/src/hidden.rs", "pub enum Owner { Session, Task(u32) }"),
            ("brigade-runtime/src/lib.rs", runtime),
        ] {
            let path = root.join("crates").join(file);
            fs::create_dir_all(path.parent().expect("a file has a directory")).expect("created");
            fs::write(path, text).expect("written");
        }
        let api = read_api(&root);
        fs::remove_dir_all(&root).expect("removed");
        let api = api.expect("the sources are complete");
        assert_eq!(
            api.text.lines().collect::<Vec<_>>(),
            [
                "pub use brigade::JsonSchema = schemars::JsonSchema",
                "pub enum brigade::TaskOwner",
                "pub brigade::TaskOwner::Session",
                "pub brigade::TaskOwner::Task(u32)",
                "#[non_exhaustive] pub struct brigade::TaskRow { .. }",
                "impl Clone for brigade::TaskRow",
                "impl From<Handle> for brigade::TaskRow",
                "pub brigade::TaskRow::owner: TaskOwner",
                "pub fn brigade::TaskRow::owner(&self, all: bool) -> Option<Draft>",
                "#[cfg(feature = \"sqlite\")] brigade::model::Position",
                "pub macro item brigade::model::Position: counter! { Position }",
                "#[cfg(feature = \"sqlite\")] brigade::model::TaskRow",
                "pub use brigade::model::TaskRow = brigade::TaskRow",
                "macro_rules counter! ($name:ident) => { pub struct $name(pub u64); };",
            ]
        );
        assert_eq!(api.unnamed, ["Draft, by brigade::TaskRow::owner"]);
    }

    #[test]
    fn lines_are_sorted_by_the_path_of_their_item() {
        for (line, path) in [
            ("pub async fn brigade::Session::spawn<T>(&self)", "brigade::Session::spawn"),
            ("impl Clone for brigade::Session", "brigade::Session"),
            ("pub brigade::Limits::depth: Option<u32>", "brigade::Limits::depth"),
        ] {
            assert_eq!(item_path(line), path);
        }
    }
}
