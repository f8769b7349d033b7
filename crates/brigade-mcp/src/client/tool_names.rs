//! What an agent calls a tool of a server: `SERVER__TOOL`.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// The longest name that every provider takes.
const NAME_MAX: usize = 64;

/// What stands before the tools of a server.
pub(super) fn prefix(server: &str) -> String {
    format!("{server}__")
}

/// Names for tools, in their order. One that could not stand as it is, or whose name another one
/// comes to as well, has a mark that is always the same; a tool that is there twice has none the
/// second time.
pub(super) fn assign_names(server: &str, tools: &[&str]) -> Vec<Option<String>> {
    let plain: Vec<String> = tools.iter().map(|tool| replace_special_chars(tool)).collect();
    let mut bearers: HashMap<&str, u32> = HashMap::new();
    for (at, name) in plain.iter().enumerate() {
        if !tools[..at].contains(&tools[at]) {
            *bearers.entry(name).or_default() += 1;
        }
    }
    let prefix = prefix(server);
    let room = NAME_MAX.saturating_sub(prefix.len());
    let named = |(at, tool): (usize, &&str)| {
        if tool.is_empty() || tools[..at].contains(tool) {
            return None;
        }
        let name = &plain[at];
        let is_itself = name == tool;
        let is_clear = is_itself || bearers.get(name.as_str()) == Some(&1);
        if is_clear && name.len() <= room {
            return Some(format!("{prefix}{name}"));
        }
        let mark = format!("_{:06x}", xxh3_64(tool.as_bytes()) & 0xff_ffff);
        let kept = &name[..name.len().min(room.saturating_sub(mark.len()))];
        Some(format!("{prefix}{kept}{mark}"))
    };
    tools.iter().enumerate().map(named).collect()
}

/// With the characters that all providers take.
fn replace_special_chars(tool: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    tool.chars().map(|c| if fits(c) { c } else { '_' }).collect()
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
    fn names_that_would_clash_are_told_apart() {
        let clash = named(&["a.b", "a_b", "a/b"]);
        assert_eq!(clash[1], "srv__a_b");
        assert!(clash[0].starts_with("srv__a_b_") && clash[2].starts_with("srv__a_b_"));
        assert_ne!(clash[0], clash[2]);
        assert_eq!(named(&["a/b", "a_b", "a.b"])[0], clash[2], "whatever the order");
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let (one, other) = ("x".repeat(200) + "1", "x".repeat(200) + "2");
        let long = named(&[&one, &other, &"é".repeat(100)]);
        assert!(long.iter().all(|name| name.len() <= NAME_MAX), "{long:?}");
        assert_ne!(long[0], long[1]);
    }

    #[test]
    fn a_tool_that_is_there_twice_is_there_once() {
        assert_eq!(assign_names("srv", &["a", "a", ""]), [Some("srv__a".to_owned()), None, None]);
    }
}
