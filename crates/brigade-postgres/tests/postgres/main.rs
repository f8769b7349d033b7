//! The store on PostgreSQL, tested with a private server.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod copied_conformance;
#[cfg(test)]
mod copying;
#[cfg(test)]
mod encryption;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod inspection;
#[cfg(test)]
mod late_commits;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod pooler;
#[cfg(test)]
mod pruning;
#[cfg(test)]
mod support;
#[cfg(test)]
mod timeouts;
#[cfg(test)]
mod versions;
