//! Durable storage: the [`Store`] trait, the types of its methods, and the store in memory.

pub use brigade_store::{
    AcquireResult, AcquiredSession, CallAnswer, CallId, CallPlace, CallResult, CallTarget,
    ClaimedSession, Fleet, JoinResult, JoinedNode, LeaseRenewal, LimitAmounts, LimitGrant,
    LimitReport, NEXT_OWNER_TIME, NewCall, NewNode, NodeDemand, NodeId, NodeLoad, NodeRow,
    OpenCall, OpenCallQuery, RateLevels, RequiredLabels, SessionClaim, SessionOwner,
    SessionRelease,
};
pub use brigade_store::{
    Batch, BoxFuture, EventPage, EventQuery, ExpectedVersion, JournalQuery, LoadedSession,
    MemoryOptions, MemorySnapshot, MemoryStore, MessagePage, MessageQuery, NewRecord, PruneResult,
    PutRecordResult, RECORD_KEY_BYTES_MAX, RECORD_KIND_BYTES_MAX, RECORD_PAGE_MAX,
    RECORD_VALUE_BYTES_MAX, RECORDS_PER_KIND_MAX, Record, RecordError, RecordItem, RecordKey,
    RecordKind, RecordPage, RecordQuery, RecordStore, RecordVersion, RemoveRecordResult, Residency,
    Retention, RunRow, SessionBatch, Store, StoreError, StoreFuture, SupersededRun, TaskOrder,
    TaskQuery,
};
