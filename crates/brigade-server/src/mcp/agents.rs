//! How agents look to a model: what they are at, what they ask, what came of them.

use brigade_agent::Progress;
use brigade_agent::news::{SHOWN, clipped, result_text};
use brigade_model::json::Json;
use serde_json::{Value, json};

use super::text;
use super::tool::{Answer, Call};
use crate::info::TaskInfo;
use crate::requests::{Note, PendingInfo};

const WORDS_SHOWN: usize = 200;
/// A longer result is there in parts, by read_output.
const RESULT_BYTES: usize = 64 * 1024;

fn progress(info: &TaskInfo) -> Option<Progress> {
    info.progress.as_ref()?.decode().ok()
}

/// `step 3, thinking, 1200 tokens, $0.02`; nothing of what is not known.
pub(super) fn standing(info: &TaskInfo) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(at) = progress(info).filter(|_| info.living) {
        if at.step > 0 {
            parts.push(format!("step {}", at.step));
        }
        parts.push(at.doing);
    }
    if info.stalled {
        parts.push(format!("stalled: nothing happened for {}", text::span(text::quiet(info))));
    }
    if info.usage.tokens > 0 {
        parts.push(format!("{} tokens", info.usage.tokens));
    }
    if info.usage.money.0 > 0 {
        parts.push(format!("${:.2}", dollars(info)));
    }
    parts.retain(|part| !part.is_empty());
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn dollars(info: &TaskInfo) -> f64 {
    info.usage.money.0 as f64 / 1e6
}

/// Where it is, in a line: for a client that only looks on.
pub(super) fn glance(info: &TaskInfo) -> Option<String> {
    if let Some(approval) = info.approvals.first() {
        return Some(format!("waits for leave: {}", text::clip(&approval.text, WORDS_SHOWN)));
    }
    if let Some(question) = info.questions.first() {
        let asked = text::clip(&question.text, WORDS_SHOWN);
        return Some(format!("{}: {asked}", question.verb()));
    }
    let words = words(info).map(|words| format!(": {words}")).unwrap_or_default();
    standing(info).map(|standing| format!("{standing}{words}"))
}

/// What it said last.
fn words(info: &TaskInfo) -> Option<String> {
    let words = progress(info)?.words;
    (!words.trim().is_empty()).then(|| text::clip(words.trim(), WORDS_SHOWN))
}

/// What it says and asks, for a list.
pub(super) fn remarks(call: &Call, info: &TaskInfo) -> Vec<String> {
    if !info.living {
        return Vec::new();
    }
    let says = words(info).map(|words| format!("  says: {words}"));
    says.into_iter().chain(leave(call, info)).chain(asks(call, info)).collect()
}

/// What it waits for leave to do, and that only the user can give it.
fn leave(call: &Call, info: &TaskInfo) -> Option<String> {
    let address = call.address(info);
    let lines = info.approvals.iter().map(|one| {
        let (text, call) = (text::clip(&one.text, WORDS_SHOWN), one.call);
        format!(
            "  waits for leave: {text}. Only the user can give it: `brigade approve {address} {call}`"
        )
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The calls of sub-agents that wait for the user, and what the user has to do.
pub(super) fn approvals(call: &Call, pending: &[PendingInfo]) -> Option<String> {
    let lines = pending.iter().map(|one| {
        let name = one.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let text = text::clip(&one.approval.text, WORDS_SHOWN);
        let command = approve_command(call, one);
        format!(
            "{}{name} waits for the user to approve: {text}. Only the user can: ask for \
             `{command}` in a terminal, then wait again.",
            one.address
        )
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn approve_command(call: &Call, pending: &PendingInfo) -> String {
    let PendingInfo { session, address, approval, .. } = pending;
    let address = match *session == call.options.session {
        true => address.clone(),
        false => format!("{session}/{address}"),
    };
    format!("brigade approve {address} {}", approval.call)
}

/// The same for a program.
pub(super) fn add_approvals(structured: &mut Value, call: &Call, pending: &[PendingInfo]) {
    if !pending.is_empty() {
        let approvals = pending.iter().map(|one| {
            json!({
                "address": one.address,
                "call": one.approval.call,
                "text": text::clip(&one.approval.text, WORDS_SHOWN),
                "user_command": approve_command(call, one),
            })
        });
        structured["approvals"] = approvals.collect();
    }
}

/// Its open questions, and how they are answered.
pub(super) fn asks(call: &Call, info: &TaskInfo) -> Option<String> {
    let address = call.address(info);
    let how = match info.questions.as_slice() {
        [] => return None,
        [_] => format!("Answer with send_message, to {address:?}; until then it waits."),
        _ => format!("Answer each with send_message, to {address:?}, with its question number."),
    };
    let mut lines: Vec<String> = Vec::new();
    for question in &info.questions {
        let asked = clipped(&question.text, SHOWN, "The question", &read_on(&address));
        lines.push(format!("It {} (question {}): {asked}", question.verb(), question.call));
    }
    lines.push(how);
    Some(lines.join("\n"))
}

fn read_on(address: &str) -> String {
    format!("read_output, task {address:?}")
}

/// What tasks said to this client: data, whoever it comes from.
pub(super) fn notes(notes: &[Note]) -> (Vec<String>, Value) {
    let lines = notes.iter().map(|note| {
        let name = note.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let text = clipped(&note.text, SHOWN, "The note", &read_on(&note.from));
        format!("{}{name} says: {text}", note.from)
    });
    let values = notes.iter().map(|note| {
        json!({ "number": note.number, "from": note.from, "name": note.name, "text": note.text })
    });
    (lines.collect(), values.collect())
}

/// How it ended, with its result. Its own failure is a result like any other.
pub(super) fn ended(call: &Call, info: &TaskInfo) -> Answer {
    let mut text = text::headline(call, info);
    if let Some(result) = &info.result {
        let read_on = read_on(&call.address(info));
        text.push_str(&format!(
            "\n{}",
            clipped(&result_text(result), SHOWN, "The result", &read_on)
        ));
    }
    let mut structured = text::structured(call, info);
    if let Some(result) = &info.result {
        structured["result"] = value(result);
    }
    Answer::Said { text, structured }
}

fn value(result: &Json) -> Value {
    let whole = (result.as_str().len() <= RESULT_BYTES).then(|| result.decode().ok()).flatten();
    whole
        .unwrap_or_else(|| json!(clipped(&result_text(result), SHOWN, "The result", "read_output")))
}

/// What a program reads of it beside what it reads of every task.
pub(super) fn add_to(structured: &mut Value, info: &TaskInfo) {
    if let Some(at) = progress(info) {
        structured["step"] = json!(at.step);
        if info.living {
            structured["doing"] = json!(at.doing);
        }
        structured["last_words"] = json!(words(info));
    }
    if info.living {
        structured["quiet_ms"] = json!(text::quiet(info));
        structured["stalled"] = json!(info.stalled);
    }
    structured["usage"] = json!({ "tokens": info.usage.tokens, "dollars": dollars(info) });
    if info.own_usage != info.usage {
        structured["usage"]["own_tokens"] = json!(info.own_usage.tokens);
    }
    if !info.unknown_usage.is_none() {
        structured["usage"]["at_most_tokens_unknown"] = json!(info.unknown_usage.tokens);
    }
    if !info.approvals.is_empty() {
        let approvals = info.approvals.iter();
        let approvals = approvals.map(|one| json!({ "call": one.call, "text": one.text }));
        structured["waits_for_leave"] = approvals.collect();
    }
    if !info.questions.is_empty() {
        let questions = info.questions.iter();
        let questions = questions.map(|one| {
            let mut told = json!({ "question": one.call, "text": one.text });
            if let Some(client) = &one.client {
                told["client"] = value(client);
            }
            told
        });
        structured["questions"] = questions.collect();
    }
}
