//! Counts rejected publishers by kind, and logs at most one line a second, because an attacker
//! tries many keys.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::KeyScope;
use crate::Refusal;
use gridhook_event::Timestamp;

/// The interval between two log lines. One line shows the attempt; more would fill the log.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The number of rejected publishers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectionCounts {
    /// Requests without a credential, with an empty key, or with an unknown scheme.
    pub nothing: u64,
    /// Requests with an invalid key or token.
    pub not_authorized: u64,
    /// Requests from an address that the topic does not accept.
    pub address: u64,
}

#[derive(Debug, Default)]
pub struct RejectionCounters {
    nothing: AtomicU64,
    not_authorized: AtomicU64,
    address: AtomicU64,
    logged: AtomicU64,
}

impl RejectionCounters {
    pub(super) fn read(&self) -> RejectionCounts {
        let [nothing, not_authorized, address] =
            [&self.nothing, &self.not_authorized, &self.address]
                .map(|count| count.load(Ordering::Relaxed));
        RejectionCounts {
            nothing,
            not_authorized,
            address,
        }
    }

    pub(super) fn count_refusal(
        &self,
        refusal: &Refusal,
        scope: &KeyScope<'_>,
        client: Option<IpAddr>,
        now: Timestamp,
    ) {
        let count = if matches!(
            refusal,
            Refusal::AddressRules { .. } | Refusal::PublicNetwork { .. }
        ) {
            &self.address
        } else if matches!(
            refusal,
            Refusal::NoKey | Refusal::EmptyKey | Refusal::Scheme | Refusal::NoAuthorization
        ) {
            &self.nothing
        } else {
            &self.not_authorized
        };
        count.fetch_add(1, Ordering::Relaxed);
        let last = self.logged.load(Ordering::Relaxed);
        let is_time = last == 0 || now.since(Timestamp(last)) >= LOG_PAUSE;
        let ordering = Ordering::Relaxed;
        let now = now.0;
        // Of several threads, the one whose exchange succeeds writes the line.
        let replace_last = || self.logged.compare_exchange(last, now, ordering, ordering);
        if is_time && replace_last().is_ok() {
            let RejectionCounts {
                nothing,
                not_authorized,
                address,
            } = self.read();
            let client = client.map(tracing::field::display);
            tracing::warn!(
                topic = %scope.name, client, reason = %refusal, nothing, not_authorized, address,
                "publisher refused"
            );
        }
    }
}
