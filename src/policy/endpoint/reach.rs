//! Bare connection attempts to an endpoint that could not be reached, while it is suspended.
//!
//! A suspension protects a failing endpoint from load. An unreachable endpoint (refused, no route,
//! no name) needs no such protection, and would wait needlessly once it is back. A connection
//! without a request is therefore tried from time to time. It attempts no event; if it succeeds,
//! the probe is due at once.
//!
//! Invariants: the pause is a sixtieth of the outage so far, at least the setting and at most
//! [`LONGEST`] times the setting. One attempt at a time.

use std::time::Duration;

use crate::{outcome::Failure, retry::Jitter};
use gridhook_event::Timestamp;

/// The pause is this fraction of the outage, so it starts to grow after a minute.
const SHARE: u32 = 60;

/// Maximum pause as a multiple of the setting.
const LONGEST: u32 = 10;

/// A pause is varied randomly by up to this share, so that endpoints behind one outage are not
/// tried at once.
const SPREAD: f64 = 0.2;

/// The state of connection attempts.
#[derive(Debug)]
pub(super) struct ConnectionProbe {
    /// The minimum pause; zero if no connections are tried.
    pause: Duration,
    next: Option<Timestamp>,
    /// Whether the next probe is due early because of a connection.
    early: bool,
}

impl ConnectionProbe {
    /// For an endpoint suspended for `cause`, if it was. Whether it was reachable is not stored and
    /// is found out again.
    pub(super) fn for_suspension(pause: Duration, cause: Option<Failure>, now: Timestamp) -> Self {
        let network = matches!(cause, Some(Failure::SocketError | Failure::ResolutionError));
        Self {
            pause,
            next: (network && !pause.is_zero()).then_some(now),
            early: false,
        }
    }

    /// When the next attempt is due; [`None`] if it would be useless or one is in progress.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Notes that an attempt is in progress.
    pub(super) fn begin_attempt(&mut self) {
        self.next = None;
    }

    /// Notes that an attempt or a request found the endpoint unreachable, in an outage since
    /// `since`.
    pub(super) fn record_unreachable(&mut self, since: Timestamp, now: Timestamp, jitter: Jitter) {
        if self.pause.is_zero() {
            return;
        }
        let pause =
            (now.since(since) / SHARE).clamp(self.pause, self.pause.saturating_mul(LONGEST));
        self.next = Some(now.after(pause.mul_f64(1.0 + SPREAD * (2.0 * jitter.0 - 1.0))));
    }

    /// Stops attempts: the endpoint was reached, or fails for another reason.
    pub(super) fn stop_attempts(&mut self) {
        (self.next, self.early) = (None, false);
    }

    /// Notes that an attempt succeeded, or that the server started: the probe is due because of it.
    pub(super) fn set_early(&mut self) {
        (self.next, self.early) = (None, true);
    }

    /// Whether the next probe is due early.
    pub(super) fn is_early(&self) -> bool {
        self.early
    }

    /// Whether the probe that failed was due early. Resets the state.
    pub(super) fn take_early(&mut self) -> bool {
        std::mem::take(&mut self.early)
    }
}
