//! Records the calls of a model.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_stream::stream;
use futures_util::StreamExt;
use serde::Serialize;

use super::{
    RecordedCall, RecordingError, RecordingHeader, VERSION, check_header, inputs_by_reply,
};
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelRequest, PartStream, ReplyPart};

/// A recording that is being written, for any number of models. Calls are appended to the file.
#[derive(Clone, Debug)]
pub struct Recorder {
    path: Arc<Path>,
    file: Arc<Mutex<File>>,
}

impl Recorder {
    /// Opens or creates the file. Only the owner can read a new file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let path = path.into();
        let failed = |error| RecordingError::File { path: path.clone(), error };
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        let mut beginning = Vec::new();
        (&file).take(64).read_to_end(&mut beginning).map_err(failed)?;
        if beginning.is_empty() {
            write_line(&mut file, &RecordingHeader { brigade_recording: VERSION })
                .map_err(failed)?;
        } else if let Err(problem) = check_header(first_line(&beginning)) {
            return Err(RecordingError::Line { path, line: 1, problem });
        }
        Ok(Self { path: path.into(), file: Arc::new(Mutex::new(file)) })
    }

    /// Returns a model that records its calls. A call whose reply is not read to its end is not
    /// recorded.
    pub fn wrap(&self, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(RecordingModel { inner, recorder: self.clone() })
    }

    fn write(&self, recorded: &RecordedCall) -> Result<(), ModelError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(&mut file, recorded).map_err(|error| {
            let message = format!("cannot record the call: {}: {error}", self.path.display());
            ModelError::new(ModelErrorKind::Invalid, message)
        })
    }
}

/// Returns the first line, or an empty text if it is incomplete or not UTF-8.
fn first_line(beginning: &[u8]) -> &str {
    let end = beginning.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    std::str::from_utf8(&beginning[..end]).unwrap_or_default()
}

/// Writes the line with one write, so that lines of several writers do not mix.
fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

#[derive(Debug)]
struct RecordingModel {
    inner: Arc<dyn Model>,
    recorder: Recorder,
}

impl Model for RecordingModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let mut parts = self.inner.call(request.clone());
        let recorder = self.recorder.clone();
        let mut inputs = inputs_by_reply(&request);
        let mut recorded = RecordedCall {
            agent: request.agent.to_string(),
            model: request.model.to_string(),
            replies: inputs.len() - 1,
            input: inputs.pop().unwrap_or_default(),
            parts: Vec::new(),
            error: None,
        };
        Box::pin(stream! {
            while let Some(part) = parts.next().await {
                let is_last = match &part {
                    Ok(part) => {
                        recorded.parts.push(part.clone());
                        matches!(part, ReplyPart::Finished(_))
                    }
                    Err(error) => {
                        recorded.error = Some(error.clone());
                        true
                    }
                };
                if is_last && let Err(error) = recorder.write(&recorded) {
                    // A recording with a gap would fail a test much later.
                    yield Err(error);
                    return;
                }
                yield part;
            }
        })
    }
}
