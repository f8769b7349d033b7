//! The characters of a task's name. Letters of any script are allowed; invisible and deceptive
//! characters are not.

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup, Script};

use crate::plain_text::is_invisible;

/// The maximum number of marks on one letter. No language needs more.
const MARKS_MAX: usize = 4;

/// Scripts that are used together in one word.
const COMBINED_SCRIPTS: [&[Script]; 3] = [
    &[Script::Han, Script::Hiragana, Script::Katakana],
    &[Script::Han, Script::Bopomofo],
    &[Script::Han, Script::Hangul],
];

/// Returns the text in its composed form, so that texts that look the same are equal.
pub(crate) fn compose(text: &str) -> String {
    ComposingNormalizerBorrowed::new_nfc().normalize(text).into_owned()
}

/// Returns the text with case folded.
pub(crate) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // The upper-case step merges letters that have several lower-case forms.
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

pub(crate) fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || is_in_group(c, GeneralCategoryGroup::Letter) && is_plain(c)
}

/// Checks the characters of a composed text. The error names the first one that is not allowed.
pub(crate) fn check_letters(text: &str) -> Result<(), String> {
    if let Some(odd) = text.chars().find(|c| !is_allowed(*c)) {
        let shown = match is_invisible(odd) {
            true => format!("the invisible character U+{:04X}", u32::from(odd)),
            false => format!("{odd:?}"),
        };
        return Err(format!(
            "contains {shown}; letters, digits, spaces, '-', '_' and '.' are allowed"
        ));
    }
    let mut marks = 0;
    for c in text.chars() {
        marks = if is_mark(c) { marks + 1 } else { 0 };
        if marks > MARKS_MAX {
            return Err(format!("has more than {MARKS_MAX} marks on one letter"));
        }
    }
    text.split([' ', '-', '_', '.']).try_for_each(check_scripts)
}

fn is_allowed(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.');
    }
    let is_digit = || {
        let digit = CodePointMapData::<GeneralCategory>::new().get(c);
        digit == GeneralCategory::DecimalNumber && script_of(c) != Script::Common
    };
    is_plain(c) && (is_letter(c) || is_mark(c) || is_digit())
}

fn is_mark(c: char) -> bool {
    !c.is_ascii() && is_in_group(c, GeneralCategoryGroup::Mark)
}

fn is_in_group(c: char, group: GeneralCategoryGroup) -> bool {
    group.contains(CodePointMapData::<GeneralCategory>::new().get(c))
}

/// Returns whether a character is visible and no compatibility form of another, as `𝐀` and `Ａ` are
/// of `A`.
fn is_plain(c: char) -> bool {
    let text = c.encode_utf8(&mut [0; 4]).to_owned();
    !is_invisible(c) && ComposingNormalizerBorrowed::new_nfkc().normalize(&text) == compose(&text)
}

fn script_of(c: char) -> Script {
    CodePointMapData::<Script>::new().get(c)
}

/// Checks that a word uses one script, because letters of another script can look the same.
fn check_scripts(word: &str) -> Result<(), String> {
    if word.is_ascii() {
        return Ok(());
    }
    let mut found: Vec<(char, Script)> = Vec::new();
    for c in word.chars().filter(|c| !c.is_ascii_digit()) {
        let script = script_of(c);
        let is_shared = matches!(script, Script::Common | Script::Inherited);
        if !is_shared && found.iter().all(|(_, other)| *other != script) {
            found.push((c, script));
        }
    }
    let together = |set: &[Script]| found.iter().all(|(_, script)| set.contains(script));
    match found.as_slice() {
        [] | [_] => Ok(()),
        _ if COMBINED_SCRIPTS.iter().any(|set| together(set)) => Ok(()),
        [(one, _), (other, _), ..] => Err(format!(
            "mixes alphabets in one word: {} and {}; use one, or put a space between them",
            render_char(*one),
            render_char(*other)
        )),
    }
}

fn render_char(c: char) -> String {
    format!("{c:?} (U+{:04X})", u32::from(c))
}
