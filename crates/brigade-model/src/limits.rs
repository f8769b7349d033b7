//! Limits of a subtree, and its usage.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

use crate::ids::Millis;
use crate::spawn_rate::SpawnRate;
use crate::stall::StallPolicy;

/// The maximum depth of a session, regardless of limits. It bounds walks up the tree.
pub const DEPTH_MAX: u16 = 64;
/// The default limit of unread messages per inbox.
pub const INBOX_DEFAULT: u32 = 10_000;

/// The limits of a task or session and its descendants. `None` is no limit of its own.
///
/// ```
/// use std::time::Duration;
///
/// use brigade_model::limits::Limits;
///
/// let tenant = Limits { running: Some(4), tokens: Some(500_000), ..Limits::default() };
/// let task = Limits { running: Some(8), time: Some(Duration::from_secs(60).into()), ..tenant };
/// assert_eq!(tenant.intersect(&task).running, Some(4));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Levels under the holder: 1 on a session forbids nesting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u16>,
    /// Alive children of any one parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Tasks ever spawned under the holder. On a session: under each top-level run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Tasks that run at once. Further tasks queue.
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
    /// The treatment of the holder itself when it runs silently. `None` is the default of its kind
    /// of work. Descendants have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallPolicy>,
    /// The rate at which tasks may be spawned under the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawn_rate: Option<SpawnRate>,
}

impl Limits {
    /// Returns these limits with a time limit.
    #[must_use]
    pub fn with_time(self, time: Duration) -> Self {
        Self { time: Some(time.into()), ..self }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the smaller limit where both have one, and this one's stall policy before the
    /// other's.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        fn smaller<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            depth: smaller(self.depth, other.depth),
            width: smaller(self.width, other.width),
            total: smaller(self.total, other.total),
            running: smaller(self.running, other.running),
            inbox: smaller(self.inbox, other.inbox),
            tokens: smaller(self.tokens, other.tokens),
            money: smaller(self.money, other.money),
            time: smaller(self.time, other.time),
            stall: self.stall.or(other.stall),
            spawn_rate: match (self.spawn_rate, other.spawn_rate) {
                (Some(one), Some(other)) => Some(one.tighter_of(other)),
                (one, other) => one.or(other),
            },
        }
    }
}

impl Limits {
    /// Returns true if none of these limits is looser than the other's. A stall policy that differs
    /// from the other's counts as looser.
    pub fn is_within(&self, other: &Self) -> bool {
        let has_same_stall = other.stall.is_none() || self.stall == other.stall;
        has_same_stall && self.intersect(other) == *self
    }

    /// Returns these limits, overridden by those that `to` sets.
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

/// The remaining budgets of a task. Each is the smallest one that applies to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemainingBudgets {
    pub tokens: Option<Remaining>,
    /// In millionths of a dollar.
    pub money: Option<Remaining>,
    /// In milliseconds.
    pub time: Option<Remaining>,
}

/// The remaining part of one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remaining {
    pub amount: u64,
    pub limit: u64,
    /// True if tasks outside the subtree use the same budget.
    pub shared: bool,
}

impl Remaining {
    pub(crate) fn new(limit: u64, used: u64, shared: bool) -> Self {
        Self { amount: limit.saturating_sub(used), limit, shared }
    }

    /// Keeps the smaller of the two. If they are equal, the nearer holder's stays.
    pub(crate) fn keep_smaller(kept: &mut Option<Self>, other: Self) {
        if kept.is_none_or(|kept| other.amount < kept.amount) {
            *kept = Some(other);
        }
    }
}

/// The kind of a limit.
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

impl Money {
    /// Converts dollars, rounded to a millionth. Negative and absurd amounts become the nearest that
    /// there is.
    pub fn from_dollars(dollars: f64) -> Self {
        Self((dollars * 1e6).round() as u64)
    }
}

/// Shows dollars with two digits after the point, or more if there are any: `$1.25`, `$0.0042`.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = format!("{:06}", self.0 % 1_000_000);
        let digits = cents.trim_end_matches('0').len().max(2);
        write!(f, "${}.{}", self.0 / 1_000_000, &cents[..digits])
    }
}

/// The estimated cost of a call, before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate {
    /// The amount to reserve if the budget has it.
    pub max: Usage,
    /// The smallest amount with which the call can be made.
    pub min: Usage,
}

/// The amounts that a task and its descendants spent.
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

    /// Returns the first kind of which this has less than `needed`.
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
