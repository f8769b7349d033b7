//! A tool with typed arguments: an agent asks for the weather, and a script plays its model.

use std::error::Error;
use std::sync::Arc;

use brigade::{
    AgentOptions, NewTask, OneModel, Runtime, Script, ScriptedModel, Tool, ToolEffect, ToolError,
};

const SCRIPT: &str = r#"
agent *
turn
  call weather {"city": "Ghent"}
turn
  when sunny in Ghent for 1 days
  say Leave the umbrella at home.
"#;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    /// The city, such as "Ghent".
    city: String,
    days: Option<u8>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let weather = Tool::from_fn(
        "weather",
        "Returns the weather of a city.",
        ToolEffect::Pure,
        |place: Place| async move {
            let days = place.days.unwrap_or(1);
            Ok::<_, ToolError>(format!("sunny in {} for {days} days", place.city))
        },
    );

    let model = ScriptedModel::new(Script::parse("weather", SCRIPT)?);
    let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted").tool(weather);
    let runtime = Runtime::builder().agents(agents).start().await?;
    let session = runtime.session("trip").await?;
    let guide = session.spawn(NewTask::agent("Do I need an umbrella in Ghent?")).await?;
    println!("{}", guide.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
