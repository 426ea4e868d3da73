//! `gridhook publish`: events from a file or from standard input, sent in batches.
//!
//! One request is in flight at a time, so what was published is always a prefix of the input, and the message of a
//! failure says how long it is. A server that says 429 or 503 is asked again when it says so; every other failure ends
//! the run, because a second try of a request whose fate is unknown could publish it twice.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use awc::{
    Client, ClientResponse,
    http::{StatusCode, header},
};
use bytesize::ByteSize;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use crate::{
    cli::{
        batches::{self, Batch, Form, Limits},
        web,
    },
    clock::Clock,
    event::Timestamp,
};

/// The flags of `publish`.
#[derive(Clone, Debug, clap::Args)]
pub struct Publish {
    /// The topic's endpoint, as http://127.0.0.1:8080/topics/orders/api/events
    #[arg(long)]
    url: String,
    /// One of the topic's access keys
    #[arg(long)]
    key: String,
    /// The events are CloudEvents 1.0
    #[arg(long)]
    cloud_events: bool,
    /// The input has dead letters: their events are published again, to every subscription of the topic
    #[arg(long)]
    dead_letters: bool,
    /// The topic has a custom schema: of a dead letter its data is the event
    #[arg(long, requires = "dead_letters", conflicts_with = "cloud_events")]
    custom: bool,
    /// The most events in one request
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batch_events: u32,
    /// The most bytes in one request; an event that has more goes alone
    #[arg(long, value_name = "SIZE", default_value = "1 MiB")]
    batch_bytes: ByteSize,
    /// A JSON array, a JSON object, or objects one after another (JSON lines); - is standard input
    #[arg(default_value = STANDARD_INPUT)]
    file: PathBuf,
}

const STANDARD_INPUT: &str = "-";

/// Not everything was published. What was is a prefix of the input.
#[derive(Debug, thiserror::Error)]
#[error("{what} ({} published before)", counted(*events, "event"))]
pub struct Error {
    what: What,
    /// How many events were published.
    pub events: u64,
}

#[derive(Debug, thiserror::Error)]
enum What {
    #[error("{input}: {error}")]
    Input { input: String, error: batches::Error },
    #[error("{url}: {error}")]
    Send { url: String, error: String },
    #[error("refused with {status}: {reason}")]
    Refused { status: StatusCode, reason: String },
    #[error("the server is busy: {status}, asked {TRIES} times")]
    Busy { status: StatusCode },
}

/// 10 tries: more than a minute of a busy server, where it does not say how long to wait.
const TRIES: u32 = 10;

/// 64 KiB: more than any error of the server has.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// What was published.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Events.
    pub events: u64,
    /// Requests.
    pub requests: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "published {} in {}", counted(self.events, "event"), counted(self.requests, "request"))
    }
}

fn counted(number: u64, of: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {of}{plural}")
}

impl Publish {
    /// Publishes everything, and says how much that was.
    pub async fn run(self, clock: Clock) -> Result<Done, Error> {
        let mut done = Done::default();
        self.publish(&clock, &mut done).await.map_err(|what| Error { what, events: done.events })?;
        Ok(done)
    }

    async fn publish(&self, clock: &Clock, done: &mut Done) -> Result<(), What> {
        let input = |error: io::Error| What::Input { input: self.input(), error: error.into() };
        let (reader, length) = open(&self.file).map_err(input)?;
        let read = Arc::new(AtomicU64::new(0));
        let reader = Counted { reader, read: read.clone() };
        let limits = Limits { events: self.batch_events as usize, bytes: self.batch_bytes.as_u64() as usize };
        let form = match (self.dead_letters, self.custom) {
            (false, _) => Form::Events,
            (true, false) => Form::DeadLetters,
            (true, true) => Form::CustomDeadLetters,
        };
        let (send, mut batches) = mpsc::channel(2);
        // A thread of its own, which nobody waits for: a read of a terminal may last for ever.
        std::thread::spawn(move || {
            let read = batches::read(reader, form, limits, |batch| send.blocking_send(Ok(batch)).is_ok());
            // An error that nobody asks for any more is none.
            read.or_else(|error| send.blocking_send(Err(error))).ok();
        });

        let client = web::client();
        let progress = Progress::new(clock.now(), length);
        while let Some(batch) = batches.recv().await {
            let batch = batch.map_err(|error| What::Input { input: self.input(), error })?;
            self.send(&client, &batch).await?;
            done.events += batch.events as u64;
            done.requests += 1;
            progress.show(clock.now(), read.load(Ordering::Relaxed), done);
        }
        progress.bar.finish_and_clear();
        Ok(())
    }

    fn input(&self) -> String {
        if self.file == Path::new(STANDARD_INPUT) {
            return "standard input".to_owned();
        }
        self.file.display().to_string()
    }

    /// Sends one batch, again and again while the server is busy.
    async fn send(&self, client: &Client, batch: &Batch) -> Result<(), What> {
        let content_type = match self.cloud_events {
            true => "application/cloudevents-batch+json; charset=utf-8",
            false => "application/json; charset=utf-8",
        };
        let mut tries = 0;
        loop {
            let request = client
                .post(&self.url)
                .insert_header((header::CONTENT_TYPE, content_type))
                .insert_header(("aeg-sas-key", self.key.as_str()));
            let sent = request.send_body(batch.body.clone()).await;
            let mut response = sent.map_err(|error| What::Send { url: self.url.clone(), error: error.to_string() })?;
            let status = response.status();
            if status.is_success() {
                // Read to the end, so that the connection can be used again.
                response.body().limit(ERROR_BYTES_MAX).await.ok();
                return Ok(());
            }
            if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                let body = response.body().limit(ERROR_BYTES_MAX).await.unwrap_or_default();
                return Err(What::Refused { status, reason: web::reason(&body) });
            }
            tries += 1;
            if tries == TRIES {
                return Err(What::Busy { status });
            }
            actix_rt::time::sleep(wait(&response, tries)).await;
        }
    }
}

/// How long a busy server wants to be left alone; where it does not say, 1 s, 2 s, 4 s … up to 16 s.
fn wait<S>(response: &ClientResponse<S>, tries: u32) -> Duration {
    let said = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(said.unwrap_or_else(|| 1 << (tries - 1).min(4)))
}

fn open(path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if path == Path::new(STANDARD_INPUT) {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok((Box::new(file), Some(length)))
}

/// Counts what is read.
struct Counted<R> {
    reader: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(into)?;
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A bar on standard error, once the input takes longer than a second.
struct Progress {
    bar: ProgressBar,
    from: Timestamp,
}

impl Progress {
    fn new(now: Timestamp, length: Option<u64>) -> Self {
        let (bar, template) = match length {
            Some(length) => (ProgressBar::new(length), "{bar:40} {bytes}/{total_bytes}, {msg}, {eta} left"),
            None => (ProgressBar::no_length(), "{spinner} {bytes}, {msg}"),
        };
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
        Self { bar, from: now }
    }

    fn show(&self, now: Timestamp, bytes: u64, done: &Done) {
        if self.bar.is_hidden() && now.since(self.from) >= Duration::from_secs(1) {
            // It stays hidden where standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(bytes);
        self.bar.set_message(counted(done.events, "event"));
    }
}
