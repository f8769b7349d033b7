//! Decides approvals, adds and revokes grants, and completes the calls that a grant covers.

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
use crate::task_tree::{TaskTree, TaskView};

/// A verdict, and the digest of the call that was shown if it names one.
pub(super) struct ShownVerdict<'a> {
    pub(super) verdict: &'a ApprovalVerdict,
    pub(super) shown: Option<CallDigest>,
}

/// Decides a pending approval. A verdict with a digest applies only to the call that was shown.
pub(super) fn approve(
    tree: &TaskTree,
    given: &AnswerCommand,
    ShownVerdict { verdict, shown }: ShownVerdict<'_>,
    now: Time,
) -> Result<Decision, Refusal> {
    fence(tree, &given.caller)?;
    let no = resolve_approvable(tree, given)?;
    let task = tree.view(no).ok_or_else(|| no_such_task(tree, no))?;
    if task.row.is_ending() {
        let phrase = task.row.state.render_phrase();
        return Err(Refusal::ended(format!("{} {phrase}", task.address())));
    }
    let Some((call, request)) = find_approval_call(task, given, shown)? else {
        return check_repeated_verdict(task, given, verdict);
    };
    verdict.check(request)?;
    let mut drafts: Vec<Draft> = Vec::new();
    if let ApprovalVerdict::AllowAlways { rule } = verdict {
        let scope = GrantScope::of(request, rule.as_ref())?;
        let directory = match scope.is_whole_tool() {
            true => None,
            false => request.directory.clone(),
        };
        let wanted = ApprovalGrant {
            no: 0,
            scope,
            directory,
            client: client_name_of(&given.caller),
            granted_at: now,
        };
        drafts.extend(add_grant(tree, wanted)?.map(Draft::from));
    }
    drafts.extend(decide_approval(no, call, verdict.clone()));
    Ok(Decision { drafts, reply: CommandReply::Done })
}

/// Returns the task, if the caller may decide for it. A task never may, not even a parent: an agent
/// could otherwise use a child to bypass its own rules.
fn resolve_approvable(tree: &TaskTree, given: &AnswerCommand) -> Result<TaskNo, Refusal> {
    match &given.caller {
        Caller::Operator => resolve_task(tree, &given.caller, &given.task),
        Caller::Task { .. } => {
            resolve_task(tree, &given.caller, &given.task)?;
            Err(Refusal::forbidden("a task cannot approve; ask the operator"))
        }
        Caller::Client(client) => {
            let no = resolve_task(tree, &Caller::Operator, &given.task)?;
            // An ended task has nothing to decide, and its ancestors may be evicted.
            let ended = tree.get(no).is_some_and(|row| !row.is_alive());
            if ended || client_of(tree, no) == Some(&client.identity.name) {
                return Ok(no);
            }
            let address = tree.get(no).map(|row| row.address(no)).unwrap_or_default();
            Err(Refusal::forbidden(format!(
                "{address} does not belong to a task that {} started; ask the operator",
                client.identity
            )))
        }
    }
}

/// Returns the client that started the top-level run above this task.
fn client_of(tree: &TaskTree, no: TaskNo) -> Option<&ClientName> {
    tree.started_by(no).map(|client| &client.name)
}

/// Finds the one pending approval that is meant.
fn find_approval_call<'a>(
    task: TaskView<'a>,
    given: &AnswerCommand,
    shown: Option<CallDigest>,
) -> Result<Option<(&'a ParkedCall, &'a Arc<ApprovalRequest>)>, Refusal> {
    let pending = task.row.parked_calls.iter().filter_map(|call| match &call.condition {
        Condition::Approval { request, .. } => Some((call, request)),
        _ => None,
    });
    let is_meant = |call: &ParkedCall| given.call.is_none_or(|index| index == call.index);
    let calls: Vec<_> = pending.filter(|(call, _)| is_meant(call)).collect();
    if let Some(shown) = shown {
        let is_shown = |(call, request): &&(&ParkedCall, &Arc<ApprovalRequest>)| {
            CallDigest::of(task.no, call.index, request) == shown
        };
        return match calls.iter().find(is_shown) {
            Some(found) => Ok(Some(*found)),
            None if calls.is_empty() => Ok(None),
            None => Err(Refusal::conflict(format!(
                "{} waits for another approval than the one that was shown",
                task.address()
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
                task.address(),
                numbers.join(", ")
            )))
        }
    }
}

/// Accepts the same verdict on the same call again without a change. A different verdict comes too
/// late.
fn check_repeated_verdict(
    task: TaskView<'_>,
    given: &AnswerCommand,
    verdict: &ApprovalVerdict,
) -> Result<Decision, Refusal> {
    let decided = task.row.extras.iter().flat_map(|extra| &extra.decided_approvals);
    let is_meant = |index| given.call.is_none_or(|call| call == index);
    let last = decided.rev().find(|decided| is_meant(decided.index));
    match last {
        Some(last) if given.call.is_some() && last.verdict == *verdict => {
            Ok(Decision::reply(CommandReply::Done))
        }
        Some(last) => Err(Refusal::conflict(format!(
            "{} waits for no such approval any more; call {} was {}",
            task.address(),
            last.index,
            last.verdict
        ))),
        None => Err(Refusal::not_found(format!("{} waits for no such approval", task.address()))),
    }
}

/// Returns the event that adds a grant, unless there is the same one.
fn add_grant(tree: &TaskTree, wanted: ApprovalGrant) -> Result<Option<Event>, Refusal> {
    let grants = &tree.row().grants;
    let no = grants.last_no + 1;
    let at = wanted.granted_at;
    if grants.all.iter().any(|grant| {
        ApprovalGrant { no, granted_at: at, ..grant.clone() }
            == ApprovalGrant { no, ..wanted.clone() }
    }) {
        return Ok(None);
    }
    if grants.all.len() >= GRANTS_MAX {
        return Err(Refusal::limit(format!(
            "{GRANTS_MAX} calls are allowed always here, which is the maximum; revoke some, or allow \
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
        return Err(Refusal::forbidden("a task cannot revoke a grant; ask the operator"));
    }
    let Some(grant) = tree.row().grants.get(revoke.grant) else {
        return Err(Refusal::not_found(format!("there is no grant {}", revoke.grant)));
    };
    if let Caller::Client(client) = &revoke.caller
        && grant.client.as_ref() != Some(&client.identity.name)
    {
        return Err(Refusal::forbidden(format!("grant {} is not yours", grant.no)));
    }
    Ok(Decision::event(Event::GrantRevoked { grant: grant.no }, CommandReply::Done))
}

/// Returns the grant that covers an approval request, if there is one.
fn find_grant<'a>(
    tree: &'a TaskTree,
    no: TaskNo,
    request: &ApprovalRequest,
) -> Option<&'a ApprovalGrant> {
    let grants = &tree.row().grants.all;
    if grants.is_empty() {
        return None;
    }
    let client = client_of(tree, no);
    let applies = |grant: &ApprovalGrant| grant.client.is_none() || grant.client.as_ref() == client;
    grants.iter().find(|grant| applies(grant) && grant.allows(request))
}

/// Returns whether a request is decided by a grant or denied at once.
pub(super) fn is_decided_without_operator(
    tree: &TaskTree,
    no: TaskNo,
    request: &ApprovalRequest,
) -> bool {
    request.is_unattended || request.is_too_large() || find_grant(tree, no, request).is_some()
}

/// Returns the events that complete a call which nobody has to decide.
pub(super) fn decide_without_operator(
    tree: &TaskTree,
    no: TaskNo,
    call: &ParkedCall,
    request: &ApprovalRequest,
) -> Vec<Draft> {
    let verdict = match find_grant(tree, no, request).map(|grant| &grant.scope) {
        None if request.is_too_large() => ApprovalVerdict::deny_too_large(),
        None => ApprovalVerdict::deny_unattended(),
        Some(GrantScope::Rule(rule)) => ApprovalVerdict::AllowAlways { rule: Some(rule.clone()) },
        Some(GrantScope::Call { .. }) => ApprovalVerdict::AllowAlways { rule: None },
    };
    decide_approval(no, call, verdict).into()
}

/// Completes every pending approval that a grant covers by now.
pub(crate) fn complete_granted_calls(tree: &TaskTree) -> Vec<Draft> {
    let pending = tree.awaiting_approval.iter().filter_map(|no| tree.view(*no));
    // Work with an unacknowledged completion gets the next one after the acknowledgement.
    let ready = pending.filter(|task| task.row.unacked.is_none());
    let calls =
        ready.flat_map(|task| task.row.parked_calls.iter().map(move |call| (task.no, call)));
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
