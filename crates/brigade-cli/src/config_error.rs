//! Describes errors of a configuration file without quoting its values, since any of them may be a
//! secret.

use brigade_model::suggestion::find_nearest;
use toml::Value;

/// The text that replaces a value.
const REDACTED_VALUE: &str = "`…`";
/// Shorter values are redacted only in quotes, since they occur in many words.
const BARE_VALUE_MIN: usize = 8;
/// The longest unknown name that is quoted, if it looks like a name.
const NAME_CHARS_MAX: usize = 24;

/// Describes an error: its line, the name before it, and the expected value.
pub(crate) fn describe(error: &toml::de::Error, text: &str, names: &[&str]) -> String {
    let place = error.span().map(|span| FilePosition::of(text, span.start));
    let line = place.as_ref().map(|place| format!("line {}: ", place.line)).unwrap_or_default();
    let name = place.and_then(|place| place.name.filter(|name| names.contains(&&**name)));
    let message = redact_values(error.message(), text);
    match name.as_deref() {
        Some("key" | "bearer") => format!(
            "{line}`{}`: {message}; write the source of the key, not the key itself: \
             {{ env = \"NAME\" }} or {{ file = \"/PATH\" }}",
            name.unwrap_or_default()
        ),
        Some(name) => format!("{line}`{name}`: {message}"),
        None => format!("{line}{message}"),
    }
}

/// Describes an unknown name. Quotes it only if it cannot be a secret.
pub(crate) fn unknown_name(name: &str, names: &[&str]) -> String {
    let near = find_nearest(name, names.iter().copied());
    let is_name_char = |c: char| c.is_ascii_lowercase() || c == '_' || c == '-';
    if near.is_none() && !(name.len() <= NAME_CHARS_MAX && name.chars().all(is_name_char)) {
        return "unknown key".to_owned();
    }
    let near = near.map(|near| format!("; did you mean {near}?"));
    format!("unknown key {name}{}", near.unwrap_or_default())
}

/// A position in a file: its line, and the name before the `=` of that line.
struct FilePosition {
    line: usize,
    name: Option<String>,
}

impl FilePosition {
    fn of(text: &str, at: usize) -> Self {
        let at = text.floor_char_boundary(at);
        let line = text[..at].matches('\n').count() + 1;
        let whole = text.lines().nth(line - 1).unwrap_or_default();
        let name = whole.split_once('=').map(|(name, _)| name.trim().to_owned());
        Self { line, name }
    }
}

/// Removes values of the file, and names that are not ours, from a message.
fn redact_values(message: &str, text: &str) -> String {
    let mut found = Vec::new();
    match toml::from_str::<toml::Table>(text) {
        Ok(table) => collect_values(&Value::Table(table), &mut found),
        // The file cannot be parsed, so all quoted parts go.
        Err(_) => found.extend(quoted_parts(message)),
    }
    // Longer values first: one may be part of another.
    found.sort_by_key(|value| std::cmp::Reverse(value.len()));
    let mut message = message.to_owned();
    for value in found {
        for shown in [format!("`{value}`"), format!("{value:?}"), format!("\"{value}\"")] {
            message = message.replace(&shown, REDACTED_VALUE);
        }
        if value.len() >= BARE_VALUE_MIN {
            message = message.replace(&*value, "…");
        }
    }
    message
}

/// Collects all values of a file, and all names that cannot be ours.
fn collect_values(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect_values(value, found)),
        Value::Table(table) => {
            for (name, value) in table {
                let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                if !is_plain {
                    found.push(name.clone());
                }
                collect_values(value, found);
            }
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            found.push(value.to_string());
        }
    }
}

/// Returns the parts between backticks or quotes.
fn quoted_parts(message: &str) -> impl Iterator<Item = String> + '_ {
    ['`', '"']
        .into_iter()
        .flat_map(|mark| message.split(mark).skip(1).step_by(2).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UserConfig;

    const SECRET: &str = "sk-proj-0123456789abcdef";

    #[test]
    fn no_value_is_quoted() {
        for text in [
            format!("[providers.openai]\nkind = \"openai\"\nkey = \"{SECRET}\"\n"),
            format!("[providers.openai]\nkind = \"openai\"\nkey = {SECRET}\n"),
            format!("[providers.openai]\nkind = \"openai\"\nkey = \"{SECRET}\n"),
            format!("[providers.openai]\nkind = \"openai\"\nkey = {{ text = \"{SECRET}\" }}\n"),
            format!("[providers.openai]\nkind = \"openai\"\nkey = {{ {SECRET} = 1 }}\n"),
            format!("[providers.openai]\nkind = \"openai\"\n{SECRET} = 1\n"),
            format!("[providers.openai]\nkind = \"{SECRET}\"\n"),
            format!("[mcp_servers.docs]\nurl = \"https://x/y\"\nbearer = [\"{SECRET}\"]\n"),
            format!("[mcp_servers.docs]\nurl = \"https://x/y\"\ncall_timeout = \"{SECRET}\"\n"),
            format!("output_cap = \"{SECRET}\"\n"),
            format!("pass_env = \"{SECRET}\"\n"),
            format!("model = [\"{SECRET}\"]\n\n= \"{SECRET}\""),
        ] {
            let error = toml::from_str::<UserConfig>(&text).expect_err(&text);
            let description = describe(&error, &text, &["key", "kind", "output_cap"]);
            assert!(
                !description.contains("0123456789") && description.contains("line "),
                "{text}\n{description}"
            );
        }
    }

    #[test]
    fn the_message_names_the_expected_value() {
        let text = format!("[providers.openai]\nkind = \"openai\"\nkey = \"{SECRET}\"\n");
        let error = toml::from_str::<UserConfig>(&text).expect_err("a wrong key");
        let description = describe(&error, &text, &["key"]);
        assert!(
            description.starts_with("line 3: `key`: unknown variant `…`, expected "),
            "{description}"
        );
        assert!(description.contains("write the source of the key"), "{description}");
        assert_eq!(
            unknown_name("idle_exti", &["idle_exit"]),
            "unknown key idle_exti; did you mean idle_exit?"
        );
        assert_eq!(unknown_name("colour", &["idle_exit"]), "unknown key colour");
        assert_eq!(unknown_name(SECRET, &["idle_exit"]), "unknown key");
    }
}
