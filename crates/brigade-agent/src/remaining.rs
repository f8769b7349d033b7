//! What is left of an agent's budgets, told to it before they bite: once for each mark that they fall
//! below.

use brigade_model::limits::{Left, Rest};
use serde::{Deserialize, Serialize};

use crate::news::Quoter;

/// Told when so much of a hundred is left, or less.
const MARKS: [u64; 3] = [50, 20, 5];

/// How many of the marks each budget was below when the agent was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Warned {
    tokens: u8,
    money: u8,
    time: u8,
    steps: u8,
}

/// A warning as it is written down: the words, and what need not be said again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warning {
    pub(crate) text: String,
    pub(crate) warned: Warned,
}

/// How things stand before a model call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) left: Left,
    /// Model calls that are left, this one included, and how many there may be.
    pub(crate) steps: Rest,
}

impl Standing {
    pub(crate) fn warned(&self) -> Warned {
        let below = |rest: Option<Rest>| rest.map_or(0, below);
        Warned {
            tokens: below(self.left.tokens),
            money: below(self.left.money),
            time: below(self.left.time),
            steps: match (self.steps.left, below(Some(self.steps))) {
                (1, _) if self.steps.of > 1 => MARKS.len() as u8,
                // Half of its steps is early to think of the end.
                (_, 0 | 1) => 0,
                (_, some) => some,
            },
        }
    }

    /// What is new since the agent was told last.
    pub(crate) fn warning(&self, before: Warned, quoter: Quoter) -> Option<Warning> {
        let warned = self.warned();
        let Left { tokens, money, time } = self.left;
        let lines = [
            said(tokens.filter(|_| warned.tokens > before.tokens), |amount| {
                format!("{} tokens", grouped(amount))
            }),
            said(money.filter(|_| warned.money > before.money), dollars),
            said(time.filter(|_| warned.time > before.time), span),
            (warned.steps > before.steps).then(|| steps(self.steps)),
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
        Some(Warning { text: quoter.note(&text), warned })
    }
}

fn below(rest: Rest) -> u8 {
    let under =
        |mark: &&u64| u128::from(rest.left) * 100 <= u128::from(rest.of) * u128::from(**mark);
    MARKS.iter().filter(under).count() as u8
}

fn said(rest: Option<Rest>, amount: impl Fn(u64) -> String) -> Option<String> {
    let Rest { left, of, shared } = rest?;
    let whose = match shared {
        false => "for you and all that you start",
        true => "for you and all others who share this budget",
    };
    Some(format!("{} of {} left {whose}.", amount(left), amount(of)))
}

fn steps(rest: Rest) -> String {
    match rest.left {
        1 => "This is the last reply that you may give.".to_owned(),
        left => format!("{left} of {} replies left, this one included.", rest.of),
    }
}

/// `12,000`.
fn grouped(number: u64) -> String {
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

fn dollars(millionths: u64) -> String {
    let dollars = millionths as f64 / 1e6;
    if dollars < 0.1 { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

fn span(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..=119 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(left: u64, of: u64) -> Rest {
        Rest { left, of, shared: false }
    }

    fn standing(left: u64) -> Standing {
        let tokens = Some(rest(left, 50_000));
        Standing { left: Left { tokens, ..Left::default() }, steps: rest(200, 200) }
    }

    #[test]
    fn each_mark_is_told_once() {
        let mut warned = Warned::default();
        let mut told = Vec::new();
        for left in [50_000, 25_001, 25_000, 24_000, 12_000, 9_000, 2_500, 10, 0] {
            if let Some(warning) = standing(left).warning(warned, Quoter::default()) {
                told.push(left);
                warned = warning.warned;
            }
        }
        assert_eq!(told, [25_000, 9_000, 2_500]);
    }

    #[test]
    fn who_begins_with_little_is_told_at_once_and_only_of_that() {
        let warning =
            standing(2_000).warning(Warned::default(), Quoter::default()).expect("a warning");
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
        let shared = |left, of| Some(Rest { left, of, shared: true });
        let money = shared(20_000, 1_000_000);
        let time = shared(90_000, 1_200_000);
        let standing = Standing { left: Left { tokens: None, money, time }, steps: rest(1, 30) };
        let text = standing.warning(Warned::default(), Quoter::default()).expect("a warning").text;
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
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
