//! Approvals: who may give one, what is allowed for good, and what that answers.

use std::sync::Arc;

use super::scope::{fence, no_such_task, resolve_task};
use super::{CommandReply, Decision, Draft};
use crate::approval::{
    ApprovalGrant, ApprovalRequest, ApprovalVerdict, CallDigest, GRANTS_MAX, GrantScope,
};
use crate::call::{CallCompletion, Condition, ParkedCall};
use crate::command::{AnswerCommand, Caller, RevokeCommand};
use crate::event::Event;
use crate::ids::{ClientName, TaskNo, Time};
use crate::refusal::Refusal;
use crate::task::TaskRow;
use crate::task_tree::TaskTree;

/// Says yes or no to a call that waits for leave, where it was shown to that call only.
pub(super) fn approve(
    tree: &TaskTree,
    given: &AnswerCommand,
    (verdict, shown): (&ApprovalVerdict, Option<CallDigest>),
    now: Time,
) -> Result<Decision, Refusal> {
    fence(tree, &given.caller)?;
    let no = resolve_approvable(tree, given)?;
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    if row.is_ending() {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.render_phrase())));
    }
    let Some((call, request)) = find_approval_call(no, row, (given, shown))? else {
        return check_repeated_verdict(no, row, given, verdict);
    };
    verdict.check(request)?;
    let mut drafts: Vec<Draft> = Vec::new();
    if let ApprovalVerdict::AllowAlways { rule } = verdict {
        let covers = GrantScope::of(request, rule.as_ref())?;
        let directory = match covers.is_whole_tool() {
            true => None,
            false => request.directory.clone(),
        };
        let wanted = ApprovalGrant {
            no: 0,
            scope: covers,
            directory,
            client: client_name_of(&given.caller),
            granted_at: now,
        };
        drafts.extend(add_grant(tree, wanted)?.map(Draft::from));
    }
    drafts.extend(decide_approval(no, call, verdict.clone()));
    Ok(Decision { drafts, reply: CommandReply::Done })
}

/// The task that is meant, if the caller may decide for it. A task never may, be it its own parent:
/// what an agent must not do by itself it could then have done by a child.
fn resolve_approvable(tree: &TaskTree, given: &AnswerCommand) -> Result<TaskNo, Refusal> {
    match &given.caller {
        Caller::Operator => resolve_task(tree, &given.caller, &given.task),
        Caller::Task { .. } => {
            resolve_task(tree, &given.caller, &given.task)?;
            Err(Refusal::forbidden("a task cannot approve; ask the operator"))
        }
        Caller::Client(client) => {
            let no = resolve_task(tree, &Caller::Operator, &given.task)?;
            // Of what has ended there is nothing to decide, and what was above it may be forgotten.
            let ended = tree.get(no).is_some_and(|row| !row.is_alive());
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
fn client_of(tree: &TaskTree, no: TaskNo) -> Option<&ClientName> {
    tree.started_by(no).map(|client| &client.name)
}

/// The one call that is meant among those that wait for leave.
fn find_approval_call<'a>(
    no: TaskNo,
    row: &'a TaskRow,
    (given, shown): (&AnswerCommand, Option<CallDigest>),
) -> Result<Option<(&'a ParkedCall, &'a Arc<ApprovalRequest>)>, Refusal> {
    let asking = row.parked_calls.iter().filter_map(|call| match &call.condition {
        Condition::Approval { request, .. } => Some((call, request)),
        _ => None,
    });
    let meant = |call: &ParkedCall| given.call.is_none_or(|index| index == call.index);
    let calls: Vec<_> = asking.filter(|(call, _)| meant(call)).collect();
    if let Some(shown) = shown {
        let is_shown = |(call, request): &&(&ParkedCall, &Arc<ApprovalRequest>)| {
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
fn check_repeated_verdict(
    no: TaskNo,
    row: &TaskRow,
    given: &AnswerCommand,
    verdict: &ApprovalVerdict,
) -> Result<Decision, Refusal> {
    let ruled = row.extras.iter().flat_map(|extra| &extra.decided_approvals);
    let meant = |index| given.call.is_none_or(|call| call == index);
    let last = ruled.rev().find(|(index, _)| meant(*index));
    match last {
        Some((_, said)) if given.call.is_some() && said == verdict => {
            Ok(Decision::reply(CommandReply::Done))
        }
        Some((index, said)) => Err(Refusal::conflict(format!(
            "{} waits for no such approval any more; call {index} was {said}",
            row.address(no)
        ))),
        None => Err(Refusal::not_found(format!("{} waits for no such approval", row.address(no)))),
    }
}

/// What is allowed for good from here on, unless it is already.
fn add_grant(tree: &TaskTree, wanted: ApprovalGrant) -> Result<Option<Event>, Refusal> {
    let grants = &tree.row().grants;
    let (no, at) = (grants.last_no + 1, wanted.granted_at);
    if grants.all.iter().any(|grant| {
        ApprovalGrant { no, granted_at: at, ..grant.clone() }
            == ApprovalGrant { no, ..wanted.clone() }
    }) {
        return Ok(None);
    }
    if grants.all.len() >= GRANTS_MAX {
        return Err(Refusal::limit(format!(
            "{GRANTS_MAX} things are allowed for good here, which is the most; revoke some, or allow \
             it once"
        )));
    }
    Ok(Some(Event::GrantAdded(Box::new(ApprovalGrant { no, ..wanted }))))
}

fn client_name_of(caller: &Caller) -> Option<ClientName> {
    match caller {
        Caller::Client(client) => Some(client.identity.name.clone()),
        Caller::Operator | Caller::Task { .. } => None,
    }
}

pub(super) fn revoke(tree: &TaskTree, revoke: &RevokeCommand) -> Result<Decision, Refusal> {
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
    Ok(Decision::event(Event::GrantRevoked { grant: grant.no }, CommandReply::Done))
}

/// The grant that answers an approval, if there is one.
fn find_grant<'a>(
    tree: &'a TaskTree,
    no: TaskNo,
    asked: &ApprovalRequest,
) -> Option<&'a ApprovalGrant> {
    let grants = &tree.row().grants.all;
    if grants.is_empty() {
        return None;
    }
    let client = client_of(tree, no);
    let reaches = |grant: &ApprovalGrant| grant.client.is_none() || grant.client.as_ref() == client;
    grants.iter().find(|grant| reaches(grant) && grant.allows(asked))
}

/// Whether it needs nobody to answer an approval.
pub(super) fn is_decided_without_operator(
    tree: &TaskTree,
    no: TaskNo,
    asked: &ApprovalRequest,
) -> bool {
    asked.is_unattended || asked.is_too_large() || find_grant(tree, no, asked).is_some()
}

/// The events that answer a call which needs nobody for that.
pub(super) fn decide_without_operator(
    tree: &TaskTree,
    no: TaskNo,
    call: &ParkedCall,
    asked: &ApprovalRequest,
) -> Vec<Draft> {
    let verdict = match find_grant(tree, no, asked).map(|grant| &grant.scope) {
        None if asked.is_too_large() => ApprovalVerdict::deny_too_large(),
        None => ApprovalVerdict::deny_unattended(),
        Some(GrantScope::Rule(rule)) => ApprovalVerdict::AllowAlways { rule: Some(rule.clone()) },
        Some(GrantScope::Call { .. }) => ApprovalVerdict::AllowAlways { rule: None },
    };
    decide_approval(no, call, verdict).into()
}

/// Every call that waits for what is allowed by now.
pub(crate) fn complete_granted_calls(tree: &TaskTree) -> Vec<Draft> {
    let asking = tree.awaiting_approval.iter().filter_map(|no| Some((*no, tree.get(*no)?)));
    // Work that has yet to react to an answer is told the next one when it has.
    let ready = asking.filter(|(_, row)| row.unacked.is_none());
    let calls = ready.flat_map(|(no, row)| row.parked_calls.iter().map(move |call| (no, call)));
    let covered = calls.filter_map(|(no, call)| match &call.condition {
        Condition::Approval { request, .. } => is_decided_without_operator(tree, no, request)
            .then(|| decide_without_operator(tree, no, call, request)),
        _ => None,
    });
    covered.flatten().collect()
}

fn decide_approval(no: TaskNo, call: &ParkedCall, verdict: ApprovalVerdict) -> [Draft; 2] {
    let event =
        Event::ApprovalDecided { no, index: call.index, verdict: Box::new(verdict.clone()) };
    [
        event.into(),
        Draft::call_completed(
            no,
            call.index,
            call.condition.label(),
            CallCompletion::Verdict(verdict),
        ),
    ]
}
