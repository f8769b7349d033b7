//! Approvals: who may give one, what is allowed for good, and what that answers.

use std::sync::Arc;

use super::scope::{fence, no_such_task, resolve};
use super::{Decision, Draft, Reply};
use crate::approval::{ApprovalRequest, CallDigest, Covers, GRANTS_MAX, Grant, Verdict};
use crate::call::{Answer, Condition, OpenCall};
use crate::command::{Caller, GiveAnswer, Revoke};
use crate::event::Event;
use crate::ids::{ClientName, TaskNo, Time};
use crate::refusal::Refusal;
use crate::task::TaskRow;
use crate::tree::Tree;

/// Says yes or no to a call that waits for leave, where it was shown to that call only.
pub(super) fn approve(
    tree: &Tree,
    given: &GiveAnswer,
    (verdict, shown): (&Verdict, Option<CallDigest>),
    now: Time,
) -> Result<Decision, Refusal> {
    fence(tree, &given.caller)?;
    let no = approvable(tree, given)?;
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    if row.is_ending() {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.phrase())));
    }
    let Some((call, request)) = wanted(no, row, (given, shown))? else {
        return said_before(no, row, given, verdict);
    };
    verdict.check(request)?;
    let mut drafts: Vec<Draft> = Vec::new();
    if let Verdict::AllowAlways { rule } = verdict {
        let covers = Covers::of(request, rule.as_ref())?;
        let directory = match covers.is_whole_tool() {
            true => None,
            false => request.directory.clone(),
        };
        let wanted =
            Grant { no: 0, covers, directory, client: client_named(&given.caller), at: now };
        drafts.extend(grant(tree, wanted)?.map(Draft::from));
    }
    drafts.extend(ruled(no, call, verdict.clone()));
    Ok(Decision { drafts, reply: Reply::Done })
}

/// The task that is meant, if the caller may decide for it. A task never may, be it its own parent:
/// what an agent must not do by itself it could then have done by a child.
fn approvable(tree: &Tree, given: &GiveAnswer) -> Result<TaskNo, Refusal> {
    match &given.caller {
        Caller::Operator => resolve(tree, &given.caller, &given.task),
        Caller::Task { .. } => {
            resolve(tree, &given.caller, &given.task)?;
            Err(Refusal::forbidden("a task cannot approve; ask the operator"))
        }
        Caller::Client(client) => {
            let no = resolve(tree, &Caller::Operator, &given.task)?;
            // Of what has ended there is nothing to decide, and what was above it may be forgotten.
            let ended = tree.get(no).is_some_and(|row| !row.is_living());
            if ended || client_of(tree, no) == Some(&client.identity.name) {
                return Ok(no);
            }
            let address = tree.get(no).map(|row| row.address(no)).unwrap_or_default();
            Err(Refusal::forbidden(format!(
                "{address} is below nothing that {} started; ask the operator",
                client.identity
            )))
        }
    }
}

/// The client that started the top-level task above this one.
fn client_of(tree: &Tree, no: TaskNo) -> Option<&ClientName> {
    tree.started_by(no).map(|client| &client.name)
}

/// The one call that is meant among those that wait for leave.
fn wanted<'a>(
    no: TaskNo,
    row: &'a TaskRow,
    (given, shown): (&GiveAnswer, Option<CallDigest>),
) -> Result<Option<(&'a OpenCall, &'a Arc<ApprovalRequest>)>, Refusal> {
    let asking = row.calls.iter().filter_map(|call| match &call.on {
        Condition::Approval { request, .. } => Some((call, request)),
        _ => None,
    });
    let meant = |call: &OpenCall| given.call.is_none_or(|index| index == call.index);
    let calls: Vec<_> = asking.filter(|(call, _)| meant(call)).collect();
    if let Some(shown) = shown {
        let is_shown = |(call, request): &&(&OpenCall, &Arc<ApprovalRequest>)| {
            CallDigest::of(no, call.index, request) == shown
        };
        return match calls.iter().find(is_shown) {
            Some(found) => Ok(Some(*found)),
            None if calls.is_empty() => Ok(None),
            None => Err(Refusal::conflict(format!(
                "{} waits for another approval than the one that was shown",
                row.address(no)
            ))),
        };
    }
    match calls.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => {
            let numbers: Vec<String> =
                several.iter().map(|(call, _)| call.index.to_string()).collect();
            Err(Refusal::conflict(format!(
                "{} waits for several approvals; say which call: {}",
                row.address(no),
                numbers.join(", ")
            )))
        }
    }
}

/// The same verdict on the same call once more changes nothing; another one comes too late.
fn said_before(
    no: TaskNo,
    row: &TaskRow,
    given: &GiveAnswer,
    verdict: &Verdict,
) -> Result<Decision, Refusal> {
    let ruled = row.extra.iter().flat_map(|extra| &extra.ruled);
    let meant = |index| given.call.is_none_or(|call| call == index);
    let last = ruled.rev().find(|(index, _)| meant(*index));
    match last {
        Some((_, said)) if given.call.is_some() && said == verdict => {
            Ok(Decision::reply(Reply::Done))
        }
        Some((index, said)) => Err(Refusal::conflict(format!(
            "{} waits for no such approval any more; call {index} was {said}",
            row.address(no)
        ))),
        None => Err(Refusal::not_found(format!("{} waits for no such approval", row.address(no)))),
    }
}

/// What is allowed for good from here on, unless it is already.
fn grant(tree: &Tree, wanted: Grant) -> Result<Option<Event>, Refusal> {
    let grants = &tree.row().grants;
    let (no, at) = (grants.last + 1, wanted.at);
    if grants
        .all
        .iter()
        .any(|grant| Grant { no, at, ..grant.clone() } == Grant { no, ..wanted.clone() })
    {
        return Ok(None);
    }
    if grants.all.len() >= GRANTS_MAX {
        return Err(Refusal::limit(format!(
            "{GRANTS_MAX} things are allowed for good here, which is the most; revoke some, or allow \
             it once"
        )));
    }
    Ok(Some(Event::Granted(Box::new(Grant { no, ..wanted }))))
}

fn client_named(caller: &Caller) -> Option<ClientName> {
    match caller {
        Caller::Client(client) => Some(client.identity.name.clone()),
        Caller::Operator | Caller::Task { .. } => None,
    }
}

pub(super) fn revoke(tree: &Tree, revoke: &Revoke) -> Result<Decision, Refusal> {
    fence(tree, &revoke.caller)?;
    if let Caller::Task { .. } = revoke.caller {
        return Err(Refusal::forbidden("a task cannot change what is allowed; ask the operator"));
    }
    let Some(grant) = tree.row().grants.get(revoke.grant) else {
        return Err(Refusal::not_found(format!("nothing is allowed here as {}", revoke.grant)));
    };
    if let Caller::Client(client) = &revoke.caller
        && grant.client.as_ref() != Some(&client.identity.name)
    {
        return Err(Refusal::forbidden(format!("grant {} is not yours", grant.no)));
    }
    Ok(Decision::event(Event::GrantRevoked { grant: grant.no }, Reply::Done))
}

/// The grant that answers an approval, if there is one.
fn granted<'a>(tree: &'a Tree, no: TaskNo, asked: &ApprovalRequest) -> Option<&'a Grant> {
    let grants = &tree.row().grants.all;
    if grants.is_empty() {
        return None;
    }
    let client = client_of(tree, no);
    let reaches = |grant: &Grant| grant.client.is_none() || grant.client.as_ref() == client;
    grants.iter().find(|grant| reaches(grant) && grant.allows(asked))
}

/// Whether it needs nobody to answer an approval.
pub(super) fn is_settled(tree: &Tree, no: TaskNo, asked: &ApprovalRequest) -> bool {
    asked.is_unattended || asked.is_too_large() || granted(tree, no, asked).is_some()
}

/// The events that answer a call which needs nobody for that.
pub(super) fn settled(
    tree: &Tree,
    no: TaskNo,
    call: &OpenCall,
    asked: &ApprovalRequest,
) -> Vec<Draft> {
    let verdict = match granted(tree, no, asked).map(|grant| &grant.covers) {
        None if asked.is_too_large() => Verdict::too_large(),
        None => Verdict::unattended(),
        Some(Covers::Rule(rule)) => Verdict::AllowAlways { rule: Some(rule.clone()) },
        Some(Covers::Call { .. }) => Verdict::AllowAlways { rule: None },
    };
    ruled(no, call, verdict).into()
}

/// Every call that waits for what is allowed by now.
pub(crate) fn released(tree: &Tree) -> Vec<Draft> {
    let asking = tree.asking.iter().filter_map(|no| Some((*no, tree.get(*no)?)));
    // Work that has yet to react to an answer is told the next one when it has.
    let ready = asking.filter(|(_, row)| row.told.is_none());
    let calls = ready.flat_map(|(no, row)| row.calls.iter().map(move |call| (no, call)));
    let covered = calls.filter_map(|(no, call)| match &call.on {
        Condition::Approval { request, .. } => {
            is_settled(tree, no, request).then(|| settled(tree, no, call, request))
        }
        _ => None,
    });
    covered.flatten().collect()
}

fn ruled(no: TaskNo, call: &OpenCall, verdict: Verdict) -> [Draft; 2] {
    let event = Event::Ruled { no, index: call.index, verdict: Box::new(verdict.clone()) };
    [event.into(), Draft::answered(no, call.index, call.on.label(), Answer::Verdict(verdict))]
}
