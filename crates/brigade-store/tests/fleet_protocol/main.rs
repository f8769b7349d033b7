//! The protocol of a fleet: several nodes, one database. It is checked before it is written: these
//! models visit every reachable state of a small fleet, and the code of a fleet follows them.
//!
//! ```text
//!   node: memory, performers                                  database: rows
//!   ------------------------                                  --------------------------------
//!   sessions that it holds   -- acquire, commit, release -->  sessions, events, calls
//!   its belief in its lease  -- renew --------------------->  lanes (open, lease, connection)
//!   a reader with a cursor   <-- events of each lane -------  events (lane, position)
//! ```
//!
//! One model of everything would be too large, so there are four. Each one lets happen at any time
//! what another one orders:
//!
//! | model | question | leaves out |
//! |---|---|---|
//! | `writers` | Is everything that is stored right? | time: a lane may be closed at any moment |
//! | `leases` | Do side effects of two nodes overlap? | commits: the fence of `writers` |
//! | `feed` | Does a reader see each event once, in order? | owners: any lane may write next |
//! | `wakeups` | Is every call answered? | time, and answers that are lost |
//!
//! Read `writers/state.rs` and `writers/actions.rs` first. Words:
//!
//! - A **lane** is one incarnation of a node: its lease, its fence and its part of the feed. A
//!   closed lane is never opened again.
//! - An **acquisition** makes a lane the owner of a session and gives the session the next epoch.
//! - A lane has the number of its node's **connection** for commits. A new connection takes the
//!   lane with the next number, and the database refuses requests of the earlier ones.
//! - A request is **in doubt** if its connection was lost before its answer came, and **late** if
//!   the database executes it after that.
//!
//! `specification.rs` has the sizes. All have three nodes or lanes, two sessions and two moves of
//! each session, if nothing else is said. States after reduction, and seconds on two busy cores:
//!
//! | model | bounds | states | s |
//! |---|---|---:|---:|
//! | writers | 2 events of a session, 1 lost answer | 901,784 | 11 |
//! | writers | 2 events, 1 call | 569,885 | 6 |
//! | writers | 1 session, 2 events, 1 call, 2 lost answers | 60,304 | 1 |
//! | writers | 2 nodes, 1 session, not reduced | 178,248 | 2 |
//! | writers | 2 nodes, 1 session, 3 incarnations, not reduced | 815,801 | 7 |
//! | writers (ignored) | 2 events, 1 call, 1 lost answer | 11,132,825 | 225 |
//! | leases | a lease of 2 ticks, a margin of 1 | 1,377,938 | 20 |
//! | leases | 2 nodes, 1 session, 3 ticks, a margin of 2, 1 jump of the clock | 46,421 | 1 |
//! | feed | 3 events of a session | 119,572 | 1 |
//! | wakeups | 2 calls, 2 deaths, 1 release | 241,125 | 1 |
//!
//! A commit has one event of one session, except in `feed`. Nodes do not lie, the database loses
//! nothing, and all clocks have the same speed.
//!
//! `mutants.rs` has the wrong protocols, with two nodes or lanes. They are not reduced, except for
//! those with a wrong margin. Each one must break exactly the named properties.
//!
//! ```text
//! cargo test -p brigade-store --test fleet_protocol -- --nocapture
//! cargo test -p brigade-store --test fleet_protocol -- --ignored --nocapture
//! ```

mod exhaustive;
mod feed;
mod leases;
#[cfg(test)]
mod mutants;
#[cfg(test)]
mod specification;
mod wakeups;
mod writers;
