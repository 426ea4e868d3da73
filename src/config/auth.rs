//! `[auth]`: who may publish beside the holders of keys.

use std::{path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde::Deserialize;
use url::{Host, Url};

use super::{
    layers::Layers,
    read::{self, DAY, SECOND},
};

/// `[auth]`
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Whose access tokens may publish.
    pub issuer: Option<IssuerConfig>,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

/// An issuer of access tokens.
#[derive(Clone, Debug)]
pub struct IssuerConfig {
    /// `iss` of its tokens.
    pub name: String,
    /// `aud` of the tokens that are for this server.
    pub audience: String,
    /// Where its public keys are.
    pub keys: KeySource,
    /// How often they are read again.
    pub refresh: Duration,
    /// The role whose holders may operate the server, if there is one.
    pub admin_role: Option<String>,
}

/// Where public keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// At an address.
    Web(Url),
}

/// What the operator wrote, every value by itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAuth {
    #[serde(deserialize_with = "read::optional")]
    issuer: Option<String>,
    #[serde(deserialize_with = "read::filled")]
    audience: String,
    #[serde(deserialize_with = "read::optional")]
    jwks: Option<String>,
    #[serde(deserialize_with = "read::wait::<_, { 60 * SECOND }, { 30 * DAY }>")]
    jwks_refresh: Duration,
    #[serde(deserialize_with = "read::optional")]
    admin_role: Option<String>,
    #[serde(deserialize_with = "read::network_list")]
    trusted_proxies: Vec<IpNet>,
}

impl RawAuth {
    /// An issuer needs keys, and keys an issuer.
    pub(super) fn resolve(self, layers: &mut Layers) -> AuthConfig {
        const PAIR: [&str; 2] = ["auth.issuer", "auth.jwks"];
        let issuer = match (self.issuer, self.jwks) {
            (None, None) => {
                if self.admin_role.is_some() {
                    layers.refuse(&PAIR, "the issuer that gives the role auth.admin_role");
                }
                None
            }
            (Some(name), Some(jwks)) => match source(&jwks) {
                Ok(keys) => Some(IssuerConfig {
                    name,
                    audience: self.audience,
                    keys,
                    refresh: self.jwks_refresh,
                    admin_role: self.admin_role,
                }),
                Err(allowed) => {
                    layers.refuse(&["auth.jwks"], allowed);
                    None
                }
            },
            (Some(_), None) => {
                layers.refuse(&["auth.jwks", "auth.issuer"], "where the keys of auth.issuer are");
                None
            }
            (None, Some(jwks)) => {
                layers.refuse(&PAIR, "whose keys are in auth.jwks");
                if let Err(allowed) = source(&jwks) {
                    layers.refuse(&["auth.jwks"], allowed);
                }
                None
            }
        };
        AuthConfig { issuer, trusted_proxies: self.trusted_proxies }
    }
}

/// Whoever can answer in place of the issuer can sign in its place, so that keys come over TLS, or from this machine.
fn source(text: &str) -> Result<KeySource, &'static str> {
    let scheme = |scheme: &str| text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    if !scheme("http://") && !scheme("https://") {
        return Ok(KeySource::File(PathBuf::from(text)));
    }
    let allowed = "a file, an https address, or an http address of loopback";
    let url = Url::parse(text).map_err(|_| allowed)?;
    let loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        None => return Err(allowed),
    };
    if url.scheme() == "https" || loopback { Ok(KeySource::Web(url)) } else { Err(allowed) }
}
