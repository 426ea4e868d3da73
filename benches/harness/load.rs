//! Publishers, each on a thread with a connection of its own.
//!
//! *Closed*: each sends its next request when the last one is answered, so that the server is as
//! busy as it can be. *Open*: requests leave by a timetable, and what is measured begins at the
//! time that stands there; a server that stalls is not spared the requests that it kept from
//! leaving.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;

use super::time::{nanoseconds, now};
use crate::support::http::Stream;

pub(crate) const TYPE: &str = "Bench.Event";

/// The beginning of all subjects.
pub(crate) const SUBJECT: &str = "/bench";

/// The time of all events.
const TIME: &str = "2026-11-20T17:18:13Z";

/// The byte before the stamp of an event, which is nowhere else.
pub(crate) const MARK: u8 = b'~';

/// The digits of a stamp, and of an id.
pub(crate) const DIGITS: usize = 19;

/// The stamp of an event that is to fail.
pub(crate) const FAILS: u64 = 0;

/// The stamp of an event that is not measured; all values above it are times.
pub(crate) const PLAIN: u64 = 1;

/// Stacks are touched for real: small ones keep a thousand publishers small.
const STACK: usize = 128 * 1024;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A topic to publish to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) at: SocketAddr,
    pub(crate) path: String,
    pub(crate) key: String,
    /// The authorities that the publisher trusts, for https.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

/// How a request carries its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An array in Event Grid's schema.
    EventGrid,
    /// One CloudEvent in structured mode.
    Structured,
    /// One CloudEvent in binary mode: its attributes are headers.
    Binary,
    /// A batch of CloudEvents.
    Batch,
}

/// The form and the size of a request, and the size of its events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    /// The number of events of a request.
    pub(crate) events: usize,
    /// The length of each event, with the two bytes around it.
    pub(crate) bytes: usize,
    /// The stamp of the events; [`None`] for the time at which each was due to leave.
    pub(crate) stamp: Option<u64>,
}

impl Shape {
    pub(crate) const ONE: Self = Self {
        form: Form::EventGrid,
        events: 1,
        bytes: 512,
        stamp: Some(PLAIN),
    };

    pub(crate) const KIBIBYTE: Self = Self {
        bytes: 1024,
        ..Self::ONE
    };

    /// A hundred of 512 bytes.
    pub(crate) const HUNDRED: Self = Self {
        events: 100,
        ..Self::ONE
    };
}

/// The end of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    /// After this number of requests.
    Requests(u64),
    /// After this time, but not before one request was sent.
    For(Duration),
}

/// The result of a load.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) events: u64,
    /// The times until the responses, in nanoseconds.
    pub(crate) answers: Histogram<u64>,
}

/// Sends to all of `targets` in turn, each request as soon as the last one has its response.
pub(crate) fn closed(targets: &[Target], shape: Shape, connections: usize, amount: Amount) -> Sent {
    let begin = now();
    let taken = AtomicU64::new(0);
    run(targets, shape, connections, &|| {
        let number = taken.fetch_add(1, Ordering::Relaxed);
        let at = now();
        let more = match amount {
            Amount::Requests(requests) => number < requests,
            // The time may be over before a thread has started.
            Amount::For(time) => number == 0 || at < begin + nanoseconds(time),
        };
        more.then_some((number, at))
    })
}

/// Sends requests at a rate, to all of `targets` in turn, for a duration.
pub(crate) fn open(
    targets: &[Target],
    shape: Shape,
    connections: usize,
    rate: f64,
    time: Duration,
) -> Sent {
    let begin = now();
    let taken = AtomicU64::new(0);
    run(targets, shape, connections, &|| {
        let number = taken.fetch_add(1, Ordering::Relaxed);
        let at = begin + (number as f64 * 1e9 / rate) as u64;
        if at >= begin + nanoseconds(time) {
            return None;
        }
        thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
        Some((number, at))
    })
}

/// A histogram of nanoseconds up to some minutes.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 600_000_000_000, 3).expect("bounds of a histogram")
}

type Next<'a> = dyn Fn() -> Option<(u64, u64)> + Sync + 'a;

fn run(targets: &[Target], shape: Shape, connections: usize, next: &Next<'_>) -> Sent {
    let mut sent = Sent {
        events: 0,
        answers: histogram(),
    };
    thread::scope(|scope| {
        let publish = || publish(targets, shape, next);
        let publishers: Vec<_> = (0..connections)
            .map(|_| {
                thread::Builder::new()
                    .stack_size(STACK)
                    .spawn_scoped(scope, publish)
                    .expect("a thread")
            })
            .collect();
        for publisher in publishers {
            let one = publisher.join().expect("a publisher does not panic");
            sent.events += one.events;
            sent.answers.add(one.answers).expect("the same bounds");
        }
    });
    sent
}

fn publish(targets: &[Target], shape: Shape, next: &Next<'_>) -> Sent {
    let mut sent = Sent {
        events: 0,
        answers: histogram(),
    };
    let mut requests: Vec<Request> = targets
        .iter()
        .map(|target| Request::new(target, shape))
        .collect();
    let mut streams: Vec<(SocketAddr, Stream)> = Vec::new();
    while let Some((number, at)) = next() {
        let which = (number % targets.len() as u64) as usize;
        let Target {
            at: address, tls, ..
        } = &targets[which];
        if streams.iter().all(|(other, _)| other != address) {
            streams.push((
                *address,
                Stream::connect(*address, tls.as_ref()).expect("a server that listens"),
            ));
        }
        let (_, stream) = streams
            .iter_mut()
            .find(|(other, _)| other == address)
            .expect("it was made");
        requests[which].renew(shape, at);
        stream
            .write_all(&requests[which].bytes)
            .expect("a server that reads");
        read_answer(stream);
        sent.events += shape.events as u64;
        sent.answers.saturating_record(now().saturating_sub(at));
    }
    sent
}

/// Reads a response, which must be 200 and fit in one page.
fn read_answer(stream: &mut Stream) {
    let mut response = [0; 4096];
    let mut length = 0;
    loop {
        let read = stream
            .read(&mut response[length..])
            .expect("a server that answers");
        assert!(read > 0, "the server has closed the connection");
        length += read;
        let Some(head) = memchr::memmem::find(&response[..length], b"\r\n\r\n") else {
            continue;
        };
        if length >= head + 4 + content_length(&response[..head]) {
            break;
        }
    }
    assert!(
        response.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&response[..length])
    );
}

/// The length of the body that a head announces.
pub(crate) fn content_length(head: &[u8]) -> usize {
    let Some(at) = memchr::memmem::find(head, b"content-length: ") else {
        return 0;
    };
    let digits = head[at + 16..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
}

/// A request whose ids and stamps are written anew each time.
struct Request {
    bytes: Vec<u8>,
    ids: Vec<usize>,
    stamps: Vec<usize>,
}

impl Request {
    fn new(target: &Target, shape: Shape) -> Self {
        let body = body(shape);
        let Target { at, path, key, .. } = target;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {at}\r\naeg-sas-key: {key}\r\n{}content-length: {}\r\n\r\n",
            content_headers(shape.form),
            body.len()
        );
        let bytes = [head.as_bytes(), body.as_bytes()].concat();
        let places = |mark: &[u8]| {
            memchr::memmem::find_iter(&bytes, mark)
                .map(|at| at + mark.len())
                .collect()
        };
        let id_mark: &[u8] = match shape.form {
            Form::Binary => b"ce-id: ",
            Form::EventGrid | Form::Structured | Form::Batch => br#""id":""#,
        };
        Self {
            ids: places(id_mark),
            stamps: places(&[MARK]),
            bytes,
        }
    }

    fn renew(&mut self, shape: Shape, at: u64) {
        let first = NUMBERS.fetch_add(self.ids.len() as u64, Ordering::Relaxed);
        for (number, place) in (first..).zip(&self.ids) {
            write(&mut self.bytes[*place..][..DIGITS], number);
        }
        for place in &self.stamps {
            write(
                &mut self.bytes[*place..][..DIGITS],
                shape.stamp.unwrap_or(at),
            );
        }
    }
}

fn write(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The headers that say what the body is, and in binary mode the attributes of the event.
fn content_headers(form: Form) -> String {
    let zeros = "0".repeat(DIGITS);
    match form {
        Form::EventGrid => "content-type: application/json\r\n".to_owned(),
        Form::Structured => "content-type: application/cloudevents+json\r\n".to_owned(),
        Form::Batch => "content-type: application/cloudevents-batch+json\r\n".to_owned(),
        Form::Binary => format!(
            "content-type: application/json\r\nce-specversion: 1.0\r\nce-id: {zeros}\r\nce-source: \
             /bench\r\nce-type: {TYPE}\r\nce-subject: {SUBJECT}/0000\r\nce-time: {TIME}\r\n"
        ),
    }
}

/// A body of events that are filled up to the bytes they are to have.
pub(crate) fn body(shape: Shape) -> String {
    let zeros = "0".repeat(DIGITS);
    let mark = char::from(MARK);
    let event = |pad: &str| {
        let data = format!(r#"{{"at":"{mark}{zeros}","pad":"{pad}"}}"#);
        match shape.form {
            Form::EventGrid => format!(
                r#"{{"id":"{zeros}","subject":"{SUBJECT}/0000","eventType":"{TYPE}","eventTime":"{TIME}","dataVersion":"1","data":{data}}}"#
            ),
            Form::Structured | Form::Batch => format!(
                r#"{{"specversion":"1.0","id":"{zeros}","source":"/bench","type":"{TYPE}","subject":"{SUBJECT}/0000","time":"{TIME}","data":{data}}}"#
            ),
            Form::Binary => data,
        }
    };
    // In binary mode the headers of the attributes count.
    let around = match shape.form {
        Form::Binary => content_headers(Form::Binary).len(),
        Form::EventGrid | Form::Structured | Form::Batch => 2,
    };
    let length = shape.bytes.saturating_sub(event("").len() + around);
    let events: Vec<String> = (1..=shape.events as u64)
        .map(|number| event(&pad(length, number)))
        .collect();
    let events = events.join(",");
    match shape.form {
        Form::EventGrid | Form::Batch => format!("[{events}]"),
        Form::Structured | Form::Binary => events,
    }
}

/// Letters that do not repeat themselves: what can be pressed to nothing costs a store nothing.
pub(crate) fn pad(length: usize, mut state: u64) -> String {
    let letters = (0..length).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + ((state >> 33) % 26) as u8)
    });
    letters.collect()
}
