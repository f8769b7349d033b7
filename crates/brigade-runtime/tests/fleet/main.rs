//! Several runtimes as nodes of one fleet, under paused time, on a store in memory.

#[cfg(test)]
mod away;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod events;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod loops;
#[cfg(test)]
mod promotion;
#[cfg(test)]
mod refused_turns;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod support;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod unreadable;
