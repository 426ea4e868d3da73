//! All tests, in one binary, so that RocksDB is linked once.
#![expect(
    clippy::disallowed_methods,
    reason = "a test measures real processes and sockets by the real clock"
)]

mod abuse;
mod admin;
mod architecture;
mod bench;
mod cli;
mod client;
mod clock;
mod cluster;
mod commands;
mod compute;
mod config;
mod conformance;
mod console;
mod dashboard;
mod dead_letter;
mod declared;
mod deliver;
mod destinations;
mod edition;
mod escape;
mod event_feed;
mod fanout;
mod fuzz;
#[path = "../benches/harness/mod.rs"]
mod harness;
mod journal;
mod language;
mod licences;
mod messages;
mod metrics;
mod packaging;
mod publish;
mod pull;
mod read_budget;
mod readme;
mod recent_events;
mod sdk;
mod server;
mod simulate;
mod slice;
mod spec;
mod supervision;
mod support;
mod telemetry;
mod template;
