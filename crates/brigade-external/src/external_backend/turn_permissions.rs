//! The permission requests and the questions of a turn. Rules decide about a permission, and an
//! approval where a rule asks for one.

use std::sync::Arc;

use brigade_agent::agent_program::AgentProgram;
use brigade_agent::permission::{PermissionSubject, PermissionVerdict};
use brigade_model::approval::{ApprovalRequest, ApprovalVerdict};
use brigade_model::call::ConditionRequest;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde_json::Value;

use super::turn_journal::OpenRequest;
use super::turn_run::TurnRun;
use crate::adapter::PermissionDecision;
use crate::turn_events::{PermissionRequest, RequestedCall, SubjectKind, TurnQuestion};

/// The maximum size of the arguments of all open requests, in bytes. The state of a turn has them.
const ARGUMENTS_MAX: usize = 256 * 1024;

impl TurnRun<'_> {
    /// Decides about a permission by the rules, or adds it to those that [`Self::commit_requests`]
    /// asks about.
    pub(super) fn decide_permission(&mut self, request: PermissionRequest) {
        let PermissionRequest { id, arguments, call, .. } = request;
        let size = arguments.to_string().len() + self.undecided_bytes();
        if size > ARGUMENTS_MAX {
            let request = OpenRequest { id, call, arguments: Value::Null };
            let reason = format!(
                "the arguments of the open requests have {size} bytes, and at most {ARGUMENTS_MAX} \
                 are allowed"
            );
            self.deny(&request, &reason);
            return;
        }
        let request = OpenRequest { id, call, arguments };
        match self.check_rules(&request.call) {
            PermissionVerdict::Allowed => self.allow(&request),
            PermissionVerdict::Refused(refusal) => self.deny(&request, &refusal.to_string()),
            PermissionVerdict::Ask { .. } => {
                let index = self.journal.base.take_indexes(1);
                self.turn.state.open_requests.insert(index.0, request);
                self.changed_requests.push(index);
            }
        }
    }

    /// Returns the size of the requests without an answer, and of the answers that are not committed.
    fn undecided_bytes(&self) -> usize {
        let requests = self.turn.state.open_requests.values();
        let sizes = requests.map(|request| request.arguments.to_string().len());
        sizes.sum::<usize>() + self.unsent_input.bytes.len()
    }

    /// Adds a question to those that [`Self::commit_requests`] asks.
    pub(super) fn add_question(&mut self, question: TurnQuestion) {
        let index = self.journal.base.take_indexes(1);
        self.turn.state.open_questions.insert(index.0, question);
        self.changed_requests.push(index);
    }

    /// Removes a permission request that the program does not need any more.
    pub(super) fn withdraw_request(&mut self, id: &str) {
        let mut open = self.turn.state.open_requests.iter();
        let Some(index) = open.find(|(_, request)| request.id == id).map(|(index, _)| *index)
        else {
            return;
        };
        self.turn.state.open_requests.remove(&index);
        self.changed_requests.push(CallIndex(index));
        self.report_progress("thinking");
    }

    /// Stores the new requests and questions of a line in one commit, then asks them. A crash in
    /// between loses none of them. The approvals of withdrawn requests are closed.
    pub(super) async fn commit_requests(
        &mut self,
        program: &dyn AgentProgram,
    ) -> Result<(), Refusal> {
        let mut changed = std::mem::take(&mut self.changed_requests);
        if changed.is_empty() {
            return Ok(());
        }
        changed.sort_unstable();
        changed.dedup();
        self.commit(program).await?;
        for index in changed {
            if self.turn.state.open_requests.contains_key(&index.0) {
                self.ask(index).await;
            } else if self.turn.state.open_questions.contains_key(&index.0) {
                self.ask_user(index).await?;
            } else {
                self.context.host.abandon(vec![index]).await?;
            }
        }
        Ok(())
    }

    /// Parks the approval of an open request.
    async fn ask(&mut self, index: CallIndex) {
        let Some(request) = self.turn.state.open_requests.get(&index.0).cloned() else { return };
        let PermissionVerdict::Ask { rule, by } = self.check_rules(&request.call) else {
            // Only a change of the rules between two attempts comes here.
            self.answer(index, &request, None);
            return;
        };
        let call = self.rule_subject(&request.call);
        let subject = call.as_permission();
        let arguments = request.arguments.to_string();
        let approval = ApprovalRequest::new(&subject, &arguments, rule, by);
        let directory = self.context.directory.map(Arc::from);
        let is_unattended = self.context.agent.unattended;
        let approval = ApprovalRequest { is_unattended, ..approval.in_directory(directory) };
        let condition = ConditionRequest::Approval { request: Arc::new(approval) };
        self.report_progress(&format!("waits for an approval of {}", request.call.tool));
        if let Err(refusal) = self.context.host.park(index, condition).await {
            self.turn.state.open_requests.remove(&index.0);
            self.deny(&request, &refusal.to_string());
        }
    }

    async fn ask_user(&mut self, index: CallIndex) -> Result<(), Refusal> {
        let Some(question) = self.turn.state.open_questions.get(&index.0) else { return Ok(()) };
        let condition = ConditionRequest::Question { question: Json::of(&question.text)? };
        self.report_progress("waits for an answer");
        if self.context.host.park(index, condition).await.is_err() {
            self.answer_question(index, None);
        }
        Ok(())
    }

    pub(super) fn answer_question(&mut self, index: CallIndex, answer: Option<&str>) {
        let Some(question) = self.turn.state.open_questions.remove(&index.0) else { return };
        let input = self.conversation.answer_question(&question.id, answer);
        self.add_input(input);
        self.report_progress("thinking");
    }

    /// Goes on with the permission requests and questions that were open at the end of the last attempt.
    pub(super) async fn continue_requests(
        &mut self,
        program: &dyn AgentProgram,
    ) -> Result<(), Refusal> {
        let open: Vec<u32> = self.turn.state.open_requests.keys().copied().collect();
        for index in open {
            match self.turn.answers.get(&index).cloned() {
                Some(verdict) => self.apply_completion(CallIndex(index), &verdict),
                None if self.turn.parked.contains(&index) => {}
                None => self.ask(CallIndex(index)).await,
            }
        }
        let open: Vec<u32> = self.turn.state.open_questions.keys().copied().collect();
        for index in open {
            match self.turn.answers.get(&index).cloned() {
                Some(answer) => self.apply_completion(CallIndex(index), &answer),
                None if self.turn.parked.contains(&index) => {}
                None => self.ask_user(CallIndex(index)).await?,
            }
        }
        if self.must_commit {
            self.commit(program).await?;
        }
        Ok(())
    }

    pub(super) fn answer(
        &mut self,
        index: CallIndex,
        request: &OpenRequest,
        verdict: Option<&ApprovalVerdict>,
    ) {
        self.turn.state.open_requests.remove(&index.0);
        match verdict {
            Some(ApprovalVerdict::AllowOnce | ApprovalVerdict::AllowAlways { .. }) => {
                self.allow(request);
            }
            Some(ApprovalVerdict::Deny { reason }) => self.deny(request, reason),
            None => self.deny(request, "the rules have changed; ask again"),
        }
    }

    fn allow(&mut self, request: &OpenRequest) {
        let decision = PermissionDecision::Allow { arguments: &request.arguments };
        let input = self.conversation.decide_permission(&request.id, decision);
        self.add_input(input);
        self.report_progress("thinking");
    }

    fn deny(&mut self, request: &OpenRequest, reason: &str) {
        let decision = PermissionDecision::Deny { reason };
        let input = self.conversation.decide_permission(&request.id, decision);
        self.add_input(input);
    }

    fn check_rules(&self, call: &RequestedCall) -> PermissionVerdict {
        let call = self.rule_subject(call);
        self.context.agent.permissions.check(&call.as_permission())
    }

    /// Returns the call with its file relative to the working directory, as rules name it.
    fn rule_subject(&self, call: &RequestedCall) -> RequestedCall {
        let mut call = call.clone();
        if call.kind == SubjectKind::File
            && let Some(directory) = self.context.directory
            && let Some(path) = &call.subject
        {
            call.subject = Some(relative_path(path, directory));
        }
        call
    }
}

/// Returns the path below the directory, or the whole path if it leads elsewhere. `.`, `..` and
/// double slashes are resolved first, so that no spelling passes a rule.
fn relative_path(path: &str, directory: &str) -> String {
    let whole = match path.starts_with('/') {
        true => normalize(path),
        false => normalize(&format!("{directory}/{path}")),
    };
    let directory = normalize(directory);
    match whole.strip_prefix(&directory).and_then(|below| below.strip_prefix('/')) {
        Some(below) => below.to_owned(),
        None => whole,
    }
}

/// Returns an absolute path without `.`, `..` and double slashes, and without a slash at its end.
fn normalize(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.iter().map(|part| format!("/{part}")).collect()
}

impl RequestedCall {
    fn as_permission(&self) -> PermissionSubject<'_> {
        PermissionSubject {
            tool: &self.tool,
            text: self.subject.as_deref(),
            is_shell: self.kind == SubjectKind::Shell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_files_of_the_directory_without_it() {
        let cases = [
            ("/kitchen/src/a.rs", "src/a.rs"),
            ("/kitchen/../etc/passwd", "/etc/passwd"),
            ("/kitchen/sub/../.env", ".env"),
            ("/kitchen//.env", ".env"),
            ("//kitchen/./.env", ".env"),
            ("sub/../.env", ".env"),
            ("../.env", "/.env"),
            ("/kitchenshop/a", "/kitchenshop/a"),
            ("src/a.rs", "src/a.rs"),
            ("/etc/passwd", "/etc/passwd"),
        ];
        for (path, expected) in cases {
            assert_eq!(relative_path(path, "/kitchen/"), expected);
        }
    }
}
