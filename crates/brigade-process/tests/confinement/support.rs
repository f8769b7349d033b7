//! One command under a shim, confined, run to its end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use brigade_process::sandbox::SOCKET_FOLDER;
use brigade_process::shim::layout::CLAIM;
use brigade_process::{
    Companion, LandlockSupport, LayerAccess, NamespaceSupport, ProcessLimits, ProcessOutput,
    PtySize, SandboxPlan, SandboxScope, ShimLaunch, ShimRecord,
};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine; reached only when a test fails.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A place to work in, and one outside of it. Both have a file, and the first a link to the second.
pub(crate) struct Place {
    _folder: TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
}

pub(crate) struct Ran {
    pub(crate) record: ShimRecord,
    pub(crate) text: String,
}

/// How a command is run.
#[derive(Clone, Default)]
pub(crate) struct Run<'a> {
    pub(crate) layers: Vec<LayerAccess<'a>>,
    pub(crate) limits: ProcessLimits,
    pub(crate) terminal: Option<PtySize>,
    /// Without them, what Landlock keeps out is not also hidden.
    pub(crate) namespaces: Option<NamespaceSupport>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (inside, outside) = (root.join("inside"), root.join("outside"));
        for place in [&inside, &outside] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("file"), "content\n").unwrap();
        }
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        Self { _folder: folder, inside, outside }
    }

    pub(crate) fn layer(&self) -> LayerAccess<'_> {
        LayerAccess { write: vec![&self.inside], ..LayerAccess::default() }
    }

    /// A sandbox with all that this machine has.
    pub(crate) fn sandboxed(&self) -> Run<'_> {
        let namespaces = Some(companion().probe_namespaces());
        Run { layers: vec![self.layer()], namespaces, ..Run::default() }
    }

    /// A script inside, that knows the place outside as `$OUT`.
    pub(crate) async fn confined(&self, script: &str) -> Ran {
        let run = Run { layers: vec![self.layer()], ..Run::default() };
        run.script(self, script).await
    }
}

impl Run<'_> {
    pub(crate) async fn script(&self, place: &Place, script: &str) -> Ran {
        // Of two pipes nobody can tell what came first.
        let script = format!("exec 2>&1; {script}");
        self.program(place, &["/bin/sh", "-c", &script]).await
    }

    /// A script in another directory.
    pub(crate) async fn script_in(&self, place: &Place, cwd: &Path, script: &str) -> Ran {
        let script = format!("exec 2>&1; {script}");
        self.start(place, cwd, &["/bin/sh", "-c", &script]).await
    }

    pub(crate) async fn program(&self, place: &Place, words: &[&str]) -> Ran {
        self.start(place, &place.inside, words).await
    }

    async fn start(&self, place: &Place, cwd: &Path, words: &[&str]) -> Ran {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().canonicalize().unwrap();
        let scratch = state.join("processes/1.1.1/tmp");
        fs::create_dir_all(&scratch).unwrap();
        fs::create_dir(state.join("processes/another")).unwrap();
        fs::create_dir(state.join(SOCKET_FOLDER)).unwrap();
        fs::write(state.join("operator.key"), "secret\n").unwrap();
        let socket = state.join(SOCKET_FOLDER).join("brigade.sock");
        let _daemon = UnixListener::bind(socket).unwrap();
        let namespaces = self.namespaces.unwrap_or(NamespaceSupport::UNKNOWN);
        let scope = SandboxScope { layers: &self.layers, scratch: &scratch, state_dir: &state };
        let plan = SandboxPlan::build(LandlockSupport::detect(), namespaces, &scope);
        let plan = (!self.layers.is_empty()).then(|| plan.unwrap());
        let variable = |name: &str, value: &Path| (OsString::from(name), value.into());
        let launch = ShimLaunch {
            dir: dir.path(),
            boot_id: &[0; 16],
            argv: &words.iter().map(OsString::from).collect::<Vec<_>>(),
            env: &[
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                variable("OUT", &place.outside),
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
        tokio::time::timeout(TOO_LONG, shim.wait_exit()).await.expect("its end").unwrap();
        let record = ShimRecord::read_from(&File::open(dir.path().join(CLAIM)).unwrap()).unwrap();
        let output = ProcessOutput::open(dir.path()).and_then(|output| output.tail_text(1 << 20));
        Ran { record, text: output.unwrap_or_default() }
    }
}

pub(crate) fn companion() -> &'static Companion {
    static BUILDERS: OnceLock<Companion> = OnceLock::new();
    static USERS: OnceLock<Companion> = OnceLock::new();
    if is_root() {
        let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
        return BUILDERS.get_or_init(|| Companion::prepare(here).unwrap());
    }
    // Tests may be built by one user and run by another.
    USERS.get_or_init(|| {
        let user = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("brigade-test-shims-{user}"));
        fs::create_dir_all(&folder).unwrap();
        Companion::prepare(&folder).unwrap()
    })
}

/// Of this thread.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Most that is to be held up is for users who are not root. Root becomes one here, for this thread, which
/// is the test's own: all that it makes and starts from now on is that user's.
pub(crate) fn be_a_user() {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    const NOBODY: u32 = 65534;
    if is_root() {
        let (user, group) = (rustix::fs::Uid::from_raw(NOBODY), rustix::fs::Gid::from_raw(NOBODY));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
    }
}

/// Whether the kernel can do what a test is about. Where it cannot, the test says so.
pub(crate) fn can(what: &str, is_so: impl Fn(LandlockSupport) -> bool) -> bool {
    let here = LandlockSupport::detect();
    let can = here.check().is_ok() && is_so(here);
    if !can {
        eprintln!("not tested: {what} needs more than this kernel has of Landlock ({here:?})");
    }
    can
}

/// Whether a program is there that a test needs.
pub(crate) fn has(program: &str) -> bool {
    let there = ["/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists());
    if !there {
        eprintln!("not tested: {program} is not installed");
    }
    there
}

/// Whether mounts can be changed by whoever runs this thread. Where they cannot, the test says so.
pub(crate) fn can_mount() -> bool {
    let can = can("confinement", |_| true) && companion().probe_namespaces().mount.is_available();
    if !can {
        eprintln!("not tested: mount namespaces cannot be made here");
    }
    can
}
