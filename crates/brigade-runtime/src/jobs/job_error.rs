//! The failure of a job.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use brigade_model::error_details::{ErrorDetails, render_error_chain};
use brigade_model::json::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The failure of a job or of a step: any error, with a kind and data for a program if it has them.
///
/// It is not an error type itself, so that `?` turns every error type into it.
///
/// ```
/// use brigade_runtime::JobError;
///
/// fn charge(cents: u64) -> Result<(), JobError> {
///     if cents > 100_000 {
///         return Err(JobError::fatal("the card was declined")
///             .with_kind("card_declined")
///             .with_payload(cents));
///     }
///     std::fs::metadata("/")?; // Any error type.
///     Ok(())
/// }
///
/// let error = charge(1_000_000).unwrap_err();
/// assert_eq!((error.kind(), error.payload::<u64>()), (Some("card_declined"), Some(1_000_000)));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JobError(Box<ErrorDetails>);

impl JobError {
    pub fn new(message: impl fmt::Display) -> Self {
        Self(Box::new(ErrorDetails::new(message.to_string())))
    }

    /// Creates an error that no retry policy retries.
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self::new(message).into_fatal()
    }

    /// Creates an error from a boxed one, such as that of a function that returns
    /// `Box<dyn Error>`.
    pub fn from_boxed(error: Box<dyn Error + Send + Sync>) -> Self {
        Self::new(render_error_chain(&*error))
    }

    /// Sets the kind, on which a program can branch: one line of visible characters.
    #[must_use]
    pub fn with_kind(self, kind: &str) -> Self {
        Self(Box::new(self.0.with_kind(kind)))
    }

    /// Sets data for a program. Data that cannot be stored is left out, and the message says so.
    #[must_use]
    pub fn with_payload(self, payload: impl Serialize) -> Self {
        Self(Box::new(match Json::of(&payload) {
            Ok(payload) => self.0.with_payload(payload),
            Err(refusal) => {
                let mut details = *self.0;
                details.message =
                    format!("{} (without its data: {refusal})", details.message).into();
                details
            }
        }))
    }

    /// Marks the error as one that no retry policy retries.
    #[must_use]
    pub fn into_fatal(self) -> Self {
        Self(Box::new(self.0.into_fatal()))
    }

    pub fn message(&self) -> &Arc<str> {
        &self.0.message
    }

    pub fn kind(&self) -> Option<&str> {
        self.0.kind.as_deref()
    }

    /// Returns the data, if there is data of this type.
    pub fn payload<T: DeserializeOwned>(&self) -> Option<T> {
        self.0.payload.as_ref().and_then(|payload| payload.decode().ok())
    }

    pub fn is_fatal(&self) -> bool {
        self.0.fatal
    }

    pub(crate) fn from_details(details: ErrorDetails) -> Self {
        Self(Box::new(details))
    }

    pub(crate) fn into_details(self) -> ErrorDetails {
        *self.0
    }
}

impl<E: Error + 'static> From<E> for JobError {
    fn from(error: E) -> Self {
        // The failure of a child keeps its kind and its data.
        let error: &(dyn Error + 'static) = &error;
        let failure = error.downcast_ref::<crate::TaskError>().and_then(crate::TaskError::failure);
        let details = failure.and_then(|failure| failure.error_details());
        let text = ErrorDetails::new(render_error_chain(error));
        let Some(details) = details else { return Self(Box::new(text)) };
        let mut details = details.clone();
        details.message = text.message;
        Self(Box::new(details))
    }
}

impl From<JobError> for Box<dyn Error + Send + Sync> {
    fn from(error: JobError) -> Self {
        Box::new(BoxedJobError(error))
    }
}

impl From<JobError> for Box<dyn Error> {
    fn from(error: JobError) -> Self {
        Box::new(BoxedJobError(error))
    }
}

/// A [`JobError`] as an error type, for `Box<dyn Error>`.
struct BoxedJobError(JobError);

impl Error for BoxedJobError {}

impl fmt::Display for BoxedJobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for BoxedJobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the text, since a program that returns it from `main` prints it like this.
impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
