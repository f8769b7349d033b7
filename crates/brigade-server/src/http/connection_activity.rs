//! The activity of one connection, from which follows since when it is idle.
//!
//! ```text
//! reading ─ request ─> serving ─ end of the response ─> answered ─ bytes sent ─> idle
//!    ^                                                                            │
//!    └──────────────────────────────── bytes arrive ──────────────────────────────┘
//! ```

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, Sleep};

/// The time without a request after which the state of an idle connection is dropped. It is short,
/// since an allocator retains the memory of a burst of connections, also after it is free.
pub(crate) const IDLE_TIME: Duration = Duration::from_millis(200);

/// The activity of a connection. Its stream and its service note it.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    phase: Mutex<ActivityPhase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActivityPhase {
    /// No request so far, or a part of the next one.
    Reading,
    Serving,
    /// The response has ended, and may be in a buffer still.
    Answered,
    Idle {
        since: Instant,
    },
    /// No further request is read.
    Closing,
}

/// A request whose response has not ended.
#[derive(Debug)]
pub(crate) struct RequestInProgress {
    activity: Arc<ConnectionActivity>,
}

impl ConnectionActivity {
    pub(crate) fn new() -> Self {
        Self { phase: Mutex::new(ActivityPhase::Reading) }
    }

    pub(crate) fn begin_request(self: &Arc<Self>) -> RequestInProgress {
        *self.lock() = ActivityPhase::Serving;
        RequestInProgress { activity: self.clone() }
    }

    /// Notes that bytes arrived.
    pub(crate) fn note_read(&self) {
        let mut phase = self.lock();
        if let ActivityPhase::Idle { .. } = *phase {
            *phase = ActivityPhase::Reading;
        }
    }

    /// Notes that all bytes so far were sent.
    pub(crate) fn note_flush(&self) {
        let mut phase = self.lock();
        if *phase == ActivityPhase::Answered {
            *phase = ActivityPhase::Idle { since: Instant::now() };
        }
    }

    /// Notes that the stream is being closed.
    pub(crate) fn note_shutdown(&self) {
        *self.lock() = ActivityPhase::Closing;
    }

    /// Returns the time at which the last response was sent, if nothing has arrived since.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        match *self.lock() {
            ActivityPhase::Idle { since } => Some(since),
            _ => None,
        }
    }

    fn end_request(&self) {
        let mut phase = self.lock();
        if *phase == ActivityPhase::Serving {
            *phase = ActivityPhase::Answered;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ActivityPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.activity.end_request();
    }
}

/// A timer that fires once, when the connection has been idle for long enough.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    activity: Arc<ConnectionActivity>,
    state: TimerState,
}

#[derive(Debug)]
enum TimerState {
    Stopped,
    /// The timer is not reset for each request: that would cost more than to look again.
    Running(Pin<Box<Sleep>>),
    Fired,
}

impl IdleTimer {
    pub(crate) fn new(activity: Arc<ConnectionActivity>) -> Self {
        Self { activity, state: TimerState::Stopped }
    }

    /// Waits until the connection has been idle for long enough, and returns since when. The caller
    /// polls the connection first, which alone changes its activity.
    pub(crate) fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        loop {
            match &mut self.state {
                TimerState::Fired => return Poll::Pending,
                TimerState::Stopped => {
                    let Some(since) = self.activity.idle_since() else { return Poll::Pending };
                    let timer = Box::pin(tokio::time::sleep_until(since + IDLE_TIME));
                    self.state = TimerState::Running(timer);
                }
                TimerState::Running(timer) => {
                    ready!(timer.poll_unpin(context));
                    let since = self.activity.idle_since();
                    match since.filter(|since| since.elapsed() >= IDLE_TIME) {
                        Some(since) => {
                            self.state = TimerState::Fired;
                            return Poll::Ready(since);
                        }
                        None => self.state = TimerState::Stopped,
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn idle_time(timer: &mut IdleTimer) -> Duration {
        std::future::poll_fn(|context| timer.poll_idle(context)).await.elapsed()
    }

    #[test]
    fn a_connection_is_idle_after_its_response_was_sent() {
        let activity = Arc::new(ConnectionActivity::new());
        activity.note_flush();
        assert_eq!(activity.idle_since(), None, "there was no request");
        let request = activity.begin_request();
        activity.note_read();
        activity.note_flush();
        assert_eq!(activity.idle_since(), None, "the response goes on");
        drop(request);
        assert_eq!(activity.idle_since(), None, "its end is in a buffer");
        activity.note_flush();
        assert!(activity.idle_since().is_some());
        activity.note_read();
        activity.note_flush();
        assert_eq!(activity.idle_since(), None, "a part of the next request is there");
    }

    #[test]
    fn a_connection_that_closes_is_not_idle() {
        let activity = Arc::new(ConnectionActivity::new());
        drop(activity.begin_request());
        activity.note_flush();
        activity.note_shutdown();
        activity.note_flush();
        assert_eq!(activity.idle_since(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_counts_from_the_last_response() {
        let activity = Arc::new(ConnectionActivity::new());
        let mut timer = IdleTimer::new(activity.clone());
        for _ in 0..3 {
            drop(activity.begin_request());
            activity.note_flush();
            let half = tokio::time::timeout(IDLE_TIME / 2, idle_time(&mut timer)).await;
            assert!(half.is_err(), "it was idle for half of the time");
        }
        assert_eq!(idle_time(&mut timer).await, IDLE_TIME);
    }
}
