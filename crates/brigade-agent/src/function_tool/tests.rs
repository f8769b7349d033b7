//! Schemas, arguments, results and hints of tools from functions.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::json_schema::Schema;

#[derive(Debug, Deserialize, JsonSchema)]
struct Weather {
    /// The city, such as "Ghent".
    city: String,
    days: Option<u8>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Shape {
    Circle { radius: f64 },
    Square { side: f64 },
}

fn weather() -> Tool {
    Tool::from_fn("weather", "Returns the weather.", ToolEffect::Pure, |args: Weather| async move {
        let days = args.days.unwrap_or(1);
        Ok::<_, ToolError>(format!("{} for {days}", args.city))
    })
}

/// Returns a tool that shows its argument.
fn echo<A: DeserializeOwned + JsonSchema + Debug + Send + 'static>() -> Tool {
    let show = |argument: A| async move { Ok::<_, ToolError>(format!("{argument:?}")) };
    Tool::from_fn("echo", "Shows its argument.", ToolEffect::Pure, show)
}

async fn call(tool: &Tool, arguments: Value) -> Result<String, String> {
    match tool.call(ToolInvocation::standalone(arguments)).await {
        Ok(ToolReply::Text(text)) => Ok(text),
        Ok(parked) => panic!("a function does not park: {parked:?}"),
        Err(ToolError(text)) => Err(text),
    }
}

#[test]
fn the_schema_is_a_strict_object_that_has_the_comments_of_the_fields() {
    let tool = weather();
    let parameters = &*tool.spec().parameters;
    let days = json!({ "type": "integer", "minimum": 0, "maximum": 255 });
    let city = json!({ "type": "string", "description": "The city, such as \"Ghent\"." });
    assert_eq!(
        parameters,
        &json!({
            "type": "object",
            "properties": { "city": city, "days": days },
            "required": ["city"],
            "additionalProperties": false,
        })
    );
}

#[test]
fn every_argument_type_gives_an_object_schema_that_compiles() {
    let tools = [
        echo::<()>(),
        echo::<String>(),
        echo::<Vec<u32>>(),
        echo::<Option<u32>>(),
        echo::<Value>(),
        echo::<BTreeMap<String, u32>>(),
        echo::<Shape>(),
        echo::<Weather>(),
    ];
    for tool in tools {
        let parameters = &tool.spec().parameters;
        assert_eq!(parameters["type"], "object", "{parameters}");
        assert_eq!(parameters.get("$schema"), None, "{parameters}");
        Schema::compile(parameters).unwrap();
    }
}

#[tokio::test]
async fn arguments_of_every_shape_reach_the_function() {
    assert_eq!(call(&echo::<()>(), json!({})).await.unwrap(), "()");
    assert_eq!(call(&echo::<String>(), json!({ "value": "a" })).await.unwrap(), "\"a\"");
    assert_eq!(call(&echo::<Vec<u32>>(), json!({ "value": [1] })).await.unwrap(), "[1]");
    let shape = json!({ "kind": "circle", "radius": 2.0 });
    assert_eq!(call(&echo::<Shape>(), shape).await.unwrap(), "Circle { radius: 2.0 }");
    let map = call(&echo::<BTreeMap<String, u32>>(), json!({ "a": 1 })).await;
    assert_eq!(map.unwrap(), "{\"a\": 1}");
    let null = json!({ "city": "Ghent", "days": null });
    assert_eq!(call(&weather(), null).await.unwrap(), "Ghent for 1");
}

#[tokio::test]
async fn wrong_arguments_are_named_with_what_is_expected() {
    let cases = [
        (json!({ "city": 7 }), "the argument `city` must be a string, not 7"),
        (json!({}), "missing argument `city`"),
        (
            json!({ "city": "Ghent", "days": "two" }),
            "the argument `days` must be an integer, not a string",
        ),
        // Serde alone would ignore the misspelt argument.
        (
            json!({ "city": "Ghent", "dayz": 2 }),
            "unknown argument `dayz`; the arguments are `city`, `days`",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(call(&weather(), arguments).await.unwrap_err(), expected);
    }
    let wrong = call(&echo::<String>(), json!({ "value": 7 })).await.unwrap_err();
    assert_eq!(wrong, "the argument `value` must be a string, not 7");
    let unknown = call(&echo::<()>(), json!({ "city": "Ghent" })).await.unwrap_err();
    assert_eq!(unknown, "unknown argument `city`; there are none");
    let shape = call(&echo::<Shape>(), json!({ "kind": "line" })).await.unwrap_err();
    assert_eq!(shape, "unknown variant `line`, expected `circle` or `square`");
}

#[tokio::test]
async fn a_string_is_text_and_another_result_is_json() {
    #[derive(Serialize)]
    struct Report {
        sunny: bool,
        city: &'static str,
    }
    async fn rendered<R: Serialize + Clone + Send + Sync + 'static>(value: R) -> String {
        let tool = Tool::from_fn("t", "d", ToolEffect::Pure, move |(): ()| {
            let value = value.clone();
            async move { Ok::<_, ToolError>(value) }
        });
        call(&tool, json!({})).await.unwrap()
    }
    assert_eq!(rendered("say \"hi\"\n").await, "say \"hi\"\n");
    assert_eq!(rendered(u64::MAX).await, "18446744073709551615");
    assert_eq!(rendered(vec!["a", "b"]).await, "[\"a\",\"b\"]");
    let report = || async { Ok::<_, ToolError>(Report { sunny: true, city: "Ghent" }) };
    let tool = Tool::from_fn("t", "d", ToolEffect::Pure, move |(): ()| report());
    assert_eq!(call(&tool, json!({})).await.unwrap(), r#"{"sunny":true,"city":"Ghent"}"#);
}

#[tokio::test]
async fn every_error_type_becomes_text_with_its_sources() {
    #[derive(Debug, thiserror::Error)]
    #[error("the order is unreadable")]
    struct Unreadable(#[source] std::num::ParseIntError);

    let with_question_mark = Tool::from_fn("t", "d", ToolEffect::Pure, |(): ()| async move {
        let count: u32 = "x".parse().map_err(Unreadable)?;
        Ok::<_, ToolError>(count)
    });
    let chain = "the order is unreadable: invalid digit found in string";
    assert_eq!(call(&with_question_mark, json!({})).await.unwrap_err(), chain);

    let with_own_type = Tool::from_fn("t", "d", ToolEffect::Pure, |(): ()| async move {
        "x".parse::<u32>().map_err(Unreadable)
    });
    assert_eq!(call(&with_own_type, json!({})).await.unwrap_err(), chain);
    let boxed: Box<dyn std::error::Error> = ToolError::new("no").into();
    assert_eq!(boxed.to_string(), "no");
}

#[tokio::test]
async fn the_context_of_a_standalone_call_works_without_an_agent() {
    let tool = Tool::from_fn_with("t", "d", ToolEffect::Pure, |context: ToolContext, (): ()| {
        context.progress("unseen");
        async move { Ok::<_, ToolError>(format!("{} {}", context.key(), context.is_cancelled())) }
    });
    assert_eq!(call(&tool, json!({})).await.unwrap(), "standalone/call:0 false");
}

#[test]
fn hints_and_subject_are_set_by_builder_methods() {
    let tool = weather().subject(|args: &Weather| args.city.clone()).exclusive().destructive();
    let hints = tool.hints();
    assert!(hints.exclusive && hints.destructive && !hints.read_only);
    assert_eq!(hints.effect, ToolEffect::Pure);
    let ghent = json!({ "city": "Ghent" });
    assert_eq!(tool.handler().subject(&ghent), ToolSubject::Text("Ghent".to_owned()));
    assert_eq!(tool.handler().subject(&json!({})), ToolSubject::Nothing);
    assert!(tool.read_only().hints().read_only);
    let optional = weather().subject(|args: &Weather| args.days.map(|days| days.to_string()));
    assert_eq!(optional.handler().subject(&ghent), ToolSubject::Nothing);
    assert_eq!(&*optional.spec().name, "weather");
}

#[test]
fn a_subject_that_panics_is_no_subject() {
    let tool = weather().subject(|_: &Weather| -> String { panic!("ouch") });
    assert_eq!(tool.handler().subject(&json!({ "city": "Ghent" })), ToolSubject::Nothing);
}

#[test]
fn a_handler_is_a_tool() {
    let handler: Arc<dyn ToolHandler> = weather().handler().clone();
    let tool = Tool::from(handler);
    assert_eq!(&*tool.clone().spec().name, "weather");
}
