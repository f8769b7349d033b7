//! Labels of journal entries. They are stored.

pub(crate) const MODEL: &str = "model";
pub(crate) const INBOX: &str = "inbox";
/// A note of the loop to the model.
pub(crate) const NOTE: &str = "note";
/// The start of a later run.
pub(crate) const RUN: &str = "run";
pub(crate) const SUMMARY: &str = "summary";
/// The result of a call.
pub(crate) const RESULT: &str = "result";
/// The completion of a parked call, whatever its condition.
pub(crate) const COMPLETION: &str = "completion";
/// The start of a call that must not run twice.
pub(crate) const STARTED: &str = "started";
/// The result of a call and its state changes.
pub(crate) const RESULT_AND_STATE: &str = "result_and_state";
/// State changes of plugins.
pub(crate) const STATE: &str = "state";
/// The names of plugins whose `run_start` hook ran, and their state changes.
pub(crate) const PLUGINS_STARTED: &str = "plugins_started";
/// State changes of the `step_end` hooks.
pub(crate) const STEP_END: &str = "step_end";
/// A budget warning to the model.
pub(crate) const WARNING: &str = "budget_warning";
/// State changes of the `before_tool` hooks of an admitted call.
pub(crate) const BEFORE_TOOL: &str = "before_tool";
/// A plugin's refusal to end the run.
pub(crate) const END_REFUSED: &str = "end_refused";
