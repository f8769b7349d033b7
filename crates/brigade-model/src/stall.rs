//! When silence is too long, and what is done about it.

use serde::{Deserialize, Serialize};

use crate::ids::{Millis, Time};

/// What becomes of a task that runs and shows no sign of moving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub enum Stall {
    /// It may be silent for as long as it likes.
    Off,
    Watched(Watch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// So long without anything happening is a stall.
    pub after: Millis,
    /// So often it is spoken to, each time after another such silence.
    pub nudges: u8,
    /// Whether it is ended when that did not help.
    pub then_stop: bool,
}

impl Stall {
    /// What holds for agents that nobody said anything else of. A provider that does not answer is
    /// given up sooner than that, with its own words.
    pub const OF_AGENTS: Self =
        Self::Watched(Watch { after: Millis(20 * 60_000), nudges: 1, then_stop: true });

    /// A silence of that length leads to one nudge, a second one to the end.
    pub fn after(span: impl Into<Millis>) -> Self {
        Self::Watched(Watch { after: span.into(), nudges: 1, then_stop: true })
    }

    /// A silence of that length is told, and nothing is done about it.
    pub fn told_after(span: impl Into<Millis>) -> Self {
        Self::Watched(Watch { after: span.into(), nudges: 0, then_stop: false })
    }

    pub fn watch(self) -> Option<Watch> {
        match self {
            Self::Off => None,
            Self::Watched(watch) => Some(watch),
        }
    }
}

/// As it is written: `off`, a span in milliseconds that is only told, or all of it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Told(Millis),
    Watched {
        after: Millis,
        #[serde(default = "once")]
        nudges: u8,
        #[serde(default = "yes")]
        then_stop: bool,
    },
    Word(Word),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Off,
}

fn once() -> u8 {
    1
}

fn yes() -> bool {
    true
}

impl From<Form> for Stall {
    fn from(form: Form) -> Self {
        match form {
            Form::Told(after) => Self::told_after(after),
            Form::Watched { after, nudges, then_stop } => {
                Self::Watched(Watch { after, nudges, then_stop })
            }
            Form::Word(Word::Off) => Self::Off,
        }
    }
}

impl From<Stall> for Form {
    fn from(stall: Stall) -> Self {
        match stall {
            Stall::Off => Self::Word(Word::Off),
            Stall::Watched(Watch { after, nudges, then_stop }) => {
                Self::Watched { after, nudges, then_stop }
            }
        }
    }
}

/// A span of time as it is said.
pub(crate) fn spoken(span: Millis) -> String {
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
pub struct Nudged {
    pub times: u8,
    /// The last time.
    pub at: Time,
    /// How many entries its journal had then.
    pub journal: u32,
}

impl Nudged {
    pub(crate) fn is_never(&self) -> bool {
        self.times == 0
    }

    /// Whether so many entries are more than the one by which it heard of the nudge.
    pub(crate) fn is_past(&self, journal: u32) -> bool {
        journal > self.journal.saturating_add(1)
    }
}

impl Watch {
    /// When the next thing is due for a task that was silent since `moved`; `None` when nothing is
    /// left to be done about its silence.
    pub(crate) fn due(self, moved: Time, stalled: bool, nudged: Nudged) -> Option<Time> {
        match stalled {
            false => Some(moved.after(self.after)),
            true if nudged.is_never() || !self.acts_after(nudged) => None,
            true => Some(nudged.at.after(self.after)),
        }
    }

    fn acts_after(self, nudged: Nudged) -> bool {
        nudged.times < self.nudges || self.then_stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let read = |text: &str| serde_json::from_str::<Stall>(text).expect("a policy");
        assert_eq!(read("\"off\""), Stall::Off);
        assert_eq!(read("500"), Stall::told_after(Millis(500)));
        assert_eq!(read("{\"after\":500}"), Stall::after(Millis(500)));
        let told = read("{\"after\":500,\"nudges\":3,\"then_stop\":false}");
        let watch = Watch { after: Millis(500), nudges: 3, then_stop: false };
        assert_eq!(told, Stall::Watched(watch));
        for stall in [Stall::Off, Stall::OF_AGENTS] {
            let text = serde_json::to_string(&stall).expect("JSON");
            assert_eq!(read(&text), stall, "{text}");
        }
    }
}
