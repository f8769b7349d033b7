//! Runs one sandboxed process under a shim to its end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use brigade_process::sandbox::SOCKET_DIR;
use brigade_process::shim::layout::CLAIM;
use brigade_process::{
    BootId, Companion, LandlockSupport, LayerAccess, NamespaceSupport, ProcessLimits,
    ProcessOutput, PtySize, SandboxPlan, SandboxScope, ShimLaunch, ShimRecord,
};
use tempfile::TempDir;

/// Longer than any step on a busy machine. Reached only if a test fails.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A directory to work in, and one outside. Both contain a file, and the first a link to the
/// second.
pub(crate) struct TestDirs {
    _temp: TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
}

pub(crate) struct ProcessResult {
    pub(crate) record: ShimRecord,
    pub(crate) text: String,
}

/// The settings of a run.
#[derive(Clone, Default)]
pub(crate) struct ProcessSettings<'a> {
    pub(crate) layers: Vec<LayerAccess<'a>>,
    pub(crate) limits: ProcessLimits,
    pub(crate) terminal: Option<PtySize>,
    /// Without namespaces, files that Landlock denies are not hidden as well.
    pub(crate) namespaces: Option<NamespaceSupport>,
}

impl TestDirs {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let inside = root.join("inside");
        let outside = root.join("outside");
        for dir in [&inside, &outside] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "content\n").unwrap();
        }
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        Self { _temp: temp, inside, outside }
    }

    pub(crate) fn layer(&self) -> LayerAccess<'_> {
        LayerAccess { write: vec![&self.inside], ..LayerAccess::default() }
    }

    /// Returns a sandbox with all parts that this machine supports.
    pub(crate) fn sandboxed(&self) -> ProcessSettings<'_> {
        let namespaces = Some(companion().probe_namespaces());
        ProcessSettings { layers: vec![self.layer()], namespaces, ..ProcessSettings::default() }
    }

    /// Runs a script inside. The directory outside is `$OUT`.
    pub(crate) async fn landlocked(&self, script: &str) -> ProcessResult {
        let run = ProcessSettings { layers: vec![self.layer()], ..ProcessSettings::default() };
        run.script(self, script).await
    }
}

impl ProcessSettings<'_> {
    pub(crate) async fn script(&self, dirs: &TestDirs, script: &str) -> ProcessResult {
        // One pipe, because the order of two pipes is unknown.
        let script = format!("exec 2>&1; {script}");
        self.program(dirs, &["/bin/sh", "-c", &script]).await
    }

    /// Runs a script in another directory.
    pub(crate) async fn script_in(
        &self,
        dirs: &TestDirs,
        cwd: &Path,
        script: &str,
    ) -> ProcessResult {
        let script = format!("exec 2>&1; {script}");
        self.start(dirs, cwd, &["/bin/sh", "-c", &script]).await
    }

    pub(crate) async fn program(&self, dirs: &TestDirs, argv: &[&str]) -> ProcessResult {
        self.start(dirs, &dirs.inside, argv).await
    }

    async fn start(&self, dirs: &TestDirs, cwd: &Path, argv: &[&str]) -> ProcessResult {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap();
        let scratch = state.join("processes/1.1.1/tmp");
        fs::create_dir_all(&scratch).unwrap();
        fs::create_dir(state.join("processes/another")).unwrap();
        fs::create_dir(state.join(SOCKET_DIR)).unwrap();
        fs::write(state.join("operator.key"), "secret\n").unwrap();
        let socket = state.join(SOCKET_DIR).join("brigade.sock");
        let _daemon = UnixListener::bind(socket).unwrap();
        let namespaces = self.namespaces.unwrap_or(NamespaceSupport::UNKNOWN);
        let scope = SandboxScope { layers: &self.layers, scratch: &scratch, state_dir: &state };
        let plan = SandboxPlan::build(LandlockSupport::detect(), namespaces, &scope);
        let plan = (!self.layers.is_empty()).then(|| plan.unwrap());
        let variable = |name: &str, value: &Path| (OsString::from(name), value.into());
        let launch = ShimLaunch {
            dir: dir.path(),
            boot_id: BootId([0; 16]),
            argv: &argv.iter().map(OsString::from).collect::<Vec<_>>(),
            env: &[
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                variable("OUT", &dirs.outside),
                variable("TMPDIR", &scratch),
                variable("STATE", &state),
            ],
            cwd: Some(cwd),
            reads_input: false,
            output_cap: 1 << 20,
            grace: Duration::from_secs(5),
            limits: self.limits,
            terminal: self.terminal,
            sandbox: plan.as_ref(),
            timing: brigade_process::ShimTiming::default(),
        };
        let shim = launch.start(companion()).unwrap();
        tokio::time::timeout(TOO_LONG, shim.wait_exit()).await.expect("the shim exits").unwrap();
        let record = ShimRecord::read_from(&File::open(dir.path().join(CLAIM)).unwrap()).unwrap();
        let output = ProcessOutput::open(dir.path()).and_then(|output| output.tail_text(1 << 20));
        ProcessResult { record, text: output.unwrap_or_default() }
    }
}

pub(crate) fn companion() -> &'static Companion {
    static OF_BUILDER: OnceLock<Companion> = OnceLock::new();
    static OF_USER: OnceLock<Companion> = OnceLock::new();
    if is_root() {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        return OF_BUILDER.get_or_init(|| Companion::prepare(dir).unwrap());
    }
    // Tests may be built by one user and run by another.
    OF_USER.get_or_init(|| {
        let user = rustix::process::geteuid().as_raw();
        let dir = std::env::temp_dir().join(format!("brigade-test-shims-{user}"));
        fs::create_dir_all(&dir).unwrap();
        Companion::prepare(&dir).unwrap()
    })
}

/// Returns true if this thread runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes this thread an ordinary user if it is root, because most guarantees are for those. The
/// thread belongs to one test, and everything that it creates or starts later is that user's.
pub(crate) fn become_user() {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    const NOBODY: u32 = 65534;
    if is_root() {
        let user = rustix::fs::Uid::from_raw(NOBODY);
        let group = rustix::fs::Gid::from_raw(NOBODY);
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
    }
}

/// Returns true if the kernel supports the feature. Otherwise prints that the test is skipped.
pub(crate) fn can(feature: &str, is_supported: impl Fn(LandlockSupport) -> bool) -> bool {
    let support = LandlockSupport::detect();
    let can = support.check().is_ok() && is_supported(support);
    if !can {
        eprintln!(
            "not tested: {feature} needs more than the Landlock of this kernel ({support:?})"
        );
    }
    can
}

/// Returns true if a program is installed. Otherwise prints that the test is skipped.
pub(crate) fn has(program: &str) -> bool {
    let is_installed = ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
    if !is_installed {
        eprintln!("not tested: {program} is not installed");
    }
    is_installed
}

/// Returns true if this user can create mount namespaces. Otherwise prints that the test is
/// skipped.
pub(crate) fn can_mount() -> bool {
    let can = can("a sandbox", |_| true) && companion().probe_namespaces().mount.is_available();
    if !can {
        eprintln!("not tested: mount namespaces cannot be created here");
    }
    can
}
