//! A tool without a description.

#[brigade_macros::tool(effect = "pure")]
async fn weather(city: String) -> Result<String, String> {
    Ok(city)
}

fn main() {}
