//! What a shell would make of a text, as far as rules need it.

/// What makes a text more than one simple command, if anything does. Quotes are not looked into:
/// what they hide is not worth being wrong about.
pub(super) fn compound(text: &str) -> Option<&'static str> {
    text.trim().chars().find_map(|letter| {
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
}

/// With single spaces between its words, where a shell sees words: a no-break space is a letter.
pub(super) fn spaced(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether each variable that is set in front of a command stands by its name in the pattern too. Of
/// `cargo=1 rm x` the command is `rm`, whatever a pattern `cargo*` makes of it.
pub(super) fn sets_only_what(pattern: &str, command: &str) -> bool {
    let mut expected = pattern.split(' ');
    let mut set = command.split(' ').map_while(|word| word.find('=').map(|at| &word[..=at]));
    set.all(|name| expected.next().is_some_and(|word| word.starts_with(name)))
}

/// Every command that may be in a text, in every form in which a deny rule may know it: as it is,
/// without quotes, without variables in front, and by the program's name without its folder.
pub(super) fn commands(text: &str) -> Vec<String> {
    let mut found = vec![spaced(text)];
    let separators = |letter: char| ";&|<>$`(){}\n\r\"'".contains(letter);
    let pieces = text.split(separators).chain(text.split(|c: char| ";&|<>$`(){}\n\r".contains(c)));
    for piece in pieces {
        let bare: String = piece.chars().filter(|letter| !"\"'\\".contains(*letter)).collect();
        for form in [spaced(piece), spaced(&bare)] {
            for command in tails(&form) {
                found.push(command.to_owned());
                found.extend(without_folder(command));
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

/// The command, and what is left of it without each of the variables, wrappers and their options in
/// front.
fn tails(command: &str) -> Vec<&str> {
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

fn without_folder(command: &str) -> Option<String> {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let (_, name) = program.rsplit_once('/')?;
    Some(if arguments.is_empty() { name.to_owned() } else { format!("{name} {arguments}") })
}
