//! Renders a whole call for the person who decides on it.
//!
//! ```text
//! command │ cargo publish --token x⏎
//!         │ echo done
//! cwd     │ /home/me/soup
//! env     │ PATH=/tmp/bin
//! with    │ background = true
//! ```
//!
//! Every line of foreign text follows a mark of ours and is shown exactly.

use std::fmt;

use serde_json::{Map, Value};

use super::ApprovalRequest;
use crate::plain_text::PlainText;
use crate::truncate::MARKER;

/// The length of a summary, on which nobody decides.
const SUMMARY_LETTERS: usize = 400;

/// A whole call, as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCard {
    tool: PlainText,
    lines: Vec<CardLine>,
}

/// A line of a card: the part of the call, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardLine {
    /// The name of the part. Empty in its further lines.
    pub label: &'static str,
    pub text: PlainText,
}

impl CardLine {
    /// The mark in front of all foreign text.
    pub const MARK: &'static str = "│ ";
    /// The mark in front of the continuation of a wrapped line.
    pub const MARK_WRAPPED: &'static str = "┊ ";
    /// The width of the longest label in columns.
    pub const LABEL_COLUMNS: usize = 8;
}

impl fmt::Display for CardLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<2$}{}", self.label, Self::MARK, Self::LABEL_COLUMNS)?;
        f.write_str(self.text.as_str())
    }
}

impl CallCard {
    /// Creates a card of a tool call from its arguments as JSON and its directory.
    pub fn of(tool: &str, arguments: &str, directory: Option<&str>) -> Self {
        let mut card = Self { tool: PlainText::line(tool), lines: Vec::new() };
        if let Ok(Value::Object(arguments)) = serde_json::from_str(arguments) {
            card.add_arguments(arguments, directory);
        } else {
            card.add_directory(directory);
            card.add("with", "", arguments);
        }
        card
    }

    pub fn tool(&self) -> &PlainText {
        &self.tool
    }

    pub fn lines(&self) -> &[CardLine] {
        &self.lines
    }

    /// Truncates a long card in the middle, and each of its long lines, with the number of omitted
    /// bytes. Use it only for displays on which nobody decides.
    #[must_use]
    pub fn truncate_middle(&self, max: usize) -> Self {
        const LETTERS: usize = 120;
        let short = |line: &CardLine| {
            let text = PlainText::truncate_middle(line.text.as_str(), LETTERS);
            CardLine { text, ..line.clone() }
        };
        let tool = self.tool.clone();
        if self.lines.len() <= max {
            return Self { tool, lines: self.lines.iter().map(short).collect() };
        }
        let tail = max / 3;
        let head = max - tail;
        let between = &self.lines[head..self.lines.len() - tail];
        let bytes: usize = between.iter().map(|line| line.text.as_str().len()).sum();
        let omitted = format!("[{bytes} bytes in {} lines]", between.len());
        let omitted = CardLine { label: MARKER, text: PlainText::line(&omitted) };
        let first = self.lines[..head].iter().map(short);
        let last = self.lines[self.lines.len() - tail..].iter().map(short);
        Self { tool, lines: first.chain([omitted]).chain(last).collect() }
    }

    fn add_arguments(&mut self, mut arguments: Map<String, Value>, directory: Option<&str>) {
        match arguments.remove("command") {
            Some(Value::String(command)) => self.add("command", "", &command),
            Some(other) => drop(arguments.insert("command".to_owned(), other)),
            None => (),
        }
        self.add_directory(directory);
        // The line above shows the resolved directory.
        if let (Some(directory), Some(Value::String(cwd))) = (directory, arguments.get("cwd"))
            && directory.ends_with(cwd.as_str())
        {
            arguments.remove("cwd");
        }
        match arguments.remove("env") {
            Some(Value::Object(variables)) => self.add_variables(variables),
            Some(other) => drop(arguments.insert("env".to_owned(), other)),
            None => (),
        }
        for (name, value) in arguments {
            let name = quote_name(&name);
            match value {
                Value::String(text) => self.add("with", &format!("{name}: "), &text),
                other => self.add("with", &format!("{name} = "), &other.to_string()),
            }
        }
    }

    fn add_directory(&mut self, directory: Option<&str>) {
        if let Some(directory) = directory {
            self.add("cwd", "", directory);
        }
    }

    fn add_variables(&mut self, variables: Map<String, Value>) {
        let mut variables: Vec<(String, Value)> = variables.into_iter().collect();
        variables.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, value) in variables {
            let name = quote_name(&name);
            match value {
                Value::String(text) => self.add("env", &format!("{name}="), &text),
                other => self.add("env", &format!("{name} = "), &other.to_string()),
            }
        }
    }

    fn add(&mut self, label: &'static str, before: &str, text: &str) {
        let texts = PlainText::exact(&format!("{before}{text}"));
        let labels = std::iter::once(label).chain(std::iter::repeat(""));
        self.lines.extend(labels.zip(texts).map(|(label, text)| CardLine { label, text }));
    }
}

/// Renders the tool, then each line.
impl fmt::Display for CallCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tool)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// Returns a name as it is, or quoted if it could be misread.
fn quote_name(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_owned();
    }
    Value::String(name.to_owned()).to_string()
}

/// Renders a call in one line, such as `run_process(cargo publish) in /tmp with PATH`. The command
/// always comes first.
pub(super) fn render_summary(request: &ApprovalRequest) -> PlainText {
    let tool = &request.tool;
    let arguments = serde_json::from_str::<Map<String, Value>>(&request.arguments.text);
    let arguments = arguments.unwrap_or_default();
    let text = match (arguments.get("command"), &request.subject) {
        (Some(Value::String(command)), Some(_)) => {
            let directory = request.directory.as_deref().filter(|_| arguments.contains_key("cwd"));
            let directory = directory.map(|directory| format!(" in {directory}"));
            let variables: Vec<&str> = match arguments.get("env") {
                Some(Value::Object(variables)) => variables.keys().map(String::as_str).collect(),
                _ => Vec::new(),
            };
            let separator = if variables.is_empty() { "" } else { " with " };
            let details =
                format!("{}{separator}{}", directory.unwrap_or_default(), variables.join(", "));
            let details = PlainText::truncate_middle(&details, SUMMARY_LETTERS / 2);
            let command = PlainText::truncate_middle(command, SUMMARY_LETTERS);
            return PlainText::line(&format!("{tool}({command}){details}"));
        }
        (_, Some(subject)) => format!("{tool}({})", subject.text),
        (_, None) => format!("{tool} {}", request.arguments.text),
    };
    PlainText::truncate_middle(&text, SUMMARY_LETTERS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn card(arguments: &Value, directory: Option<&str>) -> String {
        CallCard::of("run_process", &arguments.to_string(), directory).to_string()
    }

    #[test]
    fn the_command_comes_first_and_every_line_has_our_mark() {
        let forged = "ls\n\n  (the caller asks about run_process)\n  y: once, a: always\n> ";
        let arguments = json!({
            "background": true, "command": forged, "cwd": "sub", "name": "x",
            "env": { "PATH": "/tmp/a  b", "A B": "1" },
        });
        let expect = "\
run_process
command │ ls⏎
        │ ⏎
        │ ··(the caller asks about run_process)⏎
        │ ··y: once, a: always⏎
        │ >·
cwd     │ /soup/sub
env     │ \"A B\"=1
env     │ PATH=/tmp/a··b
with    │ background = true
with    │ name: x";
        assert_eq!(card(&arguments, Some("/soup/sub")), expect);
    }

    #[test]
    fn a_long_argument_hides_nothing() {
        let arguments = json!({ "command": "rm -rf x", "env": { "AAAA": "a".repeat(9_000) } });
        let shown = card(&arguments, Some("/soup"));
        assert!(
            shown.starts_with("run_process\ncommand │ rm -rf x\ncwd     │ /soup\nenv     │ AAAA=")
        );
        assert!(shown.ends_with("aaa"), "all of it is there");
    }

    #[test]
    fn a_truncated_card_has_its_head_and_its_tail() {
        let command: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        let call = json!({ "command": command.join("\n") }).to_string();
        let elided = CallCard::of("run_process", &call, None).truncate_middle(6);
        let lines: Vec<String> = elided.lines().iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "command │ line 0⏎");
        assert_eq!(lines[4], "…       │ [934 bytes in 94 lines]");
        assert_eq!(lines[6], "        │ line 99");
    }

    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[ab=: ]{0,4}",
            Just("\n".to_owned()),
            Just("\ncwd     │ /".to_owned()),
            Just("\u{1b}[1A".to_owned()),
            Just("\u{e0061}".to_owned()),
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
    }

    /// Returns texts so similar that different calls could often be mistaken for each other.
    fn similar_text() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "",
            "a",
            "a: a",
            "a = true",
            "true",
            "\n",
            "\nenv     │ a=a",
            "a=a",
        ])
        .prop_map(str::to_owned)
    }

    fn any_call<T: Strategy<Value = String> + 'static>(
        text: fn() -> T,
    ) -> impl Strategy<Value = (Value, Option<String>)> {
        let key = prop_oneof![Just("command".to_owned()), Just("cwd".to_owned()), text()];
        let value = prop_oneof![
            text().prop_map(Value::String),
            any::<bool>().prop_map(Value::Bool),
            Just(json!(["a"])),
        ];
        let variables = prop::collection::btree_map(text(), text(), 0..3);
        let arguments = prop::collection::btree_map(key, value, 0..3);
        (arguments, prop::option::of(variables), prop::option::of(text())).prop_map(
            |(arguments, variables, directory)| {
                let mut arguments: Map<String, Value> = arguments.into_iter().collect();
                if let Some(variables) = variables {
                    arguments.insert("env".to_owned(), json!(variables));
                }
                (Value::Object(arguments), directory)
            },
        )
    }

    proptest! {
        #[test]
        fn different_calls_look_different(
            one in any_call(similar_text), other in any_call(similar_text),
        ) {
            let cards = [card(&one.0, one.1.as_deref()), card(&other.0, other.1.as_deref())];
            // A card shows the resolved directory, not how it was written.
            let normal = |(call, directory): (Value, Option<String>)| {
                let mut call = call;
                let is_resolved = |cwd: &Value| {
                    let (Some(directory), Some(cwd)) = (&directory, cwd.as_str()) else { return false };
                    directory.ends_with(cwd)
                };
                if let Some(call) = call.as_object_mut() {
                    if call.get("cwd").is_some_and(is_resolved) {
                        call.remove("cwd");
                    }
                    if call.get("env") == Some(&json!({})) {
                        call.remove("env");
                    }
                }
                (call, directory)
            };
            if cards[0] == cards[1] {
                prop_assert_eq!(normal(one), normal(other));
            }
        }

        #[test]
        fn a_card_has_nothing_hidden_and_only_marked_lines((call, directory) in any_call(any_text)) {
            let card = card(&call, directory.as_deref());
            for line in card.lines().skip(1) {
                let mark = line.chars().skip(CardLine::LABEL_COLUMNS).take(2).collect::<String>();
                prop_assert_eq!(mark, CardLine::MARK);
                prop_assert_eq!(PlainText::line(line).into_string(), line.to_owned());
            }
        }
    }
}
