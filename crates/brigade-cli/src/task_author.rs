//! The author of a task: the person or program that started it.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::event::Event;
use brigade_model::event_author::EventAuthor;
use brigade_model::ids::TaskNo;
use brigade_protocol::daemon_client::{DaemonClient, ReconnectPolicy};
use brigade_protocol::daemon_connection::{ClientError, ReplyStreamPart};
use brigade_protocol::requests::{EventItem, ReadEventsRequest};
use brigade_protocol::{DaemonConnection, TaskInfo};

/// The time for the search. The events before the start of a task may be many.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Finds the author of a task in the events of its session. Returns `None` if the event is no longer
/// stored, has no author or is not shown to this caller, or if the search takes too long.
pub(crate) async fn find_author(
    client: &DaemonClient,
    task: &TaskInfo,
) -> Option<Arc<EventAuthor>> {
    let search = async |connection| search_events(&connection, task).await;
    let found = client.repeat(ReconnectPolicy::INTERACTIVE, ClientError::is_lost_daemon, search);
    tokio::time::timeout(SEARCH_TIMEOUT, found).await.ok()?.ok()?
}

async fn search_events(
    connection: &DaemonConnection,
    task: &TaskInfo,
) -> Result<Option<Arc<EventAuthor>>, ClientError> {
    let session = Some(task.session.clone());
    let request = ReadEventsRequest { session, ..ReadEventsRequest::default() };
    let mut events = connection.call_streaming(request)?;
    while let ReplyStreamPart::Item(item) = events.next_part().await? {
        let EventItem::Event { at, by, event, .. } = item else { continue };
        match event {
            Event::Spawned(spawned) if is_address_of(&task.address, spawned.no) => return Ok(by),
            // Retention has removed the event.
            _ if at.0 > task.spawned_at => return Ok(None),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns true if the address, such as `process:4`, is that of the task with this number.
fn is_address_of(address: &str, no: TaskNo) -> bool {
    address.rsplit_once(':').is_some_and(|(_, number)| number == no.to_string())
}
