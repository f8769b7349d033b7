//! Renders a tool's result for the model.

use brigade_model::truncate::truncate_end;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use brigade_agent::json_schema::Schema;
use brigade_agent::tool::{ToolError, ToolReply};

/// The maximum number of rendered parts. Further parts are only counted.
const PARTS_MAX: usize = 1_000;

/// Renders text verbatim, structured content as JSON unless the text repeats it, and other content
/// as a description. The result may be as long as a message.
pub(super) async fn render_result(
    result: &CallToolResult,
    output: Option<&Value>,
) -> Result<ToolReply, ToolError> {
    let failed = result.is_error == Some(true);
    let mut parts: Vec<String> = Vec::new();
    if let Some(schema) = output {
        parts.extend(describe_mismatch(schema, result).await);
    }
    parts.extend(result.content.iter().take(PARTS_MAX).map(render_content));
    if let Some(more) = result.content.len().checked_sub(PARTS_MAX + 1) {
        parts.push(format!("[and {} more parts]", more + 1));
    }
    if let Some(structured) =
        result.structured_content.as_ref().filter(|it| !repeats_text(result, it))
    {
        parts.push(structured.to_string());
    }
    let text = match parts.is_empty() {
        true => "[the result is empty]".to_owned(),
        false => parts.join("\n"),
    };
    match failed {
        true => Err(ToolError::new(text)),
        false => Ok(ToolReply::Text(text)),
    }
}

fn render_content(content: &ContentBlock) -> String {
    let bytes = |base64: &str| base64.len() / 4 * 3;
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => {
            format!(
                "[an image, {}, some {} bytes]",
                truncate_end(&image.mime_type, 100),
                bytes(&image.data)
            )
        }
        ContentBlock::Audio(audio) => {
            format!(
                "[a sound, {}, some {} bytes]",
                truncate_end(&audio.mime_type, 100),
                bytes(&audio.data)
            )
        }
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[the resource {}]\n{text}", truncate_end(uri, 1_000))
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let mime = mime_type.as_deref().unwrap_or("unknown type");
                let uri = truncate_end(uri, 1_000);
                let mime = truncate_end(mime, 100);
                format!("[the resource {uri}, {mime}, some {} bytes]", bytes(blob))
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let about = link.description.as_deref().unwrap_or(&link.name);
            format!(
                "[a link to the resource {}: {}]",
                truncate_end(&link.uri, 1_000),
                truncate_end(about, 1_000)
            )
        }
        _ => "[content of an unknown kind]".to_owned(),
    }
}

/// Returns true if a text repeats the structured content, for clients that read only text. Servers
/// often wrap an unstructured result as `result`.
fn repeats_text(result: &CallToolResult, structured: &Value) -> bool {
    let wrapped = structured.as_object().filter(|fields| fields.len() == 1);
    let wrapped = wrapped.and_then(|fields| fields.get("result"));
    let equals = |text: &str, value: &Value| {
        value.as_str() == Some(text)
            || serde_json::from_str::<Value>(text).is_ok_and(|it| it == *value)
    };
    result.content.iter().any(|content| match content {
        ContentBlock::Text(text) => {
            equals(&text.text, structured) || wrapped.is_some_and(|it| equals(&text.text, it))
        }
        _ => false,
    })
}

/// Describes a result that does not match the output schema. Errors need not match it.
async fn describe_mismatch(schema: &Value, result: &CallToolResult) -> Option<String> {
    if result.is_error == Some(true) {
        return None;
    }
    let problem = match &result.structured_content {
        None => "there is no structured result".to_owned(),
        // An invalid schema is ignored.
        Some(structured) => {
            let schema = Schema::compile(schema).ok()?;
            schema.check_async(structured).await.err()?.to_string()
        }
    };
    Some(format!(
        "[this result does not match the output schema of the tool: {}]",
        truncate_end(&problem, 1_000)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(result: Value, output: Option<Value>) -> Result<String, String> {
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match runtime.block_on(render_result(&result, output.as_ref())) {
            Ok(ToolReply::Text(text)) => Ok(text),
            Ok(ToolReply::Park { .. }) => panic!("a result never parks"),
            Err(ToolError(text)) => Err(text),
        }
    }

    #[test]
    fn content_other_than_text_is_described() {
        let rendered = text(
            json!({"content": [
                {"type": "text", "text": "Look:"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "contents"}},
                {"type": "resource_link", "uri": "file:///b", "name": "bee"},
            ]}),
            None,
        );
        assert_eq!(
            rendered.unwrap(),
            "Look:\n[an image, image/png, some 3 bytes]\n[the resource file:///a]\ncontents\n\
             [a link to the resource file:///b: bee]"
        );
        assert_eq!(text(json!({"content": []}), None).unwrap(), "[the result is empty]");
    }

    #[test]
    fn structured_content_is_not_repeated() {
        let content = json!([{"type": "text", "text": "{\"a\": 1}"}]);
        let same = json!({"content": content, "structuredContent": {"a": 1}});
        assert_eq!(text(same, None).unwrap(), "{\"a\": 1}");
        let wrapped = json!({"content": [{"type": "text", "text": "x"}],
            "structuredContent": {"result": "x"}});
        assert_eq!(text(wrapped, None).unwrap(), "x");
        let other = json!({"content": content, "structuredContent": {"a": 2}});
        assert_eq!(text(other, None).unwrap(), "{\"a\": 1}\n{\"a\":2}");
    }

    #[test]
    fn an_error_result_is_an_error() {
        let failed =
            json!({"content": [{"type": "text", "text": "no such issue"}], "isError": true});
        assert_eq!(text(failed, Some(json!({"required": ["a"]}))).unwrap_err(), "no such issue");
    }

    #[test]
    fn a_result_that_is_too_expensive_to_check_is_marked() {
        let twice = json!([{"$ref": "#"}, {"$ref": "#"}]);
        let schema = json!({"type": ["array", "string"], "items": {"anyOf": twice}});
        let value = (0..60).fold(json!(1), |inner, _| json!([inner]));
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            sender.send(text(json!({"content": [], "structuredContent": value}), Some(schema)))
        });
        let rendered =
            receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the check ends");
        assert!(rendered.unwrap().contains("would take too long"));
    }

    #[test]
    fn a_result_that_contradicts_its_schema_is_marked() {
        let schema = json!({"type": "object", "required": ["a"]});
        let rendered =
            text(json!({"content": [], "structuredContent": {"b": 1}}), Some(schema.clone()));
        let rendered = rendered.unwrap();
        assert!(
            rendered.starts_with("[this result does not match") && rendered.contains("{\"b\":1}")
        );
        let rendered =
            text(json!({"content": [{"type": "text", "text": "x"}]}), Some(schema)).unwrap();
        assert!(rendered.contains("no structured result") && rendered.ends_with('x'), "{rendered}");
        let senseless = json!({"type": "strnig"});
        let rendered =
            text(json!({"content": [], "structuredContent": 1}), Some(senseless)).unwrap();
        assert_eq!(rendered, "1");
    }
}
