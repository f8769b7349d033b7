//! A private PostgreSQL server with a synchronous replica.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use brigade_postgres::test_server::{find_programs, unprivileged_command, unprivileged_user};

/// The time after which a database that does not answer is a failed run.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(120);

/// The settings of a server. An immediate stop loses nothing without `fsync`, since the machine stays up.
/// The replica reads the WAL of the time in which it was cut off, without a slot.
const SETTINGS: &str = "fsync = off\nmax_connections = 150\nshared_buffers = 64MB\nwal_level = replica\n\
    max_wal_senders = 8\nwal_keep_size = 256MB\nhot_standby = on\nsynchronous_commit = on\n\
    shared_memory_type = mmap\ndynamic_shared_memory_type = mmap\nautovacuum_naptime = 10s\n\
    wal_sender_timeout = 5s\nwal_receiver_timeout = 5s\nwal_retrieve_retry_interval = 200ms\n\
    log_min_messages = warning\nlisten_addresses = '127.0.0.1'\n";

/// Two servers, one of which is the primary.
#[derive(Debug)]
pub(crate) struct ReplicatedDatabase {
    servers: [DatabaseServer; 2],
    primary: usize,
    password: String,
}

/// A server of the database. It has a directory and a port of its own.
#[derive(Debug)]
struct DatabaseServer {
    bin: PathBuf,
    directory: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl ReplicatedDatabase {
    /// Starts a primary and its replica below a directory.
    pub(crate) fn start(directory: &Path) -> Self {
        let bin = find_programs().expect("PostgreSQL is installed; or set PG_BIN to its programs");
        let servers = ["db-a", "db-b"].map(|name| {
            let directory = directory.join(name);
            create_for_server(&directory);
            DatabaseServer { bin: bin.clone(), directory, port: free_port(), process: None }
        });
        let password = uuid::Uuid::new_v4().simple().to_string();
        let mut database = Self { servers, primary: 0, password };
        database.servers[0].initialize(&database.password);
        database.servers[0].start();
        database.add_replica();
        database
    }

    /// Returns the addresses of both servers.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        [&self.servers[0], &self.servers[1]].map(|server| ([127, 0, 0, 1], server.port).into())
    }

    /// Returns the URL of the database behind proxies on these ports.
    pub(crate) fn url(&self, ports: [u16; 2]) -> String {
        let hosts = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
        format!("postgres://brigade:{}@{hosts}/postgres?sslmode=disable", self.password)
    }

    fn primary(&mut self) -> &mut DatabaseServer {
        &mut self.servers[self.primary]
    }

    fn replica(&mut self) -> &mut DatabaseServer {
        &mut self.servers[1 - self.primary]
    }

    /// Returns the rows of a statement, or the error of `psql`.
    pub(crate) fn query(&self, sql: &str) -> Result<String, String> {
        self.servers[self.primary].query(sql)
    }

    /// Opens a transaction that has read all tables, and returns. It ends after this time.
    pub(crate) fn hold_transaction(&self, pause: Duration) {
        let tables =
            ["lanes", "nodes", "sessions", "tasks", "journal", "messages", "events", "calls"];
        let reads = tables.map(|table| format!("SELECT count(*) FROM brigade.{table}; ")).concat();
        let seconds = pause.as_secs_f64();
        let sql = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; {reads}SELECT pg_sleep({seconds}); COMMIT"
        );
        let mut psql = self.servers[self.primary].psql(&sql);
        // A restart of the server ends it earlier.
        std::thread::spawn(move || psql.output());
    }

    /// Ends the primary without a checkpoint, and starts it again.
    pub(crate) fn restart_primary(&mut self) {
        self.primary().stop();
        self.primary().start();
        self.wait_for_replica();
    }

    /// Ends the primary and promotes the replica.
    pub(crate) fn promote_replica(&mut self) {
        self.primary().stop();
        let replica = self.replica();
        replica.run("pg_ctl", &["promote", "-w", "-D"]);
        self.primary = 1 - self.primary;
    }

    /// Ends the replica, which makes commits wait, and starts it again after this time.
    pub(crate) fn pause_replica(&mut self, pause: Duration) {
        self.replica().stop();
        std::thread::sleep(pause);
        self.replica().start();
        self.wait_for_replica();
    }

    /// Makes the other server a replica of the primary. Commits wait for it from then on.
    pub(crate) fn add_replica(&mut self) {
        let source = self.primary().directory.clone();
        let port = self.primary().port.to_string();
        let replica = self.replica();
        replica.stop();
        let _ = fs::remove_dir_all(replica.data());
        let mut backup = replica.command("pg_basebackup");
        backup.args(["-U", "brigade", "-p", &port, "-c", "fast", "-R", "-X", "stream", "-h"]);
        run(backup.arg(&source).arg("-D").arg(replica.data()));
        replica.write_settings();
        replica.start();
        // The setting is in the primary's data alone, so that it does not wait after a promotion.
        let auto = replica.data().join("postgresql.auto.conf");
        let text = fs::read_to_string(&auto).expect("the backup has it");
        assert!(!text.contains("synchronous_standby_names"), "{text}");
        let set = "ALTER SYSTEM SET synchronous_standby_names = '*'";
        self.query(set).and_then(|_| self.query("SELECT pg_reload_conf()")).expect("it runs");
        self.wait_for_replica();
    }

    /// Waits until the replica has all commits and new ones wait for it.
    fn wait_for_replica(&self) {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' \
            AND state = 'streaming' AND flush_lsn >= pg_current_wal_flush_lsn()";
        wait_until("the replica is synchronous", || self.query(sql).as_deref() == Ok("1"));
    }
}

impl DatabaseServer {
    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn initialize(&self, password: &str) {
        let file = self.directory.join("password");
        fs::write(&file, password).expect("it is ours");
        give_to_server(&file);
        let mut command = self.command("initdb");
        command.args(["-U", "brigade", "--auth-local=trust", "--auth-host=scram-sha-256"]);
        command.args(["-E", "UTF8", "--locale=C", "--no-sync", "--pwfile"]).arg(&file).arg("-D");
        run(command.arg(self.data()));
        self.write_settings();
    }

    /// Writes the settings that differ between the servers. A backup has those of its source.
    fn write_settings(&self) {
        let path = self.data().join("postgresql.conf");
        let directory = self.directory.display();
        let own = format!("port = {}\nunix_socket_directories = '{directory}'\n", self.port);
        fs::write(&path, format!("{SETTINGS}{own}")).expect("it is ours");
    }

    fn start(&mut self) {
        let log = self.directory.join("log");
        let open = || fs::File::options().create(true).append(true).open(&log);
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).stdin(Stdio::null());
        command.stdout(open().expect("it is ours")).stderr(open().expect("it is ours"));
        self.process = Some(command.spawn().expect("postgres is installed"));
        wait_until("the server answers", || self.query("SELECT 1").is_ok());
    }

    fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        self.run("pg_ctl", &["stop", "-w", "-m", "immediate", "-D"]);
        process.wait().expect("it is our child");
    }

    fn psql(&self, sql: &str) -> Command {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "brigade"]);
        psql.args(["-d", "postgres", "-p", &self.port.to_string(), "-h"]).arg(&self.directory);
        psql.args(["-c", sql]);
        psql
    }

    fn query(&self, sql: &str) -> Result<String, String> {
        let output = self.psql(sql).output().expect("psql is installed");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()),
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        run(self.command(program).args(arguments).arg(self.data()));
    }

    fn command(&self, program: &str) -> Command {
        let mut command = unprivileged_command(self.bin.join(program));
        command.current_dir("/").stdin(Stdio::null());
        command
    }
}

/// Creates a directory for the user of the server.
fn create_for_server(path: &Path) {
    fs::create_dir(path).expect("its parent is ours");
    give_to_server(path);
}

fn give_to_server(path: &Path) {
    if let Some(user) = unprivileged_user() {
        run(Command::new("chown").arg(user).arg(path));
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    free.expect("a port is free").port()
}

#[track_caller]
fn run(command: &mut Command) {
    let Output { status, stdout, stderr } = command.output().expect("it is installed");
    let text = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {text}");
}

#[track_caller]
fn wait_until(expected: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + DATABASE_TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < deadline, "never happened: {expected}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
