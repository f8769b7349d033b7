//! Counts unreadable names and doc comments, prints the figures and fails beyond the limits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// The file with the words that are not used as names.
const WORD_LIST: &str = "xtask/words.txt";
/// First words that hide the subject of a doc comment.
const WH_WORDS: [&str; 11] =
    ["What", "Whether", "Who", "Whoever", "Whose", "Whom", "How", "Where", "When", "Which", "Of"];
/// The percentage of doc comments that may begin with one of them.
const WH_DOCS_MAX: usize = 5;
/// The percentage of types that may have a name of one word.
const ONE_WORD_MAX: usize = 30;
/// The percentage of types that may share their name with another type.
const SHARED_MAX: usize = 15;
/// The most rows of a printed list.
const SAMPLE_ROWS: usize = 12;

/// The counts of all files.
#[derive(Default)]
struct NameCounts {
    docs: usize,
    wh_docs: Vec<String>,
    types: BTreeMap<String, Vec<String>>,
    listed: Vec<String>,
    tuple_parameters: Vec<String>,
}

/// Prints the figures and adds a fault for each one beyond its limit.
pub(crate) fn check(
    root: &Path,
    files: &[PathBuf],
    faults: &mut Vec<String>,
) -> Result<(), String> {
    let words = read_words(root)?;
    let mut counts = NameCounts::default();
    for path in files {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        if !is_production(&name) {
            continue;
        }
        let text = fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        counts.count_docs(&name, &text);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if words.iter().any(|word| *word == stem) {
            counts.listed.push(format!("{name}: the file"));
        }
        let parsed = syn::parse_file(&text).map_err(|e| format!("{name}: {e}"))?;
        FileNames { name: &name, forbidden: &words, counts: &mut counts }.visit_file(&parsed);
    }
    counts.report(faults);
    Ok(())
}

fn read_words(root: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(root.join(WORD_LIST)).map_err(|e| format!("{WORD_LIST}: {e}"))?;
    let words = text.lines().map(str::trim);
    Ok(words.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
}

/// Checks that a file is code that users run, not a test, an example or a benchmark.
fn is_production(name: &str) -> bool {
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
    let is_test_aid = name.starts_with("crates/brigade-testkit")
        || name.starts_with("crates/brigade-store/src/conformance")
        || name.contains("/examples/")
        || name.contains("/benches/");
    name.ends_with(".rs") && !is_test && !is_test_aid
}

impl NameCounts {
    /// Counts doc comments. Adjacent lines are one comment.
    fn count_docs(&mut self, name: &str, text: &str) {
        let mut is_continued = false;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim);
            if let Some(doc) = doc
                && !is_continued
                && !doc.is_empty()
            {
                self.docs += 1;
                let first = doc.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                if WH_WORDS.contains(&first) {
                    self.wh_docs.push(format!("{name}:{}: {doc}", at + 1));
                }
            }
            is_continued = doc.is_some();
        }
    }

    fn report(&self, faults: &mut Vec<String>) {
        let total: usize = self.types.values().map(Vec::len).sum();
        let of_one_word =
            |name: &&String| name.chars().filter(char::is_ascii_uppercase).count() < 2;
        let one_word: Vec<&String> = self.types.keys().filter(of_one_word).collect();
        let one_word_types = one_word.iter().map(|name| self.types[*name].len()).sum();
        let mut shared: Vec<(&String, &Vec<String>)> =
            self.types.iter().filter(|(_, places)| places.len() > 1).collect();
        shared.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
        let shared_types = shared.iter().map(|(_, places)| places.len()).sum();
        let wh_docs = percent(self.wh_docs.len(), self.docs);
        let one_word_share = percent(one_word_types, total);
        let shared_share = percent(shared_types, total);
        println!(
            "names: {wh_docs} % of doc comments begin with a wh-word, {one_word_share} % of types have \
             one word, {shared_share} % share their name"
        );
        if wh_docs > WH_DOCS_MAX {
            let worst = sample(self.wh_docs.iter().cloned());
            let limit = format!("begin with a wh-word, more than {WH_DOCS_MAX} %");
            faults.push(format!("{wh_docs} % of doc comments {limit}\n    {worst}"));
        }
        if one_word_share > ONE_WORD_MAX {
            println!("  one word: {}", sample(one_word.into_iter().cloned()));
        }
        if shared_share > SHARED_MAX {
            let rows = shared.iter().map(|(name, places)| format!("{name} x{}", places.len()));
            println!("  shared: {}", sample(rows));
        }
        faults.extend(
            self.listed
                .iter()
                .map(|place| format!("{place}: use a name that is not in {WORD_LIST}")),
        );
        let tuples = self.tuple_parameters.iter();
        faults.extend(
            tuples.map(|place| format!("{place}: replace the tuple parameter by a struct")),
        );
    }
}

fn percent(part: usize, whole: usize) -> usize {
    (part * 100).div_ceil(whole.max(1))
}

fn sample(rows: impl Iterator<Item = String>) -> String {
    rows.take(SAMPLE_ROWS).collect::<Vec<_>>().join("\n    ")
}

/// A visitor that counts the definitions of one file.
struct FileNames<'a> {
    name: &'a str,
    forbidden: &'a [String],
    counts: &'a mut NameCounts,
}

impl FileNames<'_> {
    fn define(&mut self, ident: &syn::Ident) {
        let name = ident.to_string();
        if self.forbidden.contains(&name.to_lowercase()) {
            let line = ident.span().start().line;
            self.counts.listed.push(format!("{}:{line}: {name}", self.name));
        }
    }

    fn define_type(&mut self, ident: &syn::Ident) {
        self.define(ident);
        self.counts.types.entry(ident.to_string()).or_default().push(self.name.to_owned());
    }

    fn check_parameters(&mut self, signature: &syn::Signature) {
        for input in &signature.inputs {
            let syn::FnArg::Typed(typed) = input else { continue };
            let mut ty = &*typed.ty;
            while let syn::Type::Reference(reference) = ty {
                ty = &reference.elem;
            }
            if matches!(ty, syn::Type::Tuple(tuple) if tuple.elems.len() > 1) {
                let line = signature.ident.span().start().line;
                let place = format!("{}:{line}: {}", self.name, signature.ident);
                self.counts.tuple_parameters.push(place);
            }
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && list.tokens.to_string().split_whitespace().any(is_test_word)
    })
}

fn is_test_word(word: &str) -> bool {
    word.trim_matches(|c: char| !c.is_alphanumeric()) == "test"
}

impl<'ast> Visit<'ast> for FileNames<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.define(&item.ident);
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define_type(&item.ident);
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define_type(&item.ident);
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define_type(&item.ident);
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define(&item.ident);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(ident) = &field.ident {
            self.define(ident);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.define(&variant.ident);
        syn::visit::visit_variant(self, variant);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.define(&item.sig.ident);
        self.check_parameters(&item.sig);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        // The trait defines the names of its methods.
        let is_inherent = item.trait_.is_none();
        for member in &item.items {
            let syn::ImplItem::Fn(method) = member else { continue };
            if is_inherent {
                self.define(&method.sig.ident);
                self.check_parameters(&method.sig);
            }
            self.visit_block(&method.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.define(&item.sig.ident);
        self.check_parameters(&item.sig);
        syn::visit::visit_trait_item_fn(self, item);
    }
}
