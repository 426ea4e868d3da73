//! The core of a subscription: its tables by scripts, its promises by a model.

mod backlog;
mod backup;
mod batches;
mod blocked_keys;
mod caller;
mod concurrency;
mod condition;
mod dead_letter_store;
mod delivery_history;
mod disk;
mod doubt;
mod driver;
mod editions;
mod endings;
mod expiry;
mod explain;
mod facts;
mod filter;
mod late_responses;
mod lease;
mod model;
mod order;
mod pace;
mod probation;
mod promises;
mod properties;
mod reach;
mod redrive;
mod refused;
mod replay;
mod request_map;
mod retry_now;
mod runs;
mod sabotage;
mod schedule;
mod together;
mod transform;
mod unreadable;
mod validation;
mod window;

use std::{sync::Arc, time::Duration};

use gridhook::{
    config::Editions,
    event::{Schema, Timestamp},
    policy::{
        Subscription, SubscriptionSettings,
        batch::BatchLimits,
        edition::{Edition, EndpointKind},
        record::EndpointId,
    },
};

use crate::support::chunks::sealed;

/// The edition that the program has.
fn current() -> Arc<Edition> {
    Editions::load(None, None)
        .expect("the program's own editions are sound")
        .get("current")
        .expect("it has this one")
}

/// The same, but no share of failures suspends either.
fn without_probation() -> Arc<Edition> {
    let mut edition = (*current()).clone();
    edition.probation.requests_min = u32::MAX;
    edition.into()
}

/// One event after another, attempts as many as one likes, no probation: a test says what it is
/// about.
fn plain() -> SubscriptionSettings {
    SubscriptionSettings {
        version: 1,
        edition: current(),
        destination: EndpointKind::Webhook,
        endpoint: EndpointId::default(),
        attempts_max: 1000,
        since: Timestamp::default(),
        time_to_live: Duration::from_secs(24 * 60 * 60),
        batch: BatchLimits {
            events_max: 1,
            bytes_preferred: 64 * 1024,
            schema: Schema::EventGrid,
        },
        grouping: Arc::new([]),
        order: None,
        concurrency_max: 1,
        rate_max: None,
        backlog_min: 256,
        suspend_after: u32::MAX,
        reconnect_interval: Duration::ZERO,
        request_timeout: Duration::from_secs(200),
        dead_letter: true,
        dead_letter_in_probation: false,
        hold_when_gone: false,
        hold_after_failing: None,
        transform: None,
        pull: None,
    }
}

#[test]
fn what_most_subscriptions_do_not_use_takes_no_memory_in_each() {
    // A server with ten thousand subscriptions has as many of these.
    let size = size_of::<Subscription>();
    assert!(size <= 1_792, "{size} bytes");
}
