//! Compares the tools of the audiences.

use serde_json::{Map, Value, json};

use super::*;

const TOP_CLIENT: Audience = Audience::Client(ClientProfile::UNKNOWN);
const INNER_CLIENT: Audience =
    Audience::Client(ClientProfile { is_within_task: true, wait: WaitBounds::DEFAULT });
const AUDIENCES: [Audience; 3] = [Audience::Agent, TOP_CLIENT, INNER_CLIENT];

fn all(audience: Audience) -> [ToolDefinition; 8] {
    [
        define_tool::<SpawnAgent>(audience),
        define_tool::<RunProcess>(audience),
        define_tool::<ListTasks>(audience),
        define_tool::<WaitTasks>(audience),
        define_tool::<SendMessage>(audience),
        define_tool::<StopTask>(audience),
        define_tool::<ReadOutput>(audience),
        define_tool::<AskParent>(audience),
    ]
}

fn read<T: ToolArgs>(audience: Audience, arguments: Value) -> Result<T, String> {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    read_args(audience, arguments).map_err(|refusal| refusal.message)
}

#[test]
fn every_definition_is_strict_and_names_a_case_not_to_use_it() {
    for audience in AUDIENCES {
        for tool in all(audience) {
            let ToolDefinition { name, description, schema, .. } = tool;
            assert!(TOOL_NAMES.contains(&name));
            assert_eq!(schema["additionalProperties"], json!(false), "{name}");
            assert!(
                description.contains("Not ") && description.len() < 500,
                "{name}: {description}"
            );
            for (argument, property) in schema["properties"].as_object().unwrap() {
                assert!(property["type"].is_string(), "{name} {argument}: {property}");
                assert!(property["description"].is_string(), "{name} {argument}");
                assert_ne!(argument, "timeout_secs", "{name}");
            }
        }
    }
}

#[test]
fn the_differences_between_audiences_are_few_and_known() {
    let arguments = |audience: Audience| -> Vec<String> {
        let tools = all(audience).into_iter();
        let of = |tool: ToolDefinition| {
            let properties = tool.schema["properties"].as_object().unwrap().clone();
            properties.keys().map(|name| format!("{}.{name}", tool.name)).collect::<Vec<_>>()
        };
        tools.flat_map(of).collect()
    };
    let only = |some: Audience, other: Audience| -> Vec<String> {
        let others = arguments(other);
        arguments(some).into_iter().filter(|name| !others.contains(name)).collect()
    };
    assert_eq!(
        only(Audience::Agent, TOP_CLIENT),
        ["spawn_agent.keep", "run_process.keep", "send_message.reply_to"]
    );
    assert_eq!(
        only(TOP_CLIENT, Audience::Agent),
        [
            "spawn_agent.wait_secs",
            "spawn_agent.model",
            "run_process.stdin",
            "send_message.close",
            "send_message.question"
        ]
    );
    assert_eq!(only(INNER_CLIENT, TOP_CLIENT), ["spawn_agent.keep", "run_process.keep"]);
}

#[test]
fn a_hidden_argument_is_refused_as_unknown() {
    let keep = json!({"command": "x", "keep": true});
    let problem = read::<RunProcess>(TOP_CLIENT, keep.clone()).unwrap_err();
    assert!(problem.starts_with("unknown argument `keep`"), "{problem}");
    assert!(read::<RunProcess>(INNER_CLIENT, keep.clone()).unwrap().keep);
    assert!(read::<RunProcess>(Audience::Agent, keep).unwrap().keep);
    let problem = read::<SendMessage>(Audience::Agent, json!({"to": "x"})).unwrap_err();
    assert_eq!(problem, "missing argument `message`");
    assert!(read::<SendMessage>(TOP_CLIENT, json!({"to": "x", "close": true})).unwrap().close);
}

#[test]
fn a_message_has_a_name_but_no_key() {
    for audience in [Audience::Agent, TOP_CLIENT, INNER_CLIENT] {
        let named = json!({"to": "x", "message": "m", "name": "progress"});
        let send = read::<SendMessage>(audience, named).unwrap();
        assert_eq!(send.name.as_deref(), Some("progress"));
        assert!(send.check_unnamed_line("process:1").is_err());
        assert!(send.check_unnamed_answer("agent:2").is_err());
        let plain = read::<SendMessage>(audience, json!({"to": "x", "message": "m"})).unwrap();
        assert_eq!(plain.check_unnamed_line("process:1"), Ok(()));
        assert_eq!(plain.check_unnamed_answer("agent:2"), Ok(()));
        let keyed = json!({"to": "x", "message": "m", "key": "k"});
        let problem = read::<SendMessage>(audience, keyed).unwrap_err();
        assert!(problem.starts_with("unknown argument `key`"), "{problem}");
        assert!(
            read::<SendMessage>(audience, json!({"to": "x", "message": "m", "name": 3})).is_err()
        );
    }
}

#[test]
fn only_arguments_of_client_programs_are_ignored() {
    let list = json!({"wait_for_previous": true});
    assert!(read::<ListTasks>(TOP_CLIENT, list.clone()).is_ok());
    assert!(read::<ListTasks>(Audience::Agent, list).is_err(), "agents have no client program");
    assert!(read::<ListTasks>(TOP_CLIENT, json!({"wait_for_next": true})).is_err());
}

#[test]
fn an_alias_stands_for_its_argument() {
    let run = |arguments| read::<RunProcess>(TOP_CLIENT, arguments);
    assert!(run(json!({"command": "x", "run_in_background": true})).unwrap().background);
    let both = json!({"command": "x", "background": true, "run_in_background": true});
    assert!(run(both).unwrap().background);
    let contradiction = json!({"command": "x", "background": false, "run_in_background": true});
    assert_eq!(
        run(contradiction).unwrap_err(),
        "give `background` or `run_in_background`, not both"
    );
}

fn agent(usage: UsageSummary) -> TaskSummary {
    TaskSummary {
        address: "agent:3".into(),
        name: None,
        state: "running".into(),
        detail: None,
        is_alive: true,
        exit_code: None,
        signal: None,
        elapsed_ms: 1_000,
        description: "Look.".into(),
        agent: Some(AgentTaskSummary {
            step: 2,
            last_text: Some("I look.".into()),
            usage,
            ..AgentTaskSummary::default()
        }),
        worktree: None,
        returned_before: false,
        other_conversation: false,
    }
}

#[test]
fn an_unknown_price_is_omitted() {
    let mut usage = UsageSummary { tokens: 15, own_tokens: 15, ..UsageSummary::default() };
    assert_eq!(agent(usage).fields()["usage"], json!({"tokens": 15}));
    usage.micro_dollars = 20_000;
    assert_eq!(agent(usage).fields()["usage"], json!({"tokens": 15, "dollars": 0.02}));
    assert!(agent(usage).headline().ends_with("15 tokens, $0.02"));
    assert!(!agent(UsageSummary::default()).fields().contains_key("usage"));
}

#[test]
fn only_an_alive_agent_shows_its_last_text() {
    let mut task = agent(UsageSummary::default());
    assert_eq!(task.fields()["last_text"], "I look.");
    assert_eq!(task.list_line(), "agent:3 running for 1.0s, step 2: Look.\n  says: I look.");
    task.is_alive = false;
    task.state = "succeeded".into();
    assert!(!task.fields().contains_key("last_text"));
    assert_eq!(task.list_line(), "agent:3 succeeded after 1.0s: Look.");
}

#[test]
fn text_and_json_of_a_reply_have_its_guidance() {
    let mut reply = DelegationReply::new("It runs.");
    reply.add_body("a line");
    reply.add_guidance(["Call wait_tasks.".to_owned()]);
    let mut fields = Map::new();
    fields.insert("output".into(), json!(["a line"]));
    reply.add_fields(fields);
    assert_eq!(reply.text(), "It runs.\na line\nCall wait_tasks.");
    let expect = r#"{"message":"It runs.\nCall wait_tasks.","output":["a line"]}"#;
    assert_eq!(reply.structured_content().to_string(), expect);
}
