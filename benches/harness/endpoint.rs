//! A webhook that does the minimum: it counts events and records how long each was on its way.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::{
    load::{DIGITS, FAILS, MARK, PLAIN, content_length, histogram},
    time::{nanoseconds, now},
};
use crate::support::{edition::PATIENT_STEP, server::wait_for};

/// A path that always answers 503.
pub(crate) const DOWN: &str = "/down";

/// A path where an event with a time fails first and is taken when it comes again, and one that
/// fails always does.
pub(crate) const RETRIED: &str = "/retried";

/// The room for what is read at once.
const PIECE: usize = 4096;

/// Endpoints that have the same part of an address.
const BLOCK: usize = 250;

/// The longest time for published events to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Shared {
    events: AtomicU64,
    requests: AtomicU64,
    last: AtomicU64,
    connections: AtomicU64,
    seen: Mutex<Seen>,
}

struct Seen {
    /// Nanoseconds from an event's time until it was here.
    ways: Histogram<u64>,
    /// The times of the failed responses to events, by the stamps of the events.
    failed: HashMap<u64, u64>,
    /// Nanoseconds between the time that these were due and that of their return.
    late: Histogram<u64>,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            ways: histogram(),
            failed: HashMap::new(),
            late: histogram(),
        }
    }
}

/// A webhook on loopback that counts events.
pub(crate) struct Endpoint {
    at: SocketAddr,
    secure: bool,
    shared: Arc<Shared>,
}

/// The URL of one of many endpoints that share a listener: each has an address of loopback of its
/// own.
pub(crate) fn distinct_url(port: u16, number: usize) -> String {
    format!(
        "http://127.1.{}.{}:{port}/",
        number / BLOCK,
        number % BLOCK + 1
    )
}

impl Endpoint {
    /// Starts an endpoint on one thread, which ends with the process.
    pub(crate) fn start() -> Self {
        Self::listen("127.0.0.1:0", None)
    }

    /// Starts an endpoint with https.
    pub(crate) fn start_secure(tls: Arc<rustls::ServerConfig>) -> Self {
        Self::listen("127.0.0.1:0", Some(tls.into()))
    }

    /// Starts an endpoint at all addresses of loopback. It closes connections from elsewhere.
    pub(crate) fn start_everywhere() -> Self {
        Self::listen("0.0.0.0:0", None)
    }

    fn listen(at: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = std::net::TcpListener::bind(at).expect("loopback has a free port");
        listener
            .set_nonblocking(true)
            .expect("an option of a socket");
        let at = listener.local_addr().expect("a listener has an address");
        let secure = tls.is_some();
        let shared: Arc<Shared> = Arc::default();
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, accept(listener, tls, &serving));
        });
        Self { at, secure, shared }
    }

    /// The address of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!(
            "{}://{}{path}",
            if self.secure { "https" } else { "http" },
            self.at
        )
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.at
    }

    pub(crate) fn port(&self) -> u16 {
        self.at.port()
    }

    /// The number of events to which the endpoint responded 200.
    pub(crate) fn events(&self) -> u64 {
        self.shared.events.load(Ordering::Relaxed)
    }

    /// The number of requests to which the endpoint responded 200.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// The time at which the last request arrived, in nanoseconds of [`now`].
    pub(crate) fn last(&self) -> u64 {
        self.shared.last.load(Ordering::Relaxed)
    }

    /// Waits until this number of events were answered with 200.
    pub(crate) fn wait_for(&self, events: u64) {
        wait_for(&format!("{events} events to arrive"), ARRIVAL_MAX, || {
            self.events() >= events
        });
    }

    /// The delays of events since the last call, and how late events arrived that had failed.
    pub(crate) fn take(&self) -> (Histogram<u64>, Histogram<u64>) {
        let mut seen = self.shared.seen();
        (
            std::mem::replace(&mut seen.ways, histogram()),
            std::mem::replace(&mut seen.late, histogram()),
        )
    }
}

async fn accept(listener: std::net::TcpListener, tls: Option<TlsAcceptor>, shared: &Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        // What cannot be accepted will be tried again by its client.
        let Ok((stream, from)) = listener.accept().await else {
            continue;
        };
        if !from.ip().is_loopback() {
            continue;
        }
        stream.set_nodelay(true).expect("an option of a socket");
        let shared = Arc::clone(shared);
        let tls = tls.clone();
        tokio::task::spawn_local(async move {
            shared.connections.fetch_add(1, Ordering::Relaxed);
            // An error says that the client went away.
            let served = match tls {
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => serve(stream, &shared).await,
                    Err(error) => Err(error),
                },
                None => serve(stream, &shared).await,
            };
            served.ok();
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(PIECE);
    loop {
        // A long body is read in pieces that grow with it.
        buffer.reserve(PIECE);
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        while let Some(head) = memchr::memmem::find(&buffer, b"\r\n\r\n") {
            let end = head + 4 + content_length(&buffer[..head]);
            if buffer.len() < end {
                break;
            }
            let status = shared.note(&buffer[..head], &buffer[head + 4..end]);
            buffer.drain(..end);
            let response = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(response.as_bytes()).await?;
            stream.flush().await?;
        }
    }
}

impl Shared {
    fn note(&self, head: &[u8], body: &[u8]) -> u16 {
        let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        if path == DOWN.as_bytes() {
            return 503;
        }
        let at = now();
        let mut events = 0;
        let first_time = memchr::memmem::find(head, b"aeg-delivery-count: 0\r\n").is_some();
        let mut seen = self.seen();
        for place in memchr::memchr_iter(MARK, body) {
            let digits = body[place + 1..].iter().take(DIGITS);
            let stamp = digits.fold(0, |stamp, digit| stamp * 10 + u64::from(digit - b'0'));
            match (stamp, path == RETRIED.as_bytes()) {
                (FAILS, true) => return 503,
                (FAILS | PLAIN, _) => {}
                (stamp, true) if first_time => {
                    seen.failed.insert(stamp, at);
                    return 500;
                }
                (stamp, true) => {
                    let due = seen
                        .failed
                        .remove(&stamp)
                        .map(|failed| failed + nanoseconds(PATIENT_STEP));
                    seen.late
                        .saturating_record(at.saturating_sub(due.unwrap_or(at)));
                }
                (stamp, false) => seen.ways.saturating_record(at.saturating_sub(stamp)),
            }
            events += 1;
        }
        drop(seen);
        self.events.fetch_add(events, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.last.store(at, Ordering::Relaxed);
        200
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}
