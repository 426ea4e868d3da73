//! Subscriptions that end by themselves: `expirationTimeUtc`.
//!
//! A subscription that expired is deleted as if somebody had asked for it: what it owes is canceled. The time stands in its
//! record, so nothing is remembered here; whoever restarts looks again, before anything is sent. What waits for its endpoint
//! to agree has a time of its own. While the clock holds expiry, no subscription ends by it.

use std::{sync::Arc, time::Duration};

use tracing::{info, warn};

use super::registry::Registry;
use crate::{clock::Clock, event::Timestamp};

/// It is looked again no later than after so long: a machine that slept, or a clock that was set, is noticed.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// What could not be deleted is tried again after so long: the disk is full, and people make room.
const RETRY: Duration = Duration::from_secs(5);

/// Deletes what has expired by `now`. Answers when to look again, if ever.
pub async fn sweep(registry: &Arc<Registry>, now: Timestamp) -> Option<Timestamp> {
    let mut next: Option<Timestamp> = None;
    let mut sooner = |at: Timestamp| next = Some(next.map_or(at, |next| next.min(at)));
    for topic in registry.topics() {
        let key = topic.record().key();
        let proposed = topic.proposals().into_iter().map(|proposal| Arc::clone(&proposal.record));
        for record in topic.subscriptions().into_iter().chain(proposed) {
            let Some(expires) = record.expires else { continue };
            if expires > now {
                sooner(expires);
                continue;
            }
            let subscription = record.key();
            match registry.expire(&key, &subscription, now).await {
                Ok(true) => info!(topic = key, subscription, %expires, "event subscription expired"),
                // Somebody was faster, or gave it more time.
                Ok(false) => {}
                Err(error) => {
                    warn!(topic = key, subscription, %error, "an expired event subscription stays");
                    sooner(now.after(RETRY));
                }
            }
        }
    }
    next
}

/// Deletes what expires, for as long as the server runs.
pub async fn run(registry: Arc<Registry>, clock: Clock) {
    loop {
        let next = if clock.holds_expiry() { None } else { sweep(&registry, clock.now()).await };
        let wait = next.map_or(LOOK_MAX, |next| next.since(clock.now()).min(LOOK_MAX));
        // Over at once where a new time to expire was set meanwhile; or else it is looked after the wait.
        tokio::time::timeout(wait, registry.expiry_set()).await.ok();
    }
}
