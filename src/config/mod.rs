//! What the operator wrote, and what we run.
//!
//! [`Config::load`] merges flags, environment, file and defaults ([`SettingSources`]), reads every value by its type
//! (`RawConfig`), and checks what must hold between values. Whoever holds a [`Config`] may rely on all of it; nobody
//! else reads the environment or a settings file. The defaults stand in `config/gridhook.toml` and nowhere else.
//!
//! A value that cannot be used stops the start with where it came from, the key, what was read and what is allowed. A
//! secret is never shown.
//!
//! Few settings change while the server runs: on SIGHUP `server` loads them again and takes those that it can. The others
//! need a restart, which takes seconds.

mod auth;
mod clock;
mod dead_letter;
mod delivery;
mod editions;
mod error;
mod layers;
mod limits;
mod metrics;
mod read;
mod telemetry;
mod values;

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use read::{DAY, GIB, HOUR, KIB, MIB, SECOND, TIB};
use serde::Deserialize;

use self::{auth::RawAuth, dead_letter::RawDeadLetter, delivery::RawDelivery, layers::Layers};
pub use self::{
    auth::{AuthConfig, IssuerConfig, KeySource},
    clock::Clock,
    dead_letter::{DeadLetter, DeadLetterStore},
    delivery::Delivery,
    editions::Editions,
    error::Error,
    layers::{Setting, SettingFlag, SettingOrigin, SettingSources},
    limits::Limits,
    metrics::Metrics,
    telemetry::Telemetry,
    values::{TlsVersion, TrustRoots, ValidationMode},
};

/// The defaults: every key there is, each with a sentence on why.
pub const DEFAULTS: &str = include_str!("../../config/gridhook.toml");

/// What we run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens and keeps its data.
    pub server: Server,
    /// What is logged, and how.
    pub log: LogConfig,
    /// What publishers may send.
    pub publish: Publish,
    /// Who may publish beside the holders of keys.
    pub auth: AuthConfig,
    /// How endpoints are called, and which.
    pub delivery: Delivery,
    /// How the store is kept.
    pub journal: Journal,
    /// What topics keep in memory.
    pub topic: Topic,
    /// Where dead letters go.
    pub dead_letter: DeadLetter,
    /// Which editions there are.
    pub policy: Policy,
    /// Whether parts may be broken on purpose.
    pub chaos: ChaosConfig,
    /// Where the way of events is told as traces.
    pub telemetry: Telemetry,
    /// What anybody at all may make the server hold.
    pub limits: Limits,
    /// Who may read figures, and of whom.
    pub metrics: Metrics,
    /// How far the clock of the machine is believed.
    pub clock: Clock,
}

/// What the operator wrote, every value by itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    server: Server,
    log: LogConfig,
    publish: Publish,
    auth: RawAuth,
    delivery: RawDelivery,
    journal: Journal,
    topic: Topic,
    dead_letter: RawDeadLetter,
    policy: RawPolicy,
    chaos: ChaosConfig,
    telemetry: Telemetry,
    limits: Limits,
    metrics: Metrics,
    clock: Clock,
}

/// `[server]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Where it listens.
    #[serde(deserialize_with = "read::address")]
    pub listen: SocketAddr,
    /// Where operators connect; [`None`] where they come in with the publishers.
    #[serde(deserialize_with = "read::optional_address")]
    pub admin_listen: Option<SocketAddr>,
    /// Where everything is kept.
    #[serde(deserialize_with = "read::filled")]
    pub data_dir: PathBuf,
    /// Threads that serve HTTP, and as many that deliver; 0 for one a core.
    #[serde(deserialize_with = "read::count::<_, _, 0, 1024>")]
    pub workers: usize,
    /// How long a shutdown waits for what is in flight.
    #[serde(deserialize_with = "read::wait::<_, 0, HOUR>")]
    pub shutdown_wait: Duration,
    /// Guards the control plane; [`None`] where the server shall make one.
    #[serde(deserialize_with = "read::token")]
    pub admin_token: Option<Secret>,
    /// The server's own address, as others see it.
    #[serde(deserialize_with = "read::web")]
    pub public_url: Option<url::Url>,
    /// Further hosts that publishers call it by; `*.` in front stands for one label.
    #[serde(deserialize_with = "read::host_names")]
    pub host_names: Vec<String>,
    /// The file of its certificate; [`None`] where it speaks http.
    #[serde(deserialize_with = "read::optional")]
    pub tls_certificate: Option<PathBuf>,
    /// The file of its private key; there where a certificate is.
    #[serde(deserialize_with = "read::optional")]
    pub tls_key: Option<PathBuf>,
    /// The oldest version of TLS that it speaks.
    #[serde(deserialize_with = "read::tls_version")]
    pub tls_minimum_version: TlsVersion,
    /// A file with what is to be there: applied at every start. [`None`]: there is none.
    #[serde(deserialize_with = "read::optional")]
    pub apply: Option<PathBuf>,
    /// How often its certificate is looked at.
    #[serde(deserialize_with = "read::wait::<_, 100, DAY>")]
    pub tls_reload: Duration,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Its form.
    #[serde(deserialize_with = "read::format")]
    pub format: LogFormat,
    /// What is logged, as `tracing` writes it.
    #[serde(deserialize_with = "read::filter")]
    pub filter: String,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one object in a line.
    Json,
}

/// `[publish]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The most that one request may have.
    #[serde(deserialize_with = "read::size::<_, _, KIB, { 64 * MIB }>")]
    pub request_bytes: usize,
    /// The most that one event may have.
    #[serde(deserialize_with = "read::size::<_, _, KIB, { 64 * MIB }>")]
    pub event_bytes: usize,
    /// The most events that one request may have.
    #[serde(deserialize_with = "read::count::<_, _, 1, 100_000>")]
    pub events_per_request: usize,
    /// The same for topics of namespaces.
    #[serde(deserialize_with = "read::count::<_, _, 1, 100_000>")]
    pub namespace_events_per_request: usize,
    /// The bodies of all requests in progress together.
    #[serde(deserialize_with = "read::size::<_, _, KIB, { 64 * GIB }>")]
    pub bytes_in_flight: usize,
    /// How long a publisher may take to send its body.
    #[serde(deserialize_with = "read::wait::<_, 1, HOUR>")]
    pub body_wait: Duration,
    /// The least that a body must bring in a second while it is waited for; 0 for no bound.
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * MIB }>")]
    pub body_bytes_per_second: u64,
    /// The most events that one topic takes in a second; 0 for no bound.
    #[serde(deserialize_with = "read::event_rate")]
    pub events_per_second: u64,
    /// The most bytes that one topic takes in a second; 0 for no bound.
    #[serde(deserialize_with = "read::byte_rate")]
    pub bytes_per_second: u64,
}

/// `[journal]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// How long a group of outcomes alone waits for company.
    #[serde(deserialize_with = "read::wait::<_, 0, SECOND>")]
    pub outcome_wait: Duration,
    /// A group is closed at this size.
    #[serde(deserialize_with = "read::size::<_, _, { 64 * KIB }, { 256 * MIB }>")]
    pub group_bytes: usize,
    /// The write buffers of all column families together.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 16 * GIB }>")]
    pub write_buffer_bytes: usize,
    /// The write-ahead log.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * GIB }>")]
    pub max_total_wal_bytes: u64,
    /// Blocks kept in memory.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * GIB }>")]
    pub block_cache_bytes: usize,
    /// The ledger.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * TIB }>")]
    pub ledger_bytes: u64,
    /// What endpoints said to requests that failed.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * TIB }>")]
    pub excerpts_bytes: u64,
    /// How many bytes of the store are read in a second to find damage; 0 for none.
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * GIB }>")]
    pub scrub: u64,
    /// How long the log is kept after delivery.
    #[serde(deserialize_with = "read::wait::<_, 0, { 365 * DAY }>")]
    pub retention: Duration,
    /// How much of one topic's log may wait for its slowest subscription.
    #[serde(deserialize_with = "read::size::<_, _, { 64 * KIB }, { 64 * TIB }>")]
    pub backlog_max: u64,
    /// What happens there.
    #[serde(deserialize_with = "read::backlog_full")]
    pub backlog_full: BacklogFull,
}

/// What happens where a topic's backlog is at its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BacklogFull {
    /// Its publishers wait.
    Refuse,
    /// The oldest unread events go.
    Expire,
}

/// `[topic]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// The newest events of all topics together that are kept in memory.
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * GIB }>")]
    pub recent_events_bytes: usize,
    /// The most topics that one domain may have.
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000_000>")]
    pub domain_topics: usize,
}

/// `[policy]`
#[derive(Clone, Debug)]
pub struct Policy {
    /// The edition of a topic that names none: one of `editions`.
    pub edition: String,
    /// All there are.
    pub editions: Editions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    #[serde(deserialize_with = "read::filled")]
    edition: String,
    #[serde(deserialize_with = "read::optional")]
    editions_dir: Option<PathBuf>,
}

/// `[chaos]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChaosConfig {
    /// Whether operators may break parts on purpose.
    #[serde(deserialize_with = "read::flag")]
    pub enabled: bool,
}

/// Half of a pair is a mistake, and plain http the worst way to find it out.
const TLS_PAIR: &str =
    "a file: a certificate (server.tls_certificate) and its key (server.tls_key) are both given, or neither";

/// A text that no log and no message shows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Config {
    /// What the operator wrote, checked.
    pub fn load(sources: &SettingSources) -> Result<Self, Error> {
        let mut layers = Layers::merge(sources)?;
        let RawConfig {
            server,
            log,
            publish,
            auth,
            delivery,
            journal,
            topic,
            dead_letter,
            policy,
            chaos,
            telemetry,
            limits,
            metrics,
            clock,
        } = layers.read()?;

        // Every check runs, so that one start tells all errors.
        let larger = [
            (publish.event_bytes > publish.request_bytes, "publish.event_bytes", "publish.request_bytes"),
            (publish.request_bytes > publish.bytes_in_flight, "publish.request_bytes", "publish.bytes_in_flight"),
            (
                journal.write_buffer_bytes as u64 > journal.max_total_wal_bytes,
                "journal.write_buffer_bytes",
                "journal.max_total_wal_bytes",
            ),
        ];
        for (_, small, large) in larger.into_iter().filter(|(is_larger, ..)| *is_larger) {
            layers.refuse_larger(small, large);
        }

        let auth = auth.resolve(&mut layers);
        match (&server.tls_certificate, &server.tls_key) {
            (Some(_), None) => layers.refuse(&["server.tls_key", "server.tls_certificate"], TLS_PAIR),
            (None, Some(_)) => layers.refuse(&["server.tls_certificate", "server.tls_key"], TLS_PAIR),
            (Some(_), Some(_)) | (None, None) => {}
        }

        let (editions, errors) = Editions::read_all(policy.editions_dir.as_deref(), delivery.suspend_after_failures);
        let all_are_known = errors.is_empty() && !layers.is_replaced("policy.editions_dir");
        for error in errors {
            match error {
                Error::Unreadable { path, error } => {
                    let allowed = format!("a folder of editions that can be read: {}: {error}", path.display());
                    layers.refuse(&["policy.editions_dir"], allowed);
                }
                other => layers.fail(other),
            }
        }
        // An edition that could not be read may be the one that is asked for.
        if all_are_known && editions.get(&policy.edition).is_none() {
            let names: Vec<_> = editions.names().collect();
            layers.refuse(&["policy.edition"], format!("one of {}", names.join(", ")));
        }
        let dead_letter = dead_letter.resolve(&server.data_dir, &mut layers);
        let delivery = delivery.resolve(&server);
        let policy = Policy { edition: policy.edition, editions };
        layers.finish(Self {
            server,
            log,
            publish,
            auth,
            delivery,
            journal,
            topic,
            dead_letter,
            policy,
            chaos,
            telemetry,
            limits,
            metrics,
            clock,
        })
    }
}

/// Every setting as it holds, with where it came from; what could not be run is the same error as at a start.
pub fn settings(sources: &SettingSources) -> Result<Vec<Setting>, Error> {
    Config::load(sources)?;
    Ok(Layers::merge(sources)?.all())
}

/// Variables that are no settings and look as if they were meant to be, each with the name of the one that was meant.
pub fn near_misses(sources: &SettingSources) -> Vec<(String, String)> {
    layers::near_misses(sources)
}

impl Server {
    /// Whether nobody but this machine can connect.
    pub fn is_loopback_only(&self) -> bool {
        self.listen.ip().is_loopback() && self.admin_listen.is_none_or(|address| address.ip().is_loopback())
    }
}
