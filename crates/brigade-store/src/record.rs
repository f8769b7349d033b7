//! The types of records: kinds, keys, values and their bounds.
//!
//! The constructors check every bound, so a store gets no record that it could not take.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;

/// The most bytes of a [`RecordKind`].
pub const RECORD_KIND_BYTES_MAX: usize = 64;
/// The most bytes of the key of a record.
pub const RECORD_KEY_BYTES_MAX: usize = 512;
/// The most bytes of the value of a record.
pub const RECORD_VALUE_BYTES_MAX: usize = 64 * 1024;
/// The most records of one kind.
pub const RECORDS_PER_KIND_MAX: usize = 10_000;
/// The most records of one page.
pub const RECORD_PAGE_MAX: usize = 100;

/// A kind of records, such as `http-token`: 1 to 64 characters of `a-z`, `0-9`, `-`, `_` and `.`.
///
/// ```
/// use brigade_store::RecordKind;
///
/// const LOGIN: RecordKind = RecordKind::from_static("login-code");
/// assert_eq!("login-code".parse(), Ok(LOGIN));
/// assert!("Login code".parse::<RecordKind>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKind(Cow<'static, str>);

impl RecordKind {
    /// Returns the kind of this name. For constants: an invalid name does not compile there.
    ///
    /// # Panics
    ///
    /// Panics on an invalid name.
    pub const fn from_static(name: &'static str) -> Self {
        assert!(is_kind(name.as_bytes()), "a kind of records has 1 to 64 of a-z, 0-9, -, _ and .");
        Self(Cow::Borrowed(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn is_kind(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        if !matches!(name[at], b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.') {
            return false;
        }
        at += 1;
    }
    1 <= at && at <= RECORD_KIND_BYTES_MAX
}

impl FromStr for RecordKind {
    type Err = RecordError;

    fn from_str(name: &str) -> Result<Self, RecordError> {
        match is_kind(name.as_bytes()) {
            true => Ok(Self(Cow::Owned(name.to_owned()))),
            false => Err(RecordError::InvalidKind),
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A kind and a key, which name one record. The key is any text of 1 to 512 bytes.
///
/// Use a digest as the key of a secret: keys are shown in lists and in backups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey {
    kind: RecordKind,
    key: String,
}

impl RecordKey {
    pub fn new(kind: RecordKind, key: impl Into<String>) -> Result<Self, RecordError> {
        let key = key.into();
        match key.len() {
            1..=RECORD_KEY_BYTES_MAX => Ok(Self { kind, key }),
            bytes => Err(RecordError::InvalidKey { bytes }),
        }
    }

    pub fn kind(&self) -> &RecordKind {
        &self.kind
    }

    pub fn key(&self) -> &str {
        &self.key
    }
}

/// The version of a record. Each put gives its record a version that no other put of the store had,
/// so a record that was removed and put again has another one. Only equality has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordVersion(pub u64);

/// A stored record. `Debug` shows the length of its value only, since it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    pub value: Vec<u8>,
    pub version: RecordVersion,
    /// The time from which the record is absent; `None` if it does not expire.
    pub expires_at: Option<Time>,
}

impl Record {
    /// Returns true from the millisecond of the expiry on.
    pub fn is_expired(&self, now: Time) -> bool {
        self.expires_at.is_some_and(|expires_at| now >= expires_at)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("value", &format_args!("{} bytes", self.value.len()))
            .field("version", &self.version)
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// A record to put.
///
/// ```
/// use brigade_model::ids::Time;
/// use brigade_store::{NewRecord, RecordKey, RecordKind};
///
/// let key = RecordKey::new(RecordKind::from_static("login-code"), "5e884898")?;
/// let record = NewRecord::new(key, "ada")?.expires_at(Time(60_000));
/// # assert_eq!(record.expiry(), Some(Time(60_000)));
/// # Ok::<(), brigade_store::RecordError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NewRecord {
    key: RecordKey,
    value: Vec<u8>,
    expires_at: Option<Time>,
}

impl NewRecord {
    /// Returns a record that does not expire.
    pub fn new(key: RecordKey, value: impl Into<Vec<u8>>) -> Result<Self, RecordError> {
        let value = value.into();
        match value.len() {
            0..=RECORD_VALUE_BYTES_MAX => Ok(Self { key, value, expires_at: None }),
            bytes => Err(RecordError::ValueTooLarge { bytes }),
        }
    }

    /// Sets the time from which the record is absent.
    #[must_use]
    pub fn expires_at(mut self, time: Time) -> Self {
        // Stores have signed numbers.
        self.expires_at = Some(time.min(Time(i64::MAX as u64)));
        self
    }

    pub fn key(&self) -> &RecordKey {
        &self.key
    }

    pub fn value(&self) -> &[u8] {
        &self.value
    }

    pub fn expiry(&self) -> Option<Time> {
        self.expires_at
    }
}

impl fmt::Debug for NewRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewRecord")
            .field("key", &self.key)
            .field("value", &format_args!("{} bytes", self.value.len()))
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// The stored state that a put requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Any state: the put replaces what is there.
    Any,
    /// No record.
    Absent,
    /// A record of this version.
    Version(RecordVersion),
}

impl ExpectedVersion {
    /// Returns true if a put may replace the stored record, which has not expired.
    pub fn allows(self, stored: Option<RecordVersion>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => stored.is_none(),
            Self::Version(version) => stored == Some(version),
        }
    }
}

/// The result of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutRecordResult {
    /// The record is stored with this version.
    Stored(RecordVersion),
    /// Nothing was changed: the store has another version, or no record.
    Conflict(Option<Record>),
}

/// The result of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveRecordResult {
    /// This call, and no other, removed the record.
    Removed(Record),
    /// There is no record.
    Absent,
    /// Nothing was changed: the store has another version.
    Conflict(Record),
}

/// A page of the records of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordQuery {
    kind: RecordKind,
    after: Option<String>,
    limit: usize,
}

impl RecordQuery {
    /// Returns the query of the first page, with [`RECORD_PAGE_MAX`] records.
    pub fn new(kind: RecordKind) -> Self {
        Self { kind, after: None, limit: RECORD_PAGE_MAX }
    }

    /// Begins the page after this key: after [`RecordPage::next`] of the page before.
    #[must_use]
    pub fn after(mut self, key: impl Into<String>) -> Self {
        self.after = Some(key.into());
        self
    }

    /// Sets the most records of the page, from 1 to [`RECORD_PAGE_MAX`].
    pub fn limit(mut self, limit: usize) -> Result<Self, RecordError> {
        match limit {
            1..=RECORD_PAGE_MAX => self.limit = limit,
            requested => return Err(RecordError::InvalidPageSize { requested }),
        }
        Ok(self)
    }

    pub fn kind(&self) -> &RecordKind {
        &self.kind
    }

    /// Returns the key after which the page begins.
    pub fn after_key(&self) -> Option<&str> {
        self.after.as_deref()
    }

    pub fn page_size(&self) -> usize {
        self.limit
    }
}

/// A record with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordItem {
    pub key: String,
    pub record: Record,
}

/// Records of one kind, in the order of the bytes of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordPage {
    pub items: Vec<RecordItem>,
    /// The key after which the next page begins; `None` if there are no more records.
    pub next: Option<String>,
}

impl RecordPage {
    /// Returns the page of a query from the records after its key: all, or at least one more than
    /// the page has.
    pub fn from_items(mut items: Vec<RecordItem>, query: &RecordQuery) -> Self {
        let has_more = items.len() > query.limit;
        items.truncate(query.limit);
        let next = items.last().filter(|_| has_more).map(|item| item.key.clone());
        Self { items, next }
    }
}

/// A record or a query beyond its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error("a kind of records has 1 to 64 characters of a-z, 0-9, `-`, `_` and `.`")]
    InvalidKind,
    #[error("the key of a record has 1 to {RECORD_KEY_BYTES_MAX} bytes, not {bytes}")]
    InvalidKey { bytes: usize },
    #[error("the value of a record has at most {RECORD_VALUE_BYTES_MAX} bytes, not {bytes}")]
    ValueTooLarge { bytes: usize },
    #[error("a page has 1 to {RECORD_PAGE_MAX} records, not {requested}")]
    InvalidPageSize { requested: usize },
}

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Self {
        Self::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: RecordKind = RecordKind::from_static("a.b-c_9");

    #[test]
    fn bounds_are_checked_with_a_clear_error() {
        let long = "k".repeat(RECORD_KIND_BYTES_MAX + 1);
        assert!(long[1..].parse::<RecordKind>().is_ok());
        for name in ["", "A", "a b", "ä", "a/b", "a\0", long.as_str()] {
            assert_eq!(name.parse::<RecordKind>(), Err(RecordError::InvalidKind), "{name:?}");
        }
        let long = "ä".repeat(RECORD_KEY_BYTES_MAX / 2);
        assert!(RecordKey::new(KIND, long.clone()).is_ok());
        for (key, bytes) in [(String::new(), 0), (long + "k", 513)] {
            let error = RecordKey::new(KIND, key).unwrap_err();
            assert_eq!(error, RecordError::InvalidKey { bytes });
            assert!(error.to_string().contains(&format!("1 to 512 bytes, not {bytes}")), "{error}");
        }
        let key = RecordKey::new(KIND, "k").unwrap();
        assert!(NewRecord::new(key.clone(), vec![0; RECORD_VALUE_BYTES_MAX]).is_ok());
        let error = NewRecord::new(key, vec![0; RECORD_VALUE_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(error, RecordError::ValueTooLarge { bytes: 65_537 });
        assert!(error.to_string().contains("at most 65536 bytes, not 65537"), "{error}");
        assert!(RecordQuery::new(KIND).limit(RECORD_PAGE_MAX).is_ok());
        for requested in [0, RECORD_PAGE_MAX + 1] {
            let error = RecordQuery::new(KIND).limit(requested).unwrap_err();
            assert_eq!(error, RecordError::InvalidPageSize { requested });
        }
    }

    #[test]
    fn debug_output_shows_no_value() {
        let key = RecordKey::new(KIND, "k").unwrap();
        let new = NewRecord::new(key, "secret").unwrap();
        let stored =
            Record { value: b"secret".to_vec(), version: RecordVersion(1), expires_at: None };
        for text in [format!("{new:?}"), format!("{stored:?}")] {
            assert!(text.contains("6 bytes") && !text.contains("secret"), "{text}");
            assert!(!text.contains("115"), "the bytes of the value: {text}");
        }
    }
}
