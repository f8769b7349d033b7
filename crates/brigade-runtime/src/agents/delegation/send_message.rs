//! Says something to a task, to the parent, or to all tasks.

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::{SendMessage, SendMessageReply};
use brigade_model::call::{CallCompletion, Condition};
use brigade_model::command::{AnswerCommand, Command, GivenAnswer, Recipient, SendCommand};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{CallIndex, MessageNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::message::{MessagePurpose, MessageSender};
use brigade_model::refusal::Refusal;

use super::{AgentDelegationTool, DelegationContext};

impl AgentDelegationTool for SendMessage {
    const EFFECT: ToolEffect = ToolEffect::Recorded;

    async fn run(
        self,
        delegate: &DelegationContext,
        call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        let message = Json::of(self.text()?)?;
        if let Some(before) = &call.effect {
            return render_effect(before, &self);
        }
        let to = match self.to.as_str() {
            "parent" => Recipient::Parent,
            "all" => Recipient::Children,
            task => {
                let (no, row) = delegate.link.find_child(task).await?;
                // It may never return, so the message is not held until it does.
                if row.ended().is_some_and(|ended| ended.lingering) {
                    let late = format!("{task} has ended, but what it did has not returned yet");
                    return Err(ToolError::new(late));
                }
                let asked = row
                    .parked_calls
                    .iter()
                    .filter(|open| matches!(open.condition, Condition::Question { .. }));
                let asked: Vec<CallIndex> = asked.map(|open| open.index).collect();
                if let Some(question) = find_question(&self, delegate, (no, &asked)).await? {
                    send_answer(delegate, call, (no, question), message).await?;
                    return render_reply(&SendMessageReply::Answered { question: None }, &self.to);
                }
                Recipient::Task(no.into())
            }
        };
        let send = SendCommand {
            caller: delegate.link.caller(),
            to,
            body: message,
            interrupt: self.interrupt,
            reply_to: self.reply_to.map(MessageNo),
            closes_input: false,
            call: Some(call.slot_range.effect()),
        };
        match delegate.link.submit(Command::Send(send)).await? {
            CommandReply::Sent(numbers) => render_effect(&CallCompletion::Sent(numbers), &self),
            _ => Err(crate::session::unexpected_reply().into()),
        }
    }
}

/// The question of this task that is answered: the one named, or the only one that is open.
async fn find_question(
    sent: &SendMessage,
    delegate: &DelegationContext,
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
    let message =
        delegate.link.retry_while_unavailable(|| session.receipt(MessageNo(number))).await?;
    Ok(match message.map(|row| (row.message.from.clone(), row.message.purpose)) {
        Some((MessageSender::Child(from), MessagePurpose::Question(index))) if from == no => {
            open.contains(&index).then_some(index)
        }
        _ => None,
    })
}

async fn send_answer(
    delegate: &DelegationContext,
    call: &ToolInvocation,
    (no, question): (TaskNo, CallIndex),
    message: Json,
) -> Result<(), Refusal> {
    let given = AnswerCommand {
        caller: delegate.link.caller(),
        task: no.into(),
        call: Some(question),
        answer: GivenAnswer::Reply(message),
        caller_call: Some(call.slot_range.effect()),
    };
    delegate.link.submit(Command::Answer(given)).await?;
    Ok(())
}

fn render_effect(record: &CallCompletion, sent: &SendMessage) -> Result<ToolReply, ToolError> {
    let reply = match record {
        CallCompletion::Sent(numbers) if sent.to == "all" || numbers.is_empty() => {
            SendMessageReply::Broadcast { count: numbers.len() }
        }
        CallCompletion::Sent(_) => SendMessageReply::Sent,
        CallCompletion::Refused(refusal) => return Err(refusal.clone().into()),
        _ => SendMessageReply::Answered { question: None },
    };
    render_reply(&reply, &sent.to)
}

fn render_reply(reply: &SendMessageReply, to: &str) -> Result<ToolReply, ToolError> {
    Ok(ToolReply::text(reply.render(to).text()))
}
