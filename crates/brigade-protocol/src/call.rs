//! The trait of a request.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::requests::AnyRequest;

/// A request with the types of its replies.
pub trait Call: Into<AnyRequest> + Send + Sized {
    /// The final reply.
    type Reply: Serialize + DeserializeOwned + Send;
    /// An item of the stream before the reply; [`NoItems`] for most requests.
    type Item: Serialize + DeserializeOwned + Send;
}

/// The item type of requests without items.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum NoItems {}
