//! `[delivery]`: requests to endpoints.

use std::{collections::BTreeMap, fmt, fs, net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde::Deserialize;
use url::{Position, Url};

use super::{
    Server,
    auth::is_confidential,
    layers::Layers,
    read::{self, DAY, HOUR},
    resources::{self, RawResource, ResourceConfig},
    values::{TlsVersion, TrustRoots, ValidationMode},
};

#[derive(Clone, Debug)]
pub struct Delivery {
    /// The time in which a response must begin.
    pub response_timeout: Duration,
    /// The time in which a late response still counts as success.
    pub late_timeout: Duration,
    /// The minimum pause between connection attempts to an unreachable endpoint.
    pub reconnect_interval: Duration,
    /// The time without a success after which a failing subscription is held; [`None`]: it is not.
    pub hold_after_failing: Option<Duration>,
    /// The maximum number of requests in flight for one subscription.
    pub concurrency: usize,
    /// The size of all request bodies in flight.
    pub bytes_in_flight: usize,
    /// The events of a batch where a subscription sets only its size.
    pub batch_events: u32,
    /// The kilobytes of a batch where a subscription sets only its count.
    pub batch_kilobytes: u32,
    /// The time that an idle connection is kept.
    pub idle_connection_timeout: Duration,
    pub allow_http: bool,
    /// The allowed networks that are not public.
    pub allow_networks: Vec<IpNet>,
    /// Whether event subscriptions may have the test endpoint.
    pub test_endpoint: bool,
    pub validate: ValidationMode,
    pub tls_roots: Vec<TrustRoots>,
    pub tls_minimum_version: TlsVersion,
    /// The name servers; the system's if empty.
    pub name_servers: Vec<SocketAddr>,
    /// The name of the egress proxy of all subscriptions without one of their own.
    pub proxy: Option<String>,
    /// The networks that are connected without a proxy.
    pub proxy_bypass: Vec<IpNet>,
    /// The folder of client certificates.
    pub client_certificates_dir: Option<PathBuf>,
    /// The users of client certificates, as `NAME SCOPE,SCOPE`.
    pub client_certificates_used_by: Vec<String>,
    /// The audiences of access tokens for endpoints and their users, as `AUDIENCE SCOPE,SCOPE` or
    /// `AUDIENCE@TENANT SCOPE,SCOPE`.
    pub identity_audiences: Vec<String>,
    /// The services that event subscriptions deliver to besides webhooks.
    pub resources: Vec<ResourceConfig>,
    /// The identity of the server towards endpoints that demand access tokens.
    pub identity: Option<IdentityConfig>,
}

/// The identity of the server towards endpoints: OAuth 2.0 client credentials.
#[derive(Clone, Debug)]
pub struct IdentityConfig {
    /// The URL of tokens, with `{tenant}` for the tenant of a subscription.
    pub token_url: String,
    pub client_id: String,
    pub proof: IdentityProofConfig,
}

/// How the server proves its identity.
#[derive(Clone, Debug)]
pub enum IdentityProofConfig {
    /// The file of the client secret.
    Secret(PathBuf),
    Certificate {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the certificate's key.
        key: PathBuf,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDelivery {
    #[serde(deserialize_with = "read::wait::<_, 1, HOUR>")]
    response_timeout: Duration,
    #[serde(deserialize_with = "read::wait::<_, 0, HOUR>")]
    late_timeout: Duration,
    #[serde(deserialize_with = "read::wait::<_, 0, HOUR>")]
    reconnect_interval: Duration,
    #[serde(deserialize_with = "read::wait::<_, 0, { 365 * DAY }>")]
    hold_after_failing: Duration,
    #[serde(deserialize_with = "read::count::<_, _, 1, 10_000>")]
    concurrency: usize,
    #[serde(deserialize_with = "read::size::<_, _, { 8 << 20 }, { 64 << 30 }>")]
    bytes_in_flight: usize,
    #[serde(deserialize_with = "read::count::<_, _, 2, 5000>")]
    batch_events: u32,
    #[serde(deserialize_with = "read::count::<_, _, 1, 1024>")]
    batch_kilobytes: u32,
    #[serde(deserialize_with = "read::wait::<_, 0, HOUR>")]
    idle_connection_timeout: Duration,
    #[serde(deserialize_with = "read::switch")]
    allow_http: AutoSwitch<bool>,
    #[serde(deserialize_with = "read::networks")]
    allow_networks: AutoSwitch<Vec<IpNet>>,
    #[serde(deserialize_with = "read::switch")]
    test_endpoint: AutoSwitch<bool>,
    #[serde(deserialize_with = "read::failures")]
    pub(super) suspend_after_failures: Option<u32>,
    #[serde(deserialize_with = "read::flag")]
    validate: bool,
    #[serde(deserialize_with = "read::wait::<_, 1, HOUR>")]
    validate_timeout: Duration,
    #[serde(deserialize_with = "read::wait::<_, 1, HOUR>")]
    validate_pause: Duration,
    #[serde(deserialize_with = "read::wait::<_, 1, DAY>")]
    validate_window: Duration,
    #[serde(deserialize_with = "read::count::<_, _, 1, 1_000_000>")]
    request_rate: u32,
    #[serde(deserialize_with = "read::roots")]
    tls_roots: Vec<TrustRoots>,
    #[serde(deserialize_with = "read::tls_version")]
    tls_minimum_version: TlsVersion,
    #[serde(deserialize_with = "read::name_servers")]
    name_servers: Vec<SocketAddr>,
    #[serde(deserialize_with = "read::optional")]
    proxy: Option<String>,
    #[serde(deserialize_with = "read::network_list")]
    proxy_bypass: Vec<IpNet>,
    #[serde(deserialize_with = "read::optional")]
    client_certificates_dir: Option<PathBuf>,
    #[serde(deserialize_with = "read::use_rules")]
    client_certificates_used_by: Vec<String>,
    #[serde(deserialize_with = "read::use_rules")]
    identity_audiences: Vec<String>,
    #[serde(deserialize_with = "read::optional")]
    identity_token_url: Option<String>,
    #[serde(deserialize_with = "read::optional")]
    identity_client_id: Option<String>,
    #[serde(deserialize_with = "read::optional")]
    identity_secret_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    identity_certificate_file: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    identity_key_file: Option<PathBuf>,
    #[serde(default)]
    resources: BTreeMap<String, RawResource>,
}

/// The settings of the identity.
struct RawIdentity {
    token_url: Option<String>,
    client_id: Option<String>,
    secret_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

/// The identity, if it is set. All of its keys must be set, or none.
fn resolve_identity(raw: RawIdentity, layers: &mut Layers) -> Option<IdentityConfig> {
    const KEYS: [&str; 5] = [
        "delivery.identity_token_url",
        "delivery.identity_client_id",
        "delivery.identity_secret_file",
        "delivery.identity_certificate_file",
        "delivery.identity_key_file",
    ];
    let (token_url, client_id, proof) = match raw {
        RawIdentity {
            token_url: None,
            client_id: None,
            secret_file: None,
            certificate_file: None,
            key_file: None,
        } => {
            return None;
        }
        RawIdentity {
            token_url: Some(token_url),
            client_id: Some(client_id),
            secret_file: Some(file),
            certificate_file: None,
            key_file: None,
        } => {
            if let Err(error) = fs::read_to_string(&file) {
                layers.refuse_value(&KEYS[2..3], format!("a file that can be read: {error}"));
            }
            (token_url, client_id, IdentityProofConfig::Secret(file))
        }
        RawIdentity {
            token_url: Some(token_url),
            client_id: Some(client_id),
            secret_file: None,
            certificate_file: Some(certificate),
            key_file: Some(key),
        } => (
            token_url,
            client_id,
            IdentityProofConfig::Certificate { certificate, key },
        ),
        _ => {
            let expectation = "the URL, the client id, and either the secret or both the certificate \
                and its key; or none of them";
            layers.refuse_value(&KEYS, expectation);
            return None;
        }
    };
    // The tenant comes from a subscription, and must not choose the host.
    let is_fixed =
        |(one, other): &(Url, Url)| one[..Position::BeforePath] == other[..Position::BeforePath];
    let url_of_a = url_of_tenant(&token_url, "a");
    let url_of_b = url_of_tenant(&token_url, "b");
    if !url_of_a.zip(url_of_b).as_ref().is_some_and(is_fixed) {
        let expectation = "an https URL, or an http URL of loopback; {tenant} may be in its path";
        layers.refuse_value(&KEYS[..1], expectation);
    }
    Some(IdentityConfig {
        token_url,
        client_id,
        proof,
    })
}

/// The URL for the tokens of a tenant, if they stay secret on the way there.
fn url_of_tenant(token_url: &str, tenant: &str) -> Option<Url> {
    Url::parse(&token_url.replace("{tenant}", tenant))
        .ok()
        .filter(is_confidential)
}

/// A setting whose default depends on the listening address.
pub(super) enum AutoSwitch<T> {
    Auto,
    Set(T),
}

impl RawDelivery {
    /// A server that listens on loopback only may deliver to loopback and by http. Any other server
    /// needs a setting for each.
    pub(super) fn resolve(self, server: &Server, layers: &mut Layers) -> Delivery {
        let loopback = server.is_loopback_only();
        let resources = resources::resolve(self.resources, layers);
        let mut proxies = resources.iter().filter(|one| one.url.scheme() == "proxy");
        if let Some(name) = &self.proxy
            && !proxies.any(|proxy| proxy.name == *name)
        {
            layers.refuse_value(
                &["delivery.proxy"],
                "the name of a table of delivery.resources with a URL such as proxy://host:3128",
            );
        }
        let identity_settings = RawIdentity {
            token_url: self.identity_token_url,
            client_id: self.identity_client_id,
            secret_file: self.identity_secret_file,
            certificate_file: self.identity_certificate_file,
            key_file: self.identity_key_file,
        };
        Delivery {
            response_timeout: self.response_timeout,
            late_timeout: self.late_timeout,
            reconnect_interval: self.reconnect_interval,
            hold_after_failing: Some(self.hold_after_failing).filter(|wait| !wait.is_zero()),
            concurrency: self.concurrency,
            bytes_in_flight: self.bytes_in_flight,
            batch_events: self.batch_events,
            batch_kilobytes: self.batch_kilobytes,
            idle_connection_timeout: self.idle_connection_timeout,
            allow_http: match self.allow_http {
                AutoSwitch::Auto => loopback,
                AutoSwitch::Set(allowed) => allowed,
            },
            allow_networks: match self.allow_networks {
                AutoSwitch::Auto if loopback => ["127.0.0.0/8", "::1/128"]
                    .map(|net| net.parse().expect("a network"))
                    .to_vec(),
                AutoSwitch::Auto => Vec::new(),
                AutoSwitch::Set(networks) => networks,
            },
            test_endpoint: match self.test_endpoint {
                AutoSwitch::Auto => loopback,
                AutoSwitch::Set(enabled) => enabled,
            },
            validate: ValidationMode {
                enabled: self.validate,
                wait: self.validate_timeout,
                pause: self.validate_pause,
                window: self.validate_window,
                request_rate: self.request_rate,
            },
            tls_roots: self.tls_roots,
            tls_minimum_version: self.tls_minimum_version,
            name_servers: self.name_servers,
            proxy: self.proxy,
            proxy_bypass: self.proxy_bypass,
            client_certificates_dir: self.client_certificates_dir,
            client_certificates_used_by: self.client_certificates_used_by,
            identity_audiences: self.identity_audiences,
            resources,
            identity: resolve_identity(identity_settings, layers),
        }
    }
}

impl fmt::Display for Delivery {
    /// The allowed endpoints, for the log line of the start.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.allow_http {
            "http and https endpoints"
        } else {
            "https endpoints only"
        })?;
        f.write_str(", at public addresses")?;
        self.allow_networks
            .iter()
            .try_for_each(|network| write!(f, " and in {network}"))
    }
}
