//! Changelogs in streams of NATS JetStream. The only folder of the journal that uses async-nats.
//!
//! Calls block: a thread of its own runs the client, and the caller waits for it.

mod servers;
mod stream;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use async_nats::{
    Auth, AuthError, ConnectOptions, Server, ToServerAddrs,
    jetstream::{
        self, ErrorCode,
        context::{Context, CreateStreamError, CreateStreamErrorKind, GetStreamErrorKind},
        stream::{Config, DiscardPolicy, Info, PeerInfo},
    },
};
use bytes::Bytes;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use self::servers::PAYLOAD_MIN;
pub use self::{
    servers::{ServerProblems, SyncReports},
    stream::NatsChangelog,
};
use super::Changelog as _;

/// How long a call waits for its response.
const ANSWER_WAIT: Duration = Duration::from_millis(1_500);

/// How often a stream is asked for again that no server makes, and the pause before.
const CREATE_TRIES: u32 = 20;
const CREATE_PAUSE: Duration = Duration::from_millis(250);

/// The code of servers that cannot make a stream yet.
const UNAVAILABLE: usize = 503;

/// How often the connection is tested, so that a server that vanished is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// How long a server may be silent. NATS calls it offline only later.
const SILENCE: Duration = Duration::from_secs(10);

/// The longest pause before a lost connection is opened again.
const LONGEST_RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// How long a thread of the runtime for calls that block may be idle. Calls wake the idle threads in
/// turn, so that with a longer time rare calls would keep as many as were ever busy at once.
const THREAD_KEEP_ALIVE: Duration = Duration::from_millis(250);

/// Why servers of NATS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatsError {
    /// No connection was made, or the credentials or an address are not valid.
    #[error("NATS cannot be reached: {0}")]
    Connect(String),
    /// A server is older than version 2.15.
    #[error("the NATS server {server} has version {version}; run 2.15 or later")]
    Version {
        /// The name of the server.
        server: String,
        /// The version that the server reports.
        version: String,
    },
    /// A server refuses messages as large as a record may be.
    #[error(
        "the NATS server takes messages of up to {found} bytes; set its max_payload to \
         {PAYLOAD_MIN} or more"
    )]
    Payload {
        /// The server's `max_payload` in bytes.
        found: usize,
    },
    /// A server does not sync its streams at every write.
    #[error(
        "the NATS server {server} does not sync every write; set jetstream.sync_interval to \
         \"always\""
    )]
    Sync {
        /// The name of the server.
        server: String,
    },
    /// No majority of the servers has reported how it syncs.
    #[error(
        "{found} of {servers} NATS servers reported whether they sync every write, and more than \
         half must; start the others, and check that the user is of the system account"
    )]
    Unreported {
        /// The number of servers that reported.
        found: usize,
        /// The number of all servers.
        servers: usize,
    },
    /// The stream would lose records.
    #[error(
        "the stream {stream} has {setting}, with which it loses records; remove that with nats \
         stream edit"
    )]
    StreamSetting {
        /// The name of the stream.
        stream: String,
        /// The setting, and its value if that matters.
        setting: &'static str,
    },
    /// The stream cannot be used.
    #[error("the stream {stream} cannot be written, read or removed: {why}")]
    Use {
        /// The name of the stream.
        stream: String,
        /// The error of the NATS client.
        why: String,
    },
    /// The stream was not made.
    #[error("the stream {stream} cannot be made: {why}")]
    Create {
        /// The name of the stream.
        stream: String,
        /// The error of the NATS client.
        why: String,
    },
}

fn is_down(server: &PeerInfo) -> bool {
    server.offline || server.active > SILENCE
}

/// The number of servers that should have the stream and are down or behind.
fn count_missing_replicas(info: &Info) -> u64 {
    let followers = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
    let followers = followers.filter(|server| server.current && !is_down(server));
    // The leader reports its followers.
    let current_replicas = 1 + followers.count();
    info.config.num_replicas.saturating_sub(current_replicas) as u64
}

/// A stream, as its servers report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its limit of bytes; [`None`] for the limit of its servers.
    pub bytes_max: Option<u64>,
    /// The number of servers that should have it.
    pub replicas: usize,
    /// The servers that have it and are down.
    pub servers_down: Vec<String>,
}

/// With what a stream is made.
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

/// With what a client logs in.
pub enum Login {
    /// As a client without a name.
    Anonymous,
    /// With a user's name and password.
    Password(String, String),
    /// With a user's JWT, and the signature of the server's nonce.
    Signed(String, Vec<u8>),
}

/// Reads the login for one connection, whose nonce is the argument.
pub type ReadLogin = Arc<dyn Fn(&[u8]) -> Result<Login, String> + Send + Sync>;

impl NatsConnection {
    /// Connects to one of the servers at `urls`, and with TLS if it is given. `read_login` is called
    /// again for each lost connection, so that a new password needs no restart.
    ///
    /// # Errors
    /// If none can be reached, or if its release or its `max_payload` is too small.
    pub fn connect(
        urls: &[String],
        read_login: &ReadLogin,
        tls: Option<&rustls::ClientConfig>,
    ) -> Result<Self, NatsError> {
        let read_login = Arc::clone(read_login);
        let mut options = ConnectOptions::with_auth_callback(move |nonce| {
            std::future::ready(build_auth(&read_login, &nonce))
        });
        if let Some(tls) = tls {
            let mut tls = tls.clone();
            // They are those of HTTP.
            tls.alpn_protocols.clear();
            options = options.require_tls(true).tls_client_config(tls);
        }
        Self::open(urls, options)
    }

    /// Connects to one of the servers at `urls`. A lost connection is opened again, to any server
    /// of the cluster.
    ///
    /// # Errors
    /// If none can be reached, or if its release or its `max_payload` is too small.
    pub fn open(urls: &[String], options: ConnectOptions) -> Result<Self, NatsError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_keep_alive(THREAD_KEEP_ALIVE)
            .build();
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
        let logged_failures = Mutex::new(BTreeMap::new());
        let options = options
            .name("gridhook")
            .reconnect_to_server_callback(move |servers, _| {
                log_failures(&servers, &logged_failures);
                // The client chooses the server.
                std::future::ready(None)
            })
            .request_timeout(Some(ANSWER_WAIT))
            .ping_interval(PING_INTERVAL)
            .reconnect_delay_callback(|attempt| {
                (Duration::from_millis(25) * attempt as u32).min(LONGEST_RECONNECT_DELAY)
            });
        let client = handle.block_on(options.connect(addresses));
        let client = client.map_err(|error| NatsError::Connect(error.to_string()))?;
        servers::check_release_and_payload(&client)?;
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

    /// Makes the stream `name`, if it is not there. A node does that only for a shard that no node
    /// has owned yet: a stream that is missing later has lost its records.
    pub fn create_stream_if_missing(
        &self,
        name: &str,
        settings: StreamSettings,
    ) -> Result<(), NatsError> {
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
        let creation =
            self.retry_until_available(name, || self.context.create_stream(config.clone()));
        let made = self.runtime.block_on(creation);
        match made {
            // Another node makes it meanwhile, perhaps with another limit.
            Err(_) if self.wait_for_stream(name) == Some(settings.replicas) => Ok(()),
            made => made.map(drop),
        }
    }

    /// On how many servers a stream is that another node is about to make.
    fn wait_for_stream(&self, name: &str) -> Option<usize> {
        for _ in 0..CREATE_TRIES {
            if let Ok(Some(replicas)) = self.count_replicas(name) {
                return Some(replicas);
            }
            std::thread::sleep(CREATE_PAUSE);
        }
        None
    }

    /// Makes the stream `stream` with `make`, and asks again where the servers do not answer: some
    /// that have just started do not at first.
    pub async fn retry_until_available<T, F>(
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

    /// Makes a stream on so many servers, writes and reads a record, and removes the stream.
    /// Returns the time of the record by the clock of the servers, in microseconds since 1970.
    ///
    /// # Errors
    /// What of it does not work.
    pub fn try_stream(&self, name: &str, replicas: usize) -> Result<u64, NatsError> {
        let settings = StreamSettings {
            replicas,
            bytes_max: Some(1 << 20),
            first: 1,
        };
        self.create_stream_if_missing(name, settings)?;
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

    /// Whether the stream `name` is there.
    ///
    /// # Errors
    /// If the servers do not respond.
    pub fn has_stream(&self, name: &str) -> Result<bool, NatsError> {
        Ok(self.read_config(name)?.is_some())
    }

    /// On how many servers the stream `name` is, if it is there.
    ///
    /// # Errors
    /// If the servers do not respond.
    pub fn count_replicas(&self, name: &str) -> Result<Option<usize>, NatsError> {
        Ok(self.read_config(name)?.map(|config| config.num_replicas))
    }

    fn read_config(&self, name: &str) -> Result<Option<Config>, NatsError> {
        Ok(self.read_info(name)?.map(|info| info.config))
    }

    fn read_info(&self, name: &str) -> Result<Option<Info>, NatsError> {
        let error = match self.runtime.block_on(self.context.get_stream(name)) {
            Ok(stream) => return Ok(Some(stream.cached_info().clone())),
            Err(error) => error,
        };
        match error.kind() {
            GetStreamErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Ok(None)
            }
            _ => Err(NatsError::Use {
                stream: name.to_owned(),
                why: error.to_string(),
            }),
        }
    }

    /// The stream `name`, if it is there. Settings may have been changed since it was made.
    ///
    /// # Errors
    /// If it has settings with which it would lose records, or the servers do not respond.
    pub fn find_stream(&self, name: &str) -> Result<Option<StreamInfo>, NatsError> {
        let Some(Info {
            config, cluster, ..
        }) = self.read_info(name)?
        else {
            return Ok(None);
        };
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
        let servers = cluster.into_iter().flat_map(|cluster| cluster.replicas);
        let down = servers.filter(is_down);
        Ok(Some(StreamInfo {
            bytes_max,
            replicas: config.num_replicas,
            servers_down: down.map(|server| server.name).collect(),
        }))
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
}

fn build_auth(read_login: &ReadLogin, nonce: &[u8]) -> Result<Auth, AuthError> {
    let mut auth = Auth::new();
    match read_login(nonce).map_err(AuthError::new)? {
        Login::Anonymous => {}
        Login::Password(user, password) => {
            auth.username = Some(user);
            auth.password = Some(password);
        }
        Login::Signed(jwt, signature) => {
            auth.jwt = Some(jwt);
            auth.signature = Some(signature);
        }
    }
    Ok(auth)
}

/// Logs why each server was not reached at the last attempt, once for each change. The client's own
/// lines lack the cause.
fn log_failures(servers: &[Server], logged: &Mutex<BTreeMap<String, String>>) {
    let mut logged = logged.lock();
    for server in servers {
        let address = server.addr.as_url_str().to_owned();
        let Some(error) = &server.last_error else {
            logged.remove(&address);
            continue;
        };
        if logged.get(&address) != Some(error) {
            tracing::warn!(server = address, error, "the NATS server cannot be used");
            logged.insert(address, error.clone());
        }
    }
}
