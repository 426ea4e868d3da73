//! The control plane's state: which namespaces, topics and event subscriptions exist, and what
//! operators set on them.
//!
//! - [`registry`] changes the records and looks up topics and subscriptions.
//! - [`validation`] runs the validation handshake before an endpoint receives events.
//! - [`catalogue`] checks events against the schemas of their types.
//! - [`filter_version`] reads the stored versions of filters.
//! - [`filter_versions`] keeps earlier filters of a subscription as long as the ledger may refer to
//!   them.
//! - [`audit`] records what operators do.
//! - [`system_events`] takes events about the server itself to its system topic.
//! - [`definitions`] reads what exists in a cluster with several shards.
//! - [`deployments`] stores the deployments of templates, and has a list of those that run.
//! - [`resource_groups`] stores the resource groups that were created by themselves.
//! - [`sessions`] are those of signed-in browsers.
//! - [`tokens`] creates, finds and revokes named tokens.
//! - [`expiry`] deletes subscriptions at their `expirationTimeUtc`.

pub mod audit;
pub mod catalogue;
pub mod definitions;
pub mod deployments;
pub mod expiry;
pub mod filter_version;
pub mod filter_versions;

pub mod registry;
pub mod resource_groups;
pub mod sessions;
pub mod system_events;
pub mod tokens;
pub mod validation;
