//! What the full-screen view shows, and what keys do to it. Nothing here touches a terminal.

use std::collections::HashMap;

use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_server::TaskInfo;
use brigade_server::task_info::ApprovalInfo;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::pending_input::{self, ScreenSize};

/// The state of the view.
#[derive(Debug, Default)]
pub(crate) struct TopState {
    pub(crate) lines: Vec<TopLine>,
    /// The address of the selected task, which stays when others come and go.
    selected: Option<String>,
    /// The end of the selected task's output.
    pub(crate) output: String,
    pub(crate) scope: TopScope,
    pub(crate) mode: TopMode,
    /// How large it is drawn: what it has no room for cannot be allowed with a key.
    pub(crate) screen: ScreenSize,
    /// What was last said to the user.
    pub(crate) note: Option<String>,
    /// Those that ended while they were watched, the latest last.
    ended: Vec<TaskInfo>,
}

/// How many that ended are remembered.
const ENDED_TASKS_MAX: usize = 20;

/// A task in its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopLine {
    pub(crate) task: TaskInfo,
    pub(crate) depth: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopScope {
    /// The workspace.
    #[default]
    Workspace,
    /// Every workspace.
    AllWorkspaces,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopMode {
    #[default]
    Watching,
    /// The output has the whole screen.
    Reading,
    /// Something is being typed for a task.
    Typing(MessageDraft),
}

/// What is typed, and for whom: for the task that was selected when it was begun, whatever comes and
/// goes meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageDraft {
    session: String,
    pub(crate) task: String,
    pub(crate) subject: DraftSubject,
    pub(crate) text: String,
}

/// What a text answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DraftSubject {
    Nothing,
    Question(u32),
    /// A call that waits for leave. It is shown as it is here, whatever waits by now.
    Approval(Box<ApprovalInfo>),
}

/// What a key asks for beside what it does to the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopAction {
    Nothing,
    Quit,
    /// The list, or the output of another task.
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
        /// The call that was shown whole.
        shown_digest: Option<CallDigest>,
        verdict: ApprovalVerdict,
    },
}

impl TopState {
    /// Takes a new list, as the daemon gave it. Returns which of the old one are not in it any more:
    /// they have ended.
    pub(crate) fn update(&mut self, tasks: Vec<TaskInfo>) -> Vec<TaskInfo> {
        let there = |task: &TaskInfo| tasks.iter().any(|other| task_key(other) == task_key(task));
        let before = self.lines.iter().map(|line| &line.task);
        let gone: Vec<TaskInfo> =
            before.filter(|task| task.alive && !there(task)).cloned().collect();
        self.ended.retain(|task| !there(task));
        self.lines = order_as_tree(tasks);
        let ended = self.ended.iter().cloned();
        self.lines.extend(ended.map(|task| TopLine { task, depth: 0 }));
        // One that has ended is about to be remembered, and stays selected.
        if !gone.iter().any(|task| self.selected.as_ref() == Some(&task_key(task))) {
            self.restore_selection();
        }
        gone
    }

    /// Shows how one of them ended.
    pub(crate) fn add_ended(&mut self, task: TaskInfo) {
        self.lines.push(TopLine { task: task.clone(), depth: 0 });
        self.ended.push(task);
        let over = self.ended.len().saturating_sub(ENDED_TASKS_MAX);
        self.ended.drain(..over);
        self.restore_selection();
    }

    /// Another view: nothing was watched in it yet.
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

    /// The place of the selected task in the list.
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
                    Ok(wish) => {
                        self.mode = TopMode::Watching;
                        return wish;
                    }
                    Err(why) => self.note = Some(why),
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

    fn action_for_selected(&mut self, wish: impl FnOnce(String, String) -> TopAction) -> TopAction {
        match self.selected() {
            Some(task) => wish(task.session.clone(), task.address.clone()),
            None => {
                self.note = Some("nothing is selected".to_owned());
                TopAction::Nothing
            }
        }
    }
}

impl MessageDraft {
    fn for_task(task: &TaskInfo) -> Self {
        let leave =
            task.approvals.first().map(|approval| DraftSubject::Approval(approval.clone().into()));
        let question = task.questions.first().map(|question| DraftSubject::Question(question.call));
        let about = leave.or(question).unwrap_or(DraftSubject::Nothing);
        let (session, task) = (task.session.clone(), task.address.clone());
        Self { session, task, subject: about, text: String::new() }
    }

    /// What it asks for as it is, on a screen of this size; or why that cannot be meant.
    fn to_action(&self, screen: ScreenSize) -> Result<TopAction, String> {
        let Self { session, task, subject: about, text } = self.clone();
        Ok(match about {
            DraftSubject::Nothing => TopAction::Send { session, task, text },
            DraftSubject::Question(question) => TopAction::Answer { session, task, question, text },
            DraftSubject::Approval(approval) => {
                let shown = approval
                    .digest
                    .filter(|_| pending_input::render_whole_call(&approval, screen).is_some());
                let Some(verdict) = pending_input::parse_verdict_on(&text, shown) else {
                    return Err(match shown {
                        Some(_) => "y, a or n".to_owned(),
                        None => pending_input::render_too_long(&task, &approval),
                    });
                };
                TopAction::Approve {
                    session,
                    task,
                    call: approval.call,
                    shown_digest: shown,
                    verdict,
                }
            }
        })
    }
}

/// Addresses are unique in their session only.
fn task_key(task: &TaskInfo) -> String {
    format!("{}/{}", task.session, task.address)
}

/// Children under their parents, each level in the order in which it was started.
fn order_as_tree(tasks: Vec<TaskInfo>) -> Vec<TopLine> {
    let mut below: HashMap<Option<String>, Vec<TaskInfo>> = HashMap::new();
    let numbers: Vec<String> = tasks.iter().map(task_number).collect();
    for task in tasks {
        let parent = task.parent.as_ref().map(|parent| format!("{}/{parent}", task.session));
        // A child whose parent has left the list stands by itself.
        below.entry(parent.filter(|parent| numbers.contains(parent))).or_default().push(task);
    }
    let mut lines = Vec::new();
    push_subtree(None, 0, &mut below, &mut lines);
    lines
}

fn push_subtree(
    parent: Option<String>,
    depth: usize,
    below: &mut HashMap<Option<String>, Vec<TaskInfo>>,
    lines: &mut Vec<TopLine>,
) {
    for task in below.remove(&parent).unwrap_or_default() {
        let number = task_number(&task);
        lines.push(TopLine { task, depth });
        push_subtree(Some(number), depth + 1, below, lines);
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
            r#"{{"address":"{address}","session":"/src/soup","what":"cargo test --workspace",
                "state":"{state}","living":true,"run":1,"attempt":1,"spawned":0,"moved":0}}"#
        );
        let mut task: TaskInfo = serde_json::from_str(&text).expect("a task");
        task.parent = parent.map(str::to_owned);
        task
    }

    pub(crate) fn asking_for_leave() -> TaskInfo {
        asking_for(&serde_json::json!({ "command": "cargo publish" }))
    }

    pub(crate) fn asking_for(arguments: &serde_json::Value) -> TaskInfo {
        let mut asking = task("agent:4", None, "waiting");
        let approval = serde_json::json!({
            "call": 7, "text": "run_process(cargo publish)", "tool": "run_process",
            "arguments": arguments.to_string(), "directory": "/src/soup", "digest": DIGEST,
            "rule": "run_process", "by": "the operator", "since": 0,
        });
        asking.approvals = vec![serde_json::from_value(approval).expect("an approval")];
        asking
    }

    const DIGEST: &str = "00112233445566778899aabbccddeeff";

    fn press(board: &mut TopState, code: KeyCode) -> TopAction {
        board.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn board() -> TopState {
        let mut board = TopState::default();
        board.update(vec![
            task("job:1", None, "running"),
            task("process:2", None, "running"),
            task("process:3", Some("1"), "running"),
        ]);
        board
    }

    #[test]
    fn children_stand_under_their_parents() {
        let shown: Vec<(String, usize)> =
            board().lines.into_iter().map(|line| (line.task.address, line.depth)).collect();
        let expect = [("job:1", 0), ("process:3", 1), ("process:2", 0)];
        assert_eq!(shown, expect.map(|(address, depth)| (address.to_owned(), depth)));
    }

    #[test]
    fn the_selection_stays_with_its_task() {
        let mut board = board();
        press(&mut board, KeyCode::Down);
        assert_eq!(board.selected().unwrap().address, "process:3");
        board.update(vec![task("process:3", Some("1"), "running"), task("job:9", None, "running")]);
        assert_eq!(board.selected().unwrap().address, "process:3");
        let gone = board.update(vec![task("job:9", None, "running")]);
        let [mut ended] = <[TaskInfo; 1]>::try_from(gone).unwrap();
        ended.alive = false;
        board.add_ended(ended);
        assert_eq!(board.selected().unwrap().address, "process:3", "it has ended");
        board.clear();
        board.update(vec![task("job:9", None, "running")]);
        assert_eq!(board.selected().unwrap().address, "job:9");
        board.update(Vec::new());
        board.update(Vec::new());
        assert_eq!(press(&mut board, KeyCode::Char('s')), TopAction::Nothing);
        assert_eq!(board.note.as_deref(), Some("nothing is selected"));
    }

    #[test]
    fn what_ends_while_it_is_watched_stays_in_sight() {
        let mut board = board();
        let gone = board.update(vec![task("job:1", None, "running")]);
        let addresses: Vec<&str> = gone.iter().map(|task| task.address.as_str()).collect();
        assert_eq!(addresses, ["process:3", "process:2"]);
        let mut ended = task("process:2", None, "failed");
        ended.alive = false;
        board.add_ended(ended);
        assert!(board.update(vec![task("job:1", None, "running")]).is_empty());
        assert_eq!(board.lines.last().unwrap().task.state, "failed");
        board.clear();
        assert!(board.update(Vec::new()).is_empty());
        assert!(board.lines.is_empty());
    }

    #[test]
    fn keys_ask_for_what_they_say() {
        let mut board = board();
        let (session, task) = ("/src/soup".to_owned(), "job:1".to_owned());
        let stop = |now| TopAction::Stop { session: session.clone(), task: task.clone(), now };
        assert_eq!(press(&mut board, KeyCode::Char('s')), stop(false));
        assert_eq!(press(&mut board, KeyCode::Char('K')), stop(true));
        type_in(&mut board, "hq");
        press(&mut board, KeyCode::Backspace);
        let text = "h".to_owned();
        assert_eq!(press(&mut board, KeyCode::Enter), TopAction::Send { session, task, text });
        assert_eq!(press(&mut board, KeyCode::Char('q')), TopAction::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut board, KeyCode::Char('m'));
        assert_eq!(board.handle_key(interrupt), TopAction::Quit, "also while typing");
    }

    /// Begins a text for the selected task, unless one was begun.
    pub(crate) fn type_in(board: &mut TopState, text: &str) {
        if !matches!(board.mode, TopMode::Typing(_)) {
            press(board, KeyCode::Char('m'));
        }
        for letter in text.chars() {
            press(board, KeyCode::Char(letter));
        }
    }

    #[test]
    fn what_is_typed_goes_to_the_task_for_which_it_was_begun() {
        let mut board = board();
        type_in(&mut board, "sa");
        for _ in 0..2 {
            board.update(vec![task("process:2", None, "running")]);
        }
        assert_eq!(board.selected().unwrap().address, "process:2");
        type_in(&mut board, "lt");
        let (session, task, text) = ("/src/soup".into(), "job:1".into(), "salt".into());
        let wish = TopAction::Send { session, task, text };
        assert_eq!(press(&mut board, KeyCode::Enter), wish);
    }

    #[test]
    fn leave_is_given_in_the_words_of_a_run() {
        let mut board = TopState::default();
        board.update(vec![asking_for_leave()]);
        type_in(&mut board, "maybe");
        assert_eq!(press(&mut board, KeyCode::Enter), TopAction::Nothing);
        assert!(matches!(board.mode, TopMode::Typing(_)), "that is no answer");
        for _ in "maybe".chars() {
            press(&mut board, KeyCode::Backspace);
        }
        let (session, task) = ("/src/soup".into(), "agent:4".into());
        let verdict = ApprovalVerdict::Deny { reason: "not now".into() };
        let shown = Some(DIGEST.parse().expect("a digest"));
        let wish = TopAction::Approve { session, task, call: 7, shown_digest: shown, verdict };
        type_in(&mut board, "n not now");
        assert_eq!(press(&mut board, KeyCode::Enter), wish);
        assert_eq!(board.mode, TopMode::Watching);
    }

    #[test]
    fn a_key_allows_what_was_shown_and_nothing_that_the_screen_has_no_room_for() {
        let shown = |board: &mut TopState| match press(board, KeyCode::Enter) {
            TopAction::Approve {
                shown_digest: shown, verdict: ApprovalVerdict::AllowOnce, ..
            } => shown,
            _ => None,
        };
        let mut board = TopState::default();
        board.update(vec![asking_for_leave()]);
        type_in(&mut board, "y");
        // Another call waits by now: what was shown is meant.
        let mut other = asking_for(&serde_json::json!({ "command": "rm -rf x" }));
        other.approvals[0].digest = Some("ff".repeat(16).parse().expect("a digest"));
        board.update(vec![other]);
        assert_eq!(shown(&mut board).map(|digest| digest.to_string()), Some(DIGEST.to_owned()));

        let long = asking_for(&serde_json::json!({ "command": "x".repeat(5_000) }));
        board.update(vec![long]);
        type_in(&mut board, "y");
        assert_eq!(shown(&mut board), None);
        assert!(board.note.as_ref().unwrap().contains("--show"), "{:?}", board.note);
        board.screen = ScreenSize { columns: 200, rows: 60 };
        assert!(shown(&mut board).is_some(), "a larger screen shows it whole");
    }
}
