//! The content of a prompt as the text that an agent reads.

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};

use crate::error_codes::invalid_params;

/// Returns the text of a prompt. Refuses content that the server did not declare.
pub(crate) fn render_prompt(content: &[ContentBlock]) -> Result<String, Error> {
    let mut parts = Vec::with_capacity(content.len());
    for block in content {
        parts.push(render_block(block)?);
    }
    let text = parts.join("\n");
    if text.trim().is_empty() {
        return Err(invalid_params("the prompt has no text"));
    }
    Ok(text)
}

fn render_block(block: &ContentBlock) -> Result<String, Error> {
    match block {
        ContentBlock::Text(text) => Ok(text.text.clone()),
        ContentBlock::ResourceLink(link) => Ok(format!("[{}]({})", link.name, link.uri)),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            EmbeddedResourceResource::TextResourceContents(resource) => {
                Ok(format!("<file uri={:?}>\n{}\n</file>", resource.uri, resource.text))
            }
            _ => Err(invalid_params("a prompt can embed text only, no binary resource")),
        },
        ContentBlock::Image(_) => Err(invalid_params("this agent takes no images")),
        ContentBlock::Audio(_) => Err(invalid_params("this agent takes no audio")),
        _ => Err(invalid_params("this agent does not know that kind of content")),
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{
        EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents,
    };

    use super::*;

    #[test]
    fn text_links_and_files_become_text() {
        let file = TextResourceContents::new("fn main() {}", "file:///src/main.rs");
        let file = EmbeddedResourceResource::TextResourceContents(file);
        let prompt = [
            ContentBlock::Text(TextContent::new("Look at")),
            ContentBlock::ResourceLink(ResourceLink::new("notes", "file:///notes.md")),
            ContentBlock::Resource(EmbeddedResource::new(file)),
        ];
        let expect = "Look at\n[notes](file:///notes.md)\n\
            <file uri=\"file:///src/main.rs\">\nfn main() {}\n</file>";
        assert_eq!(render_prompt(&prompt).expect("text"), expect);
    }

    #[test]
    fn other_content_is_refused() {
        let image = ContentBlock::Image(ImageContent::new("AAAA", "image/png"));
        assert!(render_prompt(&[image]).is_err());
        assert!(render_prompt(&[]).is_err());
        assert!(render_prompt(&[ContentBlock::Text(TextContent::new(" \n"))]).is_err());
    }
}
