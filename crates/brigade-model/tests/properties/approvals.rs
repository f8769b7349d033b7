//! Approvals in random histories, and a reference that decides them by comparing texts.

use std::sync::Arc;

use brigade_model::approval::{
    ApprovalGrant, ApprovalRequest, ApprovalVerdict, CallDigest, GrantScope,
};
use brigade_model::call::{Condition, ConditionRequest};
use brigade_model::command::{
    AnswerCommand, Caller, ClientCaller, Command, GivenAnswer, RevokeCommand,
};
use brigade_model::ids::{CallIndex, ClientIdentity, Owner, TaskNo};
use brigade_model::permission::PermissionSubject;
use brigade_model::refusal::RefusalKind;
use brigade_model::task::TaskRow;

use crate::naive::{Expected, Naive};
use crate::player::{Dice, caller, submit, task_ref};
use crate::rows::{is_alive, is_ending};
use crate::world::World;

const TOOL: &str = "stir";

pub(crate) fn approval_request(dice: &mut Dice) -> ConditionRequest {
    let text = [Some("soup"), Some("stew"), None][dice.roll(3)];
    let subject = PermissionSubject { tool: TOOL, text, is_shell: false };
    let arguments = ["{}", "{\"hot\":true}"][dice.roll(2)];
    let rule = TOOL.parse().expect("a rule");
    let request = ApprovalRequest::new(&subject, arguments, rule, "the test".into());
    let directory = [None, Some("/soup".into()), Some("/stew".into())][dice.roll(3)].clone();
    let request = request.in_directory(directory);
    let is_unattended = dice.one_in(6);
    ConditionRequest::Approval { request: Arc::new(ApprovalRequest { is_unattended, ..request }) }
}

/// Decides an approval, often one that is pending, or revokes a grant.
pub(crate) fn decide(world: &mut World, dice: &mut Dice) {
    let caller = if dice.one_in(2) { Caller::Operator } else { caller(world, dice) };
    if dice.one_in(5) {
        let grant = dice.roll(world.folded.row().grants.last_no as usize + 2) as u32;
        return submit(world, Command::Revoke(RevokeCommand { caller, grant }));
    }
    let open: Vec<(TaskNo, CallIndex)> = world
        .folded
        .rows()
        .flat_map(|(no, row)| approvals(row).map(move |(index, _)| (no, index)))
        .collect();
    let (task, index) = match dice.pick(&open) {
        Some((no, index)) if !dice.one_in(5) => (no.into(), Some(index)),
        _ => (task_ref(world, dice, &caller), None),
    };
    let call = if dice.one_in(3) { None } else { index };
    let verdict = match dice.roll(5) {
        0 => ApprovalVerdict::AllowOnce,
        1 => ApprovalVerdict::Deny { reason: "too hot".into() },
        2 => ApprovalVerdict::AllowAlways { rule: None },
        3 => ApprovalVerdict::AllowAlways { rule: Some(TOOL.parse().expect("a rule")) },
        _ => ApprovalVerdict::AllowAlways { rule: Some("stir(soup)".parse().expect("a rule")) },
    };
    let answer = GivenAnswer::Verdict(verdict);
    submit(world, Command::Answer(AnswerCommand { caller, task, call, answer, caller_call: None }));
}

fn approvals(row: &TaskRow) -> impl Iterator<Item = (CallIndex, &ApprovalRequest)> {
    row.parked_calls.iter().filter_map(|call| match &call.condition {
        Condition::Approval { request, .. } => Some((call.index, &**request)),
        _ => None,
    })
}

fn text(request: &ApprovalRequest) -> Option<&str> {
    request.subject.as_ref().map(|subject| &*subject.text)
}

fn matches_rule(rule: &str, request: &ApprovalRequest) -> bool {
    rule == TOOL || text(request).is_some_and(|text| rule == format!("{TOOL}({text})"))
}

impl Naive<'_> {
    /// Predicts the effect of a verdict.
    pub(crate) fn verdict(
        self,
        given: &AnswerCommand,
        verdict: &ApprovalVerdict,
    ) -> Result<Expected, RefusalKind> {
        let found = match &given.caller {
            Caller::Client(_) => self.find(&Caller::Operator, &given.task)?,
            other => self.find(other, &given.task)?,
        };
        let may = match &given.caller {
            Caller::Operator => true,
            Caller::Client(client) => {
                let ended = self.row(found).is_some_and(|row| !is_alive(row));
                ended || self.is_of_client(found, client)
            }
            Caller::Task { .. } => false,
        };
        let row = self.row(found).ok_or(RefusalKind::NotFound)?;
        if !may {
            return Err(RefusalKind::Forbidden);
        }
        if is_ending(row) {
            return Err(RefusalKind::Ended);
        }
        let meant = |index: CallIndex| given.call.is_none_or(|call| call == index);
        let open: Vec<_> = approvals(row).filter(|(index, _)| meant(*index)).collect();
        match (open.as_slice(), verdict) {
            ([], _) => {
                let mut decided =
                    row.extras.iter().flat_map(|extra| extra.decided_approvals.iter().rev());
                match decided.find(|it| meant(it.index)).map(|it| &it.verdict) {
                    None => Err(RefusalKind::NotFound),
                    Some(last) if given.call.is_some() && last == verdict => Ok(Expected::Accepted),
                    Some(_) => Err(RefusalKind::Conflict),
                }
            }
            ([(_, request)], ApprovalVerdict::AllowAlways { rule: Some(rule) })
                if !matches_rule(&rule.to_string(), request) =>
            {
                Err(RefusalKind::Invalid)
            }
            ([_], _) => Ok(Expected::Accepted),
            _ => Err(RefusalKind::Conflict),
        }
    }

    pub(crate) fn revoke(self, revoke: &RevokeCommand) -> Result<Expected, RefusalKind> {
        let grants = &self.all.row().grants.all;
        let grant = grants.iter().find(|grant| grant.no == revoke.grant);
        match (&revoke.caller, grant) {
            (Caller::Task { .. }, _) => Err(RefusalKind::Forbidden),
            (_, None) => Err(RefusalKind::NotFound),
            (Caller::Client(client), Some(grant))
                if grant.client.as_ref() != Some(&client.identity.name) =>
            {
                Err(RefusalKind::Forbidden)
            }
            _ => Ok(Expected::Accepted),
        }
    }

    /// Returns whether an approval is decided without anybody.
    pub(crate) fn is_decided(self, no: TaskNo, request: &ApprovalRequest) -> bool {
        let is_here = |grant: &ApprovalGrant| grant.directory == request.directory;
        let covers = |grant: &ApprovalGrant| match &grant.scope {
            GrantScope::Rule(rule) if rule.to_string() == TOOL => true,
            GrantScope::Rule(rule) => is_here(grant) && matches_rule(&rule.to_string(), request),
            GrantScope::Call { digest, .. } => {
                is_here(grant) && *digest == CallDigest::of_content(request)
            }
        };
        let client = self.started_by(no);
        let client = client.map(|client| client.name);
        let applies = |grant: &ApprovalGrant| grant.client.is_none() || grant.client == client;
        let grants = &self.all.row().grants.all;
        request.is_unattended || grants.iter().any(|grant| applies(grant) && covers(grant))
    }

    /// Returns whether a client started the top-level run above a task, in any conversation.
    pub(crate) fn is_of_client(self, no: TaskNo, client: &ClientCaller) -> bool {
        self.started_by(no).is_some_and(|starter| starter.name == client.identity.name)
    }

    pub(crate) fn started_by(self, no: TaskNo) -> Option<ClientIdentity> {
        let holders = self.limit_chain(Owner::Task(no));
        let top = holders.into_iter().filter_map(Owner::task).next_back()?;
        self.row(top)?.client.clone()
    }
}
