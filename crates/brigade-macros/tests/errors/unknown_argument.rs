//! Arguments of the macro that do not exist, or are given twice.

/// Returns the weather.
#[brigade_macros::tool(effect = "pure", cached)]
async fn weather(city: String) -> Result<String, String> {
    Ok(city)
}

/// Returns the weather.
#[brigade_macros::tool(effect = "pure", effect = "once")]
async fn forecast(city: String) -> Result<String, String> {
    Ok(city)
}

/// Returns the weather.
#[brigade_macros::tool(effect = "pure", subject = "town")]
async fn climate(city: String) -> Result<String, String> {
    Ok(city)
}

fn main() {}
