//! Starting a shim.
//!
//! Everything that would need code between fork and exec happens inside the shim, so that the
//! runtime can use `posix_spawn`, whose cost does not grow with the runtime's memory.
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
use crate::machine_identity::boot_id_hex;
use crate::orphans::hold_off_reaping;
use crate::sandbox::SandboxPlan;
use crate::shim::environment;
use crate::shim::launch_settings::{
    FIRST_RULESET, LAYERS_MAX, LaunchSettings, ProcessLimits, PtySize,
};
use crate::shim::timing::ShimTiming;
use crate::shim_handle::Shim;

/// Another process may hold the companion open for writing for a moment: it was just made, and
/// somebody else was being started at that time.
const BUSY_TRIES: u32 = 50;

/// The first descriptor at which a shim finds nothing that it is handed.
const FIRST_FREE: RawFd = FIRST_RULESET as RawFd + DESCRIPTORS_MAX as RawFd;

/// A ruleset for each layer, and the file with the rest.
const DESCRIPTORS_MAX: usize = LAYERS_MAX + 1;

/// A command to be started under a shim.
#[derive(Clone, Copy, Debug)]
pub struct ShimLaunch<'a> {
    /// Exists, is empty, and belongs to this one execution.
    pub dir: &'a Path,
    pub boot_id: &'a [u8; 16],
    pub argv: &'a [OsString],
    /// All of the command's environment.
    pub env: &'a [(OsString, OsString)],
    pub cwd: Option<&'a Path>,
    /// Whether the command reads what is written to it; otherwise it reads nothing. A terminal can
    /// always be typed on.
    pub reads_input: bool,
    /// The most that is kept of each output stream.
    pub output_cap: u64,
    /// How long a stop stays kind when it does not say so itself.
    pub grace: Duration,
    pub limits: ProcessLimits,
    /// Instead of pipes: one stream, which is kept as the output.
    pub terminal: Option<PtySize>,
    pub sandbox: Option<&'a SandboxPlan>,
    pub timing: ShimTiming,
}

impl ShimLaunch<'_> {
    /// Starts the shim. The record tells whether the command could be started.
    pub fn start(&self, companion: &Companion) -> io::Result<Shim> {
        self.start_registered(companion, |_| ())
    }

    /// Starts the shim. `register` is called with it before its command may run, so that nothing below a
    /// shim can be met before the shim itself is known.
    pub fn start_registered(
        &self,
        companion: &Companion,
        register: impl FnOnce(&Shim),
    ) -> io::Result<Shim> {
        let (program, leading) = companion.command();
        let program = c_string(program.as_os_str().as_bytes())?;
        let orders = self.shim_args();
        let words = leading.iter().chain(&orders).chain(self.argv);
        let words = words.map(|word| c_string(word.as_bytes()));
        let argv: Vec<CString> =
            [Ok(program.clone())].into_iter().chain(words).collect::<io::Result<_>>()?;
        let env = self.env.iter().filter(|(name, _)| is_shim_variable(name));
        let env =
            env.map(|(name, value)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        let env: Vec<CString> = env.collect::<io::Result<_>>()?;
        let handed = self.sandbox.map(SandboxPlan::descriptors).transpose()?.unwrap_or_default();
        let handed = move_descriptors(&handed)?;
        let gate = StartGate::new()?;
        let environment = environment_file(self.env)?;
        let files = SpawnFileActions::new(&gate, &environment, &handed)?;
        let _not_reaped = hold_off_reaping();
        let shim = Shim::from_child(spawn_shim(&program, &argv, &env, &files)?)?;
        restore_file_limit(shim.pid());
        register(&shim);
        gate.open();
        Ok(shim)
    }

    fn shim_args(&self) -> [OsString; 10] {
        let (limits, terminal) = (self.limits, self.terminal);
        let layers = self.sandbox.map_or(0, SandboxPlan::layer_count);
        let surroundings = LaunchSettings { layers, limits, terminal };
        [
            "run".into(),
            self.dir.into(),
            boot_id_hex(self.boot_id).into(),
            self.output_cap.to_string().into(),
            self.grace.as_millis().to_string().into(),
            if self.reads_input { "open" } else { "none" }.into(),
            surroundings.to_string().into(),
            self.timing.to_string().into(),
            self.cwd.unwrap_or(Path::new("")).into(),
            "--".into(),
        ]
    }
}

/// A pipe that holds a shim back: it claims nothing before it has read a byte or the end of the pipe.
///
/// The end comes when this process dies. The shim then goes on as one whose runtime was killed a moment
/// later: the next runtime finds its claim before it answers anybody.
struct StartGate {
    /// The shim's standard input.
    reader: OwnedFd,
    writer: PipeWriter,
}

impl StartGate {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader: rustix::io::fcntl_dupfd_cloexec(&reader, FIRST_FREE)?, writer })
    }

    /// Lets the shim go on, as the end of the pipe does if this fails.
    fn open(mut self) {
        let _ = self.writer.write_all(&[1]);
    }
}

/// Whether a variable is given to the shim itself too: only those of Brigade, by which it is found.
fn is_shim_variable(name: &OsStr) -> bool {
    !HAS_MEMORY_FILES || name.as_bytes().starts_with(b"BRIGADE_")
}

/// Where files in memory are to be had, the command's environment is handed over in one.
const HAS_MEMORY_FILES: bool = cfg!(target_os = "linux");

/// What the shim finds at its standard output: the command's environment, or the null device.
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
    io::Error::new(io::ErrorKind::InvalidInput, "a NUL byte in a command or its environment")
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| nul_byte_error())
}

/// The same descriptors, with numbers that are not those at which the shim finds them.
fn move_descriptors(handed: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    if handed.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is confined too many times over",
        ));
    }
    let moved = handed.iter().map(|one| rustix::io::fcntl_dupfd_cloexec(one, FIRST_FREE));
    Ok(moved.collect::<rustix::io::Result<_>>()?)
}

/// Starts a shim in a session of its own, with nothing open but `/dev/null` and what it is handed, and no signal ignored. All are blocked until it can take them: an order that comes early must not end it.
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
    for tried in 0.. {
        // SAFETY: the program is a C string; argv and env are arrays of C strings that end with
        // null and live until the call returns; both objects were initialized.
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
            libc::ETXTBSY if tried < BUSY_TRIES => {
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
        // Systems disagree about the types of these.
        let flags = i64::from(libc::POSIX_SPAWN_SETSID)
            | i64::from(libc::POSIX_SPAWN_SETSIGMASK)
            | i64::from(libc::POSIX_SPAWN_SETSIGDEF);
        let mut raw = MaybeUninit::uninit();
        let mut all = MaybeUninit::uninit();
        // SAFETY: init makes the object valid before anything else touches it; the signal set is
        // initialized by its own call before it is read.
        unsafe {
            check_errno(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            let mut made = Self(raw.assume_init());
            libc::sigfillset(all.as_mut_ptr());
            check_errno(libc::posix_spawnattr_setsigmask(&mut made.0, all.as_ptr()))?;
            check_errno(libc::posix_spawnattr_setsigdefault(&mut made.0, all.as_ptr()))?;
            check_errno(libc::posix_spawnattr_setflags(&mut made.0, flags as libc::c_short))?;
            Ok(made)
        }
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: it was initialized, and nothing uses it afterwards.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

struct SpawnFileActions(libc::posix_spawn_file_actions_t);

impl SpawnFileActions {
    fn new(gate: &StartGate, environment: &OwnedFd, handed: &[OwnedFd]) -> io::Result<Self> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: init makes the object valid before anything else touches it; the path is a C
        // string that the call copies.
        unsafe {
            check_errno(libc::posix_spawn_file_actions_init(raw.as_mut_ptr()))?;
            let mut made = Self(raw.assume_init());
            let null = c"/dev/null".as_ptr();
            check_errno(libc::posix_spawn_file_actions_addopen(
                &mut made.0,
                2,
                null,
                libc::O_RDWR,
                0,
            ))?;
            let (gate, environment) = (gate.reader.as_raw_fd(), environment.as_raw_fd());
            check_errno(libc::posix_spawn_file_actions_adddup2(&mut made.0, environment, 1))?;
            check_errno(libc::posix_spawn_file_actions_adddup2(&mut made.0, gate, 0))?;
            for (one, at) in handed.iter().zip(FIRST_RULESET as RawFd..) {
                let fd = one.as_raw_fd();
                check_errno(libc::posix_spawn_file_actions_adddup2(&mut made.0, fd, at))?;
            }
            Ok(made)
        }
    }
}

impl Drop for SpawnFileActions {
    fn drop(&mut self) {
        // SAFETY: it was initialized, and nothing uses it afterwards.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

fn check_errno(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
