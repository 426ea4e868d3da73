//! `[auth]`: access tokens and trusted proxies.

use std::{path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde::Deserialize;
use url::{Host, Url};

use super::{
    layers::Layers,
    read::{self, DAY, SECOND},
};

#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// The issuer of access tokens, if any.
    pub issuer: Option<IssuerConfig>,
    /// The proxies whose forwarding headers count.
    pub trusted_proxies: Vec<IpNet>,
}

/// An issuer of access tokens.
#[derive(Clone, Debug)]
pub struct IssuerConfig {
    /// The claim `iss` of the issuer's tokens.
    pub name: String,
    /// The values of the claim `aud` of tokens for this server, besides its public URL.
    pub audiences: Vec<String>,
    /// The source of the issuer's public keys.
    pub keys: KeySource,
    /// The interval between two reads of the keys.
    pub refresh: Duration,
    /// The role of operators, if any.
    pub admin_role: Option<String>,
    /// The roles that other claims permit, as `CLAIM=VALUE ROLE [SCOPE,…]`.
    pub grants: Vec<String>,
}

/// The source of public keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    Web(Url),
}

/// The values as written, not yet checked against each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAuth {
    #[serde(deserialize_with = "read::optional")]
    issuer: Option<String>,
    #[serde(deserialize_with = "read::audiences")]
    audience: Vec<String>,
    #[serde(deserialize_with = "read::optional")]
    jwks: Option<String>,
    #[serde(deserialize_with = "read::wait::<_, { 60 * SECOND }, { 30 * DAY }>")]
    jwks_refresh: Duration,
    #[serde(deserialize_with = "read::optional")]
    admin_role: Option<String>,
    #[serde(deserialize_with = "read::grants")]
    grants: Vec<String>,
    #[serde(deserialize_with = "read::network_list")]
    trusted_proxies: Vec<IpNet>,
}

impl RawAuth {
    /// Checks that an issuer has keys, and keys have an issuer.
    pub(super) fn resolve(self, layers: &mut Layers) -> AuthConfig {
        const PAIR: [&str; 2] = ["auth.issuer", "auth.jwks"];
        let issuer = match (self.issuer, self.jwks) {
            (None, None) => {
                if self.admin_role.is_some() {
                    layers.refuse_value(&PAIR, "the issuer of the role auth.admin_role");
                }
                if !self.grants.is_empty() {
                    layers.refuse_value(&PAIR, "the issuer of the claims in auth.grants");
                }
                None
            }
            (Some(name), Some(jwks)) => match parse_key_source(&jwks) {
                Ok(keys) => Some(IssuerConfig {
                    name,
                    audiences: self.audience,
                    keys,
                    refresh: self.jwks_refresh,
                    admin_role: self.admin_role,
                    grants: self.grants,
                }),
                Err(expectation) => {
                    layers.refuse_value(&["auth.jwks"], expectation);
                    None
                }
            },
            (Some(_), None) => {
                layers.refuse_value(
                    &["auth.jwks", "auth.issuer"],
                    "the location of the keys of auth.issuer",
                );
                None
            }
            (None, Some(jwks)) => {
                layers.refuse_value(&PAIR, "the issuer of the keys in auth.jwks");
                if let Err(expectation) = parse_key_source(&jwks) {
                    layers.refuse_value(&["auth.jwks"], expectation);
                }
                None
            }
        };
        AuthConfig {
            issuer,
            trusted_proxies: self.trusted_proxies,
        }
    }
}

/// Keys come over TLS or from this machine: a host that can replace them can sign tokens.
fn parse_key_source(text: &str) -> Result<KeySource, &'static str> {
    let scheme = |scheme: &str| {
        text.get(..scheme.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    if !scheme("http://") && !scheme("https://") {
        return Ok(KeySource::File(PathBuf::from(text)));
    }
    let url = Url::parse(text).ok().filter(is_confidential);
    url.map(KeySource::Web)
        .ok_or("a file, an https URL, or an http URL of loopback")
}

/// Whether no other machine can read or replace what is exchanged with this http or https URL.
pub(super) fn is_confidential(url: &Url) -> bool {
    let loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        None => return false,
    };
    url.scheme() == "https" || url.scheme() == "http" && loopback
}
