//! A tool without an effect.

/// Returns the weather.
#[brigade_macros::tool]
async fn weather(city: String) -> Result<String, String> {
    Ok(city)
}

fn main() {}
