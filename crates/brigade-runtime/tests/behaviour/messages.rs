//! Messages: in order, each with a receipt, to their recipient and nobody else.

use brigade_model::ids::MessageNo;
use brigade_model::limits::Limits;
use brigade_model::message::{MessagePurpose, MessageSender, Receipt};
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{Job, JobContext, JobError, NewTask, Session};
use brigade_testkit::TestRuntime;
use tokio_util::sync::CancellationToken;

use crate::support::*;

async fn receipt(session: &Session, no: MessageNo) -> Receipt {
    session.receipt(no).await.unwrap().expect("the message is kept").receipt
}

/// Receives this many messages and returns their bodies.
async fn receives(ctx: JobContext, count: usize) -> Result<Vec<String>, JobError> {
    let mut bodies = Vec::new();
    for _ in 0..count {
        bodies.push(ctx.receive().await?.body.to_string());
    }
    Ok(bodies)
}

/// Receives this many messages, all that are there at a time.
async fn receives_all(ctx: JobContext, count: usize) -> Result<Vec<String>, JobError> {
    let mut bodies = Vec::new();
    while bodies.len() < count {
        bodies.extend(ctx.receive_all().await?.iter().map(|message| message.body.to_string()));
    }
    Ok(bodies)
}

#[tokio::test(start_paused = true)]
async fn messages_arrive_in_order_none_lost_none_twice() {
    let test = TestRuntime::new(|b| {
        b.job(Job::new("receives"), receives).job(Job::new("receives all"), receives_all)
    })
    .await;
    let closure = NewTask::closure("receives", |ctx| receives(ctx, 100));
    let jobs = [NewTask::job("receives", 100), NewTask::job("receives all", 100)];
    for task in jobs.map(NewTask::erase).into_iter().chain([closure.erase()]) {
        let task = test.session.spawn(task).await.unwrap();
        for n in 0..100 {
            task.send(n).await.unwrap();
            if n % 7 == 0 {
                until_idle().await;
            }
        }
        let expect: Vec<String> = (0..100).map(|n| format!("\"{n}\"")).collect();
        assert_eq!(*outcome(&task).await, succeeded(&format!("[{}]", expect.join(","))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_sender_sees_the_receipt_of_a_message() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let open = gate.clone();
    let task = NewTask::closure("reads one", |ctx: JobContext| async move {
        open.cancelled().await;
        ctx.receive().await?;
        Ok::<_, JobError>(())
    });
    let task = test.session.spawn(task).await.unwrap();
    let first = task.send("a").await.unwrap();
    let second = task.send("b").await.unwrap();
    assert_eq!(receipt(&test.session, first).await, Receipt::Accepted);
    gate.cancel();
    wait_result(&task).await;
    assert_eq!(receipt(&test.session, first).await, Receipt::Read);
    let Receipt::DeadLettered(reason) = receipt(&test.session, second).await else {
        panic!("not dead")
    };
    assert_eq!(&*reason, "job:1 ended before it read this");
    refused(task.send("c").await, ENDED, "takes no more messages");
    assert_eq!(test.session.receipt(MessageNo(99)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_full_inbox_refuses_messages() {
    let test = TestRuntime::new(|b| b).await;
    let limits = Limits { inbox: Some(2), ..Limits::default() };
    let gate = CancellationToken::new();
    let open = gate.clone();
    let task = NewTask::closure("reads one", |ctx: JobContext| async move {
        open.cancelled().await;
        ctx.receive().await?;
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    let task = test.session.spawn(task.limits(limits)).await.unwrap();
    task.send(1).await.unwrap();
    task.send(2).await.unwrap();
    refused(task.send(3).await, LIMIT, "the inbox of job:1 is full: 2 unread");
    gate.cancel();
    until_idle().await;
    task.send(4).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_has_its_sender() {
    let test = TestRuntime::new(|b| b).await;
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        let child = NewTask::closure("child", |ctx: JobContext| async move {
            ctx.receive().await?;
            ctx.send_parent("up").await?;
            Ok::<_, JobError>(())
        });
        let child = ctx.spawn(child).await?;
        let mut from = vec![ctx.receive().await?.from.clone()];
        ctx.send(&child, "down").await?;
        from.push(ctx.receive().await?.from.clone());
        ctx.send_parent(from).await?;
        Ok::<_, JobError>(())
    });
    let parent = test.session.spawn(parent).await.unwrap();
    parent.send("go").await.unwrap();
    wait_result(&parent).await;
    let inbox = test.session.inbox(10).await.unwrap();
    assert_eq!(inbox.len(), 1);
    assert_eq!(inbox[0].from, MessageSender::Child(parent.no()));
    assert_eq!(inbox[0].purpose, MessagePurpose::Note);
    let from: Vec<MessageSender> = inbox[0].body.decode().unwrap();
    assert_eq!(from, [MessageSender::Client, MessageSender::Child(number(2))]);
    refused(test.session.receipt(MessageNo(2)).await, FORBIDDEN, "job:2");
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    let sent = operator.receipt(MessageNo(2)).await.unwrap().unwrap();
    assert_eq!(sent.message.from, MessageSender::Parent(parent.no()));
    assert_eq!(test.session.inbox(10).await.unwrap(), [], "read once");
}

#[tokio::test(start_paused = true)]
async fn a_message_to_all_reaches_every_alive_child_and_nobody_else() {
    let test = TestRuntime::new(|b| b).await;
    let bystander = test.session.spawn(forever()).await.unwrap();
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        let ended = ctx.spawn(returns(())).await?;
        ctx.wait_all([&ended]).await?;
        let child = || NewTask::closure("child", |ctx| receives(ctx, 1));
        let a = ctx.spawn(child()).await?;
        let b = ctx.spawn(child()).await?;
        let sent = ctx.send_children("all of you").await?;
        let run_results = ctx.wait_all([&a, &b]).await?;
        Ok::<_, JobError>((sent.len(), run_results.len()))
    });
    let parent = test.session.spawn(parent).await.unwrap();
    assert_eq!(*outcome(&parent).await, succeeded("[2,2]"));
    bystander.stop(None).await.unwrap();
    wait_result(&bystander).await;
    assert_eq!(test.session.receipt(MessageNo(3)).await.unwrap(), None, "two were sent");
}

#[tokio::test(start_paused = true)]
async fn each_session_has_an_inbox_of_its_own() {
    let test = TestRuntime::new(|b| b).await;
    let other = test.runtime.session("other").await.unwrap();
    let says = |what: &'static str| {
        NewTask::closure("says", move |ctx: JobContext| async move {
            ctx.send_parent(what).await?;
            Ok::<_, JobError>(())
        })
    };
    let here = test.session.spawn(says("here")).await.unwrap();
    let there = other.spawn(says("there")).await.unwrap();
    wait_result(&here).await;
    wait_result(&there).await;
    for (session, what) in [(&test.session, "\"here\""), (&other, "\"there\"")] {
        let inbox = session.inbox(10).await.unwrap();
        let bodies: Vec<&str> = inbox.iter().map(|message| message.body.as_str()).collect();
        assert_eq!(bodies, [what]);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_one_batch_keep_their_order_and_are_refused_one_by_one() {
    let test = TestRuntime::new(|b| b).await;
    let task = NewTask::closure("receives", |ctx| receives(ctx, 2));
    let task = test.session.spawn(task).await.unwrap();
    let to = |no: u32| number(no).into();
    let sent = test.session.send_all([(to(1), "a"), (to(9), "b"), (to(1), "c")]).await.unwrap();
    assert!(sent[0].is_ok() && sent[2].is_ok());
    refused(sent[1].clone(), NOT_FOUND, "9");
    assert_eq!(*outcome(&task).await, succeeded(r#"["\"a\"","\"c\""]"#));
}

#[tokio::test(start_paused = true)]
async fn an_inbox_is_read_in_parts_from_the_oldest() {
    let test = TestRuntime::new(|b| b).await;
    let says = NewTask::closure("says", |ctx: JobContext| async move {
        for n in 1..=5 {
            ctx.send_parent(n).await?;
        }
        Ok::<_, JobError>(())
    });
    let task = test.session.spawn(says).await.unwrap();
    wait_result(&task).await;
    let mut read = Vec::new();
    for most in [2, 2, 2] {
        let part = test.session.inbox(most).await.unwrap();
        read.push(part.iter().map(|m| m.body.to_string()).collect::<Vec<_>>().join(" "));
    }
    assert_eq!(read, ["1 2", "3 4", "5"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_sees_the_receipts_of_its_messages() {
    let test = TestRuntime::new(|b| {
        b.job_named(
            "listens",
            RecoveryPolicy::resume_max_crashes(1),
            |ctx: JobContext, (): ()| async move {
                ctx.receive().await?;
                Ok::<_, JobError>(())
            },
        )
        .job_named(
            "tells",
            RecoveryPolicy::resume_max_crashes(1),
            |ctx: JobContext, (): ()| async move {
                let child = ctx.spawn(NewTask::job("listens", ())).await?;
                let first = ctx.send(&child, "one").await?;
                ctx.wait_all([&child]).await?;
                let read = ctx.receipt(first).await?;
                let foreign = ctx.receipt(brigade_model::ids::MessageNo(1)).await.is_err();
                Ok::<_, JobError>((format!("{read:?}"), foreign))
            },
        )
    })
    .await;
    let other = test.session.spawn(NewTask::job("listens", ())).await.unwrap();
    other.send("not yours").await.unwrap();
    let task = test.session.spawn(NewTask::job("tells", ())).await.unwrap();
    assert_eq!(*wait_result(&task).await.outcome, succeeded("[\"Some(Read)\",true]"));
}
