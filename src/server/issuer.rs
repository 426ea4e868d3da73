//! The authenticator of publishers, and the public keys of the issuer of access tokens.
//!
//! The keys are read from a file or fetched from a URL, and refreshed periodically. A file that
//! cannot be read stops the start, because only the operator can correct it. A URL that does not
//! respond does not: the outage may be short, and access keys still work. The last keys stay in use
//! until new ones arrive.

use std::{fs, rc::Rc, sync::Arc, time::Duration};

use awc::{Client, Connector};
use tracing::{info, warn};
use url::Url;

use gridhook_admin::admin_token::AdminToken;
use gridhook_config::{Config, IssuerConfig, KeySource};
use gridhook_deliver::TlsTrust;
use gridhook_engine::control::tokens::Tokens;
use gridhook_publish::auth::{
    AuthRules, Authenticator,
    bearer::{self, AdminTokenCheck, BearerAuth, ClaimRule, Keyring, TokenIssuer, UnusableKeySet},
    failed_auth::FailedAuthLimiter,
    host::ServerNames,
};
use gridhook_record::token::{Grant, InvalidGrant, TokenRole};

/// A key set has a few kilobytes.
const KEYS_BYTES_MAX: usize = 256 * 1024;

/// The timeout for name resolution, connection, TLS and response together.
const FETCH_WAIT: Duration = Duration::from_secs(10);

/// The pause between two refreshes for an unknown key, and the longest one after failures. Without
/// it, forged tokens would make the server send requests to the issuer without end.
const PAUSE: Duration = Duration::from_secs(30);

/// The pause after the first failure. It doubles with each further one.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The keys cannot be read or replaced.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssuerError {
    /// The file cannot be read.
    #[error("auth.jwks: {0} cannot be read: {1}")]
    File(String, std::io::Error),
    /// The URL cannot be fetched.
    #[error("auth.jwks: cannot fetch keys from {0}: {1}")]
    Web(Url, String),
    /// A rule for claims cannot be read.
    #[error("auth.grants: \"{0}\": {1}")]
    Grant(String, String),
    /// The key set cannot be used.
    #[error("auth.jwks: the key set of {0} cannot be used: {1}")]
    Keys(String, UnusableKeySet),
}

/// The parts that check credentials.
pub(super) struct TokenAccess {
    pub(super) gate: Authenticator,
    /// The issuer of operators' access tokens, if `auth.admin_role` or `auth.grants` names one of
    /// their claims.
    pub(super) operators: Option<TokenIssuer>,
    /// The source of the issuer's keys, if there is an issuer.
    pub(super) keys: Option<Rc<KeySetSource>>,
}

/// Creates the authenticator of publishers (access keys, the admin token, named tokens, the
/// issuer's access tokens), and that of operators.
pub(super) fn build_gates(
    config: &Config,
    public_url: &str,
    token: &AdminToken,
    tokens: &Arc<Tokens>,
    trust: &TlsTrust,
    failed_auth: Arc<FailedAuthLimiter>,
) -> Result<TokenAccess, IssuerError> {
    let issuer = match &config.auth.issuer {
        Some(issuer) => {
            let (keys, source) = start_keyring(issuer, trust)?;
            // Clients that learn the server's address from `/metadata/endpoints` request tokens for
            // it.
            let mut audiences = issuer.audiences.clone();
            audiences.push(public_url.to_owned());
            let name = issuer.name.clone();
            let rules = claim_rules(issuer)?;
            (
                Some(bearer::TokenIssuer {
                    name,
                    audiences,
                    keys,
                    rules,
                }),
                Some(source),
            )
        }
        None => (None, None),
    };
    let (issuer, source) = issuer;
    let operators = issuer.clone().filter(|issuer| !issuer.rules.is_empty());
    let token = token.clone();
    let operator: AdminTokenCheck = Arc::new(move |given| token.matches(given));
    let gate = Authenticator::new(AuthRules {
        trusted_proxies: config.auth.trusted_proxies.clone(),
        names: server_names(config),
        bearer: BearerAuth {
            operator: Some(operator),
            tokens: Some(Arc::clone(tokens)),
            issuer,
        },
        failed_auth,
    });
    Ok(TokenAccess {
        gate,
        operators,
        keys: source,
    })
}

pub(super) fn server_names(config: &Config) -> ServerNames {
    ServerNames {
        public_url: config.server.public_url.clone(),
        others: config.server.host_names.clone(),
    }
}

/// Checks the rules for claims, and the key file if the settings name one.
pub(super) fn check_issuer(config: &Config) -> Result<(), IssuerError> {
    let read = |issuer: &IssuerConfig| {
        claim_rules(issuer).and_then(|_| read_file(issuer, &Keyring::default()))
    };
    config.auth.issuer.as_ref().map_or(Ok(0), read).map(drop)
}

/// The permissions that claims of the issuer's tokens give.
fn claim_rules(issuer: &IssuerConfig) -> Result<Vec<ClaimRule>, IssuerError> {
    let admin = issuer.admin_role.iter().map(|role| {
        let grant = Grant::for_server(TokenRole::Admin);
        Ok(ClaimRule {
            claim: "roles".to_owned(),
            value: role.clone(),
            grant,
        })
    });
    admin
        .chain(issuer.grants.iter().map(|grant| parse_rule(grant)))
        .collect()
}

/// Reads `CLAIM=VALUE ROLE [SCOPE,…]`.
fn parse_rule(text: &str) -> Result<ClaimRule, IssuerError> {
    let wrong = |problem: String| IssuerError::Grant(text.to_owned(), problem);
    let words: Vec<&str> = text.split_whitespace().collect();
    let form =
        || wrong("expected \"CLAIM=VALUE ROLE\" or \"CLAIM=VALUE ROLE SCOPE,SCOPE\"".to_owned());
    let (claim, role, scopes) = match words[..] {
        [claim, role] => (claim, role, None),
        // An empty scope is wrong: without any, the rule is for the whole server.
        [claim, role, scopes] => (claim, role, Some(scopes)),
        _ => return Err(form()),
    };
    let (claim, value) = claim
        .split_once('=')
        .filter(|(claim, value)| !claim.is_empty() && !value.is_empty())
        .ok_or_else(form)?;
    let role = role
        .parse()
        .map_err(|error: InvalidGrant| wrong(format!("the role {error}")))?;
    let scopes = scopes
        .into_iter()
        .flat_map(|scopes| scopes.split(','))
        .map(str::parse);
    let scopes = scopes.collect::<Result<_, InvalidGrant>>();
    let scopes = scopes.map_err(|error| wrong(format!("a scope {error}")))?;
    Ok(ClaimRule {
        claim: claim.to_owned(),
        value: value.to_owned(),
        grant: Grant { role, scopes },
    })
}

/// Loads the keys of `issuer` and starts the task that refreshes them.
fn start_keyring(
    issuer: &IssuerConfig,
    trust: &TlsTrust,
) -> Result<(Arc<Keyring>, Rc<KeySetSource>), IssuerError> {
    let keys = Arc::new(Keyring::default());
    if let KeySource::File(_) = issuer.keys {
        read_file(issuer, &keys)?;
    }
    let source = KeySetSource {
        issuer: issuer.clone(),
        keys: Arc::clone(&keys),
        client: key_client(trust),
    };
    let source = Rc::new(source);
    actix_rt::spawn(refresh_keys(Rc::clone(&source)));
    Ok((keys, source))
}

/// The file or URL of an issuer's keys.
pub(super) struct KeySetSource {
    issuer: IssuerConfig,
    keys: Arc<Keyring>,
    client: Client,
}

impl KeySetSource {
    /// Reads the keys again and returns their number.
    pub(super) async fn read(&self) -> Result<usize, IssuerError> {
        let count = match &self.issuer.keys {
            KeySource::File(_) => read_file(&self.issuer, &self.keys)?,
            KeySource::Web(url) => fetch_keys(&self.client, url, &self.keys).await?,
        };
        let keys = Arc::clone(&self.keys);
        let read = keys.last_read();
        actix_rt::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            keys.note_outdated(read);
        });
        Ok(count)
    }
}

async fn refresh_keys(source: Rc<KeySetSource>) {
    let KeySetSource { issuer, keys, .. } = &*source;
    let mut pause = FAILURE_PAUSE;
    loop {
        match source.read().await {
            Ok(count) => {
                info!(issuer = issuer.name, count, "issuer keys loaded");
                pause = FAILURE_PAUSE;
                tokio::time::sleep(PAUSE).await;
                tokio::select! {
                    () = tokio::time::sleep(issuer.refresh.saturating_sub(PAUSE)) => {}
                    () = keys.wait_for_unknown_key() => {}
                }
            }
            Err(error) => {
                warn!(issuer = issuer.name, %error, "issuer keys not loaded; the last keys stay in \
                    use");
                tokio::time::sleep(pause).await;
                pause = PAUSE.min(2 * pause);
            }
        }
    }
}

fn read_file(issuer: &IssuerConfig, keys: &Keyring) -> Result<usize, IssuerError> {
    let KeySource::File(path) = &issuer.keys else {
        return Ok(0);
    };
    let name = path.display().to_string();
    let key_set = fs::read(path).map_err(|error| IssuerError::File(name.clone(), error))?;
    keys.replace_keys(&key_set)
        .map_err(|error| IssuerError::Keys(name, error))
}

async fn fetch_keys(client: &Client, url: &Url, keys: &Keyring) -> Result<usize, IssuerError> {
    let web_error = |what: String| IssuerError::Web(url.clone(), what);
    let mut response = client
        .get(url.as_str())
        .send()
        .await
        .map_err(|error| web_error(error.to_string()))?;
    if !response.status().is_success() {
        return Err(web_error(format!("the response is {}", response.status())));
    }
    let key_set = response
        .body()
        .limit(KEYS_BYTES_MAX)
        .await
        .map_err(|error| web_error(error.to_string()))?;
    keys.replace_keys(&key_set)
        .map_err(|error| IssuerError::Keys(url.to_string(), error))
}

/// Redirects are not followed, so that only the operator chooses the URL.
fn key_client(trust: &TlsTrust) -> Client {
    let connector = Connector::new()
        .rustls_0_23(trust.config())
        .timeout(FETCH_WAIT);
    Client::builder()
        .connector(connector)
        .disable_redirects()
        .timeout(FETCH_WAIT)
        .finish()
}
