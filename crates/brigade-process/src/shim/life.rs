//! The loop of a shim: it waits for output, signals and its own deadlines, until nothing is left.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::claim::Claim;
use super::group;
use super::hold::Hold;
use super::launch::{self, Input, Launched};
use super::layout;
use super::orders::Orders;
use super::record::{Phase, SURVIVORS_MAX, StopStage};
use super::relay::{self, Relay};
use super::signals::{Pending, Signals};
use super::spool::Spool;
use super::surroundings::FIRST_RULESET;
use super::sys::{self, Watch, signal};
use super::tree::{self, Left, Tree};

/// After this long of killing without an end the survivors are named, and the shim gives up.
const PATIENCE: Duration = Duration::from_secs(3);
/// A runtime that is there keeps the deadline itself, and says why it ends the command.
const RUNTIME_FIRST: Duration = Duration::from_millis(500);
/// Between two looks at a tree whose end no signal announces.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The longest grace, which still fits into all clocks.
const FOR_EVER: Duration = Duration::from_secs(20 * 24 * 3600);

/// Claims, launches and stays with the command until nothing is left of it.
pub(super) fn run(orders: Orders) {
    let descriptors = orders.surroundings.descriptors();
    tree::prepare(FIRST_RULESET + descriptors);
    sys::lead_a_session();
    if keep_from_commands(descriptors).is_err() {
        return;
    }
    let Ok(signals) = Signals::catch() else { return };
    if !pass_start_gate(&signals) {
        return;
    }
    sys::take_environment();
    let Some(mut claim) = Claim::take(&orders, tree::own_id()) else { return };
    match launch::launch(&orders, &mut claim) {
        Ok(launched) => {
            let_go_of(descriptors);
            Life::new(orders, claim, signals, launched).live();
        }
        Err(ending) => {
            let _ = fs::remove_file(orders.directory.join(layout::STDIN));
            if let Some(group) = group::of(&orders.directory) {
                group::remove(&group);
            }
            claim.record.ending = Some(ending);
            claim.record.ended_at = launch::now();
            claim.record.phase = Phase::Done;
            claim.write_surely();
        }
    }
}

/// Waits until the runtime has registered this shim, or is dead. A null device as the input is passed at
/// once. False when the shim was told to end first: its runtime cannot hold it, and waits for its end.
fn pass_start_gate(signals: &Signals) -> bool {
    const GATE: i32 = 0;
    loop {
        let mut watches = [GATE, signals.fd()].map(Watch::new);
        sys::wait(&mut watches, None);
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
fn keep_from_commands(count: u32) -> std::io::Result<()> {
    #[cfg(full_linux)]
    return sys::close_on_exec(FIRST_RULESET, count);
    #[cfg(not(full_linux))]
    {
        let _ = count;
        Ok(())
    }
}

fn let_go_of(count: u32) {
    #[cfg(full_linux)]
    let _ = sys::close(FIRST_RULESET, count);
    #[cfg(not(full_linux))]
    let _ = count;
}

struct Life {
    orders: Orders,
    claim: Claim,
    signals: Signals,
    relay: Relay,
    tree: Tree,
    input: Input,
    spool: Spool,
    state: State,
    /// By a clock that nobody sets.
    began: Instant,
    /// When it is next looked whether the directory is there.
    look: Instant,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running,
    /// All were asked to end, and are killed at the deadline.
    Asking {
        deadline: Instant,
    },
    /// All are killed, and whatever came of them meanwhile, until nothing is left.
    Killing {
        give_up: Instant,
    },
    Over,
}

impl Life {
    fn new(orders: Orders, claim: Claim, signals: Signals, launched: Launched) -> Self {
        let hold = Hold::new(&orders.directory, orders.timing.first_reader);
        Self {
            relay: Relay::new(orders.directory.clone(), orders.cap, launched.outputs, hold),
            tree: Tree::new(launched.id, group::of(&orders.directory)),
            input: launched.input,
            spool: Spool::new(&orders.directory),
            state: State::Running,
            began: launched.began,
            look: Instant::now() + orders.timing.look,
            orders,
            claim,
            signals,
        }
    }

    fn live(mut self) {
        while !matches!(self.state, State::Over) {
            let [is_signalled, is_typing, ready @ ..] = self.wait();
            let pending = if is_signalled { self.signals.take() } else { Pending::NOTHING };
            self.obey(pending);
            self.relay_one_piece_each(ready);
            if is_typing {
                self.write_input();
            }
            if pending.has(signal::CHLD) || !matches!(self.state, State::Running) {
                self.look_at_the_tree();
            }
            self.keep_deadlines();
        }
        self.finish();
    }

    /// Whether a signal has come, whether there is something to type, and which stream is ready.
    fn wait(&mut self) -> [bool; 4] {
        let held = self.note_held();
        let [out, err] = self.relay.fds();
        let [out, err] =
            [(out, held[0]), (err, held[1])].map(|(fd, held)| if held { -1 } else { fd });
        self.give_typist();
        let typing = match &self.input {
            Input::Terminal(typist) => typist.watch(),
            Input::Pipe { held } if self.has_input() => Watch::writable(held.as_raw_fd()),
            Input::None | Input::Pipe { .. } => Watch::new(-1),
        };
        let [signals, out, err] = [self.signals.fd(), out, err].map(Watch::new);
        let mut watches = [signals, typing, out, err];
        // Rounded up, or the last millisecond would be spent in turning around.
        let milliseconds = |time: Duration| time.as_micros().div_ceil(1000) as i32;
        let pause = held.contains(&true).then(|| self.relay.hold.next_pause());
        if pause.is_none() {
            self.relay.hold.reset_pause();
        }
        let timeout = self.timeout().into_iter().chain(pause).min();
        sys::wait(&mut watches, timeout.map(milliseconds));
        watches.map(|watch| watch.is_ready())
    }

    /// Which streams wait for a reader. The time is counted while there is something in them.
    fn note_held(&mut self) -> [bool; 2] {
        let held = self.relay.held(&self.claim.record);
        let fds = self.relay.fds();
        let is_waiting = [0, 1].into_iter().any(|stream| held[stream] && is_ready(fds[stream]));
        if self.relay.hold.note_held(is_waiting, &mut self.claim.record) {
            self.claim.write();
        }
        held
    }

    /// None while there is nothing to be done at a certain time.
    fn timeout(&self) -> Option<Duration> {
        let until = |then: Instant| then.saturating_duration_since(Instant::now());
        match self.state {
            State::Running => {
                let deadline = self.deadline().map(until);
                Some(until(self.look)).into_iter().chain(deadline).min()
            }
            State::Asking { deadline } if tree::ENDS_UNHEARD && self.has_command_ended() => {
                Some(until(deadline).min(LOOK_AGAIN))
            }
            State::Asking { deadline } => Some(until(deadline)),
            State::Killing { give_up } => Some(until(give_up).min(LOOK_AGAIN)),
            State::Over => Some(Duration::ZERO),
        }
    }

    fn obey(&mut self, pending: Pending) {
        if pending.has(signal::IO) {
            self.spool.look();
        }
        if pending.has(signal::USR2) {
            self.spool.close();
        }
        if self.spool.is_over(self.claim.record.input_taken) {
            self.close_input();
        }
        if pending.has(signal::USR1) {
            self.claim.record.stage = StopStage::Forced;
            self.force();
        } else if pending.has(signal::TERM) {
            self.claim.record.stage = self.claim.record.stage.max(StopStage::Asked);
            self.ask();
        }
    }

    /// One piece of each, so that neither the other stream nor a signal waits for a chatterer.
    fn relay_one_piece_each(&mut self, ready: [bool; 2]) {
        let mut is_changed = false;
        for stream in [0, 1] {
            is_changed |= ready[stream] && self.relay.pump(stream, &mut self.claim.record);
        }
        if is_changed {
            self.claim.write();
        }
    }

    fn look_at_the_tree(&mut self) {
        let mut left = self.tree.collect();
        if let Left::Command(ending) = left {
            self.claim.record.ending = Some(ending);
            let ran = self.began.elapsed().as_millis() as u64;
            self.claim.record.ended_at = self.claim.record.started_at + ran;
            self.claim.record.phase = Phase::Exited;
            // Written before it is reaped: as long as the pid exists it is the command's.
            self.claim.write();
            self.tree.reap_command();
            left = self.tree.collect();
            if left == Left::Some {
                self.ask();
            }
        }
        match (left, self.state) {
            (Left::Nothing, _) => self.state = State::Over,
            (_, State::Killing { .. }) => self.tree.force(),
            _ => {}
        }
    }

    fn keep_deadlines(&mut self) {
        let now = Instant::now();
        match self.state {
            State::Running if self.deadline().is_some_and(|deadline| now >= deadline) => {
                let after = self.orders.timing.deadline.unwrap_or_default();
                self.claim.record.overdue_after_ms = after.as_millis() as u64;
                self.claim.record.stage = StopStage::Asked;
                self.ask();
            }
            State::Running if now >= self.look => self.look_for_directory(now),
            State::Asking { deadline } if now >= deadline => {
                // What a command leaves behind is ended without anybody having asked for a stop.
                if self.claim.record.stage == StopStage::Asked {
                    self.claim.record.stage = StopStage::Forced;
                }
                self.force();
            }
            State::Killing { give_up } if now >= give_up => {
                let mut survivors = self.tree.survivors();
                self.claim.record.survivors_total = survivors.len() as u32;
                survivors.truncate(SURVIVORS_MAX);
                self.claim.record.survivors = survivors;
                self.state = State::Over;
            }
            _ => {}
        }
    }

    /// When the command is ended although nobody says so.
    fn deadline(&self) -> Option<Instant> {
        let after = self.orders.timing.deadline?.min(FOR_EVER);
        Some(self.began + after + RUNTIME_FIRST)
    }

    fn has_input(&self) -> bool {
        self.spool.has_more(self.claim.record.input_taken)
    }

    /// Gives the command a piece of what was brought for it, or types, which never waits.
    fn write_input(&mut self) {
        let taken = self.claim.record.input_taken;
        let written = match &mut self.input {
            Input::None => return,
            Input::Terminal(typist) => return typist.go_on(),
            Input::Pipe { held } => {
                let mut buffer = relay::buffer();
                self.spool.read(taken, &mut *buffer).and_then(|piece| held.write(piece))
            }
        };
        self.note_input(written);
    }

    /// Has a piece of what was brought for the command typed.
    fn give_typist(&mut self) {
        let taken = self.claim.record.input_taken;
        let Input::Terminal(typist) = &mut self.input else { return };
        if !self.spool.has_more(taken) || !typist.is_idle() {
            return;
        }
        let mut piece = [0; 1024];
        let given = self.spool.read(taken, &mut piece).map(|piece| {
            typist.give(piece);
            piece.len()
        });
        self.note_input(given);
    }

    fn note_input(&mut self, given: io::Result<usize>) {
        match given {
            Ok(length) => self.claim.record.input_taken += length as u64,
            Err(error) if relay::is_momentary(&error) => return,
            // The command has closed its input, or the file is gone.
            Err(_) => {
                self.claim.record.input_closed = true;
                self.spool.close();
                self.close_input();
            }
        }
        if self.spool.is_over(self.claim.record.input_taken) {
            self.close_input();
        }
        self.claim.write();
    }

    /// Without its directory nobody can ever find the command or its shim, and nobody will stop it.
    fn look_for_directory(&mut self, now: Instant) {
        self.look = now + self.orders.timing.look;
        if self.claim.is_removed() {
            self.claim.record.stage = StopStage::Asked;
            self.ask();
        }
    }

    /// Kind: all are asked to end, and have the grace to do it. Asking again can only shorten it.
    fn ask(&mut self) {
        let deadline = Instant::now() + self.grace();
        self.state = match self.state {
            State::Running => State::Asking { deadline },
            State::Asking { deadline: earlier } => {
                State::Asking { deadline: earlier.min(deadline) }
            }
            already @ (State::Killing { .. } | State::Over) => already,
        };
        self.claim.write();
        self.tree.ask();
    }

    /// Firm. The stage is written first, so that a stop that was firm is never taken for a kind one.
    fn force(&mut self) {
        if matches!(self.state, State::Running | State::Asking { .. }) {
            self.state = State::Killing { give_up: Instant::now() + PATIENCE };
        }
        self.claim.write();
        self.tree.force();
    }

    fn grace(&self) -> Duration {
        let told = fs::read_to_string(self.orders.directory.join(layout::GRACE)).ok();
        let told = told.and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
        told.unwrap_or(self.orders.grace).min(FOR_EVER)
    }

    fn close_input(&mut self) {
        let was_open = match &mut self.input {
            Input::None => false,
            Input::Pipe { .. } => {
                self.input = Input::None;
                true
            }
            Input::Terminal(typist) => typist.close(),
        };
        if was_open {
            let _ = fs::remove_file(self.orders.directory.join(layout::STDIN));
            self.claim.record.input_closed = true;
            self.claim.write();
        }
    }

    fn has_command_ended(&self) -> bool {
        self.claim.record.phase >= Phase::Exited
    }

    /// Moves what the pipes still hold. A reader who must not miss it is waited for, but only for a while
    /// where somebody wants the command to be over.
    fn drain(&mut self) {
        let ends = Relay::ends(&self.claim.record);
        let mut produced = self.claim.record.produced;
        while !self.relay.drain(&mut self.claim, ends, is_ready) {
            if std::mem::replace(&mut produced, self.claim.record.produced) != produced {
                self.relay.hold.reset_pause();
            }
            if self.claim.record.stage != StopStage::None {
                self.relay.hold.release_after(PATIENCE);
            }
            self.note_held();
            let mut watches = [Watch::new(self.signals.fd())];
            sys::wait(&mut watches, Some(self.relay.hold.next_pause().as_millis() as i32));
            if watches[0].is_ready() {
                let pending = self.signals.take();
                self.obey(pending);
            }
        }
        self.note_held();
    }

    fn finish(mut self) {
        self.drain();
        self.close_input();
        if let Some(group) = group::of(&self.orders.directory) {
            group::remove(&group);
        }
        self.claim.record.phase = Phase::Done;
        self.claim.write_surely();
    }
}

/// Whether there is something to read, or nothing ever will be.
fn is_ready(fd: std::os::fd::RawFd) -> bool {
    let mut watch = [Watch::new(fd)];
    sys::wait(&mut watch, Some(0));
    watch[0].is_ready()
}
