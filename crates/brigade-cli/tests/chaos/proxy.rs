//! A TCP proxy between a node and a database server, with faults.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time after which a waiting thread looks at the fault again.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteDirection {
    ToServer,
    ToClient,
}

/// The fault that a proxy adds to its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyFault {
    None,
    /// Each piece of data is this much later.
    Delay(Duration),
    /// Connections are refused, and existing ones are cut.
    Refuse,
    /// Connections stay open, and no byte arrives.
    HalfOpen,
}

/// A proxy on a port of the loopback interface. It ends with the value.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    port: u16,
    shared: Arc<ProxyState>,
}

#[derive(Debug)]
struct ProxyState {
    target: SocketAddr,
    fault: Mutex<ProxyFault>,
    connections: Mutex<Vec<(TcpStream, TcpStream)>>,
    /// The bytes after which a connection is cut: to the server, and to the client. Negative is never.
    bytes_until_cut: [AtomicI64; 2],
    cuts: AtomicU64,
    is_closed: AtomicBool,
}

impl FaultProxy {
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let shared = Arc::new(ProxyState {
            target,
            fault: Mutex::new(ProxyFault::None),
            connections: Mutex::new(Vec::new()),
            bytes_until_cut: [AtomicI64::new(-1), AtomicI64::new(-1)],
            cuts: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let state = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if state.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                state.accept(client);
            }
        });
        Self { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set_fault(&self, fault: ProxyFault) {
        *lock(&self.shared.fault) = fault;
        if fault == ProxyFault::Refuse {
            self.cut_all();
        }
    }

    /// Cuts every connection.
    pub(crate) fn cut_all(&self) {
        for (client, server) in lock(&self.shared.connections).drain(..) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the connection that transfers the last of this many bytes. The bytes before arrive.
    pub(crate) fn cut_after(&self, direction: ByteDirection, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.shared.bytes_until_cut[direction as usize].store(bytes, Ordering::Relaxed);
    }

    /// Returns how many connections were cut after a number of bytes.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.cut_all();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl ProxyState {
    fn accept(self: &Arc<Self>, client: TcpStream) {
        if *lock(&self.fault) == ProxyFault::Refuse {
            return;
        }
        let Ok(server) = TcpStream::connect_timeout(&self.target, Duration::from_secs(1)) else {
            return;
        };
        let copies =
            (client.try_clone(), server.try_clone(), client.try_clone(), server.try_clone());
        let (Ok(client_out), Ok(server_out), Ok(first), Ok(second)) = copies else { return };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_read_timeout(Some(LOOK_INTERVAL));
        }
        lock(&self.connections).push((first, second));
        let state = Arc::clone(self);
        std::thread::spawn(move || state.forward(client, server_out, ByteDirection::ToServer));
        let state = Arc::clone(self);
        std::thread::spawn(move || state.forward(server, client_out, ByteDirection::ToClient));
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream, direction: ByteDirection) {
        let mut buffer = vec![0; 16 * 1024];
        while !self.is_closed.load(Ordering::Relaxed) {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if is_timeout(&error) => continue,
                Err(_) => break,
            };
            self.wait_out_fault();
            let allowed = self.allowed(direction, count);
            if to.write_all(&buffer[..allowed]).is_err() {
                break;
            }
            if allowed < count {
                self.cuts.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Returns how many of these bytes are forwarded. One connection gets less than all, and is cut.
    fn allowed(&self, direction: ByteDirection, count: usize) -> usize {
        let until_cut = &self.bytes_until_cut[direction as usize];
        let count_signed = i64::try_from(count).unwrap_or(i64::MAX);
        let before = until_cut.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
            (bytes >= 0).then(|| (bytes - count_signed).max(-1))
        });
        match before {
            Ok(bytes) if bytes < count_signed => usize::try_from(bytes).unwrap_or(0),
            _ => count,
        }
    }

    fn wait_out_fault(&self) {
        loop {
            let fault = *lock(&self.fault);
            match fault {
                ProxyFault::Delay(delay) => return std::thread::sleep(delay),
                ProxyFault::HalfOpen if !self.is_closed.load(Ordering::Relaxed) => {
                    std::thread::sleep(LOOK_INTERVAL);
                }
                _ => return,
            }
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a proxy before a server that sends each byte back.
    fn echo() -> FaultProxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let target = listener.local_addr().expect("it listens");
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while client.read_exact(&mut byte).is_ok() && client.write_all(&byte).is_ok() {}
                });
            }
        });
        FaultProxy::start(target)
    }

    fn ask(proxy: &FaultProxy, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("it listens");
        let _ = stream.set_read_timeout(Some(Duration::from_millis(300)));
        let _ = stream.write_all(text.as_bytes());
        let mut answer = Vec::new();
        let mut byte = [0];
        while answer.len() < text.len() && stream.read_exact(&mut byte).is_ok() {
            answer.push(byte[0]);
        }
        String::from_utf8(answer).expect("the text")
    }

    #[test]
    fn a_connection_is_cut_after_its_bytes() {
        let proxy = echo();
        assert_eq!(ask(&proxy, "whole"), "whole");
        proxy.cut_after(ByteDirection::ToServer, 2);
        // The answers to the first bytes may be cut too.
        assert!("wh".starts_with(&ask(&proxy, "whole")));
        assert_eq!(proxy.cuts(), 1);
        proxy.cut_after(ByteDirection::ToClient, 0);
        assert_eq!(ask(&proxy, "whole"), "");
        assert_eq!(ask(&proxy, "whole"), "whole");
        assert_eq!(proxy.cuts(), 2);
    }

    #[test]
    fn a_half_open_connection_transfers_nothing() {
        let proxy = echo();
        for fault in [ProxyFault::HalfOpen, ProxyFault::Refuse] {
            proxy.set_fault(fault);
            assert_eq!(ask(&proxy, "whole"), "");
        }
        proxy.set_fault(ProxyFault::Delay(Duration::from_millis(1)));
        assert_eq!(ask(&proxy, "whole"), "whole");
    }
}
