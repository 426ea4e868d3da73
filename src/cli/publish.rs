//! `gridhook publish`: events from a file or from standard input, sent in batches.
//!
//! One request is in flight at a time, so what was published is always a prefix of the input, and the message of a
//! failure says how long it is. A server that says 429 or 503 is asked again when it says so; every other failure ends
//! the run, because a second try of a request whose fate is unknown could publish it twice.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
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
use serde_json::json;
use tokio::sync::mpsc;
use url::Url;

use crate::{
    cli::{
        batches::{self, Batch, InputForm, RequestLimits},
        client::{self, OutputArgs, OutputFormat, ResourceName, ServerArgs, ServerClient, secret, secret_in, variable},
        http, print, suggestion,
    },
    clock::Clock,
    event::Timestamp,
};

/// The flags of `publish`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Without a key the operator's token is shown, which publishes to every topic. An access key is read from a file
or from the variable GRIDHOOK_KEY, never from the command line, where other users of the machine see it.

Examples:
  gridhook publish orders events.json
  gridhook publish namespaces/plant/topics/heat < events.jsonl
  gridhook publish https://events.example.com/topics/orders/api/events events.json --key-file orders.key
  gridhook publish orders --dead-letters data/dead-letters/FILE"
)]
pub struct Publish {
    /// The topic: NAME, domains/NAME, namespaces/NAME/topics/NAME or a resource id; or the URL that its events are sent to
    topic: PublishTarget,
    /// A JSON array, a JSON object, or objects one after another (JSON lines); - is standard input
    #[arg(default_value = STANDARD_INPUT)]
    file: PathBuf,
    /// A file with one of the topic's access keys [default: GRIDHOOK_KEY, or the operator's token]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The events are CloudEvents 1.0 [default: as the topic's input schema says]
    #[arg(long)]
    cloud_events: bool,
    /// The input has dead letters: their events are published again, to every subscription of the topic
    #[arg(long)]
    dead_letters: bool,
    /// Maximum events in one request
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batch_events: u32,
    /// Maximum bytes in one request; an event that has more goes alone
    #[arg(long, value_name = "SIZE", default_value = "1 MiB")]
    batch_bytes: ByteSize,
    #[command(flatten)]
    control: ServerArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// Where events are published to, as it is typed.
#[derive(Clone, Debug)]
enum PublishTarget {
    Resource(ResourceName),
    Url(Url),
}

impl FromStr for PublishTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return Url::parse(text).map(Self::Url).map_err(|error| format!("{error}; allowed is a whole URL"));
        }
        text.parse().map(Self::Resource)
    }
}

/// Where events are published to, and what is shown there.
struct Destination {
    client: Client,
    url: String,
    header: (&'static str, String),
    is_cloud_events: bool,
    is_custom: bool,
    /// Who says which names are like the one that was typed.
    asked: Option<(ServerClient, String)>,
}

const STANDARD_INPUT: &str = "-";

/// Not everything was published. What was is a prefix of the input.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", before(what, *events))]
pub struct PublishError {
    what: PublishSource,
    /// How many events were published.
    pub events: u64,
}

#[derive(Debug, thiserror::Error)]
enum PublishSource {
    #[error(transparent)]
    Control(#[from] client::ClientError),
    #[error("{input}: {error}")]
    Input { input: String, error: batches::BatchesError },
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

/// How much was published before; nothing is said of it where publishing did not begin.
fn before(what: &PublishSource, events: u64) -> String {
    match what {
        PublishSource::Control(_) => String::new(),
        PublishSource::Input { .. }
        | PublishSource::Send { .. }
        | PublishSource::Refused { .. }
        | PublishSource::Busy { .. } => {
            format!(" ({} published before)", counted(events, "event"))
        }
    }
}

/// What was published.
#[derive(Clone, Copy, Debug, Default)]
struct PublishReport {
    events: u64,
    requests: u64,
}

fn counted(number: u64, of: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {of}{plural}")
}

impl Publish {
    /// Publishes everything; what is to be printed. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where not everything was published: what was is a prefix of the input.
    pub async fn run(self, clock: Clock) -> Result<String, PublishError> {
        let mut done = PublishReport::default();
        self.publish(&clock, &mut done).await.map_err(|what| PublishError { what, events: done.events })?;
        let PublishReport { events, requests } = done;
        Ok(match self.printed.output {
            OutputFormat::Table => {
                format!("published {} in {}", counted(events, "event"), counted(requests, "request"))
            }
            OutputFormat::Json => print::json(&json!({"events": events, "requests": requests})),
        })
    }

    async fn publish(&self, clock: &Clock, done: &mut PublishReport) -> Result<(), PublishSource> {
        let input = |error: io::Error| PublishSource::Input { input: self.input(), error: error.into() };
        let (reader, length) = open(&self.file).map_err(input)?;
        let destination = self.destination().await?;
        let read = Arc::new(AtomicU64::new(0));
        let reader = CountingReader { reader, read: read.clone() };
        let limits = RequestLimits { events: self.batch_events as usize, bytes: self.batch_bytes.as_u64() as usize };
        let form = match (self.dead_letters, destination.is_custom) {
            (false, _) => InputForm::Events,
            (true, false) => InputForm::DeadLetters,
            (true, true) => InputForm::CustomDeadLetters,
        };
        let (send, mut batches) = mpsc::channel(2);
        // A thread of its own, which nobody waits for: a read of a terminal may last for ever.
        std::thread::spawn(move || {
            let read = batches::read(reader, form, limits, |batch| send.blocking_send(Ok(batch)).is_ok());
            // An error that nobody asks for any more is none.
            read.or_else(|error| send.blocking_send(Err(error))).ok();
        });

        let progress = PublishProgress::new(clock.now(), length);
        while let Some(batch) = batches.recv().await {
            let batch = batch.map_err(|error| PublishSource::Input { input: self.input(), error })?;
            destination.send(&batch).await?;
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

    /// Where to, with what, and in which schema.
    async fn destination(&self) -> Result<Destination, PublishSource> {
        let key = match &self.key_file {
            Some(file) => Some(secret_in(file)?),
            None => {
                variable("GRIDHOOK_KEY")?.map(|key| secret(&key, "environment variable GRIDHOOK_KEY")).transpose()?
            }
        };
        let (url, client, asked) = match (&self.topic, &key) {
            (PublishTarget::Url(url), Some(_)) => (url.to_string(), self.control.place().client()?.1, None),
            (PublishTarget::Url(_), None) => {
                let text = "a URL needs an access key (--key-file or GRIDHOOK_KEY): the operator's token is shown to no \
                            address but the server's own";
                return Err(client::ClientError::Input(text.to_owned()).into());
            }
            (PublishTarget::Resource(topic), Some(_)) => {
                let (path, (server, client)) = (topic.publishing()?, self.control.place().client()?);
                (format!("{}{path}", server.as_str().trim_end_matches('/')), client, None)
            }
            (PublishTarget::Resource(topic), None) => {
                let (path, session) = (topic.publishing()?, self.control.session()?);
                let url = format!("{}{path}", session.server().as_str().trim_end_matches('/'));
                (url, session.client().clone(), Some((session, topic.path(""))))
            }
        };
        let is_namespace = url.split('?').next().is_some_and(|path| path.ends_with(":publish"));
        let header = match (key, &asked) {
            (Some(key), _) if is_namespace => ("authorization", format!("SharedAccessKey {key}")),
            (Some(key), _) => ("aeg-sas-key", key),
            (None, Some((session, _))) => ("authorization", session.bearer()),
            (None, None) => return Err(client::ClientError::Input("there is no key to publish with".to_owned()).into()),
        };
        let mut destination = Destination {
            client,
            url,
            header,
            is_cloud_events: is_namespace || self.cloud_events,
            is_custom: false,
            asked,
        };
        if !destination.is_cloud_events {
            destination.ask_for_schema().await?;
        }
        Ok(destination)
    }
}

impl Destination {
    /// What the topic takes, where it says so: a server that says nothing is sent events of Event Grid's schema.
    async fn ask_for_schema(&mut self) -> Result<(), PublishSource> {
        let sent = self.client.options(&self.url).send().await;
        let mut answer =
            sent.map_err(|error| PublishSource::Send { url: self.url.clone(), error: error.to_string() })?;
        // Read to the end, so that the connection can be used again.
        answer.body().limit(ERROR_BYTES_MAX).await.ok();
        let schema = answer.headers().get("aeg-input-event-schema").map(|schema| schema.as_bytes());
        self.is_cloud_events = schema.is_some_and(|schema| schema.eq_ignore_ascii_case(b"CloudEventV10"));
        self.is_custom = schema.is_some_and(|schema| schema.eq_ignore_ascii_case(b"CustomInputEvent"));
        Ok(())
    }

    /// Sends one batch, again and again while the server is busy.
    async fn send(&self, batch: &Batch) -> Result<(), PublishSource> {
        let content_type = match self.is_cloud_events {
            true => "application/cloudevents-batch+json; charset=utf-8",
            false => "application/json; charset=utf-8",
        };
        let mut tries = 0;
        loop {
            let request = self
                .client
                .post(&self.url)
                .insert_header((header::CONTENT_TYPE, content_type))
                .insert_header((self.header.0, self.header.1.as_str()));
            let sent = request.send_body(batch.body.clone()).await;
            let mut response =
                sent.map_err(|error| PublishSource::Send { url: self.url.clone(), error: error.to_string() })?;
            let status = response.status();
            if status.is_success() {
                // Read to the end, so that the connection can be used again.
                response.body().limit(ERROR_BYTES_MAX).await.ok();
                return Ok(());
            }
            if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                let body = response.body().limit(ERROR_BYTES_MAX).await.unwrap_or_default();
                let mut reason = http::reason(&body);
                if let (StatusCode::NOT_FOUND, Some((session, path))) = (status, &self.asked) {
                    reason += &suggestion::suggestion(session, path).await;
                }
                return Err(PublishSource::Refused { status, reason });
            }
            tries += 1;
            if tries == TRIES {
                return Err(PublishSource::Busy { status });
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
struct CountingReader<R> {
    reader: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(into)?;
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A bar on standard error, once the input takes longer than a second.
struct PublishProgress {
    bar: ProgressBar,
    from: Timestamp,
}

impl PublishProgress {
    fn new(now: Timestamp, length: Option<u64>) -> Self {
        let (bar, template) = match length {
            Some(length) => (ProgressBar::new(length), "{bar:40} {bytes}/{total_bytes}, {msg}, {eta} left"),
            None => (ProgressBar::no_length(), "{spinner} {bytes}, {msg}"),
        };
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
        Self { bar, from: now }
    }

    fn show(&self, now: Timestamp, bytes: u64, done: &PublishReport) {
        if self.bar.is_hidden() && now.since(self.from) >= Duration::from_secs(1) {
            // It stays hidden where standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(bytes);
        self.bar.set_message(counted(done.events, "event"));
    }
}
