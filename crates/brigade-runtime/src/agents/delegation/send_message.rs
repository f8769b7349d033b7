//! Says something to a task, to the parent, or to all tasks.

use brigade_agent::{Call, Effect, Hints, Outcome, ToolError};
use brigade_model::call::{Answer, Condition};
use brigade_model::command::{Command, GiveAnswer, Given, Recipient, Send};
use brigade_model::decide::Reply;
use brigade_model::ids::{CallIndex, MessageNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::message::{Purpose, Sender};
use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Delegate, Delegation, not_blank};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendMessage {
    /// An address or name of a task that you started, `parent`, or `all` for all of them.
    to: String,
    message: String,
    /// It is to be heard now, not at the next pause.
    #[serde(default)]
    interrupt: bool,
    /// The number of the question or message that this answers.
    #[serde(default)]
    reply_to: Option<u64>,
}

impl Delegation for SendMessage {
    const NAME: &'static str = "send_message";
    const DESCRIPTION: &'static str = "Say something to a task that you started, to your parent, or to \
        all your tasks: to steer a sub-agent, to answer its question, to write a line to a command's \
        input. A message to a sub-agent that has ended makes it go on from where it was. Not for ending \
        a task (stop_task), and not for your result: that is what you say last.";
    const HINTS: Hints = Hints::of(Effect::Recorded);

    async fn run(self, delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        not_blank("message", &self.message)?;
        if let Some(before) = &call.effect {
            return said(before, &self.to);
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
                if let Some(question) = self.question(delegate, no, &asked).await? {
                    return self.answer(delegate, call, (no, question)).await;
                }
                Recipient::Task(no.into())
            }
        };
        let send = Send {
            caller: delegate.link.caller(),
            to,
            body: Json::of(&self.message)?,
            interrupt: self.interrupt,
            reply_to: self.reply_to.map(MessageNo),
            last: false,
            call: Some(call.place.effect()),
        };
        match delegate.link.submit(Command::Send(send)).await? {
            Reply::Sent(numbers) => said(&Answer::Sent(numbers), &self.to),
            _ => Err(crate::session::unexpected().into()),
        }
    }
}

impl SendMessage {
    /// The question of this task that is answered: the one named, or the only one that is open.
    async fn question(
        &self,
        delegate: &Delegate,
        no: TaskNo,
        open: &[CallIndex],
    ) -> Result<Option<CallIndex>, Refusal> {
        let Some(number) = self.reply_to else {
            return match open {
                [] => Ok(None),
                [only] => Ok(Some(*only)),
                // It reads nothing else before all of them are answered.
                several => Err(Refusal::conflict(format!(
                    "{} waits for answers to {} questions; give `reply_to`, as each question says",
                    self.to,
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
        &self,
        delegate: &Delegate,
        call: &Call,
        (no, question): (TaskNo, CallIndex),
    ) -> Result<Outcome, ToolError> {
        let given = GiveAnswer {
            caller: delegate.link.caller(),
            task: no.into(),
            call: Some(question),
            answer: Given::Reply(Json::of(&self.message)?),
            record: Some(call.place.effect()),
        };
        delegate.link.submit(Command::Answer(given)).await?;
        Ok(Outcome::text(format!("Its question is answered; {} goes on.", self.to)))
    }
}

fn said(record: &Answer, to: &str) -> Result<Outcome, ToolError> {
    match record {
        Answer::Sent(numbers) if numbers.is_empty() => {
            Ok(Outcome::text("There is nobody to say it to: no task of yours lives."))
        }
        Answer::Sent(numbers) if to == "all" => {
            Ok(Outcome::text(format!("The message is on its way to {} tasks.", numbers.len())))
        }
        Answer::Sent(_) => Ok(Outcome::text(format!("The message is on its way to {to}."))),
        Answer::Refused(refusal) => Err(refusal.clone().into()),
        _ => Ok(Outcome::text(format!("Its question is answered; {to} goes on."))),
    }
}
