//! The process behind a TCP port of this machine.

use crate::process_identity::ProcessId;

/// The relation between a shim and the process that accepts the connections of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortOwner {
    /// A descendant of the shim listens.
    Descendant,
    /// Another process listens.
    Other,
    /// This system does not tell, or not about every descendant.
    Unknown,
}

/// Finds out whether a descendant of a shim listens on a TCP port. Reads files, and blocks.
pub fn find_port_owner(port: u16, shim: ProcessId) -> PortOwner {
    #[cfg(full_linux)]
    return linux::find_port_owner(port, shim);
    #[cfg(not(full_linux))]
    {
        let _ = (port, shim);
        PortOwner::Unknown
    }
}

#[cfg(full_linux)]
mod linux {
    use std::collections::HashSet;
    use std::fs;
    use std::io::{self, BufRead, BufReader};

    use super::PortOwner;
    use crate::process_identity::ProcessId;
    use crate::shim::procfs::descendants;

    const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    /// The state of a socket that accepts connections.
    const LISTEN: &str = "0A";

    pub(super) fn find_port_owner(port: u16, shim: ProcessId) -> PortOwner {
        let mut sockets = HashSet::new();
        for table in TABLES {
            match fs::File::open(table) {
                Ok(table) => sockets.extend(listening_sockets(BufReader::new(table), port)),
                // A machine can be without IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => return PortOwner::Unknown,
            }
        }
        let mut all_readable = true;
        for member in descendants(shim.pid) {
            match holds_socket(member.pid, &sockets) {
                Ok(true) => return PortOwner::Descendant,
                Ok(false) => {}
                // It has ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => all_readable = false,
            }
        }
        if all_readable { PortOwner::Other } else { PortOwner::Unknown }
    }

    /// Returns the inodes of the sockets that listen on a port.
    fn listening_sockets(table: impl BufRead, port: u16) -> Vec<String> {
        let lines = table.lines().map_while(Result::ok).skip(1);
        lines.filter_map(|line| parse_listener(&line, port)).collect()
    }

    /// Returns the inode of a line of the table, if it listens on this port.
    fn parse_listener(line: &str, port: u16) -> Option<String> {
        let mut fields = line.split_ascii_whitespace();
        let (_, local_port) = fields.nth(1)?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        let is_listener = state == LISTEN && u16::from_str_radix(local_port, 16) == Ok(port);
        fields.nth(5).filter(|_| is_listener).map(str::to_owned)
    }

    /// Returns whether a process has one of these sockets open.
    fn holds_socket(pid: u32, sockets: &HashSet<String>) -> io::Result<bool> {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let Ok(target) = fs::read_link(entry?.path()) else { continue };
            let inode = target.to_str().and_then(|target| target.strip_prefix("socket:["));
            let inode = inode.and_then(|inode| inode.strip_suffix(']'));
            if inode.is_some_and(|inode| sockets.contains(inode)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[cfg(test)]
    mod tests {
        use std::net::TcpListener;

        use super::*;
        use crate::process_identity::identify_process;

        #[test]
        fn a_line_of_the_table_is_read() {
            let listener = "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 \
                            00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0";
            assert_eq!(parse_listener(listener, 8_000).as_deref(), Some("4711"));
            assert_eq!(parse_listener(listener, 8_001), None);
            assert_eq!(parse_listener(&listener.replace(" 0A ", " 01 "), 8_000), None);
            assert_eq!(parse_listener("", 8_000), None);
            assert_eq!(parse_listener("0: x", 8_000), None);
        }

        #[test]
        fn a_socket_of_this_process_is_of_its_ancestors_only() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let own = identify_process(std::process::id()).unwrap();
            // This process is no descendant of itself.
            assert_eq!(find_port_owner(port, own), PortOwner::Other);
            let parent = std::os::unix::process::parent_id();
            let parent = identify_process(parent).unwrap();
            assert_eq!(find_port_owner(port, parent), PortOwner::Descendant);
        }
    }
}
