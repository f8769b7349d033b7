//! The record of a shim about its process, in the claim file of its directory.
//!
//! The file gets its name after it was written completely. Later writes overwrite it in place, so a
//! full disk cannot prevent them. The shim writes it and the runtime reads it. A runtime that finds
//! no claim writes one itself, so that a late shim does nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::boot_id::BootId;
use super::fnv::fnv1a;
use super::sandbox::SandboxParts;

/// The size of a record. It fits into one page, so that a kill leaves no half write.
pub const RECORD_BYTES: usize = 1024;
/// The most survivors with a name. The others are only counted.
pub const SURVIVORS_MAX: usize = 16;

const MAGIC: [u8; 8] = *b"brigade\x01";
const NAME_BYTES: usize = 16;
/// The offset of fields that earlier versions left as zeros.
const LATER_FIELDS_OFFSET: usize = 896;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimRecord {
    pub claimer: Claimer,
    pub phase: ShimPhase,
    /// The boot id. Pids and start times of another boot mean nothing.
    pub boot_id: BootId,
    pub shim: ProcessId,
    /// `None` until the process was started.
    pub command: Option<ProcessId>,
    /// True if the process has a terminal. It then leads an OS session of its own.
    pub has_terminal: bool,
    /// The applied parts, or none until the process was started.
    pub sandbox: SandboxParts,
    pub exit: Option<ProcessExit>,
    pub stop_phase: ShimStopPhase,
    /// The bytes that each stream has produced, stored or not.
    pub produced_bytes: [u64; 2],
    /// The bytes that could not be written to the disk.
    pub unwritten_bytes: [u64; 2],
    /// The number of entries ever written to the order file.
    pub switch_count: u64,
    /// The most bytes stored of each stream.
    pub output_cap: u64,
    /// In milliseconds since the Unix epoch.
    pub started_at: u64,
    pub ended_at: u64,
    pub survivors: Vec<Survivor>,
    /// The number of survivors, including those without a name.
    pub survivors_total: u32,
    /// The milliseconds for which output waited for readers with a lease.
    pub held_ms: u64,
    /// The spooled bytes that the process received.
    pub input_delivered: u64,
    /// True if the process accepts no more input.
    pub input_closed: bool,
    /// True if the shim's version reads the spool.
    pub supports_spool: bool,
    /// The deadline in milliseconds, if the shim ended the process because of it; else zero.
    pub overdue_after_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimer {
    /// The shim won and may execute.
    Shim,
    /// A runtime won. This shim has executed nothing and never will.
    Runtime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShimPhase {
    /// Nothing was executed yet.
    Claimed,
    /// The process is being started and may already have run.
    Launching,
    Running,
    /// The process has exited, and its descendants are being ended.
    Exited,
    /// The tree is empty, or the survivors are listed.
    Done,
}

/// A process identity that differs from later ones with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    pub pid: u32,
    /// The clock ticks between boot and start, or zero if the system does not report them.
    pub start: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
    /// The system refused the start with this errno.
    NotStarted {
        step: StartStep,
        errno: i32,
    },
}

/// The step of a start that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartStep {
    WorkingDirectory,
    Input,
    Execute,
    /// The execution of a sandboxed process, which the sandbox may have denied.
    ExecuteSandboxed,
    Terminal,
    Limits,
    Sandbox,
    Namespaces,
    Filter,
    ControlGroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShimStopPhase {
    None,
    Graceful,
    Forced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    pub id: ProcessId,
    pub name: String,
}

impl ShimRecord {
    /// Returns the leaders of the OS sessions of the process tree, the shim first.
    pub fn session_leaders(&self) -> Vec<ProcessId> {
        let command = self.command.filter(|_| self.has_terminal);
        [self.shim].into_iter().chain(command).collect()
    }

    pub fn new(claimer: Claimer, boot: BootId, shim: ProcessId, cap: u64) -> Self {
        Self {
            claimer,
            phase: ShimPhase::Claimed,
            boot_id: boot,
            shim,
            command: None,
            has_terminal: false,
            sandbox: SandboxParts::default(),
            exit: None,
            stop_phase: ShimStopPhase::None,
            produced_bytes: [0; 2],
            unwritten_bytes: [0; 2],
            switch_count: 0,
            output_cap: cap,
            started_at: 0,
            ended_at: 0,
            survivors: Vec::new(),
            survivors_total: 0,
            held_ms: 0,
            input_delivered: 0,
            input_closed: false,
            supports_spool: claimer == Claimer::Shim,
            overdue_after_ms: 0,
        }
    }

    /// Overwrites the record in place.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.encode(), 0)
    }

    /// Reads a record that may be overwritten meanwhile. Repeats a torn read.
    pub fn read_from(file: &File) -> io::Result<Self> {
        let mut bytes = [0; RECORD_BYTES];
        for _ in 0..10 {
            file.read_exact_at(&mut bytes, 0).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged_record_error("the record is truncated"),
                _ => error,
            })?;
            if let Some(record) = Self::decode(&bytes) {
                return Ok(record);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Err(damaged_record_error("the record is damaged"))
    }

    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut out = RecordWriter { bytes: [0; RECORD_BYTES], at: 0 };
        out.put(&MAGIC);
        out.put(&[0; 8]);
        let has_terminal = u8::from(self.has_terminal);
        out.put(&[self.claimer as u8, self.phase as u8, self.stop_phase as u8, has_terminal]);
        let (kind, step, value) = match self.exit {
            None => (0, 0, 0),
            Some(ProcessExit::Code(code)) => (1, 0, code),
            Some(ProcessExit::Signal(signal)) => (2, 0, signal),
            Some(ProcessExit::NotStarted { step, errno }) => (3, step as u8, errno),
        };
        out.put(&[kind, step, u8::from(self.command.is_some()), self.sandbox.bits()]);
        out.put(&value.to_le_bytes());
        out.put(&self.survivors_total.to_le_bytes());
        out.put(&self.boot_id.0);
        out.process(self.shim);
        out.process(self.command.unwrap_or(ProcessId { pid: 0, start: 0 }));
        for number in self.numbers() {
            out.put(&number.to_le_bytes());
        }
        let named = &self.survivors[..self.survivors.len().min(SURVIVORS_MAX)];
        out.put(&(named.len() as u64).to_le_bytes());
        for survivor in named {
            out.process(survivor.id);
            let name = survivor.name.as_bytes();
            let mut fixed = [0; NAME_BYTES];
            let length = name.len().min(NAME_BYTES);
            fixed[..length].copy_from_slice(&name[..length]);
            out.put(&fixed);
        }
        out.at = LATER_FIELDS_OFFSET;
        for number in self.later_fields() {
            out.put(&number.to_le_bytes());
        }
        let sum = checksum(&out.bytes);
        out.bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        out.bytes
    }

    fn numbers(&self) -> [u64; 8] {
        let [out, err] = self.produced_bytes;
        let [out_lost, err_lost] = self.unwritten_bytes;
        let started = self.started_at;
        let ended = self.ended_at;
        [out, err, out_lost, err_lost, self.switch_count, self.output_cap, started, ended]
    }

    fn later_fields(&self) -> [u64; 5] {
        let [closed, reads_spool] = [self.input_closed, self.supports_spool].map(u64::from);
        [self.held_ms, self.input_delivered, closed, self.overdue_after_ms, reads_spool]
    }

    /// Decodes a record. Returns `None` if the bytes are incomplete or damaged.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut input = RecordReader { bytes, at: 0 };
        if input.take::<8>() != MAGIC || u64::from_le_bytes(input.take()) != checksum(bytes) {
            return None;
        }
        let [claimer, phase, stage, has_terminal] = input.take();
        let [kind, step, has_command, sandbox] = input.take();
        let value = i32::from_le_bytes(input.take());
        let survivors_total = u32::from_le_bytes(input.take());
        let boot = BootId(input.take());
        let shim = input.process();
        let command = input.process();
        let numbers: [u64; 8] = std::array::from_fn(|_| input.number());
        let [out, err, out_lost, err_lost, switches, cap, started_at, ended_at] = numbers;
        let named = (input.number() as usize).min(SURVIVORS_MAX);
        let survivors = (0..named).map(|_| input.survivor()).collect();
        input.at = LATER_FIELDS_OFFSET;
        let later: [u64; 5] = std::array::from_fn(|_| input.number());
        let [held_ms, input_taken, input_closed, overdue_after_ms, reads_spool] = later;
        Some(Self {
            claimer: [Claimer::Shim, Claimer::Runtime].get(usize::from(claimer)).copied()?,
            phase: PHASES.get(usize::from(phase)).copied()?,
            boot_id: boot,
            shim,
            command: (has_command != 0).then_some(command),
            has_terminal: has_terminal != 0,
            sandbox: SandboxParts::from_bits(sandbox),
            exit: match kind {
                0 => None,
                1 => Some(ProcessExit::Code(value)),
                2 => Some(ProcessExit::Signal(value)),
                3 => {
                    let step = START_STEPS.get(usize::from(step)).copied()?;
                    Some(ProcessExit::NotStarted { step, errno: value })
                }
                _ => return None,
            },
            stop_phase: STOP_PHASES.get(usize::from(stage)).copied()?,
            produced_bytes: [out, err],
            unwritten_bytes: [out_lost, err_lost],
            switch_count: switches,
            output_cap: cap,
            started_at,
            ended_at,
            survivors,
            survivors_total,
            held_ms,
            input_delivered: input_taken,
            input_closed: input_closed != 0,
            supports_spool: reads_spool != 0,
            overdue_after_ms,
        })
    }
}

const PHASES: [ShimPhase; 5] = [
    ShimPhase::Claimed,
    ShimPhase::Launching,
    ShimPhase::Running,
    ShimPhase::Exited,
    ShimPhase::Done,
];
const START_STEPS: [StartStep; 10] = [
    StartStep::WorkingDirectory,
    StartStep::Input,
    StartStep::Execute,
    StartStep::ExecuteSandboxed,
    StartStep::Terminal,
    StartStep::Limits,
    StartStep::Sandbox,
    StartStep::Namespaces,
    StartStep::Filter,
    StartStep::ControlGroup,
];
const STOP_PHASES: [ShimStopPhase; 3] =
    [ShimStopPhase::None, ShimStopPhase::Graceful, ShimStopPhase::Forced];

fn damaged_record_error(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Returns the FNV-1a checksum of everything except its own field. It covers words, not bytes: a
/// record is written with each piece of output, and the sum should cost less than the write.
fn checksum(bytes: &[u8; RECORD_BYTES]) -> u64 {
    let (words, _) = bytes.as_chunks();
    let covered = words[..1].iter().chain(&words[2..]);
    fnv1a(covered.map(|word| u64::from_le_bytes(*word)))
}

struct RecordWriter {
    bytes: [u8; RECORD_BYTES],
    at: usize,
}

impl RecordWriter {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn process(&mut self, id: ProcessId) {
        self.put(&u64::from(id.pid).to_le_bytes());
        self.put(&id.start.to_le_bytes());
    }
}

struct RecordReader<'a> {
    bytes: &'a [u8; RECORD_BYTES],
    at: usize,
}

impl RecordReader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        taken.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        taken
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn process(&mut self) -> ProcessId {
        ProcessId { pid: self.number() as u32, start: self.number() }
    }

    fn survivor(&mut self) -> Survivor {
        let id = self.process();
        let name: [u8; NAME_BYTES] = self.take();
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        Survivor { id, name: String::from_utf8_lossy(&name[..length]).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> ShimRecord {
        let id = |pid| ProcessId { pid, start: 77 };
        let mut record = ShimRecord::new(Claimer::Shim, BootId([9; 16]), id(41), 8 << 20);
        record.phase = ShimPhase::Done;
        record.command = Some(id(42));
        record.has_terminal = true;
        record.exit = Some(ProcessExit::NotStarted { step: StartStep::Execute, errno: 2 });
        record.stop_phase = ShimStopPhase::Forced;
        record.produced_bytes = [u64::MAX, 2];
        record.unwritten_bytes = [3, 4];
        record.switch_count = 5;
        record.started_at = 6;
        record.ended_at = 7;
        record.survivors_total = 40;
        record.held_ms = 12_345;
        record.input_delivered = 23_456;
        record.input_closed = true;
        record.overdue_after_ms = 34_567;
        record.survivors = (0..SURVIVORS_MAX as u32)
            .map(|n| Survivor { id: id(n), name: format!("n{n}") })
            .collect();
        record
    }

    #[test]
    fn a_record_round_trips() {
        let record = full();
        assert_eq!(ShimRecord::decode(&record.encode()), Some(record.clone()));
        let failed_starts =
            START_STEPS.map(|step| Some(ProcessExit::NotStarted { step, errno: 13 }));
        let exits = [None, Some(ProcessExit::Code(-7)), Some(ProcessExit::Signal(15))];
        for exit in exits.into_iter().chain(failed_starts) {
            let record = ShimRecord { exit, command: None, ..record.clone() };
            assert_eq!(ShimRecord::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn a_record_with_any_byte_changed_is_refused() {
        let bytes = full().encode();
        for at in 0..RECORD_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 0x40;
            assert_eq!(ShimRecord::decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_truncated_record_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&full().encode()[..RECORD_BYTES / 2], 0).unwrap();
        assert!(ShimRecord::read_from(&file).is_err());
    }
}
