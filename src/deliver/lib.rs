//! Delivery: one request for a batch of events, and the meaning of its response.
//!
//! | file | content |
//! | --- | --- |
//! | [`request`] | headers and body of a request, built from events; pure |
//! | [`convert`] | converts an event to another schema; pure |
//! | [`address`] | addresses that may be called; pure |
//! | [`handshake`] | endpoint validation and deletion notices |
//! | [`identity`] | access tokens for endpoints |
//! | [`assertion`] | the signed assertion for which an issuer gives tokens |
//! | [`signature`] | signatures of requests |
//! | [`trust`] | trusted authorities and client certificates |
//! | [`authorities`] | verifies certificates by authorities that can be replaced |
//! | [`watched_files`] | files that are read again |
//! | [`resolver`] | name resolution with a cache |
//! | [`dial`] | opens connections |
//! | [`socket`] | monitors them |
//! | `exchange` | sends requests over them, below awc |
//! | [`response_head`] | reads the heads of responses, also malformed ones |
//! | [`sockets`] | budget of file descriptors |
//! | [`bodies`] | budget of request bodies in flight |
//! | [`call`] | time limits of a request, and late responses |
//! | [`sender`] | the interface of all destinations, and the sender by HTTP |
//! | [`resource`] | destinations other than webhooks, a file for each kind |
//! | [`clients`] | the HTTP clients of an arbiter |
//! | [`webhook`] | awc, and how a response becomes a [`RequestResult`](gridhook_policy::outcome::RequestResult) |
//! | `failure` | how a failure does |
//!
//! Invariants: a request ends with exactly one result, within its time limit. A failure names its
//! cause (name, connection, TLS, timeout, status). This module knows no journal, topic or
//! subscription, and does not retry, except for a request on a stale connection, which is not an
//! attempt.

pub mod address;
pub mod assertion;
pub mod authorities;
pub mod bodies;
pub mod call;
pub mod clients;
pub mod convert;
pub mod dial;
pub mod error;
mod exchange;
mod failure;
pub mod handshake;
pub mod identity;
pub mod proxy;
pub mod request;
pub mod resolver;
pub mod resource;
pub mod response;
pub mod response_head;
pub mod sender;
mod shown_head;
pub mod signature;
pub mod socket;
pub mod sockets;
pub mod test_endpoint;
pub mod trust;
pub mod watched_files;
pub mod webhook;

pub use address::AddressRules;
pub use authorities::Authorities;
pub use call::{LateRequest, RequestInFlight};
pub use request::{Destination, OutgoingRequest, RequestHeader, build};
pub use sender::{Batch, HttpSender, HttpTarget, Sender, Sent, ShownRequest, WebhookEncoding};
pub use sockets::Sockets;
pub use trust::{ClientCertificates, MinimumTlsVersion, TlsTrust};
pub use webhook::{ClientOptions, RequestTimeouts, WebhookClient};
