//! Comes in: a publisher's request becomes events in a topic's log, or is refused as a whole.
//!
//! - [`http`] has the paths and the answers, [`namespace`] those of namespaces.
//! - [`publisher`] finds the topic, asks [`auth`] whether the publisher may and [`rate`] whether the topic takes more, takes
//!   [`in_flight_bytes`] for the bytes *before* it reads them, hands the body to [`schema`] and what comes back to the journal. 200 is
//!   answered when the journal says that the events are durable, and never before.
//! - [`schema`] turns bytes into a draft of log records, or into a [`Refusal`]; it reads no clock and calls nobody.
//! - `traced` tells what a request's trace is, where traces are recorded.
//! - `republish` reads one event that comes back, as its topic would.
//! - A [`Refusal`] is everything a publisher can be told, in Event Grid's own words where these are known.
//!
//! A request is taken or refused as a whole: the draft is handed on only when its last event was read.
//!
//! Absent on purpose: actors. The journal assigns the places in the log, so a topic whose actor is down still takes
//! events.

use std::time::Duration;

pub mod auth;
pub mod http;
pub mod in_flight_bytes;
pub mod namespace;
pub mod publisher;
pub mod rate;
pub mod refusal;
mod republish;
pub mod schema;
mod traced;

pub use refusal::Refusal;
pub use republish::again;

/// What one request may cost. The defaults are Azure's for requests and events.
#[derive(Clone, Copy, Debug)]
pub struct PublishLimits {
    /// Bytes of a request's body.
    pub request_bytes_max: usize,
    /// Bytes of one event, as it was sent.
    pub event_bytes_max: usize,
    /// Events of one request.
    pub events_max: usize,
    /// The same in a namespace.
    pub namespace_events_max: usize,
    /// Levels of objects and arrays in one event, its own braces counted.
    pub depth_max: usize,
    /// Bytes of all requests that are read or wait for the journal at the same time.
    pub admitted_bytes_max: usize,
    /// How long a publisher may take to send its body.
    pub body_wait: Duration,
    /// The least that a body must bring while it is waited for; 0 for no bound.
    pub body_bytes_per_second: u64,
    /// Over how long that is counted.
    pub body_window: Duration,
    /// What a topic takes in a second.
    pub rates: rate::TopicRates,
}

impl Default for PublishLimits {
    fn default() -> Self {
        Self {
            request_bytes_max: 1_536_000,
            event_bytes_max: 1_049_600,
            events_max: 5_000,
            namespace_events_max: 1_000,
            // serde_json, which every later reader uses, stops at 127. An event is delivered in an array, and a dead
            // letter may have one more object around it.
            depth_max: 125,
            // Forty requests of the largest size, or a hundred thousand of half a kilobyte.
            admitted_bytes_max: 64 * 1024 * 1024,
            body_wait: Duration::from_secs(30),
            body_bytes_per_second: 1_024,
            // A lost packet is sent again for the third time after some three seconds.
            body_window: Duration::from_secs(5),
            rates: rate::TopicRates::default(),
        }
    }
}
