//! `show_trust`: shows the definitions of a workspace with their texts and their trust.

use std::path::Path;

use brigade_agent::definition::{DefinitionDigest, repository_of};
use brigade_model::refusal::Refusal;
use brigade_runtime::agents::DefinitionTrust;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowTrustRequest {
    pub cwd: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowTrustReply {
    /// The repository that the trust covers: the directory that all its worktrees share, or the
    /// workspace itself.
    pub repository: String,
    pub definitions: Vec<DefinitionItem>,
}

/// A definition with its whole text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DefinitionItem {
    pub name: String,
    pub file: String,
    pub digest: DefinitionDigest,
    pub trusted: bool,
    pub text: String,
}

impl Call for ShowTrustRequest {
    type Reply = ShowTrustReply;
    type Item = NoItems;

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
