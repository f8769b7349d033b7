//! The tools that a server lists, bounded and checked.

use std::sync::Arc;

use brigade_llm::ToolSpec;
use brigade_model::truncate::{truncate_chars, truncate_end};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::tool_names;
use brigade_agent::json_schema::{SCHEMA_SIZE_MAX, Schema};
use brigade_agent::tool::{ExecutionHints, ToolEffect};

/// The maximum number of tools of one server. An agent is offered far fewer.
pub(super) const TOOLS_MAX: usize = 1_000;
/// The maximum size of a server's tools.
pub(super) const BYTES_MAX: usize = 4 << 20;
const DESCRIPTION_MAX: usize = 4_000;
/// The maximum number of reported problems.
const PROBLEMS_MAX: usize = 20;

/// The tools as a server listed them.
#[derive(Debug, Default)]
pub(super) struct RawToolList {
    pub(super) tools: Vec<Tool>,
    /// True if further tools were not read.
    pub(super) is_truncated: bool,
}

/// A tool of a server, with a name and schema for models.
#[derive(Clone, Debug)]
pub(super) struct ListedTool {
    pub(super) spec: ToolSpec,
    /// The server's name for the tool.
    pub(super) original_name: Arc<str>,
    pub(super) hints: ExecutionHints,
    /// True if the arguments can be checked against the server's schema.
    pub(super) checks_arguments: bool,
    pub(super) output_schema: Option<Arc<Value>>,
}

/// The tools of a server, and the problems with them.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckedToolList {
    pub(super) tools: Vec<ListedTool>,
    pub(super) problems: Vec<String>,
}

impl CheckedToolList {
    /// Checks the tools of a server. Tools beyond the limits are omitted, which is reported as a
    /// problem.
    pub(super) async fn check_tools(
        server: &str,
        raw_list: RawToolList,
        trusts_hints: bool,
    ) -> Self {
        let tools = raw_list.tools;
        let mut checked = Self::default();
        let originals: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        let names = tool_names::assign_names(server, &originals[..originals.len().min(TOOLS_MAX)]);
        let mut bytes = 0;
        let mut kept = 0;
        for (tool, name) in tools.iter().zip(names) {
            let name_excerpt = truncate_chars(&tool.name, 100);
            let Some(name) = name else {
                checked.add_problem(format!(
                    "the tool {name_excerpt:?} is listed twice or has no name"
                ));
                continue;
            };
            let (listed, problem) = ListedTool::check(name, tool, trusts_hints);
            if let Some(problem) = problem {
                checked.add_problem(format!("the tool {name_excerpt:?}: {problem}"));
            }
            bytes += listed.size_bytes();
            if bytes > BYTES_MAX {
                break;
            }
            checked.tools.push(listed);
            kept += 1;
            if kept % 16 == 0 {
                // Compiling schemas takes a while, so other tasks get a turn.
                tokio::task::yield_now().await;
            }
        }
        let omitted = tools.len().saturating_sub(TOOLS_MAX.min(kept.max(1)));
        if bytes > BYTES_MAX || tools.len() > TOOLS_MAX {
            checked.add_problem(format!("{omitted} of its {} tools are omitted", tools.len()));
        }
        if raw_list.is_truncated {
            let problem =
                format!("its list continues after {} tools, which were not read", tools.len());
            // It matters more than the other problems.
            checked.problems.insert(0, problem);
        }
        checked
    }

    fn add_problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

impl ListedTool {
    fn check(name: String, tool: &Tool, trusts_hints: bool) -> (Self, Option<String>) {
        let title = tool.title.as_deref().filter(|_| tool.description.is_none());
        let description = tool.description.as_deref().or(title).unwrap_or_default();
        let (parameters, problem) = parameter_schema(&tool.input_schema);
        let listed = Self {
            spec: ToolSpec {
                name: name.into(),
                description: truncate_end(description, DESCRIPTION_MAX).into(),
                parameters: Arc::new(parameters),
            },
            original_name: (&*tool.name).into(),
            hints: execution_hints(tool.annotations.as_ref(), trusts_hints),
            checks_arguments: problem.is_none(),
            output_schema: tool.output_schema.as_ref().and_then(usable_output_schema),
        };
        (listed, problem)
    }

    /// Returns the stored size.
    fn size_bytes(&self) -> usize {
        let output = self.output_schema.as_ref().map_or(0, |output| output.to_string().len());
        let spec = self.spec.parameters.to_string().len() + self.spec.description.len();
        spec + output + self.original_name.len()
    }
}

/// Returns the schema of the arguments for a model. If the server's is unusable, returns a
/// permissive one and the problem.
fn parameter_schema(schema: &Arc<JsonObject>) -> (Value, Option<String>) {
    let mut fields: Map<String, Value> = (**schema).clone();
    // It is for people, and some providers reject it.
    fields.remove("$schema");
    let kind = fields.get("type");
    let problem = match kind {
        None | Some(Value::String(_)) if kind.is_none_or(|kind| kind == "object") => {
            fields.insert("type".into(), "object".into());
            Schema::compile(&Value::Object(fields.clone())).err().map(|error| error.0)
        }
        kind => {
            let kind = kind.map(Value::to_string).unwrap_or_default();
            Some(format!("the type of its arguments is {}", truncate_end(&kind, 100)))
        }
    };
    match problem {
        None => (Value::Object(fields), None),
        Some(problem) => {
            let problem = format!("{problem}; its arguments are passed on unchecked");
            (json!({"type": "object"}), Some(problem))
        }
    }
}

/// Returns the effect of a tool by the server's hints, or the worst case without them.
fn execution_hints(annotations: Option<&ToolAnnotations>, is_trusted: bool) -> ExecutionHints {
    let Some(annotations) = annotations.filter(|_| is_trusted) else {
        return ExecutionHints { destructive: true, ..ExecutionHints::of(ToolEffect::Once) };
    };
    let read_only = annotations.read_only_hint == Some(true);
    let effect = match annotations.idempotent_hint {
        _ if read_only => ToolEffect::Pure,
        Some(true) => ToolEffect::Idempotent,
        _ => ToolEffect::Once,
    };
    ExecutionHints {
        destructive: !read_only && annotations.is_destructive(),
        ..ExecutionHints::of(effect)
    }
}

/// Repairs a tool list with invalid entries, so that one of them does not void the others.
pub(super) fn repair_tool_list(message: &mut Value) {
    let Some(Value::Array(tools)) = message.pointer_mut("/result/tools") else { return };
    for tool in tools.iter_mut() {
        let mut repaired = Map::new();
        for field in ["name", "title", "description"] {
            if let Some(text @ Value::String(_)) = tool.get(field) {
                repaired.insert(field.to_owned(), text.clone());
            }
        }
        repaired.entry("name").or_insert_with(|| "".into());
        let input = match tool.get("inputSchema") {
            Some(schema @ Value::Object(_)) => schema.clone(),
            Some(other) => {
                json!({"type": format!("not a schema but {}", truncate_end(&other.to_string(), 60))})
            }
            None => json!({"type": "object"}),
        };
        repaired.insert("inputSchema".to_owned(), input);
        if let Some(output @ Value::Object(_)) = tool.get("outputSchema") {
            repaired.insert("outputSchema".to_owned(), output.clone());
        }
        if let Some(Value::Object(annotations)) = tool.get("annotations") {
            let is_hint = |(_, value): &(&String, &Value)| value.is_boolean();
            let hints =
                annotations.iter().filter(is_hint).map(|(key, is)| (key.clone(), is.clone()));
            repaired.insert("annotations".to_owned(), Value::Object(hints.collect()));
        }
        *tool = Value::Object(repaired);
    }
}

/// Returns the schema of results, unless it is too large to be useful.
fn usable_output_schema(schema: &Arc<JsonObject>) -> Option<Arc<Value>> {
    let schema = Value::Object((**schema).clone());
    (schema.to_string().len() <= SCHEMA_SIZE_MAX).then(|| Arc::new(schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Value) -> Value {
        json!({"name": name, "inputSchema": schema})
    }

    async fn check_list(tools: Vec<Value>) -> CheckedToolList {
        let mut message = json!({"result": {"tools": tools}});
        repair_tool_list(&mut message);
        let tools = serde_json::from_value(message["result"]["tools"].take()).unwrap();
        CheckedToolList::check_tools("srv", RawToolList { tools, is_truncated: false }, true).await
    }

    #[tokio::test]
    async fn unusable_schemas_are_replaced_and_reported() {
        let deep = (0..100).fold(json!({}), |child, _| json!({"properties": {"a": child}}));
        let mut endless = Map::new();
        for level in 0..30 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            endless.insert(format!("d{level}"), json!({"properties": {"a": next, "b": next}}));
        }
        endless.insert("d30".into(), json!({}));
        for (schema, part) in [
            (json!("string"), "not a schema but"),
            (json!([1]), "not a schema but"),
            (json!({"type": "array"}), "array"),
            (json!({"type": 7}), "7"),
            (json!({"properties": {"a": {"$ref": "https://example.com/x"}}}), "example.com"),
            (json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "passwd"),
            (json!({"properties": {"a": {"pattern": "("}}}), "regex"),
            (json!({"description": "x".repeat(100_000)}), "too many"),
            (json!({"$ref": "#/$defs/d0", "$defs": endless}), "multiply"),
            (deep, "deep"),
        ] {
            let list = check_list(vec![tool("good", json!({})), tool("bad", schema.clone())]).await;
            assert_eq!(list.tools.len(), 2, "{schema}");
            assert!(list.tools[0].checks_arguments && !list.tools[1].checks_arguments, "{schema}");
            assert_eq!(*list.tools[1].spec.parameters, json!({"type": "object"}));
            assert!(list.problems[0].contains(part), "{:?}", list.problems);
        }
    }

    #[tokio::test]
    async fn a_schema_may_refer_to_itself() {
        let tree = json!({"type": "object", "properties": {"child": {"$ref": "#"}}});
        let list = check_list(vec![tool("tree", tree)]).await;
        assert!(list.tools[0].checks_arguments, "{:?}", list.problems);
    }

    #[tokio::test]
    async fn the_number_of_tools_is_bounded_and_reported() {
        let many = (0..5_000).map(|n| tool(&format!("t{n}"), json!({}))).collect();
        let list = check_list(many).await;
        assert_eq!(list.tools.len(), TOOLS_MAX);
        assert_eq!(list.problems, ["4000 of its 5000 tools are omitted"]);
        let wordy = json!({"properties": {"a": {"description": "x".repeat(60_000)}}});
        let list =
            check_list((0..200).map(|n| tool(&format!("t{n}"), wordy.clone())).collect()).await;
        assert!(
            list.tools.len() < 100 && list.problems[0].contains("omitted"),
            "{:?}",
            list.problems
        );
    }

    #[tokio::test]
    async fn invalid_entries_do_not_void_the_others() {
        let list = check_list(vec![
            json!(7),
            json!({"inputSchema": {}}),
            json!({"name": "a", "annotations": {"readOnlyHint": "yes"}, "description": 4}),
            json!({"name": "a", "inputSchema": {}}),
        ])
        .await;
        let names: Vec<&str> = list.tools.iter().map(|tool| &*tool.spec.name).collect();
        assert_eq!(names, ["srv__a"]);
        assert_eq!(list.tools[0].hints.effect, ToolEffect::Once);
        assert_eq!(list.problems.len(), 3, "{:?}", list.problems);
    }

    #[test]
    fn hints_determine_the_effect() {
        let effect_of = |read_only, idempotent, destructive| {
            let annotations =
                ToolAnnotations::from_raw(None, read_only, destructive, idempotent, Some(true));
            (
                execution_hints(Some(&annotations), true).effect,
                execution_hints(Some(&annotations), true).destructive,
            )
        };
        assert_eq!(effect_of(Some(true), None, None), (ToolEffect::Pure, false));
        assert_eq!(
            effect_of(Some(false), Some(true), Some(false)),
            (ToolEffect::Idempotent, false)
        );
        assert_eq!(effect_of(None, None, None), (ToolEffect::Once, true));
        assert_eq!(execution_hints(None, true).effect, ToolEffect::Once);
        let claims = ToolAnnotations::from_raw(None, Some(true), None, None, None);
        assert_eq!(
            execution_hints(Some(&claims), false).effect,
            ToolEffect::Once,
            "hints are not trusted"
        );
    }
}
