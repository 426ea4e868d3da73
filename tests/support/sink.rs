//! A webhook that keeps a ledger: what arrived, how often, when, with which bytes. The behavior of
//! each path can be set.
//!
//! Handshakes succeed whatever the behavior of a path is, because a subscription has to exist
//! before its endpoint can fail; handshake replies are set separately.
//!
//! It runs on a thread for each connection, because a server under test opens few of them and holds
//! on to them.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use gridhook::{clock::Clock, event::Timestamp};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    endpoint::Gate,
    http::{header, read_head},
    port::ReservedPort,
};

/// The number of heads of a path that are kept.
const HEADS_KEPT: usize = 8;

/// How a path responds.
#[derive(Clone, Debug)]
pub(crate) enum Behavior {
    /// Responds with this status.
    Respond(u16),
    /// Responds with this status after a pause.
    Slow(Duration, u16),
    /// Responds with this status once the test opens the gate.
    Gated(Gate, u16),
    /// Responds with these statuses, one request after another, and then with 200.
    Statuses(VecDeque<u16>),
    /// Responds with this status and body.
    StatusAndBody(u16, &'static str),
    /// Responds to the first request with this status and `Retry-After` of this number of seconds,
    /// and then with 200.
    RetryAfter(u16, u32),
    /// Responds with 503 and `Retry-After` of this number of seconds once the test opens the gate.
    GatedRetryAfter(Gate, u32),
    /// Responds with these statuses and bodies, one request after another, and then with 200.
    StatusesAndBodies(VecDeque<(u16, &'static str)>),
    /// Closes the connection without a response.
    Dead,
    /// Never responds, until the client disconnects.
    Hang,
}

/// How a path responds to a handshake.
#[derive(Clone, Debug)]
pub(crate) enum HandshakeReply {
    /// Responds with the validation code.
    Accept,
    /// Responds with a permission for this number of requests a minute.
    AcceptRate(&'static str),
    /// Responds with 200 and without the code: the endpoint is validated later.
    Defer,
    /// Responds with this status.
    Refuse(u16),
}

/// A request on a path that is no delivery.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeRequest {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl HandshakeRequest {
    /// The path of the manual validation URL.
    pub(crate) fn validation_path(&self) -> String {
        let url = match header(&self.head, "webhook-request-callback") {
            Some(url) => url,
            None => self.body[0]["data"]["validationUrl"]
                .as_str()
                .expect("an address"),
        };
        let (_, path) = url.split_once("://").expect("a scheme");
        path[path.find('/').expect("a path")..].to_owned()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The time at which the request was read.
    pub(crate) at: Timestamp,
    /// The time of the response.
    pub(crate) answered: Timestamp,
    /// The status of the response; [`None`] if there was none.
    pub(crate) status: Option<u16>,
    /// The value of `aeg-delivery-count`.
    pub(crate) attempts: u32,
    /// The value of `aeg-redrive-job`, if the event was redriven.
    pub(crate) redrive: Option<u16>,
    /// A hash of the bytes of its `data`.
    pub(crate) data: u64,
    /// The number of events in the request.
    pub(crate) batch: u32,
    /// The value of `aeg-replay-job`, if the event was replayed.
    pub(crate) job: Option<u16>,
}

impl Arrival {
    /// Whether the endpoint responded 200.
    pub(crate) fn is_taken(&self) -> bool {
        self.status == Some(200)
    }
}

/// A hash of the bytes of a `data`.
pub(crate) fn hash(data: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

/// The arrivals on a path, by the id of the event.
pub(crate) type Ledger = HashMap<String, Vec<Arrival>>;

#[derive(Default)]
struct SinkState {
    behaviors: Mutex<HashMap<String, Behavior>>,
    ledgers: Mutex<HashMap<String, Ledger>>,
    heads: Mutex<HashMap<String, VecDeque<String>>>,
    connections: AtomicUsize,
    handshake_replies: Mutex<HashMap<String, HandshakeReply>>,
    handshakes: Mutex<HashMap<String, Vec<HandshakeRequest>>>,
    deletion_notices: Mutex<HashMap<String, Vec<HandshakeRequest>>>,
    stop: AtomicBool,
}

/// A webhook on loopback that records arrivals.
pub(crate) struct Sink {
    at: SocketAddr,
    clock: Clock,
    shared: Arc<SinkState>,
}

impl Sink {
    /// It returns 200 on every path until a test sets another behavior.
    pub(crate) fn start() -> Self {
        Self::on(ReservedPort::new())
    }

    /// Starts a webhook on this port.
    pub(crate) fn on(port: ReservedPort) -> Self {
        let listener = port.listen();
        let at = listener.local_addr().expect("a listener has an address");
        let sink = Self {
            at,
            clock: Clock::system(),
            shared: Arc::default(),
        };
        let shared = Arc::clone(&sink.shared);
        let clock = sink.clock.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&shared);
                let clock = clock.clone();
                shared.connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    // An error says that the client went away.
                    shared.serve(stream, &clock).ok();
                    shared.connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        sink
    }

    /// The address of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// Sets the behavior of a path from the next request on.
    pub(crate) fn set(&self, path: &str, behavior: Behavior) {
        self.shared
            .behaviors
            .lock()
            .insert(path.to_owned(), behavior);
    }

    /// Sets the response of a path to handshakes.
    pub(crate) fn greet(&self, path: &str, greeting: HandshakeReply) {
        self.shared
            .handshake_replies
            .lock()
            .insert(path.to_owned(), greeting);
    }

    /// The handshakes on a path so far.
    pub(crate) fn handshakes(&self, path: &str) -> Vec<HandshakeRequest> {
        self.shared
            .handshakes
            .lock()
            .get(path)
            .cloned()
            .unwrap_or_default()
    }

    /// The notices of deleted event subscriptions on a path so far.
    pub(crate) fn deletion_notices(&self, path: &str) -> Vec<HandshakeRequest> {
        self.shared
            .deletion_notices
            .lock()
            .get(path)
            .cloned()
            .unwrap_or_default()
    }

    /// Everything that arrived on a path so far.
    pub(crate) fn ledger(&self, path: &str) -> Ledger {
        self.look(path, Clone::clone)
    }

    /// The heads of the last requests with events on a path.
    pub(crate) fn heads(&self, path: &str) -> Vec<String> {
        self.shared
            .heads
            .lock()
            .get(path)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The number of events to which the endpoint responded 200 on a path, each counted once.
    pub(crate) fn taken(&self, path: &str) -> usize {
        self.look(path, |ledger| {
            ledger
                .values()
                .filter(|arrivals| arrivals.iter().any(Arrival::is_taken))
                .count()
        })
    }

    /// Something of what arrived on a path so far.
    pub(crate) fn look<T>(&self, path: &str, look: impl FnOnce(&Ledger) -> T) -> T {
        look(
            self.shared
                .ledgers
                .lock()
                .entry(path.to_owned())
                .or_default(),
        )
    }

    /// Replaces the arrivals on a path.
    pub(crate) fn reset(&self, path: &str, ledger: Ledger) {
        self.shared.ledgers.lock().insert(path.to_owned(), ledger);
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The time on the clock of the arrivals.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, so that it sees the flag.
        drop(TcpStream::connect(self.at));
    }
}

#[derive(Deserialize)]
struct Body<'a> {
    id: String,
    #[serde(borrow, alias = "data_base64")]
    data: &'a RawValue,
}

impl SinkState {
    fn serve(&self, stream: TcpStream, clock: &Clock) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        loop {
            let head = read_head(&mut stream)?;
            let number = |name| header(&head, name).and_then(|value| value.parse::<usize>().ok());
            let mut body = vec![0; number("content-length").unwrap_or(0)];
            stream.read_exact(&mut body)?;
            let at = clock.now();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            if let Some(response) = self.beside_events(&path, &head, &body) {
                stream.get_mut().write_all(response.as_bytes())?;
                continue;
            }
            let behavior = self.behavior(&path);
            let words = if let Behavior::StatusAndBody(_, words) = behavior {
                words
            } else {
                ""
            };
            let asks = match behavior {
                Behavior::RetryAfter(_, seconds) | Behavior::GatedRetryAfter(_, seconds) => {
                    Some(seconds)
                }
                _ => None,
            };
            let asks = asks
                .map(|seconds| format!("retry-after: {seconds}\r\n"))
                .unwrap_or_default();
            let status = match behavior {
                Behavior::Respond(status)
                | Behavior::StatusAndBody(status, _)
                | Behavior::RetryAfter(status, _) => Some(status),
                Behavior::Statuses(_) | Behavior::StatusesAndBodies(_) => Some(200),
                Behavior::Gated(gate, status) => {
                    gate.wait();
                    Some(status)
                }
                Behavior::GatedRetryAfter(gate, _) => {
                    gate.wait();
                    Some(503)
                }
                Behavior::Slow(wait, status) => {
                    thread::sleep(wait);
                    Some(status)
                }
                Behavior::Dead | Behavior::Hang => None,
            };
            let attempts = number("aeg-delivery-count").unwrap_or(usize::MAX);
            let arrival = Arrival {
                at,
                answered: clock.now(),
                status,
                attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                redrive: number("aeg-redrive-job").and_then(|job| u16::try_from(job).ok()),
                data: 0,
                batch: 0,
                job: number("aeg-replay-job").and_then(|job| u16::try_from(job).ok()),
            };
            self.note(&path, &body, arrival);
            let mut heads = self.heads.lock();
            let kept = heads.entry(path.clone()).or_default();
            kept.push_back(head);
            if kept.len() > HEADS_KEPT {
                kept.pop_front();
            }
            drop(heads);
            match status {
                Some(status) => {
                    let length = words.len();
                    let response = format!(
                        "HTTP/1.1 {status} Whatever\r\n{asks}content-length: \
                         {length}\r\n\r\n{words}"
                    );
                    stream.get_mut().write_all(response.as_bytes())?;
                }
                None if matches!(self.behavior(&path), Behavior::Hang) => {
                    stream.read_to_end(&mut Vec::new())?;
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    /// The response to a request that carries no events.
    fn beside_events(&self, path: &str, head: &str, body: &[u8]) -> Option<String> {
        let options = head.starts_with("OPTIONS ");
        let kind = header(head, "aeg-event-type").unwrap_or_default();
        if !options && !matches!(kind, "SubscriptionValidation" | "SubscriptionDeletion") {
            return None;
        }
        let reported = HandshakeRequest {
            head: head.to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
        };
        let received = if kind == "SubscriptionDeletion" {
            &self.deletion_notices
        } else {
            &self.handshakes
        };
        received
            .lock()
            .entry(path.to_owned())
            .or_default()
            .push(reported.clone());
        let greeting = self
            .handshake_replies
            .lock()
            .get(path)
            .cloned()
            .unwrap_or(HandshakeReply::Accept);
        let agree = |rate: &str| {
            let code = reported.body[0]["data"]["validationCode"]
                .as_str()
                .unwrap_or_default();
            let body = format!("{{\"validationResponse\":\"{code}\"}}");
            let permission = if options {
                "webhook-allowed-origin: eventgrid.azure.net\r\nwebhook-allowed-rate: "
            } else {
                "x: "
            };
            format!(
                "HTTP/1.1 200 OK\r\n{permission}{rate}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        Some(match greeting {
            HandshakeReply::Accept => agree("*"),
            HandshakeReply::AcceptRate(rate) => agree(rate),
            HandshakeReply::Defer => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
            HandshakeReply::Refuse(status) => {
                format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n")
            }
        })
    }

    /// The behavior for this request.
    fn behavior(&self, path: &str) -> Behavior {
        let mut behaviors = self.behaviors.lock();
        match behaviors.get_mut(path) {
            Some(Behavior::Statuses(statuses)) => {
                Behavior::Respond(statuses.pop_front().unwrap_or(200))
            }
            Some(Behavior::StatusesAndBodies(script)) => {
                let (status, words) = script.pop_front().unwrap_or((200, ""));
                Behavior::StatusAndBody(status, words)
            }
            Some(behavior) if matches!(behavior, Behavior::RetryAfter(..)) => {
                std::mem::replace(behavior, Behavior::Respond(200))
            }
            Some(behavior) => behavior.clone(),
            None => Behavior::Respond(200),
        }
    }

    fn note(&self, path: &str, body: &[u8], arrival: Arrival) {
        let events: Vec<Body<'_>> = if body.trim_ascii_start().starts_with(b"[") {
            serde_json::from_slice(body).expect("what arrives is a batch")
        } else {
            vec![serde_json::from_slice(body).expect("what arrives is an event")]
        };
        let batch = u32::try_from(events.len()).expect("a batch is counted");
        let mut ledgers = self.ledgers.lock();
        let ledger = ledgers.entry(path.to_owned()).or_default();
        for Body { id, data } in events {
            let data = hash(data.get());
            ledger.entry(id).or_default().push(Arrival {
                data,
                batch,
                ..arrival
            });
        }
    }
}
