//! A PostgreSQL server of its own, with the settings of `initdb`.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use peers_harness::BoxError;
use rustix::process::geteuid;

use crate::installed::find_postgres;
use crate::server::{Server, free_port, last_line};

/// The users that the server runs as when the runner is root, which PostgreSQL refuses.
const UNPRIVILEGED_USERS: [&str; 2] = ["postgres", "nobody"];

/// A running server. The process tree of the runner ends it.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    _server: Server,
    _dir: tempfile::TempDir,
}

impl Postgres {
    /// Creates a cluster and starts its server on a free loopback port.
    pub fn start() -> Result<Self, BoxError> {
        let bin = find_postgres()?;
        let account = if geteuid().is_root() { Some(Account::find()?) } else { None };
        let dir = tempfile::tempdir()?;
        if let Some(account) = &account {
            chown(dir.path(), Some(account.uid), Some(account.gid))?;
        }
        let command = |name: &str| command_as(account.as_ref(), bin.join(name), dir.path());
        create_cluster(command("initdb"), dir.path())?;
        let port = free_port()?;
        let mut postgres = command("postgres");
        postgres.arg("-D").arg(dir.path().join("data"));
        postgres.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k"]).arg(dir.path());
        let mut server = Server::start(&mut postgres, dir.path(), "postgres")?;
        server.wait_until(|| {
            let mut ready = Command::new(bin.join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
            ready.status().is_ok_and(|status| status.success())
        })?;
        Ok(Self { port, _server: server, _dir: dir })
    }

    /// Returns the address of the database for client libraries.
    pub fn url(&self) -> String {
        format!("postgresql://peers@127.0.0.1:{}/postgres", self.port)
    }
}

fn create_cluster(mut initdb: Command, dir: &Path) -> Result<(), BoxError> {
    let log = dir.join("initdb.log");
    let output = fs::File::create(&log)?;
    initdb.arg("-D").arg(dir.join("data")).args(["-U", "peers", "-A", "trust", "--no-sync"]);
    initdb.args(["--locale", "C", "--encoding", "UTF8"]);
    initdb.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let succeeded = initdb.status()?.success();
    if succeeded { Ok(()) } else { Err(format!("initdb: {}", last_line(&log)).into()) }
}

/// Returns a command that runs as an account.
fn command_as(account: Option<&Account>, program: PathBuf, dir: &Path) -> Command {
    let mut command = match account {
        Some(account) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &account.uid.to_string(), "--regid"]);
            command.args([&account.gid.to_string(), "--clear-groups", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.current_dir(dir);
    command
}

/// An unprivileged user of the machine.
#[derive(Debug, PartialEq)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    fn find() -> Result<Self, BoxError> {
        let users = fs::read_to_string("/etc/passwd")?;
        let mut accounts = UNPRIVILEGED_USERS.iter().filter_map(|name| Self::parse(&users, name));
        accounts.next().ok_or_else(|| "PostgreSQL needs a user other than root".into())
    }

    /// Returns the account of a name from lines `name:password:uid:gid:..`.
    fn parse(users: &str, name: &str) -> Option<Self> {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let user = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
        Some(Self { uid: user.get(2)?.parse().ok()?, gid: user.get(3)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_that_of_the_whole_name() {
        let users = "postgres2:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/:/bin/sh\n";
        assert_eq!(Account::parse(users, "postgres"), Some(Account { uid: 101, gid: 104 }));
        assert_eq!(Account::parse(users, "nobody"), None);
    }
}
