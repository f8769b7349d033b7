//! Patterns with `*` and `**`.

/// The text that a single `*` matches. `**` matches any text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StarReach {
    Anything,
    /// Text without a `/`.
    WithinDirectory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GlobToken {
    Letter(char),
    WithinDirectory,
    Anything,
    /// The beginning of `**/`: no directory, or on to the next token.
    Directories,
    /// The directories of a `**/`, up to a slash.
    InDirectories,
}

/// Returns whether the pattern matches the whole text. The time is proportional to both lengths for
/// any pattern, because all reachable positions in it are followed at once.
pub(super) fn matches(pattern: &str, text: &str, star: StarReach) -> bool {
    let tokens = tokenize(pattern, star);
    let mut reached = vec![false; tokens.len() + 1];
    reached[0] = true;
    skip_empty_matches(&tokens, &mut reached);
    let mut next = vec![false; tokens.len() + 1];
    for letter in text.chars() {
        next.fill(false);
        for (at, token) in tokens.iter().enumerate().filter(|(at, _)| reached[*at]) {
            match token {
                GlobToken::Letter(wanted) => next[at + 1] |= *wanted == letter,
                GlobToken::WithinDirectory => next[at] |= letter != '/',
                GlobToken::Anything => next[at] = true,
                GlobToken::Directories => {
                    next[at + 1] = true;
                    next[at + 2] |= letter == '/';
                }
                GlobToken::InDirectories => {
                    next[at] = true;
                    next[at + 1] |= letter == '/';
                }
            }
        }
        skip_empty_matches(&tokens, &mut next);
        std::mem::swap(&mut reached, &mut next);
    }
    reached[tokens.len()]
}

fn tokenize(pattern: &str, star: StarReach) -> Vec<GlobToken> {
    let mut tokens = Vec::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '*' {
            tokens.push(GlobToken::Letter(letter));
            continue;
        }
        let mut stars = 1;
        while letters.next_if_eq(&'*').is_some() {
            stars += 1;
        }
        let begins =
            matches!(tokens.last(), None | Some(GlobToken::Letter('/') | GlobToken::InDirectories));
        if stars > 1 && begins && letters.next_if_eq(&'/').is_some() {
            tokens.extend([GlobToken::Directories, GlobToken::InDirectories]);
        } else if stars > 1 || star == StarReach::Anything {
            tokens.push(GlobToken::Anything);
        } else {
            tokens.push(GlobToken::WithinDirectory);
        }
    }
    tokens
}

/// Follows tokens that match nothing: a star, or `**/` without a directory.
fn skip_empty_matches(tokens: &[GlobToken], reached: &mut [bool]) {
    for at in 0..tokens.len() {
        match tokens[at] {
            GlobToken::WithinDirectory | GlobToken::Anything => reached[at + 1] |= reached[at],
            GlobToken::Directories => reached[at + 2] |= reached[at],
            GlobToken::Letter(_) | GlobToken::InDirectories => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_within_their_reach() {
        for (pattern, text, within, anything) in [
            ("", "", true, true),
            ("a", "a", true, true),
            ("a", "ab", false, false),
            ("*", "a/b", false, true),
            ("**", "a/b", true, true),
            ("src/*", "src/a.rs", true, true),
            ("src/*", "src/a/b.rs", false, true),
            ("src/**", "src/a/b.rs", true, true),
            ("src/**", "src", false, false),
            ("src/**", "srcs/a", false, false),
            ("**/a.rs", "a.rs", true, true),
            ("**/a.rs", "x/y/a.rs", true, true),
            ("**/a.rs", "xa.rs", false, false),
            ("a/**/b", "a/b", true, true),
            ("**/**/b", "b", true, true),
            ("**/b", "/b", true, true),
            ("a/**/b", "a/x/y/b", true, true),
            ("*.rs", "é.rs", true, true),
            ("mcp_*", "mcp_", true, true),
            ("a*b*c", "aXbXbc", true, true),
        ] {
            assert_eq!(
                matches(pattern, text, StarReach::WithinDirectory),
                within,
                "{pattern} {text}"
            );
            assert_eq!(matches(pattern, text, StarReach::Anything), anything, "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_matched_in_bounded_time() {
        // Backtracking would take too long.
        let pattern = "*a".repeat(200);
        assert!(!matches(&(pattern + "b"), &"a".repeat(20_000), StarReach::Anything));
    }
}
