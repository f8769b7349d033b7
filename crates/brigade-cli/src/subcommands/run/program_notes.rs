//! Notes on the run of an agent program: parts that its sandbox hides, the access that it had, and
//! calls that nobody could approve.

use std::path::{Path, PathBuf};

use brigade_model::approval::ApprovalVerdict;
use brigade_model::program_access::ProgramAccess;
use brigade_model::sandbox::SandboxRequest;
use brigade_process::landlock_rules::SYSTEM_PATHS;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{
    AgentInfo, AgentProgramInfo, ListProgramsRequest, ListTranscriptRequest,
};
use brigade_protocol::{TaskInfo, TaskTarget};

use crate::context::call_over;
use crate::render;
use crate::subcommands::agents::render_unset_variables;

/// Prints a note for each part of the program that the sandbox hides.
pub(super) async fn print_hidden_parts(
    client: &DaemonClient,
    program: &str,
    sandbox: &SandboxRequest,
    directory: &str,
) {
    let own = [directory.to_owned()];
    let granted = own.iter().chain(&sandbox.read).chain(&sandbox.write).map(String::as_str);
    let visible = VisiblePaths::new(SYSTEM_PATHS.into_iter().chain(granted));
    for found in list_program(client, program).await {
        for note in render_hidden_parts(&found, &visible) {
            render::print_note(&note);
        }
    }
}

/// The facts about a run that its notes depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoteOptions<'a> {
    pub(super) definition: &'a AgentInfo,
    pub(super) is_unattended: bool,
    /// True if the caller denies a tool that changes something, so that the program only reads.
    pub(super) denies_writing: bool,
}

/// Prints notes on an ended run.
pub(super) async fn print_run_notes(
    client: &DaemonClient,
    target: &TaskTarget,
    task: &TaskInfo,
    options: NoteOptions<'_>,
) {
    let definition = options.definition;
    let Some(program) = definition.runs.as_deref() else { return };
    if !options.denies_writing
        && let Some(note) = render_access(task.program_access, program, definition)
    {
        render::print_note(&note);
    }
    if options.is_unattended {
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

/// Returns the state of a program, without starting it. A task may not ask for it and gets none.
async fn list_program(client: &DaemonClient, program: &str) -> Vec<AgentProgramInfo> {
    let names = vec![program.to_owned()];
    let request = ListProgramsRequest { names, without_versions: true, ..Default::default() };
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

/// Directories that a sandbox shows, with links resolved.
struct VisiblePaths(Vec<PathBuf>);

impl VisiblePaths {
    fn new<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        Self(paths.filter_map(|path| Path::new(path).canonicalize().ok()).collect())
    }

    /// Returns the real directory of a file that is not visible. A file in the home directory stands
    /// for itself.
    fn find_hidden_path(&self, file: &str) -> Option<PathBuf> {
        let real = Path::new(file).canonicalize().ok()?;
        if self.0.iter().any(|path| real.starts_with(path)) {
            return None;
        }
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        let parent = real.parent().filter(|parent| Some(*parent) != home.as_deref());
        Some(parent.map(Path::to_owned).unwrap_or(real))
    }
}

fn render_hidden_parts(program: &AgentProgramInfo, visible: &VisiblePaths) -> Vec<String> {
    let title = &program.title;
    let files = program.path.iter().map(|path| (title.clone(), path));
    let logins = program.login_files.iter().map(|file| (format!("the login of {title}"), file));
    let hidden = files.chain(logins).filter_map(|(part, file)| {
        let path = visible.find_hidden_path(file)?.display().to_string();
        Some(format!("the sandbox hides {part}; --sandbox-read {path} shows it"))
    });
    hidden.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

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

    #[test]
    fn hidden_parts_are_named_with_their_real_folders() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("a path");
        let path = |name: &str| root.join(name).display().to_string();
        for folder in ["bin", "versions", "login"] {
            fs::create_dir(root.join(folder)).expect("a directory");
        }
        fs::write(root.join("versions/claude"), "").expect("a file");
        fs::write(root.join("login/key"), "x").expect("a file");
        std::os::unix::fs::symlink(root.join("versions/claude"), root.join("bin/claude"))
            .expect("a link");
        let program = serde_json::json!({
            "name": "claude", "title": "Claude Code", "protocol": "adapter", "program": "claude",
            "path": path("bin/claude"), "login": "found", "login_files": [path("login/key")],
        });
        let program: AgentProgramInfo = serde_json::from_value(program).expect("a program");
        let hidden = |visible: &[&str]| {
            let visible: Vec<String> = visible.iter().map(|name| path(name)).collect();
            let visible = VisiblePaths::new(visible.iter().map(String::as_str));
            render_hidden_parts(&program, &visible)
        };
        let versions = path("versions");
        let login = path("login");
        let own = format!("the sandbox hides Claude Code; --sandbox-read {versions} shows it");
        let key =
            format!("the sandbox hides the login of Claude Code; --sandbox-read {login} shows it");
        assert_eq!(hidden(&["bin"]), [own, key.clone()]);
        assert_eq!(hidden(&["versions", "missing"]), [key]);
        assert!(hidden(&["versions", "login"]).is_empty());
    }
}
