//! What is left of an agent's budgets, told to it before they bite: once for each mark that they fall
//! below.

use brigade_model::limits::{Remaining, RemainingBudgets};
use serde::{Deserialize, Serialize};

use crate::inbox::Quoter;

/// Told when so much of a hundred is left, or less.
const WARNING_PERCENTAGES: [u64; 3] = [50, 20, 5];

/// How many of the marks each budget was below when the agent was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WarningLevels {
    tokens: u8,
    money: u8,
    time: u8,
    steps: u8,
}

/// A warning as it is written down: the words, and what need not be said again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BudgetWarning {
    pub(crate) text: String,
    pub(crate) levels: WarningLevels,
}

/// How things stand before a model call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetStatus {
    pub(crate) remaining: RemainingBudgets,
    /// Model calls that are left, this one included, and how many there may be.
    pub(crate) steps: Remaining,
}

impl BudgetStatus {
    pub(crate) fn warning_levels(&self) -> WarningLevels {
        let below = |rest: Option<Remaining>| rest.map_or(0, warning_level);
        WarningLevels {
            tokens: below(self.remaining.tokens),
            money: below(self.remaining.money),
            time: below(self.remaining.time),
            steps: match (self.steps.amount, below(Some(self.steps))) {
                (1, _) if self.steps.limit > 1 => WARNING_PERCENTAGES.len() as u8,
                // Half of its steps is early to think of the end.
                (_, 0 | 1) => 0,
                (_, some) => some,
            },
        }
    }

    /// What is new since the agent was told last.
    pub(crate) fn new_warning(
        &self,
        before: WarningLevels,
        quoter: Quoter,
    ) -> Option<BudgetWarning> {
        let warned = self.warning_levels();
        let RemainingBudgets { tokens, money, time } = self.remaining;
        let lines = [
            render_remaining(tokens.filter(|_| warned.tokens > before.tokens), |amount| {
                format!("{} tokens", group_digits(amount))
            }),
            render_remaining(money.filter(|_| warned.money > before.money), format_dollars),
            render_remaining(time.filter(|_| warned.time > before.time), format_span),
            (warned.steps > before.steps).then(|| render_steps(self.steps)),
        ];
        let lines: Vec<String> = lines.into_iter().flatten().collect();
        if lines.is_empty() {
            return None;
        }
        let text = format!(
            "{} Plan for what is left. When it is used up you are ended, and what you said last is \
             all that is kept.",
            lines.join(" ")
        );
        Some(BudgetWarning { text: quoter.quote_note(&text), levels: warned })
    }
}

fn warning_level(rest: Remaining) -> u8 {
    let under =
        |mark: &&u64| u128::from(rest.amount) * 100 <= u128::from(rest.limit) * u128::from(**mark);
    WARNING_PERCENTAGES.iter().filter(under).count() as u8
}

fn render_remaining(rest: Option<Remaining>, amount: impl Fn(u64) -> String) -> Option<String> {
    let Remaining { amount: left, limit: of, shared } = rest?;
    let whose = match shared {
        false => "for you and all that you start",
        true => "for you and all others who share this budget",
    };
    Some(format!("{} of {} left {whose}.", amount(left), amount(of)))
}

fn render_steps(rest: Remaining) -> String {
    match rest.amount {
        1 => "This is the last reply that you may give.".to_owned(),
        left => format!("{left} of {} replies left, this one included.", rest.limit),
    }
}

/// `12,000`.
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
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

    fn rest(left: u64, of: u64) -> Remaining {
        Remaining { amount: left, limit: of, shared: false }
    }

    fn standing(left: u64) -> BudgetStatus {
        let tokens = Some(rest(left, 50_000));
        BudgetStatus {
            remaining: RemainingBudgets { tokens, ..RemainingBudgets::default() },
            steps: rest(200, 200),
        }
    }

    #[test]
    fn each_mark_is_told_once() {
        let mut warned = WarningLevels::default();
        let mut told = Vec::new();
        for left in [50_000, 25_001, 25_000, 24_000, 12_000, 9_000, 2_500, 10, 0] {
            if let Some(warning) = standing(left).new_warning(warned, Quoter::default()) {
                told.push(left);
                warned = warning.levels;
            }
        }
        assert_eq!(told, [25_000, 9_000, 2_500]);
    }

    #[test]
    fn who_begins_with_little_is_told_at_once_and_only_of_that() {
        let warning = standing(2_000)
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
    fn every_budget_has_its_words() {
        let shared = |left, of| Some(Remaining { amount: left, limit: of, shared: true });
        let money = shared(20_000, 1_000_000);
        let time = shared(90_000, 1_200_000);
        let standing = BudgetStatus {
            remaining: RemainingBudgets { tokens: None, money, time },
            steps: rest(1, 30),
        };
        let text = standing
            .new_warning(WarningLevels::default(), Quoter::default())
            .expect("a warning")
            .text;
        for words in [
            "$0.0200 of $1.00 left for you and all others who share this budget.",
            "90 seconds of 20 minutes left",
            "This is the last reply that you may give.",
            "<note from=\"brigade\">",
        ] {
            assert!(text.contains(words), "{words:?} is missing: {text}");
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
