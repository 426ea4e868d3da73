//! Fanned out: a topic, its actor, and the subscriptions that the actor keeps alive.
//!
//! A domain is a topic in all of this: one log and one actor, whose events each say which of the domain's own topics they
//! are for, and whose subscriptions ask for one of these or for all. A topic of a namespace is one too; the [`namespace`]
//! itself is a name, its keys, and who may come from where.
//!
//! [`registry::Registry`] is what the control plane changes and what everybody looks topics up in; a [`registry::Topic`]
//! outlives the lives of its actor. The actor hears of appends from the journal, matches each event once ([`index`]) and
//! wakes the subscriptions that it is for; the [`actor_factory`] builds it, and them, again where they died. Publishing does not
//! need it: killing it delays deliveries and fails no publish.

mod actor;
pub mod actor_factory;
pub mod azure_properties;
pub mod expiry;
pub mod index;
pub mod ingress;
pub mod meter;
pub mod namespace;
pub mod proposal;
pub mod record;
pub mod registry;
pub mod supervision;
pub mod versions;

pub use actor::{LOOK, TopicActor};
