//! Which tools a server says it has, as far as that can be believed.

use std::sync::Arc;

use brigade_llm::ToolSpec;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::tool_names;
use brigade_agent::json_schema::{SCHEMA_SIZE_MAX, Schema};
use brigade_agent::tool::{ExecutionHints, ToolEffect};

/// Of one server. An agent is offered far fewer.
pub(super) const TOOLS_MAX: usize = 1_000;
/// Of all that a server says of its tools.
pub(super) const BYTES_MAX: usize = 4 << 20;
const DESCRIPTION_MAX: usize = 4_000;
/// As many problems are told one by one.
const PROBLEMS_MAX: usize = 20;

/// What a server said of its tools.
#[derive(Debug, Default)]
pub(super) struct RawToolList {
    pub(super) tools: Vec<Tool>,
    /// It would have gone on.
    pub(super) is_truncated: bool,
}

/// A tool as its server has it.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    pub(super) spec: ToolSpec,
    /// What the server calls it.
    pub(super) original_name: Arc<str>,
    pub(super) hints: ExecutionHints,
    /// Whether its arguments can be checked by what the server says of them.
    pub(super) checks_arguments: bool,
    pub(super) output_schema: Option<Arc<Value>>,
}

/// The tools of a server, and what is wrong with them.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckedToolList {
    pub(super) tools: Vec<ListedTool>,
    pub(super) problems: Vec<String>,
}

impl CheckedToolList {
    /// Takes in what a server says. Beyond the bounds, tools are left out, and that is a problem.
    pub(super) async fn check_tools(server: &str, told: RawToolList, trusts_hints: bool) -> Self {
        let tools = told.tools;
        let mut reported = Self::default();
        let originals: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        let names = tool_names::assign_names(server, &originals[..originals.len().min(TOOLS_MAX)]);
        let (mut bytes, mut kept) = (0, 0);
        for (tool, name) in tools.iter().zip(names) {
            let shown: String = tool.name.chars().take(100).collect();
            let Some(name) = name else {
                reported.add_problem(format!("the tool {shown:?} is there twice, or has no name"));
                continue;
            };
            let (listed, problem) = ListedTool::of(name, tool, trusts_hints);
            if let Some(problem) = problem {
                reported.add_problem(format!("the tool {shown:?}: {problem}"));
            }
            bytes += listed.size_bytes();
            if bytes > BYTES_MAX {
                break;
            }
            reported.tools.push(listed);
            kept += 1;
            if kept % 16 == 0 {
                // Compiling schemas takes its time, which others have too.
                tokio::task::yield_now().await;
            }
        }
        let left_out = tools.len().saturating_sub(TOOLS_MAX.min(kept.max(1)));
        if bytes > BYTES_MAX || tools.len() > TOOLS_MAX {
            reported.add_problem(format!("{left_out} of its {} tools are left out", tools.len()));
        }
        if told.is_truncated {
            let problem = format!("its list goes on after {} tools, unread", tools.len());
            // It is worth more than what else is wrong.
            reported.problems.insert(0, problem);
        }
        reported
    }

    fn add_problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

impl ListedTool {
    fn of(name: String, tool: &Tool, trusts_hints: bool) -> (Self, Option<String>) {
        let title = tool.title.as_deref().filter(|_| tool.description.is_none());
        let description = tool.description.as_deref().or(title).unwrap_or_default();
        let (parameters, problem) = parameter_schema(&tool.input_schema);
        let listed = Self {
            spec: ToolSpec {
                name: name.into(),
                description: truncate(description, DESCRIPTION_MAX).into(),
                parameters: Arc::new(parameters),
            },
            original_name: (&*tool.name).into(),
            hints: execution_hints(tool.annotations.as_ref(), trusts_hints),
            checks_arguments: problem.is_none(),
            output_schema: tool.output_schema.as_ref().and_then(usable_output_schema),
        };
        (listed, problem)
    }

    /// What is kept of it.
    fn size_bytes(&self) -> usize {
        let output = self.output_schema.as_ref().map_or(0, |output| output.to_string().len());
        let spec = self.spec.parameters.to_string().len() + self.spec.description.len();
        spec + output + self.original_name.len()
    }
}

/// The schema of arguments as it can be told to a model: another one, and why, where the server's is
/// of no use.
fn parameter_schema(schema: &Arc<JsonObject>) -> (Value, Option<String>) {
    let mut fields: Map<String, Value> = (**schema).clone();
    // For people, and some providers take offence.
    fields.remove("$schema");
    let kind = fields.get("type");
    let problem = match kind {
        None | Some(Value::String(_)) if kind.is_none_or(|kind| kind == "object") => {
            fields.insert("type".into(), "object".into());
            Schema::compile(&Value::Object(fields.clone())).err().map(|error| error.0)
        }
        kind => {
            let kind = kind.map(Value::to_string).unwrap_or_default();
            Some(format!("its arguments are said to be {}", truncate(&kind, 100)))
        }
    };
    match problem {
        None => (Value::Object(fields), None),
        Some(problem) => {
            let problem = format!("{problem}; its arguments are passed on as they are");
            (json!({"type": "object"}), Some(problem))
        }
    }
}

/// What the server says of the effect of a tool; the worst, where it says nothing.
fn execution_hints(said: Option<&ToolAnnotations>, is_trusted: bool) -> ExecutionHints {
    let Some(said) = said.filter(|_| is_trusted) else {
        return ExecutionHints { destructive: true, ..ExecutionHints::of(ToolEffect::Once) };
    };
    let read_only = said.read_only_hint == Some(true);
    let effect = match said.idempotent_hint {
        _ if read_only => ToolEffect::Pure,
        Some(true) => ToolEffect::Idempotent,
        _ => ToolEffect::Once,
    };
    ExecutionHints {
        destructive: !read_only && said.is_destructive(),
        ..ExecutionHints::of(effect)
    }
}

/// Makes a list of tools readable in which some are not as they should be: one such tool must not
/// take all others along.
pub(super) fn repair_tool_list(message: &mut Value) {
    let Some(Value::Array(tools)) = message.pointer_mut("/result/tools") else { return };
    for tool in tools.iter_mut() {
        let mut mended = Map::new();
        for field in ["name", "title", "description"] {
            if let Some(text @ Value::String(_)) = tool.get(field) {
                mended.insert(field.to_owned(), text.clone());
            }
        }
        mended.entry("name").or_insert_with(|| "".into());
        let input = match tool.get("inputSchema") {
            Some(schema @ Value::Object(_)) => schema.clone(),
            Some(other) => {
                json!({"type": format!("no schema but {}", truncate(&other.to_string(), 60))})
            }
            None => json!({"type": "object"}),
        };
        mended.insert("inputSchema".to_owned(), input);
        if let Some(output @ Value::Object(_)) = tool.get("outputSchema") {
            mended.insert("outputSchema".to_owned(), output.clone());
        }
        if let Some(Value::Object(said)) = tool.get("annotations") {
            let is_hint = |(_, value): &(&String, &Value)| value.is_boolean();
            let hints = said.iter().filter(is_hint).map(|(key, is)| (key.clone(), is.clone()));
            mended.insert("annotations".to_owned(), Value::Object(hints.collect()));
        }
        *tool = Value::Object(mended);
    }
}

/// The schema of results, unless it is too large to be of any use.
fn usable_output_schema(schema: &Arc<JsonObject>) -> Option<Arc<Value>> {
    let schema = Value::Object((**schema).clone());
    (schema.to_string().len() <= SCHEMA_SIZE_MAX).then(|| Arc::new(schema))
}

pub(super) fn truncate(text: &str, most: usize) -> String {
    match text.len() > most {
        true => format!("{}…", &text[..text.floor_char_boundary(most)]),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Value) -> Value {
        json!({"name": name, "inputSchema": schema})
    }

    async fn reported(tools: Vec<Value>) -> CheckedToolList {
        let mut message = json!({"result": {"tools": tools}});
        repair_tool_list(&mut message);
        let tools = serde_json::from_value(message["result"]["tools"].take()).unwrap();
        CheckedToolList::check_tools("srv", RawToolList { tools, is_truncated: false }, true).await
    }

    #[tokio::test]
    async fn schemas_that_are_of_no_use_are_replaced_and_told() {
        let deep = (0..100).fold(json!({}), |below, _| json!({"properties": {"a": below}}));
        let mut endless = Map::new();
        for level in 0..30 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            endless.insert(format!("d{level}"), json!({"properties": {"a": next, "b": next}}));
        }
        endless.insert("d30".into(), json!({}));
        for (schema, part) in [
            (json!("string"), "no schema but"),
            (json!([1]), "no schema but"),
            (json!({"type": "array"}), "array"),
            (json!({"type": 7}), "7"),
            (json!({"properties": {"a": {"$ref": "https://example.com/x"}}}), "example.com"),
            (json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "passwd"),
            (json!({"properties": {"a": {"pattern": "("}}}), "regex"),
            (json!({"description": "x".repeat(100_000)}), "too many"),
            (json!({"$ref": "#/$defs/d0", "$defs": endless}), "multiply"),
            (deep, "deep"),
        ] {
            let told = reported(vec![tool("good", json!({})), tool("bad", schema.clone())]).await;
            assert_eq!(told.tools.len(), 2, "{schema}");
            assert!(told.tools[0].checks_arguments && !told.tools[1].checks_arguments, "{schema}");
            assert_eq!(*told.tools[1].spec.parameters, json!({"type": "object"}));
            assert!(told.problems[0].contains(part), "{:?}", told.problems);
        }
    }

    #[tokio::test]
    async fn a_schema_may_refer_to_itself() {
        let tree = json!({"type": "object", "properties": {"below": {"$ref": "#"}}});
        let told = reported(vec![tool("tree", tree)]).await;
        assert!(told.tools[0].checks_arguments, "{:?}", told.problems);
    }

    #[tokio::test]
    async fn thousands_of_tools_are_bounded_and_that_is_told() {
        let many = (0..5_000).map(|n| tool(&format!("t{n}"), json!({}))).collect();
        let told = reported(many).await;
        assert_eq!(told.tools.len(), TOOLS_MAX);
        assert_eq!(told.problems, ["4000 of its 5000 tools are left out"]);
        let wordy = json!({"properties": {"a": {"description": "x".repeat(60_000)}}});
        let told =
            reported((0..200).map(|n| tool(&format!("t{n}"), wordy.clone())).collect()).await;
        assert!(
            told.tools.len() < 100 && told.problems[0].contains("left out"),
            "{:?}",
            told.problems
        );
    }

    #[tokio::test]
    async fn odd_entries_do_not_take_the_others_along() {
        let told = reported(vec![
            json!(7),
            json!({"inputSchema": {}}),
            json!({"name": "a", "annotations": {"readOnlyHint": "yes"}, "description": 4}),
            json!({"name": "a", "inputSchema": {}}),
        ])
        .await;
        let names: Vec<&str> = told.tools.iter().map(|tool| &*tool.spec.name).collect();
        assert_eq!(names, ["srv__a"]);
        assert_eq!(told.tools[0].hints.effect, ToolEffect::Once);
        assert_eq!(told.problems.len(), 3, "{:?}", told.problems);
    }

    #[test]
    fn hints_say_what_may_be_tried_again() {
        let said = |read_only, idempotent, destructive| {
            let said =
                ToolAnnotations::from_raw(None, read_only, destructive, idempotent, Some(true));
            (
                execution_hints(Some(&said), true).effect,
                execution_hints(Some(&said), true).destructive,
            )
        };
        assert_eq!(said(Some(true), None, None), (ToolEffect::Pure, false));
        assert_eq!(said(Some(false), Some(true), Some(false)), (ToolEffect::Idempotent, false));
        assert_eq!(said(None, None, None), (ToolEffect::Once, true));
        assert_eq!(execution_hints(None, true).effect, ToolEffect::Once);
        let claims = ToolAnnotations::from_raw(None, Some(true), None, None, None);
        assert_eq!(execution_hints(Some(&claims), false).effect, ToolEffect::Once, "not believed");
    }
}
