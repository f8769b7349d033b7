//! What a subtree may use, and what it has used.

use serde::{Deserialize, Serialize};

use crate::ids::Millis;
use crate::spawn_rate::SpawnRate;
use crate::stall::StallPolicy;

/// The deepest tree there is, whatever the limits say: walks up a tree are bounded by it.
pub const DEPTH_MAX: u16 = 64;
/// Unread messages per inbox unless a limit says otherwise.
pub const INBOX_DEFAULT: u32 = 10_000;

/// Bounds on a task or session and all that is below it. `None` is no bound of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Levels below the holder: 1 on a session forbids nesting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u16>,
    /// Living children of any one parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Tasks ever spawned below the holder; on a session, below each top-level run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Tasks that run at once; more of them queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// Unread messages in one inbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// Wall time of a run, without the time it was queued. On a session: of each top-level run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Millis>,
    /// What is done when the holder itself runs and nothing happens; `None` is what its kind of work
    /// has. Tasks below it have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallPolicy>,
    /// How fast tasks may be spawned below the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawn_rate: Option<SpawnRate>,
}

impl Limits {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Where both have a bound, the smaller one; of two ways to treat a stall this one's.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            depth: least(self.depth, other.depth),
            width: least(self.width, other.width),
            total: least(self.total, other.total),
            running: least(self.running, other.running),
            inbox: least(self.inbox, other.inbox),
            tokens: least(self.tokens, other.tokens),
            money: least(self.money, other.money),
            time: least(self.time, other.time),
            stall: self.stall.or(other.stall),
            spawn_rate: match (self.spawn_rate, other.spawn_rate) {
                (Some(one), Some(other)) => Some(one.tighter_of(other)),
                (one, other) => one.or(other),
            },
        }
    }
}

impl Limits {
    /// With these instead, as far as they say anything.
    #[must_use]
    pub fn override_with(&self, to: &Self) -> Self {
        Self {
            depth: to.depth.or(self.depth),
            width: to.width.or(self.width),
            total: to.total.or(self.total),
            running: to.running.or(self.running),
            inbox: to.inbox.or(self.inbox),
            tokens: to.tokens.or(self.tokens),
            money: to.money.or(self.money),
            time: to.time.or(self.time),
            stall: to.stall.or(self.stall),
            spawn_rate: to.spawn_rate.or(self.spawn_rate),
        }
    }
}

/// What is left of the budgets that hold for a task, each of the one that will be used up first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingBudgets {
    pub tokens: Option<Remaining>,
    /// In millionths of a dollar.
    pub money: Option<Remaining>,
    /// In milliseconds.
    pub time: Option<Remaining>,
}

/// How much of something is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    pub amount: u64,
    pub limit: u64,
    /// Whether others beside the task and those below it use it up too.
    pub shared: bool,
}

impl Remaining {
    pub(crate) fn new(most: u64, used: u64, shared: bool) -> Self {
        Self { amount: most.saturating_sub(used), limit: most, shared }
    }

    /// Keeps the smaller of two, the nearer one if they are the same.
    pub(crate) fn keep_smaller(kept: &mut Option<Self>, other: Self) {
        if kept.is_none_or(|kept| other.amount < kept.amount) {
            *kept = Some(other);
        }
    }
}

/// Which limit it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    Depth,
    Width,
    Total,
    Inbox,
    Tokens,
    Money,
}

impl std::fmt::Display for LimitKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Depth => "depth",
            Self::Width => "width",
            Self::Total => "total",
            Self::Inbox => "inbox",
            Self::Tokens => "tokens",
            Self::Money => "money",
        })
    }
}

/// Money in millionths of a dollar.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Money(pub u64);

/// What was spent: by a task and everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub tokens: u64,
    pub money: Money,
}

impl Usage {
    pub const NONE: Self = Self { tokens: 0, money: Money(0) };

    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            money: Money(self.money.0.saturating_add(other.money.0)),
        }
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            money: Money(self.money.0.saturating_sub(other.money.0)),
        }
    }

    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        Self { tokens: self.tokens.min(other.tokens), money: self.money.min(other.money) }
    }

    /// The first kind in which this is less than `needed`.
    pub fn first_shortfall(&self, needed: &Self) -> Option<LimitKind> {
        if self.tokens < needed.tokens {
            Some(LimitKind::Tokens)
        } else if self.money < needed.money {
            Some(LimitKind::Money)
        } else {
            None
        }
    }
}
