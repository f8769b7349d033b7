//! Parses a script. Errors name the line, the problem and its solution.

use brigade_model::duration::parse_duration;
use std::str::FromStr;
use std::sync::Arc;

use brigade_model::suggestion::did_you_mean;

use super::script::{FaultKind, ScriptFault, ScriptItem, ScriptSection, ScriptTurn};
use crate::conversation::ToolArguments;
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{StopReason, TokenUsage};

/// An error in a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {problem}", line_suffix(*line))]
pub struct ScriptError {
    pub file: String,
    /// The line number, counted from 1; 0 is the whole file.
    pub line: usize,
    pub problem: String,
}

fn line_suffix(line: usize) -> String {
    if line == 0 { String::new() } else { format!(":{line}") }
}

const KEYWORDS: [&str; 13] = [
    "agent",
    "turn",
    "when",
    "repeat",
    "think",
    "say",
    "call",
    "malformed",
    "usage",
    "pace",
    "delay",
    "stop",
    "fault",
];
const FAULT_SYNTAX: &str =
    "a status such as 429 or 500, `hang`, `timeout`, `connection`, `garbage` or `cut N`";

pub(super) fn parse_sections(file: &str, text: &str) -> Result<Vec<ScriptSection>, ScriptError> {
    let mut parser = ScriptParser { text, offset: 0, line: 0, sections: Vec::new() };
    let parsed = parser.parse();
    let line = parser.line;
    parsed.map_err(|problem| ScriptError { file: file.to_owned(), line, problem })?;
    Ok(parser.sections)
}

/// A parser that reads line by line. `line` is the line of an error.
struct ScriptParser<'a> {
    text: &'a str,
    /// The offset of the next line.
    offset: usize,
    line: usize,
    sections: Vec<ScriptSection>,
}

impl<'a> ScriptParser<'a> {
    fn parse(&mut self) -> Result<(), String> {
        while let Some(line) = self.next_line() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim();
            match word {
                "agent" => self.parse_agent(rest)?,
                "turn" => self.parse_turn(rest)?,
                _ if self.sections.is_empty() => {
                    return Err(format!("a script begins with `agent NAME`, not with `{word}`"));
                }
                "pace" | "usage" if self.current_section()?.turns.is_empty() => {
                    self.parse_section_option(word, rest)?
                }
                _ if KEYWORDS.contains(&word) => self.parse_turn_line(word, rest)?,
                _ => {
                    let near = did_you_mean(word, KEYWORDS);
                    return Err(format!("`{word}` is not a keyword{near}"));
                }
            }
        }
        if self.sections.is_empty() {
            return Err("the script has no `agent`".to_owned());
        }
        self.check_section()
    }

    fn next_line(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.offset..];
        if rest.is_empty() {
            return None;
        }
        let line = rest.lines().next().unwrap_or_default();
        self.offset += rest.find('\n').map_or(rest.len(), |end| end + 1);
        self.line += 1;
        Some(line)
    }

    fn parse_agent(&mut self, name: &str) -> Result<(), String> {
        self.check_section()?;
        if name.is_empty() {
            return Err("name the agent: `agent NAME`, or `agent *` for all others".to_owned());
        }
        if name.strip_suffix('*').unwrap_or(name).contains('*') {
            return Err(format!("`{name}`: write `*` only at the end of a name"));
        }
        if self.sections.iter().any(|section| &*section.name == name) {
            return Err(format!("`agent {name}` appears twice; put its turns together"));
        }
        self.sections.push(ScriptSection { name: name.into(), ..ScriptSection::default() });
        Ok(())
    }

    fn parse_turn(&mut self, rest: &str) -> Result<(), String> {
        if !rest.is_empty() {
            return Err(format!("write `turn` alone on its line, and `{rest}` on the next"));
        }
        if self.sections.is_empty() {
            return Err("a script begins with `agent NAME`, not with `turn`".to_owned());
        }
        self.check_turn()?;
        let section = self.current_section()?;
        if section.turns.last().is_some_and(|turn| turn.repeats && turn.when.is_empty()) {
            return Err("never reached: the turn above repeats without a `when`".to_owned());
        }
        section.turns.push(ScriptTurn::new());
        Ok(())
    }

    fn current_section(&mut self) -> Result<&mut ScriptSection, String> {
        self.sections.last_mut().ok_or_else(|| "a script begins with `agent NAME`".to_owned())
    }

    fn check_section(&mut self) -> Result<(), String> {
        match self.sections.last() {
            Some(section) if section.turns.is_empty() => {
                Err(format!("`agent {}` has no `turn`", section.name))
            }
            Some(_) => self.check_turn(),
            None => Ok(()),
        }
    }

    fn check_turn(&mut self) -> Result<(), String> {
        match self.current_section()?.turns.last() {
            Some(turn) if turn.items.is_empty() && turn.faults.is_empty() => {
                Err("the turn above is empty; add a `say`, `call` or `fault`".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Parses an option for all turns of an agent.
    fn parse_section_option(&mut self, word: &str, rest: &str) -> Result<(), String> {
        let section = self.current_section()?;
        match word {
            "pace" => section.pace = Some(parse_duration(rest)?),
            _ => section.usage = Some(parse_usage(rest)?),
        }
        Ok(())
    }

    fn parse_turn_line(&mut self, word: &str, rest: &'a str) -> Result<(), String> {
        if self.current_section()?.turns.is_empty() {
            return Err(format!("`{word}` belongs to a turn; begin one with `turn`"));
        }
        if word == "call" {
            let call = self.parse_call(rest)?;
            self.last_turn()?.items.push(call);
            return Ok(());
        }
        let turn = self.last_turn()?;
        match word {
            "when" => turn.when.push(parse_condition(rest)?),
            "repeat" if rest.is_empty() => turn.repeats = true,
            "repeat" => return Err("write `repeat` alone on its line".to_owned()),
            "say" => append_text(&mut turn.items, rest, TextKind::Text),
            "think" => append_text(&mut turn.items, rest, TextKind::Thought),
            "malformed" => turn.items.push(parse_malformed_call(rest)?),
            "usage" => turn.usage = Some(parse_usage(rest)?),
            "pace" => turn.pace = Some(parse_duration(rest)?),
            "delay" => turn.items.push(ScriptItem::Delay(parse_duration(rest)?)),
            "stop" => turn.stop = parse_stop_reason(rest)?,
            _ => turn.faults.push(parse_fault(rest)?),
        }
        Ok(())
    }

    fn last_turn(&mut self) -> Result<&mut ScriptTurn, String> {
        let turn = self.current_section()?.turns.last_mut();
        turn.ok_or_else(|| "begin a turn with `turn`".to_owned())
    }

    /// Parses a call. Its JSON arguments may span several lines.
    fn parse_call(&mut self, rest: &'a str) -> Result<ScriptItem, String> {
        let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if name.is_empty() || name.contains(['{', '"']) {
            return Err("name the tool: `call NAME {\"argument\": \"value\"}`".to_owned());
        }
        let value = match arguments.trim() {
            "" => serde_json::Value::Object(serde_json::Map::new()),
            object if object.starts_with('{') => self.parse_json(object)?,
            other => return Err(format!("write the arguments as a JSON object, not `{other}`")),
        };
        Ok(ScriptItem::Call { name: name.into(), arguments: ToolArguments::Json(value) })
    }

    /// Parses the JSON value that starts at `start_text`, a part of the current line.
    fn parse_json(&mut self, start_text: &'a str) -> Result<serde_json::Value, String> {
        let start = start_text.as_ptr() as usize - self.text.as_ptr() as usize;
        let mut values = serde_json::Deserializer::from_str(&self.text[start..]).into_iter();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) if error.is_eof() => {
                return Err("close the braces of these arguments".to_owned());
            }
            Some(Err(error)) => {
                self.line += error.line().saturating_sub(1);
                return Err(format!("these arguments are not JSON: {error}"));
            }
            None => return Err("write the arguments as a JSON object".to_owned()),
        };
        let end = start + values.byte_offset();
        while self.offset < end {
            self.next_line();
        }
        let after = self.text[end..self.offset].trim();
        if !after.is_empty() {
            return Err(format!("remove `{after}` after the arguments"));
        }
        Ok(value)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Text,
    Thought,
}

/// Appends a line of text. Consecutive lines of one kind form one text.
fn append_text(items: &mut Vec<ScriptItem>, line: &str, kind: TextKind) {
    match (items.last_mut(), kind) {
        (Some(ScriptItem::Text(text)), TextKind::Text)
        | (Some(ScriptItem::Thought(text)), TextKind::Thought) => {
            *text = format!("{text}\n{line}").into();
        }
        (_, TextKind::Text) => items.push(ScriptItem::Text(line.into())),
        (_, TextKind::Thought) => items.push(ScriptItem::Thought(line.into())),
    }
}

/// Parses bare words, or a JSON string for text where white space or line ends matter.
fn parse_condition(text: &str) -> Result<Arc<str>, String> {
    let condition: String = if text.starts_with('"') {
        serde_json::from_str(text)
            .map_err(|_| format!("`{text}` starts with a quote but is not a JSON string"))?
    } else {
        text.to_owned()
    };
    if condition.is_empty() {
        return Err("give `when` a text from the last message or result".to_owned());
    }
    Ok(condition.into())
}

fn parse_malformed_call(rest: &str) -> Result<ScriptItem, String> {
    let (name, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.is_empty() {
        return Err("name the tool: `malformed NAME {\"cut off`".to_owned());
    }
    let problem = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => return Err(format!("`{text}` is valid JSON; use `call`")),
        Err(error) => error.to_string().into(),
    };
    Ok(ScriptItem::Call { name: name.into(), arguments: ToolArguments::Malformed { problem } })
}

fn parse_usage(text: &str) -> Result<TokenUsage, String> {
    let mut usage = TokenUsage::default();
    for field in text.split_whitespace() {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        let count = match name {
            "input" => &mut usage.input,
            "cached" => &mut usage.cached,
            "cache_written" => &mut usage.cache_written,
            "output" => &mut usage.output,
            _ => {
                let near = did_you_mean(name, ["input", "cached", "cache_written", "output"]);
                return Err(format!("`{name}` is not a kind of token{near}"));
            }
        };
        *count = parse_number(value)?;
    }
    if usage == TokenUsage::default() {
        return Err("give `usage` counts, such as `usage input=120 output=30`".to_owned());
    }
    Ok(usage)
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn parse_stop_reason(text: &str) -> Result<StopReason, String> {
    match text {
        "length" => Ok(StopReason::Length),
        "filtered" => Ok(StopReason::Filtered),
        _ => Err(format!("write `stop length` or `stop filtered`, not `{text}`")),
    }
}

/// Parses `KIND [after DURATION] [xN | always]`.
fn parse_fault(text: &str) -> Result<ScriptFault, String> {
    let mut words = text.split_whitespace();
    let kind = words.next().ok_or_else(|| format!("name the fault: {FAULT_SYNTAX}"))?;
    let mut fault = match kind {
        "hang" => FaultKind::Hang,
        "cut" => {
            let count = words.next().ok_or("give the number of words: `fault cut 3`")?;
            FaultKind::Cut { word_count: parse_number(count)? }
        }
        "timeout" => error_fault(ModelErrorKind::Timeout, "no answer in time (scripted)"),
        "connection" => {
            error_fault(ModelErrorKind::Connection, "the connection was refused (scripted)")
        }
        "garbage" => error_fault(ModelErrorKind::Garbage, "the reply is garbage (scripted)"),
        status => status_fault(status)?,
    };
    let mut times = 1;
    while let Some(word) = words.next() {
        match (word, &mut fault) {
            ("always", _) => times = u32::MAX,
            ("after", FaultKind::Error(error)) => {
                error.retry_after = Some(parse_duration(words.next().unwrap_or_default())?);
            }
            _ => {
                let count = word.strip_prefix('x').and_then(|count| count.parse().ok());
                times = count.ok_or_else(|| {
                    format!("`{word}` is not `x3`, `always`, or `after 2s` of an error")
                })?;
            }
        }
    }
    Ok(ScriptFault { kind: fault, times })
}

fn error_fault(kind: ModelErrorKind, message: &str) -> FaultKind {
    FaultKind::Error(ModelError::new(kind, message))
}

fn status_fault(text: &str) -> Result<FaultKind, String> {
    let status = text.parse::<u16>().map_err(|_| {
        let near = did_you_mean(text, ["hang", "timeout", "connection", "garbage", "cut"]);
        format!("`{text}` is not a fault{near}; use {FAULT_SYNTAX}")
    })?;
    let kind = match status {
        429 => ModelErrorKind::RateLimited,
        401 | 403 => ModelErrorKind::Auth,
        402 => ModelErrorKind::Exhausted,
        408 => ModelErrorKind::Timeout,
        413 => ModelErrorKind::TooLong,
        400..=499 => ModelErrorKind::Invalid,
        500..=599 => ModelErrorKind::Server,
        _ => return Err(format!("{status} is not the status of an error (400 to 599)")),
    };
    let error = ModelError::new(kind, format!("status {status} (scripted)"));
    Ok(FaultKind::Error(ModelError { status: Some(status), ..error }))
}

#[cfg(test)]
mod tests;
