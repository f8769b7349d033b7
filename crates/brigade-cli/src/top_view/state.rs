//! The state of the full-screen view, and the effect of its keys. It does not touch the terminal.

use std::collections::HashMap;

use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_protocol::TaskInfo;
use brigade_protocol::task_info::ApprovalInfo;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::pending_input::{self, ScreenSize};

/// The state of the view.
#[derive(Debug, Default)]
pub(crate) struct TopState {
    pub(crate) lines: Vec<TopLine>,
    /// The address of the selected task, which survives updates of the list.
    selected: Option<String>,
    /// The end of the selected task's output.
    pub(crate) output: String,
    pub(crate) scope: TopScope,
    pub(crate) mode: TopMode,
    /// The size of the screen. A key cannot allow a call that does not fit it.
    pub(crate) screen: ScreenSize,
    /// The last note to the user.
    pub(crate) note: Option<String>,
    /// Tasks that ended while they were shown, the latest last.
    ended: Vec<TaskInfo>,
}

/// Ended tasks that stay in the list.
const ENDED_TASKS_MAX: usize = 20;

/// A task at its depth in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopLine {
    pub(crate) task: TaskInfo,
    pub(crate) depth: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopScope {
    /// The current workspace.
    #[default]
    Workspace,
    /// Every workspace.
    AllWorkspaces,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopMode {
    #[default]
    Watching,
    /// The output fills the screen.
    Reading,
    /// The user types a text for a task.
    Typing(MessageDraft),
}

/// A typed text for the task that was selected at its start, whatever the list shows now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageDraft {
    session: String,
    pub(crate) task: String,
    pub(crate) subject: DraftSubject,
    pub(crate) text: String,
}

/// The question or approval that a text answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DraftSubject {
    Nothing,
    Question(u32),
    /// A call that needs approval, as it was shown.
    Approval(Box<ApprovalInfo>),
}

/// The action that a key requests beside its effect on the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopAction {
    Nothing,
    Quit,
    /// Reload the list and the output.
    Refresh,
    Stop {
        session: String,
        task: String,
        now: bool,
    },
    Send {
        session: String,
        task: String,
        text: String,
    },
    Answer {
        session: String,
        task: String,
        question: u32,
        text: String,
    },
    Approve {
        session: String,
        task: String,
        call: u32,
        /// The digest of the call that was shown whole.
        shown_digest: Option<CallDigest>,
        verdict: ApprovalVerdict,
    },
}

impl TopState {
    /// Applies a new list of the daemon. Returns the tasks that are no longer in it: they have
    /// ended.
    pub(crate) fn update(&mut self, tasks: Vec<TaskInfo>) -> Vec<TaskInfo> {
        let is_listed =
            |task: &TaskInfo| tasks.iter().any(|other| task_key(other) == task_key(task));
        let before = self.lines.iter().map(|line| &line.task);
        let ended: Vec<TaskInfo> =
            before.filter(|task| task.alive && !is_listed(task)).cloned().collect();
        self.ended.retain(|task| !is_listed(task));
        self.lines = order_as_tree(tasks);
        let earlier = self.ended.iter().cloned();
        self.lines.extend(earlier.map(|task| TopLine { task, depth: 0 }));
        // A task that ended stays selected, since `add_ended` follows.
        if !ended.iter().any(|task| self.selected.as_ref() == Some(&task_key(task))) {
            self.restore_selection();
        }
        ended
    }

    /// Adds an ended task to the list.
    pub(crate) fn add_ended(&mut self, task: TaskInfo) {
        self.lines.push(TopLine { task: task.clone(), depth: 0 });
        self.ended.push(task);
        let surplus = self.ended.len().saturating_sub(ENDED_TASKS_MAX);
        self.ended.drain(..surplus);
        self.restore_selection();
    }

    /// Clears the list for another scope.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.ended.clear();
    }

    fn restore_selection(&mut self) {
        let known =
            |address: &String| self.lines.iter().any(|line| task_key(&line.task) == *address);
        if !self.selected.as_ref().is_some_and(known) {
            self.selected = self.lines.first().map(|line| task_key(&line.task));
            self.output.clear();
        }
    }

    pub(crate) fn selected(&self) -> Option<&TaskInfo> {
        self.selected_index().map(|at| &self.lines[at].task)
    }

    /// Returns the index of the selected task in the list.
    pub(crate) fn selected_index(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.lines.iter().position(|line| task_key(&line.task) == *selected)
    }

    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> TopAction {
        let interrupted =
            key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        if interrupted {
            return TopAction::Quit;
        }
        self.note = None;
        match &mut self.mode {
            TopMode::Typing(draft) => match key.code {
                KeyCode::Esc => self.mode = TopMode::Watching,
                KeyCode::Backspace => drop(draft.text.pop()),
                KeyCode::Char(letter) => draft.text.push(letter),
                KeyCode::Enter => match draft.to_action(self.screen) {
                    Ok(action) => {
                        self.mode = TopMode::Watching;
                        return action;
                    }
                    Err(problem) => self.note = Some(problem),
                },
                _ => {}
            },
            TopMode::Reading => match key.code {
                KeyCode::Char('q' | 'o') | KeyCode::Esc | KeyCode::Enter => {
                    self.mode = TopMode::Watching;
                }
                code => return self.move_selection(code),
            },
            TopMode::Watching => return self.handle_list_key(key.code),
        }
        TopAction::Nothing
    }

    fn handle_list_key(&mut self, code: KeyCode) -> TopAction {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => TopAction::Quit,
            KeyCode::Char('s') => self.action_for_selected(|session, task| TopAction::Stop {
                session,
                task,
                now: false,
            }),
            KeyCode::Char('K') => self.action_for_selected(|session, task| TopAction::Stop {
                session,
                task,
                now: true,
            }),
            KeyCode::Char('m') => {
                if let Some(task) = self.selected() {
                    self.mode = TopMode::Typing(MessageDraft::for_task(task));
                }
                TopAction::Nothing
            }
            KeyCode::Char('o') | KeyCode::Enter if self.selected.is_some() => {
                self.mode = TopMode::Reading;
                TopAction::Refresh
            }
            KeyCode::Char('a') => {
                self.scope = match self.scope {
                    TopScope::Workspace => TopScope::AllWorkspaces,
                    TopScope::AllWorkspaces => TopScope::Workspace,
                };
                self.clear();
                TopAction::Refresh
            }
            code => self.move_selection(code),
        }
    }

    fn move_selection(&mut self, code: KeyCode) -> TopAction {
        let last = self.lines.len().saturating_sub(1);
        let at = self.selected_index().unwrap_or(0);
        let to = match code {
            KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return TopAction::Nothing,
        };
        if to != at {
            self.selected = self.lines.get(to).map(|line| task_key(&line.task));
            self.output.clear();
        }
        TopAction::Refresh
    }

    fn action_for_selected(
        &mut self,
        action: impl FnOnce(String, String) -> TopAction,
    ) -> TopAction {
        match self.selected() {
            Some(task) => action(task.session.clone(), task.address.clone()),
            None => {
                self.note = Some("no task is selected".to_owned());
                TopAction::Nothing
            }
        }
    }
}

impl MessageDraft {
    fn for_task(task: &TaskInfo) -> Self {
        let approval =
            task.approvals.first().map(|approval| DraftSubject::Approval(approval.clone().into()));
        let question = task.questions.first().map(|question| DraftSubject::Question(question.call));
        let subject = approval.or(question).unwrap_or(DraftSubject::Nothing);
        let session = task.session.clone();
        let task = task.address.clone();
        Self { session, task, subject, text: String::new() }
    }

    /// Returns the action of the text on a screen of this size, or the reason why it is not valid.
    fn to_action(&self, screen: ScreenSize) -> Result<TopAction, String> {
        let Self { session, task, subject, text } = self.clone();
        Ok(match subject {
            DraftSubject::Nothing => TopAction::Send { session, task, text },
            DraftSubject::Question(question) => TopAction::Answer { session, task, question, text },
            DraftSubject::Approval(approval) => {
                let shown_digest = approval
                    .digest
                    .filter(|_| pending_input::render_whole_call(&approval, screen).is_some());
                let Some(verdict) = pending_input::parse_verdict_on(&text, shown_digest) else {
                    return Err(match shown_digest {
                        Some(_) => "y, a or n".to_owned(),
                        None => pending_input::render_too_long(&task, &approval),
                    });
                };
                TopAction::Approve { session, task, call: approval.call, shown_digest, verdict }
            }
        })
    }
}

/// Returns a key of a task, since addresses are unique only within a session.
fn task_key(task: &TaskInfo) -> String {
    format!("{}/{}", task.session, task.address)
}

/// Orders tasks as trees, each level in the order of its start.
fn order_as_tree(tasks: Vec<TaskInfo>) -> Vec<TopLine> {
    let mut children: HashMap<Option<String>, Vec<TaskInfo>> = HashMap::new();
    let numbers: Vec<String> = tasks.iter().map(task_number).collect();
    for task in tasks {
        let parent = task.parent.as_ref().map(|parent| format!("{}/{parent}", task.session));
        // A child whose parent is not listed stands at the top level.
        children.entry(parent.filter(|parent| numbers.contains(parent))).or_default().push(task);
    }
    let mut lines = Vec::new();
    push_subtree(None, 0, &mut children, &mut lines);
    lines
}

fn push_subtree(
    parent: Option<String>,
    depth: usize,
    children: &mut HashMap<Option<String>, Vec<TaskInfo>>,
    lines: &mut Vec<TopLine>,
) {
    for task in children.remove(&parent).unwrap_or_default() {
        let number = task_number(&task);
        lines.push(TopLine { task, depth });
        push_subtree(Some(number), depth + 1, children, lines);
    }
}

fn task_number(task: &TaskInfo) -> String {
    let number = task.address.rsplit(':').next().unwrap_or_default();
    format!("{}/{number}", task.session)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn task(address: &str, parent: Option<&str>, state: &str) -> TaskInfo {
        let text = format!(
            r#"{{"address":"{address}","session":"/src/soup","description":"cargo test --workspace",
                "state":"{state}","alive":true,"run":1,"attempt":1,
                "spawned_at":0,"last_activity_at":0}}"#
        );
        let mut task: TaskInfo = serde_json::from_str(&text).expect("a task");
        task.parent = parent.map(str::to_owned);
        task
    }

    pub(crate) fn awaiting_approval() -> TaskInfo {
        awaiting_approval_of(&serde_json::json!({ "command": "cargo publish" }))
    }

    pub(crate) fn awaiting_approval_of(arguments: &serde_json::Value) -> TaskInfo {
        let mut agent = task("agent:4", None, "waiting");
        let approval = serde_json::json!({
            "call": 7, "text": "run_process(cargo publish)", "tool": "run_process",
            "arguments": arguments.to_string(), "directory": "/src/soup", "digest": DIGEST,
            "rule": "run_process", "rule_source": "the operator", "requested_at": 0,
        });
        agent.approvals = vec![serde_json::from_value(approval).expect("an approval")];
        agent
    }

    const DIGEST: &str = "00112233445566778899aabbccddeeff";

    fn press(state: &mut TopState, code: KeyCode) -> TopAction {
        state.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn state() -> TopState {
        let mut state = TopState::default();
        state.update(vec![
            task("job:1", None, "running"),
            task("process:2", None, "running"),
            task("process:3", Some("1"), "running"),
        ]);
        state
    }

    #[test]
    fn children_stand_under_their_parents() {
        let shown: Vec<(String, usize)> =
            state().lines.into_iter().map(|line| (line.task.address, line.depth)).collect();
        let expect = [("job:1", 0), ("process:3", 1), ("process:2", 0)];
        assert_eq!(shown, expect.map(|(address, depth)| (address.to_owned(), depth)));
    }

    #[test]
    fn the_selection_stays_with_its_task() {
        let mut state = state();
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected().unwrap().address, "process:3");
        state.update(vec![task("process:3", Some("1"), "running"), task("job:9", None, "running")]);
        assert_eq!(state.selected().unwrap().address, "process:3");
        let gone = state.update(vec![task("job:9", None, "running")]);
        let [mut ended] = <[TaskInfo; 1]>::try_from(gone).unwrap();
        ended.alive = false;
        state.add_ended(ended);
        assert_eq!(state.selected().unwrap().address, "process:3", "it has ended");
        state.clear();
        state.update(vec![task("job:9", None, "running")]);
        assert_eq!(state.selected().unwrap().address, "job:9");
        state.update(Vec::new());
        state.update(Vec::new());
        assert_eq!(press(&mut state, KeyCode::Char('s')), TopAction::Nothing);
        assert_eq!(state.note.as_deref(), Some("no task is selected"));
    }

    #[test]
    fn what_ends_while_it_is_watched_stays_in_sight() {
        let mut state = state();
        let gone = state.update(vec![task("job:1", None, "running")]);
        let addresses: Vec<&str> = gone.iter().map(|task| task.address.as_str()).collect();
        assert_eq!(addresses, ["process:3", "process:2"]);
        let mut ended = task("process:2", None, "failed");
        ended.alive = false;
        state.add_ended(ended);
        assert!(state.update(vec![task("job:1", None, "running")]).is_empty());
        assert_eq!(state.lines.last().unwrap().task.state, "failed");
        state.clear();
        assert!(state.update(Vec::new()).is_empty());
        assert!(state.lines.is_empty());
    }

    #[test]
    fn keys_request_their_actions() {
        let mut state = state();
        let session = "/src/soup".to_owned();
        let task = "job:1".to_owned();
        let stop = |now| TopAction::Stop { session: session.clone(), task: task.clone(), now };
        assert_eq!(press(&mut state, KeyCode::Char('s')), stop(false));
        assert_eq!(press(&mut state, KeyCode::Char('K')), stop(true));
        type_in(&mut state, "hq");
        press(&mut state, KeyCode::Backspace);
        let text = "h".to_owned();
        assert_eq!(press(&mut state, KeyCode::Enter), TopAction::Send { session, task, text });
        assert_eq!(press(&mut state, KeyCode::Char('q')), TopAction::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut state, KeyCode::Char('m'));
        assert_eq!(state.handle_key(interrupt), TopAction::Quit, "also while typing");
    }

    /// Types a text for the selected task, unless one was started.
    pub(crate) fn type_in(state: &mut TopState, text: &str) {
        if !matches!(state.mode, TopMode::Typing(_)) {
            press(state, KeyCode::Char('m'));
        }
        for letter in text.chars() {
            press(state, KeyCode::Char(letter));
        }
    }

    #[test]
    fn a_text_goes_to_the_task_that_was_selected_at_its_start() {
        let mut state = state();
        type_in(&mut state, "sa");
        for _ in 0..2 {
            state.update(vec![task("process:2", None, "running")]);
        }
        assert_eq!(state.selected().unwrap().address, "process:2");
        type_in(&mut state, "lt");
        let session = "/src/soup".into();
        let task = "job:1".into();
        let text = "salt".into();
        let action = TopAction::Send { session, task, text };
        assert_eq!(press(&mut state, KeyCode::Enter), action);
    }

    #[test]
    fn approvals_use_the_keys_of_a_run() {
        let mut state = TopState::default();
        state.update(vec![awaiting_approval()]);
        type_in(&mut state, "maybe");
        assert_eq!(press(&mut state, KeyCode::Enter), TopAction::Nothing);
        assert!(matches!(state.mode, TopMode::Typing(_)), "not an answer");
        for _ in "maybe".chars() {
            press(&mut state, KeyCode::Backspace);
        }
        let session = "/src/soup".into();
        let task = "agent:4".into();
        let verdict = ApprovalVerdict::Deny { reason: "not now".into() };
        let shown = Some(DIGEST.parse().expect("a digest"));
        let action = TopAction::Approve { session, task, call: 7, shown_digest: shown, verdict };
        type_in(&mut state, "n not now");
        assert_eq!(press(&mut state, KeyCode::Enter), action);
        assert_eq!(state.mode, TopMode::Watching);
    }

    #[test]
    fn a_key_allows_only_a_call_that_was_shown_whole() {
        let shown = |state: &mut TopState| match press(state, KeyCode::Enter) {
            TopAction::Approve {
                shown_digest: shown, verdict: ApprovalVerdict::AllowOnce, ..
            } => shown,
            _ => None,
        };
        let mut state = TopState::default();
        state.update(vec![awaiting_approval()]);
        type_in(&mut state, "y");
        // Another call is pending by now: the shown call is meant.
        let mut other = awaiting_approval_of(&serde_json::json!({ "command": "rm -rf x" }));
        other.approvals[0].digest = Some("ff".repeat(16).parse().expect("a digest"));
        state.update(vec![other]);
        assert_eq!(shown(&mut state).map(|digest| digest.to_string()), Some(DIGEST.to_owned()));

        let long = awaiting_approval_of(&serde_json::json!({ "command": "x".repeat(5_000) }));
        state.update(vec![long]);
        type_in(&mut state, "y");
        assert_eq!(shown(&mut state), None);
        assert!(state.note.as_ref().unwrap().contains("--show"), "{:?}", state.note);
        state.screen = ScreenSize { columns: 200, rows: 60 };
        assert!(shown(&mut state).is_some(), "a larger screen shows it whole");
    }
}
