//! Shows the definitions of a workspace whole, and which of them are trusted.

use std::path::Path;

use brigade_agent::definition::{DefinitionDigest, repository_of};
use brigade_model::refusal::Refusal;
use brigade_runtime::agents::DefinitionTrust;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowTrust {
    pub cwd: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkspaceTrust {
    /// The repository that trust is for: the directory that all its worktrees share, or the directory.
    pub repository: String,
    pub definitions: Vec<DefinitionShown>,
}

/// All that there is of a definition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DefinitionShown {
    pub name: String,
    pub file: String,
    pub digest: DefinitionDigest,
    pub trusted: bool,
    pub text: String,
}

impl Ask for ShowTrust {
    type Done = WorkspaceTrust;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<WorkspaceTrust, Refusal> {
        desk.operator_only("see what is trusted")?;
        let trust = desk.trust()?;
        let repository = repository_of(Path::new(&self.cwd));
        let texts = desk.runtime().workspace_definitions(Some(&self.cwd))?;
        let definitions = texts.into_iter().map(|shown| DefinitionShown {
            trusted: trust.is_trusted(&repository, &shown.source.digest),
            name: shown.name,
            file: shown.source.file.display().to_string(),
            digest: shown.source.digest,
            text: shown.text,
        });
        let definitions = definitions.collect();
        Ok(WorkspaceTrust { repository: repository.display().to_string(), definitions })
    }
}
