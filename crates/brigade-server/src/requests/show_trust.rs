//! Shows the definitions of a workspace whole, and which of them are trusted.

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
    /// The repository that trust is for: the directory that all its worktrees share, or the directory.
    pub repository: String,
    pub definitions: Vec<DefinitionItem>,
}

/// All that there is of a definition.
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
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ShowTrustReply, Refusal> {
        desk.require_operator("see what is trusted")?;
        let trust = desk.trust_store()?;
        let repository = repository_of(Path::new(&self.cwd));
        let texts = desk.runtime().workspace_definitions(Some(&self.cwd))?;
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
