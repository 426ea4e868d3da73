//! The settings of the operator, and their validated form.
//!
//! [`Config::load`] merges flags, environment, file and defaults ([`SettingSources`]), types every
//! value (`RawConfig`), and checks the relations between values. A [`Config`] is valid. The server
//! reads its environment and its settings file here only; commands read some variables of their own.
//! The defaults are in `config/gridhook.toml` and nowhere else.
//!
//! An invalid value stops the start with its origin, the key, the value and what is allowed. A
//! secret is never shown.
//!
//! On SIGHUP `server` loads the settings again and applies a few of them. The others need a
//! restart, which takes seconds.

mod auth;
mod backup;
mod clock;
mod cluster;
mod dead_letter;
mod delivery;
mod deployments;
mod editions;
mod error;
mod layers;
mod limits;
mod metrics;
mod object_store;
mod read;
mod resources;
mod system_topic;
mod tables;
mod telemetry;
mod values;

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use read::{DAY, GIB, HOUR, KIB, MIB, SECOND, TIB};
use serde::Deserialize;

use self::{
    auth::RawAuth, backup::RawBackup, cluster::RawCluster, dead_letter::RawDeadLetter,
    delivery::RawDelivery, layers::Layers,
};
pub use self::{
    auth::{AuthConfig, IssuerConfig, KeySource},
    backup::Backup,
    clock::Clock,
    cluster::{Cluster, IdentityFiles, NatsLogin, NatsTls, NodeTlsFiles, count_with_control},
    dead_letter::DeadLetter,
    delivery::{Delivery, IdentityConfig, IdentityProofConfig},
    deployments::Deployments,
    editions::Editions,
    error::Error,
    layers::{Setting, SettingFlag, SettingOrigin, SettingSources},
    limits::Limits,
    metrics::Metrics,
    object_store::ObjectStoreConfig,
    resources::ResourceConfig,
    system_topic::SystemTopic,
    telemetry::Telemetry,
    values::{TlsVersion, TrustRoots, ValidationMode},
};

/// The defaults: every key with its description.
pub const DEFAULTS: &str = include_str!("../../config/gridhook.toml");

#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses and the data folder.
    pub server: Server,
    pub log: LogConfig,
    /// The limits of publish requests.
    pub publish: Publish,
    /// Access tokens and trusted proxies.
    pub auth: AuthConfig,
    pub delivery: Delivery,
    /// The store and its limits.
    pub journal: Journal,
    /// The memory and the size of topics.
    pub topic: Topic,
    pub dead_letter: DeadLetter,
    /// The backups at a destination.
    pub backup: Backup,
    pub policy: Policy,
    pub chaos: ChaosConfig,
    pub telemetry: Telemetry,
    /// Limits on what clients can make the server hold.
    pub limits: Limits,
    pub metrics: Metrics,
    pub deployments: Deployments,
    /// The trust in the wall clock.
    pub clock: Clock,
    pub system_topic: SystemTopic,
    /// The cluster that the server is a node of; [`None`] for a server of its own.
    pub cluster: Option<Cluster>,
}

/// The values as written, not yet checked against each other.
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
    backup: RawBackup,
    policy: RawPolicy,
    chaos: ChaosConfig,
    telemetry: Telemetry,
    limits: Limits,
    metrics: Metrics,
    deployments: Deployments,
    clock: Clock,
    system_topic: SystemTopic,
    cluster: RawCluster,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The address of the publishers' listener.
    #[serde(deserialize_with = "read::address")]
    pub listen: SocketAddr,
    /// The address of the operators' listener; [`None`] if they share the publishers'.
    #[serde(deserialize_with = "read::optional_address")]
    pub admin_listen: Option<SocketAddr>,
    #[serde(deserialize_with = "read::filled")]
    pub data_dir: PathBuf,
    /// The number of threads that serve HTTP, and of those that deliver; 0 for one per core.
    #[serde(deserialize_with = "read::count::<_, _, 0, 1024>")]
    pub workers: usize,
    /// The longest time that a stop waits for requests in flight.
    #[serde(deserialize_with = "read::wait::<_, 0, HOUR>")]
    pub shutdown_timeout: Duration,
    /// The admin token; [`None`] if the server creates one.
    #[serde(deserialize_with = "read::token")]
    pub admin_token: Option<Secret>,
    #[serde(deserialize_with = "read::web")]
    pub public_url: Option<url::Url>,
    /// Further hosts by which clients reach the server; a leading `*.` matches one label.
    #[serde(deserialize_with = "read::host_names")]
    pub host_names: Vec<String>,
    /// The file of the TLS certificate; [`None`] for http.
    #[serde(deserialize_with = "read::optional")]
    pub tls_certificate: Option<PathBuf>,
    /// The file of the TLS key, which a certificate needs.
    #[serde(deserialize_with = "read::optional")]
    pub tls_key: Option<PathBuf>,
    #[serde(deserialize_with = "read::tls_version")]
    pub tls_minimum_version: TlsVersion,
    /// A configuration file that is applied at every start.
    #[serde(deserialize_with = "read::optional")]
    pub apply: Option<PathBuf>,
    /// Whether the operators' listener serves the dashboard.
    #[serde(deserialize_with = "read::flag_or_text")]
    pub dashboard: bool,
    /// The interval between two checks of the certificate files.
    #[serde(deserialize_with = "read::wait::<_, 100, DAY>")]
    pub tls_reload: Duration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    #[serde(deserialize_with = "read::format")]
    pub format: LogFormat,
    /// The filter, as `tracing` reads it.
    #[serde(deserialize_with = "read::filter")]
    pub filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The maximum size of a request.
    #[serde(deserialize_with = "read::size::<_, _, KIB, { 64 * MIB }>")]
    pub request_bytes: usize,
    /// The maximum size of an event.
    #[serde(deserialize_with = "read::size::<_, _, KIB, { 64 * MIB }>")]
    pub event_bytes: usize,
    /// The maximum number of events in a request.
    #[serde(deserialize_with = "read::count::<_, _, 1, 100_000>")]
    pub events_per_request: usize,
    /// The maximum number of events in a request to a namespace.
    #[serde(deserialize_with = "read::count::<_, _, 1, 100_000>")]
    pub namespace_events_per_request: usize,
    /// The maximum size of all bodies in flight.
    #[serde(deserialize_with = "read::size::<_, _, KIB, { 64 * GIB }>")]
    pub bytes_in_flight: usize,
    /// The time limit for receiving a body.
    #[serde(deserialize_with = "read::wait::<_, 1, HOUR>")]
    pub body_timeout: Duration,
    /// The minimum rate of a body in bytes a second; 0 for none.
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * MIB }>")]
    pub body_bytes_per_second: u64,
    /// The maximum rate of a topic in events a second; 0 for none.
    #[serde(deserialize_with = "read::event_rate")]
    pub events_per_second: u64,
    /// The maximum rate of a topic in bytes a second; 0 for none.
    #[serde(deserialize_with = "read::byte_rate")]
    pub bytes_per_second: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    #[serde(deserialize_with = "read::count::<_, _, 1, 64>")]
    pub shards: u16,
    /// The time that a batch of outcomes waits for more.
    #[serde(deserialize_with = "read::wait::<_, 0, SECOND>")]
    pub outcome_delay: Duration,
    /// The maximum size of a batch.
    #[serde(deserialize_with = "read::size::<_, _, { 64 * KIB }, { 256 * MIB }>")]
    pub group_bytes: usize,
    /// The size of all write buffers.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 16 * GIB }>")]
    pub write_buffer_bytes: usize,
    /// The size of the write-ahead log.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * GIB }>")]
    pub max_total_wal_bytes: u64,
    /// The size of the block cache.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * GIB }>")]
    pub block_cache_bytes: usize,
    /// The size of the ledger.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * TIB }>")]
    pub ledger_bytes: u64,
    /// The size of the stored responses of failed requests.
    #[serde(deserialize_with = "read::size::<_, _, MIB, { 64 * TIB }>")]
    pub excerpts_bytes: u64,
    /// The rate in bytes a second at which the store is read to find damage; 0 for none.
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * GIB }>")]
    pub scrub: u64,
    /// The time that events are kept after delivery.
    #[serde(deserialize_with = "read::wait::<_, 0, { 365 * DAY }>")]
    pub retention: Duration,
    /// The maximum number of records of the audit trail; 0 for none.
    #[serde(deserialize_with = "read::count::<_, _, 0, 100_000>")]
    pub audit_records: usize,
    /// The time that records of the audit trail are kept.
    #[serde(deserialize_with = "read::wait::<_, { 60 * SECOND }, { 3_650 * DAY }>")]
    pub audit_retention: Duration,
    /// The maximum backlog of a topic for its slowest subscription.
    #[serde(deserialize_with = "read::size::<_, _, { 64 * KIB }, { 64 * TIB }>")]
    pub backlog_max: u64,
    /// The policy of a full backlog.
    #[serde(deserialize_with = "read::backlog_full")]
    pub backlog_full: BacklogFull,
}

/// The policy of a topic whose backlog is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BacklogFull {
    Refuse,
    /// The oldest pending events expire.
    Expire,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// The size of the recent-events cache of all topics.
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * GIB }>")]
    pub recent_events_bytes: usize,
    /// The maximum number of topics in a domain.
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000_000>")]
    pub domain_topics: usize,
}

#[derive(Clone, Debug)]
pub struct Policy {
    /// The default edition of topics.
    pub edition: String,
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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChaosConfig {
    /// Whether operators may inject faults.
    #[serde(deserialize_with = "read::flag")]
    pub enabled: bool,
}

/// Half of a pair is a mistake; serving plain http instead would hide it.
const TLS_PAIR: &str = "a file: server.tls_certificate and server.tls_key are set together";

/// A text that is never shown in a log or message.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

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
    /// Loads and validates the settings.
    pub fn load(sources: &SettingSources) -> Result<Self, Error> {
        let mut layers = Layers::merge_sources(sources)?;
        let raw: RawConfig = layers.read()?;

        // Every check runs, so that one start reports all errors.
        let larger = [
            (
                raw.publish.event_bytes > raw.publish.request_bytes,
                "publish.event_bytes",
                "publish.request_bytes",
            ),
            (
                raw.publish.request_bytes > raw.publish.bytes_in_flight,
                "publish.request_bytes",
                "publish.bytes_in_flight",
            ),
            (
                raw.journal.write_buffer_bytes as u64 > raw.journal.max_total_wal_bytes,
                "journal.write_buffer_bytes",
                "journal.max_total_wal_bytes",
            ),
        ];
        for (_, small, large) in larger.into_iter().filter(|(is_larger, ..)| *is_larger) {
            layers.refuse_larger(small, large);
        }

        let auth = raw.auth.resolve(&mut layers);
        match (&raw.server.tls_certificate, &raw.server.tls_key) {
            (Some(_), None) => {
                layers.refuse_value(&["server.tls_key", "server.tls_certificate"], TLS_PAIR)
            }
            (None, Some(_)) => {
                layers.refuse_value(&["server.tls_certificate", "server.tls_key"], TLS_PAIR)
            }
            (Some(_), Some(_)) | (None, None) => {}
        }

        let (editions, errors) = Editions::read_all(
            raw.policy.editions_dir.as_deref(),
            raw.delivery.suspend_after_failures,
        );
        let all_are_known = errors.is_empty() && !layers.is_replaced("policy.editions_dir");
        for error in errors {
            match error {
                Error::Unreadable { path, error } => {
                    let expectation =
                        format!("a folder of readable editions: {}: {error}", path.display());
                    layers.refuse_value(&["policy.editions_dir"], expectation);
                }
                other => layers.add_error(other),
            }
        }
        // An edition that could not be read may be the configured one.
        if all_are_known && editions.get(&raw.policy.edition).is_none() {
            let names: Vec<_> = editions.names().collect();
            layers.refuse_value(&["policy.edition"], format!("one of {}", names.join(", ")));
        }
        let dead_letter = raw.dead_letter.resolve(&raw.server.data_dir, &mut layers);
        let backup = raw.backup.resolve(&mut layers);
        let delivery = raw.delivery.resolve(&raw.server, &mut layers);
        let cluster = raw.cluster.resolve(&raw.server, &mut layers);
        let policy = Policy {
            edition: raw.policy.edition,
            editions,
        };
        layers.finish_with(Self {
            auth,
            delivery,
            dead_letter,
            backup,
            policy,
            cluster,
            server: raw.server,
            log: raw.log,
            publish: raw.publish,
            journal: raw.journal,
            topic: raw.topic,
            chaos: raw.chaos,
            telemetry: raw.telemetry,
            limits: raw.limits,
            metrics: raw.metrics,
            deployments: raw.deployments,
            clock: raw.clock,
            system_topic: raw.system_topic,
        })
    }
}

/// Every setting in effect, with its origin. Settings that stop a start are the same error.
pub fn effective_settings(sources: &SettingSources) -> Result<Vec<Setting>, Error> {
    Config::load(sources)?;
    Ok(Layers::merge_sources(sources)?.all_settings())
}

/// The unknown variables that resemble a setting, each with the suggested variable.
pub fn near_misses(sources: &SettingSources) -> Vec<(String, String)> {
    layers::near_misses(sources)
}

impl Server {
    /// Whether only this machine can connect.
    pub fn is_loopback_only(&self) -> bool {
        self.listen.ip().is_loopback()
            && self
                .admin_listen
                .is_none_or(|address| address.ip().is_loopback())
    }
}
