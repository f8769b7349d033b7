//! Marks of a login that can be seen without a model call: files and variables with credentials.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The table `login` of an adapter or of an ACP agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoginMarks {
    /// Files with credentials. A path begins with `/`, `~/` or `$VARIABLE/`.
    pub files: Vec<String>,
    /// Variables with credentials.
    pub variables: Vec<String>,
    /// The action of a person who is not logged in, such as "run `claude` and log in".
    pub hint: Option<String>,
}

/// The login of a person with an agent program, as far as it can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// There are credentials. They may have expired.
    Found,
    /// No known place has credentials.
    NotFound,
    /// No place for credentials is known.
    Unknown,
}

impl LoginMarks {
    /// Looks for credentials. `variable` returns the value of an environment variable.
    pub fn find_login(&self, variable: &dyn Fn(&str) -> Option<String>) -> LoginState {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if self.files.is_empty() && self.variables.is_empty() {
            return LoginState::Unknown;
        }
        let has_variable = self.variables.iter().any(|name| set(name).is_some());
        match has_variable || !self.find_files(variable).is_empty() {
            true => LoginState::Found,
            false => LoginState::NotFound,
        }
    }

    /// Returns the files with credentials. `variable` returns the value of an environment variable.
    pub fn find_files(&self, variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let paths = self.files.iter().filter_map(|file| expand_path(file, &set));
        paths.filter(|path| has_content(path)).collect()
    }

    /// Returns the first path that is not absolute.
    pub(crate) fn find_relative_path(&self) -> Option<&str> {
        let is_absolute =
            |file: &&String| ["/", "~/", "$"].iter().any(|start| file.starts_with(start));
        self.files.iter().find(|file| !is_absolute(file)).map(String::as_str)
    }
}

/// Returns the path with the home directory or the variable at its beginning replaced.
fn expand_path(file: &str, set: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(of_home) = file.strip_prefix("~/") {
        return Some(Path::new(&set("HOME")?).join(of_home));
    }
    match file.strip_prefix('$') {
        Some(of_variable) => {
            let (variable, path) = of_variable.split_once('/')?;
            Some(Path::new(&set(variable)?).join(path))
        }
        None => Some(file.into()),
    }
}

fn has_content(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_seen_by_a_variable_or_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join("auth.json"), "{}").unwrap();
        std::fs::write(home.join("empty.json"), "").unwrap();
        let home = home.to_str().unwrap();
        let marks = |files: &[&str], variables: &[&str]| LoginMarks {
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            variables: variables.iter().map(|name| (*name).to_owned()).collect(),
            hint: None,
        };
        let variable = |name: &str| match name {
            "HOME" | "COOK_HOME" => Some(home.to_owned()),
            "COOK_KEY" => Some("x".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let absolute = format!("{home}/auth.json");
        for (files, variables, expect) in [
            (&[][..], &[][..], LoginState::Unknown),
            (&[], &["COOK_KEY"], LoginState::Found),
            (&[], &["EMPTY", "UNSET"], LoginState::NotFound),
            (&["~/auth.json"], &[], LoginState::Found),
            (&["$COOK_HOME/auth.json"], &[], LoginState::Found),
            (&[absolute.as_str()], &["UNSET"], LoginState::Found),
            (&["~/empty.json", "$UNSET/auth.json", "~/none"], &[], LoginState::NotFound),
        ] {
            let state = marks(files, variables).find_login(&variable);
            assert_eq!(state, expect, "{files:?} {variables:?}");
        }
        let found = marks(&["~/none", "~/auth.json"], &[]).find_files(&variable);
        assert_eq!(found, [PathBuf::from(&absolute)]);
        assert_eq!(marks(&["~/a", "/b", "$C/d"], &[]).find_relative_path(), None);
        assert_eq!(marks(&["~/a", "b"], &[]).find_relative_path(), Some("b"));
    }
}
