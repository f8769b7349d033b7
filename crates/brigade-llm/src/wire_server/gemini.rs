//! Gemini's `streamGenerateContent` API.

use serde_json::{Value, json};

use super::chat::{ParsedBody, number_at};
use super::{
    WireFault, add_result, array_items, called_tool_name, join_text, split_in_two, sse_data,
    text_field, tool_spec,
};
use crate::conversation::{
    AssistantMessage, ChatMessage, ContentBlock, ReasoningBlock, ToolArguments, ToolCall,
    ToolResult,
};
use crate::model::{ModelReply, StopReason};

pub(super) fn parse_body(body: &Value) -> ParsedBody {
    let system = body.get("systemInstruction").or_else(|| body.get("system_instruction"));
    let mut parsed = ParsedBody {
        system: system.map(|system| join_text(&system["parts"])).unwrap_or_default(),
        max_output: number_at(body, "/generationConfig/maxOutputTokens"),
        ..ParsedBody::default()
    };
    let declared =
        array_items(body, "tools").flat_map(|tools| array_items(tools, "functionDeclarations"));
    parsed.tools = declared
        .map(|spec| match spec.get("parametersJsonSchema") {
            Some(_) => tool_spec(spec, "parametersJsonSchema"),
            None => tool_spec(spec, "parameters"),
        })
        .collect();
    for message in array_items(body, "contents") {
        if message["role"] == "model" {
            let content = array_items(message, "parts").filter_map(parse_part).collect();
            let assistant = AssistantMessage { content, opaque: Value::Null };
            parsed.messages.push(ChatMessage::Assistant(assistant.into()));
            continue;
        }
        for part in array_items(message, "parts") {
            match part.get("functionResponse") {
                Some(answer) => add_result(&mut parsed.messages, parse_result(answer)),
                None => parsed.messages.push(ChatMessage::user(text_field(part, "text"))),
            }
        }
    }
    // In this format results may name their tool, and calls need no id.
    for at in 0..parsed.messages.len() {
        let (before, rest) = parsed.messages.split_at_mut(at);
        if let ChatMessage::Results(results) = &mut rest[0] {
            for result in results.iter_mut().filter(|result| result.name.is_empty()) {
                result.name = called_tool_name(before, &result.id);
            }
        }
    }
    parsed
}

fn parse_result(answer: &Value) -> ToolResult {
    let response = &answer["response"];
    let failed = response.get("error").is_some();
    let value = response.get("error").or_else(|| response.get("result")).unwrap_or(response);
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    ToolResult {
        id: text_field(answer, "id").into(),
        name: text_field(answer, "name").into(),
        text: text.into(),
        failed,
    }
}

fn parse_part(part: &Value) -> Option<ContentBlock> {
    if let Some(call) = part.get("functionCall") {
        return Some(ContentBlock::Call(ToolCall {
            id: text_field(call, "id").into(),
            name: text_field(call, "name").into(),
            arguments: ToolArguments::Json(call["args"].clone()),
            opaque: part.clone(),
        }));
    }
    let text = part.get("text")?.as_str()?;
    Some(match part["thought"] == true {
        true => ContentBlock::Reasoning(ReasoningBlock { text: text.into(), opaque: part.clone() }),
        false => ContentBlock::Text(text.into()),
    })
}

pub(super) fn reply_frames(model: &str, reply: &ModelReply) -> Vec<String> {
    let chunk = |parts: Value| {
        sse_data(&json!({
            "candidates": [{ "index": 0, "content": { "role": "model", "parts": parts } }],
            "modelVersion": model, "responseId": "r1",
        }))
    };
    let mut frames = Vec::new();
    for content in &reply.message.content {
        match content {
            ContentBlock::Text(text) => {
                frames.extend(split_in_two(text).map(|text| chunk(json!([{ "text": text }]))));
            }
            ContentBlock::Reasoning(thought) => {
                let words = split_in_two(&thought.text);
                frames.extend(words.map(|text| chunk(json!([{ "text": text, "thought": true }]))));
                frames.push(chunk(
                    json!([{ "text": "", "thought": true, "thoughtSignature": "c2lnbmVk" }]),
                ));
            }
            ContentBlock::Call(call) => {
                let args = match &call.arguments {
                    ToolArguments::Json(args) => args.clone(),
                    ToolArguments::Malformed { .. } => json!(["/et"]),
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
    frames.push(sse_data(&json!({
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

pub(super) fn failure_frame(fault: WireFault) -> String {
    let (code, status, text) = match fault {
        WireFault::Overloaded => (503, "UNAVAILABLE", "The model is overloaded."),
        WireFault::RateLimited => (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    };
    sse_data(&json!({ "error": { "code": code, "message": text, "status": status } }))
}
