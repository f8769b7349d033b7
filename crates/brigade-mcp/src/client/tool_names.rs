//! The names of MCP tools for agents: `SERVER__TOOL`.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// The longest name that every provider accepts.
const NAME_MAX: usize = 64;

/// Returns the prefix of all tool names of a server.
pub(super) fn prefix(server: &str) -> String {
    format!("{server}__")
}

/// Assigns names to tools, in their order. A name that had to be changed, or that would not be
/// unique, gets a stable hash suffix. A duplicate tool or one without a name gets none.
pub(super) fn assign_names(server: &str, tools: &[&str]) -> Vec<Option<String>> {
    let plain: Vec<String> = tools.iter().map(|tool| replace_special_chars(tool)).collect();
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for (at, name) in plain.iter().enumerate() {
        if !tools[..at].contains(&tools[at]) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let prefix = prefix(server);
    let max_length = NAME_MAX.saturating_sub(prefix.len());
    let assign = |at: usize, tool: &str| {
        if tool.is_empty() || tools[..at].contains(&tool) {
            return None;
        }
        let name = &plain[at];
        let is_unchanged = name == tool;
        let is_unique = is_unchanged || counts.get(name.as_str()) == Some(&1);
        if is_unique && name.len() <= max_length {
            return Some(format!("{prefix}{name}"));
        }
        let suffix = format!("_{:06x}", xxh3_64(tool.as_bytes()) & 0xff_ffff);
        let truncated = &name[..name.len().min(max_length.saturating_sub(suffix.len()))];
        Some(format!("{prefix}{truncated}{suffix}"))
    };
    tools.iter().enumerate().map(|(at, tool)| assign(at, tool)).collect()
}

/// Replaces the characters that some providers reject.
fn replace_special_chars(tool: &str) -> String {
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    tool.chars().map(|c| if is_accepted(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(tools: &[&str]) -> Vec<String> {
        assign_names("srv", tools).into_iter().map(Option::unwrap_or_default).collect()
    }

    #[test]
    fn a_tool_is_named_after_its_server() {
        assert_eq!(
            named(&["read", "repo.search", "a b"]),
            ["srv__read", "srv__repo_search", "srv__a_b"]
        );
    }

    #[test]
    fn conflicting_names_get_a_suffix() {
        let names = named(&["a.b", "a_b", "a/b"]);
        assert_eq!(names[1], "srv__a_b");
        assert!(names[0].starts_with("srv__a_b_") && names[2].starts_with("srv__a_b_"));
        assert_ne!(names[0], names[2]);
        assert_eq!(named(&["a/b", "a_b", "a.b"])[0], names[2], "in any order");
    }

    #[test]
    fn long_names_are_truncated_and_stay_unique() {
        let one = "x".repeat(200) + "1";
        let other = "x".repeat(200) + "2";
        let long = named(&[&one, &other, &"é".repeat(100)]);
        assert!(long.iter().all(|name| name.len() <= NAME_MAX), "{long:?}");
        assert_ne!(long[0], long[1]);
    }

    #[test]
    fn a_duplicate_tool_gets_one_name() {
        assert_eq!(assign_names("srv", &["a", "a", ""]), [Some("srv__a".to_owned()), None, None]);
    }
}
