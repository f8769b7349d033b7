//! Tests of the changes of all events.

use brigade_model::ids::{Seq, Time};
use serde_json::json;
use uuid::Uuid;

use super::*;

const SESSION: &str = "019a92b4-7c51-7c3e-9d0b-4f0d6c1f2a3b";

/// Returns the body of a stored event.
fn change_of(event: &Value) -> ChangeBody {
    let event: Event =
        serde_json::from_value(event.clone()).unwrap_or_else(|error| panic!("{error} in {event}"));
    let session = SessionId::from_uuid(Uuid::try_parse(SESSION).expect("an id"));
    let at = Time(1_794_932_312_007);
    ChangeBody::of(&EventRecord { session, seq: Seq(7), at, by: None, event })
}

fn task(no: u32) -> String {
    format!("{SESSION}.{no}")
}

/// Returns an event of each type as it is stored, and the data of its change.
fn all_events() -> Vec<[Value; 2]> {
    let until = "2026-11-17T16:18:32.007Z";
    let time = 1_794_932_312_007_u64;
    let failed = json!({ "failed": { "failure": { "exit_code": 2 } } });
    let kept = json!({ "state": "kept" });
    let failed_body =
        json!({ "type": "failed", "code": "exit_code", "text": "failed (exit code 2)" });
    let call = |name: &str| json!({ name: { "no": 3, "index": 4, "digest": 5 } });
    let receipt = |name: &str| json!({ name: { "to": { "Task": 3 }, "message": 8 } });
    let usage = json!({ "tokens": 9, "money": 1_500_000 });
    let usage_body = json!({ "tokens": 9, "money": "1.500000" });
    let message = json!({
        "no": 8, "to": { "Task": 3 }, "from": { "child": 5 }, "body": "secret", "sent_at": time,
        "purpose": { "question": 2 }, "interrupt": true,
    });
    let process = json!({ "process": {
        "command": { "shell": "echo $DISH" }, "env": { "DISH": { "text": "secret" } },
    } });
    let spawned = json!({
        "no": 3, "owner": { "Task": 1 }, "owner_run": 1, "client": { "name": "bob" },
        "spec": { "work": process, "name": "Cook" }, "queued": "runtime_limit",
    });
    let grant = json!({
        "no": 6, "scope": { "rule": "run_process" }, "client": "bob", "granted_at": time,
    });
    let parked = json!({ "index": 4, "condition": { "timer": { "until": time } } });
    let stop = json!({ "order": { "by": "operator", "reason": "late", "grace": 10 } });
    vec![
        [json!({ "session_opened": { "name": "a", "limits": {} } }), json!({ "name": "a" })],
        [json!({ "session_closing": { "reason": "late" } }), json!({ "reason": "late" })],
        [json!("session_closed"), json!({})],
        [json!({ "limits_set": { "holder": "Session", "limits": {} } }), json!({})],
        [
            json!({ "spawned": spawned }),
            json!({
                "address": "process:3", "kind": "process", "name": "Cook",
                "description": "echo $DISH", "parent": task(1), "client": "bob",
                "reason": "runtime_limit",
            }),
        ],
        [json!({ "started": { "no": 3, "attempt": 2 } }), json!({ "attempt": 2 })],
        [
            json!({ "queued": { "no": 3, "reason": { "backoff": { "until": time } } } }),
            json!({ "reason": "backoff", "until": until }),
        ],
        [
            json!({ "recovered": { "no": 3, "crashes": 2, "until": time } }),
            json!({ "crashes": 2, "until": until }),
        ],
        [
            json!({ "away": { "no": 3, "away": { "node": "k", "since": time, "until": time } } }),
            json!({ "node": "k", "since": until, "until": until }),
        ],
        [json!({ "unattended": { "no": 3 } }), json!({})],
        [json!({ "returned": { "no": 3 } }), json!({})],
        [json!({ "ready": { "no": 3 } }), json!({})],
        [call("recorded"), json!({ "call": 4 })],
        [
            json!({ "parked": { "no": 3, "call": parked } }),
            json!({ "wait": { "type": "timer", "call": 4, "until": until } }),
        ],
        [call("call_completed"), json!({ "call": 4 })],
        [
            json!({ "approval_decided": {
                "no": 3, "index": 4, "verdict": { "deny": { "reason": "late" } },
            } }),
            json!({ "call": 4, "verdict": "deny", "reason": "late" }),
        ],
        [
            json!({ "grant_added": grant }),
            json!({ "grant": 6, "rule": "run_process", "client": "bob" }),
        ],
        [json!({ "grant_revoked": { "grant": 6 } }), json!({ "grant": 6 })],
        [call("abandoned"), json!({ "call": 4 })],
        [json!({ "acknowledged": { "no": 3 } }), json!({})],
        [json!({ "suspended": { "no": 3, "partial": "secret" } }), json!({})],
        [
            json!({ "progressed": { "no": 3, "note": { "done": 1 } } }),
            json!({ "progress": { "done": 1 } }),
        ],
        [json!({ "state_set": { "no": 3, "state": "secret" } }), json!({})],
        [
            json!({ "shared_value_set": { "no": 3, "name": "menu", "value": "secret" } }),
            json!({ "name": "menu" }),
        ],
        [json!({ "stalled": { "no": 3 } }), json!({ "nudged": false })],
        [json!({ "reserved": { "no": 3, "amount": usage } }), json!({ "amount": usage_body })],
        [
            json!({ "charged": { "no": 3, "spent": usage, "at_most": true } }),
            json!({ "spent": usage_body, "at_most": true }),
        ],
        [
            json!({ "message_sent": message }),
            json!({
                "message": 8, "from": "child", "from_task": task(5), "to_task": task(3),
                "question": 2, "interrupt": true, "closes_input": false,
            }),
        ],
        [receipt("message_delivered"), json!({ "message": 8 })],
        [receipt("message_read"), json!({ "message": 8 })],
        [receipt("message_delivery_unknown"), json!({ "message": 8 })],
        [
            json!({ "dead_lettered": {
                "to": { "Task": 3 }, "messages": [8], "reason": "ended",
            } }),
            json!({ "messages": [8], "reason": "ended" }),
        ],
        [
            json!({ "stop_requested": { "no": 3, "cause": stop, "deadline": time } }),
            json!({ "by": "operator", "reason": "late", "grace_ms": 10, "deadline": until }),
        ],
        [json!({ "stop_forced": { "no": 3, "deadline": time } }), json!({ "deadline": until })],
        [json!({ "swept": { "count": 2 } }), json!({ "count": 2 })],
        [json!({ "closing": { "no": 3, "outcome": failed } }), json!({ "outcome": failed_body })],
        [
            json!({ "ended": { "no": 3, "run": 1, "outcome": failed, "lingering": false } }),
            json!({ "run": 1, "outcome": failed_body, "lingering": false }),
        ],
        [json!({ "slot_returned": { "no": 3 } }), json!({})],
        [
            json!({ "passed_to_session": {
                "no": 3, "name_dropped": false,
                "deadline": { "at": time, "limit": 5, "holder": 1 },
            } }),
            json!({ "deadline": until }),
        ],
        [
            json!({ "collected": { "runs": [{ "no": 3, "run": 1 }] } }),
            json!({ "runs": [{ "task": task(3), "run": 1 }] }),
        ],
        [
            json!({ "run_opened": {
                "no": 3, "owner": { "Task": 1 }, "limits": null, "name_dropped": false,
            } }),
            json!({ "parent": task(1) }),
        ],
        [
            json!({ "worktree_set": { "no": 3, "worktree": {
                "path": "/3", "branch": "b", "base": "c", "repository": "/a/.git",
                "git_dir": "/a/.git/3", "origin": "/a", "serial": 1, "state": "in_use",
            } } }),
            json!({ "path": "/3", "branch": "b" }),
        ],
        [json!({ "worktree_released": { "no": 3, "state": "kept" } }), kept],
    ]
}

#[test]
fn each_event_is_a_change_of_its_type() {
    let mut types = Vec::new();
    for [event, data] in all_events() {
        let change = change_of(&event);
        assert_eq!(Value::Object(change.data.clone()), data, "{event}");
        let name = event.as_str().or_else(|| event.as_object()?.keys().next().map(|s| &**s));
        assert_eq!(Some(change.kind.as_str()), name);
        let text = serde_json::to_string(&change).expect("JSON");
        assert!(!text.contains("secret"), "{text}");
        types.push(change.kind);
    }
    types.sort();
    let mut all = change_types().to_vec();
    all.sort_unstable();
    assert_eq!(types, all, "an event has no change: add it here and to `describe`");
}

#[test]
fn a_change_names_its_task_by_id() {
    let change = change_of(&json!({ "started": { "no": 3, "attempt": 1 } }));
    assert_eq!(
        serde_json::to_value(&change).expect("JSON"),
        json!({
            "type": "started", "session": SESSION, "task": task(3), "seq": 7,
            "at": "2026-11-17T16:18:32.007Z", "data": { "attempt": 1 },
        })
    );
}

#[test]
fn a_change_has_the_author_of_its_event() {
    let session = SessionId::from_uuid(Uuid::try_parse(SESSION).expect("an id"));
    for (author, body) in [
        (
            json!({ "kind": "operator", "origin": "token laptop (0a1b)" }),
            json!({ "kind": "operator", "origin": "token laptop (0a1b)" }),
        ),
        (
            json!({ "kind": "client", "name": "codex" }),
            json!({ "kind": "client", "name": "codex" }),
        ),
        (json!({ "kind": "task", "task": 3 }), json!({ "kind": "task", "task": task(3) })),
        (json!({ "kind": "robot", "size": 9 }), json!({ "kind": "robot" })),
    ] {
        let by = Some(serde_json::from_value(author).expect("an author"));
        let event = Event::SessionClosed;
        let record = EventRecord { session, seq: Seq(7), at: Time(1), by, event };
        let change = serde_json::to_value(ChangeBody::of(&record)).expect("a change");
        assert_eq!(change["by"], body);
    }
    let change = change_of(&json!("session_closed"));
    let change = serde_json::to_value(change).expect("a change");
    assert!(change.get("by").is_none(), "{change}");
}

#[test]
fn long_values_are_cut() {
    let long = "x".repeat(5_000);
    let change = change_of(&json!({ "progressed": { "no": 3, "note": long } }));
    assert!(change.data.is_empty());
    let change = change_of(&json!({ "session_closing": { "reason": long } }));
    let reason = change.data["reason"].as_str().expect("text");
    assert!(reason.chars().count() <= TEXT_CHARS_MAX + 1, "{}", reason.len());
}
