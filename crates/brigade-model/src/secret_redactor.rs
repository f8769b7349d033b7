//! The redaction of secrets in texts.

use std::fmt::{self, Debug, Formatter};

/// The minimum length of a secret that [`SecretRedactor::add`] takes. Shorter ones occur in too many
/// texts.
const SECRET_LENGTH_MIN: usize = 6;

/// Replaces secrets in logs, errors and results of others.
#[derive(Clone, Default)]
pub struct SecretRedactor(Vec<String>);

impl SecretRedactor {
    /// Adds a value that may be secret, and its lines: a text may repeat single lines or other line
    /// ends. Ignores short ones.
    pub fn add(&mut self, secret: &str) {
        let parts = std::iter::once(secret).chain(secret.lines().map(str::trim));
        self.0.extend(parts.filter(|part| part.len() >= SECRET_LENGTH_MIN).map(str::to_owned));
        self.sort();
    }

    /// Adds a value that is a secret, of any length.
    pub fn add_key(&mut self, key: &str) {
        if !key.is_empty() {
            self.0.push(key.to_owned());
            self.sort();
        }
    }

    /// Sorts longer secrets first: replacing a part would leave the rest of the whole.
    fn sort(&mut self) {
        self.0.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.0.dedup();
    }

    /// Returns the length of the longest secret.
    pub fn longest_secret(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    pub fn redact(&self, text: String) -> String {
        let redact_one = |text: String, secret: &String| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), "[secret]"),
            false => text,
        };
        self.0.iter().fold(text, redact_one)
    }
}

impl Debug for SecretRedactor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secrets]", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_and_not_printed() {
        let mut secrets = SecretRedactor::default();
        secrets.add("hunter2-hunter2");
        secrets.add("ab");
        let text = secrets.redact("about hunter2-hunter2, twice: hunter2-hunter2".into());
        assert_eq!(text, "about [secret], twice: [secret]");
        assert!(!format!("{secrets:?}").contains("hunter2"));
        secrets.add_key("");
        secrets.add_key("ab");
        assert_eq!(secrets.redact("cab".into()), "c[secret]");
    }

    #[test]
    fn a_secret_of_several_lines_is_redacted_line_by_line() {
        let mut secrets = SecretRedactor::default();
        secrets.add("MIIEvQ");
        secrets.add("-----BEGIN-----\nMIIEvQIBADAN\nc3RhZ2luZw==\n-----END-----");
        let whole = "-----BEGIN-----\nMIIEvQIBADAN\nc3RhZ2luZw==\n-----END-----".to_owned();
        assert_eq!(secrets.redact(whole), "[secret]");
        let text = secrets.redact(r#"{"key":"x\nMIIEvQIBADAN\nc3RhZ2luZw==\n"}"#.to_owned());
        assert_eq!(text, r#"{"key":"x\n[secret]\n[secret]\n"}"#);
    }
}
