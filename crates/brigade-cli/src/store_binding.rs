//! The store to which a state directory belongs.
//!
//! A state directory holds the output and the processes of tasks, and a daemon ends processes that
//! its store does not know. So a directory belongs to one store: to the SQLite file in it, or to the
//! database that `store.json` names. A daemon of another store is refused before it changes anything.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;

use brigade_postgres::{DEFAULT_SCHEMA, PostgresOptions, PostgresStore};
use brigade_process::private_file::{open_plain, open_private};
use brigade_protocol::StateDir;
use brigade_server::store_id::{ensure_store_id, read_store_id};
use brigade_sqlite::SqliteStore;
use brigade_store::Store;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::exit_code::CliError;
use crate::render;

/// The database to which a state directory belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreBinding {
    /// The id of the store.
    pub(crate) id: Uuid,
    /// The URL at the last start, without its password.
    pub(crate) url: String,
}

impl StoreBinding {
    /// Returns the binding of a directory, or `None` if no daemon on a database has run in it.
    pub(crate) fn read(state_dir: &StateDir) -> io::Result<Option<Self>> {
        let path = state_dir.store_binding_path();
        let file = match open_plain(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(serde_json::from_reader(io::BufReader::new(file))?))
    }

    /// Writes the binding under another name first, so that no reader finds half of it.
    fn write(&self, state_dir: &StateDir) -> io::Result<()> {
        let path = state_dir.store_binding_path();
        let draft = path.with_extension("json.new");
        let mut file = open_private(&draft, OpenOptions::new().write(true).truncate(true))?;
        serde_json::to_writer(&file, self)?;
        writeln!(file)?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)
    }
}

fn read_binding(state_dir: &StateDir) -> Result<Option<StoreBinding>, CliError> {
    StoreBinding::read(state_dir).map_err(|error| {
        CliError::internal(format!("{}: {error}", state_dir.store_binding_path().display()))
    })
}

/// Refuses the store in a state directory that belongs to a database.
pub(crate) fn check_unbound(state_dir: &StateDir) -> Result<(), CliError> {
    let Some(StoreBinding { url, .. }) = read_binding(state_dir)? else { return Ok(()) };
    let shown = state_dir.path().display();
    Err(CliError::usage(format!(
        "the state directory {shown} belongs to the store {url}; nothing was changed"
    ))
    .with_hint(format!("name that store (`brigade serve --store {url}`), or another --state")))
}

/// A database that is open, and was not yet used.
#[derive(Debug)]
pub(crate) struct OpenedDatabase {
    store: Arc<PostgresStore>,
    binding: StoreBinding,
}

impl OpenedDatabase {
    /// Opens a database. Creates the tables if there are none.
    pub(crate) async fn open(options: &PostgresOptions) -> Result<Self, CliError> {
        let url = render_url(options);
        let store = PostgresStore::open(options).await;
        let store = store.map_err(|error| CliError::internal(format!("{url}: {error}")))?;
        let id = ensure_store_id(&store).await?;
        Ok(Self { store: Arc::new(store), binding: StoreBinding { id, url } })
    }

    /// Checks that the state directory belongs to this database or to none.
    pub(crate) async fn check_state_dir(&self, state_dir: &StateDir) -> Result<(), CliError> {
        let shown = state_dir.path().display();
        let StoreBinding { id, url } = &self.binding;
        let problem = match read_binding(state_dir)? {
            Some(bound) if bound.id == *id => return Ok(()),
            Some(bound) if bound.url == *url => "another store at the same URL".to_owned(),
            Some(bound) => format!("the store {}", bound.url),
            None => match find_own_sessions(state_dir).await? {
                Some(own) if own.id != Some(*id) => {
                    let count = render::render_count(own.sessions as u64, "workspace");
                    format!("the store in it, which has {count}")
                }
                _ => return Ok(()),
            },
        };
        Err(CliError::usage(format!(
            "the state directory {shown} belongs to {problem}; nothing in it was changed"
        ))
        .with_hint("name another directory with --state"))
    }

    /// Binds a state directory, whose lock the caller holds, to this database.
    pub(crate) async fn bind(self, state_dir: &StateDir) -> Result<Arc<PostgresStore>, CliError> {
        // Another daemon may have used the directory since the first check.
        self.check_state_dir(state_dir).await?;
        self.binding.write(state_dir).map_err(|error| {
            CliError::internal(format!("{}: {error}", state_dir.store_binding_path().display()))
        })?;
        Ok(self.store)
    }
}

/// Renders the URL of a store without its password, so that it names the schema.
fn render_url(options: &PostgresOptions) -> String {
    match options.schema_name() {
        DEFAULT_SCHEMA => options.to_string(),
        schema => format!("{options}?schema={}", schema.replace(' ', "%20")),
    }
}

/// The sessions in the SQLite file of a state directory.
struct OwnSessions {
    /// `None` if no daemon has chosen an id.
    id: Option<Uuid>,
    sessions: usize,
}

/// Returns the sessions of the SQLite file, or `None` if there are none.
async fn find_own_sessions(state_dir: &StateDir) -> Result<Option<OwnSessions>, CliError> {
    let path = state_dir.store_path();
    if !std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0) {
        return Ok(None);
    }
    let failed = |error: brigade_store::StoreError| {
        CliError::internal(format!("{}: {error}", path.display()))
            .with_hint("name another directory with --state")
    };
    let store = SqliteStore::open_read_only(&path).map_err(failed)?;
    let sessions = store.sessions().await.map_err(failed)?.len();
    let id = read_store_id(&store).await?;
    Ok((sessions > 0).then_some(OwnSessions { id, sessions }))
}
