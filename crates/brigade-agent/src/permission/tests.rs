//! Permission rules: verdicts, refusals, and children that never have more than their parents.

use proptest::prelude::*;

use super::*;

mod command_lines;

fn list(rules: &[&str]) -> Vec<PermissionRule> {
    rules.iter().map(|rule| rule.parse().unwrap()).collect()
}

fn rules(allow: Option<&[&str]>, deny: &[&str]) -> PermissionRules {
    PermissionRules { allow: allow.map(list), ask: Vec::new(), deny: list(deny) }
}

fn allowing(allow: &[&str]) -> Permissions {
    Permissions::of("the session", rules(Some(allow), &[]))
}

fn denying(deny: &[&str]) -> Permissions {
    Permissions::of("the session", rules(None, deny))
}

fn tool<'a>(tool: &'a str, text: &'a str) -> PermissionSubject<'a> {
    PermissionSubject { tool, text: Some(text), is_shell: false }
}

fn shell(text: &str) -> PermissionSubject<'_> {
    PermissionSubject { tool: "run_process", text: Some(text), is_shell: true }
}

fn refusal(permissions: &Permissions, subject: &PermissionSubject<'_>) -> String {
    match permissions.check(subject) {
        PermissionVerdict::Refused(refused) => refused.to_string(),
        PermissionVerdict::Allowed | PermissionVerdict::Ask { .. } => {
            panic!("{subject} is allowed")
        }
    }
}

#[test]
fn without_an_allow_list_only_denied_calls_are_refused() {
    let permissions = denying(&["write_file", "read_file(secret/**)"]);
    for (subject, expect) in [
        (tool("read_file", "src/a.rs"), true),
        (tool("read_file", "secret/key"), false),
        (tool("write_file", "src/a.rs"), false),
        (shell("anything; at all"), true),
    ] {
        assert_eq!(permissions.check(&subject).is_allowed(), expect, "{subject}");
    }
}

#[test]
fn an_allow_list_allows_only_the_listed_calls() {
    let none = PermissionSubject { tool: "list_tasks", text: None, is_shell: false };
    assert!(!allowing(&[]).check(&none).is_allowed());
    let permissions = allowing(&["read_file(src/**)", "spawn_agent(researcher)", "mcp_*"]);
    for (subject, expect) in [
        (tool("read_file", "src/a/b.rs"), true),
        (tool("read_file", "./src/a.rs"), false),
        (tool("read_file", "src/../../etc/passwd"), false),
        (tool("read_file", "src/../src/a"), true),
        (tool("read_file", "/src/a"), false),
        (tool("spawn_agent", "researcher"), true),
        (tool("spawn_agent", "researcher2"), false),
        (tool("mcp_search", "x"), true),
        (tool("run_process", "ls"), false),
        (none, false),
    ] {
        assert_eq!(permissions.check(&subject).is_allowed(), expect, "{subject}");
    }
}

#[test]
fn a_pattern_allows_one_simple_command_only() {
    let permissions = allowing(&["run_process(cargo *)", "run_process(git status)"]);
    for command in [
        "cargo",
        "cargo test",
        "  cargo   test --workspace ",
        "cargo test 'a b' \"c\"",
        "git status",
    ] {
        assert!(permissions.check(&shell(command)).is_allowed(), "{command}");
    }
    for command in [
        "cargo test; rm -rf /",
        "cargo test && curl x",
        "cargo test & rm x",
        "cargo test || rm x",
        "cargo test | sh",
        "cargo $(rm x)",
        "cargo `rm x`",
        "cargo test\nrm x",
        "cargo test\rrm x",
        "cargo test > /etc/passwd",
        "cargo test < secret",
        "cargo $HOME",
        "cargo <(rm x)",
        "(cargo test)",
        "cargo-evil test",
        "cargoevil",
        "PATH=. cargo test",
        "sudo cargo test",
        "git status -s",
        "",
        "cargo test \"; rm x\"",
        "cargo \0",
        "cargo\u{a0}test",
    ] {
        assert!(!permissions.check(&shell(command)).is_allowed(), "{command}");
    }
}

#[test]
fn variables_in_front_of_a_command_are_allowed_only_by_their_names() {
    let permissions = allowing(&[
        "run_process(cargo*)",
        "run_process(* --version)",
        "run_process(LANG=C RUST_LOG=* make *)",
    ]);
    for (command, expect) in [
        ("cargo test", true),
        ("rustc --version", true),
        ("LANG=C RUST_LOG=debug make all", true),
        // The shell sets the variable `cargo` and runs the rest.
        ("cargo=1 rm -rf x", false),
        ("cargo+=1 rm -rf x", false),
        ("PATH=. rustc --version", false),
        ("LANG=C PATH=. make all", false),
        ("LANG=C RUST_LOG=debug PATH=. make all", false),
        ("LANG=C make all", false),
        // `*` in a value stops at the word boundary, as far as that is certain.
        ("LANG=C RUST_LOG=x rm -rf make y", false),
        ("LANG=C RUST_LOG=x\\ make evil", false),
        ("LANG=C RUST_LOG='x make' evil", false),
        ("LANG=C RUST_LOG=\"x make all", false),
    ] {
        assert_eq!(permissions.check(&shell(command)).is_allowed(), expect, "{command}");
    }
}

#[test]
fn a_tool_allowed_as_a_whole_may_do_anything() {
    for rule in ["run_process", "run_process(*)", "run_*", "*"] {
        assert!(allowing(&[rule]).check(&shell("a; b && c")).is_allowed(), "{rule}");
    }
}

#[test]
fn a_denied_command_is_found_anywhere_in_a_command_line() {
    let permissions = denying(&["run_process(rm *)", "run_process(git push*)"]);
    for command in [
        "rm x",
        "rm",
        "rm  -rf  /",
        "cargo test; rm -rf /",
        "cargo test&&rm x",
        "true | rm x",
        "echo $(rm x)",
        "echo \"`rm x`\"",
        "ls\nrm x",
        "/bin/rm x",
        "\"rm\" x",
        "r\\m x",
        "FOO=1 rm x",
        "sudo -n rm x",
        "find . | xargs rm x",
        "sh -c 'rm x'",
        "if true; then rm x; fi",
        "git push --force",
        "cd a && git push",
    ] {
        assert!(!permissions.check(&shell(command)).is_allowed(), "{command}");
    }
    for command in ["ls", "rmdir x", "git pull", "cargo test; ls"] {
        assert!(permissions.check(&shell(command)).is_allowed(), "{command}");
    }
}

#[test]
fn an_allowed_program_is_refused_with_options_that_run_other_programs() {
    let permissions = allowing(&["run_process(git *)", "run_process(git -c core.pager=cat log*)"]);
    for (command, expect) in [
        ("git status", true),
        ("git -C x status", true),
        ("git -c color.ui=never status", false),
        ("git -C x -c alias.p=!sh p", false),
        ("git --config-env=alias.p=P p", false),
        ("git --config-env alias.p=P p", false),
        ("git --exec-path=/tmp/x status", false),
        ("/usr/bin/git -c a.b=c status", false),
        ("git commit -c HEAD", true),
        ("git -c core.pager=cat log -1", true),
        ("git -c core.pager=cat -c alias.log=!sh log", false),
    ] {
        assert_eq!(permissions.check(&shell(command)).is_allowed(), expect, "{command}");
    }
    let expect = "`run_process(git -c alias.p=!sh p)` is not permitted: the session allows only \
                  `run_process(git *)`, and not with `-c`, which can run other programs; do it without";
    assert_eq!(refusal(&allowing(&["run_process(git *)"]), &shell("git -c alias.p=!sh p")), expect);
    let whole = allowing(&["run_process"]);
    assert!(whole.check(&shell("git -c a.b=c status")).is_allowed(), "every call of it");
}

#[test]
fn a_denied_path_is_found_in_any_spelling() {
    let permissions = denying(&["read_file(secret/**)"]);
    for path in ["secret/a", "src/../secret/a", "./secret/a", "secret//a"] {
        assert!(!permissions.check(&tool("read_file", path)).is_allowed(), "{path}");
    }
    let unknown = PermissionSubject { tool: "read_file", text: None, is_shell: false };
    assert!(!permissions.check(&unknown).is_allowed(), "there is no path to match");
}

#[test]
fn deny_wins_over_allow() {
    let rules = rules(Some(&["run_process(git *)"]), &["run_process(git push *)"]);
    let permissions = Permissions::of("the session", rules);
    assert!(permissions.check(&shell("git status")).is_allowed());
    assert!(!permissions.check(&shell("git push origin")).is_allowed());
}

/// Renders a verdict: `allow`, `ask <rule>` or `deny`.
fn verdict_text(rules: &PermissionRules, subject: &PermissionSubject<'_>) -> String {
    match Permissions::of("the session", rules.clone()).check(subject) {
        PermissionVerdict::Allowed => "allow".to_owned(),
        PermissionVerdict::Ask { rule, .. } => format!("ask {rule}"),
        PermissionVerdict::Refused(_) => "deny".to_owned(),
    }
}

#[test]
fn deny_wins_over_ask_and_ask_over_allow() {
    let rules = PermissionRules {
        allow: Some(list(&["run_process(git *)", "read_file(**)", "mcp_*"])),
        ask: list(&["run_process(git push*)", "read_file(secret/**)", "mcp_mail", "pay"]),
        deny: list(&["run_process(git push --force*)", "read_file(secret/key)"]),
    };
    for (subject, expect) in [
        (shell("git status"), "allow"),
        (shell("git push"), "ask run_process(git push*)"),
        (shell("git push --force"), "deny"),
        (shell("git status; git push"), "ask run_process(git push*)"),
        (shell("sudo git push origin"), "ask run_process(git push*)"),
        (shell("git push; git push --force"), "deny"),
        (shell("git status; ls"), "deny"),
        (shell("ls"), "deny"),
        (tool("read_file", "src/a"), "allow"),
        (tool("read_file", "src/../secret/a"), "ask read_file(secret/**)"),
        (tool("read_file", "secret/key"), "deny"),
        (tool("mcp_web", "x"), "allow"),
        (tool("mcp_mail", "x"), "ask mcp_mail"),
        (tool("pay", "1"), "ask pay"),
        (tool("other", "1"), "deny"),
        (PermissionSubject { tool: "read_file", text: None, is_shell: false }, "deny"),
        (PermissionSubject { tool: "pay", text: None, is_shell: false }, "ask pay"),
    ] {
        assert_eq!(verdict_text(&rules, &subject), expect, "{subject}");
    }
    let open = PermissionRules { ask: list(&["pay(big*)"]), ..PermissionRules::all() };
    for (subject, expect) in [
        (tool("pay", "small"), "allow"),
        (tool("pay", "bigger"), "ask pay(big*)"),
        (PermissionSubject { tool: "pay", text: None, is_shell: false }, "ask pay(big*)"),
        (shell("anything"), "allow"),
    ] {
        assert_eq!(verdict_text(&open, &subject), expect, "{subject}");
    }
}

#[test]
fn the_strictest_source_decides_and_the_first_ask_rule_is_named() {
    let asks = |rule: &str| PermissionRules { ask: list(&[rule]), ..PermissionRules::all() };
    let top = Permissions::of("the session", asks("pay(1*)"));
    let child = top.narrow("child", asks("pay"));
    let grandchild = child.narrow("grandchild", rules(Some(&["pay(12)", "pay(2)"]), &["pay(13)"]));
    for (text, expect) in [
        ("12", Some(("pay(1*)", "the session"))),
        ("2", Some(("pay", "child"))),
        ("13", None),
        ("14", None),
    ] {
        let asked = match grandchild.check(&tool("pay", text)) {
            PermissionVerdict::Ask { rule, by } => Some((rule.to_string(), by.to_string())),
            PermissionVerdict::Refused(_) => None,
            PermissionVerdict::Allowed => panic!("{text} is allowed"),
        };
        let expect = expect.map(|(rule, by)| (rule.to_owned(), by.to_owned()));
        assert_eq!(asked, expect, "{text}");
    }
    assert!(grandchild.may_use("pay"));
    let only =
        PermissionRules { allow: Some(Vec::new()), ask: list(&["pay"]), ..PermissionRules::all() };
    assert!(Permissions::of("the session", only).may_use("pay"), "it can be approved");
}

#[test]
fn a_rule_that_a_deny_rule_covers_is_found() {
    for (rule, deny, expect) in [
        ("pay", "pay", true),
        ("pay(x)", "pay", true),
        ("pay", "p*", true),
        ("p*", "pay", false),
        ("pay", "pay(x)", false),
        ("pay(x y)", "pay(x *)", true),
        ("pay(x *)", "pay(x y)", false),
        ("pay(a/*)", "pay(a/**)", true),
        ("pay(a/**)", "pay(a/*)", false),
        ("other", "pay", false),
    ] {
        let rules =
            PermissionRules { ask: list(&[rule]), deny: list(&[deny]), ..PermissionRules::all() };
        assert_eq!(rules.find_shadowed().is_some(), expect, "{rule} {deny}");
    }
}

#[test]
fn a_refusal_names_its_source_and_the_allowed_calls() {
    let parent = allowing(&["run_process(cargo *)", "run_process(ls)"]);
    let child = parent.narrow("agent definition `tester`", rules(None, &["run_process(ls)"]));
    for (command, expect) in [
        (
            "cargo test; ls",
            "`run_process(cargo test; ls)` is not permitted: the session allows only \
             `run_process(cargo *)`, `run_process(ls)`, each as one simple command, and this one \
             has a `;`; run the commands one by one, without ; & | < > $ ` ( ) and line ends",
        ),
        (
            "ls",
            "`run_process(ls)` is not permitted: agent definition `tester` denies \
             `run_process(ls)`; do it without that",
        ),
        (
            "rm",
            "`run_process(rm)` is not permitted: the session allows only `run_process(cargo *)`, \
             `run_process(ls)`",
        ),
    ] {
        assert_eq!(refusal(&child, &shell(command)), expect);
    }
    let expect = "`read_file(x)` is not permitted: the session does not allow this tool";
    assert_eq!(refusal(&child, &tool("read_file", "x")), expect);
}

#[test]
fn a_model_gets_only_the_tools_that_it_may_use() {
    let permissions = allowing(&["run_process(cargo *)", "mcp_*"])
        .narrow("child", rules(None, &["mcp_mail", "run_process(cargo publish)"]));
    for (tool, expect) in
        [("run_process", true), ("mcp_web", true), ("mcp_mail", false), ("read_file", false)]
    {
        assert_eq!(permissions.may_use(tool), expect, "{tool}");
    }
}

#[test]
fn an_invalid_rule_is_refused() {
    for (text, problem) in [
        ("", "it names no tool"),
        ("(x)", "it names no tool"),
        ("a(x", "its parenthesis is not closed"),
        ("a()", "its pattern is empty"),
        ("a b", "a tool's name has letters, digits, `_`, `-`, `.`, `:`, and `*` for any"),
    ] {
        assert_eq!(text.parse::<PermissionRule>().unwrap_err().problem, problem, "{text}");
    }
}

#[test]
fn permissions_survive_being_stored() {
    let permissions = allowing(&["run_process(cargo *)", "mcp_*"])
        .narrow("child", rules(None, &["read_file(a(b)/**)"]));
    let stored = serde_json::to_string(&permissions).unwrap();
    assert_eq!(serde_json::from_str::<Permissions>(&stored).unwrap(), permissions);
    assert!(serde_json::from_str::<Permissions>("[]").is_err(), "it would allow everything");
    assert!(serde_json::from_str::<PermissionRules>(r#"{"asks": []}"#).is_err());
    let asking = PermissionRules { ask: list(&["pay"]), ..PermissionRules::all() };
    let stored = serde_json::to_string(&asking).unwrap();
    assert_eq!(serde_json::from_str::<PermissionRules>(&stored).unwrap(), asking);
    assert!(serde_json::from_str::<PermissionRules>(r#"{"allow": null}"#).is_err());
}

fn any_rule() -> impl Strategy<Value = PermissionRule> {
    let tool = prop_oneof!["[ab]", Just("*".to_owned()), Just("a*".to_owned())];
    let pattern = prop_oneof![Just(String::new()), "\\([xy*/ ]{1,4}\\)"];
    (tool, pattern)
        .prop_filter_map("no rule", |(tool, pattern)| format!("{tool}{pattern}").parse().ok())
}

fn any_rules() -> impl Strategy<Value = PermissionRules> {
    let list = || prop::collection::vec(any_rule(), 0..4);
    (prop::option::of(list()), list(), list()).prop_map(|(allow, ask, deny)| PermissionRules {
        allow,
        ask,
        deny,
    })
}

#[test]
fn keep_rules_match_outliving_work() {
    let rules = |list: &str, rule: &str| -> PermissionRules {
        serde_json::from_value(serde_json::json!({ list: [rule] })).expect("rules")
    };
    let checked = |rules: PermissionRules, tool: &str, by_name: bool| match Permissions::of(
        "the session",
        rules,
    )
    .check_keep(tool, by_name)
    {
        PermissionVerdict::Allowed => "allowed",
        PermissionVerdict::Ask { .. } => "ask",
        PermissionVerdict::Refused(_) => "refused",
    };
    for (list, rule, tool, attended, unattended) in [
        ("ask", "other", "spawn_agent", "allowed", "refused"),
        ("allow", "spawn_agent", "spawn_agent", "allowed", "refused"),
        ("allow", "*", "spawn_agent", "allowed", "refused"),
        ("allow", "keep(spawn_agent)", "spawn_agent", "allowed", "allowed"),
        ("allow", "keep(run_process)", "spawn_agent", "allowed", "refused"),
        ("ask", "keep(spawn_agent)", "spawn_agent", "ask", "ask"),
        ("ask", "keep(spawn_agent)", "run_process", "allowed", "refused"),
        ("deny", "keep", "run_process", "refused", "refused"),
    ] {
        let got = [false, true].map(|by_name| checked(rules(list, rule), tool, by_name));
        assert_eq!(got, [attended, unattended], "{list} {rule} for {tool}");
    }
    let only_keep = Permissions::of("the session", rules("allow", "keep(spawn_agent)"));
    assert!(only_keep.may_use("run_process") && only_keep.check(&shell("make")).is_allowed());
    let none: PermissionRules =
        serde_json::from_value(serde_json::json!({ "allow": [] })).expect("rules");
    assert!(!Permissions::of("the session", none).may_use("run_process"));
}

#[test]
fn a_child_cannot_allow_outliving_work_itself() {
    let rules: PermissionRules = serde_json::from_value(serde_json::json!({
        "allow": ["keep(spawn_agent)"], "deny": ["keep(run_process)"]
    }))
    .expect("rules");
    let child = rules.without_keep();
    assert_eq!((child.allow, child.deny.len()), (None, 1));
}

fn any_call() -> impl Strategy<Value = (String, Option<String>, bool)> {
    ("[ab]", prop::option::of("[xy/ ;.&\n]{0,6}"), any::<bool>())
}

proptest! {
    #[test]
    fn a_child_never_has_more_than_its_parent(
        parent in any_rules(), child in any_rules(), (tool, text, is_shell) in any_call(),
    ) {
        let subject = PermissionSubject { tool: &tool, text: text.as_deref(), is_shell };
        let parent = Permissions::of("parent", parent);
        let own = Permissions::of("own", child.clone());
        let child = parent.narrow("child", child);
        let both = parent.check(&subject).is_allowed() && own.check(&subject).is_allowed();
        prop_assert_eq!(child.check(&subject).is_allowed(), both);
    }

    #[test]
    fn a_further_deny_never_allows_more(
        before in any_rules(), deny in any_rule(), (tool, text, is_shell) in any_call(),
    ) {
        let subject = PermissionSubject { tool: &tool, text: text.as_deref(), is_shell };
        let mut after = before.clone();
        after.deny.push(deny);
        let before = Permissions::of("before", before).check(&subject).is_allowed();
        prop_assert!(before || !Permissions::of("after", after).check(&subject).is_allowed());
    }

    #[test]
    fn a_rule_denies_every_call_that_it_allows(
        rule in any_rule(), (tool, text, is_shell) in any_call(),
    ) {
        let subject = PermissionSubject { tool: &tool, text: text.as_deref(), is_shell };
        let rules = PermissionRules { allow: Some(vec![rule.clone()]), ask: vec![rule.clone()], deny: vec![rule] };
        prop_assert!(!Permissions::of("both", rules).check(&subject).is_allowed());
    }

    #[test]
    fn a_tool_that_may_not_be_used_has_no_allowed_call(
        rules in any_rules(), (tool, text, is_shell) in any_call(),
    ) {
        let subject = PermissionSubject { tool: &tool, text: text.as_deref(), is_shell };
        let permissions = Permissions::of("any", rules);
        prop_assert!(permissions.may_use(&tool) || !permissions.check(&subject).is_allowed());
    }

    #[test]
    fn an_allow_pattern_refuses_every_second_command(
        before in "[a-z '\"]{0,8}", sign in "[;&|<>$`()\n\r]", after in "[ -~]{0,12}x",
    ) {
        let command = format!("cargo {before}{sign}{after}");
        prop_assert!(!allowing(&["run_process(cargo *)"]).check(&shell(&command)).is_allowed());
    }
}
