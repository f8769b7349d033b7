//! How news reach a conversation: marked as what they are, so that the words of a task are never
//! taken for those of the user.

use brigade_model::call::{Ending, Gathered};
use brigade_model::json::Json;
use brigade_model::message::{Message, Purpose, Sender};
use brigade_model::outcome::{Late, Outcome};
use serde::Deserialize;

/// How much of one result or message is shown. The rest is read by its address.
pub const SHOWN: usize = 8 * 1024;

/// All that came, as one text.
pub fn text(news: &Gathered) -> String {
    let messages = news.messages.iter().map(|message| message_text(message));
    let endings = news.endings.iter().map(ending_text);
    messages.chain(endings).collect::<Vec<_>>().join("\n\n")
}

fn message_text(message: &Message) -> String {
    let body = clipped(&plain(&message.body), "The message", "");
    match &message.from {
        // Who set the task may change it: these are the user's words.
        Sender::Operator | Sender::Client => body,
        Sender::Parent(no) => {
            format!("Your parent (task {no}), who gave you this work, says:\n{body}")
        }
        Sender::Child(no) => match message.purpose {
            Purpose::Note => quoted("message", &format!("from=\"task {no}\""), &body),
            Purpose::Question(_) => {
                let about = format!(
                    "from=\"task {no}\" answer_with=\"send_message, to {no}, reply_to {}\"",
                    message.no
                );
                quoted("question", &about, &body)
            }
        },
    }
}

/// How a task ended, with what it had to say.
pub fn ending_text(ending: &Ending) -> String {
    let address = format!("{}:{}", ending.kind, ending.no);
    let name = ending.name.as_ref().map_or_else(String::new, |name| format!(" name=\"{name}\""));
    let about = format!("task=\"{address}\"{name} outcome=\"{}\"", attribute(&ending.outcome));
    let read_on = format!("read_output, task {address:?}");
    let body = match &*ending.outcome {
        Outcome::Succeeded { result } => result_text(result),
        Outcome::Failed(failed) => failed.partial.as_ref().map_or_else(String::new, result_text),
        Outcome::Cancelled(cancelled) => match &cancelled.late {
            Some(Late::Result(result)) => result_text(result),
            Some(Late::Failure(failure)) => failure.to_string(),
            None => String::new(),
        },
    };
    quoted("result", &about, &clipped(&body, "The result", &read_on))
}

fn attribute(outcome: &Outcome) -> String {
    outcome.to_string().replace('"', "'").replace('\n', " ")
}

/// What a task has to say, marked as data. It cannot end its own mark.
fn quoted(mark: &str, about: &str, body: &str) -> String {
    let body = body.replace(&format!("</{mark}"), &format!("<\\/{mark}"));
    format!("<{mark} {about}>\n{body}\n</{mark}>")
}

/// The head of a long text, and how to get at the rest.
pub fn clipped(text: &str, what: &str, read_on: &str) -> String {
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(SHOWN)];
    let how = if read_on.is_empty() { String::new() } else { format!(" Read on with {read_on}.") };
    format!("{head}\n[{what} is cut: {} of {} bytes are shown.{how}]", head.len(), text.len())
}

/// A result as text: words as they are, the report of a command in short, anything else as JSON.
pub fn result_text(result: &Json) -> String {
    #[derive(Deserialize)]
    struct CommandReport {
        exit_code: Option<i32>,
        signal: Option<i32>,
        stdout_bytes: u64,
        stderr_bytes: u64,
        tail: String,
    }
    let Ok(report) = result.decode::<CommandReport>() else { return plain(result) };
    let how = match (report.exit_code, report.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    let bytes = report.stdout_bytes.saturating_add(report.stderr_bytes);
    match (report.tail.is_empty(), bytes > report.tail.len() as u64) {
        (true, _) => format!("{how}, no output"),
        (false, true) => format!(
            "{how}; the last {} of {bytes} bytes of output:\n{}",
            report.tail.len(),
            report.tail
        ),
        (false, false) => format!("{how}\n{}", report.tail),
    }
}

fn plain(json: &Json) -> String {
    json.decode::<String>().unwrap_or_else(|_| json.as_str().to_owned())
}
