//! Effects that do not exist.

/// Returns the weather.
#[brigade_macros::tool(effect = "reads")]
async fn weather(city: String) -> Result<String, String> {
    Ok(city)
}

/// Returns the weather.
#[brigade_macros::tool(effect = 7)]
async fn forecast(city: String) -> Result<String, String> {
    Ok(city)
}

fn main() {}
