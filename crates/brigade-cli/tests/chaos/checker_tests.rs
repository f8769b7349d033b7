//! The checker accepts a correct history, and detects each corruption of it.

use crate::checker::check;
use crate::evidence::*;
use crate::history::*;

fn place(lane: i64, position: u64) -> EventPlace {
    EventPlace { lane, position }
}

fn operation(request: OperationRequest, result: OperationResult) -> Operation {
    Operation {
        session: "s-0".into(),
        node: "node-0".into(),
        invoked_at: 0,
        returned_at: 1,
        request,
        result,
    }
}

fn spawn(key: &str, result: OperationResult) -> Operation {
    operation(OperationRequest::Spawn { key: key.into() }, result)
}

fn effect(kind: EffectKind) -> Effect {
    Effect { session: "s-0".into(), task: 1, kind }
}

/// Returns the evidence of a session that moves from lane 1 to lane 2: a process that reads a message and
/// succeeds, an agent with one process, and a stop.
fn correct() -> Evidence {
    let spawned = |task, key: Option<&str>, parent, is_process| EventFact::Spawned {
        task,
        key: key.map(str::to_owned),
        parent,
        is_process,
    };
    let ended = |task, ending| EventFact::Ended { task, run: 1, ending };
    let sent = EventFact::MessageSent { message: 1, to: Some(1), key: Some("m".into()) };
    let facts = [
        EventFact::Other,
        spawned(1, Some("a"), None, true),
        EventFact::Started { task: 1, attempt: 1 },
        sent,
        EventFact::MessageDelivered { message: 1 },
        ended(1, RunEnding::Succeeded),
        EventFact::Collected { runs: vec![(1, 1)] },
        spawned(2, Some("b"), None, false),
        EventFact::Started { task: 2, attempt: 1 },
        spawned(3, None, Some(2), true),
        EventFact::Started { task: 2, attempt: 2 },
        EventFact::StopRequested { task: 2 },
        ended(3, RunEnding::Cancelled),
        ended(2, RunEnding::Cancelled),
    ];
    let event = |(index, fact): (u64, EventFact)| {
        let (place, after) = match index {
            0..8 => (place(1, index + 1), None),
            8 => (place(2, 1), Some(place(1, 8))),
            _ => (place(2, index - 7), None),
        };
        StoredEvent { place, session: 7, seq: index + 1, after, fact }
    };
    let events: Vec<StoredEvent> = (0..).zip(facts).map(event).collect();
    let ok = OperationResult::Ok;
    let collected = vec![CollectedTask { task: 1, is_first: true }];
    Evidence {
        operations: vec![
            operation(OperationRequest::Open, ok(OperationReply::Opened)),
            spawn("a", ok(OperationReply::Spawned { task: 1 })),
            spawn("b", OperationResult::Unknown),
            spawn("c", OperationResult::Failed { code: "unavailable".into() }),
            operation(
                OperationRequest::Send { task: 1, key: "m".into() },
                ok(OperationReply::Sent),
            ),
            operation(
                OperationRequest::Wait { tasks: vec![1] },
                ok(OperationReply::Waited { ended: collected }),
            ),
            operation(OperationRequest::Stop { task: 2 }, ok(OperationReply::Stopped)),
        ],
        sessions: vec![StoredSession { key: 7, name: "s-0".into(), epoch: 2, seq: 14 }],
        lanes: vec![StoredLane { lane: 1, head: 8 }, StoredLane { lane: 2, head: 6 }],
        feed: events.iter().map(|event| event.place).collect(),
        events,
        effects: vec![
            effect(EffectKind::Began),
            effect(EffectKind::Read("soup".into())),
            effect(EffectKind::Ended),
        ],
        takeovers: vec![Takeover {
            node: "node-1".into(),
            sessions: 3,
            lease_ms: 1_000,
            took_ms: Some(2_000),
            stall_ms: 0,
        }],
        ..Evidence::default()
    }
}

/// Checks that a corruption breaks this rule.
#[track_caller]
fn check_detected(rule: &str, corrupt: impl FnOnce(&mut Evidence)) {
    let mut evidence = correct();
    corrupt(&mut evidence);
    let violations = check(&evidence);
    assert!(violations.iter().any(|found| found.rule == rule), "{rule}: {violations:#?}");
}

/// Changes the fact of an event, which has this number in its session.
fn set_fact(evidence: &mut Evidence, seq: usize, fact: EventFact) {
    evidence.events[seq - 1].fact = fact;
}

#[test]
fn a_correct_history_is_accepted() {
    assert_eq!(check(&correct()), []);
}

#[test]
fn gaps_and_second_writers_are_detected() {
    let rule = "events of a session are numbered without gaps";
    check_detected(rule, |evidence| evidence.sessions[0].seq = 15);
    check_detected(rule, |evidence| evidence.events[5].seq = 5);
    check_detected(rule, |evidence| drop(evidence.events.remove(5)));
    let rule = "a session has one writer at a time";
    check_detected(rule, |evidence| evidence.events[8].after = None);
    check_detected(rule, |evidence| evidence.events[8].after = Some(place(1, 7)));
    check_detected(rule, |evidence| evidence.events[3].after = Some(place(1, 3)));
    check_detected(rule, |evidence| evidence.events[3].place = place(1, 9));
    check_detected("an epoch has one lane", |evidence| evidence.sessions[0].epoch = 1);
    check_detected("one session per name", |evidence| {
        let other = StoredSession { key: 8, seq: 0, ..evidence.sessions[0].clone() };
        evidence.sessions.push(other);
    });
    check_detected("events have a session", |evidence| evidence.events[13].session = 8);
}

#[test]
fn holes_of_lanes_and_of_the_feed_are_detected() {
    check_detected("lanes are dense", |evidence| evidence.lanes[0].head = 9);
    check_detected("lanes are dense", |evidence| evidence.lanes.truncate(1));
    check_detected("lanes are dense", |evidence| evidence.events[2].place = place(1, 2));
    check_detected("the feed has each event once", |evidence| {
        evidence.feed.push(place(1, 1));
    });
    check_detected("the feed has the stored events", |evidence| evidence.feed.truncate(13));
    check_detected("the feed has the stored events", |evidence| {
        evidence.feed.push(place(3, 1));
    });
    check_detected("the feed keeps the order of a session", |evidence| evidence.feed.swap(8, 9));
}

#[test]
fn lost_and_repeated_commands_are_detected() {
    let rule = "a command happens as its client knows";
    let lost = |evidence: &mut Evidence| set_fact(evidence, 2, EventFact::Other);
    check_detected(rule, lost);
    check_detected(rule, |evidence| set_fact(evidence, 4, EventFact::Other));
    let again = |key: &str| EventFact::Spawned {
        task: 9,
        key: Some(key.into()),
        parent: None,
        is_process: true,
    };
    for key in ["a", "b"] {
        check_detected(rule, |evidence| {
            let spawned = evidence.events[1].fact.clone();
            set_fact(evidence, 1, if key == "a" { spawned } else { again(key) });
        });
    }
    check_detected(rule, |evidence| set_fact(evidence, 1, again("c")));
    check_detected("a key names one task", |evidence| {
        evidence.operations[1].result = OperationResult::Ok(OperationReply::Spawned { task: 2 });
    });
    check_detected("nodes know each other's changes", |evidence| {
        evidence.operations[4].result = OperationResult::Failed { code: "not_found".into() };
    });
    check_detected("an acknowledged stop is stored", |evidence| {
        evidence.operations[6].request = OperationRequest::Stop { task: 8 };
    });
}

#[test]
fn wrong_ends_are_detected() {
    let ended = |task, run, ending| EventFact::Ended { task, run, ending };
    let rule = "each run ends once";
    check_detected(rule, |evidence| set_fact(evidence, 14, EventFact::Other));
    check_detected(rule, |evidence| set_fact(evidence, 1, ended(1, 1, RunEnding::Succeeded)));
    check_detected(rule, |evidence| set_fact(evidence, 1, EventFact::RunOpened { task: 1 }));
    check_detected(rule, |evidence| set_fact(evidence, 6, ended(1, 2, RunEnding::Succeeded)));
    check_detected("no run fails by itself", |evidence| {
        set_fact(evidence, 6, ended(1, 1, RunEnding::Failed("lost".into())));
    });
    check_detected("every task ends", |evidence| evidence.alive_tasks.push("s-0 3".into()));
    check_detected("no process outlives its task", |evidence| {
        evidence.stray_processes.push("sleep".into());
    });
    check_detected("no node reports a defect", |evidence| evidence.defects.push("panic".into()));
}

#[test]
fn repeated_results_and_messages_are_detected() {
    let rule = "a result is collected once";
    let collected = EventFact::Collected { runs: vec![(1, 1)] };
    check_detected(rule, |evidence| set_fact(evidence, 8, collected));
    check_detected(rule, |evidence| evidence.operations.push(evidence.operations[5].clone()));
    check_detected("a returned result is stored as collected", |evidence| {
        set_fact(evidence, 7, EventFact::Other);
    });
    check_detected("a message is delivered once", |evidence| {
        set_fact(evidence, 6, EventFact::MessageDelivered { message: 1 });
    });
    check_detected("a message is read once", |evidence| {
        evidence.effects.push(effect(EffectKind::Read("soup".into())));
    });
}

#[test]
fn repeated_executions_are_detected() {
    let rule = "a process is executed once";
    for kind in [EffectKind::Began, EffectKind::Ended] {
        check_detected(rule, |evidence| evidence.effects.push(effect(kind)));
    }
    let rule = "a process reports its end truthfully";
    for line in [0, 2] {
        check_detected(rule, |evidence| drop(evidence.effects.remove(line)));
    }
    check_detected("attempts are numbered upwards", |evidence| {
        set_fact(evidence, 11, EventFact::Started { task: 2, attempt: 1 });
    });
    check_detected("a call of an agent has one effect", |evidence| {
        let again = evidence.events[9].fact.clone();
        set_fact(evidence, 11, again);
    });
}

#[test]
fn late_takeovers_are_detected() {
    let rule = "a takeover takes at most twice the lease";
    check_detected(rule, |evidence| evidence.takeovers[0].took_ms = Some(2_001));
    check_detected(rule, |evidence| evidence.takeovers[0].took_ms = None);
    let mut evidence = correct();
    evidence.takeovers[0].took_ms = Some(2_100);
    evidence.takeovers[0].stall_ms = 100;
    assert_eq!(check(&evidence), []);
}
