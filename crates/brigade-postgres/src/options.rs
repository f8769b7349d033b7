//! The settings of a store on PostgreSQL.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::tls::{CertificateCheck, TlsOptions};

/// The schema of a URL that names none.
pub const DEFAULT_SCHEMA: &str = "brigade";
/// The most bytes of the name of a schema.
const SCHEMA_MAX: usize = 48;
const DEFAULT_CONNECTIONS: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which a connection whose peer does not answer is given up.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);

/// The time without data after which a connection is tested, and between two tests.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The settings of a [`PostgresStore`](crate::PostgresStore).
///
/// The URL is that of PostgreSQL's own programs, such as `postgres://ada@db1,db2/kitchen`. Of several
/// hosts, the one that accepts writes is used. `sslmode` is `disable`, `prefer` (the default), `require`,
/// `verify-ca` or `verify-full`; `sslrootcert` names the file of trusted authorities, which
/// `require` then checks too. `schema` is the
/// schema of the tables (`brigade` by default), and `connections` the most connections (8 by default).
///
/// Nodes hear of each other's changes by LISTEN. `listen_url` is another URL for it, percent-encoded, if a
/// pooler is in front of the database. With `listen=off`, nodes only poll.
///
/// ```
/// use brigade_postgres::PostgresOptions;
///
/// let url = "postgres://ada:secret@db1,db2/kitchen?sslmode=verify-full&schema=staging";
/// let options = PostgresOptions::from_url(url)?;
/// assert_eq!(options.to_string(), "postgres://ada@db1,db2/kitchen");
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), brigade_postgres::InvalidUrl>(())
/// ```
#[derive(Clone)]
pub struct PostgresOptions {
    config: Config,
    /// The URL without the password and the settings.
    shown: String,
    tls: TlsOptions,
    schema: String,
    connections: usize,
    listen: ListenSetting,
}

/// The connection for LISTEN.
#[derive(Clone)]
enum ListenSetting {
    SameUrl,
    OtherUrl(Box<PostgresOptions>),
    Off,
}

/// A URL that names no database. The text does not repeat it, since it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the URL of the database is not valid: {0}")]
pub struct InvalidUrl(String);

impl PostgresOptions {
    pub fn from_url(url: &str) -> Result<Self, InvalidUrl> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let Some(rest) = rest else {
            return Err(InvalidUrl("it does not begin with postgres://".into()));
        };
        let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
        if settings.contains('@') {
            return Err(InvalidUrl("a `?` in the password is written as %3F".into()));
        }
        let mut own = OwnSettings::default();
        let mut passed_on: Vec<&str> = Vec::new();
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            if !own.take(setting)? {
                passed_on.push(setting);
            }
        }
        let mut config: Config = format!("postgres://{place}?{}", passed_on.join("&"))
            .parse()
            .map_err(|error| InvalidUrl(describe_parse_error(&error)))?;
        if config.get_dbname().is_none() {
            return Err(InvalidUrl("it names no database".into()));
        }
        if own.ssl_mode == SslMode::Require
            && own.check == CertificateCheck::None
            && own.root_certificates.is_some()
        {
            // As in PostgreSQL's own programs.
            own.check = CertificateCheck::Authority;
        }
        config.ssl_mode(own.ssl_mode);
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(3);
        if config.get_application_name().is_none() {
            config.application_name("brigade");
        }
        Ok(Self {
            shown: shown_url(place),
            config,
            tls: TlsOptions { check: own.check, root_certificates: own.root_certificates },
            schema: own.schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned()),
            connections: own.connections.unwrap_or(DEFAULT_CONNECTIONS),
            listen: own.listen,
        })
    }

    /// Sets the schema of the tables: 1 to 48 ASCII letters, digits, `_`, `-`, `.` and spaces.
    pub fn schema(mut self, name: &str) -> Result<Self, InvalidUrl> {
        self.schema = check_schema(name)?.to_owned();
        Ok(self)
    }

    /// Sets another URL for LISTEN, which does not work with a pooler that hands out a connection for each
    /// transaction. It must be the same database.
    pub fn listen_url(mut self, url: &str) -> Result<Self, InvalidUrl> {
        self.listen = ListenSetting::OtherUrl(Box::new(Self::from_url(url)?));
        Ok(self)
    }

    /// Turns LISTEN off, so that nodes only poll.
    #[must_use]
    pub fn without_listen(mut self) -> Self {
        self.listen = ListenSetting::Off;
        self
    }

    /// Sets the password, if the URL has none.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        if let ListenSetting::OtherUrl(other) = &mut self.listen
            && other.config.get_password().is_none()
        {
            other.config.password(password);
        }
        if self.config.get_password().is_none() {
            self.config.password(password);
        }
        self
    }

    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    pub(crate) fn tls(&self) -> &TlsOptions {
        &self.tls
    }

    /// Returns the schema of the tables.
    pub fn schema_name(&self) -> &str {
        &self.schema
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    /// Returns the options of the connection for LISTEN.
    pub(crate) fn listen_options(&self) -> Option<&Self> {
        match &self.listen {
            ListenSetting::SameUrl => Some(self),
            ListenSetting::OtherUrl(other) => Some(other),
            ListenSetting::Off => None,
        }
    }
}

/// The settings of a URL that the driver does not know, or knows only in part.
struct OwnSettings {
    ssl_mode: SslMode,
    check: CertificateCheck,
    root_certificates: Option<std::path::PathBuf>,
    schema: Option<String>,
    connections: Option<usize>,
    listen: ListenSetting,
}

impl Default for OwnSettings {
    fn default() -> Self {
        Self {
            ssl_mode: SslMode::Prefer,
            check: CertificateCheck::None,
            root_certificates: None,
            schema: None,
            connections: None,
            listen: ListenSetting::SameUrl,
        }
    }
}

impl OwnSettings {
    /// Takes a setting, or returns false if it is one of the driver's.
    fn take(&mut self, setting: &str) -> Result<bool, InvalidUrl> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let value = percent_decode_str(value).decode_utf8();
        let value: Cow<'_, str> =
            value.map_err(|_| InvalidUrl(format!("{name} is not valid UTF-8")))?;
        match name {
            "sslmode" => self.set_ssl_mode(&value)?,
            "sslrootcert" => self.root_certificates = Some(value.as_ref().into()),
            "schema" => self.schema = Some(check_schema(&value)?.to_owned()),
            "connections" => {
                let count = value.parse().ok().filter(|count| (1..=1_000).contains(count));
                let invalid = || InvalidUrl("connections is not a number from 1 to 1000".into());
                self.connections = Some(count.ok_or_else(invalid)?);
            }
            "listen_url" => {
                let other = PostgresOptions::from_url(&value)
                    .map_err(|InvalidUrl(reason)| InvalidUrl(format!("listen_url: {reason}")))?;
                self.listen = ListenSetting::OtherUrl(Box::new(other));
            }
            "listen" => match value.as_ref() {
                "on" => {}
                "off" => self.listen = ListenSetting::Off,
                _ => return Err(InvalidUrl("listen is not `on` or `off`".into())),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_ssl_mode(&mut self, mode: &str) -> Result<(), InvalidUrl> {
        (self.ssl_mode, self.check) = match mode {
            "disable" => (SslMode::Disable, CertificateCheck::None),
            "prefer" => (SslMode::Prefer, CertificateCheck::None),
            "require" => (SslMode::Require, CertificateCheck::None),
            "verify-ca" => (SslMode::Require, CertificateCheck::Authority),
            "verify-full" => (SslMode::Require, CertificateCheck::Host),
            other => return Err(InvalidUrl(format!("sslmode {other:?} is not known"))),
        };
        Ok(())
    }
}

/// Checks the name of a schema. PostgreSQL cuts off longer names.
fn check_schema(name: &str) -> Result<&str, InvalidUrl> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    match !name.is_empty() && name.len() <= SCHEMA_MAX && name.chars().all(is_allowed) {
        true => Ok(name),
        false => Err(InvalidUrl(format!(
            "schema is not a name of 1 to {SCHEMA_MAX} letters, digits, `_`, `-`, `.` and spaces"
        ))),
    }
}

/// Returns the reason of the driver, which may name a setting but no value.
fn describe_parse_error(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns a URL without its password.
fn shown_url(place: &str) -> String {
    match place.rsplit_once('@') {
        Some((login, host)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("postgres://{user}@{host}")
        }
        None => format!("postgres://{place}"),
    }
}

/// Shows the URL without the password.
impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("url", &self.shown)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(url: &str, reason: &str) {
        let error = PostgresOptions::from_url(url).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn settings_are_read() {
        let url = "postgresql://ada:se%40cret@db1,db2:5433/kitchen?sslmode=verify-ca\
                   &sslrootcert=%2Fetc%2Fca.pem&schema=a%20b&connections=3&connect_timeout=7";
        let options = PostgresOptions::from_url(url).unwrap();
        assert_eq!(options.config.get_password(), Some("se@cret".as_bytes()));
        assert_eq!(options.config.get_connect_timeout(), Some(&Duration::from_secs(7)));
        assert_eq!(options.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(options.tls.check, CertificateCheck::Authority);
        assert_eq!(options.tls.root_certificates.as_deref(), Some("/etc/ca.pem".as_ref()));
        assert_eq!((options.schema.as_str(), options.connections), ("a b", 3));
        assert_eq!(options.to_string(), "postgres://ada@db1,db2:5433/kitchen");
        assert_eq!(options.listen_options().unwrap().to_string(), options.to_string());
    }

    #[test]
    fn listen_has_a_url_of_its_own_or_none() {
        let url = "postgres://ada@pooler/kitchen?listen_url=postgres%3A%2F%2Fada%40db1%2Fkitchen";
        let options = PostgresOptions::from_url(url).unwrap().password("secret");
        let listen = options.listen_options().unwrap();
        assert_eq!(listen.to_string(), "postgres://ada@db1/kitchen");
        assert_eq!(listen.config.get_password(), Some("secret".as_bytes()));
        let set = PostgresOptions::from_url("postgres://ada@pooler/kitchen").unwrap();
        let set = set.listen_url("postgres://ada@db2/kitchen").unwrap();
        assert_eq!(set.listen_options().unwrap().to_string(), "postgres://ada@db2/kitchen");
        assert!(set.without_listen().listen_options().is_none());
        let off = PostgresOptions::from_url("postgres://ada@db/kitchen?listen=off").unwrap();
        assert!(off.listen_options().is_none());
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        check_refused("mysql://ada:secret@db/kitchen", "does not begin with postgres://");
        check_refused("postgres://ada:secret@db", "names no database");
        check_refused("postgres://ada:secret@db/k?sslmode=maybe", "sslmode \"maybe\"");
        check_refused("postgres://ada:secret@db/k?connections=0", "connections");
        check_refused("postgres://ada:secret@db/k?schema=", "schema is not a name");
        check_refused("postgres://ada:secret@db/k?schema=a%27b", "schema is not a name");
        check_refused("postgres://ada:secret@db/k?color=1", "unknown option");
        check_refused("postgres://ada:secret@db:port/k", "port");
        check_refused("postgres://ada:secret@db/k?listen=maybe", "listen is not");
        check_refused("postgres://ada@db/k?listen_url=mysql%3A%2F%2Fa%3Asecret%40b", "listen_url");
        check_refused("postgres://ada:a?secret=1@db/k", "%3F");
    }
}
