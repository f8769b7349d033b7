//! Tests of the parser's errors.

use proptest::prelude::*;

use super::KEYWORDS;
use crate::scripted::Script;

#[track_caller]
fn refused(text: &str, expect: &str) {
    let error = Script::parse("story", text).expect_err("the script is wrong");
    assert_eq!(error.to_string(), expect);
}

#[test]
fn errors_name_the_line_and_the_solution() {
    for (text, expect) in [
        ("", "story: the script has no `agent`"),
        ("# nothing\n", "story:1: the script has no `agent`"),
        ("turn", "story:1: a script begins with `agent NAME`, not with `turn`"),
        ("say hi", "story:1: a script begins with `agent NAME`, not with `say`"),
        ("agent", "story:1: name the agent: `agent NAME`, or `agent *` for all others"),
        ("agent é", "story:1: `agent é` has no `turn`"),
        ("agent a*b\n", "story:1: `a*b`: write `*` only at the end of a name"),
        ("agent a\nagent b", "story:2: `agent a` has no `turn`"),
        (
            "agent a\nturn\nturn\n",
            "story:3: the turn above is empty; add a `say`, `call` or `fault`",
        ),
        (
            "agent a\nturn\n  say x\nagent a\n",
            "story:4: `agent a` appears twice; put its turns together",
        ),
        ("agent a\nturn\n  sya x", "story:3: `sya` is not a keyword; did you mean `say`?"),
        ("agent a\nsay x", "story:2: `say` belongs to a turn; begin one with `turn`"),
        (
            "agent a\nturn when x",
            "story:2: write `turn` alone on its line, and `when x` on the next",
        ),
        (
            "agent a\nturn\nrepeat\nsay x\nturn\nsay y",
            "story:5: never reached: the turn above repeats without a `when`",
        ),
    ] {
        refused(text, expect);
    }
}

#[test]
fn errors_in_a_line_name_the_wrong_part() {
    for (line, expect) in [
        ("call", "name the tool: `call NAME {\"argument\": \"value\"}`"),
        ("call x y", "write the arguments as a JSON object, not `y`"),
        ("call x {", "close the braces of these arguments"),
        ("call x {} y", "remove `y` after the arguments"),
        ("call x {a: 1}", "these arguments are not JSON: key must be a string at line 1 column 2"),
        ("malformed x {}", "`{}` is valid JSON; use `call`"),
        ("delay 5x", "\"5x\" is not a duration: the units are ms, s, m, h and d"),
        ("usage", "give `usage` counts, such as `usage input=120 output=30`"),
        ("usage inptu=1", "`inptu` is not a kind of token; did you mean `input`?"),
        ("usage input=many", "`many` is not a number"),
        ("stop now", "write `stop length` or `stop filtered`, not `now`"),
        ("when", "give `when` a text from the last message or result"),
        ("when \"open", "`\"open` starts with a quote but is not a JSON string"),
        ("fault 200", "200 is not the status of an error (400 to 599)"),
        ("fault cut", "give the number of words: `fault cut 3`"),
        ("fault 429 soon", "`soon` is not `x3`, `always`, or `after 2s` of an error"),
        ("fault hang after 2s", "`after` is not `x3`, `always`, or `after 2s` of an error"),
    ] {
        refused(&format!("agent a\nturn\n  {line}"), &format!("story:3: {expect}"));
    }
}

#[test]
fn an_error_in_arguments_over_several_lines_names_its_line() {
    let text = "agent a\nturn\n  call x {\n    \"a\": 1,\n    b\n  }\n";
    refused(text, "story:5: these arguments are not JSON: key must be a string at line 3 column 5");
}

proptest! {
    #[test]
    fn the_parser_never_panics(
        lines in prop::collection::vec((prop::sample::select(&KEYWORDS[..]), "[ -~é\"{}\r\n]{0,20}"), 0..12),
    ) {
        let text: String = lines.iter().map(|(word, rest)| format!("{word} {rest}\n")).collect();
        for text in [text.clone(), format!("agent a\nturn\n{text}")] {
            if let Err(error) = Script::parse("odd", &text) {
                prop_assert!(error.line <= text.lines().count(), "{error}\n{text}");
            }
        }
    }
}
