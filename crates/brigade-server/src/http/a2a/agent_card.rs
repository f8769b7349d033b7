//! The cards of published agents.

use std::collections::HashMap;

use a2a::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, HttpAuthSecurityScheme,
    SecurityScheme, TRANSPORT_PROTOCOL_HTTP_JSON, TRANSPORT_PROTOCOL_JSONRPC,
};
use http::header::{HOST, HeaderMap};

use super::published::{PublishedAgent, PublishedAgents};

/// The media types of messages and results.
const MODES: [&str; 2] = ["text/plain", "application/json"];
const SCHEME: &str = "bearer";

impl PublishedAgents {
    /// Returns the URL under which the sender of these headers reaches the server. The host was
    /// checked before.
    pub(crate) fn base_url(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.public_url {
            return url.clone();
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{host}")
    }

    /// Returns the card of the server: that of its first agent, which names the others.
    pub(crate) fn server_card(&self, base_url: &str) -> Option<AgentCard> {
        let (first, others) = self.agents.split_first()?;
        let mut card = first.card(base_url);
        for other in others {
            let url = other.url(base_url);
            let name = &other.name;
            card.description += &format!("\nAlso here: {name}, {url}/.well-known/agent-card.json");
        }
        Some(card)
    }
}

impl PublishedAgent {
    fn url(&self, base_url: &str) -> String {
        format!("{base_url}/a2a/{}", percent_encode(&self.name))
    }

    pub(crate) fn card(&self, base_url: &str) -> AgentCard {
        let url = self.url(base_url);
        let scheme = HttpAuthSecurityScheme {
            scheme: "Bearer".to_owned(),
            description: Some("A client's token: `brigade token add --client NAME`".to_owned()),
            bearer_format: None,
        };
        let skill = AgentSkill {
            id: self.name.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            tags: vec!["brigade".to_owned()],
            examples: None,
            input_modes: None,
            output_modes: None,
            security_requirements: None,
        };
        AgentCard {
            name: self.name.clone(),
            description: self.description.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            supported_interfaces: vec![
                AgentInterface::new(url.clone(), TRANSPORT_PROTOCOL_JSONRPC),
                AgentInterface::new(format!("{url}/v1"), TRANSPORT_PROTOCOL_HTTP_JSON),
            ],
            capabilities: AgentCapabilities {
                streaming: Some(true),
                push_notifications: Some(false),
                extensions: None,
                extended_agent_card: Some(false),
            },
            default_input_modes: MODES.map(str::to_owned).to_vec(),
            default_output_modes: MODES.map(str::to_owned).to_vec(),
            skills: vec![skill],
            provider: None,
            documentation_url: None,
            icon_url: None,
            security_schemes: Some(HashMap::from([(
                SCHEME.to_owned(),
                SecurityScheme::HttpAuth(scheme),
            )])),
            security_requirements: Some(vec![HashMap::from([(SCHEME.to_owned(), Vec::new())])]),
            signatures: None,
        }
    }
}

/// Encodes a name as one segment of a path.
fn percent_encode(name: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_names_both_bindings_and_the_token() {
        let agent = PublishedAgent { name: "a b".to_owned(), description: "Bakes.".to_owned() };
        let other = PublishedAgent { name: "cook".to_owned(), description: String::new() };
        let agents = PublishedAgents { agents: vec![agent, other], ..PublishedAgents::default() };
        let card = agents.server_card("https://x.example").expect("a card");
        let card = serde_json::to_value(card).expect("JSON");
        let interfaces = &card["supportedInterfaces"];
        assert_eq!(interfaces[0]["url"], "https://x.example/a2a/a%20b");
        assert_eq!(interfaces[0]["protocolBinding"], "JSONRPC");
        assert_eq!(interfaces[1]["url"], "https://x.example/a2a/a%20b/v1");
        assert_eq!(interfaces[1]["protocolVersion"], "1.0");
        assert_eq!(card["capabilities"]["pushNotifications"], false);
        let scheme = &card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"];
        assert_eq!(scheme, "Bearer");
        assert!(card["description"].as_str().expect("text").contains("/a2a/cook/"), "{card}");
    }
}
