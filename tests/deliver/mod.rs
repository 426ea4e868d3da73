//! HTTP delivery: requests, addresses, and the results at endpoints of every kind.

mod address;
mod attacks;
mod connections;
mod failures;
mod handshake;
mod http2;
mod late;
mod lease;
mod odd;
mod request;
mod resolver;
mod signature;
mod tls;
mod tokens;
mod webhook;

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use gridhook::{
    deliver::{
        AddressRules, ClientOptions, Destination, OutgoingRequest, RequestTimeouts, TlsTrust,
        WebhookClient, resolver::NameResolver,
    },
    event::{Event, EventRanges, Schema, Seq, TextRange, Timestamp, WallTime},
    policy::outcome::RequestResult,
};
use parking_lot::Mutex;

/// An event as the journal returns it. Strings are given as in JSON.
fn event(schema: Schema, wire: &str, id: &str, data_version: &str) -> Event {
    let span = |text: &str| match wire.find(&format!("\"{text}\"")) {
        Some(place) if !text.is_empty() => TextRange {
            start: place as u32 + 1,
            len: text.len() as u32,
        },
        Some(_) | None => TextRange::default(),
    };
    let ranges = EventRanges {
        id: span(id),
        data_version: span(data_version),
        ..EventRanges::default()
    };
    let whole = TextRange {
        start: 0,
        len: wire.len() as u32,
    };
    Event::new(
        Seq(7),
        Timestamp(0),
        schema,
        Bytes::copy_from_slice(wire.as_bytes()),
        whole,
        ranges,
    )
}

/// A time limit that is not reached, even on a busy machine.
const AMPLE: RequestTimeouts = RequestTimeouts {
    response: Duration::from_secs(10),
};

/// A time limit that is reached, but long enough to get as far as the test intends.
const BRIEF: RequestTimeouts = RequestTimeouts {
    response: Duration::from_millis(500),
};

fn options() -> ClientOptions {
    static TRUST: OnceLock<TlsTrust> = OnceLock::new();
    let trust =
        TRUST.get_or_init(|| TlsTrust::load(None).expect("without a file nothing can fail"));
    ClientOptions::new(AddressRules::loopback(), trust.clone())
}

fn trusting(file: &Path) -> ClientOptions {
    ClientOptions {
        trust: TlsTrust::load(Some(file)).expect("the file is a certificate"),
        ..options()
    }
}

fn outgoing(body: &'static str) -> OutgoingRequest {
    OutgoingRequest {
        headers: vec![("content-type", "application/json".into())],
        body: Bytes::from_static(body.as_bytes()),
        ..OutgoingRequest::default()
    }
}

async fn post_to(client: &WebhookClient, url: &str, waits: RequestTimeouts) -> RequestResult {
    let destination = Destination::new(url, "sub", Schema::EventGrid, Schema::EventGrid, false)
        .expect("a good URL");
    client
        .send_within_limit(&destination, outgoing("[{}]"), &waits, WallTime(0))
        .await
}

/// Posts more than the buffers of a connection hold.
async fn post_large(url: &str, waits: RequestTimeouts) -> RequestResult {
    let client = WebhookClient::new(options());
    let destination =
        Destination::new(url, "s", Schema::EventGrid, Schema::EventGrid, true).expect("a good URL");
    let outgoing = OutgoingRequest {
        body: Bytes::from(vec![b' '; 16 << 20]),
        ..OutgoingRequest::default()
    };
    client
        .send_within_limit(&destination, outgoing, &waits, WallTime(0))
        .await
}

/// A resolver that returns the addresses of the test, by name and number of the lookup.
struct Scripted<F>(F, Mutex<usize>);

impl<F> NameResolver for Scripted<F>
where
    F: Fn(&str, usize) -> Option<io::Result<Vec<SocketAddr>>> + Send + Sync,
{
    fn look_up(
        &self,
        host: &str,
        _port: u16,
    ) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let mut lookups = self.1.lock();
        *lookups += 1;
        match (self.0)(host, *lookups) {
            Some(found) => Box::pin(std::future::ready(found)),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// The usual client, with names that `lookup` resolves; `None` is no response.
fn with_names(
    lookup: impl Fn(&str, usize) -> Option<io::Result<Vec<SocketAddr>>> + Send + Sync + 'static,
) -> ClientOptions {
    ClientOptions {
        names: Arc::new(Scripted(lookup, Mutex::new(0))),
        ..options()
    }
}

/// Waits until `done`, in small steps; `false` where it never is.
async fn eventually(done: impl Fn() -> bool) -> bool {
    for _ in 0..400 {
        if done() {
            return true;
        }
        actix_rt::time::sleep(Duration::from_millis(5)).await;
    }
    false
}
