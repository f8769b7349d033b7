//! A conversation as text, for whoever looks at it from outside.

use brigade_llm::conversation::Arguments;
use brigade_llm::{Content, Reply, ToolResult};
use brigade_model::call::{Answer, Entry};

use crate::news;
use crate::transcript::{Summary, label};

/// All that was said and done, in the order of the conversation.
pub fn as_text(task: &str, mut journal: Vec<Entry>) -> String {
    journal.sort_by_key(|entry| entry.index);
    let mut text = format!("[task]\n{task}\n");
    for entry in &journal {
        if let Some((who, said)) = paragraph(entry) {
            text.push_str(&format!("\n[{who}]\n{said}\n"));
        }
    }
    text
}

fn paragraph(entry: &Entry) -> Option<(String, String)> {
    match (&*entry.label, &*entry.answer) {
        (label::NEWS, Answer::Gathered(gathered)) => Some(("news".into(), news::text(gathered))),
        (label::MODEL, Answer::Value(value)) => {
            let reply: Reply = value.decode().ok()?;
            let said: Vec<String> = reply.message.content.iter().map(content).collect();
            Some(("assistant".into(), said.join("\n")))
        }
        (label::RESULT, Answer::Value(value)) => {
            let result: ToolResult = value.decode().ok()?;
            let failed = if result.failed { " failed" } else { "" };
            Some((format!("{}{failed}", result.name), result.text.to_string()))
        }
        (_, Answer::Verdict(verdict)) => Some(("approval".into(), verdict.to_string())),
        (label::NOTE, Answer::Value(value)) => Some(("note".into(), value.decode().ok()?)),
        (label::RUN, Answer::Value(value)) => Some((format!("run {value}"), String::new())),
        (label::SUMMARY, Answer::Value(value)) => {
            let summary: Summary = value.decode().ok()?;
            Some(("summary".into(), summary.text.to_string()))
        }
        _ => None,
    }
}

fn content(content: &Content) -> String {
    match content {
        Content::Text(text) => text.to_string(),
        Content::Reasoning(reasoning) => format!("(thinks) {}", reasoning.text),
        Content::Call(call) => match &call.arguments {
            Arguments::Json(arguments) => format!("-> {} {arguments}", call.name),
            Arguments::Malformed { problem } => format!("-> {} ({problem})", call.name),
        },
    }
}
