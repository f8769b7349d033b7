//! Bodies of responses that hold a value until they were sent, or end with the caller's token.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::open_requests::TokenValidity;

/// The body of a response, and a guard that is dropped when the client has received it or is gone.
#[derive(Debug)]
pub(crate) struct GuardedBody<G> {
    body: Body,
    _guard: G,
}

impl<G> GuardedBody<G> {
    pub(crate) fn new(body: Body, guard: G) -> Self {
        Self { body, _guard: guard }
    }
}

impl<G: Unpin> HttpBody for GuardedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body of unknown length that is cut off when the caller's token is no longer valid.
pub(crate) struct RevocableBody {
    body: Body,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl RevocableBody {
    pub(crate) fn new(body: Body, validity: TokenValidity) -> Self {
        Self { body, ended: Box::pin(async move { validity.ended().await }) }
    }
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            // The client sees a body without its end.
            let error = axum::Error::new("the token has expired or was revoked");
            return Poll::Ready(Some(Err(error)));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
