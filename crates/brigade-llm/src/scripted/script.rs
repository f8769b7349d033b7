//! The contents of a script.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::parse::{self, ScriptError};
use crate::conversation::ToolArguments;
use crate::error::ModelError;
use crate::model::{StopReason, TokenUsage};

/// The maximum size of a script file in bytes.
const SIZE_MAX: u64 = 4 * 1024 * 1024;

/// The turns of all agents.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    file: Arc<str>,
    sections: Vec<ScriptSection>,
    /// The sections whose name is not a pattern.
    exact: HashMap<Arc<str>, usize>,
}

impl Script {
    /// Parses a script; errors refer to it as `file`.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScriptError> {
        let sections = parse::parse_sections(file, text)?;
        let named = sections.iter().enumerate().filter(|(_, section)| !section.is_pattern());
        let exact = named.map(|(at, section)| (Arc::clone(&section.name), at)).collect();
        Ok(Self { file: file.into(), sections, exact })
    }

    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let file = path.display().to_string();
        let file_error = |problem: String| ScriptError { file: file.clone(), line: 0, problem };
        let size = std::fs::metadata(path).map_err(|error| file_error(error.to_string()))?.len();
        if size > SIZE_MAX {
            return Err(file_error(format!(
                "the script has {size} bytes; shorten it to {SIZE_MAX}"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| file_error(error.to_string()))?;
        Self::parse(&file, &text)
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the section with exactly this name, or else with the longest matching pattern.
    pub(super) fn find_section(&self, agent: &str) -> Option<&ScriptSection> {
        if let Some(at) = self.exact.get(agent) {
            return self.sections.get(*at);
        }
        let matching = self.sections.iter().filter(|section| section.matches_pattern(agent));
        matching.max_by_key(|section| section.name.len())
    }
}

/// The turns of one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ScriptSection {
    /// The agent's name, or a prefix and a `*`.
    pub(super) name: Arc<str>,
    pub(super) turns: Vec<ScriptTurn>,
    /// The pace of turns without their own.
    pub(super) pace: Option<Duration>,
    pub(super) usage: Option<TokenUsage>,
}

impl ScriptSection {
    fn is_pattern(&self) -> bool {
        self.name.ends_with('*')
    }

    fn matches_pattern(&self, agent: &str) -> bool {
        self.name.strip_suffix('*').is_some_and(|prefix| agent.starts_with(prefix))
    }
}

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScriptTurn {
    /// Texts that must all be in the input since the last reply.
    pub(super) when: Vec<Arc<str>>,
    /// True if the turn may be played more than once.
    pub(super) repeats: bool,
    pub(super) items: Vec<ScriptItem>,
    pub(super) usage: Option<TokenUsage>,
    pub(super) pace: Option<Duration>,
    pub(super) stop: StopReason,
    /// The faults to play, in this order, before the reply.
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
    /// The number of times, in this process and for each agent.
    pub times: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Error(ModelError),
    /// No part ever arrives.
    Hang,
    /// The connection is lost after this number of words of the reply.
    Cut {
        word_count: usize,
    },
}
