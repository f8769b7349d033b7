//! Rules that turn the events of a program into events of a turn.

use brigade_llm::TokenUsage;
use brigade_model::limits::Money;
use serde::Deserialize;
use serde_json::Value;

use crate::json_path::JsonPath;
use crate::json_pattern::JsonPattern;
use crate::path_list::PathList;
use crate::turn_events::{
    NoticeLevel, PermissionOption, PermissionOptionKind, PermissionRequest, RequestedCall,
    SubjectKind, TextPart, TurnClosing, TurnEvent, TurnNotice,
};
use crate::usage::{ReportedUsage, UsageReport, UsageScope};

/// A rule for events that match a pattern. The patterns and paths of its parts start at the event,
/// or at each element of the list that `each` names.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventRule {
    /// The pattern of the event.
    #[serde(rename = "match")]
    event: JsonPattern,
    /// A field that the event must not have.
    absent: Option<JsonPath>,
    /// The list of elements to which the rest of the rule applies.
    each: Option<JsonPath>,
    /// The pattern of an element.
    #[serde(rename = "where")]
    element: JsonPattern,

    pub(crate) session: Option<SessionRule>,
    text: Option<TextRule>,
    reasoning: Option<ReasoningRule>,
    tool_call: Option<ToolCallRule>,
    tool_result: Option<ToolResultRule>,
    pub(crate) permission: Option<PermissionRule>,
    withdrawal: Option<WithdrawalRule>,
    pub(crate) request: Option<RequestRule>,
    usage: Option<UsageRule>,
    step: Option<StepRule>,
    notice: Option<NoticeRule>,
    pub(crate) closed: Option<ClosedRule>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRule {
    id: PathList,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextRule {
    text: PathList,
    /// The pattern of a text that continues the one before it.
    delta: Option<JsonPattern>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasoningRule {
    text: PathList,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCallRule {
    id: PathList,
    name: PathList,
    arguments: JsonPath,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolResultRule {
    id: PathList,
    text: PathList,
    /// The pattern of a failed call.
    failed: JsonPattern,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionRule {
    id: PathList,
    tool: PathList,
    arguments: JsonPath,
}

/// The withdrawal of a permission request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WithdrawalRule {
    id: PathList,
}

/// A request that is answered with an error. `except` is the pattern of requests that other rules
/// handle.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestRule {
    id: PathList,
    except: JsonPattern,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageRule {
    input: PathList,
    cached: Option<PathList>,
    cache_written: Option<PathList>,
    output: PathList,
    /// The sum of input and output. If it is larger, the difference is output: some programs do not
    /// count reasoning as output.
    total: Option<PathList>,
    /// The cost in dollars.
    cost: Option<PathList>,
    /// The amounts are totals of the session, and go on after a resume.
    #[serde(default)]
    cumulative: bool,
    /// The id of the model call that the amounts are about. Later totals contain it.
    call: Option<PathList>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepRule {
    /// The pattern of the end of the last step. Without it the step is open.
    last: Option<JsonPattern>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoticeRule {
    level: NoticeLevel,
    text: PathList,
    /// A word before the text.
    label: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClosedRule {
    /// The pattern of a turn that succeeded.
    success: JsonPattern,
    result: Option<PathList>,
    error: Option<PathList>,
    /// The pattern of a turn that ended because its `{budget}` was spent.
    budget_spent: Option<JsonPattern>,
}

impl EventRule {
    /// Checks that the rule has a part.
    pub(crate) fn has_parts(&self) -> bool {
        let parts = [
            self.session.is_some(),
            self.text.is_some(),
            self.reasoning.is_some(),
            self.tool_call.is_some(),
            self.tool_result.is_some(),
            self.permission.is_some(),
            self.withdrawal.is_some(),
            self.request.is_some(),
            self.usage.is_some(),
            self.step.is_some(),
            self.notice.is_some(),
            self.closed.is_some(),
        ];
        parts.contains(&true)
    }

    /// Checks that the rule reads the usage of single model calls.
    pub(crate) fn has_call_usage(&self) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.call.is_some())
    }

    /// Checks that the rule reads totals of the session.
    pub(crate) fn has_total_usage(&self) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.cumulative)
    }

    /// Checks that the rule reads what the program costs.
    pub(crate) fn has_cost(&self) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.cost.is_some())
    }

    /// Adds the events that the rule makes of an event of the program.
    pub(crate) fn apply(&self, event: &Value, found: &mut Vec<TurnEvent>) {
        let is_absent = |path: &JsonPath| path.find(event).is_none();
        if !self.event.matches(event) || !self.absent.as_ref().is_none_or(is_absent) {
            return;
        }
        let Some(each) = &self.each else { return self.apply_parts(event, found) };
        for element in each.select(event) {
            if self.element.matches(element) {
                self.apply_parts(element, found);
            }
        }
    }

    fn apply_parts(&self, value: &Value, found: &mut Vec<TurnEvent>) {
        let parts = [
            self.session.as_ref().and_then(|rule| rule.read(value)),
            self.text.as_ref().and_then(|rule| rule.read(value)),
            self.reasoning.as_ref().and_then(|rule| rule.read(value)),
            self.tool_call.as_ref().and_then(|rule| rule.read(value)),
            self.tool_result.as_ref().and_then(|rule| rule.read(value)),
            self.permission.as_ref().map(|rule| rule.read(value)),
            self.withdrawal.as_ref().and_then(|rule| rule.read(value)),
            self.request.as_ref().and_then(|rule| rule.read(value)),
            self.usage.as_ref().and_then(|rule| rule.read(value)),
            self.step.as_ref().map(|rule| rule.read(value)),
            self.notice.as_ref().and_then(|rule| rule.read(value)),
            self.closed.as_ref().map(|rule| rule.read(value)),
        ];
        found.extend(parts.into_iter().flatten());
    }
}

impl SessionRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        Some(TurnEvent::SessionStarted { id: self.id.find_text(value)? })
    }
}

impl TextRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        let text = self.text.find_text(value)?;
        let is_delta = self.delta.as_ref().is_some_and(|pattern| pattern.matches(value));
        Some(TurnEvent::Text(TextPart { text, is_delta }))
    }
}

impl ReasoningRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        Some(TurnEvent::Reasoning { text: self.text.find_text(value)? })
    }
}

impl ToolCallRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        let id = self.id.find_text(value)?;
        let name = self.name.find_text(value)?;
        let arguments = self.arguments.find(value).cloned().unwrap_or_default();
        Some(TurnEvent::ToolCall { id, name, arguments })
    }
}

impl ToolResultRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        let id = self.id.find_text(value)?;
        let text = self.text.find_text(value).unwrap_or_default();
        Some(TurnEvent::ToolResult { id, text, failed: self.failed.matches(value) })
    }
}

impl PermissionRule {
    fn read(&self, value: &Value) -> TurnEvent {
        let id = self.id.find_text(value);
        let tool = self.tool.find_text(value);
        let (Some(id), Some(tool)) = (id, tool) else {
            // Nobody can answer it, so the turn may wait for ever: the reason must be visible.
            let text = "it asked for a permission without an id or a tool".to_owned();
            return TurnEvent::Notice(TurnNotice { level: NoticeLevel::Error, text });
        };
        let arguments = self.arguments.find(value).cloned().unwrap_or_default();
        let options = vec![
            PermissionOption {
                id: "allow".into(),
                name: "Allow".into(),
                kind: PermissionOptionKind::AllowOnce,
            },
            PermissionOption {
                id: "deny".into(),
                name: "Deny".into(),
                kind: PermissionOptionKind::RejectOnce,
            },
        ];
        let call = RequestedCall { tool: tool.clone(), subject: None, kind: SubjectKind::Text };
        TurnEvent::PermissionRequest(PermissionRequest { id, tool, arguments, call, options })
    }
}

impl WithdrawalRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        Some(TurnEvent::RequestWithdrawn { id: self.id.find_text(value)? })
    }
}

impl RequestRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        if self.except.matches(value) {
            return None;
        }
        Some(TurnEvent::OtherRequest { id: self.id.find_text(value)? })
    }
}

impl UsageRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        let count = |paths: &PathList| paths.sum(value).map(|sum| sum as u64);
        let part = |paths: &Option<PathList>| paths.as_ref().and_then(count);
        let input = count(&self.input);
        let output = count(&self.output);
        let cost = self.cost.as_ref().and_then(|paths| paths.sum(value));
        let cost = cost.map(Money::from_dollars);
        if input.is_none() && output.is_none() && cost.is_none() {
            return None;
        }
        let has_tokens = input.is_some() || output.is_some();
        let input = input.unwrap_or_default();
        let by_total = part(&self.total).unwrap_or_default().saturating_sub(input);
        let tokens = TokenUsage {
            input,
            cached: part(&self.cached).unwrap_or_default(),
            cache_written: part(&self.cache_written).unwrap_or_default(),
            output: output.unwrap_or_default().max(by_total),
        };
        let amount = ReportedUsage { tokens: has_tokens.then_some(tokens), cost };
        let scope = match &self.call {
            Some(call) => UsageScope::ModelCall { id: call.find_text(value)? },
            None if self.cumulative => UsageScope::SessionTotal,
            None => UsageScope::Step,
        };
        Some(TurnEvent::Usage(UsageReport { amount, scope }))
    }
}

impl StepRule {
    fn read(&self, value: &Value) -> TurnEvent {
        let is_last = self.last.as_ref().is_some_and(|pattern| pattern.matches(value));
        TurnEvent::Step { is_last }
    }
}

impl NoticeRule {
    fn read(&self, value: &Value) -> Option<TurnEvent> {
        let text = self.text.find_text(value)?;
        let text = match &self.label {
            Some(label) => format!("{label}: {text}"),
            None => text,
        };
        Some(TurnEvent::Notice(TurnNotice { level: self.level, text }))
    }
}

impl ClosedRule {
    fn read(&self, value: &Value) -> TurnEvent {
        let text =
            |paths: &Option<PathList>| paths.as_ref().and_then(|paths| paths.find_text(value));
        let success = self.success.matches(value);
        let error = if success { None } else { text(&self.error) };
        let is_spent = |pattern: &JsonPattern| pattern.matches(value);
        let budget_spent = !success && self.budget_spent.as_ref().is_some_and(is_spent);
        let result = text(&self.result);
        TurnEvent::Closed(TurnClosing { success, result, error, budget_spent })
    }
}
