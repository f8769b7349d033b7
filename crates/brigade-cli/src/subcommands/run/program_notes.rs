//! Notes on the run of an agent program: the access that it had, and calls that nobody could
//! approve.

use brigade_model::approval::ApprovalVerdict;
use brigade_model::program_access::ProgramAccess;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{
    AgentInfo, AgentProgramInfo, ListProgramsRequest, ListTranscriptRequest,
};
use brigade_protocol::{TaskInfo, TaskTarget};

use crate::context::call_over;
use crate::render;
use crate::subcommands::agents::render_unset_variables;

/// Prints notes on an ended run.
pub(super) async fn print_run_notes(
    client: &DaemonClient,
    target: &TaskTarget,
    task: &TaskInfo,
    definition: &AgentInfo,
    is_unattended: bool,
) {
    let Some(program) = definition.runs.as_deref() else { return };
    if let Some(note) = render_access(task.program_access, program, definition) {
        render::print_note(&note);
    }
    if is_unattended {
        let denied = count_unattended_denials(client, target).await;
        if let Some(note) = render_denials(denied) {
            render::print_note(&note);
        }
    }
    if task.state == "failed" {
        for note in render_unset_variables(&list_program(client, program).await) {
            render::print_note(&note);
        }
    }
}

/// Returns the state of a program. A task may not ask for it and gets none.
async fn list_program(client: &DaemonClient, program: &str) -> Vec<AgentProgramInfo> {
    let names = vec![program.to_owned()];
    let request = ListProgramsRequest { names, ..Default::default() };
    call_over(client, request).await.map(|listed| listed.programs).unwrap_or_default()
}

/// Counts the calls of an agent that were denied because its run is unattended.
async fn count_unattended_denials(client: &DaemonClient, target: &TaskTarget) -> u64 {
    let denial = ApprovalVerdict::deny_unattended().to_string();
    let mut count = 0;
    let mut page = None;
    loop {
        let request = ListTranscriptRequest { target: target.clone(), page };
        let Ok(Some(reply)) = call_over(client, request).await else { return count };
        let approvals = reply.items.iter().filter(|item| item.role == "approval");
        count += approvals.filter(|item| item.texts.contains(&denial)).count() as u64;
        match reply.next {
            Some(next) => page = Some(next),
            None => return count,
        }
    }
}

fn render_access(
    access: Option<ProgramAccess>,
    program: &str,
    definition: &AgentInfo,
) -> Option<String> {
    if access != Some(ProgramAccess::Read) {
        return None;
    }
    let condition = match definition.file {
        Some(_) => format!(", if the definition {} permits it", definition.name),
        None => String::new(),
    };
    Some(format!(
        "{program} could only read files; `--allow edit_file --allow write_file` lets it edit, \
         `--allow run_process` everything{condition}"
    ))
}

fn render_denials(count: u64) -> Option<String> {
    let (subject, object) = match count {
        0 => return None,
        1 => ("1 tool call was".to_owned(), "it"),
        count => (format!("{count} tool calls were"), "them"),
    };
    Some(format!(
        "{subject} denied because nobody was there to approve {object}; --allow RULE permits {object}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(file: Option<&str>) -> AgentInfo {
        let definition = serde_json::json!({
            "name": "fixer", "description": "x", "runs": "codex", "origin": "user",
            "untrusted": false, "file": file,
        });
        serde_json::from_value(definition).expect("a definition")
    }

    #[test]
    fn only_a_program_that_could_not_edit_gets_a_note() {
        for access in [None, Some(ProgramAccess::Edit), Some(ProgramAccess::Full)] {
            assert_eq!(render_access(access, "codex", &definition(None)), None);
        }
        let read = Some(ProgramAccess::Read);
        let note = render_access(read, "codex", &definition(None)).expect("a note");
        assert!(note.starts_with("codex could only read files; "), "{note}");
        assert!(note.ends_with("`--allow run_process` everything"), "{note}");
        let note = render_access(read, "codex", &definition(Some("/a.md"))).expect("a note");
        assert!(note.ends_with(", if the definition fixer permits it"), "{note}");
    }

    #[test]
    fn denied_calls_are_counted_in_words() {
        assert_eq!(render_denials(0), None);
        let expect = "1 tool call was denied because nobody was there to approve it; --allow RULE \
                      permits it";
        assert_eq!(render_denials(1).as_deref(), Some(expect));
        assert!(render_denials(3).is_some_and(|note| note.starts_with("3 tool calls were denied")));
    }
}
