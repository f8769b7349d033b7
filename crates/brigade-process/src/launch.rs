//! Starts a shim.
//!
//! All code between fork and exec runs inside the shim. So the runtime can use `posix_spawn`, whose
//! cost does not grow with the runtime's memory.
#![expect(unsafe_code, reason = "posix_spawn with a new session has no safe wrapper")]

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, PipeWriter, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use crate::companion::Companion;
use crate::hardening::restore_file_limit;
use crate::orphans::hold_off_reaping;
use crate::process_identity::BootId;
use crate::sandbox::SandboxPlan;
use crate::shim::environment;
use crate::shim::launch_settings::{
    FIRST_RULESET, LAYERS_MAX, LaunchSettings, ProcessLimits, PtySize,
};
use crate::shim::timing::ShimTiming;
use crate::shim_handle::Shim;

/// The number of attempts while the companion is busy. A concurrent fork may hold the new file open
/// for writing for a moment.
const BUSY_TRIES: u32 = 50;

/// The first descriptor number above those that a shim receives.
const FIRST_FREE: RawFd = FIRST_RULESET as RawFd + DESCRIPTORS_MAX as RawFd;

/// One ruleset for each layer, and the file with the other parts of the sandbox.
const DESCRIPTORS_MAX: usize = LAYERS_MAX + 1;

/// A process to start under a shim.
#[derive(Clone, Copy, Debug)]
pub struct ShimLaunch<'a> {
    /// An existing, empty directory that belongs to this execution alone.
    pub dir: &'a Path,
    pub boot_id: BootId,
    pub argv: &'a [OsString],
    /// The complete environment of the process.
    pub env: &'a [(OsString, OsString)],
    pub cwd: Option<&'a Path>,
    /// True if the process reads messages from stdin. A terminal always accepts input.
    pub reads_input: bool,
    /// The most bytes to store of each output stream.
    pub output_cap: u64,
    /// The grace period of a stop that sets none.
    pub grace: Duration,
    pub limits: ProcessLimits,
    /// A terminal instead of pipes. Its output is stored as stdout.
    pub terminal: Option<PtySize>,
    pub sandbox: Option<&'a SandboxPlan>,
    pub timing: ShimTiming,
}

impl ShimLaunch<'_> {
    /// Starts the shim. Its record shows whether the process could be started.
    pub fn start(&self, companion: &Companion) -> io::Result<Shim> {
        self.start_registered(companion, |_| ())
    }

    /// Starts the shim. Calls `register` with it before its process may run, so that no descendant
    /// is seen before its shim is known.
    pub fn start_registered(
        &self,
        companion: &Companion,
        register: impl FnOnce(&Shim),
    ) -> io::Result<Shim> {
        let command = companion.command();
        let program = c_string(command.program.as_os_str().as_bytes())?;
        let shim_args = self.shim_args();
        let words = command.leading_args.iter().chain(&shim_args).chain(self.argv);
        let words = words.map(|word| c_string(word.as_bytes()));
        let argv: Vec<CString> =
            [Ok(program.clone())].into_iter().chain(words).collect::<io::Result<_>>()?;
        let env = self.env.iter().filter(|(name, _)| is_shim_variable(name));
        let env =
            env.map(|(name, value)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        let env: Vec<CString> = env.collect::<io::Result<_>>()?;
        let descriptors =
            self.sandbox.map(SandboxPlan::descriptors).transpose()?.unwrap_or_default();
        let descriptors = move_descriptors(&descriptors)?;
        let gate = StartGate::new()?;
        let environment = environment_file(self.env)?;
        let files = SpawnFileActions::new(&gate, &environment, &descriptors)?;
        let _no_reaping = hold_off_reaping();
        let shim = Shim::from_child(spawn_shim(&program, &argv, &env, &files)?)?;
        restore_file_limit(shim.pid());
        register(&shim);
        gate.open();
        Ok(shim)
    }

    fn shim_args(&self) -> [OsString; 10] {
        let settings = LaunchSettings {
            layers: self.sandbox.map_or(0, SandboxPlan::layer_count),
            limits: self.limits,
            terminal: self.terminal,
        };
        [
            "run".into(),
            self.dir.into(),
            self.boot_id.to_hex().into(),
            self.output_cap.to_string().into(),
            self.grace.as_millis().to_string().into(),
            if self.reads_input { "open" } else { "none" }.into(),
            settings.to_string().into(),
            self.timing.to_string().into(),
            self.cwd.unwrap_or(Path::new("")).into(),
            "--".into(),
        ]
    }
}

/// A pipe that delays a shim: it claims nothing before it has read a byte or the end of the pipe.
///
/// The end comes if this process dies. The shim then continues as if its runtime had been killed a
/// moment later. The next runtime finds its claim before it answers requests.
struct StartGate {
    /// The shim's stdin.
    reader: OwnedFd,
    writer: PipeWriter,
}

impl StartGate {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader: rustix::io::fcntl_dupfd_cloexec(&reader, FIRST_FREE)?, writer })
    }

    /// Releases the shim. If the write fails, the end of the pipe does so.
    fn open(mut self) {
        let _ = self.writer.write_all(&[1]);
    }
}

/// Returns true for variables of the shim itself: Brigade's own, by which orphans are found.
fn is_shim_variable(name: &OsStr) -> bool {
    !HAS_MEMORY_FILES || name.as_bytes().starts_with(b"BRIGADE_")
}

/// True if the environment is passed in a memory file.
const HAS_MEMORY_FILES: bool = cfg!(target_os = "linux");

/// Creates the shim's stdout: a file with the environment of the process, or the null device.
fn environment_file(variables: &[environment::EnvVariable]) -> io::Result<OwnedFd> {
    if variables.iter().any(|(name, value)| has_nul(name) || has_nul(value)) {
        return Err(nul_byte_error());
    }
    #[cfg(target_os = "linux")]
    let file = {
        use rustix::fs::{MemfdFlags, memfd_create};
        let mut file = std::fs::File::from(memfd_create(c"environment", MemfdFlags::CLOEXEC)?);
        file.write_all(&environment::encode(variables))?;
        file
    };
    #[cfg(not(target_os = "linux"))]
    let file = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, FIRST_FREE)?)
}

fn has_nul(text: &OsStr) -> bool {
    text.as_bytes().contains(&0)
}

fn nul_byte_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "a command line or its environment contains a NUL byte",
    )
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| nul_byte_error())
}

/// Duplicates the descriptors to numbers above those at which the shim receives them.
fn move_descriptors(descriptors: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there are too many sandbox layers; start it from fewer nested sandboxes",
        ));
    }
    let moved = descriptors.iter().map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, FIRST_FREE));
    Ok(moved.collect::<rustix::io::Result<_>>()?)
}

/// Starts a shim in its own OS session, with `/dev/null` and the passed descriptors open, and no
/// signal ignored. All signals are blocked until the shim handles them, so that an early order does
/// not kill it.
fn spawn_shim(
    program: &CString,
    argv: &[CString],
    env: &[CString],
    files: &SpawnFileActions,
) -> io::Result<u32> {
    let argv = c_pointers(argv);
    let env = c_pointers(env);
    let attributes = SpawnAttributes::new()?;
    let mut pid = 0;
    for tries in 0.. {
        // SAFETY: the program is a C string. `argv` and `env` are null-terminated arrays of C
        // strings that live during the call. Both objects are initialized.
        let errno = unsafe {
            libc::posix_spawn(
                &mut pid,
                program.as_ptr(),
                &files.0,
                &attributes.0,
                argv.as_ptr(),
                env.as_ptr(),
            )
        };
        match errno {
            0 => break,
            libc::ETXTBSY if tries < BUSY_TRIES => {
                std::thread::sleep(Duration::from_millis(1));
            }
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
    u32::try_from(pid).map_err(io::Error::other)
}

fn c_pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|text| text.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

struct SpawnAttributes(libc::posix_spawnattr_t);

impl SpawnAttributes {
    fn new() -> io::Result<Self> {
        // The types of these constants differ between systems.
        let flags = i64::from(libc::POSIX_SPAWN_SETSID)
            | i64::from(libc::POSIX_SPAWN_SETSIGMASK)
            | i64::from(libc::POSIX_SPAWN_SETSIGDEF);
        let mut raw = MaybeUninit::uninit();
        let mut all = MaybeUninit::uninit();
        // SAFETY: init makes the object valid before its first use. The signal set is initialized
        // before it is read.
        unsafe {
            check_errno(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            let mut attributes = Self(raw.assume_init());
            libc::sigfillset(all.as_mut_ptr());
            check_errno(libc::posix_spawnattr_setsigmask(&mut attributes.0, all.as_ptr()))?;
            check_errno(libc::posix_spawnattr_setsigdefault(&mut attributes.0, all.as_ptr()))?;
            check_errno(libc::posix_spawnattr_setflags(&mut attributes.0, flags as libc::c_short))?;
            Ok(attributes)
        }
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: it is initialized, and nothing uses it afterwards.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

struct SpawnFileActions(libc::posix_spawn_file_actions_t);

impl SpawnFileActions {
    fn new(gate: &StartGate, environment: &OwnedFd, descriptors: &[OwnedFd]) -> io::Result<Self> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: init makes the object valid before its first use. The call copies the path, a C
        // string.
        unsafe {
            check_errno(libc::posix_spawn_file_actions_init(raw.as_mut_ptr()))?;
            let mut actions = Self(raw.assume_init());
            let null = c"/dev/null".as_ptr();
            check_errno(libc::posix_spawn_file_actions_addopen(
                &mut actions.0,
                2,
                null,
                libc::O_RDWR,
                0,
            ))?;
            let gate = gate.reader.as_raw_fd();
            let environment = environment.as_raw_fd();
            check_errno(libc::posix_spawn_file_actions_adddup2(&mut actions.0, environment, 1))?;
            check_errno(libc::posix_spawn_file_actions_adddup2(&mut actions.0, gate, 0))?;
            for (descriptor, at) in descriptors.iter().zip(FIRST_RULESET as RawFd..) {
                let fd = descriptor.as_raw_fd();
                check_errno(libc::posix_spawn_file_actions_adddup2(&mut actions.0, fd, at))?;
            }
            Ok(actions)
        }
    }
}

impl Drop for SpawnFileActions {
    fn drop(&mut self) {
        // SAFETY: it is initialized, and nothing uses it afterwards.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

fn check_errno(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
