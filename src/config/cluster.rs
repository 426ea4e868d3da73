//! `[cluster]`: several nodes that replicate one store.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{
    Server,
    layers::Layers,
    read::{self, HOUR, KIB, TIB},
};

/// A node of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub name: String,
    /// The name of the node.
    pub node: String,
    pub urls: Vec<String>,
    /// The authorities and the client certificate of TLS to these servers.
    pub nats_tls: NatsTls,
    /// How the node logs in to the servers of NATS.
    pub login: NatsLogin,
    /// The login of the system account that shows whether the servers sync every write; [`None`] if
    /// that is not checked.
    pub system_login: Option<NatsLogin>,
    /// The number of NATS servers that keep a record.
    pub replicas: usize,
    /// The maximum size of the changelog in bytes; 0 for the limit of the servers.
    pub stream_bytes: u64,
    /// The size of applied records that the changelog keeps.
    pub stream_keep_bytes: u64,
    /// The newest format of records in the changelog that this node writes.
    pub record_format: u8,
    /// The maximum of bytes a second of a store that another node is sent.
    pub copy_rate: u64,
    pub shards: usize,
    /// The address of the listener for other nodes.
    pub listen: SocketAddr,
    /// The address by which other nodes reach the listener; [`None`] for its own address.
    pub advertise: Option<String>,
    /// The file of the secret that all nodes share.
    pub secret_file: PathBuf,
    /// The files of TLS between nodes; [`None`] if they do not use it.
    pub node_tls: Option<NodeTlsFiles>,
    /// The time without a renewal after which a node is dead.
    pub expiry: Duration,
}

/// TLS to servers of NATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// The file of the authorities; [`None`] for `delivery.tls_roots`.
    pub authorities: Option<PathBuf>,
    pub identity: Option<IdentityFiles>,
}

/// The files of TLS between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTlsFiles {
    pub authorities: PathBuf,
    /// The certificate of the node.
    pub identity: IdentityFiles,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NatsLogin {
    Anonymous,
    Credentials(PathBuf),
    /// A name, and the file of the password.
    Password(String, PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCluster {
    #[serde(deserialize_with = "read::filled")]
    engine: String,
    #[serde(deserialize_with = "read::filled")]
    name: String,
    #[serde(deserialize_with = "read::optional")]
    node: Option<String>,
    #[serde(deserialize_with = "read::list")]
    urls: Vec<String>,
    #[serde(deserialize_with = "read::optional")]
    ca_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    certificate_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    key_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    credentials: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    username: Option<String>,
    #[serde(deserialize_with = "read::optional")]
    password_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::filled")]
    durability: String,
    #[serde(deserialize_with = "read::optional")]
    system_credentials: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    system_username: Option<String>,
    #[serde(deserialize_with = "read::optional")]
    system_password_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::count::<_, _, 1, 5>")]
    replicas: usize,
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * TIB }>")]
    stream_bytes: u64,
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * TIB }>")]
    stream_keep_bytes: u64,
    #[serde(deserialize_with = "read::count::<_, _, 1, 2>")]
    record_format: u8,
    #[serde(deserialize_with = "read::size::<_, _, { 64 * KIB }, TIB>")]
    copy_rate: u64,
    #[serde(deserialize_with = "read::count::<_, _, 1, 64>")]
    shards: usize,
    #[serde(deserialize_with = "read::optional_address")]
    node_listen: Option<SocketAddr>,
    #[serde(deserialize_with = "read::optional")]
    advertise: Option<String>,
    #[serde(deserialize_with = "read::optional")]
    secret_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    node_ca_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    node_certificate_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    node_key_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::wait::<_, 200, HOUR>")]
    expiry: Duration,
}

/// The form of the names of a cluster and of a node, which are parts of names in NATS.
const NAME: &str = "1 to 32 letters, digits, - and _";

impl RawCluster {
    /// The settings of the node; [`None`] for a server without a cluster.
    pub(super) fn resolve(self, server: &Server, layers: &mut Layers) -> Option<Cluster> {
        if !is_node(&self.engine, layers) {
            if self.engine == "none" && !self.urls.is_empty() {
                // The server would acknowledge events that no other node has.
                let expectation = "\"nats\", or no addresses of NATS servers for a single server";
                layers.refuse_value(&["cluster.engine", "cluster.urls"], expectation);
            }
            return None;
        }
        self.check_names(layers);
        check_urls(layers, &self.urls);
        let nats_files = TlsPaths {
            authorities: self.ca_file,
            certificate: self.certificate_file,
            key: self.key_file,
        };
        let nats_tls = resolve_nats_tls(layers, &self.urls, nats_files);
        let node_files = TlsPaths {
            authorities: self.node_ca_file,
            certificate: self.node_certificate_file,
            key: self.node_key_file,
        };
        let node_tls = resolve_node_tls(layers, node_files);
        let login = RawLogin {
            credentials: self.credentials,
            username: self.username,
            password: self.password_file,
        };
        let login = resolve_login(layers, "", login);
        let system_login = RawLogin {
            credentials: self.system_credentials,
            username: self.system_username,
            password: self.system_password_file,
        };
        let system_login = resolve_system_login(layers, &self.durability, system_login);
        if !matches!(self.replicas, 1 | 3 | 5) {
            layers.refuse_value(&["cluster.replicas"], "1, 3 or 5");
        }
        if self.stream_bytes > 0 && self.stream_bytes < 2 * self.stream_keep_bytes {
            let keys = ["cluster.stream_bytes", "cluster.stream_keep_bytes"];
            layers.refuse_value(&keys, "0, or at least twice cluster.stream_keep_bytes");
        }
        if server.admin_token.is_none() {
            let expectation =
                "a token that all nodes of the cluster share (cluster.engine is \"nats\")";
            layers.refuse_value(&["server.admin_token"], expectation);
        }
        check_node_address(layers, self.node_listen, self.advertise.as_deref());
        if self.secret_file.is_none() {
            layers.refuse_value(
                &["cluster.secret_file"],
                "a file with a secret that all nodes of the cluster share",
            );
        }
        Some(Cluster {
            name: self.name,
            node: self.node.unwrap_or_default(),
            urls: self.urls,
            nats_tls,
            login,
            system_login,
            replicas: self.replicas,
            stream_bytes: self.stream_bytes,
            stream_keep_bytes: self.stream_keep_bytes,
            record_format: self.record_format,
            copy_rate: self.copy_rate,
            shards: self.shards,
            listen: self.node_listen?,
            advertise: self.advertise,
            secret_file: self.secret_file?,
            node_tls,
            expiry: self.expiry,
        })
    }

    fn check_names(&self, layers: &mut Layers) {
        if !is_name(&self.name) {
            layers.refuse_value(&["cluster.name"], NAME);
        }
        if !self.node.as_deref().is_some_and(is_name) {
            layers.refuse_value(
                &["cluster.node"],
                format!("a name that no other node has, {NAME}"),
            );
        }
    }
}

/// Whether `cluster.engine` makes the server a node of a cluster.
fn is_node(engine: &str, layers: &mut Layers) -> bool {
    match engine {
        "none" => false,
        "nats" if cfg!(feature = "nats") => true,
        "nats" => {
            layers.refuse_value(
                &["cluster.engine"],
                "\"none\", because this build of gridhook has no NATS client (feature nats)",
            );
            false
        }
        _ => {
            layers.refuse_value(&["cluster.engine"], "\"none\" or \"nats\"");
            false
        }
    }
}

fn check_urls(layers: &mut Layers, urls: &[String]) {
    // A login in a URL would be shown, and NATS would not get it.
    if urls.iter().any(|url| url.contains('@')) {
        let expectation = "addresses without user information; the login is cluster.username with \
            cluster.password_file, or cluster.credentials";
        layers.refuse_value(&["cluster.urls"], expectation);
    }
    let is_server = |url: &String| url.starts_with("nats://") || url.starts_with("tls://");
    if urls.is_empty() || !urls.iter().all(is_server) {
        layers.refuse_value(
            &["cluster.urls"],
            "addresses of NATS servers such as [\"nats://10.0.0.1:4222\"]",
        );
    }
}

/// The number of stores, changelogs and claims of a cluster with `shards` shards for topics: with
/// several, the control plane has one of its own behind them.
pub fn count_with_control(shards: usize) -> usize {
    if shards > 1 { shards + 1 } else { shards }
}

/// Checks that other nodes can reach this one.
fn check_node_address(layers: &mut Layers, listen: Option<SocketAddr>, advertise: Option<&str>) {
    match listen {
        None => layers.refuse_value(
            &["cluster.node_listen"],
            "an address that other nodes reach, such as \"10.0.0.1:8082\"",
        ),
        Some(listen) if listen.ip().is_unspecified() && advertise.is_none() => layers.refuse_value(
            &["cluster.advertise"],
            "the host and port of cluster.node_listen as other nodes reach them",
        ),
        Some(_) => {}
    }
}

/// The files of TLS as the operator named them.
struct TlsPaths {
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// A login as the operator wrote it.
struct RawLogin {
    credentials: Option<PathBuf>,
    username: Option<String>,
    /// The file of the password.
    password: Option<PathBuf>,
}

fn resolve_nats_tls(layers: &mut Layers, urls: &[String], paths: TlsPaths) -> NatsTls {
    let TlsPaths {
        authorities,
        certificate,
        key,
    } = paths;
    let keys = [
        "cluster.ca_file",
        "cluster.certificate_file",
        "cluster.key_file",
    ];
    let is_any = authorities.is_some() || certificate.is_some() || key.is_some();
    if is_any && !urls.iter().all(|url| url.starts_with("tls://")) {
        layers.refuse_value(
            &["cluster.urls"],
            format!(
                "addresses with tls://, because one of {} is set",
                keys.join(", ")
            ),
        );
    }
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(IdentityFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            layers.refuse_value(
                &keys[1..],
                "two files: cluster.certificate_file and cluster.key_file are set together",
            );
            None
        }
    };
    NatsTls {
        authorities,
        identity,
    }
}

fn resolve_node_tls(layers: &mut Layers, paths: TlsPaths) -> Option<NodeTlsFiles> {
    match paths {
        TlsPaths {
            authorities: Some(authorities),
            certificate: Some(certificate),
            key: Some(key),
        } => Some(NodeTlsFiles {
            authorities,
            identity: IdentityFiles { certificate, key },
        }),
        TlsPaths {
            authorities: None,
            certificate: None,
            key: None,
        } => None,
        _ => {
            let keys = [
                "cluster.node_ca_file",
                "cluster.node_certificate_file",
                "cluster.node_key_file",
            ];
            layers.refuse_value(
                &keys,
                format!("files: {} are set together", keys.join(", ")),
            );
            None
        }
    }
}

fn resolve_system_login(
    layers: &mut Layers,
    durability: &str,
    login: RawLogin,
) -> Option<NatsLogin> {
    match durability {
        "fsync" => match resolve_login(layers, "system_", login) {
            NatsLogin::Anonymous => {
                let keys = ["cluster.system_credentials", "cluster.system_username"];
                let expectation = "a login of the system account, which shows whether the NATS servers \
                    sync every write; cluster.durability = \"unchecked\" needs none";
                layers.refuse_value(&keys, expectation);
                None
            }
            login => Some(login),
        },
        "unchecked" => None,
        _ => {
            layers.refuse_value(&["cluster.durability"], "\"fsync\" or \"unchecked\"");
            None
        }
    }
}

fn resolve_login(
    layers: &mut Layers,
    prefix: &str,
    RawLogin {
        credentials,
        username,
        password,
    }: RawLogin,
) -> NatsLogin {
    match (credentials, username, password) {
        (None, None, None) => NatsLogin::Anonymous,
        (Some(file), None, None) => NatsLogin::Credentials(file),
        (None, Some(username), Some(password)) => NatsLogin::Password(username, password),
        _ => {
            let [credentials, username, password] = ["credentials", "username", "password_file"]
                .map(|key| format!("cluster.{prefix}{key}"));
            let expectation =
                format!("{credentials}, or {username} with {password}, or none of them");
            layers.refuse_value(&[&credentials, &username, &password], expectation);
            NatsLogin::Anonymous
        }
    }
}

fn is_name(text: &str) -> bool {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    (1..=32).contains(&text.len()) && text.chars().all(is_allowed)
}
