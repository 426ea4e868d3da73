//! When an endpoint that could not be reached is looked for: bare connection attempts, while it is suspended.
//!
//! A suspension is there to spare an endpoint that fails. One that nobody answers for (refused, no route, no name) is spared
//! nothing by it, and waits in vain once it is back. So a connection without a request is tried every so often: no event is
//! attempted by it, and where it succeeds the probe is due at once.
//!
//! Invariants: the pause is at least the setting and at most [`LONGEST`] times that, and between them a sixtieth of the
//! outage so far; one attempt at a time.

use std::time::Duration;

use crate::{
    event::Timestamp,
    policy::{outcome::Outcome, retry::Jitter},
};

/// The pause grows with the outage, as this share of it: a minute goes by before it grows at all.
const SHARE: u32 = 60;

/// It grows to so many times the setting.
const LONGEST: u32 = 10;

/// A pause is longer or shorter by up to this share, so that endpoints behind one outage are not looked for at once.
const SPREAD: f64 = 0.2;

/// What is known of it.
#[derive(Debug)]
pub(super) struct ConnectionProbe {
    /// The least pause; none where nothing is looked for.
    pause: Duration,
    next: Option<Timestamp>,
    /// Whether the probe that leaves next is due before its time.
    hastened: bool,
}

impl ConnectionProbe {
    /// For an endpoint that was suspended for `cause`, if it was: whether that was before the connection was made is not
    /// known any more, and is found out.
    pub(super) fn recover(pause: Duration, cause: Option<Outcome>, now: Timestamp) -> Self {
        let network = matches!(cause, Some(Outcome::SocketError | Outcome::ResolutionError));
        Self { pause, next: (network && !pause.is_zero()).then_some(now), hastened: false }
    }

    /// When the next attempt is due; [`None`] where there is no use in one, or one is on its way.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// An attempt is on its way.
    pub(super) fn tried(&mut self) {
        self.next = None;
    }

    /// An attempt was in vain, or a request was: in an outage since `since`.
    pub(super) fn failed(&mut self, since: Timestamp, now: Timestamp, jitter: Jitter) {
        if self.pause.is_zero() {
            return;
        }
        let pause = (now.since(since) / SHARE).clamp(self.pause, self.pause.saturating_mul(LONGEST));
        self.next = Some(now.after(pause.mul_f64(1.0 + SPREAD * (2.0 * jitter.0 - 1.0))));
    }

    /// There is no use in attempts any more: it was reached, or does not fail for the network.
    pub(super) fn end(&mut self) {
        (self.next, self.hastened) = (None, false);
    }

    /// An attempt has succeeded, or the server has started: the probe is due because of it.
    pub(super) fn hasten(&mut self) {
        (self.next, self.hastened) = (None, true);
    }

    /// Whether the probe that leaves next is due before its time.
    pub(super) fn is_hastened(&self) -> bool {
        self.hastened
    }

    /// Whether the probe that failed was due because of an attempt: asked once.
    pub(super) fn take_hastened(&mut self) -> bool {
        std::mem::take(&mut self.hastened)
    }
}
