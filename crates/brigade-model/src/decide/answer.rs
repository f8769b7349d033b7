//! Answers questions and client-side tools, and passes verdicts on to approvals.

use super::approve::ShownVerdict;
use super::scope::{ControlVerb, fence, no_such_task, resolve_controllable};
use super::{CommandReply, Decision, Draft, approve};
use crate::call::{CallCompletion, Condition, ParkedCall};
use crate::command::{AnswerCommand, GivenAnswer};
use crate::entry_label::EntryLabel;
use crate::event::Event;
use crate::ids::Time;
use crate::json::Json;
use crate::message::{MessagePurpose, MessageSender};
use crate::refusal::Refusal;
use crate::task_tree::TaskTree;

pub(super) fn answer(
    tree: &TaskTree,
    given: &AnswerCommand,
    now: Time,
) -> Result<Decision, Refusal> {
    let decision = match &given.answer {
        GivenAnswer::Reply(reply) => answer_question(tree, given, reply)?,
        GivenAnswer::Verdict(verdict) => {
            let verdict = ShownVerdict { verdict, shown: None };
            approve::approve(tree, given, verdict, now)?
        }
        GivenAnswer::ShownVerdict { shown, verdict } => {
            let verdict = ShownVerdict { verdict, shown: Some(*shown) };
            approve::approve(tree, given, verdict, now)?
        }
    };
    let completion = CallCompletion::Value(Json::null());
    Ok(decision.record_for(given.caller.task(), given.caller_call, EntryLabel::Answer, completion))
}

fn answer_question(
    tree: &TaskTree,
    given: &AnswerCommand,
    reply: &Json,
) -> Result<Decision, Refusal> {
    fence(tree, &given.caller)?;
    let no = resolve_controllable(tree, &given.caller, &given.task, ControlVerb::Answer)?;
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    let address = row.address(no);
    if row.is_ending() {
        return Err(Refusal::ended(format!("{address} {}", row.state.render_phrase())));
    }
    let is_meant = |call: &&ParkedCall| {
        matches!(call.condition, Condition::Question { .. } | Condition::ClientTool { .. })
            && given.call.is_none_or(|index| index == call.index)
    };
    let mut calls = row.parked_calls.iter().filter(is_meant);
    let call = match (calls.next(), calls.next()) {
        (Some(call), None) => call,
        (None, _) => {
            return Err(Refusal::not_found(format!("{address} has no such question open")));
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::conflict(format!(
                "{address} has several questions open; name the one that you answer by its number"
            )));
        }
    };
    let mut drafts: Vec<Draft> = Vec::new();
    let question = tree.inbox(row.owner).find(|message| {
        message.from == MessageSender::Child(no)
            && message.purpose == MessagePurpose::Question(call.index)
    });
    if let Some(message) = question {
        drafts.push(Event::MessageRead { to: row.owner, message: message.no }.into());
    }
    drafts.push(Draft::call_completed(
        no,
        call.index,
        call.condition.label(),
        CallCompletion::Reply(reply.clone()),
    ));
    Ok(Decision { drafts, reply: CommandReply::Done })
}
