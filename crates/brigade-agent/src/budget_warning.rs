//! Budget warnings: tell the model its remaining budgets, once for each threshold.

use brigade_model::limits::{Remaining, RemainingBudgets};
use serde::{Deserialize, Serialize};

use crate::inbox::Quoter;

/// The thresholds, in percent of a budget that remain.
const WARNING_PERCENTAGES: [u64; 3] = [50, 20, 5];

/// The number of thresholds that each budget had reached at the last warning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WarningLevels {
    tokens: u8,
    money: u8,
    time: u8,
    steps: u8,
}

/// The journal entry of a warning: its text, and the levels that need no further warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BudgetWarning {
    pub(crate) text: String,
    pub(crate) levels: WarningLevels,
}

/// The budgets that remain before a model call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetStatus {
    pub(crate) remaining: RemainingBudgets,
    /// The remaining model calls, including this one.
    pub(crate) steps: Remaining,
}

impl BudgetStatus {
    pub(crate) fn warning_levels(&self) -> WarningLevels {
        let level = |remaining: Option<Remaining>| remaining.map_or(0, warning_level);
        WarningLevels {
            tokens: level(self.remaining.tokens),
            money: level(self.remaining.money),
            time: level(self.remaining.time),
            steps: match (self.steps.amount, level(Some(self.steps))) {
                (1, _) if self.steps.limit > 1 => WARNING_PERCENTAGES.len() as u8,
                // A warning at half of the steps would be too early.
                (_, 0 | 1) => 0,
                (_, level) => level,
            },
        }
    }

    /// Returns a warning of the budgets that have reached a further threshold, if there are any.
    pub(crate) fn new_warning(
        &self,
        before: WarningLevels,
        quoter: Quoter,
    ) -> Option<BudgetWarning> {
        let levels = self.warning_levels();
        let RemainingBudgets { tokens, money, time } = self.remaining;
        let lines = [
            render_remaining(tokens.filter(|_| levels.tokens > before.tokens), |amount| {
                format!("{} tokens", group_digits(amount))
            }),
            render_remaining(money.filter(|_| levels.money > before.money), format_dollars),
            render_remaining(time.filter(|_| levels.time > before.time), format_span),
            (levels.steps > before.steps).then(|| render_steps(self.steps)),
        ];
        let lines: Vec<String> = lines.into_iter().flatten().collect();
        if lines.is_empty() {
            return None;
        }
        let text = format!(
            "{} Plan for what is left. When it is used up you are ended, and only your last text is \
             kept.",
            lines.join(" ")
        );
        Some(BudgetWarning { text: quoter.quote_note(&text), levels })
    }
}

fn warning_level(remaining: Remaining) -> u8 {
    let amount = u128::from(remaining.amount);
    let limit = u128::from(remaining.limit);
    let is_reached = |percent: &&u64| amount * 100 <= limit * u128::from(**percent);
    WARNING_PERCENTAGES.iter().filter(is_reached).count() as u8
}

fn render_remaining(
    remaining: Option<Remaining>,
    format: impl Fn(u64) -> String,
) -> Option<String> {
    let Remaining { amount, limit, shared } = remaining?;
    let sharers = match shared {
        false => "for you and all that you start",
        true => "for you and all others who share this budget",
    };
    Some(format!("{} of {} left {sharers}.", format(amount), format(limit)))
}

fn render_steps(remaining: Remaining) -> String {
    match remaining.amount {
        1 => "This is the last reply that you may give.".to_owned(),
        amount => format!("{amount} of {} replies left, this one included.", remaining.limit),
    }
}

/// Formats a number with commas: `12,000`.
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn format_dollars(millionths: u64) -> String {
    let dollars = millionths as f64 / 1e6;
    if dollars < 0.1 { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

fn format_span(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..=119 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remaining(amount: u64, limit: u64) -> Remaining {
        Remaining { amount, limit, shared: false }
    }

    fn status(amount: u64) -> BudgetStatus {
        let tokens = Some(remaining(amount, 50_000));
        BudgetStatus {
            remaining: RemainingBudgets { tokens, ..RemainingBudgets::default() },
            steps: remaining(200, 200),
        }
    }

    #[test]
    fn each_threshold_is_warned_of_once() {
        let mut levels = WarningLevels::default();
        let mut warned_at = Vec::new();
        for amount in [50_000, 25_001, 25_000, 24_000, 12_000, 9_000, 2_500, 10, 0] {
            if let Some(warning) = status(amount).new_warning(levels, Quoter::default()) {
                warned_at.push(amount);
                levels = warning.levels;
            }
        }
        assert_eq!(warned_at, [25_000, 9_000, 2_500]);
    }

    #[test]
    fn a_low_budget_at_the_start_is_warned_of_at_once_and_alone() {
        let warning = status(2_000)
            .new_warning(WarningLevels::default(), Quoter::default())
            .expect("a warning");
        assert!(
            warning
                .text
                .contains("2,000 tokens of 50,000 tokens left for you and all that you start."),
            "{}",
            warning.text
        );
        assert!(!warning.text.contains("replies"), "{}", warning.text);
    }

    #[test]
    fn every_budget_is_rendered_in_its_unit() {
        let shared = |amount, limit| Some(Remaining { amount, limit, shared: true });
        let money = shared(20_000, 1_000_000);
        let time = shared(90_000, 1_200_000);
        let status = BudgetStatus {
            remaining: RemainingBudgets { tokens: None, money, time },
            steps: remaining(1, 30),
        };
        let text = status
            .new_warning(WarningLevels::default(), Quoter::default())
            .expect("a warning")
            .text;
        for expected in [
            "$0.0200 of $1.00 left for you and all others who share this budget.",
            "90 seconds of 20 minutes left",
            "This is the last reply that you may give.",
            "<note from=\"brigade\">",
        ] {
            assert!(text.contains(expected), "{expected:?} is missing: {text}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(group_digits),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
