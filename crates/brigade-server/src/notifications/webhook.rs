//! A URL that receives notifications, and the secret that signs them.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use reqwest::Url;

/// Larger than any secret, so that a file named by mistake is not read whole.
const SECRET_FILE_MAX: u64 = 64 * 1024;
/// The shortest secret. A shorter one can be guessed from a signature.
const SECRET_BYTES_MIN: usize = 16;

/// A receiver over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub url: WebhookText,
    /// The secret that signs each request; `None` sends them unsigned.
    pub secret: Option<WebhookText>,
    /// Plain HTTP is allowed to other hosts than this machine.
    pub allow_http: bool,
}

/// A text, or its place. A place is read for each attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookText {
    Plain(SecretText),
    Env(String),
    File(PathBuf),
}

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl Webhook {
    /// Checks a URL of the configuration. The error does not quote it, because it may be a secret.
    pub fn check(&self) -> Result<(), String> {
        match &self.url {
            WebhookText::Plain(url) => self.parse_url(url).map(|_| ()),
            WebhookText::Env(_) | WebhookText::File(_) => Ok(()),
        }
    }

    /// Reads the URL.
    pub(super) fn read_url(&self) -> Result<Url, String> {
        self.parse_url(&self.url.read("the URL")?)
    }

    fn parse_url(&self, url: &SecretText) -> Result<Url, String> {
        let url = Url::parse(url.expose())
            .map_err(|_| "url: write a URL such as https://example.com/hook".to_owned())?;
        match url.scheme() {
            "https" => Ok(url),
            "http" if self.allow_http || is_loopback(&url) => Ok(url),
            "http" => Err("url: over http, notifications go to this machine only; write https, \
                           or set allow_http = true"
                .to_owned()),
            _ => Err("url: write a URL that begins with https://".to_owned()),
        }
    }

    /// Reads the secret, if the webhook has one.
    pub(super) fn read_secret(&self) -> Result<Option<SecretText>, String> {
        let Some(secret) = &self.secret else { return Ok(None) };
        let secret = secret.read("the secret")?;
        match secret.expose().len() < SECRET_BYTES_MIN {
            true => {
                Err(format!("the secret has fewer than {SECRET_BYTES_MIN} bytes; use a longer one"))
            }
            false => Ok(Some(secret)),
        }
    }
}

impl WebhookText {
    /// Reads the text, without spaces around it. The error says what to do.
    fn read(&self, subject: &str) -> Result<SecretText, String> {
        let text = match self {
            Self::Plain(text) => return Ok(text.clone()),
            Self::Env(name) => std::env::var(name).map_err(|_| {
                format!("set the environment variable {name} of the daemon to {subject}")
            })?,
            Self::File(path) => {
                let shown = path.display();
                let size = fs::metadata(path).map(|found| found.len()).unwrap_or(0);
                if size > SECRET_FILE_MAX {
                    return Err(format!("{shown} is too large; put only {subject} there"));
                }
                fs::read_to_string(path)
                    .map_err(|error| format!("put {subject} into {shown}: {error}"))?
            }
        };
        Ok(SecretText(text.trim().to_owned()))
    }
}

/// Returns whether a URL names this machine by its loopback interface.
pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check(url: &str, allow_http: bool) -> Result<(), String> {
        let url = WebhookText::Plain(url.to_owned().into());
        Webhook { url, secret: None, allow_http }.check()
    }

    #[test]
    fn plain_http_reaches_this_machine_only() {
        for url in
            ["https://a.example/x", "http://127.0.0.1:1/x", "http://[::1]/", "http://localhost/"]
        {
            assert_eq!(check(url, false), Ok(()), "{url}");
        }
        assert_eq!(check("http://a.example/", true), Ok(()));
        for url in ["http://a.example/key", "ftp://a.example/key", "key", ""] {
            let problem = check(url, false).unwrap_err();
            assert!(!problem.contains("key") && problem.starts_with("url: "), "{problem}");
        }
    }

    #[test]
    fn a_secret_is_long_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        let webhook = |file: &Path| Webhook {
            url: WebhookText::Plain("https://a.example/".to_owned().into()),
            secret: Some(WebhookText::File(file.to_owned())),
            allow_http: false,
        };
        let secret = webhook(&path).read_secret().unwrap().unwrap();
        assert_eq!(secret.expose(), "0123456789abcdef");
        assert_eq!(format!("{secret:?}"), "[secret]");
        fs::write(&path, "short").unwrap();
        assert!(webhook(&path).read_secret().unwrap_err().contains("fewer than 16"));
        let missing = webhook(&dir.path().join("missing")).read_secret().unwrap_err();
        assert!(missing.starts_with("put the secret into "), "{missing}");
    }
}
