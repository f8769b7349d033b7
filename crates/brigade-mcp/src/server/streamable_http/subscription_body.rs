//! The stream of a subscription, whose acknowledgement names the accepted tasks.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use serde_json::Value;

const ACKNOWLEDGED_METHOD: &str = "notifications/subscriptions/acknowledged";

/// Adds the tasks to the acknowledgement. The filter of the library does not have them.
pub(super) fn add_task_ids(
    body: BoxBody<Bytes, Infallible>,
    task_ids: Vec<String>,
) -> BoxBody<Bytes, Infallible> {
    if task_ids.is_empty() {
        return body;
    }
    let mut task_ids = Some(task_ids);
    let mapped = body.map_frame(move |frame| {
        frame.map_data(|data| {
            let Some(ids) = task_ids.take() else { return data };
            let acknowledgement = rewrite_event(&data, &ids);
            if acknowledgement.is_none() {
                task_ids = Some(ids);
            }
            acknowledgement.unwrap_or(data)
        })
    });
    mapped.boxed()
}

/// Returns the event of the acknowledgement with the tasks; `None` for another event.
fn rewrite_event(event: &[u8], task_ids: &[String]) -> Option<Bytes> {
    let event = std::str::from_utf8(event).ok()?;
    let data = event.lines().find_map(|line| line.strip_prefix("data:"))?;
    let mut message: Value = serde_json::from_str(data.trim()).ok()?;
    if message["method"] != ACKNOWLEDGED_METHOD {
        return None;
    }
    message["params"]["notifications"]["taskIds"] = task_ids.into();
    Some(event.replace(data.trim(), &message.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_acknowledgement_names_the_tasks() {
        let ids = ["kitchen/process:1".to_owned()];
        let event = format!(
            "id: 1\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"{ACKNOWLEDGED_METHOD}\",\"params\":{{}}}}\n\n"
        );
        let rewritten = rewrite_event(event.as_bytes(), &ids).unwrap();
        let rewritten = std::str::from_utf8(&rewritten).unwrap();
        assert!(rewritten.starts_with("id: 1\ndata: {") && rewritten.ends_with("}\n\n"));
        assert!(rewritten.contains(r#""taskIds":["kitchen/process:1"]"#), "{rewritten}");
        for other in ["data: {\"method\":\"ping\"}\n\n", ": ping\n\n", "data:\n\n", "\u{0}"] {
            assert_eq!(rewrite_event(other.as_bytes(), &ids), None, "{other}");
        }
    }
}
