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
        let wait = cursor.pace.wait_of(settings.endpoint);
        let is_other_endpoint = wait != cursor.pace.not_before;
        let (health, probe) = recover_health(cursor.health, is_other_endpoint, requests, now);
        // The clock may have been set back since, so the wait is capped at the longest one allowed.
        let longest = now.after(edition.retry.retry_after_max);
        let not_before = wait
            .map(|until| until.min(longest))
            .filter(|until| *until > now);
        let cause = match health {
            Health::Suspended { cause, .. } => Some(cause),
            Health::Healthy { .. } | Health::Probing { .. } => None,
        };
        let failing_since = cursor.pace.failing_since.map(|since| since.min(now));
        let failed_at = cursor
            .pace
            .failed
            .map(|failed_at| failed_at.min(now))
            .filter(|failed_at| now.since(*failed_at) < edition.pace.forgotten_after);
        let mut endpoint = Self {
            id: settings.endpoint,
            health: health::cap_recovered(health, &edition.probation, now),
            meter: RequestWindow::new(edition.probation.window),
            edition,
            suspend_after: settings.suspend_after,
            events_max: settings.batch.events_max,
            rate_max: settings.rate_max,
            held: cursor.held,
            is_closed: false,
            probe,
            pace: PaceRecord {
                failed: failed_at,
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
        let has_pace = failed_at.is_some() && (cursor.pace.paced || cursor.next_due.is_some());
        let healthy = endpoint.pace.healthy.filter(|_| has_pace);
        let pace = RequestPace::new(healthy, endpoint.rate_max, &endpoint.edition.pace, now);
        endpoint.bucket = pace.map(Box::new);
        endpoint.extend_suspension();
        endpoint
    }
}

/// The health in a record as it is after a restart, with the probe in flight.
fn recover_health(
    health: Health,
    is_other_endpoint: bool,
    requests: impl Iterator<Item = (RequestId, Timestamp)>,
    now: Timestamp,
) -> (Health, Option<RequestId>) {
    let first_sent_since = |time: Timestamp| {
        requests
            .filter(|(_, sent)| *sent >= time)
            .map(|(id, _)| id)
            .min()
    };
    match health {
        Health::Healthy { .. } => (health, None),
        // The suspension lasts at least as long as the wait, which another endpoint requested.
        Health::Suspended {
            cause,
            since,
            until: _,
            consecutive_suspensions,
        } if is_other_endpoint => (
            Health::Suspended {
                cause,
                since,
                until: now,
                consecutive_suspensions,
            },
            None,
        ),
        Health::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } => match first_sent_since(until) {
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
        Health::Probing {
            cause,
            since,
            consecutive_suspensions,
        } => match first_sent_since(since.after(Duration::from_micros(1))) {
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
    }
}
