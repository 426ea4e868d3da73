//! The waits that endpoints requested with `Retry-After`, shared by all subscriptions with the same
//! URL.
//!
//! The header is addressed to the sender, and this server is one sender, however many subscriptions
//! name the URL. The scope is the whole URL and not its host: a host may serve many owners (a
//! gateway, a relay), and a limit of one of them must not delay the deliveries to another.
//!
//! Nothing is stored here. The subscription that received the response stores the wait in its
//! cursor, and all cursors are read before the first actor starts.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use url::Url;

use gridhook_event::Timestamp;

/// The waits of all URLs that a subscription names.
#[derive(Debug, Default)]
pub struct EndpointWaits {
    hasher: RandomState,
    /// The waits by hash of the URL: an entry of 64 bits costs less than a second copy of each URL.
    waits: Mutex<HashMap<u64, Weak<EndpointWait>>>,
}

/// The time until which the endpoint at one URL must not be called; 0 for no wait.
#[derive(Debug, Default)]
pub struct EndpointWait(AtomicU64);

impl EndpointWaits {
    pub fn wait_for_url(&self, url: &Url) -> Arc<EndpointWait> {
        let mut waits = self.waits.lock();
        if waits.len() == waits.capacity() {
            waits.retain(|_, wait| wait.strong_count() > 0);
        }
        let entry = waits.entry(self.hasher.hash_one(url)).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let wait = Arc::default();
            *entry = Arc::downgrade(&wait);
            wait
        })
    }
}

impl EndpointWait {
    /// The end of the wait, which may have passed.
    pub fn end_time(&self) -> Option<Timestamp> {
        Some(Timestamp(self.0.load(Ordering::Acquire))).filter(|until| until.0 > 0)
    }

    /// Notes that the endpoint must not be called before `until`. The longest of several waits
    /// counts.
    pub fn extend(&self, until: Timestamp) {
        self.0.fetch_max(until.0, Ordering::AcqRel);
    }

    /// Ends the wait for the subscriptions that have not taken it over: an operator calls the
    /// endpoint now.
    pub fn end_wait(&self) {
        self.0.store(0, Ordering::Release);
    }
}
