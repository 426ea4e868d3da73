//! Who was sent away: counted by kind, and logged once a second at most, because whoever tries keys tries many.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use actix_web::http::StatusCode;

use super::KeyScope;
use crate::{event::Timestamp, publish::Refusal};

/// A line a second shows that somebody is at the door; more would only fill the log.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// How many were sent away since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectionCounts {
    /// With nothing, with an empty key or in a scheme that there is not.
    pub nothing: u64,
    /// With a key or a token that was no good.
    pub not_authorized: u64,
    /// From an address that the topic does not take events from.
    pub address: u64,
}

/// Counts them.
#[derive(Debug, Default)]
pub struct RejectionCounters {
    nothing: AtomicU64,
    not_authorized: AtomicU64,
    address: AtomicU64,
    logged: AtomicU64,
}

impl RejectionCounters {
    /// What was counted.
    pub(super) fn read(&self) -> RejectionCounts {
        let [nothing, not_authorized, address] =
            [&self.nothing, &self.not_authorized, &self.address].map(|count| count.load(Ordering::Relaxed));
        RejectionCounts { nothing, not_authorized, address }
    }

    pub(super) fn count(&self, refusal: &Refusal, scope: &KeyScope<'_>, client: Option<IpAddr>, now: Timestamp) {
        let count = if refusal.status().0 == StatusCode::FORBIDDEN {
            &self.address
        } else if matches!(refusal, Refusal::NoKey | Refusal::EmptyKey | Refusal::Scheme | Refusal::NoAuthorization) {
            &self.nothing
        } else {
            &self.not_authorized
        };
        count.fetch_add(1, Ordering::Relaxed);
        let last = self.logged.load(Ordering::Relaxed);
        let is_time = last == 0 || now.since(Timestamp(last)) >= LOG_PAUSE;
        let is_mine = || self.logged.compare_exchange(last, now.0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_time && is_mine() {
            let RejectionCounts { nothing, not_authorized, address } = self.read();
            let client = client.map(tracing::field::display);
            tracing::warn!(
                topic = %scope.name, client, reason = %refusal, nothing, not_authorized, address,
                "publisher refused"
            );
        }
    }
}
