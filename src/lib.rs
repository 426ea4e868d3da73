//! gridhook: a self-hosted Azure Event Grid in one binary.
//!
//! This page is the map. The README has the quick start, what is guaranteed, and why it is built like this.
//!
//! # The way of an event
//!
//! ```text
//! publisher ──▶ publish ──▶ journal ──▶ topic ──▶ subscription ──▶ deliver ──▶ endpoint
//!                              │                    ▲    │            │
//!                              ▼                    │    ▼            ▼
//!                        200, once synced           └─ policy ◀─── outcome
//! ```
//!
//! 1. [`publish`] takes a permit for the bytes, reads the body, checks it and stamps each event. What comes out is the
//!    event's wire form ([`event::Event`]): its `data` is never serialised again.
//! 2. [`journal`] appends the request to the topic's log: one thread, one batch and one sync for everybody who waits
//!    ([`Journal`](journal::Journal)). Only then is 200 answered.
//! 3. [`topic`] hears of the append, matches each event once against all filters ([`topic::index`]), keeps the newest in a
//!    bounded tail ([`subscription::Tail`]) and wakes the subscriptions that something is for. A wake is a hint.
//! 4. [`subscription`] is an actor around a pure machine: it reads from its cursor, the tail or the log, notes what leaves
//!    as a flight in its [`Slot`](subscription::Slot), and hands what comes back to the machine.
//! 5. [`policy`] is that machine: [`Subscription::absorb`](policy::Subscription::absorb) says what is sent
//!    ([`policy::batch`]), tried again ([`policy::retry`]), held back ([`policy::endpoint`]) or given up. Time and chance
//!    are arguments.
//! 6. [`deliver`] makes the request and turns what happens into an [`Outcome`](policy::outcome::Outcome).
//! 7. What follows from the outcome is one write of the journal: cursor, owed, due, dead, ledger
//!    ([`journal::store::Family`]).
//! 8. What was given up waits for [`dead_letter`], which writes it to files and forgets it only then.
//!
//! # Beside the way
//!
//! - [`server`] wires all of it, and knows the order of starting and stopping.
//! - [`topic::registry`] is what there is; [`admin`] changes it and tells of it.
//! - [`subscription::greeter`] asks an endpoint before it is called; what waits for its word is a [`topic::proposal`].
//! - [`pull`] is where clients fetch what is not sent to them: the same machine, with a lease for each attempt.
//! - [`topic::supervise`] builds a fresh actor where one died; [`chaos`] is how one is killed on purpose.
//! - [`declared`] is what a file says is to be there; [`admin`] makes it so at the start, and `gridhook apply` at any time.
//! - [`config`] is what the operator wrote, checked; [`policy::edition`] has the tables of the policy, which are data.
//! - [`simulate`] drives the policy with thousands of endpoints in virtual time, for whoever tunes an edition.
//! - [`clock`] is the only reader of time; [`telemetry`] sets the log up, and tells traces; [`cli`] has the commands.
//! - [`escape`] makes text from outside safe to print, for the commands, the log and lines of JSON.
//!
//! Who may import whom is a table, and a test checks it. The short of it: `policy` knows nothing but events, `journal`
//! writes the policy's words, only `journal` knows RocksDB, only `deliver` and `cli` call anybody, `server` the issuer
//! of access tokens for its keys, and `telemetry` a collector of traces.

pub mod admin;
pub mod chaos;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dead_letter;
pub mod declared;
pub mod deliver;
pub mod escape;
pub mod event;
pub mod journal;
pub mod metrics;
pub mod policy;
pub mod publish;
pub mod pull;
pub mod server;
pub mod simulate;
pub mod subscription;
pub mod telemetry;
pub mod topic;
