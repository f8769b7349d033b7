//! `show_trust`: shows the definitions of a workspace with their texts and their trust.

use std::path::Path;

use brigade_agent::definition::repository_of;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{DefinitionItem, ShowTrustReply, ShowTrustRequest};
use brigade_runtime::agents::DefinitionTrust;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ShowTrustRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ShowTrustReply, Refusal> {
        context.require_operator("see what is trusted")?;
        let trust = context.trust_store()?;
        let repository = repository_of(Path::new(&self.cwd));
        let texts = context.runtime().workspace_definitions(Some(&self.cwd))?;
        let definitions = texts.into_iter().map(|shown| DefinitionItem {
            trusted: trust.is_trusted(&repository, &shown.source.digest),
            name: shown.name,
            file: shown.source.file.display().to_string(),
            digest: shown.source.digest,
            text: shown.text,
        });
        let definitions = definitions.collect();
        Ok(ShowTrustReply { repository: repository.display().to_string(), definitions })
    }
}
