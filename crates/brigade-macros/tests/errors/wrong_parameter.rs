//! Parameters that cannot be arguments of a tool.

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
async fn weather(city: &str) -> Result<String, String> {
    Ok(city.to_owned())
}

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
async fn forecast((city, days): (String, u8)) -> Result<String, String> {
    Ok(city)
}

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
async fn climate(city: String, context: ToolContext) -> Result<String, String> {
    Ok(city)
}

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
async fn season(#[tool(about = "The city.")] city: String) -> Result<String, String> {
    Ok(city)
}

fn main() {}
