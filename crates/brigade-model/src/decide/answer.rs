//! Answers from people, parents and clients to calls that wait for them.

use super::scope::{Steering, fence, no_such_task, resolve_to_steer};
use super::{Decision, Draft, Reply, approve};
use crate::call::{Answer, Condition, OpenCall};
use crate::command::{GiveAnswer, Given};
use crate::event::Event;
use crate::ids::Time;
use crate::json::Json;
use crate::message::{Purpose, Sender};
use crate::refusal::Refusal;
use crate::tree::Tree;

pub(super) fn answer(tree: &Tree, given: &GiveAnswer, now: Time) -> Result<Decision, Refusal> {
    let decision = match &given.answer {
        Given::Reply(reply) => reply_to(tree, given, reply)?,
        Given::Verdict(verdict) => approve::approve(tree, given, (verdict, None), now)?,
        Given::ShownVerdict { shown, verdict } => {
            approve::approve(tree, given, (verdict, Some(*shown)), now)?
        }
    };
    let answered = Answer::Value(Json::null());
    Ok(decision.recorded_for(given.caller.task(), given.record, "answer", answered))
}

fn reply_to(tree: &Tree, given: &GiveAnswer, reply: &Json) -> Result<Decision, Refusal> {
    fence(tree, &given.caller)?;
    let no = resolve_to_steer(tree, &given.caller, &given.task, Steering::Answer)?;
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    let address = row.address(no);
    if row.is_ending() {
        return Err(Refusal::ended(format!("{address} {}", row.state.phrase())));
    }
    let fits = |call: &&OpenCall| {
        matches!(call.on, Condition::Answer { .. } | Condition::ClientTool { .. })
            && given.call.is_none_or(|index| index == call.index)
    };
    let mut calls = row.calls.iter().filter(fits);
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
        message.from == Sender::Child(no) && message.purpose == Purpose::Question(call.index)
    });
    if let Some(message) = question {
        drafts.push(Event::MessageRead { to: row.owner, message: message.no }.into());
    }
    drafts.push(Draft::answered(no, call.index, call.on.label(), Answer::Reply(reply.clone())));
    Ok(Decision { drafts, reply: Reply::Done })
}
