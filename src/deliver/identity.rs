//! Access tokens for endpoints that demand one: OAuth 2.0 client credentials (RFC 6749, section
//! 4.4) with the identity of the server, as Entra ID issues them.
//!
//! - All arbiters share a token. One request at a time fetches it, before the old one expires; if
//!   that fails, the old one is used until it expires.
//! - A token that an endpoint refused with 401 is fetched anew once, unless it was fetched for that
//!   request.
//! - The secret, or the certificate and its key, are read for each fetch, so that they can be
//!   replaced without a restart. No message has a secret or a token; of a refusal only the status
//!   and OAuth's error code are shown.
//! - The authority is called under the rules for addresses of the operator: any but the server's
//!   own.

use std::{collections::BTreeMap, fs, path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;
use url::form_urlencoded;

use super::{
    ClientOptions, Destination, OutgoingRequest, WebhookClient,
    assertion::{ASSERTION_TYPE, IdentityCertificate},
    clients,
    error::{ExchangeError, MissingTenant, NoIdentity},
};
use gridhook_event::{Schema, WallTime};

/// The part of a token URL that is replaced by the tenant.
pub const TENANT: &str = "{tenant}";

/// Time limit for a token.
const FETCH_WAIT: Duration = Duration::from_secs(10);

/// The pause after the start of a refresh that failed or was given up, while the old token is used.
const PAUSE: Duration = Duration::from_secs(30);

/// A token is replaced this long before it expires, or after four fifths of a shorter lifetime.
const AHEAD: Duration = Duration::from_secs(5 * 60);

/// The lifetime in seconds of a token whose issuer does not say it.
const LIFETIME_DEFAULT: u64 = 5 * 60;

/// The detail of an attempt for which no assertion can be made.
const UNUSABLE_CERTIFICATE: &str =
    "delivery.identity_certificate_file or delivery.identity_key_file cannot be used";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenAudience {
    /// The property `azureActiveDirectoryTenantId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The property `azureActiveDirectoryApplicationIdOrUri`.
    pub application: String,
}

/// How the server proves its identity to the issuer.
#[derive(Clone, Debug)]
pub enum IdentityProof {
    /// The client secret in this file.
    Secret(PathBuf),
    /// An assertion that is signed with the key of a certificate.
    Certificate(IdentityCertificate),
}

/// The identity of the server towards endpoints.
#[derive(Debug)]
pub struct ServerIdentity {
    token_url: String,
    client_id: String,
    proof: IdentityProof,
    tokens: Mutex<BTreeMap<TokenAudience, Arc<tokio::sync::Mutex<Option<CachedToken>>>>>,
}

#[derive(Debug)]
struct CachedToken {
    token: Arc<AccessToken>,
    refresh: WallTime,
    expires: WallTime,
}

pub struct AccessToken(String);

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessToken(hidden)")
    }
}

impl AccessToken {
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Adds the token to a request, as a header that is not shown.
    pub fn add_to_request(&self, outgoing: &mut OutgoingRequest) {
        outgoing
            .properties
            .retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        outgoing
            .properties
            .push(("authorization".to_owned(), format!("Bearer {}", self.0)));
    }
}

impl ServerIdentity {
    /// An identity. `token_url` may contain [`TENANT`].
    pub fn new(token_url: &str, client_id: &str, proof: IdentityProof) -> Self {
        let token_url = token_url.to_owned();
        let client_id = client_id.to_owned();
        Self {
            token_url,
            client_id,
            proof,
            tokens: Mutex::default(),
        }
    }

    /// The URL for tokens of the tenant.
    ///
    /// # Errors
    /// If a tenant is needed and missing.
    pub fn url_for(&self, audience: &TokenAudience) -> Result<String, MissingTenant> {
        match &audience.tenant {
            Some(tenant) => Ok(self.token_url.replace(TENANT, tenant)),
            None if self.token_url.contains(TENANT) => Err(MissingTenant),
            None => Ok(self.token_url.clone()),
        }
    }

    fn token_slot(
        &self,
        audience: &TokenAudience,
        wall: WallTime,
    ) -> Arc<tokio::sync::Mutex<Option<CachedToken>>> {
        let mut tokens = self.tokens.lock();
        if !tokens.contains_key(audience) {
            tokens.retain(|_, slot| {
                Arc::strong_count(slot) > 1
                    || slot.try_lock().is_ok_and(|token| is_valid(&token, wall))
            });
        }
        Arc::clone(tokens.entry(audience.clone()).or_default())
    }

    async fn fetch_token(
        &self,
        client: &WebhookClient,
        audience: &TokenAudience,
        wall: WallTime,
    ) -> Result<CachedToken, TokenFailure> {
        let url = self
            .url_for(audience)
            .map_err(|problem| TokenFailure::Unavailable(problem.to_string()))?;
        let destination = Destination::new(
            &url,
            "token",
            Schema::CloudEvents,
            Schema::CloudEvents,
            false,
        )
        .map_err(|error| TokenFailure::Unavailable(error.to_string()))?;
        let outgoing = OutgoingRequest {
            headers: vec![
                ("content-type", "application/x-www-form-urlencoded".into()),
                ("accept", "application/json".into()),
            ],
            body: self.token_form(&url, audience, wall)?.into(),
            ..OutgoingRequest::default()
        };
        let _permit = client.sockets().take_permit();
        let exchange = client.exchange_whole(&destination, &outgoing);
        let (status, body) = timeout(FETCH_WAIT, exchange)
            .await
            .map_err(|_| ExchangeError::Timeout(FETCH_WAIT))
            .flatten()
            .map_err(|error| TokenFailure::Unavailable(error.to_string()))?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status == 200 {
            CachedToken::from_response(&body, wall)
        } else {
            Err(TokenFailure::from_response(status, &body))
        }
    }

    /// The form of a token request (RFC 6749, section 4.4.2).
    fn token_form(
        &self,
        url: &str,
        audience: &TokenAudience,
        wall: WallTime,
    ) -> Result<String, TokenFailure> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials")
            .append_pair("client_id", &self.client_id);
        match &self.proof {
            IdentityProof::Secret(file) => {
                let secret = fs::read_to_string(file).map_err(|error| {
                    TokenFailure::Unavailable(format!(
                        "the file of delivery.identity_secret_file cannot be read: {error}"
                    ))
                })?;
                form.append_pair("client_secret", secret.trim_end_matches(['\r', '\n']));
            }
            IdentityProof::Certificate(certificate) => {
                // The problem has paths of the server, which readers of attempts must not see.
                let assertion = certificate
                    .sign_assertion(&self.client_id, url, wall)
                    .map_err(|problem| {
                        tracing::warn!(%problem, "no assertion of the server's identity");
                        TokenFailure::Unavailable(UNUSABLE_CERTIFICATE.to_owned())
                    })?;
                form.append_pair("client_assertion_type", ASSERTION_TYPE)
                    .append_pair("client_assertion", &assertion);
            }
        }
        let scope = format!("{}/.default", audience.application);
        Ok(form.append_pair("scope", &scope).finish())
    }
}

impl CachedToken {
    /// Reads a token response (RFC 6749, section 5.1).
    fn from_response(body: &Value, wall: WallTime) -> Result<Self, TokenFailure> {
        let is_bearer = body["token_type"]
            .as_str()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
        let token = body["access_token"]
            .as_str()
            .filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
        let Some(token) = token.filter(|token| is_bearer && !token.is_empty()) else {
            return Err(TokenFailure::Unavailable(
                "the response has no bearer token".to_owned(),
            ));
        };
        // Some issuers send it as text.
        let lifetime_value = &body["expires_in"];
        let lifetime = lifetime_value
            .as_u64()
            .or_else(|| lifetime_value.as_str()?.parse().ok())
            .unwrap_or(LIFETIME_DEFAULT);
        let lifetime = Duration::from_secs(lifetime.min(7 * 24 * 3600));
        Ok(Self {
            token: Arc::new(AccessToken(token.to_owned())),
            refresh: wall.after(lifetime - AHEAD.min(lifetime / 5)),
            expires: wall.after(lifetime),
        })
    }
}

impl TokenFailure {
    /// Reads an error response (RFC 6749, section 5.2).
    fn from_response(status: u16, body: &Value) -> Self {
        let code = body["error"]
            .as_str()
            .filter(|code| is_error_code(code))
            .unwrap_or("no error code");
        let text = format!("the response is {status} ({code})");
        match status {
            // The client or its request is refused.
            400 | 401 | 403 => Self::Refused(text),
            _ => Self::Unavailable(text),
        }
    }
}

fn is_valid(token: &Option<CachedToken>, wall: WallTime) -> bool {
    token.as_ref().is_some_and(|token| wall < token.expires)
}

fn is_error_code(code: &str) -> bool {
    code.len() <= 64 && code.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'))
}

/// Why there is no access token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFailure {
    /// The issuer refuses the identity of the server.
    #[error("no access token for the endpoint: {0}")]
    Refused(String),
    /// The issuer gave no usable response.
    #[error("no access token for the endpoint: {0}")]
    Unavailable(String),
}

/// The source of the tokens of one destination, on one arbiter.
pub struct TokenSource {
    identity: Arc<ServerIdentity>,
    audience: TokenAudience,
    client: Rc<WebhookClient>,
}

impl TokenSource {
    /// The tokens for `audience`.
    ///
    /// # Errors
    /// If the server has no identity.
    pub fn new(options: &ClientOptions, audience: &TokenAudience) -> Result<Self, NoIdentity> {
        let identity = options.connections.identity().ok_or(NoIdentity)?;
        let client = clients::operators_client(options);
        Ok(Self {
            identity: Arc::clone(identity),
            audience: audience.clone(),
            client,
        })
    }

    /// A token other than `refused`, and whether it was fetched now.
    ///
    /// # Errors
    /// Why there is no token.
    pub async fn get_token(
        &self,
        refused: Option<&Arc<AccessToken>>,
        wall: WallTime,
    ) -> Result<(Arc<AccessToken>, bool), TokenFailure> {
        let slot = self.identity.token_slot(&self.audience, wall);
        let mut cached = slot.lock().await;
        let is_usable = |cached: &&mut CachedToken| {
            wall < cached.expires
                && refused.is_none_or(|refused| !Arc::ptr_eq(refused, &cached.token))
        };
        let mut usable = cached.as_mut().filter(is_usable);
        if let Some(usable) = &mut usable {
            if wall < usable.refresh {
                return Ok((Arc::clone(&usable.token), false));
            }
            // Before the fetch, because the caller may give it up: the next call then uses the old
            // token.
            usable.refresh = wall.after(PAUSE);
        }
        let problem = match self
            .identity
            .fetch_token(&self.client, &self.audience, wall)
            .await
        {
            Ok(new_token) => {
                let token = Arc::clone(&new_token.token);
                *cached = Some(new_token);
                return Ok((token, true));
            }
            Err(problem) => problem,
        };
        let Some(usable) = usable else {
            return Err(problem);
        };
        tracing::warn!(%problem, "access token not refreshed; the old one stays in use");
        Ok((Arc::clone(&usable.token), false))
    }

    /// Drops a token that a service refused: the next request fetches another one.
    pub async fn discard_token(&self, refused: &Arc<AccessToken>, wall: WallTime) {
        let slot = self.identity.token_slot(&self.audience, wall);
        let mut cached = slot.lock().await;
        if cached
            .as_ref()
            .is_some_and(|cached| Arc::ptr_eq(&cached.token, refused))
        {
            *cached = None;
        }
    }
}
