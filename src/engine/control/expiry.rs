//! Deletes subscriptions at their `expirationTimeUtc`.
//!
//! An expired subscription is deleted as if an operator had deleted it: its pending deliveries are
//! canceled. The time is in its record, so nothing else is stored, and after a restart expired
//! subscriptions are deleted before anything is sent. A proposal has an expiration time of its own.
//! While the clock pauses expiry, no subscription expires.

use std::{sync::Arc, time::Duration};

use tracing::{info, warn};

use super::registry::Registry;
use gridhook_clock::Clock;
use gridhook_event::Timestamp;

/// Maximum pause between checks, so that a suspended machine or a changed clock is noticed.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Pause before a failed deletion is retried. The disk may be full until an operator makes room.
const RETRY: Duration = Duration::from_secs(5);

/// Deletes what has expired by `now`. Returns the time of the next expiration.
pub async fn delete_expired(registry: &Arc<Registry>, now: Timestamp) -> Option<Timestamp> {
    let mut next: Option<Timestamp> = None;
    let mut sooner = |at: Timestamp| next = Some(next.map_or(at, |next| next.min(at)));
    for topic in registry.list_topics() {
        let key = topic.record().key();
        let proposals = topic
            .list_proposals()
            .into_iter()
            .map(|proposal| Arc::clone(&proposal.record));
        for record in topic.list_subscriptions().into_iter().chain(proposals) {
            let Some(expires) = record.expires else {
                continue;
            };
            if expires > now {
                sooner(expires);
                continue;
            }
            let subscription = record.key();
            match registry.delete_if_expired(&key, &subscription, now).await {
                Ok(true) => {
                    info!(topic = key, subscription, %expires, "event subscription expired")
                }
                // The subscription was deleted, or given more time, in the meantime.
                Ok(false) => {}
                Err(error) => {
                    warn!(topic = key, subscription, %error, "cannot delete expired event \
                        subscription");
                    sooner(now.after(RETRY));
                }
            }
        }
    }
    next
}

/// Deletes subscriptions as they expire, until the server stops.
pub async fn run(registry: Arc<Registry>, clock: Clock) {
    loop {
        let next = if clock.expiry_is_paused() {
            None
        } else {
            delete_expired(&registry, clock.now()).await
        };
        let wait = next.map_or(CHECK_INTERVAL_MAX, |next| {
            next.since(clock.now()).min(CHECK_INTERVAL_MAX)
        });
        // Ends early if a new expiration time was set.
        tokio::time::timeout(wait, registry.wait_until_expiry_set())
            .await
            .ok();
    }
}
