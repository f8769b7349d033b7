//! The callers of the tools, and the bounds of their waits.

use std::time::Duration;

use brigade_model::refusal::Refusal;

/// A caller of the tools, who reads their descriptions and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// An agent of the runtime. Its waits are parked and may be unlimited.
    Agent,
    /// A client of the daemon. Its waits must end before its own calls time out.
    Client(ClientProfile),
}

/// The differences between clients that matter to the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProfile {
    /// The client runs inside a task, which owns every task that the client starts.
    pub is_within_task: bool,
    pub wait: WaitBounds,
}

/// The default and the longest wait of one call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitBounds {
    pub default_secs: u64,
    pub max_secs: u64,
}

/// The longest wait of an agent. A longer one is shortened to it.
const AGENT_WAIT_MAX_SECS: u64 = 24 * 60 * 60;
/// The largest plausible number of seconds. A larger one is a mistake and refused.
const WAIT_ARGUMENT_SECS_MAX: f64 = 1e9;
/// The longest deadline of a task.
const DEADLINE_MAX_SECS: f64 = 1e8;

/// Prefixes of the names of clients whose calls may take minutes. All other clients may abandon a
/// call after 60 seconds.
const LONG_WAIT_CLIENTS: [&str; 3] = ["claude-code", "gemini-cli", "qwen-c"];

impl WaitBounds {
    /// Bounds below the 60 seconds after which most clients abandon a call.
    pub const DEFAULT: Self = Self { default_secs: 50, max_secs: 50 };
    const LONG: Self = Self { default_secs: 50, max_secs: 240 };

    /// Returns the bounds for a client by its self-given name.
    pub fn for_client(name: &str) -> Self {
        match LONG_WAIT_CLIENTS.iter().any(|prefix| name.starts_with(prefix)) {
            true => Self::LONG,
            false => Self::DEFAULT,
        }
    }
}

impl ClientProfile {
    /// The profile of a client with an unknown name.
    pub const UNKNOWN: Self = Self { is_within_task: false, wait: WaitBounds::DEFAULT };
}

/// The arguments that mean nothing to each audience: `keep` where no task owns the work.
pub(crate) struct HiddenArgs {
    pub(crate) agent: &'static [&'static str],
    /// A client inside a task.
    pub(crate) inner_client: &'static [&'static str],
    /// A client outside of every task.
    pub(crate) top_client: &'static [&'static str],
}

impl HiddenArgs {
    pub(crate) fn select(self, audience: Audience) -> &'static [&'static str] {
        match audience {
            Audience::Agent => self.agent,
            Audience::Client(client) if client.is_within_task => self.inner_client,
            Audience::Client(_) => self.top_client,
        }
    }
}

impl Audience {
    pub fn is_agent(self) -> bool {
        matches!(self, Self::Agent)
    }

    /// Parses the wait of a call, at most the longest wait of the audience.
    pub fn read_wait(self, argument: &str, secs: f64) -> Result<Duration, Refusal> {
        let max_secs = match self {
            Self::Agent => AGENT_WAIT_MAX_SECS,
            Self::Client(client) => client.wait.max_secs,
        };
        let problem = if secs.is_nan() || secs.is_infinite() || secs > WAIT_ARGUMENT_SECS_MAX {
            "is not a sensible number"
        } else if secs < 0.0 {
            "is negative"
        } else if secs.fract() != 0.0 {
            "is not whole"
        } else {
            return Ok(Duration::from_secs((secs as u64).min(max_secs)));
        };
        Err(Refusal::invalid(format!(
            "the argument `{argument}`: {secs} {problem}; give whole seconds from 0 to {max_secs}"
        )))
    }
}

/// Parses the deadline of a task.
pub(crate) fn read_deadline(secs: f64) -> Result<Duration, Refusal> {
    if (1.0..=DEADLINE_MAX_SECS).contains(&secs) && secs.fract() == 0.0 {
        return Ok(Duration::from_secs(secs as u64));
    }
    Err(Refusal::invalid(format!(
        "the argument `deadline_secs`: {secs} is not a valid deadline; give whole seconds from 1 to \
         {DEADLINE_MAX_SECS}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_are_shortened_and_invalid_ones_refused() {
        let wait = |secs| Audience::Agent.read_wait("wait_secs", secs);
        assert_eq!(wait(0.0), Ok(Duration::ZERO));
        assert_eq!(wait(7.0), Ok(Duration::from_secs(7)));
        assert_eq!(wait(1e6), Ok(Duration::from_secs(AGENT_WAIT_MAX_SECS)));
        for bad in [-1.0, 0.5, f64::NAN, f64::INFINITY, 1e12] {
            let refusal = wait(bad).unwrap_err();
            assert!(refusal.message.contains("`wait_secs`"), "{refusal}");
        }
    }

    #[test]
    fn the_longest_wait_depends_on_the_client() {
        for (name, max_secs) in
            [("claude-code", 240), ("gemini-cli-mcp-client", 240), ("codex", 50)]
        {
            let wait = WaitBounds::for_client(name);
            let client = Audience::Client(ClientProfile { is_within_task: false, wait });
            assert_eq!(
                client.read_wait("wait_secs", 600.0),
                Ok(Duration::from_secs(max_secs)),
                "{name}"
            );
        }
    }

    #[test]
    fn deadlines_are_whole_seconds() {
        assert_eq!(read_deadline(1.0), Ok(Duration::from_secs(1)));
        for bad in [0.0, -1.0, 0.5, 1e9, f64::NAN] {
            assert!(read_deadline(bad).is_err(), "{bad}");
        }
    }
}
