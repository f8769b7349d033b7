//! Tools that the macro `#[brigade::tool]` makes.

use brigade::agent::{ToolInvocation, ToolReply, ToolSubject};
use brigade::{Tool, ToolContext, ToolEffect, ToolError};
use serde_json::{Value, json};

/// Returns the weather of a city.
///
/// Not for other planets.
#[brigade::tool(effect = "pure", subject = "city", exclusive)]
async fn weather(
    /// The city, such as "Ghent".
    mut city: String,
    #[tool(description = "The number of days.")] days: Option<u8>,
    #[serde(default)] units: Vec<Unit>,
) -> Result<String, ToolError> {
    city.make_ascii_uppercase();
    Ok(format!("{city} {days:?} {units:?}"))
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Celsius,
}

/// Deletes a file.
#[brigade::tool(effect = "once", name = "remove_file", destructive)]
async fn remove(context: ToolContext, r#type: String) -> Result<Value, std::num::ParseIntError> {
    let number: u32 = r#type.parse()?;
    Ok(json!({ "number": number, "cancelled": context.is_cancelled() }))
}

/// Shows a city.
#[brigade::tool(effect = "pure")]
async fn city(city: String) -> Result<String, ToolError> {
    Ok(city)
}

mod shared {
    // The generated code names neither of these.
    mod schemars {}
    mod serde {}

    #[brigade::tool(effect = "idempotent", description = "Pings.")]
    pub async fn ping() -> Result<(), brigade::ToolError> {
        Ok(())
    }
}

async fn call(tool: &Tool, arguments: Value) -> Result<String, String> {
    match tool.call(ToolInvocation::standalone(arguments)).await {
        Ok(ToolReply::Text(text)) => Ok(text),
        Ok(parked) => panic!("a function does not park: {parked:?}"),
        Err(ToolError(text)) => Err(text),
    }
}

#[test]
fn name_description_and_schema_come_from_the_function() {
    let tool = weather();
    let spec = tool.spec();
    assert_eq!(&*spec.name, "weather");
    assert_eq!(&*spec.description, "Returns the weather of a city.\n\nNot for other planets.");
    let properties = &spec.parameters["properties"];
    assert_eq!(properties["city"]["description"], "The city, such as \"Ghent\".");
    assert_eq!(properties["days"]["description"], "The number of days.");
    assert_eq!(properties["units"]["items"]["enum"], json!(["celsius"]));
    assert_eq!(spec.parameters["required"], json!(["city"]));
    assert_eq!(spec.parameters["additionalProperties"], false);
}

#[test]
fn effect_hints_and_subject_come_from_the_attribute() {
    let hints = weather().hints();
    assert_eq!(hints.effect, ToolEffect::Pure);
    assert!(hints.exclusive && hints.read_only && !hints.destructive);
    let subject = weather().handler().subject(&json!({ "city": "Ghent" }));
    assert_eq!(subject, ToolSubject::Text("Ghent".to_owned()));
    let hints = remove().hints();
    assert_eq!(hints.effect, ToolEffect::Once);
    assert!(hints.destructive && !hints.exclusive);
    assert_eq!(&*remove().spec().name, "remove_file");
    assert_eq!(&*shared::ping().spec().description, "Pings.");
}

#[tokio::test]
async fn arguments_and_context_reach_the_function() {
    let reply = call(&weather(), json!({ "city": "Ghent", "units": ["celsius"] })).await;
    assert_eq!(reply.unwrap(), "GHENT None [Celsius]");
    let reply = call(&remove(), json!({ "type": "7" })).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&reply).unwrap()["cancelled"], false);
    assert_eq!(call(&shared::ping(), json!({})).await.unwrap(), "null");
    assert_eq!(call(&city(), json!({ "city": "Ghent" })).await.unwrap(), "Ghent");
}

#[tokio::test]
async fn wrong_arguments_and_errors_reach_the_model() {
    let wrong = call(&weather(), json!({ "city": 7 })).await.unwrap_err();
    assert_eq!(wrong, "the argument `city` must be a string, not 7");
    let unknown = call(&shared::ping(), json!({ "host": "x" })).await.unwrap_err();
    assert_eq!(unknown, "unknown argument `host`; there are none");
    let failed = call(&remove(), json!({ "type": "x" })).await.unwrap_err();
    assert_eq!(failed, "invalid digit found in string");
}
