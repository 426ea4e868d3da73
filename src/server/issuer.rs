//! The door for publishers, and the public keys of the issuer of access tokens: read from a file or fetched, and again
//! now and then.
//!
//! A file that cannot be read stops the start, because only the operator can mend it. An address that does not answer does
//! not: the issuer may be down for a moment, and access keys work all the same. The keys that were there are kept until new
//! ones have come.

use std::{fs, rc::Rc, sync::Arc, time::Duration};

use awc::{Client, Connector};
use tracing::{info, warn};
use url::Url;

use crate::{
    admin::auth::AdminToken,
    config::{Config, IssuerConfig, KeySource},
    deliver::TlsTrust,
    publish::auth::{
        AuthRules, Authenticator,
        bearer::{self, BearerAuth, Keyring, OperatorClaims, Operators, UnusableKeySet},
        failed_auth::FailedAuthLimiter,
        host::ServerNames,
    },
};

/// Issuers have a few kilobytes of keys; more is something else.
const KEYS_BYTES_MAX: usize = 256 * 1024;

/// Names, connection, TLS and answer together.
const FETCH_WAIT: Duration = Duration::from_secs(10);

/// After a failure, and between two readings because of a key that is not known: whoever makes tokens up must not make the
/// server call somebody else all the time.
const PAUSE: Duration = Duration::from_secs(30);

/// Why there are no keys, or no new ones.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssuerError {
    /// The file.
    #[error("{0} cannot be read: {1}")]
    File(String, std::io::Error),
    /// The address.
    #[error("{0} gave no keys: {1}")]
    Web(Url, String),
    /// What there is.
    #[error("what {0} has cannot be used: {1}")]
    Keys(String, UnusableKeySet),
}

/// Who has access, and by which keys.
pub(super) struct TokenAccess {
    /// Checks publishers.
    pub(super) gate: Authenticator,
    /// Checks operators with a token of the issuer, where a role is set.
    pub(super) operators: Option<Operators>,
    /// Where the issuer's keys are read again, where there is an issuer.
    pub(super) keys: Option<Rc<KeySetSource>>,
}

/// The door for publishers: with the admin token, and with what the issuer signs, if there is one. Then who may operate the
/// server with a token of the issuer.
pub(super) fn gate(
    config: &Config,
    token: &AdminToken,
    trust: &TlsTrust,
    strangers: Arc<FailedAuthLimiter>,
) -> Result<TokenAccess, IssuerError> {
    let issuer = match &config.auth.issuer {
        Some(issuer) => {
            let (keys, source) = keep(issuer, trust)?;
            let issuer = bearer::TokenIssuer { name: issuer.name.clone(), audience: issuer.audience.clone(), keys };
            (Some(issuer), Some(source))
        }
        None => (None, None),
    };
    let (issuer, source) = issuer;
    let role = config.auth.issuer.as_ref().and_then(|issuer| issuer.admin_role.clone());
    let operators = issuer.clone().zip(role).map(|(issuer, role)| Operators { issuer, role });
    let token = token.clone();
    let operator: OperatorClaims = Arc::new(move |given| token.is(given));
    let gate = Authenticator::new(AuthRules {
        trusted_proxies: config.auth.trusted_proxies.clone(),
        names: ServerNames { public_url: config.server.public_url.clone(), others: config.server.host_names.clone() },
        bearer: BearerAuth { operator: Some(operator), issuer },
        strangers,
    });
    Ok(TokenAccess { gate, operators, keys: source })
}

/// Whether the file of the issuer's keys can be used, where there is one.
pub(super) fn check(config: &Config) -> Result<(), IssuerError> {
    let read = |issuer: &IssuerConfig| read_file(issuer, &Keyring::default());
    config.auth.issuer.as_ref().map_or(Ok(0), read).map(drop)
}

/// The keys of `issuer`, kept up to date by a task on this arbiter.
fn keep(issuer: &IssuerConfig, trust: &TlsTrust) -> Result<(Arc<Keyring>, Rc<KeySetSource>), IssuerError> {
    let keys = Arc::new(Keyring::default());
    if let KeySource::File(_) = issuer.keys {
        read_file(issuer, &keys)?;
    }
    let source = KeySetSource { issuer: issuer.clone(), keys: Arc::clone(&keys), client: client(trust) };
    let source = Rc::new(source);
    actix_rt::spawn(refresh(Rc::clone(&source)));
    Ok((keys, source))
}

/// Where the keys of an issuer are read from.
pub(super) struct KeySetSource {
    issuer: IssuerConfig,
    keys: Arc<Keyring>,
    client: Client,
}

impl KeySetSource {
    /// Reads them again: how many there are.
    pub(super) async fn read(&self) -> Result<usize, IssuerError> {
        match &self.issuer.keys {
            KeySource::File(_) => read_file(&self.issuer, &self.keys),
            KeySource::Web(url) => fetch(&self.client, url, &self.keys).await,
        }
    }
}

async fn refresh(source: Rc<KeySetSource>) {
    let KeySetSource { issuer, keys, .. } = &*source;
    loop {
        match source.read().await {
            Ok(count) => {
                info!(issuer = issuer.name, count, "keys of the issuer read");
                tokio::time::sleep(PAUSE).await;
                tokio::select! {
                    () = tokio::time::sleep(issuer.refresh.saturating_sub(PAUSE)) => {}
                    () = keys.missing() => {}
                }
            }
            Err(error) => {
                warn!(issuer = issuer.name, %error, "keys of the issuer not read; those from before are kept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn read_file(issuer: &IssuerConfig, keys: &Keyring) -> Result<usize, IssuerError> {
    let KeySource::File(path) = &issuer.keys else { return Ok(0) };
    let name = path.display().to_string();
    let set = fs::read(path).map_err(|error| IssuerError::File(name.clone(), error))?;
    keys.replace(&set).map_err(|error| IssuerError::Keys(name, error))
}

async fn fetch(client: &Client, url: &Url, keys: &Keyring) -> Result<usize, IssuerError> {
    let failed = |what: String| IssuerError::Web(url.clone(), what);
    let mut response = client.get(url.as_str()).send().await.map_err(|error| failed(error.to_string()))?;
    if !response.status().is_success() {
        return Err(failed(format!("the answer is {}", response.status())));
    }
    let set = response.body().limit(KEYS_BYTES_MAX).await.map_err(|error| failed(error.to_string()))?;
    keys.replace(&set).map_err(|error| IssuerError::Keys(url.to_string(), error))
}

/// Redirects are not followed: the operator names the address, and nobody else does.
fn client(trust: &TlsTrust) -> Client {
    let connector = Connector::new().rustls_0_23(trust.config()).timeout(FETCH_WAIT);
    Client::builder().connector(connector).disable_redirects().timeout(FETCH_WAIT).finish()
}
