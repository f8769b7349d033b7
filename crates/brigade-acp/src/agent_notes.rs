//! Messages of the root agent to the person, as text.

use brigade_model::plain_text::PlainText;
use brigade_model::refusal::RefusalKind;
use brigade_protocol::RequestClient;
use brigade_protocol::requests::InboxRequest;

use crate::acp_session::SessionView;
use crate::error_codes::TurnError;
use crate::prompt_turn::SessionLink;

impl SessionLink {
    /// Sends unread messages, and marks them as read after that.
    pub(crate) async fn send_notes(&self, view: &mut SessionView) -> Result<(), TurnError> {
        let unread = InboxRequest {
            session: self.session.workspace().to_owned(),
            from: Some(self.session.root()?.task),
            after: view.last_note,
            notes_only: true,
            ..InboxRequest::default()
        };
        let notes = match self.call(unread.clone()).await {
            // Within a task, messages of its children go to that task.
            Err(refusal) if refusal.kind == RefusalKind::Forbidden => return Ok(()),
            notes => notes?,
        };
        let numbers: Vec<u64> = notes.iter().map(|note| note.number).collect();
        let Some(last) = numbers.iter().max() else { return Ok(()) };
        view.last_note = view.last_note.max(*last);
        for note in notes {
            self.send_text(format!("\n\n{}\n\n", PlainText::of(&note.text)))?;
        }
        let read = InboxRequest { numbers, after: 0, mark_read: true, ..unread };
        // A message that stays unread is also in `brigade inbox`, which is no reason to fail.
        let _marked = self.client.call_once(|| read.clone()).await;
        Ok(())
    }
}
