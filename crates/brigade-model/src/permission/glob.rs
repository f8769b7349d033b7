//! Patterns with `*` and `**`.

/// How far a single `*` reaches. `**` reaches anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StarReach {
    Anything,
    /// Not past a `/`.
    WithinFolder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GlobToken {
    Letter(char),
    WithinFolder,
    Anything,
    /// Before `**/`: no folder, or into the next token.
    Folders,
    /// Within the folders of a `**/`, up to a slash.
    InFolders,
}

/// Whether the pattern is all of the text. Takes time in proportion to both lengths, whatever the
/// pattern: all places in it that may have been reached are followed at once.
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
                GlobToken::WithinFolder => next[at] |= letter != '/',
                GlobToken::Anything => next[at] = true,
                GlobToken::Folders => {
                    next[at + 1] = true;
                    next[at + 2] |= letter == '/';
                }
                GlobToken::InFolders => {
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
            matches!(tokens.last(), None | Some(GlobToken::Letter('/') | GlobToken::InFolders));
        if stars > 1 && begins && letters.next_if_eq(&'/').is_some() {
            tokens.extend([GlobToken::Folders, GlobToken::InFolders]);
        } else if stars > 1 || star == StarReach::Anything {
            tokens.push(GlobToken::Anything);
        } else {
            tokens.push(GlobToken::WithinFolder);
        }
    }
    tokens
}

/// A star may be nothing, and `**/` no folder at all.
fn skip_empty_matches(tokens: &[GlobToken], reached: &mut [bool]) {
    for at in 0..tokens.len() {
        match tokens[at] {
            GlobToken::WithinFolder | GlobToken::Anything => reached[at + 1] |= reached[at],
            GlobToken::Folders => reached[at + 2] |= reached[at],
            GlobToken::Letter(_) | GlobToken::InFolders => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_reach_as_far_as_they_should() {
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
            assert_eq!(matches(pattern, text, StarReach::WithinFolder), within, "{pattern} {text}");
            assert_eq!(matches(pattern, text, StarReach::Anything), anything, "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_comes_to_an_end() {
        // Trying every way of it would take longer than anybody waits.
        let pattern = "*a".repeat(200);
        assert!(!matches(&(pattern + "b"), &"a".repeat(20_000), StarReach::Anything));
    }
}
