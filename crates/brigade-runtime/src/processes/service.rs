//! The performer of commands.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_model::action::Start;
use brigade_model::command::{End, EndedHow, Reported};
use brigade_model::ids::{Attempt, Millis, RunNo, TaskNo, TreeId};
use brigade_model::outcome::Failure;
use brigade_model::task::TaskRow;
use brigade_model::work::{CommandLine, ProcessWork, Work};
use brigade_process::machine::boot_id;
use brigade_process::orphans::{DeadShim, MARK, end_orphans, inherit_orphans, reap_inherited};
use brigade_process::private_file::open_private;
use brigade_process::{Companion, Launch, PeerProcess, ProcessId, Shim, ShimTiming};
use brigade_store::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::driver::{Driver, Known, Told};
use super::enclosure::{self, Enclosed, ExecutionPaths, Machine};
use super::environment;
use super::options::ProcessOptions;
use super::origin::{PeerOrigin, RegisteredShims};
use super::places::{Execution, Places};
use super::report::CommandNames;
use super::settle::{Settled, Sought};
use crate::clock::Clock;
use crate::performer::{Delivery, Performer, Reconciled, Reporter, StopHow, TaskId};

/// How long a stop stays kind when nobody says so: what the model uses too.
const GRACE: Duration = Duration::from_secs(5);

/// The most threads that remove directories: a disk is no faster with more.
const REMOVERS: usize = 4;

/// How long a folder that an earlier runtime of this program had may take to become free.
const LOCK_TRIES: u32 = 50;
const BETWEEN_LOCK_TRIES: Duration = Duration::from_millis(10);

/// Runs commands. One per runtime and state folder.
#[derive(Debug)]
pub(crate) struct Processes {
    options: ProcessOptions,
    places: Places,
    companion: Companion,
    machine: Machine,
    boot: [u8; 16],
    clock: Arc<dyn Clock>,
    watched: Arc<Mutex<Watched>>,
    /// Held until the runtime leaves: a folder has one owner.
    lock: Mutex<Option<File>>,
    tracker: TaskTracker,
    halted: CancellationToken,
}

type Watched = HashMap<TaskId, Watching>;

/// An attempt that is being watched.
#[derive(Debug)]
struct Watching {
    attempt: Attempt,
    told: mpsc::UnboundedSender<Told>,
    /// None until there is one.
    shim: Option<ProcessId>,
}

impl Processes {
    pub(crate) fn open(mut options: ProcessOptions, clock: Arc<dyn Clock>) -> io::Result<Self> {
        options.folder = std::path::absolute(&options.folder)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&options.folder)?;
        check_folder(&options.folder)?;
        let lock = take(&options.folder)?;
        let companion = Companion::prepare(&options.folder)?;
        if let Some(groups) = &options.control_groups {
            groups.remove_empty();
        }
        if options.inherit_orphans {
            inherit_orphans()?;
        }
        Ok(Self {
            places: Places::new(&options.folder),
            options,
            machine: Machine::new(companion.clone()),
            companion,
            boot: boot_id()?,
            clock,
            watched: Arc::default(),
            lock: Mutex::new(Some(lock)),
            tracker: TaskTracker::new(),
            halted: CancellationToken::new(),
        })
    }

    /// Where it is written down which MCP servers run.
    pub(crate) fn servers(&self) -> PathBuf {
        self.options.folder.join("servers")
    }

    /// Where the output of a run is.
    pub(crate) fn place_of(&self, task: TaskId, run: RunNo) -> Option<PathBuf> {
        self.places.last_of(task, run)
    }

    /// Where the output of an attempt will be.
    pub(crate) fn place_to_come(&self, task: TaskId, run: RunNo, attempt: Attempt) -> PathBuf {
        self.places.of(&Execution { task, run, attempt })
    }

    fn begin(&self, start: &Start, execution: &Execution) -> Result<Shim, String> {
        let made = self.places.make(execution);
        let dir = made.map_err(|error| format!("cannot make its directory: {error}"))?;
        self.launch(start, execution, &dir)
    }

    /// Removes what is kept of tasks that nobody knows any more, and ends what may still run of them.
    async fn remove_tasks(self: Arc<Self>, tree: TreeId, tasks: HashSet<TaskNo>) {
        let places = self.places.clone();
        let looking = tokio::task::spawn_blocking(move || places.executions_of(tree, &tasks));
        let executions = looking.await.unwrap_or_default();
        let share = executions.len().div_ceil(REMOVERS).max(1);
        let mut removing = JoinSet::new();
        for executions in executions.chunks(share) {
            let (processes, executions) = (self.clone(), executions.to_vec());
            removing.spawn_blocking(move || {
                executions.iter().for_each(|execution| processes.remove(execution));
            });
        }
        while removing.join_next().await.is_some() {}
        self.places.remove_if_empty(tree);
    }

    fn remove(&self, execution: &Execution) {
        if let Err(error) = self.try_remove(*execution) {
            tracing::warn!(%error, "the output of a pruned task could not be removed");
        }
    }

    fn try_remove(&self, execution: Execution) -> io::Result<()> {
        let (dir, boot) = (self.places.of(&execution), self.boot);
        let names = CommandNames::default();
        let sought = Sought { execution, dir, boot, names, was_begun: true, saw_it_die: false };
        if let Settled::Alive(shim) = sought.settle()? {
            tracing::warn!(pid = shim.pid(), "a command that no task knows is ended");
            let mark = execution.mark();
            end_orphans(&DeadShim { mark: &mark, id: None, died_now: &[] })?;
        }
        self.places.remove(&execution)
    }

    /// Waits for what was inherited and has ended.
    fn reap(&self) {
        if self.options.inherit_orphans {
            reap_inherited();
        }
    }

    /// Starts a shim for an attempt, or says why that is not possible.
    fn launch(&self, start: &Start, execution: &Execution, dir: &Path) -> Result<Shim, String> {
        let Work::Process(work) = &start.spec.work else {
            return Err("this work is not a command".to_owned());
        };
        let mut env = self.environment(start, execution, work)?;
        let enclosure = work.enclosure.as_deref();
        let paths = ExecutionPaths { dir, shell: self.shell_of(work) };
        let enclosed = Enclosed::prepare(&self.options, &self.machine, enclosure, paths)?;
        enclosure::tell(&enclosed, &mut env);
        let launch = Launch {
            dir,
            boot: &self.boot,
            argv: &self.argv(work),
            env: &env,
            cwd: work.cwd.as_deref().map(Path::new),
            stdin: work.reads_messages(),
            cap: self.output_cap(work),
            grace: start.spec.grace.map_or(GRACE, |Millis(grace)| Duration::from_millis(grace)),
            limits: enclosed.limits,
            terminal: enclosed.terminal,
            sandbox: enclosed.sandbox.as_ref(),
            timing: timing(start, work),
        };
        let started =
            launch.start_registered(&self.companion, |shim| self.register_shim(execution, shim));
        started.map_err(|error| format!("cannot start a shim: {error}"))
    }

    /// The most that is kept of each output stream of a command.
    pub(crate) fn output_cap(&self, work: &ProcessWork) -> u64 {
        work.output_cap.unwrap_or(self.options.output_cap)
    }

    /// The shell that reads a task's command line, or that a program may run.
    fn shell_of<'a>(&'a self, work: &'a ProcessWork) -> &'a Path {
        match (&work.shell, &work.command) {
            (Some(recorded), _) => Path::new(&**recorded),
            (None, CommandLine::Shell(_)) => self.options.earlier_shell(),
            (None, CommandLine::Program(_)) => self.options.chosen_shell(),
        }
    }

    fn argv(&self, work: &ProcessWork) -> Vec<OsString> {
        match &work.command {
            CommandLine::Program(words) => words.iter().map(|word| (&**word).into()).collect(),
            CommandLine::Shell(text) => {
                vec![self.shell_of(work).into(), "-c".into(), (&**text).into()]
            }
        }
    }

    fn environment(
        &self,
        start: &Start,
        execution: &Execution,
        work: &ProcessWork,
    ) -> Result<Vec<(OsString, OsString)>, String> {
        let mut env = environment::passed(&self.options.passed);
        for (name, value) in &work.env {
            environment::set(&mut env, name, environment::resolve(name, value)?);
        }
        let address = format!("{}/process:{}", start.session, start.no);
        environment::set(&mut env, environment::TASK, address.into());
        environment::set(&mut env, MARK, execution.mark().into());
        Ok(env)
    }

    /// Begins to watch an attempt. None if it is being watched already.
    fn watch(&self, start: Watch) -> Option<Driver> {
        let Watch { execution, dir, takes_input, names, known, reporter } = start;
        let (sender, told) = mpsc::unbounded_channel();
        let mut watched = self.watched();
        let (task, attempt) = (execution.task, execution.attempt);
        if watched.get(&task).is_some_and(|watching| watching.attempt == attempt) {
            return None;
        }
        watched.insert(task, Watching { attempt, told: sender, shim: None });
        let (boot, clock) = (self.boot, self.clock.clone());
        Some(Driver { execution, dir, boot, takes_input, names, known, clock, reporter, told })
    }

    /// Runs something on behalf of an attempt. The runtime does not leave before it is over.
    fn attend(&self, execution: Execution, work: impl Future<Output = ()> + Send + 'static) {
        let watched = self.watched.clone();
        let (task, attempt) = (execution.task, execution.attempt);
        self.tracker.spawn(async move {
            work.await;
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            if watched.get(&task).is_some_and(|watching| watching.attempt == attempt) {
                watched.remove(&task);
            }
        });
    }

    /// Does something until the runtime leaves.
    async fn while_here(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = self.halted.cancelled() => {}
            () = work => {}
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, task: TaskId, attempt: Attempt, told: Told) {
        if let Some(watching) = self.watched().get(&task)
            && watching.attempt == attempt
        {
            // Nobody listens to an attempt that is over; its end is on its way.
            let _ = watching.told.send(told);
        }
    }

    /// What connects from below this shim is known as its task from here on.
    fn register_shim(&self, execution: &Execution, shim: &Shim) {
        if let Some(watching) = self.watched().get_mut(&execution.task)
            && watching.attempt == execution.attempt
        {
            watching.shim = Some(shim.id());
        }
    }

    /// Tells from where a connected process comes: every process below a shim stays below it.
    pub(crate) fn origin_of(&self, peer: &PeerProcess) -> PeerOrigin {
        // Before the ancestors are looked at: a shim that ends meanwhile is still found in the list.
        let shims = self.registered_shims();
        PeerOrigin::of(peer, &shims)
    }

    pub(crate) fn withholds(&self, variable: &str) -> bool {
        environment::is_withheld(&self.options.passed, variable.as_ref())
    }

    fn registered_shims(&self) -> RegisteredShims {
        let watched = self.watched();
        let shims = watched
            .iter()
            .filter_map(|(task, watching)| Some((watching.shim?, (*task, watching.attempt))));
        shims.collect()
    }
}

struct Watch {
    execution: Execution,
    dir: PathBuf,
    takes_input: bool,
    names: CommandNames,
    known: Known,
    reporter: Reporter,
}

/// The performer, with a hold on itself for the work that it starts.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPerformer(pub(crate) Arc<Processes>);

impl Performer for ProcessPerformer {
    fn resolve(&self, work: &Work) -> Option<Work> {
        let Work::Process(process) = work else { return None };
        if process.shell.is_some() || matches!(process.command, CommandLine::Program(_)) {
            return None;
        }
        let shell = self.0.options.chosen_shell().to_str()?.into();
        Some(Work::Process(ProcessWork { shell: Some(shell), ..process.clone() }))
    }

    fn start(&self, start: Start, reporter: Reporter) {
        let execution = Execution { task: reporter.task, run: start.run, attempt: start.attempt };
        let dir = self.0.places.of(&execution);
        let watch = Watch {
            execution,
            dir: dir.clone(),
            takes_input: takes_input(&start.spec.work),
            names: CommandNames::of(&start.spec.work),
            known: Known::No,
            reporter: reporter.clone(),
        };
        let Some(driver) = self.0.watch(watch) else { return };
        let processes = self.0.clone();
        self.0.attend(execution, async move {
            let launching = processes.clone();
            // Files are made and read here, and a file can take its time. It is waited for in any
            // case: the next runtime must find a shim, or be sure that there will be none.
            let launched = tokio::task::spawn_blocking(move || launching.begin(&start, &execution));
            match launched.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(shim) => {
                    processes.while_here(driver.follow(shim)).await;
                }
                Err(problem) => {
                    let ended = Reported::Ended(not_started(problem));
                    processes.while_here(reporter.post(ended)).await;
                }
            }
            processes.reap();
        });
    }

    fn deliver(&self, task: TaskId, attempt: Attempt, delivery: Delivery) {
        if let Delivery::Message(message) = delivery {
            self.0.tell(task, attempt, Told::Message(message));
        }
    }

    fn stop(&self, task: TaskId, how: StopHow) {
        match how {
            StopHow::Kindly { attempt, deadline } => {
                self.0.tell(task, attempt, Told::Stop { deadline });
            }
            StopHow::Firmly { attempt } => self.0.tell(task, attempt, Told::Kill),
            StopHow::Forget => {}
        }
    }

    fn reconcile<'a>(
        &'a self,
        task: TaskId,
        row: &'a TaskRow,
        reporter: Reporter,
    ) -> BoxFuture<'a, Reconciled> {
        Box::pin(async move {
            let execution = Execution { task, run: row.run, attempt: row.attempt };
            let dir = self.0.places.of(&execution);
            let known = Known::of(row);
            let was_begun = known == Known::Begun;
            let (boot, place) = (self.0.boot, dir.clone());
            let names = CommandNames::of(&row.spec.work);
            let sought = {
                let names = names.clone();
                Sought { execution, dir: place, boot, names, was_begun, saw_it_die: false }
            };
            let looked = tokio::task::spawn_blocking(move || sought.settle());
            let settled = match looked.await.map_err(io::Error::other).and_then(|looked| looked) {
                Ok(settled) => settled,
                Err(error) => return Reconciled::Unknown { problem: error.to_string().into() },
            };
            match settled {
                Settled::Ended(end) => {
                    // The command may have filled it: nobody waits for that at a start.
                    self.0.tracker.spawn_blocking(move || Places::remove_scratch(&dir));
                    Reconciled::Ended(end)
                }
                Settled::NeverBegan => Reconciled::NeverBegan,
                Settled::Alive(shim) => {
                    let takes_input = takes_input(&row.spec.work);
                    let watch = Watch { execution, dir, takes_input, names, known, reporter };
                    if let Some(driver) = self.0.watch(watch) {
                        self.0.register_shim(&execution, &shim);
                        let processes = self.0.clone();
                        self.0.attend(execution, async move {
                            processes.while_here(driver.follow(shim)).await;
                            processes.reap();
                        });
                    }
                    Reconciled::Adopted
                }
            }
        })
    }

    fn kept(&self) -> BoxFuture<'_, Vec<TaskId>> {
        let places = self.0.places.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || places.kept()).await.unwrap_or_default()
        })
    }

    fn remove(&self, task: TaskId) -> BoxFuture<'_, ()> {
        self.remove_all(vec![task])
    }

    fn remove_all(&self, tasks: Vec<TaskId>) -> BoxFuture<'_, ()> {
        let processes = self.0.clone();
        let mut trees: HashMap<TreeId, HashSet<TaskNo>> = HashMap::new();
        for task in tasks {
            trees.entry(task.tree).or_default().insert(task.no);
        }
        Box::pin(async move {
            for (tree, tasks) in trees {
                processes.clone().remove_tasks(tree, tasks).await;
            }
        })
    }

    /// Lets go of the shims, which go on without us.
    fn halt(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.halted.cancel();
            self.0.tracker.close();
            self.0.tracker.wait().await;
            self.0.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        })
    }
}

/// The shim keeps the task's own time limit, in case nobody else is there to do it.
fn timing(start: &Start, work: &ProcessWork) -> ShimTiming {
    let time = |Millis(time)| Duration::from_millis(time);
    let limit = start.spec.limits.as_ref().and_then(|limits| limits.time);
    let (first_reader, deadline) = (work.first_reader.map(time), limit.map(time));
    ShimTiming { first_reader, deadline, ..ShimTiming::default() }
}

fn takes_input(work: &Work) -> bool {
    matches!(work, Work::Process(process) if process.reads_messages())
}

fn not_started(problem: String) -> End {
    let failure = Failure::Error(problem.into());
    EndedHow::Failed { failure, partial: None }.into()
}

/// Whoever can write to the folder can have commands executed as this user.
fn check_folder(folder: &Path) -> io::Result<()> {
    let found = folder.metadata()?;
    let foreign = found.uid() != brigade_process::machine::user();
    if foreign || found.permissions().mode() & 0o022 != 0 {
        let folder = folder.display();
        let whose = if foreign { "belongs to another user" } else { "can be written by others" };
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the folder {folder} {whose}; use one that is yours alone (mode 0700)"),
        ));
    }
    Ok(())
}

/// Takes the folder, which no other runtime may use.
fn take(folder: &Path) -> io::Result<File> {
    let mut options = File::options();
    let lock = open_private(&folder.join("processes.lock"), options.write(true).truncate(false))?;
    for _ in 0..LOCK_TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(error),
            // A child that is just being started has it, until it executes.
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_LOCK_TRIES),
        }
    }
    let text = format!("another runtime uses the folder {}", folder.display());
    Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
}
