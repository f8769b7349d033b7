//! Lines in and out. An incoming line is bounded, since the crate of the protocol has no bound.

use std::io;

use futures_util::{Sink, Stream, sink, stream};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;

/// The maximum length of an incoming line: a prompt with embedded files fits.
pub(crate) const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Returns the incoming lines. Cancels `ended` at their end.
///
/// A line that is too long becomes a short one that is no JSON. The connection answers that with
/// an error, and the next line is read.
pub(crate) fn incoming_lines<R>(
    input: R,
    ended: CancellationToken,
) -> impl Stream<Item = io::Result<String>> + Send + 'static
where
    R: AsyncRead + Send + Unpin + 'static,
{
    let reader = BufReader::new(input);
    stream::unfold((reader, ended), |(mut reader, ended)| async move {
        let line = read_line(&mut reader, LINE_BYTES_MAX).await.transpose();
        if line.is_none() {
            ended.cancel();
        }
        line.map(|line| (line, (reader, ended)))
    })
}

/// Returns a sink that writes each text as a line.
pub(crate) fn outgoing_lines<W>(output: W) -> impl Sink<String, Error = io::Error> + Send + 'static
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    sink::unfold(output, |mut output, mut line: String| async move {
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        output.flush().await?;
        Ok(output)
    })
}

/// Reads a line without its end; `None` at the end of the input. An incomplete last line counts.
async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    max_bytes: usize,
) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut length: usize = 0;
    loop {
        let part = reader.fill_buf().await?;
        if part.is_empty() {
            if length == 0 {
                return Ok(None);
            }
            break;
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let count = end.unwrap_or(part.len());
        length = length.saturating_add(count);
        if length <= max_bytes {
            line.extend_from_slice(&part[..count]);
        } else {
            line = Vec::new();
        }
        let consumed = count + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_some() {
            break;
        }
    }
    if length > max_bytes {
        return Ok(Some(format!("a line of more than {max_bytes} bytes was discarded")));
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_line_is_replaced_and_the_next_one_is_read() {
        let input = b"{\"a\":1}\n0123456789abcdef\n\nlast";
        let mut reader = BufReader::with_capacity(3, &input[..]);
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut reader, 8).await.expect("input") {
            lines.push(line);
        }
        let discarded = "a line of more than 8 bytes was discarded";
        assert_eq!(lines, [r#"{"a":1}"#, discarded, "", "last"]);
    }
}
