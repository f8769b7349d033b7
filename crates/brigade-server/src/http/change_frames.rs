//! The newest changes as frames, which the streams of all clients share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::event::FeedItem;
use brigade_model::ids::Position;
use brigade_protocol::http::ChangeBody;
use bytes::Bytes;

use super::feed_cursor::FeedCursor;
use super::server_sent_events::FrameBuffer;

/// The number of changes that are held. A client that is further behind renders its own.
const FRAMES_MAX: usize = 256;

/// A change as it is sent, without the row of its task.
#[derive(Clone, Debug)]
pub(crate) struct ChangeFrame {
    pub(crate) kind: Arc<str>,
    pub(crate) bytes: Bytes,
}

#[derive(Debug, Default)]
pub(crate) struct ChangeFrames {
    by_position: Mutex<BTreeMap<Position, ChangeFrame>>,
}

impl ChangeFrames {
    /// Returns the frame of a change at this place, and renders it if no other stream has.
    pub(crate) fn find_or_render(&self, item: &FeedItem, place: FeedCursor) -> ChangeFrame {
        let mut frames = self.by_position.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frame) = frames.get(&item.position) {
            return frame.clone();
        }
        let body = ChangeBody::of(&item.record);
        let mut buffer = FrameBuffer::default();
        buffer.push("change", Some(&place), &body);
        let frame = ChangeFrame { kind: body.kind.into(), bytes: buffer.take() };
        frames.insert(item.position, frame.clone());
        if frames.len() > FRAMES_MAX {
            frames.pop_first();
        }
        frame
    }
}
