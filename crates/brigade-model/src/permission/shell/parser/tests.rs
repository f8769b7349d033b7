//! Texts, and the words and commands that a shell makes of them.

use super::*;

/// Renders words with `?` where the shell expands something. A `/` separates commands.
fn render(text: &str) -> String {
    let line = ParsedCommandLine::parse(text);
    let shown =
        |word: &ShellWord| format!("{}{}", word.literal, if word.has_expansion { "?" } else { "" });
    let command = |command: &SimpleCommand| {
        let words: Vec<String> = command.argv.iter().map(shown).collect();
        format!("{}{}", if command.has_piped_input { "<" } else { "" }, words.join(","))
    };
    let commands: Vec<String> = line.commands.iter().map(command).collect();
    format!("{}{}", commands.join(" / "), if line.is_unreadable { " !" } else { "" })
}

#[test]
fn a_text_is_parsed_as_a_shell_parses_it() {
    for (text, expect) in [
        ("git push", "git,push"),
        ("  git\t'push' \"ori\"gin ", "git,push,origin"),
        ("gi\\t pu\\\nsh", "git,push"),
        ("a; b && c | d & e\nf", "a / b / c / <d / e / f"),
        ("(a) ; { b; }", "a / {,b / }"),
        ("a > x 2>&1 < y b", "<a,b"),
        ("a <<< x; b >y c", "<a / b,c"),
        ("a # b\nc#d", "a / c#d"),
        ("echo $(git push) x", "git,push / echo,?,x"),
        ("echo \"a `git push`\"", "git,push / echo,a ?"),
        ("a$b $c \"$d e\" ${e:-f} $((1 + 2))", "1,+,2 / a?,?,?,?,?"),
        ("a 2>&- b <&- c >&1 d", "<a,b,c,d"),
        ("a &>x b", "a / a,b"),
        ("a <<E b\n'x'\nE\nc", "<a,b / x / c"),
        ("a <<-'E'\n\t$(x)\n\tE\nc", "<a / x / ? / c"),
        ("a <<E\n# $(x)\nE\nc", "<a / x / c"),
        ("a <<E\nb", "<a / b !"),
        ("a <<E\n'\nE\nb", "<a / \n / b !"),
        (": \"${x:-'}\"", ":,? !"),
        ("a $'b\\'", "a,? !"),
        ("$HOME/bin/git *.rs {a,b} {}", "?,?,?,{}"),
        ("[ -n x ] && '' b", "[,-n,x,] / ,b"),
        ("echo 'x", "echo,x !"),
        ("a |& b", "a / <b"),
        ("a <(b) c", "<a / b / c !"),
        ("a >(b)", "a / b !"),
        ("((a)); b", "a / b !"),
        ("[[ a ]] && b", "[[,a,]] / b !"),
        ("if [[ a ]]; then b; fi", "if,[[,a,]] / then,b / fi !"),
        ("function f { a; }", "function,f,{,a / } !"),
        ("! coproc a", "!,coproc,a !"),
        ("grep function x", "grep,function,x"),
        ("echo '[[' coproc", "echo,[[,coproc"),
        ("a <<E\nfunction b() {\n((c))\nE\nd", "<a / function,b / { / c / d"),
        ("$(((1 + 2) * 3))", "1,+,2 / +,3 / ?"),
        ("$((a['x']))", "a? / ? !"),
        ("echo $(a", "echo,? !"),
        ("", ""),
    ] {
        assert_eq!(render(text), expect, "{text:?}");
    }
    assert_eq!(
        ParsedCommandLine::parse("$X/git a").commands[0].argv[0].program_name(),
        Some("git")
    );
    assert!(ParsedCommandLine::parse(&"$(".repeat(50)).is_unreadable);
    assert!(ParsedCommandLine::parse(&"a ".repeat(1_500)).is_unreadable);
}
