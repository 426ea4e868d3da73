//! The core of a subscription: its tables by scripts, its promises by a model.

mod backlog;
mod batches;
mod caller;
mod concurrency;
mod disk;
mod doubt;
mod driver;
mod editions;
mod endings;
mod expiry;
mod explain;
mod facts;
mod filter;
mod late;
mod lease;
mod model;
mod pace;
mod place;
mod probation;
mod promises;
mod properties;
mod reach;
mod redrive;
mod refused;
mod replay;
mod sabotage;
mod schedule;
mod story;
mod unreadable;
mod validation;
mod window;

use std::{sync::Arc, time::Duration};

use bytes::BufMut;
use gridhook::{
    config::Editions,
    event::{Schema, Span, Spans, Timestamp},
    journal::chunk::{Draft, Sealed, Written},
    policy::{
        Settings,
        batch::Limits,
        edition::{Edition, Kind},
    },
};

/// The edition that the program has.
fn current() -> Arc<Edition> {
    Editions::load(None, None).expect("the program's own editions are sound").get("current").expect("it has this one")
}

/// The same, but no share of failures suspends either.
fn without_probation() -> Arc<Edition> {
    let mut edition = (*current()).clone();
    edition.probation.requests_min = u32::MAX;
    edition.into()
}

/// One event after another, attempts as many as one likes, no probation: a test says what it is about.
fn plain() -> Settings {
    Settings {
        version: 1,
        edition: current(),
        destination: Kind::Webhook,
        attempts_max: 1000,
        since: Timestamp::default(),
        time_to_live: Duration::from_secs(24 * 60 * 60),
        batch: Limits { events_max: 1, bytes_preferred: 64 * 1024, schema: Schema::EventGrid },
        grouping: Arc::new([]),
        concurrency_max: 1,
        rate_max: None,
        backlog_min: 256,
        suspend_after: u32::MAX,
        reconnect_wait: Duration::ZERO,
        flight_wait: Duration::from_secs(200),
        dead_letter: true,
        dead_letter_in_probation: false,
        hold_when_gone: false,
        pull: None,
    }
}

/// Events with these subjects and so many more bytes.
pub(crate) fn sealed(events: &[(&str, usize)]) -> Vec<Sealed> {
    let mut draft = Draft::new(Schema::EventGrid);
    for (subject, bytes) in events {
        draft.push(|out| {
            let start = out.len() as u32;
            out.put_slice(subject.as_bytes());
            out.put_bytes(b'.', *bytes);
            let spans = Spans { subject: Span { start, len: subject.len() as u32 }, ..Spans::default() };
            Written { wire_end: out.len(), spans }
        });
    }
    draft.into_chunks()
}
