//! Goes out: one HTTP request for a batch of events, and what its answer means.
//!
//! | file | what is in it |
//! | --- | --- |
//! | [`request`] | the request's headers and body, from events; pure |
//! | [`convert`] | an event in another schema than it was published in; pure |
//! | [`address`] | which addresses may be called; pure |
//! | [`handshake`] | whether an endpoint may be called, and that a subscription is gone |
//! | [`signature`] | by which a receiver knows who sent |
//! | [`trust`] | whose certificates are believed, and which are shown |
//! | [`names`] | the addresses of names, with a cache |
//! | [`dial`] | the connections below awc, opened by us |
//! | [`socket`] | and watched |
//! | [`sockets`] | how many descriptors all of this may use |
//! | [`call`] | how long a request may take, and what is heard of it after that |
//! | [`webhook`] | awc, and how an answer becomes an [`Answer`](crate::policy::outcome::RequestResult) |
//! | `failure` | how the lack of one does |
//!
//! Invariants: a request ends with exactly one answer, within its wait; a failure is told apart (name, connection, TLS,
//! silence, status) in words for people; nothing here knows a journal, a topic or a subscription, so nothing here retries
//! but for the one case that is no attempt at all.

pub mod address;
pub mod call;
pub mod convert;
pub mod dial;
mod failure;
pub mod handshake;
pub mod names;
pub mod request;
pub mod signature;
pub mod socket;
pub mod sockets;
pub mod trust;
pub mod webhook;

pub use address::AddressRules;
pub use call::{LateRequest, RequestInFlight};
pub use request::{Destination, OutgoingRequest, RequestHeader, build};
pub use sockets::Sockets;
pub use trust::{ClientCertificates, TlsTrust};
pub use webhook::{ClientOptions, RequestTimeouts, WebhookClient};
