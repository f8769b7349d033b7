//! Gemini's `streamGenerateContent`.

use serde_json::{Value, json};

use super::chat::{Read, number};
use super::{WireFault, add_result, called, data, joined, list, pieces, text_of, tool};
use crate::conversation::{
    Arguments, AssistantMessage, Content, Message, Reasoning, ToolCall, ToolResult,
};
use crate::model::{Reply, StopReason};

pub(super) fn read(body: &Value) -> Read {
    let system = body.get("systemInstruction").or_else(|| body.get("system_instruction"));
    let mut read = Read {
        system: system.map(|system| joined(&system["parts"])).unwrap_or_default(),
        max_output: number(body, "/generationConfig/maxOutputTokens"),
        ..Read::default()
    };
    let declared = list(body, "tools").flat_map(|tools| list(tools, "functionDeclarations"));
    read.tools = declared
        .map(|spec| match spec.get("parametersJsonSchema") {
            Some(_) => tool(spec, "parametersJsonSchema"),
            None => tool(spec, "parameters"),
        })
        .collect();
    for message in list(body, "contents") {
        if message["role"] == "model" {
            let content = list(message, "parts").filter_map(part).collect();
            let said = AssistantMessage { content, opaque: Value::Null };
            read.messages.push(Message::Assistant(said.into()));
            continue;
        }
        for part in list(message, "parts") {
            match part.get("functionResponse") {
                Some(answer) => add_result(&mut read.messages, result(answer)),
                None => read.messages.push(Message::user(text_of(part, "text"))),
            }
        }
    }
    // Results name their tool here, and calls need no id.
    for at in 0..read.messages.len() {
        let (before, rest) = read.messages.split_at_mut(at);
        if let Message::Results(results) = &mut rest[0] {
            for result in results.iter_mut().filter(|result| result.name.is_empty()) {
                result.name = called(before, &result.id);
            }
        }
    }
    read
}

fn result(answer: &Value) -> ToolResult {
    let response = &answer["response"];
    let failed = response.get("error").is_some();
    let said = response.get("error").or_else(|| response.get("result")).unwrap_or(response);
    let text = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
    ToolResult {
        id: text_of(answer, "id").into(),
        name: text_of(answer, "name").into(),
        text: text.into(),
        failed,
    }
}

fn part(part: &Value) -> Option<Content> {
    if let Some(call) = part.get("functionCall") {
        return Some(Content::Call(ToolCall {
            id: text_of(call, "id").into(),
            name: text_of(call, "name").into(),
            arguments: Arguments::Json(call["args"].clone()),
            opaque: part.clone(),
        }));
    }
    let text = part.get("text")?.as_str()?;
    Some(match part["thought"] == true {
        true => Content::Reasoning(Reasoning { text: text.into(), opaque: part.clone() }),
        false => Content::Text(text.into()),
    })
}

pub(super) fn frames(model: &str, reply: &Reply) -> Vec<String> {
    let chunk = |parts: Value| {
        data(&json!({
            "candidates": [{ "index": 0, "content": { "role": "model", "parts": parts } }],
            "modelVersion": model, "responseId": "r1",
        }))
    };
    let mut frames = Vec::new();
    for content in &reply.message.content {
        match content {
            Content::Text(text) => {
                frames.extend(pieces(text).map(|text| chunk(json!([{ "text": text }]))));
            }
            Content::Reasoning(thought) => {
                let words = pieces(&thought.text);
                frames.extend(words.map(|text| chunk(json!([{ "text": text, "thought": true }]))));
                frames.push(chunk(
                    json!([{ "text": "", "thought": true, "thoughtSignature": "c2lnbmVk" }]),
                ));
            }
            Content::Call(call) => {
                let args = match &call.arguments {
                    Arguments::Json(args) => args.clone(),
                    Arguments::Malformed { .. } => json!(["/et"]),
                };
                let mut function = json!({ "name": call.name, "args": args });
                if !call.id.is_empty() {
                    function["id"] = json!(call.id);
                }
                frames.push(chunk(
                    json!([{ "functionCall": function, "thoughtSignature": "Y2FsbA==" }]),
                ));
            }
        }
    }
    let finish = match reply.stop {
        StopReason::EndOfTurn => "STOP",
        StopReason::Length => "MAX_TOKENS",
        StopReason::Filtered => "SAFETY",
    };
    let usage = &reply.usage;
    frames.push(data(&json!({
        "candidates": [{ "index": 0, "content": { "role": "model", "parts": [{ "text": "" }] }, "finishReason": finish }],
        "usageMetadata": {
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.total(),
        },
        "modelVersion": model, "responseId": "r1",
    })));
    frames
}

pub(super) fn failure(fault: WireFault) -> String {
    let (code, status, text) = match fault {
        WireFault::Overloaded => (503, "UNAVAILABLE", "The model is overloaded."),
        WireFault::RateLimited => (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    };
    data(&json!({ "error": { "code": code, "message": text, "status": status } }))
}
