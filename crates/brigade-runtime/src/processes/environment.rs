//! The environment of a process.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use brigade_model::work::EnvValue;

use super::options::PassedVariables;

/// The variable with the address of the task, such as `session/process:4`.
pub(crate) const TASK_VARIABLE: &str = "BRIGADE_TASK";

/// The largest length of a value that the kernel accepts.
const VALUE_MAX: u64 = 128 * 1024;

/// Returns the variables of this process that are on the list, in order.
pub(crate) fn collect_passed(list: &PassedVariables) -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| is_passed(list, name)).collect()
}

fn is_passed(list: &PassedVariables, name: &OsStr) -> bool {
    !is_withheld(list, name) && list.names.iter().any(|item| matches_name(item, name))
}

/// Returns true if a variable is a secret that the list does not pass by its whole name.
pub(crate) fn is_withheld(list: &PassedVariables, name: &OsStr) -> bool {
    let has = |names: &[String]| names.iter().any(|item| name == item.as_str());
    has(&list.withheld) && !has(&list.names)
}

fn matches_name(item: &str, name: &OsStr) -> bool {
    match item.strip_suffix('*') {
        Some(prefix) => name.to_str().is_some_and(|name| name.starts_with(prefix)),
        None => name == item,
    }
}

/// Returns a value, or the current value of a reference. The error names only the reference.
pub(crate) fn resolve_value(name: &str, value: &EnvValue) -> Result<OsString, String> {
    match value {
        EnvValue::Text(text) => Ok(OsString::from(&**text)),
        EnvValue::FromEnv(variable) => std::env::var_os(&**variable).ok_or_else(|| {
            format!("{name} refers to {variable} of the runtime's environment, which is not set")
        }),
        EnvValue::FromFile(path) => {
            let problem = |problem: &str| format!("{name} refers to the file {path}: {problem}");
            let text = read_value_file(Path::new(&**path)).map_err(|e| problem(&e.to_string()))?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            if text.contains('\0') {
                return Err(problem("it contains a NUL byte"));
            }
            Ok(OsString::from(text))
        }
    }
}

/// Returns the content of a plain file. A pipe or a device might never end.
fn read_value_file(path: &Path) -> io::Result<String> {
    let invalid = |problem| Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    if !fs::metadata(path)?.is_file() {
        return invalid("it is not a plain file");
    }
    let mut text = String::new();
    File::open(path)?.take(VALUE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > VALUE_MAX {
        return invalid("it is longer than 128 KiB");
    }
    Ok(text)
}

/// Sets a variable, and replaces an existing one of the same name.
pub(crate) fn set_variable(env: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    env.retain(|(other, _)| other != name);
    env.push((OsString::from(name), value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_passed_on() {
        for (item, name, expect) in [
            ("PATH", "PATH", true),
            ("PATH", "PATHS", false),
            ("LC_*", "LC_ALL", true),
            ("LC_*", "LANG", false),
            ("*", "ANYTHING", true),
        ] {
            assert_eq!(matches_name(item, OsStr::new(name)), expect, "{item} {name}");
        }
        let list = |names: &[&str], withheld: &[&str]| PassedVariables {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            withheld: withheld.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(collect_passed(&list(&["PATH"], &[])).len(), 1);
        assert!(collect_passed(&list(&[], &[])).is_empty());
        let key = OsStr::new("A_KEY");
        assert!(is_passed(&list(&["*"], &[]), key));
        assert!(!is_passed(&list(&["*", "A_*"], &["A_KEY"]), key), "a `*` passes no secret");
        assert!(is_passed(&list(&["*", "A_KEY"], &["A_KEY"]), key), "its name does");
    }

    #[test]
    fn references_are_read_when_they_are_needed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "hidden\n").unwrap();
        let from_file = EnvValue::FromFile(file.path().to_str().unwrap().into());
        assert_eq!(resolve_value("KEY", &from_file), Ok("hidden".into()));
        let path = std::env::var_os("PATH").unwrap();
        assert_eq!(resolve_value("P", &EnvValue::FromEnv("PATH".into())), Ok(path));
        let unset = resolve_value("KEY", &EnvValue::FromEnv("BRIGADE_TEST_NOT_SET".into()));
        assert!(unset.unwrap_err().contains("BRIGADE_TEST_NOT_SET of the runtime's environment"));
        for (path, expect) in [("/dev/zero", "plain file"), ("/nowhere/at/all", "No such file")] {
            let refused = resolve_value("KEY", &EnvValue::FromFile(path.into())).unwrap_err();
            assert!(refused.contains(expect), "{refused}");
        }
        fs::write(file.path(), "x".repeat(VALUE_MAX as usize + 1)).unwrap();
        assert!(resolve_value("KEY", &from_file).unwrap_err().contains("longer than"));
        fs::write(file.path(), "hid\0den").unwrap();
        let refused = resolve_value("KEY", &from_file).unwrap_err();
        assert!(refused.contains("NUL") && !refused.contains("hid\0den"), "{refused}");
    }
}
