//! Properties of the search for programs in a text.

use proptest::prelude::*;

use super::*;

fn pieces(of: &'static [&'static str], max: usize) -> impl Strategy<Value = String> {
    let piece = prop::sample::select(of);
    prop::collection::vec(piece, 0..max).prop_map(|pieces| pieces.concat())
}

const WRAPPED: &[&str] = &[
    "timeout -k 5 9 ",
    "env -u B A=1 ",
    "nice -n 3 ",
    "nohup ",
    "sudo -u me ",
    "stdbuf -o L ",
    "command ",
    "A=$B ",
    "time -o out ",
    "chroot /x ",
    "ionice -c 2 -n 1 ",
    "setsid -w ",
];
const OPTIONS: &[&str] = &[
    "-C . ",
    "--no-pager ",
    "--git-dir=x ",
    "--work-tree x ",
    "-c color.ui=never ",
    "-p ",
    "-C \"$D\" ",
];

proptest! {
    #[test]
    fn a_command_is_found_behind_wrappers_and_options(
        wrappers in pieces(WRAPPED, 4), options in pieces(OPTIONS, 4), after in "[ a-z-]{0,9}",
    ) {
        let text = format!("{wrappers}git {options}push {after}");
        prop_assert!(may_run("git push*", &text), "{}", text);
        let other = format!("{wrappers}git {options}commit -m push {after}");
        prop_assert!(!may_run("git push*", &other), "{}", other);
        let nested = format!("cd x && sh -c '{text}'");
        prop_assert!(may_run("git push*", &nested), "{}", nested);
    }

    #[test]
    fn any_text_is_parsed_to_its_end(text in "[a-c \n'\"`$(){};|&<>\\\\#*-]{0,60}") {
        // If a pattern finds nothing, the text was readable.
        let found = may_run("a b*", &text);
        let line = ParsedCommandLine::parse(&text);
        prop_assert!(found || !line.is_unreadable);
    }
}

#[test]
fn a_hostile_text_is_searched_in_bounded_time() {
    for text in [
        "xargs ".repeat(600),
        "strace ".repeat(990),
        "sh -c ".repeat(490),
        "env ".repeat(990),
        "$(".repeat(30_000),
        "`".repeat(65_000),
        "'a b' ".repeat(900) + "find",
        "find ".to_owned() + &"'find a' ".repeat(900),
    ] {
        for pattern in ["* x", "git push --force*", "* * * * y"] {
            may_run(pattern, &text);
        }
    }
}
