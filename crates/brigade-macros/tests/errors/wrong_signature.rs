//! Functions and types that cannot be a tool.

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
async fn weather<T>(city: T) -> Result<String, String> {
    Ok(city)
}

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
async fn forecast(city: String) {}

struct Station;

impl Station {
    /// Returns the weather.
    #[brigade_macros::tool(effect = "pure")]
    async fn climate(&self, city: String) -> Result<String, String> {
        Ok(city)
    }
}

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
struct Weather;

fn main() {}
