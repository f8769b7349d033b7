//! The id of a store, which the first daemon chooses.

use brigade_model::ids::Time;
use brigade_model::refusal::Refusal;
use brigade_protocol::random_bytes::random_bytes;
use brigade_runtime::RuntimeRecords;
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, RecordKey, RecordKind, RecordStore,
};
use uuid::Uuid;

const STORE_KIND: RecordKind = RecordKind::from_static("store");

/// Returns the id of a store that no runtime has opened yet. Chooses one if there is none.
pub async fn ensure_store_id(store: &dyn RecordStore) -> Result<Uuid, Refusal> {
    let record = new_id_record()?;
    // The record does not expire, so any time does.
    let put = store.put_record(&record, ExpectedVersion::Absent, Time(0)).await;
    parse_id(&record, put.map_err(|error| Refusal::unavailable(error.to_string()))?)
}

/// Returns the id of a store, or `None` if no daemon has chosen one.
pub async fn read_store_id(store: &dyn RecordStore) -> Result<Option<Uuid>, Refusal> {
    let found = store.record(&id_key()?, Time(0)).await;
    let found = found.map_err(|error| Refusal::unavailable(error.to_string()))?;
    found.map(|record| parse_bytes(&record.value)).transpose()
}

/// Returns the id of the store of a runtime.
pub(crate) async fn ensure_runtime_store_id(records: RuntimeRecords<'_>) -> Result<Uuid, Refusal> {
    let record = new_id_record()?;
    let put = records.put(&record, ExpectedVersion::Absent).await?;
    parse_id(&record, put)
}

fn id_key() -> Result<RecordKey, Refusal> {
    Ok(RecordKey::new(STORE_KIND, "id")?)
}

fn new_id_record() -> Result<NewRecord, Refusal> {
    let random: [u8; 16] = random_bytes()
        .map_err(|error| Refusal::unavailable(format!("no random bytes: {error}")))?;
    Ok(NewRecord::new(id_key()?, random)?)
}

fn parse_id(new: &NewRecord, put: PutRecordResult) -> Result<Uuid, Refusal> {
    match put {
        PutRecordResult::Conflict(Some(stored)) => parse_bytes(&stored.value),
        PutRecordResult::Stored(_) | PutRecordResult::Conflict(None) => parse_bytes(new.value()),
    }
}

fn parse_bytes(bytes: &[u8]) -> Result<Uuid, Refusal> {
    Uuid::from_slice(bytes)
        .map_err(|error| Refusal::internal(format!("the id of the store is wrong: {error}")))
}
