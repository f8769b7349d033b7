//! The performer of processes.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::action::StartAction;
use brigade_model::command::{AttemptReport, EndReport, WorkResult};
use brigade_model::ids::{Attempt, Millis, RunNo, SessionId, TaskNo};
use brigade_model::outcome::Failure;
use brigade_model::task::TaskRow;
use brigade_model::work::{CommandLine, ProcessWork, Work};
use brigade_process::orphans::{DeadShim, MARK, end_orphans, inherit_orphans, reap_inherited};
use brigade_process::process_identity::{BootId, read_boot_id};
use brigade_process::{Companion, PeerProcess, Shim, ShimLaunch, ShimTiming};
use brigade_store::{BoxFuture, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::departed_readers::DepartedReaders;
use super::driver::{DriverRequest, ProcessDriver, StartRecorded, run_blocking};
use super::environment;
use super::execution_dirs::{ExecutionDirs, ProcessExecution};
use super::options::ProcessOptions;
use super::peer_origin::PeerOrigin;
use super::prepared_sandbox::{self, ExecutionPaths, NamespaceProbe, PreparedSandbox};
use super::probe::{ExecutionProbe, ProbeResult};
use super::readiness::{ReadinessWatch, check_ports_free};
use super::report::CommandDescription;
use super::state_dir::{check_state_dir, host_id, lock_state_dir, read_host};
use super::watched_processes::{ShimLaunches, WatchedProcesses};
use crate::clock::Clock;
use crate::performer::{Delivery, Performer, ReconcileResult, Reporter, StopMode, TaskId};
use crate::worktrees::WorktreeService;

/// The default grace period of a stop, the same as the model's.
pub(super) const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// The largest number of threads that remove directories. A disk is no faster with more.
const REMOVER_THREADS_MAX: usize = 4;

/// The service that runs processes, one per runtime and state directory.
#[derive(Debug)]
pub(crate) struct ProcessService {
    options: ProcessOptions,
    pub(super) execution_dirs: ExecutionDirs,
    companion: Companion,
    namespace_probe: NamespaceProbe,
    pub(crate) worktrees: Arc<WorktreeService>,
    pub(super) boot_id: BootId,
    /// The host of these processes, as it is stored with each start.
    pub(crate) host: Arc<str>,
    clock: Arc<dyn Clock>,
    watched: WatchedProcesses,
    launches: ShimLaunches,
    pub(crate) departed_readers: DepartedReaders,
    /// Held until the runtime shuts down, since a state directory has one owner.
    folder_lock: Mutex<Option<File>>,
    pub(super) tracker: TaskTracker,
    shutdown_token: CancellationToken,
}

impl ProcessService {
    pub(crate) fn open(mut options: ProcessOptions, clock: Arc<dyn Clock>) -> io::Result<Self> {
        options.state_dir = std::path::absolute(&options.state_dir)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&options.state_dir)?;
        check_state_dir(&options.state_dir)?;
        let lock = lock_state_dir(&options.state_dir)?;
        let host = read_host(&options.state_dir)?;
        let companion = Companion::prepare(&options.state_dir)?;
        if let Some(groups) = &options.control_groups {
            groups.remove_empty();
        }
        if options.inherit_orphans {
            inherit_orphans()?;
        }
        let shutdown_token = CancellationToken::new();
        let worktrees = WorktreeService::new(&options.state_dir, shutdown_token.clone())?;
        Ok(Self {
            execution_dirs: ExecutionDirs::new(&options.state_dir),
            options,
            namespace_probe: NamespaceProbe::new(companion.clone()),
            companion,
            worktrees: Arc::new(worktrees),
            boot_id: read_boot_id()?,
            host,
            clock,
            watched: WatchedProcesses::default(),
            launches: ShimLaunches::default(),
            departed_readers: DepartedReaders::default(),
            folder_lock: Mutex::new(Some(lock)),
            tracker: TaskTracker::new(),
            shutdown_token,
        })
    }

    /// Returns the directory for the pid files of MCP servers.
    #[cfg(feature = "agents")]
    pub(crate) fn mcp_servers_dir(&self) -> PathBuf {
        self.options.state_dir.join("servers")
    }

    /// Returns the directory of a run's last execution, with its output.
    pub(crate) fn run_dir(&self, task: TaskId, run: RunNo) -> Option<PathBuf> {
        self.execution_dirs.last_dir_of(task, run)
    }

    /// Returns the directory of an attempt, which may not exist yet.
    pub(crate) fn attempt_dir(&self, task: TaskId, run: RunNo, attempt: Attempt) -> PathBuf {
        self.execution_dirs.dir_of(&ProcessExecution { task, run, attempt })
    }

    fn start_shim(
        &self,
        start: &StartAction,
        execution: &ProcessExecution,
    ) -> Result<Shim, String> {
        let created = self.execution_dirs.create_dir(execution);
        let dir = created.map_err(|error| format!("cannot create its directory: {error}"))?;
        self.launch(start, execution, &dir)
    }

    /// Removes the data of tasks that the store does not have, and ends what still runs of them.
    async fn remove_tasks(self: Arc<Self>, session: SessionId, tasks: HashSet<TaskNo>) {
        let dirs = self.execution_dirs.clone();
        let found = tokio::task::spawn_blocking(move || dirs.executions_of_tasks(session, &tasks));
        let executions = found.await.unwrap_or_default();
        let share = executions.len().div_ceil(REMOVER_THREADS_MAX).max(1);
        let mut removing = JoinSet::new();
        for executions in executions.chunks(share) {
            let processes = self.clone();
            let executions = executions.to_vec();
            removing.spawn_blocking(move || {
                executions.iter().for_each(|execution| processes.remove_execution(execution));
            });
        }
        while removing.join_next().await.is_some() {}
        self.execution_dirs.remove_if_empty(session);
    }

    fn remove_execution(&self, execution: &ProcessExecution) {
        if let Err(error) = self.try_remove_execution(*execution) {
            tracing::warn!(%error, "the output of a pruned task could not be removed");
        }
    }

    fn try_remove_execution(&self, execution: ProcessExecution) -> io::Result<()> {
        let probe = ExecutionProbe {
            execution,
            dir: self.execution_dirs.dir_of(&execution),
            boot_id: self.boot_id,
            names: CommandDescription::default(),
            was_started: true,
            saw_shim_die: false,
        };
        if let ProbeResult::Alive(shim) = probe.probe()? {
            tracing::warn!(pid = shim.pid(), "ending a process that no task knows");
            let mark = execution.mark();
            end_orphans(&DeadShim { mark: &mark, shim: None, session_leaders: &[] })?;
        }
        self.execution_dirs.remove(&execution)
    }

    /// Reaps inherited orphans that have ended.
    pub(super) fn reap_orphans(&self) {
        if self.options.inherit_orphans {
            reap_inherited();
        }
    }

    /// Starts a shim for an attempt, or returns the problem.
    fn launch(
        &self,
        start: &StartAction,
        execution: &ProcessExecution,
        dir: &Path,
    ) -> Result<Shim, String> {
        let Work::Process(work) = &start.spec.work else {
            return Err("this work is not a process".to_owned());
        };
        let mut env = self.environment(start, execution, work)?;
        let paths = ExecutionPaths { dir, shell: self.shell_of(work) };
        let sandbox = work.sandbox.as_deref();
        let prepared =
            PreparedSandbox::prepare(&self.options, &self.namespace_probe, sandbox, paths)?;
        prepared_sandbox::extend_environment(&prepared, &mut env);
        let launch = ShimLaunch {
            dir,
            boot_id: self.boot_id,
            argv: &self.build_argv(work),
            env: &env,
            cwd: work.cwd.as_deref().map(Path::new),
            reads_input: work.reads_messages(),
            output_cap: self.output_cap(work),
            grace: start
                .spec
                .grace
                .map_or(DEFAULT_GRACE, |Millis(grace)| Duration::from_millis(grace)),
            limits: prepared.limits,
            terminal: prepared.terminal,
            sandbox: prepared.sandbox.as_ref(),
            timing: self.shim_timing(execution.task, start, work),
        };
        let started =
            launch.start_registered(&self.companion, |shim| self.register_shim(execution, shim));
        started.map_err(|error| format!("cannot start a shim: {error}"))
    }

    /// Returns the timing of a shim, with the task's own deadline in case no runtime is there to
    /// enforce it.
    fn shim_timing(&self, task: TaskId, start: &StartAction, work: &ProcessWork) -> ShimTiming {
        let duration = |Millis(millis)| Duration::from_millis(millis);
        let limit = start.spec.limits.as_ref().and_then(|limits| limits.time);
        let has_reader = !self.departed_readers.take(task);
        ShimTiming {
            first_reader_timeout: work.first_reader_timeout.filter(|_| has_reader).map(duration),
            deadline: limit.map(duration),
            ..ShimTiming::default()
        }
    }

    /// Returns the largest number of bytes stored of each output stream of a process.
    pub(crate) fn output_cap(&self, work: &ProcessWork) -> u64 {
        work.output_cap.unwrap_or(self.options.output_cap)
    }

    /// Returns the shell that reads a task's command line, or that a program may run.
    fn shell_of<'a>(&'a self, work: &'a ProcessWork) -> &'a Path {
        match (&work.shell, &work.command) {
            (Some(recorded), _) => Path::new(&**recorded),
            (None, CommandLine::Shell(_)) => self.options.unrecorded_shell(),
            (None, CommandLine::Program(_)) => self.options.default_shell(),
        }
    }

    fn build_argv(&self, work: &ProcessWork) -> Vec<OsString> {
        match &work.command {
            CommandLine::Program(words) => words.iter().map(|word| (&**word).into()).collect(),
            CommandLine::Shell(text) => {
                vec![self.shell_of(work).into(), "-c".into(), (&**text).into()]
            }
        }
    }

    fn environment(
        &self,
        start: &StartAction,
        execution: &ProcessExecution,
        work: &ProcessWork,
    ) -> Result<Vec<(OsString, OsString)>, String> {
        let mut env = environment::collect_passed(&self.options.passed_variables);
        for (name, value) in &work.env {
            environment::set_variable(&mut env, name, environment::resolve_value(name, value)?);
        }
        let address = format!("{}/process:{}", start.session, start.no);
        environment::set_variable(&mut env, environment::TASK_VARIABLE, address.into());
        environment::set_variable(&mut env, MARK, execution.mark().into());
        Ok(env)
    }

    /// Starts to watch an attempt. Returns `None` if it is being watched already.
    fn watch(&self, options: WatchOptions) -> Option<ProcessDriver> {
        let WatchOptions {
            execution,
            dir,
            reads_input,
            names,
            start_recorded,
            readiness,
            reporter,
        } = options;
        let watch = self.watched.begin(execution.task, execution.attempt)?;
        Some(ProcessDriver {
            execution,
            dir,
            boot_id: self.boot_id,
            reads_input,
            names,
            start_recorded,
            readiness,
            clock: self.clock.clone(),
            reporter,
            watch,
        })
    }

    /// Follows a process until it ends, the runtime shuts down, or the task is halted.
    async fn follow(&self, driver: ProcessDriver, shim: Shim) {
        let halt = driver.watch.halt.clone();
        halt.run_until_cancelled(self.run_until_shutdown(driver.follow_shim(shim))).await;
    }

    /// Runs work until it is over or the runtime shuts down.
    async fn run_until_shutdown(&self, work: impl Future<Output = ()>) {
        let _ = self.until_shutdown(work).await;
    }

    /// Returns the result of work, or `None` if the runtime shuts down first.
    pub(super) async fn until_shutdown<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.shutdown_token.cancelled() => None,
            result = work => Some(result),
        }
    }

    /// Releases the worktree of an ended task in the background. A release that fails is repeated
    /// at the next start.
    pub(crate) fn release_worktree(&self, store: Arc<dyn Store>, reporter: Reporter) {
        let worktrees = self.worktrees.clone();
        let shutdown_token = self.shutdown_token.clone();
        self.tracker.spawn(async move {
            let task = reporter.task;
            let released = worktrees.release(task, &store, &reporter);
            tokio::select! {
                biased;
                () = shutdown_token.cancelled() => {}
                released = released => if let Err(refusal) = released {
                    tracing::warn!(%refusal, no = %task.no, "a worktree could not be released");
                },
            }
        });
    }

    pub(crate) fn send_request(&self, task: TaskId, attempt: Attempt, request: DriverRequest) {
        self.watched.send_request(task, attempt, request);
    }

    /// Registers a shim, so that its descendants are known as its task when they connect.
    fn register_shim(&self, execution: &ProcessExecution, shim: &Shim) {
        self.watched.set_shim(execution.task, execution.attempt, shim.id());
    }

    /// Returns the origin of a connected process. The descendants of a shim stay its descendants.
    pub(crate) fn origin_of(&self, peer: &PeerProcess) -> PeerOrigin {
        // Taken before the ancestors are read, so that a shim which ends meanwhile is still in the
        // list.
        let shims = self.watched.registered_shims();
        PeerOrigin::of(peer, &shims)
    }

    pub(crate) fn withholds(&self, variable: &str) -> bool {
        environment::is_withheld(&self.options.passed_variables, variable.as_ref())
    }
}

struct WatchOptions {
    execution: ProcessExecution,
    dir: PathBuf,
    reads_input: bool,
    names: CommandDescription,
    start_recorded: StartRecorded,
    readiness: Option<ReadinessWatch>,
    reporter: Reporter,
}

/// The performer. It holds the service in an `Arc` for the work that it starts.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPerformer(pub(crate) Arc<ProcessService>);

impl Performer for ProcessPerformer {
    fn resolve(&self, work: &Work) -> Option<Work> {
        let Work::Process(process) = work else { return None };
        if process.shell.is_some() || matches!(process.command, CommandLine::Program(_)) {
            return None;
        }
        let shell = self.0.options.default_shell().to_str()?.into();
        Some(Work::Process(ProcessWork { shell: Some(shell), ..process.clone() }))
    }

    fn start(&self, start: StartAction, reporter: Reporter) {
        let execution =
            ProcessExecution { task: reporter.task, run: start.run, attempt: start.attempt };
        let dir = self.0.execution_dirs.dir_of(&execution);
        let watch = WatchOptions {
            execution,
            dir: dir.clone(),
            reads_input: reads_input(&start.spec.work),
            names: CommandDescription::from_work(&start.spec.work),
            start_recorded: StartRecorded::No,
            readiness: start.spec.work.readiness_check().and_then(ReadinessWatch::new),
            reporter: reporter.clone(),
        };
        let Some(driver) = self.0.watch(watch) else { return };
        let processes = self.0.clone();
        // A shutdown waits until it is over.
        self.0.tracker.spawn(async move {
            let halt = driver.watch.halt.clone();
            let placed = processes.worktrees.place_start(start, &reporter);
            let placed = halt.run_until_cancelled(processes.until_shutdown(placed)).await;
            let start = match placed.flatten() {
                Some(Ok(start)) => start,
                Some(Err(refusal)) => {
                    let ended = AttemptReport::Ended(not_started_end(refusal.message));
                    processes.run_until_shutdown(reporter.post(ended)).await;
                    return;
                }
                // The next owner finds that the process was not started.
                None => return,
            };
            let check = start.spec.work.readiness_check();
            let free = halt.run_until_cancelled(processes.until_shutdown(check_ports_free(check)));
            match free.await.flatten() {
                Some(Ok(())) => {}
                Some(Err(problem)) => {
                    let ended = AttemptReport::Ended(not_started_end(problem));
                    processes.run_until_shutdown(reporter.post(ended)).await;
                    return;
                }
                None => return,
            }
            let launching = processes.clone();
            let starting = reporter.clone();
            // File operations can take long, so they block their own thread. A shutdown waits for
            // them: the next runtime must find a shim, or be sure that there will be none.
            let launch = processes.launches.begin(execution.task);
            let launched = tokio::task::spawn_blocking(move || {
                let _launch = launch;
                starting.check_lease().is_ok().then(|| launching.start_shim(&start, &execution))
            });
            match launched.await.unwrap_or_else(|error| Some(Err(error.to_string()))) {
                Some(Ok(shim)) => processes.follow(driver, shim).await,
                None => {} // The next owner finds that the process was not started.
                Some(Err(problem)) => {
                    let ended = AttemptReport::Ended(not_started_end(problem));
                    processes.run_until_shutdown(reporter.post(ended)).await;
                }
            }
            processes.reap_orphans();
        });
    }

    fn deliver(&self, task: TaskId, attempt: Attempt, delivery: Delivery) {
        if let Delivery::Message(message) = delivery {
            self.0.send_request(task, attempt, DriverRequest::Message(message));
        }
    }

    fn stop(&self, task: TaskId, mode: StopMode) {
        match mode {
            StopMode::Graceful { attempt, deadline } => {
                self.0.send_request(task, attempt, DriverRequest::Stop { deadline });
            }
            StopMode::Forced { attempt } => self.0.send_request(task, attempt, DriverRequest::Kill),
            // Its process never started, or has ended.
            StopMode::Release => drop(self.0.departed_readers.take(task)),
        }
    }

    fn halt(&self, task: TaskId) {
        self.0.watched.halt(task);
    }

    fn reconcile<'a>(
        &'a self,
        task: TaskId,
        row: &'a TaskRow,
        reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        let host = row.extras.as_ref().and_then(|extras| extras.host.clone());
        if let Some(host) = host.filter(|host| host_id(host) != host_id(&self.0.host)) {
            return Box::pin(std::future::ready(ReconcileResult::Elsewhere { host }));
        }
        Box::pin(async move {
            self.0.launches.wait_ended(task).await;
            let execution = ProcessExecution { task, run: row.run, attempt: row.attempt };
            let dir = self.0.execution_dirs.dir_of(&execution);
            let start_recorded = StartRecorded::of_row(row);
            let names = CommandDescription::from_work(&row.spec.work);
            let probe = ExecutionProbe {
                execution,
                dir: dir.clone(),
                boot_id: self.0.boot_id,
                names: names.clone(),
                was_started: start_recorded == StartRecorded::Yes,
                saw_shim_die: false,
            };
            let found = match run_blocking(move || probe.probe()).await {
                Ok(found) => found,
                Err(error) => {
                    return ReconcileResult::Unknown { problem: error.to_string().into() };
                }
            };
            match found {
                ProbeResult::Ended(end) => {
                    // The process may have filled the directory: a start does not wait for its
                    // removal.
                    self.0.tracker.spawn_blocking(move || ExecutionDirs::remove_scratch_dir(&dir));
                    ReconcileResult::Ended(end)
                }
                ProbeResult::NeverStarted => ReconcileResult::NeverStarted,
                ProbeResult::Alive(shim) => {
                    let watch = WatchOptions {
                        execution,
                        dir,
                        reads_input: reads_input(&row.spec.work),
                        names,
                        start_recorded,
                        readiness: ReadinessWatch::of_row(row),
                        reporter,
                    };
                    if let Some(driver) = self.0.watch(watch) {
                        self.0.register_shim(&execution, &shim);
                        let processes = self.0.clone();
                        self.0.tracker.spawn(async move {
                            processes.follow(driver, shim).await;
                            processes.reap_orphans();
                        });
                    }
                    ReconcileResult::Adopted
                }
            }
        })
    }

    fn tasks_with_data(&self) -> BoxFuture<'_, Vec<TaskId>> {
        let dirs = self.0.execution_dirs.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || dirs.tasks()).await.unwrap_or_default()
        })
    }

    fn remove_data(&self, task: TaskId) -> BoxFuture<'_, ()> {
        self.remove_all(vec![task])
    }

    fn remove_all(&self, tasks: Vec<TaskId>) -> BoxFuture<'_, ()> {
        let processes = self.0.clone();
        let mut by_session: HashMap<SessionId, HashSet<TaskNo>> = HashMap::new();
        for task in tasks {
            processes.departed_readers.take(task);
            by_session.entry(task.session).or_default().insert(task.no);
        }
        Box::pin(async move {
            for (session, tasks) in by_session {
                processes.clone().remove_tasks(session, tasks).await;
            }
        })
    }

    /// Releases the shims, which continue without this runtime.
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.shutdown_token.cancel();
            self.0.tracker.close();
            self.0.tracker.wait().await;
            self.0.folder_lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        })
    }
}

fn reads_input(work: &Work) -> bool {
    matches!(work, Work::Process(process) if process.reads_messages())
}

fn not_started_end(problem: String) -> EndReport {
    let failure = Failure::error(problem);
    WorkResult::Failed { failure, partial: None }.into()
}
