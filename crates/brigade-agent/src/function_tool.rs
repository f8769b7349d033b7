//! A tool from a function: its schema, its arguments and its result come from the function's types.

use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use brigade_llm::ToolSpec;
use brigade_model::arguments::{find_problems, read_arguments_by, schema_of};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::localization::{Locale, LocalizedText};
use crate::tool::{
    BoxFuture, ExecutionHints, OutlivingWork, Tool, ToolEffect, ToolError, ToolHandler,
    ToolInvocation, ToolReply, ToolSubject,
};
use crate::tool_context::ToolContext;

/// The only argument of a function whose argument type is no object.
const VALUE_ARGUMENT: &str = "value";

impl Tool {
    /// Makes a tool of an async function.
    ///
    /// - The type of the argument gives the schema. The comments of its fields are for the model.
    /// - A call whose arguments do not fit fails with a text that names each wrong argument and the type
    ///   that it must have. An unknown argument does not fit either.
    /// - A result that is a string is the text for the model. Any other result is rendered as JSON.
    /// - `?` turns every error into a [`ToolError`], whose text the model reads.
    /// - A panic fails the call, not the agent.
    ///
    /// ```
    /// use brigade_agent::{Tool, ToolEffect, ToolError, ToolInvocation, ToolReply};
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Sum {
    ///     /// Numbers, separated by spaces.
    ///     numbers: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let sum = Tool::from_fn("sum", "Adds numbers.", ToolEffect::Pure, |args: Sum| async move {
    ///     let mut sum = 0;
    ///     for number in args.numbers.split_whitespace() {
    ///         sum += number.parse::<i64>()?;
    ///     }
    ///     Ok::<_, ToolError>(sum)
    /// });
    /// let call = |arguments| sum.call(ToolInvocation::standalone(arguments));
    /// assert_eq!(call(json!({ "numbers": "1 2 39" })).await, Ok(ToolReply::text("42")));
    /// let error = call(json!({ "numbers": 7 })).await.unwrap_err();
    /// assert_eq!(error.to_string(), "the argument `numbers` must be a string, not 7");
    /// let error = call(json!({ "numbers": "one" })).await.unwrap_err();
    /// assert_eq!(error.to_string(), "invalid digit found in string");
    /// # }
    /// ```
    ///
    /// A function without arguments takes `()`. One whose argument type is no object, such as `String`,
    /// has the single argument `value`.
    pub fn from_fn<A, R, E, F, Fut>(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        effect: ToolEffect,
        function: F,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        R: Serialize,
        E: Into<ToolError>,
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        Self::from_fn_with(name, description, effect, move |_, arguments| function(arguments))
    }

    /// Makes a tool of an async function that also gets the [`ToolContext`] of its call. The rest is as
    /// for [`Tool::from_fn`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use brigade_agent::{Tool, ToolContext, ToolEffect, ToolError};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Bake {
    ///     minutes: u32,
    /// }
    ///
    /// async fn bake(context: ToolContext, args: Bake) -> Result<String, ToolError> {
    ///     for minute in 1..=args.minutes {
    ///         context.progress(format!("minute {minute} of {}", args.minutes));
    ///         tokio::select! {
    ///             () = context.cancelled() => return Ok(format!("out after {minute} minutes")),
    ///             () = tokio::time::sleep(Duration::from_secs(60)) => {}
    ///         }
    ///     }
    ///     Ok("golden".to_owned())
    /// }
    ///
    /// let tool = Tool::from_fn_with("bake", "Bakes the bread.", ToolEffect::Once, bake);
    /// assert_eq!(&*tool.spec().name, "bake");
    /// ```
    pub fn from_fn_with<A, R, E, F, Fut>(
        name: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        effect: ToolEffect,
        function: F,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        R: Serialize,
        E: Into<ToolError>,
        F: Fn(ToolContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let schema = ArgumentSchema::of::<A>();
        let parameters = Arc::new(Value::Object(schema.parameters.clone()));
        let spec = ToolSpec { name: name.into(), description: description.into(), parameters };
        let body = move |call: &ToolInvocation| -> FunctionFuture {
            let returned = match schema.read::<A>(&call.arguments) {
                Ok(arguments) => function(call.context(), arguments),
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            };
            Box::pin(async move {
                let value = returned.await.map_err(Into::into)?;
                Ok(ToolReply::Text(render_value(&value)?))
            })
        };
        Self::new(FunctionTool { spec, effect, body: Box::new(body) })
    }

    /// Sets the text that the pattern of a permission rule is matched against, as in `weather(Ghent)`.
    /// `None` stands for a call without one.
    ///
    /// ```
    /// # use brigade_agent::{Tool, ToolEffect, ToolError, ToolSubject};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Weather { city: String }
    /// # let weather = Tool::from_fn("weather", "Returns the weather.", ToolEffect::Pure,
    /// #     |args: Weather| async move { Ok::<_, ToolError>(args.city) });
    /// let weather = weather.subject(|args: &Weather| args.city.clone());
    /// let subject = weather.handler().subject(&serde_json::json!({ "city": "Ghent" }));
    /// assert_eq!(subject, ToolSubject::Text("Ghent".to_owned()));
    /// ```
    #[must_use]
    pub fn subject<A, S>(self, subject: impl Fn(&A) -> S + Send + Sync + 'static) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        S: Into<ToolSubject>,
    {
        let schema = ArgumentSchema::of::<A>();
        let find_subject = move |arguments: &Value| match schema.read::<A>(arguments) {
            Ok(arguments) => subject(&arguments).into(),
            Err(_) => ToolSubject::Nothing,
        };
        let mut adjusted = AdjustedTool::of(self);
        adjusted.subject = Some(Box::new(find_subject));
        Self::new(adjusted)
    }

    /// Declares that the tool may destroy something.
    #[must_use]
    pub fn destructive(self) -> Self {
        self.with_hints(|hints| ExecutionHints { destructive: true, read_only: false, ..hints })
    }

    /// Declares that the tool changes nothing. A tool with [`ToolEffect::Pure`] says so already.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.with_hints(|hints| ExecutionHints { destructive: false, read_only: true, ..hints })
    }

    /// Declares that the tool must not run at the same time as other calls of its step.
    #[must_use]
    pub fn exclusive(self) -> Self {
        self.with_hints(|hints| ExecutionHints { exclusive: true, ..hints })
    }

    fn with_hints(self, change: impl FnOnce(ExecutionHints) -> ExecutionHints) -> Self {
        let mut adjusted = AdjustedTool::of(self);
        adjusted.hints = change(adjusted.hints);
        Self::new(adjusted)
    }
}

type FunctionFuture = BoxFuture<'static, Result<ToolReply, ToolError>>;

struct FunctionTool {
    spec: ToolSpec,
    effect: ToolEffect,
    body: Box<dyn Fn(&ToolInvocation) -> FunctionFuture + Send + Sync>,
}

impl ToolHandler for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(self.effect)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        (self.body)(&call)
    }
}

impl Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

type SubjectFunction = Box<dyn Fn(&Value) -> ToolSubject + Send + Sync>;

/// A tool with other hints, or another subject.
struct AdjustedTool {
    handler: Arc<dyn ToolHandler>,
    hints: ExecutionHints,
    subject: Option<SubjectFunction>,
}

impl AdjustedTool {
    fn of(tool: Tool) -> Self {
        Self { hints: tool.hints(), handler: tool.handler().clone(), subject: None }
    }
}

impl ToolHandler for AdjustedTool {
    fn spec(&self) -> &ToolSpec {
        self.handler.spec()
    }

    fn hints(&self) -> ExecutionHints {
        self.hints
    }

    fn localized(&self, locale: &Locale) -> Option<LocalizedText> {
        self.handler.localized(locale)
    }

    fn subject(&self, arguments: &Value) -> ToolSubject {
        let Some(subject) = &self.subject else { return self.handler.subject(arguments) };
        // The function belongs to the program, and its panic must not end the agent. A call without a
        // subject is denied by every rule that has a pattern.
        catch_unwind(AssertUnwindSafe(|| subject(arguments))).unwrap_or(ToolSubject::Nothing)
    }

    fn outliving(&self, arguments: &Value) -> OutlivingWork {
        self.handler.outliving(arguments)
    }

    fn acts_in(&self, arguments: &Value) -> Option<String> {
        self.handler.acts_in(arguments)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        self.handler.call(call)
    }
}

impl Debug for AdjustedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("AdjustedTool");
        debug.field("handler", &self.handler).field("hints", &self.hints).finish_non_exhaustive()
    }
}

/// The schema of a function's arguments. Providers accept only objects.
struct ArgumentSchema {
    parameters: Map<String, Value>,
    shape: ArgumentShape,
}

/// The relation between the type of a function's argument and the object that a model sends.
#[derive(Clone, Copy)]
enum ArgumentShape {
    /// The type is the object.
    Object,
    /// The type is the value of the only argument.
    Value,
    /// The type is `()`, and the object is empty.
    Empty,
}

impl ArgumentSchema {
    fn of<A: JsonSchema>() -> Self {
        let mut schema = schema_of::<A>();
        let shape = match schema.get("type").and_then(Value::as_str) {
            Some("object") => ArgumentShape::Object,
            Some("null") => ArgumentShape::Empty,
            Some(_) => ArgumentShape::Value,
            None if has_other_choice(&schema) => ArgumentShape::Value,
            None => ArgumentShape::Object,
        };
        let parameters = match shape {
            ArgumentShape::Object => {
                // Serde ignores unknown fields. A model that misspells one must learn of it.
                if is_plain_struct(&schema) {
                    schema.entry("properties").or_insert_with(|| json!({}));
                    schema.insert("additionalProperties".to_owned(), Value::Bool(false));
                }
                schema.insert("type".to_owned(), "object".into());
                schema
            }
            ArgumentShape::Value => strict_object(json!({ VALUE_ARGUMENT: schema })),
            ArgumentShape::Empty => strict_object(json!({})),
        };
        Self { parameters, shape }
    }

    fn read<A: DeserializeOwned>(&self, arguments: &Value) -> Result<A, ToolError> {
        let mut given = arguments.as_object().cloned().unwrap_or_default();
        given.retain(|_, value| !value.is_null());
        if self.has_unknown(&given) {
            return Err(ToolError(find_problems(&self.parameters, &given).join("; ")));
        }
        let explain = || self.parameters.clone();
        let read = match self.shape {
            ArgumentShape::Object if self.parameters.contains_key("properties") => {
                read_arguments_by::<A>(given, explain)
            }
            // The names of the arguments are not known, or differ from choice to choice.
            ArgumentShape::Object => {
                serde_json::from_value(Value::Object(given)).map_err(|error| error.to_string())
            }
            ArgumentShape::Value => {
                read_arguments_by::<ValueArgument<A>>(given, explain).map(|read| read.value)
            }
            ArgumentShape::Empty => {
                serde_json::from_value(Value::Null).map_err(|error| error.to_string())
            }
        };
        read.map_err(ToolError)
    }

    fn has_unknown(&self, given: &Map<String, Value>) -> bool {
        let is_strict = self.parameters.get("additionalProperties") == Some(&Value::Bool(false));
        let known = self.parameters.get("properties").and_then(Value::as_object);
        let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
        is_strict && !given.keys().all(is_known)
    }
}

#[derive(serde::Deserialize)]
struct ValueArgument<A> {
    value: A,
}

fn strict_object(properties: Value) -> Map<String, Value> {
    let names = properties.as_object().map(|properties| properties.keys().cloned());
    let required: Vec<String> = names.into_iter().flatten().collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), required.into());
    schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    schema
}

/// Returns true if a value of the schema need not be an object.
fn has_other_choice(schema: &Map<String, Value>) -> bool {
    let choices = ["oneOf", "anyOf"].into_iter().filter_map(|name| schema.get(name)?.as_array());
    choices.flatten().any(|choice| choice.get("type").and_then(Value::as_str) != Some("object"))
        || schema.contains_key("enum")
        || schema.contains_key("const")
}

/// Returns true if the schema is that of a struct whose fields are all that it has.
fn is_plain_struct(schema: &Map<String, Value>) -> bool {
    let combined = ["oneOf", "anyOf", "allOf", "$ref", "patternProperties"];
    let is_closed = matches!(schema.get("additionalProperties"), None | Some(Value::Bool(false)));
    schema.contains_key("type")
        && is_closed
        && !combined.iter().any(|name| schema.contains_key(*name))
}

/// Renders a result for the model: a string as it is, any other value as JSON.
fn render_value(value: &impl Serialize) -> Result<String, ToolError> {
    let unreadable =
        |error: serde_json::Error| ToolError(format!("the result is no JSON: {error}"));
    let text = serde_json::to_string(value).map_err(unreadable)?;
    if text.starts_with('"') {
        return serde_json::from_str(&text).map_err(unreadable);
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
