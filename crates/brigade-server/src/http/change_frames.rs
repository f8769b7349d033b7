//! The newest changes as frames, which the streams of all clients share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::event::FeedItem;
use brigade_model::ids::Lane;
use brigade_protocol::http::ChangeBody;
use bytes::Bytes;

use super::server_sent_events::FrameBuffer;
use super::store_cursor::StoreCursor;

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
    by_position: Mutex<BTreeMap<(Lane, u64), PlacedFrame>>,
}

/// A frame with the place behind it, which depends on the stream if a store has several lanes.
#[derive(Debug)]
struct PlacedFrame {
    place: StoreCursor,
    frame: ChangeFrame,
}

impl ChangeFrames {
    /// Returns the frame of a change at this place, and renders it if no other stream has.
    pub(crate) fn find_or_render(&self, item: &FeedItem, place: StoreCursor) -> ChangeFrame {
        let key = (item.position.lane, item.position.no);
        let mut frames = self.by_position.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = frames.get(&key).filter(|found| found.place == place) {
            return found.frame.clone();
        }
        let body = ChangeBody::of(&item.record);
        let mut buffer = FrameBuffer::default();
        buffer.push("change", Some(&place), &body);
        let frame = ChangeFrame { kind: body.kind.into(), bytes: buffer.take() };
        frames.insert(key, PlacedFrame { place, frame: frame.clone() });
        if frames.len() > FRAMES_MAX {
            frames.pop_first();
        }
        frame
    }
}
