//! Where scripts are wrong, and that the error says so.

use proptest::prelude::*;

use super::KEYWORDS;
use crate::scripted::Script;

#[track_caller]
fn refused(text: &str, expect: &str) {
    let error = Script::parse("story", text).expect_err("the script is wrong");
    assert_eq!(error.to_string(), expect);
}

#[test]
fn errors_say_where_and_what_would_be_right() {
    for (text, expect) in [
        ("", "story: there is no `agent` in it"),
        ("# nothing\n", "story:1: there is no `agent` in it"),
        ("turn", "story:1: a script begins with `agent NAME`, not with `turn`"),
        ("say hi", "story:1: a script begins with `agent NAME`, not with `say`"),
        ("agent", "story:1: whose turns follow? `agent NAME`, or `agent *` for all others"),
        ("agent é", "story:1: `agent é` has no `turn`"),
        ("agent a*b\n", "story:1: `a*b`: a `*` stands for the rest of a name, at its end"),
        ("agent a\nagent b", "story:2: `agent a` has no `turn`"),
        (
            "agent a\nturn\nturn\n",
            "story:3: the turn above says nothing; give it a `say`, `call` or `fault`",
        ),
        (
            "agent a\nturn\n  say x\nagent a\n",
            "story:4: `agent a` is there already; put its turns together",
        ),
        ("agent a\nturn\n  sya x", "story:3: `sya` means nothing here; did you mean `say`?"),
        ("agent a\nsay x", "story:2: `say` belongs to a turn; begin one with `turn`"),
        ("agent a\nturn when x", "story:2: `turn` stands alone; `when x` belongs on a line below"),
        (
            "agent a\nturn\nrepeat\nsay x\nturn\nsay y",
            "story:5: never reached: the turn above repeats without a `when`",
        ),
    ] {
        refused(text, expect);
    }
}

#[test]
fn errors_in_a_line_name_what_is_wrong_in_it() {
    for (line, expect) in [
        ("call", "which tool? `call NAME {\"argument\": \"value\"}`"),
        ("call x y", "arguments are a JSON object in braces, not `y`"),
        ("call x {", "the braces of these arguments are never closed"),
        ("call x {} y", "nothing may follow the arguments, but `y` does"),
        ("call x {a: 1}", "these arguments are not JSON: key must be a string at line 1 column 2"),
        ("malformed x {}", "`{}` is proper JSON; use `call`"),
        ("delay 5", "`5` is no span of time, such as `50ms`, `2s` or `10m`"),
        ("usage", "`usage` wants counts, such as `usage input=120 output=30`"),
        ("usage inptu=1", "`inptu` is no kind of token; did you mean `input`?"),
        ("usage input=many", "`many` is no number"),
        ("stop now", "a reply stops by `length` or is `filtered`, not `now`"),
        ("when", "`when TEXT` wants a text that the last message or result has"),
        ("when \"open", "`\"open` begins with a quote and is no JSON string"),
        ("fault 200", "200 is not the status of an error (400 to 599)"),
        ("fault cut", "after how many words? `fault cut 3`"),
        ("fault 429 soon", "`soon` is not `x3`, `always`, or `after 2s` of an error"),
        ("fault hang after 2s", "`after` is not `x3`, `always`, or `after 2s` of an error"),
    ] {
        refused(&format!("agent a\nturn\n  {line}"), &format!("story:3: {expect}"));
    }
}

#[test]
fn an_error_inside_long_arguments_has_its_own_line() {
    let text = "agent a\nturn\n  call x {\n    \"a\": 1,\n    b\n  }\n";
    refused(text, "story:5: these arguments are not JSON: key must be a string at line 3 column 5");
}

proptest! {
    #[test]
    fn no_text_is_too_odd_to_be_told_so(
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
