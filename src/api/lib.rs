//! The JSON of the operators' API: one set of types for the server that writes it, the commands
//! that read it, and the OpenAPI document that describes it.
//!
//! Every type is read and written, except requests and responses that contain an event byte for
//! byte. A response with figures that is newer than the commands has fields that they ignore; a
//! field that is gone is an error, not an empty column.
//!
//! These are types only: `admin` makes them from its state, `cli` formats them. Values that a
//! record has as ARM has them, such as `sku` or an IP rule, are the types of the record.
//!
//! A resource is one type in requests and responses: a request may leave out what has a default, and
//! what only the server sets is [`ReadOnly`](resource::ReadOnly). An unknown key is refused in
//! either: in a request it would be lost, and commands that are older than the server then say that
//! the versions differ.

#![expect(
    missing_docs,
    reason = "admin::openapi describes the fields, most of them by a name with one meaning"
)]

pub mod account;
pub mod audit;
pub mod chaos;
pub mod clock;
pub mod cluster;
pub mod dead_letters;
pub mod delivery_request;
pub mod deployment;
pub mod duration;
pub mod editions;
pub mod events;
pub mod explain;
pub mod filter_test;
pub mod health;
pub mod history;
pub mod jobs;
pub mod ledger;
pub mod namespace;
pub mod provider;
pub mod replay;
pub mod resource;
pub mod retry;
pub mod search;
pub mod server;
pub mod session;
pub mod status;
pub mod store;
pub mod subscription;
pub mod supervision;
pub mod tail;
pub mod token;
mod tolerance;
pub mod top;
pub mod topic;
pub mod trace;
pub mod transform_test;
pub mod what_if;
