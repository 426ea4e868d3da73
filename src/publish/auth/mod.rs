//! Who may publish, and from where.
//!
//! | file | who comes in |
//! | --- | --- |
//! | `house` | what is asked: the rules and the keys of a topic, or of its namespace |
//! | `network` | whose address the topic's rules let in; asked first |
//! | `key` | who shows one of the topic's two keys, or of its namespace's |
//! | [`sas`] | who shows a token that one of the keys has signed, before it expires |
//! | [`bearer`] | who shows a JWT of the configured issuer, or the operator with the admin token |
//! | [`strangers`] | nobody: whoever showed what is no good is slowed down here |
//!
//! Invariants: a secret is compared in constant time and never logged; of several things that are shown the first counts,
//! in the order key, SAS token, `Authorization`, and nothing is tried after it; time is an argument.
//!
//! Absent on purpose: users and roles. A key, or an access token for this server, publishes to the topic.

pub mod bearer;
mod house;
mod key;
mod network;
pub mod sas;
pub mod strangers;
mod tally;

use std::sync::Arc;

use actix_web::{
    HttpRequest,
    http::{StatusCode, header::AUTHORIZATION},
};
use ipnet::IpNet;
use url::Url;

pub(super) use self::house::House;
pub use self::tally::{Refusals, Tally};
use self::{bearer::Bearer, sas::Resource, strangers::Strangers};
use super::Refusal;
use crate::event::Timestamp;

/// The header that has a SAS token, and nothing else.
const SAS: &str = "aeg-sas-token";

/// What the operator has set up.
#[derive(Default)]
pub struct Rules {
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The server's own address, as publishers see it: a SAS token may name it.
    pub public_url: Option<Url>,
    /// Who else may publish than the topic's keys.
    pub bearer: Bearer,
    /// Who failed before.
    pub strangers: Arc<Strangers>,
}

/// The door.
pub struct Gate {
    rules: Rules,
    tally: Tally,
}

impl Gate {
    /// A door with these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules, tally: Tally::default() }
    }

    /// How many were sent away.
    pub fn refusals(&self) -> Refusals {
        self.tally.read()
    }

    /// Lets the request through, or says why not. What is refused is counted, and logged without what was shown.
    pub(super) fn check(&self, request: &HttpRequest, house: &House<'_>, now: Timestamp) -> Result<(), Refusal> {
        let client = network::client(request, &self.rules.trusted_proxies);
        let checked = network::check(house, client).and_then(|()| self.check_shown(request, house, now));
        if let Err(refusal) = &checked {
            self.tally.count(refusal, house, client, now);
        }
        checked
    }

    /// Holds the refusal of whoever showed what is no good back, for longer each time.
    pub(super) async fn hold(&self, request: &HttpRequest, refusal: &Refusal, now: Timestamp) {
        if refusal.status().0 == StatusCode::UNAUTHORIZED {
            self.rules.strangers.refuse(request, now).await;
        }
    }

    fn check_shown(&self, request: &HttpRequest, house: &House<'_>, now: Timestamp) -> Result<(), Refusal> {
        let headers = request.headers();
        let local = || if house.ingress.disable_local_auth { Err(no_local_auth(request)) } else { Ok(()) };
        if let Some(given) = key::shown(request) {
            return local().and_then(|()| key::check(&given, &house.keys, request));
        }
        if let Some(token) = headers.get(SAS) {
            return local().and_then(|()| self.check_sas(token.as_bytes(), request, house, now));
        }
        let Some(authorization) = headers.get(AUTHORIZATION) else { return Err(house.nothing_shown()) };
        let (scheme, token) = split(authorization.as_bytes());
        if scheme.eq_ignore_ascii_case(b"SharedAccessSignature") {
            return local().and_then(|()| self.check_sas(token, request, house, now));
        }
        if house.is_namespace() && scheme.eq_ignore_ascii_case(b"SharedAccessKey") {
            return local().and_then(|()| key::check(token, &house.keys, request));
        }
        if scheme.eq_ignore_ascii_case(b"Bearer") {
            return self.rules.bearer.check(token, now).map_err(|problem| problem.refusal(host(request)));
        }
        Err(house.unknown_scheme())
    }

    fn check_sas(&self, token: &[u8], request: &HttpRequest, house: &House<'_>, now: Timestamp) -> Result<(), Refusal> {
        let called = {
            let connection = request.connection_info();
            let path = if house.is_namespace() { without_verb(request.path()) } else { request.path() };
            Resource::parse(&format!("{}://{}{path}", connection.scheme(), connection.host()))
        };
        let public = self
            .rules
            .public_url
            .as_ref()
            .and_then(|url| Resource::parse(&format!("{}{}", url.as_str().trim_end_matches('/'), house.path())));
        let resources: Vec<_> = called.into_iter().chain(public).collect();
        sas::check(token, &house.keys, &resources, now).map_err(|problem| problem.refusal(host(request)))
    }
}

/// `/topics/orders` of `/topics/orders:publish`: what a token is for is a resource, not what is done with it.
fn without_verb(path: &str) -> &str {
    path.rsplit_once(':').map_or(path, |(resource, _)| resource)
}

/// Whom the publisher called.
fn host(request: &HttpRequest) -> String {
    request.connection_info().host().to_owned()
}

fn no_local_auth(request: &HttpRequest) -> Refusal {
    let why = "Access keys and SAS tokens are disabled for the resource (disableLocalAuth). Use an access token";
    Refusal::NotAuthorized { host: host(request), why }
}

/// The scheme of an `Authorization`, and what is behind it.
fn split(authorization: &[u8]) -> (&[u8], &[u8]) {
    let authorization = authorization.trim_ascii();
    match authorization.iter().position(|byte| *byte == b' ') {
        Some(at) => (&authorization[..at], authorization[at..].trim_ascii()),
        None => (authorization, b""),
    }
}
