//! Numbers of tokens as people write them: `500000`, `500k`, `1.5M`.

use crate::truncate::truncate_chars;

/// The part of a wrong text that its error shows.
const SHOWN_CHARS: usize = 40;

/// Parses a number of tokens. The suffix `k` is thousands, `m` is millions, in either case.
pub fn parse_tokens(text: &str) -> Result<u64, String> {
    read_tokens(text.trim()).ok_or_else(|| {
        let shown = truncate_chars(text, SHOWN_CHARS);
        format!("{shown:?} is not a number of tokens, such as 500000, 500k or 1.5M")
    })
}

/// Returns the number, if it is a whole number of tokens.
fn read_tokens(text: &str) -> Option<u64> {
    let (number, zeros) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 6),
            None => (text, 0),
        },
    };
    let number = number.trim();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > zeros {
        return None;
    }
    format!("{whole}{fraction:0<zeros$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tokens_are_parsed() {
        for (text, tokens) in [
            ("0", 0),
            ("77", 77),
            ("500k", 500_000),
            (" 200 K ", 200_000),
            ("3m", 3_000_000),
            ("1.5M", 1_500_000),
            ("0.001k", 1),
            ("2.50k", 2_500),
            ("12.0", 12),
        ] {
            assert_eq!(parse_tokens(text), Ok(tokens), "{text}");
        }
        for invalid in [
            "",
            "k",
            ".5k",
            "1.k",
            "1.5",
            "1.2345k",
            "-1",
            "+1",
            "1e6",
            "1.2.3m",
            "5g",
            "99999999999999999999",
            "99999999999999m",
        ] {
            assert!(parse_tokens(invalid).is_err(), "{invalid:?}");
        }
    }
}
