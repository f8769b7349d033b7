//! Says something to a task, to the parent, or to all tasks.

use brigade_agent::{Call, Effect, Outcome, ToolError};
use brigade_delegation::{SendMessage, SentReply};
use brigade_model::call::{Answer, Condition};
use brigade_model::command::{Command, GiveAnswer, Given, Recipient, Send};
use brigade_model::decide::Reply;
use brigade_model::ids::{CallIndex, MessageNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::message::{Purpose, Sender};
use brigade_model::refusal::Refusal;

use super::{Delegate, Delegation};

impl Delegation for SendMessage {
    const EFFECT: Effect = Effect::Recorded;

    async fn run(self, delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        let message = Json::of(self.text()?)?;
        if let Some(before) = &call.effect {
            return reply(before, &self);
        }
        let to = match self.to.as_str() {
            "parent" => Recipient::Parent,
            "all" => Recipient::Children,
            task => {
                let (no, row) = delegate.link.child(task).await?;
                // It may never return, so the message is not held until it does.
                if row.ended().is_some_and(|ended| ended.lingering) {
                    let late = format!("{task} has ended, but what it did has not returned yet");
                    return Err(ToolError::new(late));
                }
                let asked =
                    row.calls.iter().filter(|open| matches!(open.on, Condition::Answer { .. }));
                let asked: Vec<CallIndex> = asked.map(|open| open.index).collect();
                if let Some(question) = question(&self, delegate, (no, &asked)).await? {
                    answer(delegate, call, (no, question), message).await?;
                    return render(&SentReply::Answer { question: None }, &self.to);
                }
                Recipient::Task(no.into())
            }
        };
        let send = Send {
            caller: delegate.link.caller(),
            to,
            body: message,
            interrupt: self.interrupt,
            reply_to: self.reply_to.map(MessageNo),
            last: false,
            call: Some(call.place.effect()),
        };
        match delegate.link.submit(Command::Send(send)).await? {
            Reply::Sent(numbers) => reply(&Answer::Sent(numbers), &self),
            _ => Err(crate::session::unexpected().into()),
        }
    }
}

/// The question of this task that is answered: the one named, or the only one that is open.
async fn question(
    sent: &SendMessage,
    delegate: &Delegate,
    (no, open): (TaskNo, &[CallIndex]),
) -> Result<Option<CallIndex>, Refusal> {
    let Some(number) = sent.reply_to else {
        return match open {
            [] => Ok(None),
            [only] => Ok(Some(*only)),
            // It reads nothing else before all of them are answered.
            several => Err(Refusal::conflict(format!(
                "{} waits for answers to {} questions; give `reply_to`, as each question says",
                sent.to,
                several.len()
            ))),
        };
    };
    let session = delegate.link.session().await?;
    let message = delegate.link.insist(|| session.receipt(MessageNo(number))).await?;
    Ok(match message.map(|row| (row.message.from.clone(), row.message.purpose)) {
        Some((Sender::Child(from), Purpose::Question(index))) if from == no => {
            open.contains(&index).then_some(index)
        }
        _ => None,
    })
}

async fn answer(
    delegate: &Delegate,
    call: &Call,
    (no, question): (TaskNo, CallIndex),
    message: Json,
) -> Result<(), Refusal> {
    let given = GiveAnswer {
        caller: delegate.link.caller(),
        task: no.into(),
        call: Some(question),
        answer: Given::Reply(message),
        record: Some(call.place.effect()),
    };
    delegate.link.submit(Command::Answer(given)).await?;
    Ok(())
}

fn reply(record: &Answer, sent: &SendMessage) -> Result<Outcome, ToolError> {
    let reply = match record {
        Answer::Sent(numbers) if sent.to == "all" || numbers.is_empty() => {
            SentReply::ToAll { count: numbers.len() }
        }
        Answer::Sent(_) => SentReply::Sent,
        Answer::Refused(refusal) => return Err(refusal.clone().into()),
        _ => SentReply::Answer { question: None },
    };
    render(&reply, &sent.to)
}

fn render(reply: &SentReply, to: &str) -> Result<Outcome, ToolError> {
    Ok(Outcome::text(reply.render(to).text()))
}
