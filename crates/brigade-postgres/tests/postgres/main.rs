//! The store on PostgreSQL, tested with a private server.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod encryption;
#[cfg(test)]
mod inspection;
#[cfg(test)]
mod late_commits;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod pooler;
#[cfg(test)]
mod pruning;
#[cfg(test)]
mod support;
