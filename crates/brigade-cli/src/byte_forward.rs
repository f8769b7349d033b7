//! Forwarding our input to a command byte by byte, each once, also when the daemon goes away meanwhile.

use std::io::{self, Read};
use std::sync::mpsc as blocking;

use brigade_server::requests::{Base64Bytes, WriteInputRequest};
use brigade_server::{ClientError, DaemonConnection, TaskTarget};
use tokio::sync::mpsc;

use crate::context::CliContext;
use crate::exit_code::CliError;

/// The most that is read at once, and that is sent at once.
const READ_BYTES_MAX: usize = 256 * 1024;
const SEND_BYTES_MAX: usize = 1024 * 1024;
/// Pieces that are read ahead.
const PIECES_AHEAD_MAX: usize = 16;

/// Our input, read by a thread of its own: a read of a terminal cannot be given up.
#[derive(Debug)]
pub(crate) struct StdinReader {
    start_signal: blocking::Sender<()>,
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
}

impl StdinReader {
    /// Starts the thread. Nothing is read before somebody asks for it.
    pub(crate) fn start() -> io::Result<Self> {
        let (begin, begun) = blocking::channel();
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD_MAX);
        let thread = std::thread::Builder::new().name("stdin".into());
        thread.spawn(move || {
            if begun.recv().is_ok() {
                read_stdin(&sender);
            }
        })?;
        Ok(Self { start_signal: begin, pieces })
    }

    /// What was read next, as much as is here. Nothing at the end.
    async fn next_bytes(&mut self) -> io::Result<Vec<u8>> {
        let _ = self.start_signal.send(());
        let mut bytes = match self.pieces.recv().await {
            Some(piece) => piece?,
            None => return Ok(Vec::new()),
        };
        while bytes.len() < SEND_BYTES_MAX
            && let Ok(piece) = self.pieces.try_recv()
        {
            bytes.extend(piece?);
        }
        Ok(bytes)
    }
}

fn read_stdin(sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut input = io::stdin().lock();
    loop {
        let mut piece = vec![0; READ_BYTES_MAX];
        let read = match input.read(&mut piece) {
            Ok(0) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map(|length| {
                piece.truncate(length);
                piece
            }),
        };
        let is_over = read.is_err();
        if sender.blocking_send(read).is_err() || is_over {
            return;
        }
    }
}

/// Sends all of our input, and its end.
pub(crate) async fn forward_bytes(
    context: &CliContext,
    mut client: DaemonConnection,
    target: TaskTarget,
    mut input: StdinReader,
) -> Result<(), CliError> {
    let writer = brigade_runtime::new_lease_holder();
    let mut offset = 0;
    loop {
        let bytes = input.next_bytes().await?;
        let (length, last) = (bytes.len() as u64, bytes.is_empty());
        let bytes = Base64Bytes(bytes);
        let piece =
            WriteInputRequest { target: target.clone(), writer, offset, bytes, closes_input: last };
        loop {
            match client.call(piece.clone()).await {
                Ok(()) => break,
                // The next daemon knows what the last one has stored.
                Err(ClientError::Lost | ClientError::NotReceived) => {
                    client = context.connect_daemon().await?
                }
                Err(error) => return Err(error.into()),
            }
        }
        if last {
            return Ok(());
        }
        offset += length;
    }
}
