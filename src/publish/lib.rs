//! Publishing: a request becomes events in a topic's log, or is refused as a whole.
//!
//! - [`http`] has the routes and responses, [`namespace`] those of namespaces.
//! - [`publisher`] finds the topic, authenticates with [`auth`], checks [`rate`], reserves
//!   [`in_flight_bytes`] *before* it reads the body, passes the body to [`schema`] and the draft to
//!   the journal. It returns 200 only once the events are durable.
//! - [`schema`] turns bytes into a draft of log records or a [`Refusal`]. It does no I/O and reads
//!   no clock.
//! - `traced` records traces.
//! - `republish` reads one redriven event as its topic would.
//! - [`Refusal`] is every error of a publish request, in Event Grid's words where these are known.
//!
//! Not here: actors. The journal assigns positions in the log, so a topic whose actor is down still
//! accepts events.

use std::time::Duration;

pub mod auth;
mod body;
mod encoding;
pub mod http;
pub mod in_flight_bytes;
pub mod namespace;
pub mod publisher;
pub mod rate;
pub mod refusal;
mod republish;
pub mod schema;
mod traced;

pub use body::strip_byte_order_mark;
pub use refusal::Refusal;
pub use republish::read_for_redrive;

/// Marks a request that a node of a cluster sends to a shard which does not have all that the
/// request is about: there are other namespaces in other shards.
#[derive(Clone, Copy, Debug)]
pub struct OneOfShards;

/// The limits of a request. The defaults for requests and events are Azure's.
#[derive(Clone, Copy, Debug)]
pub struct PublishLimits {
    /// The maximum size of a body in bytes.
    pub request_bytes_max: usize,
    /// The maximum size of an event in bytes, as sent.
    pub event_bytes_max: usize,
    /// The maximum number of events in a request.
    pub events_max: usize,
    /// The maximum number of events in a request to a namespace.
    pub namespace_events_max: usize,
    /// The maximum depth of objects and arrays in an event, its own braces included.
    pub depth_max: usize,
    /// The maximum size in bytes of all requests that are being read or wait for the journal.
    pub admitted_bytes_max: usize,
    /// The time limit for receiving a body.
    pub body_timeout: Duration,
    /// The minimum rate of a body while the server waits for it; 0 for none.
    pub body_bytes_per_second: u64,
    /// The time over which the rate of a body is measured.
    pub body_window: Duration,
    pub rates: rate::TopicRates,
}

impl Default for PublishLimits {
    fn default() -> Self {
        Self {
            request_bytes_max: 1_536_000,
            event_bytes_max: 1_049_600,
            events_max: 5_000,
            namespace_events_max: 1_000,
            // serde_json, which every later reader uses, stops at 127. Delivery adds an array, and
            // a dead letter may add an object.
            depth_max: 125,
            // Forty requests of the largest size, or a hundred thousand of half a kilobyte.
            admitted_bytes_max: 64 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            body_bytes_per_second: 1_024,
            // The third retransmission of a lost packet comes after some three seconds.
            body_window: Duration::from_secs(5),
            rates: rate::TopicRates::default(),
        }
    }
}
