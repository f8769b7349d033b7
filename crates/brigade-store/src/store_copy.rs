//! Copies a whole store into an empty one, and verifies the copy.
//!
//! ```text
//! CopySource::rows ── a page of rows ──> CopyTarget::write   each table, in the order of its key
//!        └─ digest of each table    ==    digest of each table ─┘   then CopyTarget::finish
//! ```
//!
//! A row is a list of values, the same for every store. It has the columns of [`CopyTable::columns`],
//! whose codes are those of [`crate::columns`]. No page has more than [`PAGE_ROWS`] rows. A page ends
//! after the row with which its values exceed [`PAGE_BYTES`], so a copy needs little memory.

use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::store::StoreFuture;

/// The most rows of a page.
pub const PAGE_ROWS: usize = 500;

/// The number of bytes at which a page ends.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A kind of rows that a copy moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CopyTable {
    /// The last numbers that were given to sessions and to versions of records. A number is not used
    /// twice, so they go beyond the stored rows.
    Counters,
    /// The lanes that had an event, with their last events and the last ones that were removed.
    Lanes,
    Sessions,
    Tasks,
    KeyMarks,
    Runs,
    Journal,
    /// Messages with their keys.
    Messages,
    Events,
    Records,
}

impl CopyTable {
    /// All tables, in the order in which they are copied. A target knows the lanes before the events.
    pub const ALL: [Self; 10] = [
        Self::Counters,
        Self::Lanes,
        Self::Sessions,
        Self::Tasks,
        Self::KeyMarks,
        Self::Runs,
        Self::Journal,
        Self::Messages,
        Self::Events,
        Self::Records,
    ];

    /// Returns the name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Lanes => "lanes",
            Self::Sessions => "sessions",
            Self::Tasks => "tasks",
            Self::KeyMarks => "key_marks",
            Self::Runs => "runs",
            Self::Journal => "journal",
            Self::Messages => "messages",
            Self::Events => "events",
            Self::Records => "records",
        }
    }

    /// Returns the names of the columns. The first ones are the key, see [`CopyTable::key_columns`].
    ///
    /// The key of a session is its number in the store, which orders sessions. `last_lane` and
    /// `last_no` are the position of its last event, if that is stored. `after_lane` and `after_no` are
    /// the position of the session's event before an event, if that is stored and in another lane.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Counters => &["name", "value"],
            Self::Lanes => &["lane", "head", "pruned_to"],
            Self::Sessions => &[
                "key",
                "id",
                "name",
                "state",
                "epoch",
                "seq",
                "opened_at",
                "last_event_at",
                "last_lane",
                "last_no",
                "body",
            ],
            Self::Tasks => &[
                "session",
                "no",
                "owner",
                "owner_run",
                "residency",
                "name",
                "idempotency_key",
                "ended_at",
                "limited_by",
                "body",
            ],
            Self::KeyMarks => &["session", "owner", "no", "owner_run", "idempotency_key"],
            Self::Runs => &["session", "task", "run", "body"],
            Self::Journal => &["session", "task", "seq", "body"],
            Self::Messages => &[
                "session",
                "no",
                "recipient",
                "unread",
                "idempotency_key",
                "key_run",
                "sender",
                "body",
            ],
            Self::Events => {
                &["lane", "no", "session", "seq", "at", "after_lane", "after_no", "author", "body"]
            }
            Self::Records => &["kind", "key", "version", "expires_at", "value"],
        }
    }

    /// Returns the number of columns that identify a row and order the rows. Text is ordered by its
    /// bytes.
    pub fn key_columns(self) -> usize {
        match self {
            Self::Counters | Self::Lanes | Self::Sessions => 1,
            Self::Tasks | Self::Messages | Self::Events | Self::Records => 2,
            Self::KeyMarks | Self::Runs | Self::Journal => 3,
        }
    }
}

/// The counter of the numbers of sessions.
pub const SESSION_COUNTER: &str = "session";
/// The counter of the versions of records.
pub const RECORD_COUNTER: &str = "record_version";

/// A value of a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyValue {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl CopyValue {
    /// Returns the number; `None` for a missing one.
    pub fn integer(&self) -> Result<Option<i64>, StoreError> {
        match self {
            Self::Null => Ok(None),
            Self::Integer(number) => Ok(Some(*number)),
            _ => Err(unexpected("an integer")),
        }
    }

    /// Returns the text; `None` for a missing one.
    pub fn text(&self) -> Result<Option<&str>, StoreError> {
        match self {
            Self::Null => Ok(None),
            Self::Text(text) => Ok(Some(text)),
            _ => Err(unexpected("a text")),
        }
    }

    /// Returns the bytes; `None` for missing ones.
    pub fn bytes(&self) -> Result<Option<&[u8]>, StoreError> {
        match self {
            Self::Null => Ok(None),
            Self::Bytes(bytes) => Ok(Some(bytes)),
            _ => Err(unexpected("bytes")),
        }
    }

    /// Returns the size of the value for the bound of a page.
    pub fn size(&self) -> usize {
        match self {
            Self::Null | Self::Integer(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

fn unexpected(kind: &str) -> StoreError {
    StoreError::Corrupt(format!("a column of a copied row is not {kind}"))
}

/// Shows lengths only, since a value may be a secret.
impl std::fmt::Debug for CopyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "text of {} bytes", text.len()),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

/// The values of a row, in the order of [`CopyTable::columns`].
pub type CopyRow = Vec<CopyValue>;

/// A store that is read for a copy.
pub trait CopySource: Send + Sync {
    /// Returns a text that changes with each commit and each put of a record. A source that nobody else
    /// can write returns any text.
    fn state_mark(&self) -> StoreFuture<'_, String>;

    /// Returns the next rows after a key, in the order of their keys; none after the last one.
    fn rows<'a>(
        &'a self,
        table: CopyTable,
        after: Option<&'a [CopyValue]>,
    ) -> StoreFuture<'a, Vec<CopyRow>>;
}

/// A new store that a copy fills. Until [`CopyTarget::finish`], also after a crash, nobody can open it as
/// a store.
pub trait CopyTarget: CopySource {
    /// Writes the next rows of a table.
    fn write(&self, table: CopyTable, rows: Vec<CopyRow>) -> StoreFuture<'_, ()>;

    /// Ends the writing. The rows can be read from now on.
    fn end_rows(&self) -> StoreFuture<'_, ()>;

    /// Makes the target a store.
    fn finish(&self) -> StoreFuture<'_, ()>;
}

/// The rows of a table as a number and a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDigest {
    pub table: CopyTable,
    pub rows: u64,
    /// The SHA-256 of the rows in the order of their keys.
    pub digest: [u8; 32],
}

impl TableDigest {
    /// Returns the digest in hexadecimal digits.
    pub fn digest_text(&self) -> String {
        self.digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// An error of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source does not exist.
    #[error("there is no store at {0}")]
    NoSource(String),
    /// The target has data. It was not changed.
    #[error("there is a store at {0} already; copy to another place (nothing was changed)")]
    TargetNotEmpty(String),
    /// The target is what a copy left that did not end. It was not changed.
    #[error("{0} has an incomplete copy (nothing was changed)")]
    TargetIncomplete(String),
    /// Somebody wrote to the source during the copy.
    #[error("the source was written during the copy; the target is incomplete")]
    SourceChanged,
    /// The target does not have the rows of the source.
    #[error(
        "the {} of the copy differ from the source: {} and {} rows; the target is incomplete",
        .source_rows.table.name(), .target_rows.rows, .source_rows.rows
    )]
    Different { source_rows: Box<TableDigest>, target_rows: Box<TableDigest> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies all rows, compares the digests of both sides, and makes the target a store. Calls `progress`
/// after each page with the table and the number of its rows so far.
///
/// After an error, the target is an incomplete copy.
pub async fn copy_store(
    source: &dyn CopySource,
    target: &dyn CopyTarget,
    mut progress: impl FnMut(CopyTable, u64),
) -> Result<Vec<TableDigest>, CopyError> {
    let before = source.state_mark().await?;
    let mut copied = Vec::new();
    for table in CopyTable::ALL {
        let mut digest = RowDigest::new(table);
        let mut after: Option<CopyRow> = None;
        loop {
            let rows = source.rows(table, after.as_deref()).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last[..table.key_columns()].to_vec());
            digest.add(&rows);
            target.write(table, rows).await?;
            progress(table, digest.rows);
        }
        copied.push(digest.finish());
    }
    target.end_rows().await?;
    if source.state_mark().await? != before {
        return Err(CopyError::SourceChanged);
    }
    for source_rows in &copied {
        let target_rows = digest_table(target, source_rows.table).await?;
        if target_rows != *source_rows {
            return Err(CopyError::Different {
                source_rows: Box::new(source_rows.clone()),
                target_rows: Box::new(target_rows),
            });
        }
    }
    target.finish().await?;
    Ok(copied)
}

/// Reads a table and returns its digest.
pub async fn digest_table(
    source: &(impl CopySource + ?Sized),
    table: CopyTable,
) -> Result<TableDigest, StoreError> {
    let mut digest = RowDigest::new(table);
    let mut after: Option<CopyRow> = None;
    loop {
        let rows = source.rows(table, after.as_deref()).await?;
        let Some(last) = rows.last() else { return Ok(digest.finish()) };
        after = Some(last[..table.key_columns()].to_vec());
        digest.add(&rows);
    }
}

/// The digest of the rows that were added.
struct RowDigest {
    table: CopyTable,
    rows: u64,
    hasher: Sha256,
}

impl RowDigest {
    fn new(table: CopyTable) -> Self {
        Self { table, rows: 0, hasher: Sha256::new() }
    }

    /// Adds rows. A value has a tag and its length, so that no two lists of rows have the same bytes.
    fn add(&mut self, rows: &[CopyRow]) {
        for value in rows.iter().flatten() {
            let (tag, bytes): (u8, &[u8]) = match value {
                CopyValue::Null => (0, &[]),
                CopyValue::Integer(number) => (1, &number.to_be_bytes()),
                CopyValue::Text(text) => (2, text.as_bytes()),
                CopyValue::Bytes(bytes) => (3, bytes),
            };
            self.hasher.update([tag]);
            self.hasher.update((bytes.len() as u64).to_be_bytes());
            self.hasher.update(bytes);
        }
        self.rows += rows.len() as u64;
    }

    fn finish(self) -> TableDigest {
        TableDigest { table: self.table, rows: self.rows, digest: self.hasher.finalize().into() }
    }
}

/// Collects the rows of one page.
#[derive(Debug, Default)]
pub struct CopyPage {
    rows: Vec<CopyRow>,
    bytes: usize,
}

impl CopyPage {
    /// Adds a row and returns whether there is space for another one.
    pub fn push(&mut self, row: CopyRow) -> bool {
        self.bytes += row.iter().map(CopyValue::size).sum::<usize>();
        self.rows.push(row);
        self.rows.len() < PAGE_ROWS && self.bytes < PAGE_BYTES
    }

    pub fn into_rows(self) -> Vec<CopyRow> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(rows: &[CopyRow]) -> [u8; 32] {
        let mut digest = RowDigest::new(CopyTable::Records);
        digest.add(rows);
        digest.finish().digest
    }

    #[test]
    fn different_rows_have_different_digests() {
        let text = |text: &str| CopyValue::Text(text.to_owned());
        let lists = [
            vec![vec![text("ab"), text("c")]],
            vec![vec![text("a"), text("bc")]],
            vec![vec![text("ab"), CopyValue::Bytes(b"c".to_vec())]],
            vec![vec![text("ab"), CopyValue::Null]],
            vec![vec![text("ab"), text("")]],
            vec![vec![text("ab"), CopyValue::Integer(0)]],
            vec![vec![text("ab"), text("c")], vec![text("ab"), text("c")]],
            Vec::new(),
        ];
        for (at, rows) in lists.iter().enumerate() {
            for other in &lists[at + 1..] {
                assert_ne!(digest(rows), digest(other), "{rows:?} and {other:?}");
            }
        }
    }

    #[test]
    fn pages_do_not_matter_for_a_digest() {
        let rows = [1, 2, 3].map(|number| vec![CopyValue::Integer(number)]);
        let mut paged = RowDigest::new(CopyTable::Records);
        paged.add(&rows[..1]);
        paged.add(&rows[1..]);
        assert_eq!(
            paged.finish(),
            TableDigest { table: CopyTable::Records, rows: 3, digest: digest(&rows) }
        );
    }

    #[test]
    fn a_page_ends_with_its_rows_or_bytes() {
        let mut page = CopyPage::default();
        assert!((1..PAGE_ROWS).all(|_| page.push(vec![CopyValue::Null])));
        assert!(!page.push(vec![CopyValue::Null]));
        let mut page = CopyPage::default();
        assert!(page.push(vec![CopyValue::Bytes(vec![0; PAGE_BYTES - 1])]));
        assert!(!page.push(vec![CopyValue::Null]));
        assert_eq!(page.into_rows().len(), 2);
    }

    #[test]
    fn every_table_has_a_key_and_other_columns() {
        for table in CopyTable::ALL {
            assert!(table.key_columns() < table.columns().len(), "{}", table.name());
        }
    }
}
