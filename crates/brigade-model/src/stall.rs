//! Stall policies: the limit of a silence, and the reaction to a longer one.

use serde::{Deserialize, Serialize};

use crate::ids::{Millis, Time};

/// The treatment of a task that runs without activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StallPolicyForm", into = "StallPolicyForm")]
pub enum StallPolicy {
    /// The task may be silent for any time.
    Off,
    Watched(StallWatch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallWatch {
    /// The silence after which the task is stalled.
    pub after: Millis,
    /// The number of nudges, each after another such silence.
    pub nudges: u8,
    /// True if the task is ended after the last nudge.
    pub then_stop: bool,
}

impl StallPolicy {
    /// The policy of agents unless a limit overrides it. An unresponsive provider fails sooner,
    /// with an error of its own.
    pub const AGENT_DEFAULT: Self =
        Self::Watched(StallWatch { after: Millis(20 * 60_000), nudges: 1, then_stop: true });

    /// Returns a policy with one nudge after a silence of this length, and an end after the second.
    pub fn after(span: impl Into<Millis>) -> Self {
        Self::Watched(StallWatch { after: span.into(), nudges: 1, then_stop: true })
    }

    /// Returns a policy that only reports a silence of this length.
    pub fn report_after(span: impl Into<Millis>) -> Self {
        Self::Watched(StallWatch { after: span.into(), nudges: 0, then_stop: false })
    }

    pub fn watch(self) -> Option<StallWatch> {
        match self {
            Self::Off => None,
            Self::Watched(watch) => Some(watch),
        }
    }
}

/// The serialized form: `off`, a number of milliseconds to report only, or all fields.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StallPolicyForm {
    ReportOnly(Millis),
    Watched {
        after: Millis,
        #[serde(default = "default_nudges")]
        nudges: u8,
        #[serde(default = "default_then_stop")]
        then_stop: bool,
    },
    Keyword(StallKeyword),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StallKeyword {
    Off,
}

fn default_nudges() -> u8 {
    1
}

fn default_then_stop() -> bool {
    true
}

impl From<StallPolicyForm> for StallPolicy {
    fn from(form: StallPolicyForm) -> Self {
        match form {
            StallPolicyForm::ReportOnly(after) => Self::report_after(after),
            StallPolicyForm::Watched { after, nudges, then_stop } => {
                Self::Watched(StallWatch { after, nudges, then_stop })
            }
            StallPolicyForm::Keyword(StallKeyword::Off) => Self::Off,
        }
    }
}

impl From<StallPolicy> for StallPolicyForm {
    fn from(stall: StallPolicy) -> Self {
        match stall {
            StallPolicy::Off => Self::Keyword(StallKeyword::Off),
            StallPolicy::Watched(StallWatch { after, nudges, then_stop }) => {
                Self::Watched { after, nudges, then_stop }
            }
        }
    }
}

/// Renders a duration for a person or a model.
pub(crate) fn render_duration(span: Millis) -> String {
    let count = |number: u64, unit: &str| {
        let end = if number == 1 { "" } else { "s" };
        format!("{number} {unit}{end}")
    };
    match span.0 {
        millis @ 0..=999 => format!("{millis} ms"),
        millis @ 1_000..=119_999 => count(millis / 1_000, "second"),
        millis => count(millis / 60_000, "minute"),
    }
}

/// The nudges of a silent task since its last own activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NudgeState {
    pub count: u8,
    /// The time of the last nudge.
    pub last_at: Time,
    /// The number of journal entries at that time.
    pub journal_len: u32,
}

impl NudgeState {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether the journal has more entries than the one that delivered the nudge.
    pub(crate) fn has_progressed_since(&self, journal: u32) -> bool {
        journal > self.journal_len.saturating_add(1)
    }
}

impl StallWatch {
    /// Returns the time of the next reaction to a task that was silent since `last_activity_at`.
    /// `None` when no reaction remains.
    pub(crate) fn next_due(
        self,
        last_activity_at: Time,
        stalled: bool,
        nudged: NudgeState,
    ) -> Option<Time> {
        match stalled {
            false => Some(last_activity_at.after(self.after)),
            true if nudged.is_empty() || !self.has_next_step(nudged) => None,
            true => Some(nudged.last_at.after(self.after)),
        }
    }

    fn has_next_step(self, nudged: NudgeState) -> bool {
        nudged.count < self.nudges || self.then_stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let read = |text: &str| serde_json::from_str::<StallPolicy>(text).expect("a policy");
        assert_eq!(read("\"off\""), StallPolicy::Off);
        assert_eq!(read("500"), StallPolicy::report_after(Millis(500)));
        assert_eq!(read("{\"after\":500}"), StallPolicy::after(Millis(500)));
        let parsed = read("{\"after\":500,\"nudges\":3,\"then_stop\":false}");
        let watch = StallWatch { after: Millis(500), nudges: 3, then_stop: false };
        assert_eq!(parsed, StallPolicy::Watched(watch));
        for stall in [StallPolicy::Off, StallPolicy::AGENT_DEFAULT] {
            let text = serde_json::to_string(&stall).expect("JSON");
            assert_eq!(read(&text), stall, "{text}");
        }
    }
}
