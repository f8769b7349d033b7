//! A stream whose writes fail if its peer reads nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The time for a peer to read something.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream with a time limit for each write.
#[derive(Debug)]
pub(crate) struct WriteTimeout<S> {
    stream: S,
    /// The end of the wait for the current write.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, deadline: None }
    }

    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    /// Returns the result of a write, or an error if it waits for too long.
    fn check<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let new_deadline = || Box::pin(tokio::time::sleep(WRITE_TIMEOUT));
        let deadline = self.deadline.get_or_insert_with(new_deadline);
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_only_for_a_peer_that_reads() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = WriteTimeout::new(near);
        near.write_all(b"abcd").await.expect("it fits");
        let written = async {
            near.write_all(b"efgh").await.expect("somebody reads");
            near.write_all(b"i").await
        };
        let read = async {
            tokio::time::sleep(WRITE_TIMEOUT / 2).await;
            far.read_exact(&mut [0; 4]).await.expect("four bytes");
        };
        let (written, ()) = tokio::join!(written, read);
        assert_eq!(written.expect_err("nobody reads").kind(), io::ErrorKind::TimedOut);
    }
}
