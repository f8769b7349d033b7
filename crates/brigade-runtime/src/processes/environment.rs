//! The environment that a command gets.

use std::ffi::{OsStr, OsString};
use std::fs;

use brigade_model::work::EnvValue;

/// Who the command is: `session/process:4`.
pub(crate) const TASK: &str = "BRIGADE_TASK";

/// Variables of this process that are on the list, in their order.
pub(crate) fn passed(list: &[String]) -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| list.iter().any(|item| admits(item, name))).collect()
}

fn admits(item: &str, name: &OsStr) -> bool {
    match item.strip_suffix('*') {
        Some(prefix) => name.to_str().is_some_and(|name| name.starts_with(prefix)),
        None => name == item,
    }
}

/// What a value is, or what a reference stands for now. The error names the reference only.
pub(crate) fn resolve(name: &str, value: &EnvValue) -> Result<OsString, String> {
    match value {
        EnvValue::Text(text) => Ok(OsString::from(&**text)),
        EnvValue::FromEnv(variable) => std::env::var_os(&**variable).ok_or_else(|| {
            format!("{name} is to be {variable} of the runtime's environment, which is not set")
        }),
        EnvValue::FromFile(path) => {
            let problem = |what: &str| format!("{name} is to be read from {path}: {what}");
            let text = fs::read_to_string(&**path).map_err(|e| problem(&e.kind().to_string()))?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            if text.contains('\0') {
                return Err(problem("it contains a NUL byte"));
            }
            Ok(OsString::from(text))
        }
    }
}

/// Sets variables over those that are there.
pub(crate) fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    env.retain(|(other, _)| other != name);
    env.push((OsString::from(name), value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_passed_on() {
        for (item, name, expect) in [
            ("PATH", "PATH", true),
            ("PATH", "PATHS", false),
            ("LC_*", "LC_ALL", true),
            ("LC_*", "LANG", false),
            ("*", "ANYTHING", true),
        ] {
            assert_eq!(admits(item, OsStr::new(name)), expect, "{item} {name}");
        }
        let all = passed(&["PATH".to_owned()]);
        assert_eq!(all.len(), 1);
        assert!(passed(&[]).is_empty());
    }

    #[test]
    fn references_are_read_when_they_are_needed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "hidden\n").unwrap();
        let from_file = EnvValue::FromFile(file.path().to_str().unwrap().into());
        assert_eq!(resolve("KEY", &from_file), Ok("hidden".into()));
        let path = std::env::var_os("PATH").unwrap();
        assert_eq!(resolve("P", &EnvValue::FromEnv("PATH".into())), Ok(path));
        let unset = resolve("KEY", &EnvValue::FromEnv("BRIGADE_TEST_NOT_SET".into()));
        assert!(unset.unwrap_err().contains("BRIGADE_TEST_NOT_SET of the runtime's environment"));
        fs::write(file.path(), "hid\0den").unwrap();
        let refused = resolve("KEY", &from_file).unwrap_err();
        assert!(refused.contains("NUL") && !refused.contains("hid\0den"), "{refused}");
    }
}
