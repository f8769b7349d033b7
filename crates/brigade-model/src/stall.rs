//! When silence is too long, and what is done about it.

use serde::{Deserialize, Serialize};

use crate::ids::{Millis, Time};

/// What becomes of a task that runs and shows no sign of moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StallPolicyForm", into = "StallPolicyForm")]
pub enum StallPolicy {
    /// It may be silent for as long as it likes.
    Off,
    Watched(StallWatch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallWatch {
    /// So long without anything happening is a stall.
    pub after: Millis,
    /// So often it is spoken to, each time after another such silence.
    pub nudges: u8,
    /// Whether it is ended when that did not help.
    pub then_stop: bool,
}

impl StallPolicy {
    /// What holds for agents that nobody said anything else of. A provider that does not answer is
    /// given up sooner than that, with its own words.
    pub const AGENT_DEFAULT: Self =
        Self::Watched(StallWatch { after: Millis(20 * 60_000), nudges: 1, then_stop: true });

    /// A silence of that length leads to one nudge, a second one to the end.
    pub fn after(span: impl Into<Millis>) -> Self {
        Self::Watched(StallWatch { after: span.into(), nudges: 1, then_stop: true })
    }

    /// A silence of that length is told, and nothing is done about it.
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

/// As it is written: `off`, a span in milliseconds that is only told, or all of it.
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

/// A span of time as it is said.
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

/// How often a silent task was spoken to since it last did something of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NudgeState {
    pub count: u8,
    /// The last time.
    pub last_at: Time,
    /// How many entries its journal had then.
    pub journal_len: u32,
}

impl NudgeState {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether so many entries are more than the one by which it heard of the nudge.
    pub(crate) fn has_progressed_since(&self, journal: u32) -> bool {
        journal > self.journal_len.saturating_add(1)
    }
}

impl StallWatch {
    /// When the next thing is due for a task that was silent since `moved`; `None` when nothing is
    /// left to be done about its silence.
    pub(crate) fn next_due(self, moved: Time, stalled: bool, nudged: NudgeState) -> Option<Time> {
        match stalled {
            false => Some(moved.after(self.after)),
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
        let told = read("{\"after\":500,\"nudges\":3,\"then_stop\":false}");
        let watch = StallWatch { after: Millis(500), nudges: 3, then_stop: false };
        assert_eq!(told, StallPolicy::Watched(watch));
        for stall in [StallPolicy::Off, StallPolicy::AGENT_DEFAULT] {
            let text = serde_json::to_string(&stall).expect("JSON");
            assert_eq!(read(&text), stall, "{text}");
        }
    }
}
