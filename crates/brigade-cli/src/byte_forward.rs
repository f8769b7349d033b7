//! Forwarding our input to a command byte by byte, each once, also when the daemon goes away meanwhile.

use std::io::{self, Read};
use std::sync::mpsc as blocking;

use brigade_server::requests::{Bytes, WriteInput};
use brigade_server::{Client, ClientError, Target};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::exit::Failure;

/// The most that is read at once, and that is sent at once.
const READ: usize = 256 * 1024;
const SENT: usize = 1024 * 1024;
/// Pieces that are read ahead.
const AHEAD: usize = 16;

/// Our input, read by a thread of its own: a read of a terminal cannot be given up.
#[derive(Debug)]
pub(crate) struct OwnInput {
    begin: blocking::Sender<()>,
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
}

impl OwnInput {
    /// Starts the thread. Nothing is read before somebody asks for it.
    pub(crate) fn start() -> io::Result<Self> {
        let (begin, begun) = blocking::channel();
        let (sender, pieces) = mpsc::channel(AHEAD);
        let thread = std::thread::Builder::new().name("stdin".into());
        thread.spawn(move || {
            if begun.recv().is_ok() {
                read_all(&sender);
            }
        })?;
        Ok(Self { begin, pieces })
    }

    /// What was read next, as much as is here. Nothing at the end.
    async fn next(&mut self) -> io::Result<Vec<u8>> {
        let _ = self.begin.send(());
        let mut bytes = match self.pieces.recv().await {
            Some(piece) => piece?,
            None => return Ok(Vec::new()),
        };
        while bytes.len() < SENT
            && let Ok(piece) = self.pieces.try_recv()
        {
            bytes.extend(piece?);
        }
        Ok(bytes)
    }
}

fn read_all(sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut input = io::stdin().lock();
    loop {
        let mut piece = vec![0; READ];
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
pub(crate) async fn forward(
    context: &Context,
    mut client: Client,
    target: Target,
    mut input: OwnInput,
) -> Result<(), Failure> {
    let writer = brigade_runtime::new_lease_holder();
    let mut offset = 0;
    loop {
        let bytes = input.next().await?;
        let (length, last) = (bytes.len() as u64, bytes.is_empty());
        let bytes = Bytes(bytes);
        let piece = WriteInput { target: target.clone(), writer, offset, bytes, last };
        loop {
            match client.ask(piece.clone()).await {
                Ok(()) => break,
                // The next daemon knows what the last one has stored.
                Err(ClientError::Lost | ClientError::Unheard) => client = context.daemon().await?,
                Err(error) => return Err(error.into()),
            }
        }
        if last {
            return Ok(());
        }
        offset += length;
    }
}
