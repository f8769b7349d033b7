//! Analyses shell texts, as far as permission rules need it.

use super::glob;

pub(in crate::permission) use program_search::{may_run, overriding_option};

mod known_programs;
mod parser;
mod program_search;

/// Returns the syntax that makes a text more than one simple command, if any. Quoted text is not
/// exempt: a mistake about quotes would cost more than a needless refusal.
pub(super) fn find_compound_syntax(text: &str) -> Option<&'static str> {
    let braces = has_braces(text).then_some("a list in braces");
    let letters = text.trim().chars();
    letters
        .into_iter()
        .find_map(|letter| {
            Some(match letter {
                ';' => "a `;`",
                '&' => "an `&`",
                '|' => "a `|`",
                '<' => "a `<`",
                '>' => "a `>`",
                '$' => "a `$`",
                '`' => "a backtick",
                '(' | ')' => "a parenthesis",
                '\n' | '\r' => "a line end",
                letter if letter.is_control() && letter != '\t' => "a control character",
                _ => return None,
            })
        })
        .or(braces)
}

/// Returns whether bash expands braces into several words, as in `{a,b}` and `{1..3}`, outside of
/// quotes.
fn has_braces(text: &str) -> bool {
    let mut quote = None;
    let mut is_open = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => drop(letters.next()),
            (letter, Some(mark)) if letter == mark => quote = None,
            (_, Some(_)) => (),
            ('\'' | '"', None) => quote = Some(letter),
            ('{', None) => is_open = true,
            (',', None) if is_open => return true,
            ('.', None) if is_open && letters.peek() == Some(&'.') => return true,
            ('}', None) => is_open = false,
            (letter, None) if letter.is_ascii_whitespace() => is_open = false,
            _ => (),
        }
    }
    false
}

/// Joins the words of a text with single spaces. Only ASCII white space separates words in a shell:
/// a no-break space is a letter.
pub(super) fn collapse_spaces(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes the variables in front of a pattern and a command. Returns `None` if the command sets
/// variables that the pattern does not name: in `cargo=1 rm x` the command is `rm`, even if the
/// pattern is `cargo*`. A star in a value stops at the word boundary.
pub(super) fn strip_variables<'a>(
    mut pattern: &'a str,
    mut command: &'a str,
) -> Option<(&'a str, &'a str)> {
    loop {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        let Some(end) = word.find('=') else { return Some((pattern, command)) };
        let (wanted, others) = pattern.split_once(' ').unwrap_or((pattern, ""));
        // A quoted word may end elsewhere than it seems.
        let is_plain = !word.contains(['\'', '"', '\\']);
        let matches_value = || is_plain && glob::matches(wanted, word, glob::StarReach::Anything);
        if !wanted.starts_with(&word[..=end]) || !(wanted == word || matches_value()) {
            return None;
        }
        pattern = others;
        command = rest;
    }
}

/// Returns every command that a text may contain, in every form that a deny rule may name. The
/// forms are: as it is, without quotes, without variables in front, and by the program's name
/// without its directory.
pub(super) fn find_commands(text: &str) -> Vec<String> {
    let mut found = vec![collapse_spaces(text)];
    let separators = |letter: char| ";&|<>$`(){}\n\r\"'".contains(letter);
    let pieces = text.split(separators).chain(text.split(|c: char| ";&|<>$`(){}\n\r".contains(c)));
    for piece in pieces {
        let bare: String = piece.chars().filter(|letter| !"\"'\\".contains(*letter)).collect();
        for form in [collapse_spaces(piece), collapse_spaces(&bare)] {
            for command in strip_wrappers(&form) {
                found.push(command.to_owned());
                found.extend(strip_directory(command));
            }
        }
    }
    found.retain(|command| !command.is_empty());
    found.sort_unstable();
    found.dedup();
    found
}

/// Words that run the command that follows them.
const WRAPPERS: [&str; 14] = [
    "sudo", "env", "exec", "nohup", "time", "nice", "command", "builtin", "xargs", "then", "do",
    "else", "if", "!",
];

/// Returns the command, and its rest after each of the variables, wrappers and options in front.
fn strip_wrappers(command: &str) -> Vec<&str> {
    let mut found = vec![command];
    let mut rest = command;
    while let Some((first, after)) = rest.split_once(' ') {
        let option = found.len() > 1 && first.starts_with('-');
        if !(option || first.contains('=') || WRAPPERS.contains(&first)) {
            break;
        }
        found.push(after);
        rest = after;
    }
    found
}

fn strip_directory(command: &str) -> Option<String> {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let (_, name) = program.rsplit_once('/')?;
    Some(if arguments.is_empty() { name.to_owned() } else { format!("{name} {arguments}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_braces_is_more_than_one_simple_command() {
        for (text, expect) in [
            ("ls {a,b}", Some("a list in braces")),
            ("ls{,x}", Some("a list in braces")),
            ("ls {1..3}", Some("a list in braces")),
            ("ls '{a,b}' \\{c,d} {} {e} HEAD@{1} {f g,h}", None),
            ("curl -d '{\"a\": 1, \"b\": 2}' x", None),
            ("echo it\\'s {a,b}", Some("a list in braces")),
        ] {
            assert_eq!(find_compound_syntax(text), expect, "{text}");
        }
    }
}
