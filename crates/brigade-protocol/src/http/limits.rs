//! Limits, and what remains of them.

use brigade_model::ids::{Millis, Time};
use brigade_model::limits::{Limits, Money, Usage};
use brigade_model::refusal::Refusal;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::stall::{StallPolicy, StallWatch};
use brigade_model::task::{RunClock, TaskRow};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::json_object::json_objects;
use super::{TaskId, UsageBody};

/// The digits of a millionth of a dollar.
const MONEY_DIGITS: usize = 6;

/// Limits of a task and its descendants, or of a session. Absent limits do not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, remote = "Self")]
#[schema(as = Limits)]
pub struct LimitsBody {
    /// Levels of descendants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u16>,
    /// Children of one task that are alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Descendants ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Tasks that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// Unread messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Dollars as decimal text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<String>,
    /// The time of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallBody>,
    /// Tasks started within a time span, such as `10/min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawn_rate: Option<String>,
}

/// The treatment of a silent task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schema(as = Stall)]
pub struct StallBody {
    /// The silence after which the task is stalled. 0 allows any silence.
    pub after_ms: u64,
    /// Reminders, each after another such silence.
    #[serde(default)]
    pub nudges: u8,
    /// Ends the task after the last reminder.
    #[serde(default)]
    pub then_stop: bool,
}

json_objects! { LimitsBody, StallBody }

/// The unused part of limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Remaining)]
pub struct RemainingBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Dollars as decimal text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// Further descendants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
}

/// Limits of another holder that apply to a task. All tasks under the holder share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = InheritedLimits)]
pub struct InheritedLimitsBody {
    /// The task that has the limits; absent for the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<TaskId>,
    /// The holder has ended and kept this task.
    #[serde(default)]
    pub holder_ended: bool,
    pub limits: LimitsBody,
    /// The usage of all tasks that share the limits.
    pub usage: UsageBody,
    pub remaining: RemainingBody,
}

/// The limits that apply to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TaskLimits)]
pub struct TaskLimitsBody {
    /// The task's own limits.
    pub limits: LimitsBody,
    pub remaining: RemainingBody,
    /// From the nearest holder to the session.
    pub inherited: Vec<InheritedLimitsBody>,
}

/// The usage of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TaskUsage)]
pub struct TaskUsageBody {
    pub own: UsageBody,
    /// The usage of the task and its descendants.
    pub subtree: UsageBody,
    /// The part of `subtree` that was reserved for calls of unknown cost. The cost may be less.
    pub unknown: UsageBody,
    /// What remains of the task's own limits.
    pub remaining: RemainingBody,
}

impl LimitsBody {
    pub fn of(limits: &Limits) -> Self {
        Self {
            depth: limits.depth,
            width: limits.width,
            total: limits.total,
            running: limits.running,
            inbox: limits.inbox,
            tokens: limits.tokens,
            money: limits.money.map(render_money),
            time_ms: limits.time.map(|time| time.0),
            stall: limits.stall.map(StallBody::of),
            spawn_rate: limits.spawn_rate.map(|rate| rate.to_string()),
        }
    }

    /// Returns the limits, or refuses a text that is not one.
    pub fn parse(&self) -> Result<Limits, Refusal> {
        let rate = self.spawn_rate.as_deref().map(str::parse::<SpawnRate>).transpose();
        Ok(Limits {
            depth: self.depth,
            width: self.width,
            total: self.total,
            running: self.running,
            inbox: self.inbox,
            tokens: self.tokens,
            money: self.money.as_deref().map(parse_money).transpose()?,
            time: self.time_ms.map(Millis),
            stall: self.stall.map(StallBody::policy),
            spawn_rate: rate.map_err(|error| Refusal::invalid(error.to_string()))?,
        })
    }
}

impl StallBody {
    fn of(policy: StallPolicy) -> Self {
        match policy {
            StallPolicy::Off => Self { after_ms: 0, nudges: 0, then_stop: false },
            StallPolicy::Watched(StallWatch { after, nudges, then_stop }) => {
                Self { after_ms: after.0, nudges, then_stop }
            }
        }
    }

    fn policy(self) -> StallPolicy {
        match self.after_ms {
            0 => StallPolicy::Off,
            after => StallPolicy::Watched(StallWatch {
                after: Millis(after),
                nudges: self.nudges,
                then_stop: self.then_stop,
            }),
        }
    }
}

impl RemainingBody {
    /// Returns what remains of limits after this usage.
    pub fn of(limits: &Limits, usage: Usage) -> Self {
        let money = limits.money.map(|limit| Money(limit.0.saturating_sub(usage.money.0)));
        Self {
            tokens: limits.tokens.map(|limit| limit.saturating_sub(usage.tokens)),
            money: money.map(render_money),
            time_ms: None,
            total: None,
        }
    }

    /// Returns what remains of a task's own limits. Reserved amounts count as used.
    pub fn of_task(row: &TaskRow, now: Time) -> Self {
        let Some(limits) = row.limits.as_deref() else { return Self::default() };
        let extras = row.extras.as_deref();
        let spawned = extras.map_or(0, |extras| extras.total_spawned);
        let clock = extras.map_or(RunClock::Unlimited, |extras| extras.clock);
        Self {
            time_ms: match clock {
                RunClock::Unlimited => None,
                RunClock::Stopped { remaining } => Some(remaining.0),
                RunClock::Ticking { until } => Some(until.since(now).0),
            },
            total: limits.total.map(|limit| limit.saturating_sub(spawned)),
            ..Self::of(limits, row.usage().plus(row.reserved()))
        }
    }
}

/// Renders dollars as decimal text.
pub fn render_money(money: Money) -> String {
    let Money(millionths) = money;
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

fn parse_money(text: &str) -> Result<Money, Refusal> {
    let wrong = || Refusal::invalid("money is dollars as decimal text, such as \"2.50\"");
    let (dollars, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !dollars.is_empty() && is_digits(dollars) && is_digits(fraction);
    if !is_number || fraction.len() > MONEY_DIGITS {
        return Err(wrong());
    }
    let dollars: u64 = dollars.parse().map_err(|_| wrong())?;
    let fraction: u64 = format!("{fraction:0<MONEY_DIGITS$}").parse().map_err(|_| wrong())?;
    let millionths = dollars.checked_mul(1_000_000).and_then(|all| all.checked_add(fraction));
    millionths.map(Money).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_same_after_a_round_trip() {
        let body = LimitsBody {
            depth: Some(2),
            money: Some("2.500000".to_owned()),
            time_ms: Some(1_000),
            stall: Some(StallBody { after_ms: 5, nudges: 1, then_stop: true }),
            spawn_rate: Some("10/min".to_owned()),
            ..LimitsBody::default()
        };
        assert_eq!(LimitsBody::of(&body.parse().expect("limits")), body);
    }

    #[test]
    fn money_is_decimal_text() {
        for (text, millionths) in [("2", 2_000_000), ("0.5", 500_000), ("1.000001", 1_000_001)] {
            assert_eq!(parse_money(text), Ok(Money(millionths)), "{text}");
        }
        let wrong = ["", ".", ".5", "-1", "+1", "1e3", "0.0000001", "99999999999999999999", "1.x"];
        for text in wrong {
            assert!(parse_money(text).is_err(), "{text}");
        }
    }
}
