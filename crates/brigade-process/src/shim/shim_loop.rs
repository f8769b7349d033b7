//! The loop of a shim: it waits for output, signals and its own deadlines, until nothing is left.

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
use super::record::{SURVIVORS_MAX, ShimPhase, ShimStopPhase};
use super::shim_args::ShimArgs;
use super::signals::{CaughtSignals, PendingSignals};
use super::sys::{self, PollEntry, signal};
use super::tree::{self, ProcessTree, TreeStatus};

/// After this long of killing without an end the survivors are named, and the shim gives up.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);
/// A runtime that is there keeps the deadline itself, and says why it ends the command.
const RUNTIME_DEADLINE_GRACE: Duration = Duration::from_millis(500);
/// Between two looks at a tree whose end no signal announces.
const TREE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The longest grace, which still fits into all clocks.
const GRACE_MAX: Duration = Duration::from_secs(20 * 24 * 3600);

/// Claims, launches and stays with the command until nothing is left of it.
pub(super) fn run_shim(orders: ShimArgs) {
    let descriptors = orders.settings.descriptor_count();
    tree::prepare(FIRST_RULESET + descriptors);
    sys::become_session_leader();
    if mark_close_on_exec(descriptors).is_err() {
        return;
    }
    let Ok(signals) = CaughtSignals::catch() else { return };
    if !wait_start_gate(&signals) {
        return;
    }
    sys::take_environment();
    let Some(mut claim) = Claim::take(&orders, tree::own_id()) else { return };
    match launch::launch_process(&orders, &mut claim) {
        Ok(launched) => {
            close_descriptors(descriptors);
            ShimLoop::new(orders, claim, signals, launched).run();
        }
        Err(ending) => {
            let _ = fs::remove_file(orders.directory.join(layout::STDIN));
            if let Some(group) = cgroup::read_group_path(&orders.directory) {
                cgroup::remove_group(&group);
            }
            claim.record.exit = Some(ending);
            claim.record.ended_at = launch::now();
            claim.record.phase = ShimPhase::Done;
            claim.write_with_retries();
        }
    }
}

/// Waits until the runtime has registered this shim, or is dead. A null device as the input is passed at
/// once. False when the shim was told to end first: its runtime cannot hold it, and waits for its end.
fn wait_start_gate(signals: &CaughtSignals) -> bool {
    const GATE: i32 = 0;
    loop {
        let mut watches = [GATE, signals.fd()].map(PollEntry::new);
        sys::poll_entries(&mut watches, None);
        if watches[0].is_ready() {
            sys::read_gate();
            return true;
        }
        if signals.has_order() {
            return false;
        }
    }
}

/// The rulesets and the file that the shim was handed are for the child to apply, not for the command to have.
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
    /// By a clock that nobody sets.
    began: Instant,
    /// When it is next looked whether the directory is there.
    next_dir_check: Instant,
}

#[derive(Clone, Copy, Debug)]
enum ShimState {
    Running,
    /// All were asked to end, and are killed at the deadline.
    Terminating {
        deadline: Instant,
    },
    /// All are killed, and whatever came of them meanwhile, until nothing is left.
    Killing {
        give_up: Instant,
    },
    Done,
}

impl ShimLoop {
    fn new(
        orders: ShimArgs,
        claim: Claim,
        signals: CaughtSignals,
        launched: LaunchedProcess,
    ) -> Self {
        let hold = OutputHold::new(&orders.directory, orders.timing.first_reader_timeout);
        Self {
            relay: OutputRelay::new(
                orders.directory.clone(),
                orders.output_cap,
                launched.outputs,
                hold,
            ),
            tree: ProcessTree::new(launched.id, cgroup::read_group_path(&orders.directory)),
            input: launched.input,
            spool: InputSpool::new(&orders.directory),
            state: ShimState::Running,
            began: launched.began,
            next_dir_check: Instant::now() + orders.timing.dir_check_interval,
            args: orders,
            claim,
            signals,
        }
    }

    fn run(mut self) {
        while !matches!(self.state, ShimState::Done) {
            let [is_signalled, is_typing, ready @ ..] = self.wait();
            let pending = if is_signalled { self.signals.take() } else { PendingSignals::NOTHING };
            self.handle_signals(pending);
            self.relay_pieces(ready);
            if is_typing {
                self.write_input();
            }
            if pending.has(signal::CHLD) || !matches!(self.state, ShimState::Running) {
                self.check_tree();
            }
            self.enforce_deadlines();
        }
        self.finish();
    }

    /// Whether a signal has come, whether there is something to type, and which stream is ready.
    fn wait(&mut self) -> [bool; 4] {
        let held = self.update_held();
        let [out, err] = self.relay.fds();
        let [out, err] =
            [(out, held[0]), (err, held[1])].map(|(fd, held)| if held { -1 } else { fd });
        self.feed_terminal();
        let typing = match &self.input {
            InputSource::Terminal(typist) => typist.poll_entry(),
            InputSource::Pipe { held } if self.has_input() => PollEntry::writable(held.as_raw_fd()),
            InputSource::None | InputSource::Pipe { .. } => PollEntry::new(-1),
        };
        let [signals, out, err] = [self.signals.fd(), out, err].map(PollEntry::new);
        let mut watches = [signals, typing, out, err];
        // Rounded up, or the last millisecond would be spent in turning around.
        let milliseconds = |time: Duration| time.as_micros().div_ceil(1000) as i32;
        let pause = held.contains(&true).then(|| self.relay.hold.next_pause());
        if pause.is_none() {
            self.relay.hold.reset_pause();
        }
        let timeout = self.timeout().into_iter().chain(pause).min();
        sys::poll_entries(&mut watches, timeout.map(milliseconds));
        watches.map(|watch| watch.is_ready())
    }

    /// Which streams wait for a reader. The time is counted while there is something in them.
    fn update_held(&mut self) -> [bool; 2] {
        let held = self.relay.held_streams(&self.claim.record);
        let fds = self.relay.fds();
        let is_waiting = [0, 1].into_iter().any(|stream| held[stream] && is_readable(fds[stream]));
        if self.relay.hold.update_held(is_waiting, &mut self.claim.record) {
            self.claim.write();
        }
        held
    }

    /// None while there is nothing to be done at a certain time.
    fn timeout(&self) -> Option<Duration> {
        let until = |then: Instant| then.saturating_duration_since(Instant::now());
        match self.state {
            ShimState::Running => {
                let deadline = self.deadline().map(until);
                Some(until(self.next_dir_check)).into_iter().chain(deadline).min()
            }
            ShimState::Terminating { deadline }
                if tree::NEEDS_POLLING && self.has_command_ended() =>
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

    /// One piece of each, so that neither the other stream nor a signal waits for a chatterer.
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
        let mut left = self.tree.reap_ended();
        if let TreeStatus::CommandExited(ending) = left {
            self.claim.record.exit = Some(ending);
            let ran = self.began.elapsed().as_millis() as u64;
            self.claim.record.ended_at = self.claim.record.started_at + ran;
            self.claim.record.phase = ShimPhase::Exited;
            // Written before it is reaped: as long as the pid exists it is the command's.
            self.claim.write();
            self.tree.reap_command();
            left = self.tree.reap_ended();
            if left == TreeStatus::Alive {
                self.terminate();
            }
        }
        match (left, self.state) {
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
                // What a command leaves behind is ended without anybody having asked for a stop.
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

    /// When the command is ended although nobody says so.
    fn deadline(&self) -> Option<Instant> {
        let after = self.args.timing.deadline?.min(GRACE_MAX);
        Some(self.began + after + RUNTIME_DEADLINE_GRACE)
    }

    fn has_input(&self) -> bool {
        self.spool.has_unread(self.claim.record.input_delivered)
    }

    /// Gives the command a piece of what was brought for it, or types, which never waits.
    fn write_input(&mut self) {
        let taken = self.claim.record.input_delivered;
        let written = match &mut self.input {
            InputSource::None => return,
            InputSource::Terminal(typist) => return typist.pump(),
            InputSource::Pipe { held } => {
                let mut buffer = output_relay::buffer();
                self.spool.read(taken, &mut *buffer).and_then(|piece| held.write(piece))
            }
        };
        self.record_input(written);
    }

    /// Has a piece of what was brought for the command typed.
    fn feed_terminal(&mut self) {
        let taken = self.claim.record.input_delivered;
        let InputSource::Terminal(typist) = &mut self.input else { return };
        if !self.spool.has_unread(taken) || !typist.is_idle() {
            return;
        }
        let mut piece = [0; 1024];
        let given = self.spool.read(taken, &mut piece).map(|piece| {
            typist.queue_bytes(piece);
            piece.len()
        });
        self.record_input(given);
    }

    fn record_input(&mut self, given: io::Result<usize>) {
        match given {
            Ok(length) => self.claim.record.input_delivered += length as u64,
            Err(error) if output_relay::is_transient(&error) => return,
            // The command has closed its input, or the file is gone.
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

    /// Without its directory nobody can ever find the command or its shim, and nobody will stop it.
    fn check_directory(&mut self, now: Instant) {
        self.next_dir_check = now + self.args.timing.dir_check_interval;
        if self.claim.is_removed() {
            self.claim.record.stop_phase = ShimStopPhase::Graceful;
            self.terminate();
        }
    }

    /// Kind: all are asked to end, and have the grace to do it. Asking again can only shorten it.
    fn terminate(&mut self) {
        let deadline = Instant::now() + self.grace();
        self.state = match self.state {
            ShimState::Running => ShimState::Terminating { deadline },
            ShimState::Terminating { deadline: earlier } => {
                ShimState::Terminating { deadline: earlier.min(deadline) }
            }
            already @ (ShimState::Killing { .. } | ShimState::Done) => already,
        };
        self.claim.write();
        self.tree.terminate();
    }

    /// Firm. The stage is written first, so that a stop that was firm is never taken for a kind one.
    fn kill(&mut self) {
        if matches!(self.state, ShimState::Running | ShimState::Terminating { .. }) {
            self.state = ShimState::Killing { give_up: Instant::now() + KILL_TIMEOUT };
        }
        self.claim.write();
        self.tree.kill();
    }

    fn grace(&self) -> Duration {
        let told = fs::read_to_string(self.args.directory.join(layout::GRACE)).ok();
        let told = told.and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
        told.unwrap_or(self.args.grace).min(GRACE_MAX)
    }

    fn close_input(&mut self) {
        let was_open = match &mut self.input {
            InputSource::None => false,
            InputSource::Pipe { .. } => {
                self.input = InputSource::None;
                true
            }
            InputSource::Terminal(typist) => typist.close(),
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

    /// Moves what the pipes still hold. A reader who must not miss it is waited for, but only for a while
    /// where somebody wants the command to be over.
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
            let mut watches = [PollEntry::new(self.signals.fd())];
            sys::poll_entries(&mut watches, Some(self.relay.hold.next_pause().as_millis() as i32));
            if watches[0].is_ready() {
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

/// Whether there is something to read, or nothing ever will be.
fn is_readable(fd: std::os::fd::RawFd) -> bool {
    let mut watch = [PollEntry::new(fd)];
    sys::poll_entries(&mut watch, Some(0));
    watch[0].is_ready()
}
