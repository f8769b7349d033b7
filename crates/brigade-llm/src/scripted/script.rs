//! What a script says.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::parse::{self, ScriptError};
use crate::conversation::ToolArguments;
use crate::error::ModelError;
use crate::model::{StopReason, TokenUsage};

/// The largest script that is read.
const SIZE_MAX: u64 = 4 * 1024 * 1024;

/// The turns of all agents.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    file: Arc<str>,
    sections: Vec<ScriptSection>,
    /// Sections whose name is no pattern.
    exact: HashMap<Arc<str>, usize>,
}

impl Script {
    /// Reads a script; `file` is what errors call it.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScriptError> {
        let sections = parse::parse_sections(file, text)?;
        let named = sections.iter().enumerate().filter(|(_, section)| !section.is_pattern());
        let exact = named.map(|(at, section)| (Arc::clone(&section.name), at)).collect();
        Ok(Self { file: file.into(), sections, exact })
    }

    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let file = path.display().to_string();
        let wrong = |problem: String| ScriptError { file: file.clone(), line: 0, problem };
        let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if size > SIZE_MAX {
            return Err(wrong(format!("{size} bytes are too many; {SIZE_MAX} is the most")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&file, &text)
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The section of exactly this name, else the longest pattern that fits.
    pub(super) fn find_section(&self, asker: &str) -> Option<&ScriptSection> {
        if let Some(at) = self.exact.get(asker) {
            return self.sections.get(*at);
        }
        let fitting = self.sections.iter().filter(|section| section.matches_pattern(asker));
        fitting.max_by_key(|section| section.name.len())
    }
}

/// What one agent says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ScriptSection {
    /// The agent's name, or its beginning and a `*`.
    pub(super) name: Arc<str>,
    pub(super) turns: Vec<ScriptTurn>,
    /// For turns that have none of their own.
    pub(super) pace: Option<Duration>,
    pub(super) usage: Option<TokenUsage>,
}

impl ScriptSection {
    fn is_pattern(&self) -> bool {
        self.name.ends_with('*')
    }

    fn matches_pattern(&self, asker: &str) -> bool {
        self.name.strip_suffix('*').is_some_and(|beginning| asker.starts_with(beginning))
    }
}

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScriptTurn {
    /// All of these must be in what was said to the agent last.
    pub(super) when: Vec<Arc<str>>,
    /// Whether it may be said more than once.
    pub(super) repeats: bool,
    pub(super) items: Vec<ScriptItem>,
    pub(super) usage: Option<TokenUsage>,
    pub(super) pace: Option<Duration>,
    pub(super) stop: StopReason,
    /// What happens instead, in this order, before the reply comes.
    pub(super) faults: Vec<ScriptFault>,
}

impl ScriptTurn {
    pub(super) fn new() -> Self {
        Self {
            when: Vec::new(),
            repeats: false,
            items: Vec::new(),
            usage: None,
            pace: None,
            stop: StopReason::EndOfTurn,
            faults: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptItem {
    Text(Arc<str>),
    Thought(Arc<str>),
    Call { name: Arc<str>, arguments: ToolArguments },
    Delay(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFault {
    pub kind: FaultKind,
    /// How often, in this process and for each asker.
    pub times: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Error(ModelError),
    /// Nothing comes, ever.
    Hang,
    /// The connection is lost after so many words of the reply.
    Cut {
        word_count: usize,
    },
}
