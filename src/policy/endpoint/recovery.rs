//! The state of an endpoint as recovered from its record.

use std::{sync::Arc, time::Duration};

use super::{
    Endpoint, cap::BatchCap, health, limit::AdaptiveLimit, meter::RequestWindow, pace::RequestPace,
    reach::ConnectionProbe,
};
use crate::{
    SubscriptionSettings,
    record::{Cursor, Health, PaceRecord},
};
use gridhook_event::{RequestId, Timestamp};

impl Endpoint {
    /// Recovers an endpoint from its record. `requests` are its requests in flight and the times
    /// when they were sent: the first one sent after the suspension is the probe of an earlier
    /// incarnation. If there is none, the next probe may leave at once.
    ///
    /// An endpoint with a pace starts it again. One with pending deliveries that failed recently
    /// gets a pace, so that deliveries that became due meanwhile are not sent all at once.
    pub fn from_cursor(
        settings: &SubscriptionSettings,
        cursor: &Cursor,
        requests: impl Iterator<Item = (RequestId, Timestamp)>,
        now: Timestamp,
    ) -> Self {
        let edition = Arc::clone(&settings.edition);
        let sent_after = |after| requests.filter(move |(_, sent)| *sent >= after);
        let probe = |after: Timestamp| sent_after(after).map(|(id, _)| id).min();
        let wait = cursor.pace.wait_of(settings.endpoint);
        let (health, probe) = match cursor.health {
            health @ Health::Healthy { .. } => (health, None),
            // The suspension lasts at least as long as the wait, which another endpoint requested.
            Health::Suspended {
                cause,
                since,
                until: _,
                consecutive_suspensions,
            } if wait != cursor.pace.not_before => (
                Health::Suspended {
                    cause,
                    since,
                    until: now,
                    consecutive_suspensions,
                },
                None,
            ),
            health @ Health::Suspended {
                cause,
                since,
                until,
                consecutive_suspensions,
            } => match probe(until) {
                Some(id) => (
                    Health::Probing {
                        cause,
                        since,
                        consecutive_suspensions,
                    },
                    Some(id),
                ),
                None => (health, None),
            },
            health @ Health::Probing {
                cause,
                since,
                consecutive_suspensions,
            } => match probe(since.after(Duration::from_micros(1))) {
                Some(id) => (health, Some(id)),
                None => (
                    Health::Suspended {
                        cause,
                        since,
                        until: now,
                        consecutive_suspensions,
                    },
                    None,
                ),
            },
        };
        // The clock may have been set back since, so the wait is capped at the longest one allowed.
        let longest = now.after(edition.retry.retry_after_max);
        let not_before = wait
            .map(|until| until.min(longest))
            .filter(|until| *until > now);
        let cause = match health {
            Health::Suspended { cause, .. } => Some(cause),
            Health::Healthy { .. } | Health::Probing { .. } => None,
        };
        let failed = cursor.pace.failed.map(|failed| failed.min(now));
        let failing_since = cursor.pace.failing_since.map(|since| since.min(now));
        let failed = failed.filter(|failed| now.since(*failed) < edition.pace.forgotten_after);
        let mut endpoint = Self {
            id: settings.endpoint,
            health: health::cap_recovered(health, &edition.probation, now),
            meter: RequestWindow::new(edition.probation.window),
            edition,
            suspend_after: settings.suspend_after,
            events_max: settings.batch.events_max,
            rate_max: settings.rate_max,
            held: cursor.held,
            closed: false,
            probe,
            pace: PaceRecord {
                failed,
                not_before,
                failing_since,
                ..cursor.pace
            },
            bucket: None,
            limit: AdaptiveLimit::new(settings.concurrency_max),
            cap: BatchCap::default(),
            reach: ConnectionProbe::for_suspension(settings.reconnect_interval, cause, now),
            requested_wait: None,
            reported_wait: None,
        };
        let has_pace = failed.is_some() && (cursor.pace.paced || cursor.next_due.is_some());
        let healthy = endpoint.pace.healthy.filter(|_| has_pace);
        let pace = RequestPace::new(healthy, endpoint.rate_max, &endpoint.edition.pace, now);
        endpoint.bucket = pace.map(Box::new);
        endpoint.leave_alone();
        endpoint
    }
}
