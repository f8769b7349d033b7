//! Faults that can be built into the model.

/// One wrong rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterMutant {
    /// A node that takes a session over reads its epoch from the row. It writes neither owner nor
    /// epoch, so the database cannot compare the owner.
    EpochFromRow,
    /// A node looks at its clock before it sends a commit, and the database does not look at the
    /// lane.
    NoLaneCheck,
    /// The answer of a call has a transaction of its own, after that of its effect.
    AnswerAlone,
    /// A commit answers a call without looking if it is still open.
    NoCallCheck,
    /// A request in doubt is looked for on a new connection, without taking the lane for it.
    NoConnectionCheck,
    /// A commit in doubt is looked for by the sequence number of its session.
    DoubtBySeq,
    /// A node acquires nothing that has its own lane.
    NoSecondAcquisition,
    /// An acquisition does not compare the epoch, so that a late one also takes what its own node
    /// holds.
    AcquireWithoutEpoch,
    /// A commit does not compare the owner.
    NoOwnerCheck,
    /// A commit does not compare the epoch.
    NoEpochCheck,
    /// A commit does not compare the sequence number.
    NoSeqCheck,
}
