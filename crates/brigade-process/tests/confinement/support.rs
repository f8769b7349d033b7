//! One command under a shim, confined, run to its end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use brigade_process::shim::layout::CLAIM;
use brigade_process::{Companion, Landlock, Launch, Layer, Limits, Output, Record, Terminal};
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
    pub(crate) record: Record,
    pub(crate) text: String,
}

/// How a command is run.
#[derive(Clone, Default)]
pub(crate) struct Run<'a> {
    pub(crate) layers: Vec<Layer<'a>>,
    pub(crate) limits: Limits,
    pub(crate) terminal: Option<Terminal>,
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

    pub(crate) fn layer(&self) -> Layer<'_> {
        Layer { write: vec![&self.inside], ..Layer::default() }
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

    pub(crate) async fn program(&self, place: &Place, words: &[&str]) -> Ran {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().canonicalize().unwrap().join("tmp");
        fs::create_dir(&scratch).unwrap();
        let rulesets = Landlock::here().rulesets(&self.layers, &scratch).unwrap();
        let variable = |name: &str, value: &Path| (OsString::from(name), value.into());
        let launch = Launch {
            dir: dir.path(),
            boot: &[0; 16],
            argv: &words.iter().map(OsString::from).collect::<Vec<_>>(),
            env: &[
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                variable("OUT", &place.outside),
                variable("TMPDIR", &scratch),
            ],
            cwd: Some(&place.inside),
            stdin: false,
            cap: 1 << 20,
            grace: Duration::from_secs(5),
            limits: self.limits,
            terminal: self.terminal,
            rulesets: &rulesets,
        };
        let shim = launch.start(companion()).unwrap();
        tokio::time::timeout(TOO_LONG, shim.gone()).await.expect("its end").unwrap();
        let record = Record::read_from(&File::open(dir.path().join(CLAIM)).unwrap()).unwrap();
        let output = Output::open(dir.path()).and_then(|output| output.tail_text(1 << 20));
        Ran { record, text: output.unwrap_or_default() }
    }
}

fn companion() -> &'static Companion {
    static COMPANION: OnceLock<Companion> = OnceLock::new();
    COMPANION.get_or_init(|| Companion::prepare(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap())
}

/// Whether the kernel can do what a test is about. Where it cannot, the test says so.
pub(crate) fn can(what: &str, is_so: impl Fn(Landlock) -> bool) -> bool {
    let here = Landlock::here();
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
