//! The stream of one connection, which tells its slot when responses have been sent, notes activity,
//! and reads the rest of a request that was answered before its end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::connection_activity::ConnectionActivity;
use super::connection_slots::ConnectionSlot;
use super::write_timeout::WriteTimeout;

/// The bytes of a request that are discarded after its answer.
const DRAIN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The time for a client to end after the last answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream with a slot and with a time limit for each write.
#[derive(Debug)]
pub(crate) struct ConnectionStream<S> {
    stream: WriteTimeout<S>,
    /// Bytes that are read before those of the stream.
    unread: Bytes,
    slot: Arc<ConnectionSlot>,
    activity: Arc<ConnectionActivity>,
    /// The state after the end of all responses.
    drain: Option<RequestDrain>,
    shutdown_token: CancellationToken,
}

impl<S> ConnectionStream<S> {
    pub(crate) fn new(
        stream: S,
        slot: Arc<ConnectionSlot>,
        shutdown_token: CancellationToken,
    ) -> Self {
        Self {
            stream: WriteTimeout::new(stream),
            unread: Bytes::new(),
            slot,
            activity: Arc::new(ConnectionActivity::new()),
            drain: None,
            shutdown_token,
        }
    }

    /// Sets the bytes that were read from the stream before, and belong to the next request.
    pub(crate) fn with_unread(self, unread: Bytes) -> Self {
        Self { unread, ..self }
    }

    /// Sets the place at which activity is noted.
    pub(crate) fn with_activity(self, activity: Arc<ConnectionActivity>) -> Self {
        Self { activity, ..self }
    }

    pub(crate) fn get_ref(&self) -> &S {
        self.stream.get_ref()
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream.into_inner()
    }
}

/// The discarding of what a client still sends. A close with unread bytes resets the connection, and
/// a client that sends a body might lose the answer to it.
#[derive(Debug)]
struct RequestDrain {
    byte_count: usize,
    deadline: Pin<Box<Sleep>>,
}

impl RequestDrain {
    fn new() -> Self {
        Self { byte_count: 0, deadline: Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)) }
    }

    /// Reads until the client has ended, or has sent too much or for too long.
    fn poll_end(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<()> {
        while self.byte_count < DRAIN_BYTES_MAX {
            if self.deadline.as_mut().poll(context).is_ready() {
                break;
            }
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            self.byte_count += count;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let free = buffer.remaining();
        if !self.unread.is_empty() {
            let length = self.unread.len().min(free);
            buffer.put_slice(&self.unread[..length]);
            self.unread.advance(length);
        } else {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        }
        if buffer.remaining() < free {
            self.activity.note_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ConnectionStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection flushes its stream only when its own buffer is empty.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            self.slot.note_flush();
            self.activity.note_flush();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.activity.note_shutdown();
        if this.drain.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        if this.shutdown_token.is_cancelled() {
            return Poll::Ready(Ok(()));
        }
        let drain = this.drain.get_or_insert_with(RequestDrain::new);
        drain.poll_end(context, &mut this.stream).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection_slots::ConnectionSlots;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    fn new_stream(stream: DuplexStream) -> ConnectionStream<DuplexStream> {
        let slot = ConnectionSlots::new(1).acquire().expect("a slot");
        ConnectionStream::new(stream, slot, CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_request_is_discarded_up_to_a_bound() {
        let (near, mut far) = duplex(1024);
        let mut near = new_stream(near);
        let closed = async {
            near.shutdown().await.expect("an end");
            drop(near);
        };
        let sent = async {
            assert_eq!(far.read(&mut [0]).await.expect("an end"), 0);
            far.write_all(&vec![0; DRAIN_BYTES_MAX]).await.expect("the server reads");
            far.write_all(&[0; 8192]).await.expect_err("the server reads no more");
        };
        tokio::join!(closed, sent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_end_is_closed_after_a_time() {
        let (near, _far) = duplex(1024);
        let started_at = tokio::time::Instant::now();
        new_stream(near).shutdown().await.expect("an end");
        assert_eq!(started_at.elapsed(), DRAIN_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn the_shutdown_of_the_server_waits_for_no_client() {
        let (near, _far) = duplex(1024);
        let mut near = new_stream(near);
        near.shutdown_token.cancel();
        let started_at = tokio::time::Instant::now();
        near.shutdown().await.expect("an end");
        assert_eq!(started_at.elapsed(), Duration::ZERO);
    }
}
