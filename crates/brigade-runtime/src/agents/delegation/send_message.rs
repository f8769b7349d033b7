//! Sends a message to a task, to the parent, or to all tasks.

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::{SendMessage, SendMessageReply};
use brigade_model::call::{CallCompletion, Condition};
use brigade_model::command::{AnswerCommand, Command, GivenAnswer, Recipient, SendCommand};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{CallIndex, MessageNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::message::{MessagePurpose, MessageSender};
use brigade_model::name::check_message_name;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_model::work::TaskKind;

use super::{AgentDelegationTool, DelegationContext};

impl AgentDelegationTool for SendMessage {
    const EFFECT: ToolEffect = ToolEffect::Recorded;

    async fn run(
        self,
        delegate: &DelegationContext,
        call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        let message = Json::of(self.text()?)?;
        if let Some(recorded) = &call.effect {
            return render_effect(recorded, &self);
        }
        self.name.as_deref().map_or(Ok(()), check_message_name)?;
        let to = match self.to.as_str() {
            "parent" => Recipient::Parent,
            "all" => Recipient::Children,
            task => {
                let StoredTask { no, row } = delegate.link.find_child(task).await?;
                // Its work may never return, so the message is not held until then.
                if row.ended().is_some_and(|ended| ended.lingering) {
                    let late = format!("{task} has ended, but its work has not returned yet");
                    return Err(ToolError::new(late));
                }
                if row.spec.work.kind() == TaskKind::Process {
                    self.check_unnamed_line(task)?;
                }
                let questions = row
                    .parked_calls
                    .iter()
                    .filter(|open| matches!(open.condition, Condition::Question { .. }));
                let calls: Vec<CallIndex> = questions.map(|open| open.index).collect();
                let open = OpenQuestions { task: no, calls: &calls };
                if let Some(question) = find_question(&self, delegate, open).await? {
                    self.check_unnamed_answer(task)?;
                    send_answer(delegate, call, AnsweredCall { task: no, question }, message)
                        .await?;
                    return render_reply(&SendMessageReply::Answered { question: None }, &self.to);
                }
                Recipient::Task(no.into())
            }
        };
        let send = SendCommand {
            interrupt: self.interrupt,
            reply_to: self.reply_to.map(MessageNo),
            name: self.name.as_deref().map(Into::into),
            call: Some(call.slot_range.effect()),
            ..SendCommand::new(delegate.link.caller(), to, message)
        };
        match delegate.link.submit(Command::Send(send)).await? {
            CommandReply::Sent(numbers) => render_effect(&CallCompletion::Sent(numbers), &self),
            _ => Err(crate::session::unexpected_reply().into()),
        }
    }
}

/// The open questions of a task.
struct OpenQuestions<'a> {
    task: TaskNo,
    calls: &'a [CallIndex],
}

/// A task and the question of it that is answered.
struct AnsweredCall {
    task: TaskNo,
    question: CallIndex,
}

/// Returns the question that is answered: the named one, or the only open one.
async fn find_question(
    sent: &SendMessage,
    delegate: &DelegationContext,
    open: OpenQuestions<'_>,
) -> Result<Option<CallIndex>, Refusal> {
    let Some(number) = sent.reply_to else {
        return match open.calls {
            [] => Ok(None),
            [only] => Ok(Some(*only)),
            // The task reads nothing else before all of them are answered.
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
        Some((MessageSender::Child(from), MessagePurpose::Question(index)))
            if from == open.task =>
        {
            open.calls.contains(&index).then_some(index)
        }
        _ => None,
    })
}

async fn send_answer(
    delegate: &DelegationContext,
    call: &ToolInvocation,
    answered: AnsweredCall,
    message: Json,
) -> Result<(), Refusal> {
    let answer = AnswerCommand {
        caller: delegate.link.caller(),
        task: answered.task.into(),
        call: Some(answered.question),
        answer: GivenAnswer::Reply(message),
        caller_call: Some(call.slot_range.effect()),
    };
    delegate.link.submit(Command::Answer(answer)).await?;
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
