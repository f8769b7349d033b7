//! A private PostgreSQL server for tests and benchmarks.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::options::PostgresOptions;

/// Runs the server as long as its standard input is open, and then stops it and removes its files. So
/// the server ends with the process that started it, however that ends.
const SCRIPT: &str = r#"
set -eu
bin=$1
settings=$2
port=$3
certificate=$4
key=$5
standby=$6
dir=$(mktemp -d "${BRIGADE_BENCH_DIR:-/tmp}/brigade-postgres.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$bin/initdb" -D "$dir/data" -U brigade --auth-local=trust --auth-host=scram-sha-256 -E UTF8 \
    --locale=C --no-sync >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; exit 1; }
printf '%s\n' "$settings" >>"$dir/data/postgresql.conf"
if [ -n "$certificate" ]; then
    umask 077
    printf '%s' "$certificate" >"$dir/data/server.crt"
    printf '%s' "$key" >"$dir/data/server.key"
    printf "ssl = on\nlisten_addresses = '127.0.0.1'\n" >>"$dir/data/postgresql.conf"
else
    printf "listen_addresses = ''\n" >>"$dir/data/postgresql.conf"
fi
[ -z "$standby" ] || touch "$dir/data/standby.signal"
export PGPORT="$port"
"$bin/postgres" -D "$dir/data" -k "$dir" >"$dir/server.log" 2>&1 &
server=$!
tries=0
until "$bin/pg_isready" -q -h "$dir" -U brigade -d postgres; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ] || ! kill -0 "$server" 2>/dev/null; then
        cat "$dir/server.log" >&2
        kill -INT "$server" 2>/dev/null || true
        exit 1
    fi
    sleep 0.05
done
echo "$dir"
cat >/dev/null
kill -QUIT "$server" 2>/dev/null || true
wait "$server" || true
"#;

/// The settings of a server whose data nobody needs after a power cut.
const SETTINGS: &str = "fsync = off\nmax_connections = 200\nshared_buffers = 64MB\n\
                        autovacuum_naptime = 10s\nlog_min_messages = fatal";

/// The settings of a server that syncs each commit to the disk, as one in production.
const DURABLE_SETTINGS: &str = "max_connections = 200\nshared_buffers = 512MB\nmax_wal_size = 8GB\n\
                                log_min_messages = fatal";

/// The port of a server that does not listen on it, but names its socket after it.
const SOCKET_PORT: u16 = 5432;

/// The directory of the small disk of a server.
pub const SMALL_DISK: &str = "/mnt";

/// A private server that listens on a socket in a directory of its own. It ends when the value is
/// dropped, or with this process.
#[derive(Debug)]
pub struct TestServer {
    child: Child,
    bin: PathBuf,
    dir: PathBuf,
    port: u16,
    schemas: AtomicU32,
}

impl TestServer {
    /// Starts a server from the installed programs.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed or does not start.
    pub fn start() -> Self {
        Self::start_with(SOCKET_PORT, SETTINGS, ["", "", ""])
    }

    /// Starts a server that syncs each commit to the disk, for benchmarks. Its files are in a new directory
    /// of `/tmp`, or of the directory that the variable `BRIGADE_BENCH_DIR` names.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed or does not start.
    pub fn start_durable() -> Self {
        Self::start_with(SOCKET_PORT, DURABLE_SETTINGS, ["", "", ""])
    }

    /// Starts a server that is a replica, and accepts no writes.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed or does not start.
    pub fn start_replica() -> Self {
        Self::start_with(SOCKET_PORT, SETTINGS, ["", "", "standby"])
    }

    /// Starts a server that also listens on a free port of the loopback interface, with a certificate
    /// and its key in the format PEM. Users need a password there.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed or does not start.
    pub fn start_on_loopback(certificate: &str, key: &str) -> Self {
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        Self::start_with(free.expect("a port is free").port(), SETTINGS, [certificate, key, ""])
    }

    /// Starts a server with a file system of `megabytes` at [`SMALL_DISK`], which only the server sees.
    /// Returns `None` if this process cannot mount one.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed or does not start.
    pub fn start_with_small_disk(megabytes: u32) -> Option<Self> {
        let mut mounting = Command::new("unshare");
        let mount = format!("mount -t tmpfs -o size={megabytes}m,mode=1777 none {SMALL_DISK}");
        mounting.args(["--mount", "sh", "-c"]);
        let can_mount = Command::new("unshare").args(["--mount", "sh", "-c", &mount]).output();
        if !can_mount.is_ok_and(|output| output.status.success()) {
            return None;
        }
        mounting.arg(format!("{mount} && exec \"$@\"")).arg("sh");
        Some(Self::start_below(mounting, SOCKET_PORT, SETTINGS, ["", "", ""]))
    }

    /// Starts a server with settings, a certificate, its key, and a word that makes it a replica.
    fn start_with(port: u16, settings: &str, arguments: [&str; 3]) -> Self {
        Self::start_below(Command::new("env"), port, settings, arguments)
    }

    /// Starts a server with a command that executes its arguments.
    fn start_below(mut command: Command, port: u16, settings: &str, arguments: [&str; 3]) -> Self {
        let bin = find_programs().expect(
            "PostgreSQL is not installed: install it (Debian: postgresql), or set PG_BIN to the \
             directory of its programs",
        );
        let shell = unprivileged_command("sh");
        command.arg(shell.get_program()).args(shell.get_args()).current_dir("/");
        command.arg("-c").arg(SCRIPT).arg("brigade-postgres").arg(&bin).arg(settings);
        command.arg(port.to_string()).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a shell is started");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output is a pipe");
        BufReader::new(output).read_line(&mut line).expect("its output is read");
        let dir = PathBuf::from(line.trim_end());
        assert!(!dir.as_os_str().is_empty(), "the server did not start");
        Self { child, bin, dir, port, schemas: AtomicU32::new(0) }
    }

    /// Returns the URL of the server's database.
    pub fn url(&self) -> String {
        let host = self.dir.to_string_lossy().replace('/', "%2F");
        format!("postgres://brigade@{host}:{}/postgres", self.port)
    }

    /// Returns the path of the server's socket.
    pub fn socket_path(&self) -> String {
        self.dir.join(format!(".s.PGSQL.{}", self.port)).to_string_lossy().into_owned()
    }

    /// Returns the URL of the server's database on the loopback interface, such as for the login
    /// `ada:secret` and the host `localhost`.
    pub fn loopback_url(&self, login: &str, host: &str) -> String {
        format!("postgres://{login}@{host}:{}/postgres", self.port)
    }

    /// Returns the URL of the server's database for another user.
    pub fn url_of(&self, login: &str) -> String {
        self.url().replace("brigade@", &format!("{login}@"))
    }

    /// Runs statements as the superuser, with `psql`, and returns the rows of the last one.
    ///
    /// # Panics
    ///
    /// Panics if a statement fails.
    pub fn execute(&self, sql: &str) -> String {
        let output = self.psql().args(["-c", sql]).output().expect("psql runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {errors}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Runs the statements of a file as the superuser.
    ///
    /// # Panics
    ///
    /// Panics if a statement fails.
    pub fn execute_file(&self, path: &Path) {
        let output = self.psql().arg("-f").arg(path).output().expect("psql runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", path.display());
    }

    /// Runs a statement in a transaction that stays open, until the value is released or dropped.
    ///
    /// # Panics
    ///
    /// Panics if the statement does not return.
    pub fn hold_lock(&self, sql: &str) -> HeldLock {
        let mut psql = self.psql();
        psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = psql.spawn().expect("psql runs");
        let mut input = child.stdin.take().expect("its input is a pipe");
        writeln!(input, "BEGIN; {sql};\n\\echo held").expect("psql reads");
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let is_held = output.lines().map_while(Result::ok).any(|line| line == "held");
        assert!(is_held, "psql ended: {sql}");
        HeldLock { child, input: Some(input) }
    }

    fn psql(&self) -> Command {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.args(["-U", "brigade", "-d", "postgres", "-h"]).arg(&self.dir);
        psql.env("PGPORT", self.port.to_string());
        psql
    }

    /// Returns the options of a schema that no other call returns.
    pub fn new_schema(&self) -> PostgresOptions {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        let options = PostgresOptions::from_url(&self.url()).expect("the URL is valid");
        options.schema(&format!("test_{number}")).expect("the name is valid")
    }
}

/// A transaction that stays open until the value is released or dropped.
#[derive(Debug)]
pub struct HeldLock {
    child: Child,
    input: Option<ChildStdin>,
}

impl HeldLock {
    /// Commits the transaction.
    pub fn commit(&mut self) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "COMMIT;");
        }
        self.release();
    }

    /// Reverts the transaction.
    pub fn release(&mut self) {
        // Without it, `psql` ends before the server has reverted the transaction.
        if let Some(mut input) = self.input.take() {
            let _ = writeln!(input, "ROLLBACK;");
        }
        let _ = self.child.wait();
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.release();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Returns the directory of the server's programs.
pub fn find_programs() -> Option<PathBuf> {
    let programs = ["initdb", "postgres", "pg_isready", "psql"];
    let has_server = |dir: &Path| programs.iter().all(|program| dir.join(program).is_file());
    if let Some(dir) = std::env::var_os("PG_BIN") {
        return Some(PathBuf::from(dir)).filter(|dir| has_server(dir));
    }
    let on_path = std::env::var_os("PATH")
        .and_then(|path| std::env::split_paths(&path).find(|dir| has_server(dir)));
    // Debian has a directory for each version.
    let versions = || fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    on_path.or_else(|| {
        versions().map(|version| version.path().join("bin")).filter(|dir| has_server(dir)).max()
    })
}

/// Returns a command for a program as another user, if this one is the superuser: the server does not run
/// as that.
pub fn unprivileged_command(program: impl AsRef<OsStr>) -> Command {
    if unprivileged_user().is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(program.as_ref());
    command.current_dir("/");
    command
}

/// Returns the user of [`unprivileged_command`] if that is another one.
pub fn unprivileged_user() -> Option<&'static str> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|about| {
        use std::os::unix::fs::MetadataExt;
        about.uid() == 0
    });
    is_root.then_some("nobody")
}
