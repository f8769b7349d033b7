//! A wire format of rig with bounded decoding.
//!
//! rig rebuilds the whole document of every reply beside the reply itself. It also opens every part
//! that a stream names. This wrapper rebuilds no document and reports an event that would open too
//! many parts as malformed.

use std::sync::atomic::{AtomicUsize, Ordering};

use rig_core::completion::CompletionRequest;
use rig_core::driver;
use rig_core::error::{EncodeError, ProviderError};
use rig_core::operation::Completion;
use rig_core::streaming::Streamed;
use rig_core::wire::document::{Reassemble, Serves};
use rig_core::wire::{
    Body, Decoder, Descriptor, Encoded, Flow, Mode, Out, Wire, WireEvent, WireFrame,
};
use serde_json::{Map, Value};

use crate::transport::BoundedHttpClient;

/// The maximum number of call fragments without the index of their call.
const STRAY_FRAGMENTS_MAX: usize = 4096;

/// Frames up to this size are not searched for objects: they cannot hold many parts.
const SMALL_FRAME_BYTES: usize = 16 * 1024;

#[derive(Clone)]
pub(super) struct BoundedWire<W> {
    wire: W,
    max_parts: usize,
    edit_body: Option<fn(&mut Map<String, Value>)>,
}

impl<W> BoundedWire<W>
where
    W: Wire<Op = Completion, Payload = Encoded, Frame = WireFrame>,
{
    pub(super) fn new(wire: W, parts: usize) -> Self {
        Self { wire, max_parts: parts, edit_body: None }
    }

    /// Edits the encoded body, for fields that rig always writes.
    pub(super) fn with_body_edit(self, edit: fn(&mut Map<String, Value>)) -> Self {
        Self { edit_body: Some(edit), ..self }
    }

    pub(super) fn stream(
        self,
        request: CompletionRequest,
        http_client: BoundedHttpClient,
    ) -> Result<Streamed<Completion>, Box<ProviderError>> {
        driver::Model::new(self, http_client).stream(request).map_err(Box::new)
    }
}

impl<W> Wire for BoundedWire<W>
where
    W: Wire<Op = Completion, Payload = Encoded, Frame = WireFrame>,
{
    type Op = Completion;
    type Payload = Encoded;
    type Frame = WireFrame;
    type Decoder<'id> = BoundedDecoder<W::Decoder<'id>>;
    type Reassembler = NoReassembler;

    fn describe(&self) -> Descriptor<'_> {
        self.wire.describe()
    }

    fn encode(&self, request: CompletionRequest, mode: Mode) -> Result<Encoded, EncodeError> {
        let mut encoded = self.wire.encode(request, mode)?;
        if let Some(edit) = self.edit_body
            && let Body::Bytes(bytes) = encoded.request.body_mut()
        {
            let mut body: Map<String, Value> = serde_json::from_slice(bytes)?;
            edit(&mut body);
            *bytes = serde_json::to_vec(&body)?;
        }
        Ok(encoded)
    }

    fn decoder<'id>(&self) -> Self::Decoder<'id> {
        BoundedDecoder {
            decoder: self.wire.decoder(),
            max_parts: self.max_parts,
            frames: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            stray: AtomicUsize::new(0),
        }
    }
}

/// A decoder that counts opened parts in the text of a frame. The inner decoder allocates for every
/// part that the stream names, but reports a part only once it has content.
pub(super) struct BoundedDecoder<D> {
    decoder: D,
    max_parts: usize,
    frames: AtomicUsize,
    opened: AtomicUsize,
    stray: AtomicUsize,
}

impl<D> BoundedDecoder<D> {
    fn exceeds_limits(&self, frame: &str) -> bool {
        // JSON escapes quotes inside strings, so text of the model never matches.
        let opens = frame.contains("\"content_block_start\"")
            || frame.contains("\"response.output_item.added\"");
        if opens && self.opened.fetch_add(1, Ordering::Relaxed) >= self.max_parts {
            return true;
        }
        // One event may hold many parts. Arguments contain objects too, hence the factor.
        if frame.len() > SMALL_FRAME_BYTES && count_objects(frame) > self.max_parts * 32 {
            return true;
        }
        if !frame.contains("\"tool_calls\"") {
            return false;
        }
        let mut indices = parse_indices(frame).peekable();
        if indices.peek().is_none() {
            return self.stray.fetch_add(1, Ordering::Relaxed) >= STRAY_FRAGMENTS_MAX;
        }
        indices.any(|index| index.is_none_or(|index| index >= self.max_parts as u64))
    }
}

/// Returns the number of objects in a JSON text.
fn count_objects(frame: &str) -> usize {
    let mut count = 0;
    let mut bytes = frame.bytes();
    let mut in_string = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Returns every number after an `"index":`, and `None` for one that does not fit.
fn parse_indices(frame: &str) -> impl Iterator<Item = Option<u64>> {
    frame.split("\"index\"").skip(1).filter_map(|rest| {
        let rest = rest.trim_start().strip_prefix(':')?.trim_start();
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        (!digits.is_empty()).then(|| digits.parse().ok())
    })
}

impl<'id, D> Decoder<'id, Completion, WireFrame> for BoundedDecoder<D>
where
    D: Decoder<'id, Completion, WireFrame>,
{
    type Event = D::Event;

    fn classify(&self, frame: WireFrame) -> WireEvent<Self::Event> {
        self.frames.fetch_add(1, Ordering::Relaxed);
        if self.exceeds_limits(&frame.as_str()) {
            return WireEvent::malformed(format_args!("more than {} parts", self.max_parts));
        }
        self.decoder.classify(frame)
    }

    fn decode(
        &mut self,
        event: Self::Event,
        out: Out<'id, Completion>,
    ) -> Result<Flow, ProviderError> {
        self.decoder.decode(event, out)
    }

    fn eof(&mut self, out: Out<'id, Completion>) -> Result<Flow, ProviderError> {
        if *self.frames.get_mut() == 0 {
            // The reply was not cut off: it was no event stream of this provider.
            return Err(ProviderError::Response("the reply contains no event".into()));
        }
        self.decoder.eof(out)
    }
}

#[derive(Default)]
pub(super) struct NoReassembler;

impl Reassemble<WireFrame> for NoReassembler {
    fn absorb(&mut self, _frame: &WireFrame) {}

    fn finish(self) -> Value {
        Value::Null
    }
}

impl Serves<Completion> for NoReassembler {}
