//! The sources of one crate, parsed module by module, without its tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::{Attribute, Item, UseTree, Visibility};

/// A path of modules below the root of a crate.
pub(crate) type ModulePath = Vec<String>;

/// The parsed library of one crate.
pub(crate) struct CrateSource {
    /// The name as paths write it: `brigade_model`.
    pub(crate) name: String,
    pub(crate) modules: BTreeMap<ModulePath, Vec<Item>>,
}

/// One name of a `use` declaration. A glob has the name `*`.
pub(crate) struct ImportedName {
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
}

impl CrateSource {
    /// Parses `src/lib.rs` of the package and every module that it declares.
    pub(crate) fn load(package_dir: &Path) -> Result<Self, String> {
        let name = package_dir.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
        let mut source = Self { name, modules: BTreeMap::new() };
        let root = package_dir.join("src/lib.rs");
        let children = package_dir.join("src");
        source.load_file(&root, &children, Vec::new())?;
        Ok(source)
    }

    fn load_file(&mut self, file: &Path, children: &Path, at: ModulePath) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        self.add_module(parsed.items, children, at)
    }

    fn add_module(
        &mut self,
        items: Vec<Item>,
        children: &Path,
        at: ModulePath,
    ) -> Result<(), String> {
        let mut items: Vec<Item> =
            items.into_iter().filter(|item| !is_for_tests(attributes_of(item))).collect();
        for item in &mut items {
            let Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let mut path = at.clone();
            path.push(name.clone());
            let below = children.join(&name);
            match module.content.take() {
                Some((_, inner)) => self.add_module(inner, &below, path)?,
                // Private modules with one file per system have no public items.
                None if has_attribute(&module.attrs, "cfg_attr") => {}
                None => self.load_file(&module_file(children, &name), &below, path)?,
            }
        }
        self.modules.insert(at, items);
        Ok(())
    }
}

fn module_file(directory: &Path, name: &str) -> PathBuf {
    let flat = directory.join(format!("{name}.rs"));
    if flat.exists() { flat } else { directory.join(name).join("mod.rs") }
}

/// Returns the attributes of an item. Kinds that no source of ours has count as without any.
pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the name that an item defines.
pub(crate) fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Checks for `pub` without a restriction. A macro is public by an attribute.
pub(crate) fn is_public(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Use(item) => &item.vis,
        Item::Macro(item) => return has_attribute(&item.attrs, "macro_export"),
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_))
}

pub(crate) fn has_attribute(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// Checks for `#[cfg(test)]`, `#[cfg(doctest)]` and conditions that contain one of them.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let condition = source_text(attribute);
        condition.contains("test") && !condition.contains("not(")
    })
}

/// Returns the names of a `use` declaration, with their full paths.
pub(crate) fn flatten_use(tree: &UseTree) -> Vec<ImportedName> {
    let mut names = Vec::new();
    collect_names(tree, &mut Vec::new(), &mut names);
    names
}

fn collect_names(tree: &UseTree, prefix: &mut Vec<String>, names: &mut Vec<ImportedName>) {
    let mut add = |name: String, last: String| {
        let mut path = prefix.clone();
        // `use a::{self}` names `a` itself.
        if last != "self" {
            path.push(last);
        }
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name };
        names.push(ImportedName { name, path });
    };
    match tree {
        UseTree::Name(name) => add(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(rename) => add(rename.rename.to_string(), rename.ident.to_string()),
        UseTree::Glob(_) => {
            names.push(ImportedName { name: "*".to_owned(), path: prefix.clone() });
        }
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect_names(&path.tree, prefix, names);
            prefix.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                collect_names(tree, prefix, names);
            }
        }
    }
}

/// Returns the source of a piece of syntax on one line, without comments.
pub(crate) fn source_text(syntax: &impl Spanned) -> String {
    let text = syntax.span().source_text().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let joined = words.join(" ");
    let joined = joined.trim_end_matches(',');
    joined
        .replace("( ", "(")
        .replace(", )", ")")
        .replace(" )", ")")
        .replace(" .", ".")
        .replace("(mut self", "(self")
}
