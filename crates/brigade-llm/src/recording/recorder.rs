//! Writes down what a model is asked and says.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_stream::stream;
use futures_util::StreamExt;
use serde::Serialize;

use super::{RecordedCall, RecordingError, RecordingHeader, VERSION, inputs_by_reply};
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelRequest, PartStream, ReplyPart};

/// A recording that is being written, for as many models as there are. Calls are added to what the
/// file has.
#[derive(Clone, Debug)]
pub struct Recorder {
    path: Arc<Path>,
    file: Arc<Mutex<File>>,
}

impl Recorder {
    /// A new file is for its owner alone.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, RecordingError> {
        let path = path.into();
        let failed = |error| RecordingError::File { path: path.clone(), error };
        let mut options = OpenOptions::new();
        options.create(true).append(true).read(true).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        let mut begins = String::new();
        let mut head = (&file).take(64);
        head.read_to_string(&mut begins).map_err(failed)?;
        if begins.is_empty() {
            write_line(&mut file, &RecordingHeader { brigade_recording: VERSION })
                .map_err(failed)?;
        } else if !begins.starts_with("{\"brigade_recording\":") {
            let problem = "there is something else than a recording in it".to_owned();
            return Err(RecordingError::Line { path, line: 1, problem });
        }
        Ok(Self { path: path.into(), file: Arc::new(Mutex::new(file)) })
    }

    /// The model, recorded. A call that nobody listens to until its end is not.
    pub fn wrap(&self, inner: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(RecordingModel { inner, recorder: self.clone() })
    }

    fn write(&self, recorded: &RecordedCall) -> Result<(), ModelError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(&mut file, recorded).map_err(|error| {
            let message = format!("the call cannot be recorded: {}: {error}", self.path.display());
            ModelError::new(ModelErrorKind::Invalid, message)
        })
    }
}

/// In one write, so that what several write stays apart.
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
        let mut heard = inputs_by_reply(&request);
        let mut recorded = RecordedCall {
            agent: request.agent.to_string(),
            model: request.model.to_string(),
            replies: heard.len() - 1,
            input: heard.pop().unwrap_or_default(),
            parts: Vec::new(),
            error: None,
        };
        Box::pin(stream! {
            while let Some(part) = parts.next().await {
                let is_last = match &part {
                    Ok(said) => {
                        recorded.parts.push(said.clone());
                        matches!(said, ReplyPart::Finished(_))
                    }
                    Err(error) => {
                        recorded.error = Some(error.clone());
                        true
                    }
                };
                if is_last && let Err(error) = recorder.write(&recorded) {
                    // A recording with a gap would fail somebody's test long after this.
                    yield Err(error);
                    return;
                }
                yield part;
            }
        })
    }
}
