//! `gridhook publish`: publishes events from a file or from standard input, in batches.
//!
//! One request is in flight at a time, so the published events are a prefix of the input; an error
//! states its length. A response 429 or 503 is retried after its Retry-After. Every other failure
//! ends the run, because retrying a request with an unknown result could publish its events twice.

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
use serde_json::json;
use tokio::sync::mpsc;
use url::Url;

use crate::{
    batches::{self, Batch, BatchesError, InputForm, RequestLimits},
    client::{
        ClientError, ClientResult, ResourceName, ServerArgs, ServerClient, check_secret,
        read_secret, read_variable, warn_of_cleartext,
    },
    format::count_with_noun,
    http,
    output::{CommandError, OutputArgs},
    progress::Progress,
    suggestion,
    value::{ValueError, positive_size, whole_number},
};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Without a key, the operator's token is sent; it may publish to every topic. Access keys are read from a file or
from the variable GRIDHOOK_KEY, not from the command line, which other users of the machine can read.

Examples:
  gridhook publish orders events.json
  gridhook publish namespaces/plant/topics/heat < events.jsonl
  gridhook publish https://events.example.com/topics/orders/api/events events.json --key-file orders.key
  gridhook publish orders --from-dead-letters data/dead-letters/FILE")]
pub struct Publish {
    /// Topic: NAME, domains/NAME, namespaces/NAME/topics/NAME, a resource id, or the URL of its
    /// publish endpoint
    topic: PublishTarget,
    /// File with a JSON array, a JSON object, or JSON lines; - is standard input
    #[arg(default_value = STANDARD_INPUT)]
    file: PathBuf,
    /// File with one of the topic's access keys [default: GRIDHOOK_KEY, or the operator's token]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Send the events as CloudEvents 1.0 [default: by the topic's input schema]
    #[arg(long)]
    cloud_events: bool,
    /// Read dead letters, and publish their events again to all event subscriptions of the topic
    #[arg(long)]
    from_dead_letters: bool,
    /// Maximum events in one request
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole_number::<u32>(1..))]
    batch_events: u32,
    /// Maximum bytes in one request; a larger event is sent alone
    #[arg(long, value_name = "SIZE", default_value = "1 MiB", value_parser = positive_size)]
    batch_bytes: ByteSize,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The publish target on the command line.
#[derive(Clone, Debug)]
enum PublishTarget {
    Resource(ResourceName),
    Url(Url),
}

impl FromStr for PublishTarget {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return Url::parse(text)
                .map(Self::Url)
                .map_err(|_| ValueError::PublishUrl);
        }
        text.parse().map(Self::Resource)
    }
}

/// The publish endpoint, its credential and its schema.
struct Destination {
    client: Client,
    url: String,
    header: (&'static str, String),
    is_cloud_events: bool,
    is_custom: bool,
    /// The control plane and the topic's path, for suggestions if the topic does not exist.
    server: Option<(ServerClient, String)>,
}

const STANDARD_INPUT: &str = "-";

/// Not all events were published. The published ones are a prefix of the input.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", progress_before(what, *events))]
pub struct PublishError {
    what: PublishSource,
    /// The number of published events.
    pub events: u64,
}

impl CommandError for PublishError {
    fn is_usage(&self) -> bool {
        match &self.what {
            PublishSource::Client(error) => error.is_usage(),
            PublishSource::Input { error, .. } => {
                matches!(error, BatchesError::Io(_)) && self.events == 0
            }
            _ => false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum PublishSource {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{input}: {error}")]
    Input { input: String, error: BatchesError },
    #[error("{url}: {error}")]
    Send { url: String, error: String },
    #[error("the server responded {status}: {reason}")]
    Refused { status: StatusCode, reason: String },
    #[error("the server is busy: responded {status} to {ATTEMPTS_MAX} attempts")]
    Busy { status: StatusCode },
}

/// Maximum attempts of a request. Without a `Retry-After`, 10 attempts take more than a minute.
const ATTEMPTS_MAX: u32 = 10;

/// 64 KiB, above every error response of the server.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The number of events published before the error; empty if publishing did not begin.
fn progress_before(what: &PublishSource, events: u64) -> String {
    match what {
        PublishSource::Client(_) => String::new(),
        _ => format!(" ({} published before)", count_with_noun(events, "event")),
    }
}

/// The published events and requests.
#[derive(Clone, Copy, Debug, Default)]
struct PublishReport {
    events: u64,
    requests: u64,
}

impl Publish {
    /// Publishes all events and returns the text to print. Needs a running actix system.
    ///
    /// # Errors
    /// Not all events were published; the published ones are a prefix of the input.
    pub async fn run(self) -> Result<String, PublishError> {
        let mut report = PublishReport::default();
        self.publish_batches(&mut report)
            .await
            .map_err(|what| PublishError {
                what,
                events: report.events,
            })?;
        let PublishReport { events, requests } = report;
        Ok(self
            .output
            .format_value(&json!({"events": events, "requests": requests}), |_| {
                format!(
                    "published {} in {}",
                    count_with_noun(events, "event"),
                    count_with_noun(requests, "request")
                )
            }))
    }

    async fn publish_batches(&self, done: &mut PublishReport) -> Result<(), PublishSource> {
        let input = |error: io::Error| PublishSource::Input {
            input: self.input_name(),
            error: error.into(),
        };
        let (reader, length) = open(&self.file).map_err(input)?;
        let destination = self.resolve_destination().await?;
        let read = Arc::new(AtomicU64::new(0));
        let reader = CountingReader {
            reader,
            read: read.clone(),
        };
        let limits = RequestLimits {
            events: self.batch_events as usize,
            bytes: self.batch_bytes.as_u64() as usize,
        };
        let form = match (self.from_dead_letters, destination.is_custom) {
            (false, _) => InputForm::Events,
            (true, false) => InputForm::DeadLetters,
            (true, true) => InputForm::CustomDeadLetters,
        };
        let (send, mut batches) = mpsc::channel(2);
        // On a separate thread that is not joined, because a read from a terminal may block
        // forever.
        std::thread::spawn(move || {
            let read = batches::read(reader, form, limits, |batch| {
                send.blocking_send(Ok(batch)).is_ok()
            });
            // After a failed request the receiver is gone, and an input error no longer matters.
            read.or_else(|error| send.blocking_send(Err(error))).ok();
        });

        let template = match length {
            Some(_) => "{bar:40} {bytes}/{total_bytes}, {msg}, {eta} left",
            None => "{spinner} {bytes}, {msg}",
        };
        let progress = Progress::with_bar(template, length);
        while let Some(batch) = batches.recv().await {
            let batch = batch.map_err(|error| PublishSource::Input {
                input: self.input_name(),
                error,
            })?;
            destination.send_batch(&batch).await?;
            done.events += batch.events as u64;
            done.requests += 1;
            progress.set_position(read.load(Ordering::Relaxed));
            progress.set_message(&count_with_noun(done.events, "event"));
        }
        Ok(())
    }

    fn input_name(&self) -> String {
        if self.file == Path::new(STANDARD_INPUT) {
            return "standard input".to_owned();
        }
        self.file.display().to_string()
    }

    /// Resolves the endpoint, the credential and the schema.
    async fn resolve_destination(&self) -> Result<Destination, PublishSource> {
        let key = match &self.key_file {
            Some(file) => Some(read_secret(file)?),
            None => read_variable("GRIDHOOK_KEY")?
                .map(|key| check_secret(&key, "environment variable GRIDHOOK_KEY"))
                .transpose()?,
        };
        let mut destination = match key {
            Some(key) => self.destination_with_key(key)?,
            None => self.destination_with_token()?,
        };
        destination.is_cloud_events |= self.cloud_events;
        if !destination.is_cloud_events {
            destination.fetch_schema().await?;
        }
        Ok(destination)
    }

    fn destination_with_key(&self, key: String) -> ClientResult<Destination> {
        let address = self.server.address_args();
        let (url, client) = match &self.topic {
            PublishTarget::Url(url) => (url.to_string(), address.build_client()?.1),
            PublishTarget::Resource(topic) => {
                let path = topic.publishing_path()?;
                let (server, client) = address.build_client()?;
                (http::join_path(&server, &path), client)
            }
        };
        if let Ok(url) = Url::parse(&url) {
            warn_of_cleartext(&url, "the access key");
        }
        let header = if is_namespace_url(&url) {
            ("authorization", format!("SharedAccessKey {key}"))
        } else {
            ("aeg-sas-key", key)
        };
        Ok(Destination::new(client, url, header))
    }

    fn destination_with_token(&self) -> ClientResult<Destination> {
        let PublishTarget::Resource(topic) = &self.topic else {
            let text = "publishing to a URL needs an access key; use --key-file or GRIDHOOK_KEY. \
                The operator's token is sent only to the server's own address";
            return Err(ClientError::Input(text.to_owned()));
        };
        let path = topic.publishing_path()?;
        let server = self.server.build_client()?;
        let url = http::join_path(server.url(), &path);
        let header = ("authorization", server.bearer_header());
        let mut destination = Destination::new(server.client().clone(), url, header);
        destination.server = Some((server, topic.path("")));
        Ok(destination)
    }
}

fn is_namespace_url(url: &str) -> bool {
    let path = url.split('?').next().unwrap_or_default();
    path.ends_with(":publish")
}

impl Destination {
    fn new(client: Client, url: String, header: (&'static str, String)) -> Self {
        Self {
            is_cloud_events: is_namespace_url(&url),
            client,
            url,
            header,
            is_custom: false,
            server: None,
        }
    }

    /// Requests the topic's input schema. If the headers do not say it, the Event Grid schema
    /// is assumed.
    async fn fetch_schema(&mut self) -> Result<(), PublishSource> {
        let result = self.client.options(&self.url).send().await;
        let mut response = result.map_err(|error| PublishSource::Send {
            url: self.url.clone(),
            error: error.to_string(),
        })?;
        // Read to the end, so that the connection can be reused.
        response.body().limit(ERROR_BYTES_MAX).await.ok();
        let schema = response
            .headers()
            .get("aeg-input-event-schema")
            .map(|schema| schema.as_bytes());
        self.is_cloud_events =
            schema.is_some_and(|schema| schema.eq_ignore_ascii_case(b"CloudEventV10"));
        self.is_custom =
            schema.is_some_and(|schema| schema.eq_ignore_ascii_case(b"CustomInputEvent"));
        Ok(())
    }

    /// Sends one batch, and retries while the server is busy.
    async fn send_batch(&self, batch: &Batch) -> Result<(), PublishSource> {
        let content_type = if self.is_cloud_events {
            "application/cloudevents-batch+json; charset=utf-8"
        } else {
            "application/json; charset=utf-8"
        };
        let mut attempts = 0;
        loop {
            let request = self
                .client
                .post(&self.url)
                .insert_header((header::CONTENT_TYPE, content_type))
                .insert_header((self.header.0, self.header.1.as_str()));
            let result = request.send_body(batch.body.clone()).await;
            let mut response = result.map_err(|error| PublishSource::Send {
                url: self.url.clone(),
                error: error.to_string(),
            })?;
            let status = response.status();
            if status.is_success() {
                // Read to the end, so that the connection can be reused.
                response.body().limit(ERROR_BYTES_MAX).await.ok();
                return Ok(());
            }
            if !matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            ) {
                let body = response
                    .body()
                    .limit(ERROR_BYTES_MAX)
                    .await
                    .unwrap_or_default();
                let mut reason = http::error_reason(&body);
                if let (StatusCode::NOT_FOUND, Some((server, path))) = (status, &self.server) {
                    reason += &suggestion::suggest_for(server, path).await;
                }
                return Err(PublishSource::Refused { status, reason });
            }
            attempts += 1;
            if attempts == ATTEMPTS_MAX {
                return Err(PublishSource::Busy { status });
            }
            actix_rt::time::sleep(wait_before_retry(&response, attempts)).await;
        }
    }
}

/// The wait before the next attempt: the server's Retry-After, or else 1 s, 2 s, 4 s … up to 16 s.
fn wait_before_retry<S>(response: &ClientResponse<S>, attempts: u32) -> Duration {
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(retry_after.unwrap_or_else(|| 1 << (attempts - 1).min(4)))
}

fn open(path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if path == Path::new(STANDARD_INPUT) {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok((Box::new(file), Some(length)))
}

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
