//! A tool that is not async.

/// Returns the weather.
#[brigade_macros::tool(effect = "pure")]
fn weather(city: String) -> Result<String, String> {
    Ok(city)
}

fn main() {}
