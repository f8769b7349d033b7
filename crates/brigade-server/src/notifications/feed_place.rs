//! The place in the feed up to which notifications were created, as a record.

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;
use brigade_runtime::Runtime;
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, RecordKey, RecordKind, RecordVersion,
};
use serde::{Deserialize, Serialize};

const PLACE_KIND: RecordKind = RecordKind::from_static("notification-feed");

/// The stored form of a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PlaceRecord {
    cursor: String,
    /// The number of gaps: events that retention removed before they were read.
    #[serde(default)]
    gaps: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_gap_at: Option<Time>,
}

/// A place in the feed with the version of its record.
#[derive(Clone, Debug)]
pub(super) struct FeedPlace {
    record: PlaceRecord,
    version: RecordVersion,
}

impl FeedPlace {
    /// Returns the stored place. The first daemon with notifiers begins at the end of the feed.
    pub(super) async fn open(runtime: &Runtime) -> Result<Self, Refusal> {
        let stored = runtime.records().get(&place_key()?).await?;
        if let Some(stored) = stored {
            return Self::decode(&stored.value, stored.version);
        }
        let record = PlaceRecord { cursor: runtime.cursor().to_string(), ..PlaceRecord::default() };
        match put(runtime, &record, ExpectedVersion::Absent).await? {
            PutRecordResult::Stored(version) => Ok(Self { record, version }),
            PutRecordResult::Conflict(Some(stored)) => Self::decode(&stored.value, stored.version),
            PutRecordResult::Conflict(None) => Err(taken_over()),
        }
    }

    fn decode(value: &[u8], version: RecordVersion) -> Result<Self, Refusal> {
        let record = serde_json::from_slice(value).map_err(|error| {
            Refusal::internal(format!("the place of notifications is wrong: {error}"))
        })?;
        Ok(Self { record, version })
    }

    pub(super) fn cursor(&self) -> Result<FeedCursor, Refusal> {
        self.record.cursor.parse().map_err(|error| {
            Refusal::internal(format!("the place of notifications is wrong: {error}"))
        })
    }

    /// Notes that events were removed before they were read. The next advance stores it.
    pub(super) fn note_gap(&mut self, now: Time) {
        self.record.gaps += 1;
        self.record.last_gap_at = Some(now);
    }

    /// Stores a later place. Fails if another sender has stored one.
    pub(super) async fn advance(
        &mut self,
        runtime: &Runtime,
        cursor: &FeedCursor,
    ) -> Result<(), Refusal> {
        let record = PlaceRecord { cursor: cursor.to_string(), ..self.record.clone() };
        match put(runtime, &record, ExpectedVersion::Version(self.version)).await? {
            PutRecordResult::Stored(version) => {
                *self = Self { record, version };
                Ok(())
            }
            // The put may have happened before an error that hid it.
            PutRecordResult::Conflict(Some(stored)) if stored.value == encode(&record)? => {
                *self = Self { record, version: stored.version };
                Ok(())
            }
            PutRecordResult::Conflict(_) => Err(taken_over()),
        }
    }

    /// Returns the number of gaps of the stored place, and the time of the last one.
    pub(super) async fn read_gaps(runtime: &Runtime) -> Result<(u64, Option<Time>), Refusal> {
        let Some(stored) = runtime.records().get(&place_key()?).await? else {
            return Ok((0, None));
        };
        let Self { record, .. } = Self::decode(&stored.value, stored.version)?;
        Ok((record.gaps, record.last_gap_at))
    }

    /// Removes the place of a daemon without notifiers: a later one begins at the end of the feed
    /// then.
    pub(super) async fn remove(runtime: &Runtime) -> Result<(), Refusal> {
        runtime.records().take(&place_key()?).await.map(|_| ())
    }
}

fn place_key() -> Result<RecordKey, Refusal> {
    Ok(RecordKey::new(PLACE_KIND, "place")?)
}

async fn put(
    runtime: &Runtime,
    record: &PlaceRecord,
    expected: ExpectedVersion,
) -> Result<PutRecordResult, Refusal> {
    let record = NewRecord::new(place_key()?, encode(record)?)?;
    runtime.records().put(&record, expected).await
}

fn encode(record: &PlaceRecord) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(record)
        .map_err(|error| Refusal::internal(format!("a record cannot be encoded: {error}")))
}

fn taken_over() -> Refusal {
    Refusal::conflict("another sender has stored a place in the feed")
}
