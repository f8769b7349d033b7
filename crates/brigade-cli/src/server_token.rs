//! The token of the command line for a server. It is never an argument, which others could read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use brigade_protocol::remote_daemon::TOKEN_VARIABLE;

/// The variable that names the file with the token.
pub(crate) const TOKEN_FILE_VARIABLE: &str = "BRIGADE_TOKEN_FILE";

/// The longest file that can hold a token.
const TOKEN_BYTES_MAX: u64 = 4 * 1024;

/// The place of a token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    Text(String),
    /// The file is read at each connection, so that a new token needs no restart.
    File(PathBuf),
    Missing,
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Missing => f.write_str("Missing"),
        }
    }
}

impl TokenSource {
    /// Returns the token of the environment, else that of the configuration.
    pub(crate) fn from_env(configured_file: Option<PathBuf>) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(text) = set(TOKEN_VARIABLE) {
            return Self::Text(text.to_string_lossy().into_owned());
        }
        let file = set(TOKEN_FILE_VARIABLE).map(PathBuf::from).or(configured_file);
        file.map_or(Self::Missing, Self::File)
    }

    /// Returns the token. The error says what to do, and does not repeat the token.
    pub(crate) fn read(&self) -> Result<String, String> {
        let (text, place) = match self {
            Self::Text(text) => (text.clone(), TOKEN_VARIABLE.to_owned()),
            Self::File(path) => {
                let place = path.display().to_string();
                let text =
                    read_file(path).map_err(|error| format!("the token: {place}: {error}"))?;
                (text, place)
            }
            Self::Missing => {
                return Err(format!(
                    "no token is set; `brigade token add NAME` on that machine makes one: put it into \
                     {TOKEN_VARIABLE}, or into a file that {TOKEN_FILE_VARIABLE} names"
                ));
            }
        };
        let token = text.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match is_token {
            true => Ok(token.to_owned()),
            false => Err(format!("{place} holds no token: it is one word")),
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_never_shown() {
        let text = |text: &str| TokenSource::Text(text.to_owned());
        assert_eq!(text(" abc\n").read(), Ok("abc".to_owned()));
        for wrong in ["", " ", "sec ret", "sec\u{1b}ret", "secr\u{e9}t"] {
            let error = text(wrong).read().expect_err(wrong);
            assert!(error.contains(TOKEN_VARIABLE) && !error.contains("ret"), "{error}");
        }
        assert!(!format!("{:?}", text("secret")).contains("secret"));
        let missing = TokenSource::Missing.read().expect_err("no token");
        assert!(missing.contains("brigade token add"), "{missing}");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let missing = TokenSource::File(path.clone()).read().expect_err("no file");
        assert!(missing.contains("No such file"), "{missing}");
        std::fs::write(&path, "abc\n").expect("a file");
        assert_eq!(TokenSource::File(path).read(), Ok("abc".to_owned()));
    }
}
