//! The transcript of the root agent as updates, for a session that is loaded.

use agent_client_protocol::v1::schema::SessionUpdate;
use brigade_protocol::requests::{AgentOutputItem, ListedTranscriptItem};

use crate::output_updates::{OutputTracker, new_chunk};

/// Returns the updates of items of a transcript. The tracker then knows that the editor has them.
pub(crate) fn replay_items(
    tracker: &mut OutputTracker,
    items: Vec<ListedTranscriptItem>,
) -> Vec<SessionUpdate> {
    let mut updates = Vec::new();
    for item in items {
        replay_item(tracker, item, &mut updates);
    }
    updates
}

fn replay_item(
    tracker: &mut OutputTracker,
    item: ListedTranscriptItem,
    updates: &mut Vec<SessionUpdate>,
) {
    match item.role.as_str() {
        "run" => {
            let run = item.texts.first().and_then(|run| run.parse().ok());
            tracker.begin_run(run.unwrap_or(tracker.run() + 1));
        }
        "task" => {
            tracker.begin_run(1);
            let chunks = item.texts.into_iter().map(new_chunk);
            updates.extend(chunks.map(SessionUpdate::UserMessageChunk));
        }
        "inbox" => {
            let chunks = item.texts.into_iter().map(new_chunk);
            updates.extend(chunks.map(SessionUpdate::UserMessageChunk));
        }
        "assistant" => {
            tracker.begin_next_step();
            let reasoning = item.reasoning.into_iter().map(AgentOutputItem::Reasoning);
            let texts = item.texts.into_iter().map(AgentOutputItem::Text);
            updates.extend(reasoning.chain(texts).filter_map(|output| tracker.update(output)));
            for call in item.calls {
                let arguments = call.arguments.and_then(|arguments| arguments.decode().ok());
                updates.extend(tracker.tool_call(call.number, &call.name, arguments));
            }
        }
        "tool" => {
            if let Some(result) = item.result
                && let Some(number) = result.number
            {
                updates.extend(tracker.tool_result(number, result.text, result.failed));
            }
        }
        // Notes of the loop and summaries are for the model.
        _ => {}
    }
}
