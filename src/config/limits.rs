//! `[limits]`: limits on what clients can make the server hold.

use std::time::Duration;

use serde::Deserialize;

use super::read::{self, HOUR};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(deserialize_with = "read::count::<_, _, 1, 1_000_000>")]
    pub connections: usize,
    /// Connections of a listener from one address.
    #[serde(deserialize_with = "read::count::<_, _, 1, 1_000_000>")]
    pub connections_per_address: usize,
    /// Connections of the operators' listener.
    #[serde(deserialize_with = "read::count::<_, _, 1, 1_000_000>")]
    pub admin_connections: usize,
    /// The timeout for a request head.
    #[serde(deserialize_with = "read::wait::<_, 10, HOUR>")]
    pub head_timeout: Duration,
    /// The timeout between two requests of a connection.
    #[serde(deserialize_with = "read::wait::<_, 10, HOUR>")]
    pub idle_timeout: Duration,
    /// The timeout for a response to be read.
    #[serde(deserialize_with = "read::wait::<_, 10, HOUR>")]
    pub answer_timeout: Duration,
    /// The number of failures of an address whose response is not delayed.
    #[serde(deserialize_with = "read::count::<_, _, 0, 1_000_000>")]
    pub failed_keys: u32,
    /// The maximum delay of a refusal.
    #[serde(deserialize_with = "read::wait::<_, 0, HOUR>")]
    pub failed_keys_delay: Duration,
    /// The number of addresses whose failures are tracked.
    #[serde(deserialize_with = "read::count::<_, _, 1, 1_000_000>")]
    pub failed_keys_addresses: usize,
    /// The number of refusals that are delayed at a time.
    #[serde(deserialize_with = "read::count::<_, _, 0, 1_000_000>")]
    pub failed_keys_held: usize,
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000_000>")]
    pub topics: usize,
    /// Maximum event subscriptions of one topic or domain.
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000_000>")]
    pub subscriptions_per_topic: usize,
    /// Maximum entries of `includedEventTypes`.
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000>")]
    pub event_types: usize,
    /// Maximum entries of `advancedFilters`.
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000>")]
    pub advanced_filters: usize,
    /// Maximum values of all advanced filters of a subscription together.
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000>")]
    pub advanced_values: usize,
    /// Characters of a string in a filter.
    #[serde(deserialize_with = "read::count::<_, _, 1, 65_536>")]
    pub filter_text: usize,
    /// Maximum depth of objects and arrays in an event.
    #[serde(deserialize_with = "read::count::<_, _, 1, 125>")]
    pub event_depth: usize,
    /// Maximum events of one subscription that clients have received and not settled.
    #[serde(deserialize_with = "read::count::<_, _, 1, 65_000>")]
    pub leases_per_subscription: u32,
    /// Maximum events of one ordered subscription that are in flight, wait for a retry or are held
    /// back.
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000_000>")]
    pub ordered_events_per_subscription: u32,
    /// Maximum size of events that subscriptions have read and not sent.
    #[serde(deserialize_with = "read::size::<_, _, { 8 << 20 }, { 64 << 30 }>")]
    pub read_bytes: usize,
    /// The threads that compute what clients ask for; 0: one for each two cores.
    #[serde(deserialize_with = "read::count::<_, _, 0, 1024>")]
    pub compute_threads: usize,
    /// Maximum processor time of a task of the computing threads.
    #[serde(deserialize_with = "read::wait::<_, 100, HOUR>")]
    pub compute_time: Duration,
    /// Maximum size of what tasks of the computing threads make.
    #[serde(deserialize_with = "read::size::<_, _, { 32 << 20 }, { 64 << 30 }>")]
    pub compute_bytes: usize,
    /// Requests of a thread that wait for a late response.
    #[serde(deserialize_with = "read::count::<_, _, 0, 1_000_000>")]
    pub late_requests: usize,
}
