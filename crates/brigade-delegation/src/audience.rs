//! The readers of the tools, and how long their calls may wait.

use std::time::Duration;

use brigade_model::refusal::Refusal;

/// A reader of the tools' descriptions and replies, who also makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// An agent of the runtime. Its waits are parked and may last for ever.
    Agent,
    /// A client of the daemon. Its waits are bounded by what its own calls may take.
    Client(ClientProfile),
}

/// The differences between clients that matter to the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProfile {
    /// The client runs within a task, which owns everything that the client starts.
    pub is_within_task: bool,
    pub wait: WaitBounds,
}

/// How long one call of a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitBounds {
    pub default_secs: u64,
    pub max_secs: u64,
}

/// The longest wait of an agent; a longer one is cut to it.
const AGENT_WAIT_MAX_SECS: u64 = 24 * 60 * 60;
/// Beyond this a number of seconds is a mistake.
const WAIT_ARGUMENT_SECS_MAX: f64 = 1e9;
/// The longest time after which a task is ended.
const DEADLINE_MAX_SECS: f64 = 1e8;

/// Clients that give a call minutes, by the beginning of the names that they give themselves. Every
/// other one may give it up after 60 seconds.
const LONG_WAIT_CLIENTS: [&str; 3] = ["claude-code", "gemini-cli", "qwen-c"];

impl WaitBounds {
    /// Shorter than the 60 seconds that most clients give a call.
    pub const DEFAULT: Self = Self { default_secs: 50, max_secs: 50 };
    const LONG: Self = Self { default_secs: 50, max_secs: 240 };

    /// Returns the bounds for a client by the name that it gives itself.
    pub fn for_client(name: &str) -> Self {
        match LONG_WAIT_CLIENTS.iter().any(|patient| name.starts_with(patient)) {
            true => Self::LONG,
            false => Self::DEFAULT,
        }
    }
}

impl ClientProfile {
    /// A client that is not known.
    pub const UNKNOWN: Self = Self { is_within_task: false, wait: WaitBounds::DEFAULT };
}

impl Audience {
    pub fn is_agent(self) -> bool {
        matches!(self, Self::Agent)
    }

    /// The arguments that mean nothing to this audience: `keep` where no task owns the work.
    pub(crate) fn select_hidden_args(
        self,
        for_agents: &'static [&'static str],
        for_clients: &'static [&'static str],
        for_top_clients: &'static [&'static str],
    ) -> &'static [&'static str] {
        match self {
            Self::Agent => for_agents,
            Self::Client(client) if client.is_within_task => for_clients,
            Self::Client(_) => for_top_clients,
        }
    }

    /// Reads how long a call waits, cut to what the audience may wait.
    pub fn read_wait(self, argument: &str, secs: f64) -> Result<Duration, Refusal> {
        let most = match self {
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
            return Ok(Duration::from_secs((secs as u64).min(most)));
        };
        Err(Refusal::invalid(format!(
            "the argument `{argument}`: {secs} {problem}; give whole seconds from 0 to {most}"
        )))
    }
}

/// Reads after how long a task is ended.
pub(crate) fn read_deadline(secs: f64) -> Result<Duration, Refusal> {
    if (1.0..=DEADLINE_MAX_SECS).contains(&secs) && secs.fract() == 0.0 {
        return Ok(Duration::from_secs(secs as u64));
    }
    Err(Refusal::invalid(format!(
        "the argument `deadline_secs`: {secs} is not a time to work in; give whole seconds from 1 to \
         {DEADLINE_MAX_SECS}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_cut_and_nonsense_is_refused() {
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
    fn a_client_waits_as_long_as_it_gives_a_call() {
        for (name, most) in [("claude-code", 240), ("gemini-cli-mcp-client", 240), ("codex", 50)] {
            let wait = WaitBounds::for_client(name);
            let client = Audience::Client(ClientProfile { is_within_task: false, wait });
            assert_eq!(
                client.read_wait("wait_secs", 600.0),
                Ok(Duration::from_secs(most)),
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
