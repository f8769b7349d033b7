//! Answers from people, parents and clients to calls that wait for them.

use super::scope::{fence, no_such_task, resolve};
use super::{Decision, Draft, Reply};
use crate::call::{Answer, Condition, OpenCall};
use crate::command::{Caller, GiveAnswer, Given};
use crate::event::Event;
use crate::json::Json;
use crate::message::{Purpose, Sender};
use crate::refusal::Refusal;
use crate::tree::Tree;

pub(super) fn answer(tree: &Tree, given: &GiveAnswer) -> Result<Decision, Refusal> {
    fence(tree, &given.caller)?;
    let no = resolve(tree, &given.caller, &given.task)?;
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    let address = row.address(no);
    if row.is_ending() {
        return Err(Refusal::ended(format!("{address} is {}", row.state.word())));
    }
    let fits = |call: &&OpenCall| {
        matches!(
            (&call.on, &given.answer),
            (Condition::Answer { .. } | Condition::ClientTool { .. }, Given::Reply(_))
                | (Condition::Approval { .. }, Given::Verdict(_))
        )
    };
    let wanted = |call: &&OpenCall| given.call.is_none_or(|index| index == call.index);
    let mut calls = row.calls.iter().filter(fits).filter(wanted);
    let call = match (calls.next(), calls.next()) {
        (Some(call), None) => call,
        (None, _) => {
            return Err(Refusal::not_found(format!("{address} has no such question open")));
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::conflict(format!(
                "{address} has several questions open; say which call you answer"
            )));
        }
    };
    if matches!(call.on, Condition::Approval { .. }) && matches!(given.caller, Caller::Task { .. })
    {
        return Err(Refusal::forbidden("a task cannot approve; ask the operator"));
    }
    let mut drafts: Vec<Draft> = Vec::new();
    let question = tree.inbox(row.owner).find(|message| {
        message.from == Sender::Child(no) && message.purpose == Purpose::Question(call.index)
    });
    if let Some(message) = question {
        drafts.push(Event::MessageRead { to: row.owner, message: message.no }.into());
    }
    let answer = match &given.answer {
        Given::Reply(reply) => Answer::Reply(reply.clone()),
        Given::Verdict(verdict) => Answer::Verdict(verdict.clone()),
    };
    drafts.push(Draft::answered(no, call.index, call.on.label(), answer));
    let decision = Decision { drafts, reply: Reply::Done };
    let answered = Answer::Value(Json::null());
    Ok(decision.recorded_for(given.caller.task(), given.record, "answer", answered))
}
