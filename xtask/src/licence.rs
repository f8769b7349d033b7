//! Parses SPDX licence expressions: names, `OR`, `AND`, `WITH`, parentheses.

use std::iter::Peekable;
use std::vec::IntoIter;

/// A licence expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Licence {
    /// A name, with its exception if it has one: `Apache-2.0 WITH LLVM-exception`.
    Named(String),
    Any(Vec<Licence>),
    All(Vec<Licence>),
}

impl Licence {
    /// Parses an expression. A slash means `OR`, as in old manifests.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = tokenize(text)?.into_iter().peekable();
        let licence = parse_any(&mut tokens)?;
        match tokens.next() {
            None => Ok(licence),
            Some(token) => Err(format!("{token:?} is unexpected here")),
        }
    }

    /// Checks that the allowed licences satisfy this expression.
    pub(crate) fn is_satisfied_by(&self, allowed: &[&str]) -> bool {
        match self {
            Self::Named(name) => allowed.contains(&name.as_str()),
            Self::Any(choices) => choices.iter().any(|one| one.is_satisfied_by(allowed)),
            Self::All(parts) => parts.iter().all(|one| one.is_satisfied_by(allowed)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LicenceToken {
    Name(String),
    Or,
    And,
    With,
    Open,
    Close,
}

type LicenceTokens = Peekable<IntoIter<LicenceToken>>;

fn tokenize(text: &str) -> Result<Vec<LicenceToken>, String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced
        .split_whitespace()
        .map(|word| match word {
            "(" => Ok(LicenceToken::Open),
            ")" => Ok(LicenceToken::Close),
            "OR" | "or" => Ok(LicenceToken::Or),
            "AND" | "and" => Ok(LicenceToken::And),
            "WITH" | "with" => Ok(LicenceToken::With),
            name if name.chars().all(|c| c.is_ascii_alphanumeric() || "-.+:".contains(c)) => {
                Ok(LicenceToken::Name(name.to_owned()))
            }
            other => Err(format!("{other:?} is not a licence name")),
        })
        .collect()
}

fn parse_any(tokens: &mut LicenceTokens) -> Result<Licence, String> {
    let mut choices = vec![parse_all(tokens)?];
    while tokens.next_if_eq(&LicenceToken::Or).is_some() {
        choices.push(parse_all(tokens)?);
    }
    Ok(if choices.len() == 1 { choices.remove(0) } else { Licence::Any(choices) })
}

/// Parses the parts of an `AND`, which binds tighter than `OR`.
fn parse_all(tokens: &mut LicenceTokens) -> Result<Licence, String> {
    let mut parts = vec![parse_one(tokens)?];
    while tokens.next_if_eq(&LicenceToken::And).is_some() {
        parts.push(parse_one(tokens)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Licence::All(parts) })
}

fn parse_one(tokens: &mut LicenceTokens) -> Result<Licence, String> {
    match tokens.next() {
        Some(LicenceToken::Open) => {
            let inner = parse_any(tokens)?;
            match tokens.next() {
                Some(LicenceToken::Close) => Ok(inner),
                _ => Err("a parenthesis is not closed".to_owned()),
            }
        }
        Some(LicenceToken::Name(name)) if tokens.next_if_eq(&LicenceToken::With).is_some() => {
            match tokens.next() {
                Some(LicenceToken::Name(exception)) => {
                    Ok(Licence::Named(format!("{name} WITH {exception}")))
                }
                _ => Err("`WITH` needs an exception after it".to_owned()),
            }
        }
        Some(LicenceToken::Name(name)) => Ok(Licence::Named(name)),
        Some(token) => Err(format!("{token:?} is unexpected here")),
        None => Err("the expression ends too early".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_satisfied(text: &str, allowed: &[&str]) -> bool {
        Licence::parse(text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .is_satisfied_by(allowed)
    }

    #[test]
    fn an_expression_is_satisfied_by_one_allowed_choice() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
        for (text, expect) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0 or MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0/Apache-2.0", false),
            ("MIT AND GPL-3.0", false),
            ("MIT AND ISC", true),
            ("GPL-3.0 OR MIT AND ISC", true),
            ("MIT OR ISC AND GPL-3.0", true),
            ("(MIT OR ISC) AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("((MIT))", true),
            ("Apache-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH Other-exception OR GPL-2.0+", false),
            ("Apache-2.0 WITH LLVM-exception AND ISC OR GPL-2.0", true),
            ("MIT+", false),
            ("mit", false),
            ("MIT-0", false),
        ] {
            assert_eq!(is_satisfied(text, &allowed), expect, "{text}");
        }
    }

    #[test]
    fn and_binds_tighter_than_or() {
        let named = |name: &str| Licence::Named(name.to_owned());
        let expect =
            Licence::Any(vec![named("A"), Licence::All(vec![named("B"), named("C")]), named("D")]);
        assert_eq!(Licence::parse("A OR B AND C OR D"), Ok(expect));
    }

    #[test]
    fn malformed_expressions_are_refused() {
        for text in [
            "",
            "OR",
            "MIT OR",
            "OR MIT",
            "MIT AND",
            "MIT ISC",
            "(MIT",
            "MIT)",
            "()",
            "MIT WITH",
            "MIT WITH (x)",
            "MIT, ISC",
            "MIT WITH x WITH y",
            "AND MIT",
            "MIT OR OR ISC",
            "see LICENSE",
        ] {
            assert!(Licence::parse(text).is_err(), "{text}");
        }
    }
}
