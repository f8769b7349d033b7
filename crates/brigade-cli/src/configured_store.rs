//! The store of the daemon, as a flag, a variable or the configuration names it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use brigade_postgres::PostgresOptions;
use brigade_protocol::daemon_launcher::{SQLITE_STORE, STORE_VARIABLE};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::UserConfig;

/// The longest file that can hold a URL.
const URL_BYTES_MAX: u64 = 16 * 1024;

/// A store. Neither `Debug` nor the serialized form contains a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StoreSetting {
    /// The file in the state directory.
    Sqlite,
    /// The URL of a PostgreSQL database.
    Url(String),
    /// A file that holds the URL of a PostgreSQL database and nothing else.
    File(PathBuf),
}

impl StoreSetting {
    /// Returns the store of the variable, else of the configuration, else the file in the state
    /// directory.
    pub(crate) fn resolve(config: &UserConfig) -> Self {
        let variable = std::env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty());
        // A text that is not UTF-8 is no valid URL either, and is refused as one.
        let variable = variable.map(|value| Self::parse(&value.to_string_lossy()));
        variable.or_else(|| config.store.clone()).unwrap_or(Self::Sqlite)
    }

    pub(crate) fn parse(text: &str) -> Self {
        match text {
            SQLITE_STORE => Self::Sqlite,
            url => Self::Url(url.to_owned()),
        }
    }

    /// Checks the setting without reading a file. The error does not repeat it.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Sqlite => Ok(()),
            Self::Url(url) => parse_url(url).map(|_| ()),
            Self::File(path) if path.is_absolute() => Ok(()),
            // The daemon has another working directory. The text may be the URL itself.
            Self::File(_) => Err("`file` is not an absolute path".to_owned()),
        }
    }

    /// Returns the options of a store on PostgreSQL, or `None` for the file in the state directory.
    /// The error does not repeat the URL.
    pub(crate) fn read_options(&self) -> Result<Option<PostgresOptions>, String> {
        match self {
            Self::Sqlite => Ok(None),
            Self::Url(url) => parse_url(url).map(Some),
            Self::File(path) => {
                let shown = path.display();
                let text = read_url_file(path).map_err(|error| format!("{shown}: {error}"))?;
                parse_url(text.trim()).map(Some).map_err(|problem| format!("{shown}: {problem}"))
            }
        }
    }

    /// Returns the database as messages name it, or `None` for the file in the state directory.
    pub(crate) fn shown_database(&self) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Url(url) => Some(match PostgresOptions::from_url(url) {
                Ok(options) => options.to_string(),
                Err(_) => "a database whose URL is not valid".to_owned(),
            }),
            Self::File(path) => Some(format!("the database that {} names", path.display())),
        }
    }
}

fn parse_url(url: &str) -> Result<PostgresOptions, String> {
    PostgresOptions::from_url(url).map_err(|error| format!("{error}; write sqlite or postgres://…"))
}

fn read_url_file(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(URL_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Removes the password from a URL, and leaves everything else as it is.
fn redact_password(url: &str) -> String {
    let (place, settings) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = place.split_once("://").unwrap_or(("postgres", place));
    let rest = match rest.rsplit_once('@') {
        Some((login, host)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("{user}@{host}")
        }
        None => rest.to_owned(),
    };
    let settings = settings.split('&').filter(|setting| !setting.is_empty());
    let settings: Vec<&str> = settings.filter(|it| !it.starts_with("password=")).collect();
    match settings.as_slice() {
        [] => format!("{scheme}://{rest}"),
        settings => format!("{scheme}://{rest}?{}", settings.join("&")),
    }
}

impl fmt::Debug for StoreSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite => f.write_str("Sqlite"),
            Self::Url(url) => f.debug_tuple("Url").field(&redact_password(url)).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// The form of a setting in the configuration.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoreField {
    Text(String),
    /// `file` with its path. A struct would also accept a list.
    Source(BTreeMap<String, PathBuf>),
}

const FILE_KEY: &str = "file";

impl Serialize for StoreSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let field = match self {
            Self::Sqlite => StoreField::Text(SQLITE_STORE.to_owned()),
            Self::Url(url) => StoreField::Text(redact_password(url)),
            Self::File(path) => StoreField::Source([(FILE_KEY.to_owned(), path.clone())].into()),
        };
        field.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StoreSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The error must not quote the file.
        let wrong = || {
            D::Error::custom(
                "write \"sqlite\", \"postgres://USER@HOST/DATABASE\" or { file = \"/PATH\" }",
            )
        };
        match StoreField::deserialize(from).map_err(|_| wrong())? {
            StoreField::Text(text) => Ok(Self::parse(&text)),
            StoreField::Source(mut source) => match (source.remove(FILE_KEY), source.is_empty()) {
                (Some(file), true) => Ok(Self::File(file)),
                _ => Err(wrong()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> UserConfig {
        toml::from_str(text).expect("a configuration")
    }

    #[test]
    fn no_form_of_a_setting_shows_a_password() {
        for url in [
            "postgres://ada:s3cret@db/kitchen?sslmode=require",
            "postgres://ada@db/kitchen?password=s3cret&sslmode=require",
            "postgres://ada:a:s3cret@db/kitchen?sslmode=require",
        ] {
            let config = config(&format!("store = \"{url}\"\n"));
            let shown = "postgres://ada@db/kitchen?sslmode=require";
            assert_eq!(redact_password(url), shown);
            let json = serde_json::to_string(&config).expect("JSON");
            let debug = format!("{config:?}");
            let toml = config.to_toml().expect("TOML");
            for text in [json, debug, toml] {
                assert!(text.contains(shown) && !text.contains("s3cret"), "{text}");
            }
            let setting = config.store.expect("a store");
            assert_eq!(setting.shown_database().as_deref(), Some("postgres://ada@db/kitchen"));
        }
    }

    #[test]
    fn a_wrong_setting_is_refused_without_its_text() {
        for wrong in ["s3cret", "mysql://ada:s3cret@db/k", "postgres://ada:s3cret@db", ""] {
            let problem = StoreSetting::parse(wrong).check().expect_err(wrong);
            assert!(!problem.contains("s3cret") && problem.contains("not valid"), "{problem}");
        }
        let relative = StoreSetting::File("s3cret".into()).check().expect_err("a relative path");
        assert_eq!(relative, "`file` is not an absolute path");
        for wrong in ["store = 1", "store = [\"s3cret\"]", "store = { url = \"s3cret\" }"] {
            let error = toml::from_str::<UserConfig>(wrong).expect_err(wrong).message().to_owned();
            assert!(error.contains("write \"sqlite\"") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_file_holds_the_url() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let setting = config(&format!("store = {{ file = {path:?} }}\n")).store.expect("a store");
        let problem = setting.read_options().expect_err("there is no file");
        assert!(problem.contains("store: No such file"), "{problem}");
        std::fs::write(&path, "postgres://ada:s3cret@db/kitchen\n").expect("a file");
        let options = setting.read_options().expect("a URL").expect("a database");
        assert_eq!(options.to_string(), "postgres://ada@db/kitchen");
        std::fs::write(&path, "s3cret\n").expect("a file");
        let problem = setting.read_options().expect_err("no URL");
        assert!(problem.contains("not valid") && !problem.contains("s3cret"), "{problem}");
        assert_eq!(config("store = \"sqlite\"").store, Some(StoreSetting::Sqlite));
    }
}
