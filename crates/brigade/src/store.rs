//! Durable storage: the [`Store`] trait, the types of its methods, and the store in memory.

pub use brigade_store::{
    Batch, BoxFuture, EventPage, EventQuery, LoadedSession, MemoryOptions, MemoryStore,
    PruneResult, Residency, Retention, RunRow, SessionBatch, Store, StoreError, StoreFuture,
    TaskQuery,
};
