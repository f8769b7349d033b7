//! The loop of a shim. It waits for output, signals and deadlines until the process tree is empty.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::cgroup;
use super::claim::Claim;
use super::input_spool::InputSpool;
use super::launch::{self, InputSource, LaunchedProcess};
use super::launch_settings::FIRST_RULESET;
use super::layout;
use super::output_hold::OutputHold;
use super::output_relay::{self, OutputRelay};
use super::process_tree::{self, ProcessTree, TreeStatus};
use super::record::{SURVIVORS_MAX, ShimPhase, ShimStopPhase};
use super::shim_args::ShimArgs;
use super::signals::{CaughtSignals, PendingSignals};
use super::sys::{self, PollEntry, signal};

/// The time limit for killing. The shim then reports the survivors and exits.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);
/// The delay of the shim's deadline. A live runtime enforces the deadline first and records the
/// reason.
const RUNTIME_DEADLINE_GRACE: Duration = Duration::from_millis(500);
/// The poll interval for a process tree whose end causes no signal.
const TREE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The longest grace period. It fits into all clocks.
const GRACE_MAX: Duration = Duration::from_secs(20 * 24 * 3600);

/// Takes the claim, starts the process, and runs until its process tree is empty.
pub(super) fn run_shim(args: ShimArgs) {
    let descriptors = args.settings.descriptor_count();
    process_tree::prepare(FIRST_RULESET + descriptors);
    sys::become_session_leader();
    if mark_close_on_exec(descriptors).is_err() {
        return;
    }
    let Ok(signals) = CaughtSignals::catch() else { return };
    if !wait_start_gate(&signals) {
        return;
    }
    sys::take_environment();
    let Some(mut claim) = Claim::take(&args, process_tree::own_id()) else { return };
    match launch::launch_process(&args, &mut claim) {
        Ok(launched) => {
            close_descriptors(descriptors);
            ShimLoop::new(args, claim, signals, launched).run();
        }
        Err(exit) => {
            let _ = fs::remove_file(args.directory.join(layout::STDIN));
            if let Some(group) = cgroup::read_group_path(&args.directory) {
                cgroup::remove_group(&group);
            }
            claim.record.exit = Some(exit);
            claim.record.ended_at = launch::now();
            claim.record.phase = ShimPhase::Done;
            claim.write_with_retries();
        }
    }
}

/// Waits until the runtime has registered this shim or has died. A null device passes at once.
/// Returns false if the shim got an order to end first: its runtime cannot hold it, and waits for
/// its exit.
fn wait_start_gate(signals: &CaughtSignals) -> bool {
    const GATE: i32 = 0;
    loop {
        let mut entries = [GATE, signals.fd()].map(PollEntry::new);
        sys::poll_entries(&mut entries, None);
        if entries[0].is_ready() {
            sys::read_gate();
            return true;
        }
        if signals.has_order() {
            return false;
        }
    }
}

/// Closes the passed descriptors on exec. They are for the child to apply, not for the process.
fn mark_close_on_exec(count: u32) -> std::io::Result<()> {
    #[cfg(full_linux)]
    return sys::close_on_exec(FIRST_RULESET, count);
    #[cfg(not(full_linux))]
    {
        let _ = count;
        Ok(())
    }
}

fn close_descriptors(count: u32) {
    #[cfg(full_linux)]
    let _ = sys::close_fds(FIRST_RULESET, count);
    #[cfg(not(full_linux))]
    let _ = count;
}

struct ShimLoop {
    args: ShimArgs,
    claim: Claim,
    signals: CaughtSignals,
    relay: OutputRelay,
    tree: ProcessTree,
    input: InputSource,
    spool: InputSpool,
    state: ShimState,
    /// The start by a monotonic clock.
    began: Instant,
    /// The time of the next check for the directory.
    next_dir_check: Instant,
}

#[derive(Clone, Copy, Debug)]
enum ShimState {
    Running,
    /// All processes got TERM, and get KILL at the deadline.
    Terminating {
        deadline: Instant,
    },
    /// All processes get KILL, repeatedly, until the tree is empty.
    Killing {
        give_up: Instant,
    },
    Done,
}

impl ShimLoop {
    fn new(
        args: ShimArgs,
        claim: Claim,
        signals: CaughtSignals,
        launched: LaunchedProcess,
    ) -> Self {
        let hold = OutputHold::new(&args.directory, args.timing.first_reader_timeout);
        Self {
            relay: OutputRelay::new(
                args.directory.clone(),
                args.output_cap,
                launched.outputs,
                hold,
            ),
            tree: ProcessTree::new(launched.id, cgroup::read_group_path(&args.directory)),
            input: launched.input,
            spool: InputSpool::new(&args.directory),
            state: ShimState::Running,
            began: launched.began,
            next_dir_check: Instant::now() + args.timing.dir_check_interval,
            args,
            claim,
            signals,
        }
    }

    fn run(mut self) {
        while !matches!(self.state, ShimState::Done) {
            let [is_signalled, can_write_input, ready @ ..] = self.wait();
            let pending = if is_signalled { self.signals.take() } else { PendingSignals::NOTHING };
            self.handle_signals(pending);
            self.relay_pieces(ready);
            if can_write_input {
                self.write_input();
            }
            if pending.has(signal::CHLD) || !matches!(self.state, ShimState::Running) {
                self.check_tree();
            }
            self.enforce_deadlines();
        }
        self.finish();
    }

    /// Returns, after a wait, whether a signal came, whether input can be written, and which
    /// streams are ready.
    fn wait(&mut self) -> [bool; 4] {
        let held = self.update_held();
        let [out, err] = self.relay.fds();
        let [out, err] =
            [(out, held[0]), (err, held[1])].map(|(fd, held)| if held { -1 } else { fd });
        self.feed_terminal();
        let input = match &self.input {
            InputSource::Terminal(terminal) => terminal.poll_entry(),
            InputSource::Pipe { held } if self.has_input() => PollEntry::writable(held.as_raw_fd()),
            InputSource::None | InputSource::Pipe { .. } => PollEntry::new(-1),
        };
        let [signals, out, err] = [self.signals.fd(), out, err].map(PollEntry::new);
        let mut entries = [signals, input, out, err];
        // Rounded up, to avoid a busy loop in the last millisecond.
        let milliseconds = |time: Duration| time.as_micros().div_ceil(1000) as i32;
        let pause = held.contains(&true).then(|| self.relay.hold.next_pause());
        if pause.is_none() {
            self.relay.hold.reset_pause();
        }
        let timeout = self.timeout().into_iter().chain(pause).min();
        sys::poll_entries(&mut entries, timeout.map(milliseconds));
        entries.map(|entry| entry.is_ready())
    }

    /// Returns the streams that wait for a reader. Counts the time while they contain output.
    fn update_held(&mut self) -> [bool; 2] {
        let held = self.relay.held_streams(&self.claim.record);
        let fds = self.relay.fds();
        let is_waiting = [0, 1].into_iter().any(|stream| held[stream] && is_readable(fds[stream]));
        if self.relay.hold.update_held(is_waiting, &mut self.claim.record) {
            self.claim.write();
        }
        held
    }

    /// Returns the time until the next deadline, or `None` if there is none.
    fn timeout(&self) -> Option<Duration> {
        let until = |then: Instant| then.saturating_duration_since(Instant::now());
        match self.state {
            ShimState::Running => {
                let deadline = self.deadline().map(until);
                Some(until(self.next_dir_check)).into_iter().chain(deadline).min()
            }
            ShimState::Terminating { deadline }
                if process_tree::NEEDS_POLLING && self.has_command_ended() =>
            {
                Some(until(deadline).min(TREE_POLL_INTERVAL))
            }
            ShimState::Terminating { deadline } => Some(until(deadline)),
            ShimState::Killing { give_up } => Some(until(give_up).min(TREE_POLL_INTERVAL)),
            ShimState::Done => Some(Duration::ZERO),
        }
    }

    fn handle_signals(&mut self, pending: PendingSignals) {
        if pending.has(signal::IO) {
            self.spool.refresh();
        }
        if pending.has(signal::USR2) {
            self.spool.close();
        }
        if self.spool.is_finished(self.claim.record.input_delivered) {
            self.close_input();
        }
        if pending.has(signal::USR1) {
            self.claim.record.stop_phase = ShimStopPhase::Forced;
            self.kill();
        } else if pending.has(signal::TERM) {
            self.claim.record.stop_phase =
                self.claim.record.stop_phase.max(ShimStopPhase::Graceful);
            self.terminate();
        }
    }

    /// Moves one piece of each stream, so that a fast one delays neither the other stream nor
    /// signals.
    fn relay_pieces(&mut self, ready: [bool; 2]) {
        let mut is_changed = false;
        for stream in [0, 1] {
            is_changed |= ready[stream] && self.relay.pump(stream, &mut self.claim.record);
        }
        if is_changed {
            self.claim.write();
        }
    }

    fn check_tree(&mut self) {
        let mut status = self.tree.reap_ended();
        if let TreeStatus::CommandExited(exit) = status {
            self.claim.record.exit = Some(exit);
            let elapsed = self.began.elapsed().as_millis() as u64;
            self.claim.record.ended_at = self.claim.record.started_at + elapsed;
            self.claim.record.phase = ShimPhase::Exited;
            // Written before the reap: an unreaped process still owns its pid.
            self.claim.write();
            self.tree.reap_command();
            status = self.tree.reap_ended();
            if status == TreeStatus::Alive {
                self.terminate();
            }
        }
        match (status, self.state) {
            (TreeStatus::Empty, _) => self.state = ShimState::Done,
            (_, ShimState::Killing { .. }) => self.tree.kill(),
            _ => {}
        }
    }

    fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        match self.state {
            ShimState::Running if self.deadline().is_some_and(|deadline| now >= deadline) => {
                let after = self.args.timing.deadline.unwrap_or_default();
                self.claim.record.overdue_after_ms = after.as_millis() as u64;
                self.claim.record.stop_phase = ShimStopPhase::Graceful;
                self.terminate();
            }
            ShimState::Running if now >= self.next_dir_check => self.check_directory(now),
            ShimState::Terminating { deadline } if now >= deadline => {
                // Remaining descendants are ended without a stop order.
                if self.claim.record.stop_phase == ShimStopPhase::Graceful {
                    self.claim.record.stop_phase = ShimStopPhase::Forced;
                }
                self.kill();
            }
            ShimState::Killing { give_up } if now >= give_up => {
                let mut survivors = self.tree.survivors();
                self.claim.record.survivors_total = survivors.len() as u32;
                survivors.truncate(SURVIVORS_MAX);
                self.claim.record.survivors = survivors;
                self.state = ShimState::Done;
            }
            _ => {}
        }
    }

    /// Returns the time at which the shim enforces the deadline itself.
    fn deadline(&self) -> Option<Instant> {
        let after = self.args.timing.deadline?.min(GRACE_MAX);
        Some(self.began + after + RUNTIME_DEADLINE_GRACE)
    }

    fn has_input(&self) -> bool {
        self.spool.has_unread(self.claim.record.input_delivered)
    }

    /// Writes a piece of spooled bytes to the process, or pumps the terminal. Does not block.
    fn write_input(&mut self) {
        let delivered = self.claim.record.input_delivered;
        let written = match &mut self.input {
            InputSource::None => return,
            InputSource::Terminal(terminal) => return terminal.pump(),
            InputSource::Pipe { held } => {
                let mut buffer = output_relay::buffer();
                self.spool.read(delivered, &mut *buffer).and_then(|piece| held.write(piece))
            }
        };
        self.record_input(written);
    }

    /// Queues a piece of spooled bytes for the terminal.
    fn feed_terminal(&mut self) {
        let delivered = self.claim.record.input_delivered;
        let InputSource::Terminal(terminal) = &mut self.input else { return };
        if !self.spool.has_unread(delivered) || !terminal.is_idle() {
            return;
        }
        let mut piece = [0; 1024];
        let queued = self.spool.read(delivered, &mut piece).map(|piece| {
            terminal.queue_bytes(piece);
            piece.len()
        });
        self.record_input(queued);
    }

    fn record_input(&mut self, written: io::Result<usize>) {
        match written {
            Ok(length) => self.claim.record.input_delivered += length as u64,
            Err(error) if output_relay::is_transient(&error) => return,
            // The process has closed its stdin, or the file is gone.
            Err(_) => {
                self.claim.record.input_closed = true;
                self.spool.close();
                self.close_input();
            }
        }
        if self.spool.is_finished(self.claim.record.input_delivered) {
            self.close_input();
        }
        self.claim.write();
    }

    /// Ends the process tree if the directory is gone: nobody could find or stop it.
    fn check_directory(&mut self, now: Instant) {
        self.next_dir_check = now + self.args.timing.dir_check_interval;
        if self.claim.is_removed() {
            self.claim.record.stop_phase = ShimStopPhase::Graceful;
            self.terminate();
        }
    }

    /// Sends TERM to all processes and starts the grace period. A repeated call can only shorten
    /// it.
    fn terminate(&mut self) {
        let deadline = Instant::now() + self.grace();
        self.state = match self.state {
            ShimState::Running => ShimState::Terminating { deadline },
            ShimState::Terminating { deadline: earlier } => {
                ShimState::Terminating { deadline: earlier.min(deadline) }
            }
            current @ (ShimState::Killing { .. } | ShimState::Done) => current,
        };
        self.claim.write();
        self.tree.terminate();
    }

    /// Kills all processes. Writes the phase first, so that a forced stop is never reported as
    /// graceful.
    fn kill(&mut self) {
        if matches!(self.state, ShimState::Running | ShimState::Terminating { .. }) {
            self.state = ShimState::Killing { give_up: Instant::now() + KILL_TIMEOUT };
        }
        self.claim.write();
        self.tree.kill();
    }

    fn grace(&self) -> Duration {
        let stop_grace = fs::read_to_string(self.args.directory.join(layout::GRACE)).ok();
        let stop_grace =
            stop_grace.and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
        stop_grace.unwrap_or(self.args.grace).min(GRACE_MAX)
    }

    fn close_input(&mut self) {
        let was_open = match &mut self.input {
            InputSource::None => false,
            InputSource::Pipe { .. } => {
                self.input = InputSource::None;
                true
            }
            InputSource::Terminal(terminal) => terminal.close(),
        };
        if was_open {
            let _ = fs::remove_file(self.args.directory.join(layout::STDIN));
            self.claim.record.input_closed = true;
            self.claim.write();
        }
    }

    fn has_command_ended(&self) -> bool {
        self.claim.record.phase >= ShimPhase::Exited
    }

    /// Moves the remaining output of the pipes. Waits for readers with a lease, but only for a
    /// limited time if a stop was requested.
    fn drain(&mut self) {
        let ends = OutputRelay::latest_ends(&self.claim.record);
        let mut produced = self.claim.record.produced_bytes;
        while !self.relay.drain(&mut self.claim, ends, is_readable) {
            if std::mem::replace(&mut produced, self.claim.record.produced_bytes) != produced {
                self.relay.hold.reset_pause();
            }
            if self.claim.record.stop_phase != ShimStopPhase::None {
                self.relay.hold.release_after(KILL_TIMEOUT);
            }
            self.update_held();
            let mut entries = [PollEntry::new(self.signals.fd())];
            sys::poll_entries(&mut entries, Some(self.relay.hold.next_pause().as_millis() as i32));
            if entries[0].is_ready() {
                let pending = self.signals.take();
                self.handle_signals(pending);
            }
        }
        self.update_held();
    }

    fn finish(mut self) {
        self.drain();
        self.close_input();
        if let Some(group) = cgroup::read_group_path(&self.args.directory) {
            cgroup::remove_group(&group);
        }
        self.claim.record.phase = ShimPhase::Done;
        self.claim.write_with_retries();
    }
}

/// Returns true if there is something to read, or the stream has ended.
fn is_readable(fd: std::os::fd::RawFd) -> bool {
    let mut entries = [PollEntry::new(fd)];
    sys::poll_entries(&mut entries, Some(0));
    entries[0].is_ready()
}
