//! Messages to a process arrive as lines of its input.

use std::time::Duration;

use brigade_model::ids::MessageNo;
use brigade_model::message::Receipt;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::NewTask;

use crate::support::*;

async fn receipt(kitchen: &Kitchen, no: MessageNo, expect: &Receipt) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let receipt = kitchen.session.receipt(no).await.unwrap().unwrap().receipt;
        if receipt == *expect {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{receipt:?}, not {expect:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn dead(reason: &str) -> Receipt {
    Receipt::DeadLettered(reason.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_read_in_order_until_the_input_is_closed() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(NewTask::shell("cat").reads_messages()).await.unwrap();
    let mut sent = Vec::new();
    for n in 0..50 {
        sent.push(task.send(format!("line {n}")).await.unwrap());
    }
    let object = serde_json_like();
    sent.push(task.send(&object).await.unwrap());
    for no in sent {
        receipt(&kitchen, no, &Receipt::Delivered).await;
    }
    let last = task.close_input().await.unwrap();
    let report = report(&kitchen.task(&task).await);
    receipt(&kitchen, last, &Receipt::Delivered).await;
    let lines: String = (0..50).map(|n| format!("line {n}\n")).collect();
    assert_eq!(report.tail, format!("{lines}{{\"salt\":2}}\n"));
    assert_eq!(report.exit_code, Some(0));
}

fn serde_json_like() -> std::collections::BTreeMap<&'static str, u32> {
    [("salt", 2)].into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_an_input_takes_no_messages() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(NewTask::shell("exec sleep 60")).await.unwrap();
    let refusal = task.send("hello").await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(refusal.message.contains("process:1 was started without an input"), "{refusal}");
    let task = kitchen.session.spawn(NewTask::shell("cat; echo over")).await.unwrap();
    assert_eq!(report(&kitchen.task(&task).await).tail, "over\n", "its input ends at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_after_the_end_of_the_input_is_a_dead_letter() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("cat; echo over; exec sleep 60").reads_messages();
    let task = kitchen.session.spawn(task).await.unwrap();
    task.close_input().await.unwrap();
    until_output(&task, "over").await;
    let no = task.send("too late").await.unwrap();
    receipt(&kitchen, no, &dead("its input was closed")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_closes_its_input_takes_no_more() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("exec 0<&-; echo closed; exec sleep 60").reads_messages();
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "closed").await;
    let no = task.send("anybody there?").await.unwrap();
    receipt(&kitchen, no, &dead("it has closed its input")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_never_reads_blocks_nobody() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("exec sleep 60").reads_messages();
    let task = kitchen.session.spawn(task).await.unwrap();
    let big = "x".repeat(100_000);
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(task.send(&big).await.unwrap());
    }
    // Other tasks continue meanwhile.
    let other = kitchen.session.spawn(NewTask::shell("echo hi")).await.unwrap();
    assert_eq!(report(&kitchen.task(&other).await).tail, "hi\n");
    let waiting = kitchen.session.receipt(sent[4]).await.unwrap().unwrap().receipt;
    assert_eq!(waiting, Receipt::Accepted, "a full pipe cannot have taken it");
    task.stop(None).await.unwrap();
    assert_eq!(kitchen.task(&task).await.label(), "cancelled");
    let unread = kitchen.session.receipt(sent[4]).await.unwrap().unwrap().receipt;
    assert!(matches!(unread, Receipt::DeadLettered(_)), "{unread:?}");
}
