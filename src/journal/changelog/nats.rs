//! A changelog in a stream of NATS JetStream. The only file of the journal that uses async-nats.
//!
//! The stream takes one subject, the one of its name. `Nats-Expected-Last-Sequence` is the fence.
//! Its messages are read from the leader, one request each: a follower may not have the newest
//! ones.
//!
//! Calls block: a thread of its own runs the client, and the caller waits for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_nats::{
    Client, ConnectOptions, StatusCode, ToServerAddrs,
    connection::State,
    jetstream::{
        self, ErrorCode,
        context::{
            Context, CreateStreamError, CreateStreamErrorKind, PublishError, PublishErrorKind,
        },
        message::PublishMessage,
        response::Response,
        stream::{Config, DiscardPolicy, Info, RawMessageErrorKind, State as StreamState, Stream},
    },
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use super::{Changelog, ChangelogBounds, ChangelogError};

/// The oldest release of the server whose replicated streams were tried.
const SERVER_MIN: (i64, i64, i64) = (2, 15, 0);

/// The smallest `max_payload` of a server: a record, and what NATS adds to it.
const PAYLOAD_MIN: usize = 4 << 20;

/// How long a call waits for its answer.
const ANSWER_WAIT: Duration = Duration::from_millis(1_500);

/// How often a stream is asked for again that no server makes, and the pause before.
const CREATE_TRIES: u32 = 20;
const CREATE_PAUSE: Duration = Duration::from_millis(250);

/// The code of servers that cannot make a stream yet.
const UNAVAILABLE: usize = 503;

/// How long servers have to report how they sync.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// How often servers that were down are asked for their report.
const SYNC_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// How often the connection is tested, so that a server that vanished is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause before a lost connection is opened again.
const LONGEST_RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Why servers of NATS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatsError {
    #[error("NATS cannot be reached: {0}")]
    Connect(String),
    /// An old server.
    #[error("the NATS server {server} has version {version}; run 2.15 or later")]
    Version {
        /// Its name.
        server: String,
        version: String,
    },
    /// A server that does not take large messages.
    #[error(
        "the NATS server takes messages of up to {found} bytes; set its max_payload to \
         {PAYLOAD_MIN} or more"
    )]
    Payload {
        /// Its limit.
        found: usize,
    },
    /// A server that does not sync its streams at every write.
    #[error(
        "the NATS server {server} does not sync every write; set jetstream.sync_interval to \
         \"always\""
    )]
    Sync {
        /// Its name.
        server: String,
    },
    /// No majority of the servers has reported how it syncs.
    #[error(
        "{found} of {servers} NATS servers reported whether they sync every write, and more than \
         half must; start the others, and check that the user is of the system account"
    )]
    Unreported {
        /// The number of reports.
        found: usize,
        /// The number of servers.
        servers: usize,
    },
    /// The stream would lose records.
    #[error(
        "the stream {stream} has {setting}, with which it loses records; remove that with nats \
         stream edit"
    )]
    StreamSetting {
        /// Its name.
        stream: String,
        setting: &'static str,
    },
    /// The stream cannot be used.
    #[error("the stream {stream} cannot be written, read or removed: {why}")]
    Use {
        /// Its name.
        stream: String,
        why: String,
    },
    /// The stream was not made.
    #[error("the stream {stream} cannot be made: {why}")]
    Create {
        /// Its name.
        stream: String,
        why: String,
    },
}

/// What a stream that is there takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its limit of bytes; [`None`] for the limit of its servers.
    pub bytes_max: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct StreamSettings {
    /// The number of servers that have it.
    pub replicas: usize,
    /// Its limit of bytes; [`None`] for the limit of its server.
    pub bytes_max: Option<i64>,
    /// The sequence of its first record.
    pub first: u64,
}

/// A connection to a cluster of NATS, shared by the logs of all shards. Clones share it.
#[derive(Clone)]
pub struct NatsConnection {
    runtime: Handle,
    context: Context,
    /// Dropped with the last clone, which ends the thread.
    _ends: Arc<oneshot::Sender<()>>,
}

/// A report of a server about its streams, as far as it is read.
#[derive(Deserialize)]
struct ServerFacts {
    server: ReportingServer,
    data: JetStreamReport,
}

#[derive(Deserialize)]
struct ReportingServer {
    name: String,
    ver: String,
}

#[derive(Deserialize)]
struct JetStreamReport {
    #[serde(default)]
    config: JetStreamConfig,
    meta_cluster: Option<MetaCluster>,
    /// The limits of all its streams together.
    #[serde(default)]
    reserved_storage: u64,
}

#[derive(Default, Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
    /// The most that all streams may have together.
    #[serde(default)]
    max_storage: i64,
}

#[derive(Deserialize)]
struct MetaCluster {
    cluster_size: usize,
}

/// How a client logs in.
pub enum Credentials {
    None,
    /// With the text of a credentials file.
    File(String),
    /// With a name and a password.
    Password(String, String),
}

impl NatsConnection {
    /// [`Self::open`] with these credentials, and with TLS if it is given.
    pub fn log_in(
        urls: &[String],
        credentials: &Credentials,
        tls: Option<&rustls::ClientConfig>,
    ) -> Result<Self, NatsError> {
        let mut options = ConnectOptions::new();
        if let Some(tls) = tls {
            let mut tls = tls.clone();
            // They are those of HTTP.
            tls.alpn_protocols.clear();
            options = options.require_tls(true).tls_client_config(tls);
        }
        let options = match credentials {
            Credentials::None => options,
            Credentials::Password(name, password) => {
                options.user_and_password(name.clone(), password.clone())
            }
            Credentials::File(text) => options
                .credentials(text)
                .map_err(|error| NatsError::Connect(format!("credentials: {error}")))?,
        };
        Self::open(urls, options)
    }

    /// Connects to one of the servers at `urls`. A lost connection is opened again, to any server
    /// of the cluster.
    ///
    /// # Errors
    /// If none can be reached, or if its release or its `max_payload` is too small.
    pub fn open(urls: &[String], options: ConnectOptions) -> Result<Self, NatsError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| NatsError::Connect(error.to_string()))?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let driver = move || runtime.block_on(ended).ok();
        std::thread::Builder::new()
            .name("nats".to_owned())
            .spawn(driver)
            .expect("a process that cannot start a thread cannot start");
        let addresses: Result<Vec<_>, _> = urls
            .iter()
            .map(|url| url.as_str().to_server_addrs())
            .collect();
        let addresses = addresses.map_err(|error| NatsError::Connect(error.to_string()))?;
        let addresses: Vec<_> = addresses.into_iter().flatten().collect();
        let options = options
            .name("gridhook")
            .request_timeout(Some(ANSWER_WAIT))
            .ping_interval(PING_INTERVAL)
            .reconnect_delay_callback(|attempt| {
                (Duration::from_millis(25) * attempt as u32).min(LONGEST_RECONNECT_DELAY)
            });
        let client = handle.block_on(options.connect(addresses));
        let client = client.map_err(|error| NatsError::Connect(error.to_string()))?;
        check(&client)?;
        let entered = handle.enter();
        let mut context = jetstream::new(client);
        drop(entered);
        context.set_timeout(ANSWER_WAIT);
        Ok(Self {
            runtime: handle,
            context,
            _ends: Arc::new(ends),
        })
    }

    /// Makes the stream `name`, if it is not there. Only the creation of a cluster does that: a
    /// stream that is missing later has lost its records.
    pub fn create(&self, name: &str, settings: StreamSettings) -> Result<(), NatsError> {
        let config = Config {
            name: name.to_owned(),
            subjects: vec![name.to_owned()],
            num_replicas: settings.replicas,
            max_bytes: settings.bytes_max.unwrap_or(-1),
            first_sequence: Some(settings.first).filter(|first| *first > 1),
            discard: DiscardPolicy::New,
            deny_delete: true,
            ..Config::default()
        };
        let made = self
            .runtime
            .block_on(self.until_answered(name, || self.context.create_stream(config.clone())));
        match made {
            // Another node makes it meanwhile, perhaps with another limit.
            Err(_) if self.wait_for_stream(name) == Some(settings.replicas) => Ok(()),
            made => made.map(drop),
        }
    }

    /// On how many servers a stream is that another node is about to make.
    fn wait_for_stream(&self, name: &str) -> Option<usize> {
        for _ in 0..CREATE_TRIES {
            if let Some(replicas) = self.count_replicas(name) {
                return Some(replicas);
            }
            std::thread::sleep(CREATE_PAUSE);
        }
        None
    }

    /// Makes the stream `stream` with `make`, and asks again where the servers do not answer: some
    /// that have just started do not at first.
    pub async fn until_answered<T, F>(
        &self,
        stream: &str,
        make: impl Fn() -> F,
    ) -> Result<T, NatsError>
    where
        F: Future<Output = Result<T, CreateStreamError>>,
    {
        let mut tries = CREATE_TRIES;
        loop {
            let error = match make().await {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            let (why, is_final) = match error.kind() {
                CreateStreamErrorKind::JetStream(error) => {
                    (error.to_string(), error.code() != UNAVAILABLE)
                }
                CreateStreamErrorKind::TimedOut
                | CreateStreamErrorKind::Response
                | CreateStreamErrorKind::JetStreamUnavailable => (error.to_string(), false),
                _ => (error.to_string(), true),
            };
            if is_final || tries == 0 {
                return Err(NatsError::Create {
                    stream: stream.to_owned(),
                    why,
                });
            }
            tracing::warn!(
                stream,
                error = why,
                "NATS does not make the stream yet; asking again"
            );
            tries -= 1;
            tokio::time::sleep(CREATE_PAUSE).await;
        }
    }

    /// Everything that is wrong with the servers, as far as they report it, and how many report and
    /// exist. This connection must have a user of the system account.
    ///
    /// # Errors
    /// If no server can be asked.
    pub fn examine_servers(&self) -> Result<(Vec<NatsError>, usize, usize), NatsError> {
        let reports = self.runtime.block_on(reports(&self.context.client()))?;
        let servers = count_servers(reports.values());
        let found = reports.len();
        let mut problems = Vec::new();
        if found < servers {
            problems.push(NatsError::Unreported { found, servers });
        }
        for report in reports.into_values() {
            problems.extend(check_report(report).err());
        }
        Ok((problems, found, servers))
    }

    /// Makes a stream on so many servers, writes and reads a record, and removes the stream. Returns
    /// the time of the record by the clock of the servers, in microseconds since 1970.
    ///
    /// # Errors
    /// What of it does not work.
    pub fn try_stream(&self, name: &str, replicas: usize) -> Result<u64, NatsError> {
        let settings = StreamSettings {
            replicas,
            bytes_max: Some(1 << 20),
            first: 1,
        };
        self.create(name, settings)?;
        let written = self
            .changelog(name)
            .append(&Bytes::from_static(b"check"), None);
        let time = written
            .map_err(|error| error.to_string())
            .and_then(|sequence| {
                let read = async {
                    let stream = self.context.get_stream_no_info(name).await;
                    let stream = stream.map_err(|error| error.to_string())?;
                    let record = stream.get_raw_message(sequence).await;
                    let record = record.map_err(|error| error.to_string())?;
                    Ok::<i128, String>(record.time.unix_timestamp_nanos())
                };
                self.runtime.block_on(read)
            });
        let removed = self.remove_stream(name);
        let why = match (time, removed) {
            (Ok(nanos), Ok(())) => return Ok(u64::try_from(nanos / 1_000).unwrap_or_default()),
            (Err(why), _) => why,
            (_, Err(error)) => error.to_string(),
        };
        Err(NatsError::Use {
            stream: name.to_owned(),
            why,
        })
    }

    /// Removes the stream `name`.
    ///
    /// # Errors
    /// If that does not work.
    pub fn remove_stream(&self, name: &str) -> Result<(), NatsError> {
        let removed = self.runtime.block_on(self.context.delete_stream(name));
        removed.map(drop).map_err(|error| NatsError::Use {
            stream: name.to_owned(),
            why: error.to_string(),
        })
    }

    /// On how many servers the stream `name` is, if it is there.
    pub fn count_replicas(&self, name: &str) -> Option<usize> {
        let stream = self.runtime.block_on(self.context.get_stream(name));
        Some(stream.ok()?.cached_info().config.num_replicas)
    }

    /// The stream `name`, if it is there. Settings may have been changed since it was made.
    ///
    /// # Errors
    /// If it has settings with which it would lose records.
    pub fn find_stream(&self, name: &str) -> Result<Option<StreamInfo>, NatsError> {
        let Ok(stream) = self.runtime.block_on(self.context.get_stream(name)) else {
            return Ok(None);
        };
        let config = &stream.cached_info().config;
        let loses = [
            ("max_age", !config.max_age.is_zero()),
            ("max_msgs", config.max_messages > 0),
            ("max_msgs_per_subject", config.max_messages_per_subject > 0),
            ("discard: old", config.discard == DiscardPolicy::Old),
        ];
        if let Some((setting, _)) = loses.iter().find(|(_, is_set)| *is_set) {
            return Err(NatsError::StreamSetting {
                stream: name.to_owned(),
                setting,
            });
        }
        let bytes_max = u64::try_from(config.max_bytes).ok();
        let bytes_max = bytes_max.filter(|most| *most > 0);
        Ok(Some(StreamInfo { bytes_max }))
    }

    /// The bytes that new streams on so many servers may reserve together, as far as the limits of
    /// the account tell; [`None`] without a limit.
    ///
    /// # Errors
    /// If the account cannot be asked.
    pub fn find_account_room(&self, replicas: usize) -> Result<Option<u64>, NatsError> {
        let account = self.runtime.block_on(self.context.query_account());
        let account = account.map_err(|error| NatsError::Connect(error.to_string()))?;
        let limit = account
            .limits
            .max_storage
            .and_then(|limit| u64::try_from(limit).ok());
        // The account counts each replica.
        let room = |limit: u64| limit.saturating_sub(account.reserved_storage) / replicas as u64;
        Ok(limit.map(room))
    }

    /// The bytes that new streams may reserve on each server that reports. This connection must have
    /// a user of the system account.
    ///
    /// # Errors
    /// If no server can be asked.
    pub fn find_server_room(&self) -> Result<Option<u64>, NatsError> {
        let reports = self.runtime.block_on(reports(&self.context.client()))?;
        let rooms = reports.values().filter_map(|report| {
            let limit = u64::try_from(report.data.config.max_storage).ok()?;
            Some(limit.saturating_sub(report.data.reserved_storage))
        });
        Ok(rooms.min())
    }

    /// The client, for the other records of the cluster.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The runtime of the client's thread.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The log in the stream `name`.
    pub fn changelog(&self, name: &str) -> NatsChangelog {
        NatsChangelog {
            connection: self.clone(),
            name: name.to_owned(),
        }
    }

    /// Checks that servers sync each write before they acknowledge it. This connection must have a
    /// user of the system account. A majority must report it, because a write needs the
    /// acknowledgement of a majority. Servers that are down are checked once they report, while
    /// this connection is kept.
    ///
    /// # Errors
    /// If fewer report, or if one of them does not sync or is too old.
    pub fn check_sync(&self) -> Result<(), NatsError> {
        let client = self.context.client();
        let reports = self.runtime.block_on(sync_reports(&client))?;
        if !reports.is_complete() {
            let SyncReports { found, servers } = reports;
            tracing::warn!(
                found,
                servers,
                "a NATS server is down: whether it syncs every write is checked later"
            );
            self.runtime.spawn(check_sync_of_missing(client));
        }
        Ok(())
    }
}

/// How many servers of a cluster have reported that they sync each write.
struct SyncReports {
    found: usize,
    servers: usize,
}

impl SyncReports {
    fn is_complete(&self) -> bool {
        self.found >= self.servers
    }
}

/// Checks again until all servers have reported.
async fn check_sync_of_missing(client: Client) {
    loop {
        tokio::time::sleep(SYNC_CHECK_INTERVAL).await;
        match sync_reports(&client).await {
            Ok(reports) if reports.is_complete() => {
                tracing::info!(
                    servers = reports.servers,
                    "all NATS servers sync every write"
                );
                return;
            }
            Ok(_) | Err(NatsError::Unreported { .. } | NatsError::Connect(_)) => {}
            Err(error) => {
                tracing::error!(%error, "acknowledged events may be lost with this NATS server")
            }
        }
    }
}

async fn sync_reports(client: &Client) -> Result<SyncReports, NatsError> {
    let reports = reports(client).await?;
    let servers = count_servers(reports.values());
    let found = reports.len();
    if 2 * found <= servers {
        return Err(NatsError::Unreported { found, servers });
    }
    reports.into_values().try_for_each(check_report)?;
    Ok(SyncReports { found, servers })
}

/// The number of servers of the cluster, as these say.
fn count_servers<'a>(reports: impl IntoIterator<Item = &'a ServerFacts>) -> usize {
    let metas = reports
        .into_iter()
        .filter_map(|report| report.data.meta_cluster.as_ref());
    metas.map(|meta| meta.cluster_size).max().unwrap_or(1)
}

/// Checks that a server is new enough and syncs each write.
fn check_report(report: ServerFacts) -> Result<(), NatsError> {
    let ReportingServer { name, ver } = report.server;
    if is_older(&ver) {
        return Err(NatsError::Version {
            server: name,
            version: ver,
        });
    }
    if !report.data.config.sync_always {
        return Err(NatsError::Sync { server: name });
    }
    Ok(())
}

/// The reports of all servers that respond in time, by their names.
async fn reports(client: &Client) -> Result<BTreeMap<String, ServerFacts>, NatsError> {
    let of_client = |error: &dyn std::error::Error| NatsError::Connect(error.to_string());
    let inbox = client.new_inbox();
    let mut responses = client
        .subscribe(inbox.clone())
        .await
        .map_err(|error| of_client(&error))?;
    let request = client
        .publish_with_reply("$SYS.REQ.SERVER.PING.JSZ", inbox, Bytes::new())
        .await;
    request.map_err(|error| of_client(&error))?;
    let mut reports = BTreeMap::new();
    let collect = async {
        while let Some(response) = responses.next().await {
            if response.status == Some(StatusCode::NO_RESPONDERS) {
                return;
            }
            let Ok(report) = serde_json::from_slice::<ServerFacts>(&response.payload) else {
                continue;
            };
            let servers = count_servers([&report]);
            reports.insert(report.server.name.clone(), report);
            if reports.len() >= servers {
                return;
            }
        }
    };
    // Those that are missing are counted.
    tokio::time::timeout(REPORT_WAIT, collect).await.ok();
    Ok(reports)
}

fn check(client: &Client) -> Result<(), NatsError> {
    let info = client.server_info();
    if is_older(&info.version) {
        return Err(NatsError::Version {
            server: info.server_name,
            version: info.version,
        });
    }
    if info.max_payload < PAYLOAD_MIN {
        return Err(NatsError::Payload {
            found: info.max_payload,
        });
    }
    Ok(())
}

/// Whether a release is too old. A version that cannot be read is.
fn is_older(version: &str) -> bool {
    let mut parts = version
        .split(['.', '-'])
        .map(|part| part.parse::<i64>().ok());
    let mut part = || parts.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (part(), part(), part()) else {
        return true;
    };
    (major, minor, patch) < SERVER_MIN
}

/// The changelog in a stream.
pub struct NatsChangelog {
    connection: NatsConnection,
    name: String,
}

impl NatsChangelog {
    async fn stream(&self) -> Result<Stream<()>, ChangelogError> {
        let stream = self.connection.context.get_stream_no_info(&self.name).await;
        stream.map_err(|error| ChangelogError::Refused(error.to_string()))
    }

    async fn state(&self) -> Result<StreamState, ChangelogError> {
        let request = self
            .connection
            .context
            .request(format!("STREAM.INFO.{}", self.name), &());
        match request
            .await
            .map_err(|error| ChangelogError::Unavailable(error.to_string()))?
        {
            Response::Ok(Info { state, .. }) => Ok(state),
            Response::Err { error } => Err(jetstream_error(&error)),
        }
    }

    /// Waits for an answer, and no longer than a call may take. Without a connection it makes no
    /// call: the client would keep it and make it after the reconnection, when the owner may be
    /// another one.
    fn wait<T>(
        &self,
        call: impl Future<Output = Result<T, ChangelogError>>,
    ) -> Result<T, ChangelogError> {
        if self.connection.context.client().connection_state() != State::Connected {
            return Err(ChangelogError::Unavailable(
                "the connection is lost".to_owned(),
            ));
        }
        let call = async {
            let answer = tokio::time::timeout(ANSWER_WAIT, call).await;
            answer.unwrap_or_else(|_| {
                Err(ChangelogError::Unavailable(
                    "no answer came in time".to_owned(),
                ))
            })
        };
        self.connection.runtime.block_on(call)
    }
}

impl Changelog for NatsChangelog {
    fn append(&self, record: &Bytes, expected: Option<u64>) -> Result<u64, ChangelogError> {
        let message = PublishMessage::build()
            .payload(record.clone())
            .expected_stream(&self.name);
        let message = match expected {
            Some(expected) => message.expected_last_sequence(expected),
            None => message,
        };
        self.wait(async {
            let sent = self
                .connection
                .context
                .send_publish(self.name.clone(), message)
                .await;
            let acknowledged = match sent {
                Ok(acknowledged) => acknowledged.await,
                Err(error) => Err(error),
            };
            acknowledged
                .map(|acknowledged| acknowledged.sequence)
                .map_err(|error| publish_error(&error))
        })
    }

    fn bounds(&self) -> Result<ChangelogBounds, ChangelogError> {
        let state = self.wait(self.state())?;
        Ok(ChangelogBounds {
            first: state.first_sequence,
            last: state.last_sequence,
            bytes: state.bytes,
        })
    }

    fn trim(&self, through: u64, keep_bytes: u64) -> Result<(), ChangelogError> {
        self.wait(async {
            let state = self.state().await?;
            let records = (state.last_sequence + 1)
                .saturating_sub(state.first_sequence)
                .max(1);
            // The sizes of single records are not known.
            let kept = keep_bytes / (state.bytes / records).max(1);
            let first = (through + 1).min(state.last_sequence.saturating_sub(kept));
            if first <= state.first_sequence {
                return Ok(());
            }
            let purged = self.stream().await?.purge().sequence(first).await;
            purged
                .map(drop)
                .map_err(|error| ChangelogError::Unavailable(error.to_string()))
        })
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<Bytes>, ChangelogError> {
        let mut records = Vec::new();
        let read = self.wait(async {
            let stream = self.stream().await?;
            let sequences = stream::iter((from..).take(most));
            let mut messages = sequences
                .map(|sequence| stream.get_raw_message(sequence))
                .buffered(most.max(1));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(message) => records.push(message.payload),
                    Err(error) => match error.kind() {
                        RawMessageErrorKind::NoMessageFound => break,
                        RawMessageErrorKind::JetStream(error) => {
                            return Err(jetstream_error(&error));
                        }
                        _ => return Err(ChangelogError::Unavailable(error.to_string())),
                    },
                }
            }
            Ok(())
        });
        match read {
            // Large records may take longer than a call. The next call continues behind those that
            // came.
            Err(ChangelogError::Unavailable(_)) if !records.is_empty() => {}
            read => read?,
        }
        Ok(records)
    }
}

fn publish_error(error: &PublishError) -> ChangelogError {
    use std::error::Error as _;
    match error.kind() {
        PublishErrorKind::WrongLastSequence => ChangelogError::WrongLast,
        PublishErrorKind::MaxPayloadExceeded => ChangelogError::Refused(error.to_string()),
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::Other => {
            let cause = error
                .source()
                .and_then(|cause| cause.downcast_ref::<jetstream::Error>());
            cause.map_or_else(
                || ChangelogError::Unavailable(error.to_string()),
                jetstream_error,
            )
        }
        // Without a leader no server takes the subject, as if there were no stream.
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending => ChangelogError::Unavailable(error.to_string()),
    }
}

fn jetstream_error(error: &jetstream::Error) -> ChangelogError {
    match error.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => {
            ChangelogError::WrongLast
        }
        ErrorCode::STREAM_NOT_FOUND => ChangelogError::Missing,
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED => ChangelogError::Full,
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => ChangelogError::Refused(error.to_string()),
        _ => ChangelogError::Unavailable(error.to_string()),
    }
}
