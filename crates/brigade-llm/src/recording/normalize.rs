//! Differences that a replay ignores.
//!
//! | text | meaning |
//! |---|---|
//! | `agent:7`, `process:7`, `job:7` | an address of the same kind, with any number |
//! | `2026-11-16`, `2026-11-16T06:30:12.5Z` | a date, with or without a time |
//! | `06:30:12`, `06:30` | a time |
//! | `1.5s`, `350 ms`, `2 minutes`, `2m 3s` | a duration |
//! | `mark-1f0c5a9be2d34c77` | a quote mark |
//! | ten digits and more | a time in seconds or milliseconds |

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

const VARIABLE_TEXT_PATTERN: &str = r"(?x)
    (?-u:\b)(?P<kind>agent|process|job):[0-9]+(?-u:\b)
    | (?-u:\b)mark-[0-9a-f]{16}(?-u:\b)
    | (?-u:\b)[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T\ ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?
    | (?-u:\b)[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?-u:\b)
    | (?-u:\b)[0-9]+(?:\.[0-9]+)?\ ?(?:ms|s|m|h|d|milliseconds?|seconds?|minutes?|hours?|days?)(?-u:\b)
    | (?-u:\b)[0-9]{10,}(?-u:\b)";

static VARIABLE_TEXT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(VARIABLE_TEXT_PATTERN).expect("the pattern is a valid regex"));

/// Replaces everything that may differ by a placeholder.
pub fn normalize(text: &str) -> String {
    let placeholder = |found: &Captures<'_>| match found.name("kind") {
        Some(kind) => format!("{}:#", kind.as_str()),
        None => "#".to_owned(),
    };
    VARIABLE_TEXT.replace_all(text, placeholder).into_owned()
}

/// The addresses of a recording, mapped to those of the current run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AddressMap(BTreeMap<String, String>);

impl AddressMap {
    /// Learns the addresses of two texts that are equal except for allowed differences.
    pub(super) fn learn(&mut self, recorded: &str, current: &str) {
        for (recorded, current) in find_addresses(recorded).zip(find_addresses(current)) {
            self.0.insert(recorded.to_owned(), current.to_owned());
        }
    }

    /// Replaces the addresses of a recorded text by those of the current run.
    pub(super) fn translate(&self, text: &str) -> String {
        let known = |found: &Captures<'_>| {
            let found = &found[0];
            self.0.get(found).map_or_else(|| found.to_owned(), Clone::clone)
        };
        VARIABLE_TEXT.replace_all(text, known).into_owned()
    }

    pub(super) fn is_identity(&self) -> bool {
        self.0.iter().all(|(recorded, current)| recorded == current)
    }
}

fn find_addresses(text: &str) -> impl Iterator<Item = &str> {
    let found = VARIABLE_TEXT.captures_iter(text);
    found
        .filter(|found| found.name("kind").is_some())
        .filter_map(|found| found.get(0))
        .map(|it| it.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_times_may_differ() {
        for (one, other, same) in [
            ("agent:2 has started", "agent:17 has started", true),
            ("agent:2 has started", "process:2 has started", false),
            ("succeeded after 1.25s", "succeeded after 350 ms", true),
            ("at 2026-11-16T06:30:12Z", "at 2027-01-02T23:59:59.123+01:00", true),
            ("since 06:30", "since 23:59:01", true),
            ("since 1731738612000", "since 1831738612000", true),
            ("three mushrooms, 3 of them", "three mushrooms, 4 of them", false),
            ("</note mark-00112233445566aa>", "</note mark-99887766554433ff>", true),
            ("mark-0011", "mark-0012", false),
            ("version 1.2", "version 1.3", false),
            ("line 12: x", "line 13: x", false),
        ] {
            assert_eq!(normalize(one) == normalize(other), same, "{one:?} and {other:?}");
        }
    }

    #[test]
    fn a_recorded_address_becomes_the_current_one() {
        let mut addresses = AddressMap::default();
        addresses.learn("agent:2 and process:3 run", "agent:7 and process:9 run");
        assert_eq!(
            addresses.translate(r#"["process:3", "agent:2", "agent:4"]"#),
            r#"["process:9", "agent:7", "agent:4"]"#
        );
    }
}
