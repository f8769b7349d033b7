//! A pooler that hands out another connection for each transaction, as far as tests need one.
//!
//! It logs clients in by itself, and has a fixed number of connections to the server. Each
//! transaction gets the one that was free last, as most poolers do.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};

use tempfile::TempDir;

/// `AuthenticationOk`, and `ReadyForQuery` outside of a transaction.
const LOGGED_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// A running pooler, whose threads end with the process.
pub(crate) struct TransactionPooler {
    dir: TempDir,
}

impl TransactionPooler {
    /// Starts a pooler for the socket and the user of a server.
    pub(crate) fn start(socket: &str, connections: usize) -> Self {
        let dir = TempDir::new().unwrap();
        let pool = Arc::new(BackendPool::default());
        for _ in 0..connections {
            pool.put(log_in(UnixStream::connect(socket).unwrap()).unwrap());
        }
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let pool = pool.clone();
                std::thread::spawn(move || serve_client(client.unwrap(), &pool));
            }
        });
        Self { dir }
    }

    pub(crate) fn url(&self) -> String {
        let host = self.dir.path().to_string_lossy().replace('/', "%2F");
        format!("postgres://brigade@{host}/postgres?sslmode=disable")
    }
}

#[derive(Default)]
struct BackendPool {
    free: Mutex<Vec<UnixStream>>,
    is_freed: Condvar,
}

impl BackendPool {
    fn take(&self) -> UnixStream {
        let mut free = self.free.lock().unwrap();
        loop {
            match free.pop() {
                Some(backend) => return backend,
                None => free = self.is_freed.wait(free).unwrap(),
            }
        }
    }

    fn put(&self, backend: UnixStream) {
        self.free.lock().unwrap().push(backend);
        self.is_freed.notify_one();
    }
}

/// Logs in at the server, which trusts its socket.
fn log_in(mut backend: UnixStream) -> io::Result<UnixStream> {
    let settings = b"user\0brigade\0database\0postgres\0client_encoding\0UTF8\0\0";
    let length = u32::try_from(8 + settings.len()).unwrap();
    backend.write_all(&length.to_be_bytes())?;
    backend.write_all(&196_608_u32.to_be_bytes())?;
    backend.write_all(settings)?;
    while read_message(&mut backend)?.first() != Some(&b'Z') {}
    Ok(backend)
}

/// Reads a message with its kind and length.
fn read_message(from: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let mut message = head.to_vec();
    message.resize(usize::try_from(length).unwrap() + 1, 0);
    from.read_exact(&mut message[5..])?;
    Ok(message)
}

/// Serves a client until it disconnects.
fn serve_client(mut client: UnixStream, pool: &BackendPool) -> io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut startup = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
    client.read_exact(&mut startup)?;
    client.write_all(LOGGED_IN)?;
    loop {
        let mut message = read_message(&mut client)?;
        if message[0] == b'X' {
            return Ok(());
        }
        let mut backend = pool.take();
        loop {
            backend.write_all(&message)?;
            // After a query or a `Sync`, the server answers up to `ReadyForQuery`.
            if matches!(message[0], b'Q' | b'S') && forward_replies(&mut backend, &mut client)? {
                break;
            }
            message = read_message(&mut client)?;
        }
        pool.put(backend);
    }
}

/// Forwards the answers of a statement. Returns true if the transaction is over.
fn forward_replies(backend: &mut UnixStream, client: &mut UnixStream) -> io::Result<bool> {
    loop {
        let reply = read_message(backend)?;
        client.write_all(&reply)?;
        if reply[0] == b'Z' {
            return Ok(reply[5] == b'I');
        }
    }
}
