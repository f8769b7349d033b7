//! `brigade store`: copies a store to another place.

use std::path::{Path, PathBuf};

use brigade_postgres::{PostgresCopySource, PostgresCopyTarget, PostgresOptions};
use brigade_protocol::StateDir;
use brigade_server::daemon::StateDirLock;
use brigade_sqlite::{SqliteCopySource, SqliteCopyTarget};
use brigade_store::StoreError;
use brigade_store::store_copy::{CopyError, CopySource, CopyTarget, TableDigest, copy_store};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};
use crate::workspace;

/// The variable with the password of a database, as for PostgreSQL's own programs.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

const STOP_HINT: &str = "stop it with `brigade daemon stop`; processes keep running";

/// Copy a store to another place
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    action: StoreSubcommand,
}

const EXAMPLES: &str = "\
Examples:
  brigade store copy ~/.local/state/brigade postgres://ada@db/kitchen
  brigade store copy postgres://ada@db/kitchen /var/lib/brigade
  brigade store copy --restart ./state postgres://ada@db/kitchen?schema=staging";

#[derive(Debug, clap::Subcommand)]
enum StoreSubcommand {
    /// Copy all sessions, tasks, events and records, and verify the copy
    ///
    /// FROM and TO are a state directory, a SQLite file whose name ends in `.db`, or a URL that begins
    /// with `postgres://`. The password can be in the variable PGPASSWORD.
    ///
    /// No daemon and no node may have FROM open. TO must be empty. The copy is a store only after the
    /// rows and digests of both sides were compared. Output, input and worktrees of tasks are files in
    /// the state directory; they are not copied.
    Copy(CopyArgs),
}

#[derive(Debug, clap::Args)]
struct CopyArgs {
    /// Store to copy
    from: String,
    /// Place of the copy
    to: String,
    /// Remove an incomplete copy at TO first
    #[arg(long)]
    restart: bool,
}

impl StoreArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        match self.action {
            StoreSubcommand::Copy(args) => args.run(context).await,
        }
    }
}

impl CopyArgs {
    async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let from = StoreLocation::parse(&self.from)?;
        let to = StoreLocation::parse(&self.to)?;
        if from.is_same_file(&to) {
            return Err(CliError::usage("FROM and TO are the same place"));
        }
        let source = from.open_source().await?;
        let target = to.create_target(self.restart).await?;
        let copied = copy_store(&*source.store, &*target.store, |_, _| {}).await?;
        print_copy(context, &from, &to, &copied)?;
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// The place of a store.
#[derive(Debug)]
enum StoreLocation {
    StateDir(StateDir),
    File(PathBuf),
    Postgres(Box<PostgresOptions>),
}

/// A store that is copied, with the lock of its state directory.
struct LockedStore<T: ?Sized> {
    /// Dropped before the lock.
    store: Box<T>,
    _lock: Option<StateDirLock>,
}

impl StoreLocation {
    fn parse(text: &str) -> Result<Self, CliError> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let options = PostgresOptions::from_url(text)
                .map_err(|error| CliError::usage(error.to_string()))?;
            let options = match std::env::var(PASSWORD_VARIABLE) {
                Ok(password) => options.password(&password),
                Err(_) => options,
            };
            return Ok(Self::Postgres(Box::new(options)));
        }
        if text.is_empty() || text.contains("://") {
            // A URL may have a password, so it is not repeated.
            return Err(CliError::usage("a store is a path or a postgres:// URL"));
        }
        let path = std::path::absolute(workspace::current_directory()?.join(text))?;
        let is_file = match path.metadata() {
            Ok(metadata) => !metadata.is_dir(),
            Err(_) => path.extension().is_some_and(|extension| extension == "db"),
        };
        Ok(if is_file { Self::File(path) } else { Self::StateDir(StateDir::new(path)) })
    }

    /// Returns the file of a store that is not in a database.
    fn file(&self) -> Option<PathBuf> {
        match self {
            Self::StateDir(state_dir) => Some(state_dir.store_path()),
            Self::File(path) => Some(path.clone()),
            Self::Postgres(_) => None,
        }
    }

    fn is_same_file(&self, other: &Self) -> bool {
        let canonical = |location: &Self| location.file()?.canonicalize().ok();
        canonical(self).is_some_and(|path| canonical(other) == Some(path))
    }

    fn render(&self) -> String {
        match self {
            Self::StateDir(state_dir) => state_dir.path().display().to_string(),
            Self::File(path) => path.display().to_string(),
            Self::Postgres(options) => options.to_string(),
        }
    }

    async fn open_source(&self) -> Result<LockedStore<dyn CopySource>, CliError> {
        Ok(match self {
            Self::StateDir(state_dir) => {
                let path = state_dir.store_path();
                check_exists(&path)?;
                let lock = StateDirLock::acquire(state_dir).map_err(CliError::from);
                let lock = Some(lock.map_err(|error| error.with_hint(STOP_HINT))?);
                LockedStore { store: Box::new(SqliteCopySource::open(path)?), _lock: lock }
            }
            Self::File(path) => {
                check_exists(path)?;
                LockedStore { store: Box::new(SqliteCopySource::open(path)?), _lock: None }
            }
            Self::Postgres(options) => {
                let store = PostgresCopySource::open(options).await?;
                LockedStore { store: Box::new(store), _lock: None }
            }
        })
    }

    async fn create_target(&self, restart: bool) -> Result<LockedStore<dyn CopyTarget>, CliError> {
        Ok(match self {
            Self::StateDir(state_dir) => {
                let lock = Some(StateDirLock::acquire(state_dir)?);
                let store = SqliteCopyTarget::create(state_dir.store_path(), restart)?;
                LockedStore { store: Box::new(store), _lock: lock }
            }
            Self::File(path) => {
                let store = SqliteCopyTarget::create(path, restart)?;
                LockedStore { store: Box::new(store), _lock: None }
            }
            Self::Postgres(options) => {
                let store = PostgresCopyTarget::create(options, restart).await?;
                LockedStore { store: Box::new(store), _lock: None }
            }
        })
    }
}

/// Refuses a source without a file, before its directory is created or locked.
fn check_exists(path: &Path) -> Result<(), CliError> {
    match path.exists() {
        true => Ok(()),
        false => Err(CopyError::NoSource(path.display().to_string()).into()),
    }
}

fn print_copy(
    context: &CliContext,
    from: &StoreLocation,
    to: &StoreLocation,
    copied: &[TableDigest],
) -> Result<(), CliError> {
    if context.json {
        let tables: Vec<_> = copied
            .iter()
            .map(|table| {
                serde_json::json!({
                    "table": table.table.name(),
                    "rows": table.rows,
                    "sha256": table.digest_text(),
                })
            })
            .collect();
        return render::print_json(&serde_json::json!({
            "from": from.render(),
            "to": to.render(),
            "verified": true,
            "tables": tables,
        }));
    }
    let mut table = TextTable::new(&["TABLE", "ROWS", "SHA-256"]);
    for digest in copied {
        let cells = [digest.table.name().to_owned(), digest.rows.to_string(), digest.digest_text()];
        table.add_row(cells.map(Into::into));
    }
    table.print()?;
    render::print_line(format!(
        "copied {} to {}; both sides have these rows and digests",
        from.render(),
        to.render()
    ))?;
    if let StoreLocation::StateDir(state_dir) = from {
        render::print_line(format!(
            "output and other files of processes were not copied; they stay in {}",
            state_dir.path().display()
        ))?;
    }
    Ok(())
}

impl From<CopyError> for CliError {
    fn from(error: CopyError) -> Self {
        let text = error.to_string();
        match error {
            CopyError::NoSource(_) => Self::new(CliExitCode::NOT_FOUND, text),
            CopyError::TargetNotEmpty(_) => Self::new(CliExitCode::FAILED, text),
            CopyError::TargetIncomplete(_) => Self::new(CliExitCode::FAILED, text)
                .with_hint("remove it, or repeat the copy with --restart"),
            CopyError::SourceChanged => Self::new(CliExitCode::FAILED, text)
                .with_hint("stop all nodes, and repeat the copy with --restart"),
            CopyError::Store(StoreError::Locked { .. }) => {
                Self::new(CliExitCode::STATE_DIR_TAKEN, text)
            }
            CopyError::Different { .. } | CopyError::Store(_) => Self::internal(text),
            // A later version may add an error.
            _ => Self::internal(text),
        }
    }
}
