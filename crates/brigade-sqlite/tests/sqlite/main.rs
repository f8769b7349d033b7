//! The SQLite store, looked at from outside and, where it matters, at its file.
//!
//! - `conformance`: what any store must do.
//! - `opening`: what is opened, what is refused, and that a refusal changes nothing.
//! - `versions`: files of earlier versions.
//! - `rows`: rows of newer versions, a full disk, a busy file, a damaged one.
//! - `crash`: killed at any moment.
//! - `measure`: how fast it is, by hand.
//! - `support`: batches from the real model.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod support;
#[cfg(test)]
mod versions;
