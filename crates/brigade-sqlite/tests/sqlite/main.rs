//! Tests of the SQLite store through its API and its file.
//!
//! - `conformance`: the checks that every store must pass.
//! - `copying`: files as sources and targets of copies.
//! - `opening`: files that are opened or refused. A refusal changes nothing.
//! - `versions`: files of earlier versions.
//! - `rows`: rows of newer versions, a full disk, a busy file, a damaged file.
//! - `crash`: kills at any moment.
//! - `measure`: measurements, run by hand.
//! - `support`: batches from the real model.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod copying;
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
