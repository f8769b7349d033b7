//! The lines of the API list: an item with its fields, variants, methods and implementations.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    Attribute, Fields, Generics, ImplItem, Item, ItemEnum, ItemImpl, ItemMacro, ItemStruct,
    ItemTrait, TraitItem, Type, Visibility,
};

use crate::crate_source::{
    CrateSource, ModulePath, defined_name, has_attribute, is_for_tests, source_text,
};
use crate::public_api::Definition;

/// Collects the lines of all items.
pub(crate) struct ItemLines<'a> {
    crates: &'a BTreeMap<String, CrateSource>,
    implementations: BTreeMap<String, Vec<FoundImpl<'a>>>,
    /// The types, by crate and name.
    types: BTreeSet<(String, String)>,
    /// Those of them that name more than one type.
    shared_names: BTreeSet<(String, String)>,
    lines: Vec<String>,
}

/// An `impl` block and its place.
struct FoundImpl<'a> {
    crate_name: &'a str,
    module: &'a ModulePath,
    block: &'a ItemImpl,
}

impl<'a> ItemLines<'a> {
    pub(crate) fn new(crates: &'a BTreeMap<String, CrateSource>) -> Self {
        let mut implementations: BTreeMap<String, Vec<FoundImpl<'_>>> = BTreeMap::new();
        let mut types = BTreeSet::new();
        let mut shared_names = BTreeSet::new();
        for source in crates.values() {
            for (module, items) in &source.modules {
                for item in items {
                    if let Item::Impl(block) = item
                        && let Some(name) = self_type_name(&block.self_ty)
                    {
                        let crate_name = source.name.as_str();
                        let found = FoundImpl { crate_name, module, block };
                        implementations.entry(name).or_default().push(found);
                    }
                    let is_type = matches!(item, Item::Struct(_) | Item::Enum(_) | Item::Type(_));
                    if is_type && let Some(name) = defined_name(item) {
                        let key = (source.name.clone(), name);
                        if !types.insert(key.clone()) {
                            shared_names.insert(key);
                        }
                    }
                }
            }
        }
        Self { crates, implementations, types, shared_names, lines: Vec::new() }
    }

    pub(crate) fn finish(self) -> Vec<String> {
        self.lines
    }

    /// Adds the condition under which a path exists.
    pub(crate) fn add_condition(&mut self, path: &str, condition: &str) {
        if !condition.is_empty() {
            self.lines.push(format!("{condition}{path}"));
        }
    }

    /// Adds a second path of an item.
    pub(crate) fn add_alias(&mut self, path: &str, first: &str) {
        self.lines.push(format!("pub use {path} = {first}"));
    }

    /// Adds an item and everything that belongs to it.
    pub(crate) fn add(&mut self, path: &str, definition: &Definition) {
        let Some(source) = self.crates.get(&definition.crate_name) else { return };
        let items = source.modules.get(&definition.module);
        let Some(item) = items.and_then(|items| items.get(definition.index)) else { return };
        match item {
            Item::Struct(item) => self.add_struct(path, item),
            Item::Enum(item) => self.add_enum(path, item),
            Item::Trait(item) => self.add_trait(path, item),
            Item::Fn(item) => {
                let signature = source_text(&item.sig);
                let line = function_line(path, &signature, &item.sig.ident.to_string());
                let kind = macro_kind(&item.attrs);
                self.push(&item.attrs, &format!("pub {kind}{line}"));
            }
            Item::Type(item) => {
                let target = source_text(&item.ty);
                let generics = generics_text(&item.generics);
                self.push(&item.attrs, &format!("pub type {path}{generics} = {target}"));
            }
            Item::Const(item) => {
                let kind = source_text(&item.ty);
                self.push(&item.attrs, &format!("pub const {path}: {kind}"));
            }
            Item::Static(item) => {
                let kind = source_text(&item.ty);
                self.push(&item.attrs, &format!("pub static {path}: {kind}"));
            }
            Item::Macro(item) => self.add_macro(path, item, source, definition),
            _ => self.lines.push(format!("pub item {path}")),
        }
        let name = definition.declared.clone().or_else(|| defined_name(item));
        if let Some(name) = name
            && !matches!(item, Item::Trait(_) | Item::Fn(_) | Item::Const(_) | Item::Static(_))
        {
            self.add_implementations(path, &name, definition);
            self.add_macro_calls(path, &name, definition);
        }
    }

    fn push(&mut self, attributes: &[Attribute], line: &str) {
        self.lines.push(format!("{}{line}", attribute_prefix(attributes)));
    }

    fn add_struct(&mut self, path: &str, item: &ItemStruct) {
        let generics = generics_text(&item.generics);
        let is_complete = item.fields.iter().all(|field| is_visible(&field.vis));
        let body = if is_complete { "" } else { " { .. }" };
        self.push(&item.attrs, &format!("pub struct {path}{generics}{body}"));
        for (index, field) in item.fields.iter().enumerate() {
            if is_visible(&field.vis) {
                let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
                let kind = source_text(&field.ty);
                self.push(&field.attrs, &format!("pub {path}::{name}: {kind}"));
            }
        }
        self.add_derives(path, &item.attrs);
    }

    fn add_enum(&mut self, path: &str, item: &ItemEnum) {
        let generics = generics_text(&item.generics);
        self.push(&item.attrs, &format!("pub enum {path}{generics}"));
        for variant in &item.variants {
            let fields = variant_fields(&variant.fields);
            self.push(&variant.attrs, &format!("pub {path}::{}{fields}", variant.ident));
        }
        self.add_derives(path, &item.attrs);
    }

    fn add_trait(&mut self, path: &str, item: &ItemTrait) {
        let generics = generics_text(&item.generics);
        let bounds: Vec<String> = item.supertraits.iter().map(source_text).collect();
        let bounds =
            if bounds.is_empty() { String::new() } else { format!(": {}", bounds.join(" + ")) };
        self.push(&item.attrs, &format!("pub trait {path}{generics}{bounds}"));
        for member in &item.items {
            match member {
                TraitItem::Fn(method) => {
                    let name = method.sig.ident.to_string();
                    let signature = source_text(&method.sig);
                    let line = function_line(&format!("{path}::{name}"), &signature, &name);
                    let end = if method.default.is_some() { " { .. }" } else { ";" };
                    self.push(&method.attrs, &format!("pub {line}{end}"));
                }
                TraitItem::Type(associated) => {
                    let text = source_text(associated);
                    let bounds = text.split_once(&associated.ident.to_string());
                    let bounds = bounds.map_or("", |(_, bounds)| bounds);
                    let line = format!("pub type {path}::{}{bounds}", associated.ident);
                    self.push(&associated.attrs, &line);
                }
                TraitItem::Const(constant) => {
                    let kind = source_text(&constant.ty);
                    let line = format!("pub const {path}::{}: {kind}", constant.ident);
                    self.push(&constant.attrs, &line);
                }
                _ => {}
            }
        }
    }

    /// Adds a macro, or the call of a macro that declares the item.
    fn add_macro(
        &mut self,
        path: &str,
        item: &ItemMacro,
        source: &CrateSource,
        definition: &Definition,
    ) {
        if definition.declared.is_none() {
            self.push(&item.attrs, &format!("pub macro {path}!"));
            return;
        }
        self.lines.push(format!("pub macro item {path}: {}", source_text(&item.mac)));
        if let Some(rules) = find_rules(source, definition, item) {
            self.lines.push(rules_line(rules));
        }
    }

    /// Adds the calls of macros whose definition mentions the type: they implement it.
    fn add_macro_calls(&mut self, path: &str, name: &str, definition: &Definition) {
        let Some(source) = self.crates.get(&definition.crate_name) else { return };
        for item in source.modules.get(&definition.module).into_iter().flatten() {
            if let Item::Macro(call) = item
                && call.ident.is_none()
                && let Some(rules) = find_rules(source, definition, call)
                && has_word(&rules.mac.tokens.to_string(), name)
            {
                self.lines.push(format!("pub macro items {path}: {}", source_text(&call.mac)));
                self.lines.push(rules_line(rules));
            }
        }
    }

    fn add_derives(&mut self, path: &str, attributes: &[Attribute]) {
        for attribute in attributes.iter().filter(|given| given.path().is_ident("derive")) {
            let _ = attribute.parse_nested_meta(|derived| {
                let name = derived.path.segments.last().map(|last| last.ident.to_string());
                let name = name.unwrap_or_default();
                self.lines.push(format!("impl {name} for {path}"));
                Ok(())
            });
        }
    }

    fn defining_crates(&self, name: &str) -> usize {
        self.types.iter().filter(|(_, found)| found == name).count()
    }

    fn add_implementations(&mut self, path: &str, name: &str, definition: &Definition) {
        let key = (definition.crate_name.clone(), name.to_owned());
        let is_shared = self.shared_names.contains(&key);
        let is_unique = !is_shared && self.defining_crates(name) <= 1;
        let Some(found) = self.implementations.get(name) else { return };
        let mut lines = Vec::new();
        for found in found {
            let is_near = found.module.starts_with(&definition.module);
            let is_own = found.crate_name == definition.crate_name;
            // Another crate of ours can implement its trait for the type.
            if is_own && (is_near || !is_shared) || !is_own && is_unique {
                add_block(path, found.block, &mut lines);
            }
        }
        self.lines.append(&mut lines);
    }
}

/// Finds the definition of a called macro in the module of the call.
fn find_rules<'a>(
    source: &'a CrateSource,
    definition: &Definition,
    call: &ItemMacro,
) -> Option<&'a ItemMacro> {
    let name = call.mac.path.get_ident()?;
    source.modules.get(&definition.module)?.iter().find_map(|item| match item {
        Item::Macro(rules) if rules.ident.as_ref() == Some(name) => Some(rules),
        _ => None,
    })
}

fn rules_line(rules: &ItemMacro) -> String {
    let name = rules.ident.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("macro_rules {name}! {}", source_text(&rules.mac.tokens))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// Adds the lines of one `impl` block.
fn add_block(path: &str, block: &ItemImpl, lines: &mut Vec<String>) {
    let prefix = attribute_prefix(&block.attrs);
    let generics = generics_text(&block.generics);
    if let Some((_, implemented, _)) = &block.trait_ {
        let implemented = source_text(implemented);
        let generics = if generics.is_empty() { generics } else { format!("{generics} ") };
        let arguments = self_arguments(&block.self_ty);
        let line = format!("impl {generics}{implemented} for {path}{arguments}");
        lines.push(prefix.clone() + &line);
        for member in &block.items {
            if let ImplItem::Type(associated) = member {
                let kind = source_text(&associated.ty);
                lines.push(format!("{prefix}{line}: type {} = {kind}", associated.ident));
            }
        }
        return;
    }
    let bounds = match generics.is_empty() && block.generics.where_clause.is_none() {
        true => String::new(),
        false => format!(" [impl{generics} {}]", source_text(&block.self_ty)),
    };
    for member in &block.items {
        let line = match member {
            ImplItem::Fn(method) if is_listed(&method.vis, &method.attrs) => {
                let name = method.sig.ident.to_string();
                let signature = source_text(&method.sig);
                let line = function_line(&format!("{path}::{name}"), &signature, &name);
                format!("{}pub {line}", attribute_prefix(&method.attrs))
            }
            ImplItem::Const(constant) if is_listed(&constant.vis, &constant.attrs) => {
                let kind = source_text(&constant.ty);
                let attributes = attribute_prefix(&constant.attrs);
                format!("{attributes}pub const {path}::{}: {kind}", constant.ident)
            }
            ImplItem::Macro(call) => format!("pub macro items {path}: {}", source_text(&call.mac)),
            _ => continue,
        };
        lines.push(format!("{prefix}{line}{bounds}"));
    }
}

fn is_listed(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    is_visible(visibility) && !is_for_tests(attributes)
}

fn is_visible(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns the attributes that callers notice.
fn attribute_prefix(attributes: &[Attribute]) -> String {
    let noticed = attributes.iter().filter(|attribute| {
        ["cfg", "deprecated", "doc(hidden)", "must_use", "non_exhaustive"]
            .iter()
            .any(|name| attribute.path().is_ident(name) || is_hidden(attribute, name))
    });
    noticed.map(|attribute| source_text(attribute) + " ").collect()
}

fn is_hidden(attribute: &Attribute, name: &str) -> bool {
    name.starts_with("doc") && source_text(attribute) == format!("#[{name}]")
}

/// Returns the kind of a function that is a procedural macro, followed by a space.
fn macro_kind(attributes: &[Attribute]) -> &'static str {
    let kinds = [
        ("proc_macro", "macro "),
        ("proc_macro_attribute", "attribute macro "),
        ("proc_macro_derive", "derive macro "),
    ];
    kinds.iter().find(|(name, _)| has_attribute(attributes, name)).map_or("", |(_, kind)| kind)
}

/// Puts the path of a function into its signature.
fn function_line(path: &str, signature: &str, name: &str) -> String {
    signature.replacen(&format!("fn {name}"), &format!("fn {path}"), 1)
}

fn generics_text(generics: &Generics) -> String {
    let parameters = match generics.params.is_empty() {
        true => String::new(),
        false => {
            let list: Vec<String> = generics.params.iter().map(source_text).collect();
            format!("<{}>", list.join(", "))
        }
    };
    match &generics.where_clause {
        Some(bounds) => format!("{parameters} {}", source_text(bounds).trim_end_matches(',')),
        None => parameters,
    }
}

fn variant_fields(fields: &Fields) -> String {
    let list: Vec<String> = fields
        .iter()
        .map(|field| match &field.ident {
            Some(name) => format!("{name}: {}", source_text(&field.ty)),
            None => source_text(&field.ty),
        })
        .collect();
    match fields {
        Fields::Unit => String::new(),
        Fields::Unnamed(_) => format!("({})", list.join(", ")),
        Fields::Named(_) => format!(" {{ {} }}", list.join(", ")),
    }
}

/// Returns the last name of a type. References and trait objects have none.
fn self_type_name(kind: &Type) -> Option<String> {
    let Type::Path(path) = kind else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

fn self_arguments(kind: &Type) -> String {
    let Type::Path(path) = kind else { return String::new() };
    let arguments = path.path.segments.last().map(|segment| &segment.arguments);
    arguments.filter(|given| !given.is_empty()).map(source_text).unwrap_or_default()
}
