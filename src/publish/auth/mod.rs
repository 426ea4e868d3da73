//! Who may publish, and from where.
//!
//! | file | who comes in |
//! | --- | --- |
//! | `house` | what is asked: the rules and the keys of a topic, or of its namespace |
//! | `network` | whose address the topic's rules let in; asked first |
//! | [`host`] | which host a request was sent to; forwarded headers count from trusted proxies only |
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
pub mod host;
mod house;
mod key;
mod network;
pub mod sas;
pub mod strangers;
mod tally;

use std::{net::IpAddr, sync::Arc};

use actix_web::{
    HttpRequest,
    http::{StatusCode, header::AUTHORIZATION},
};
use ipnet::IpNet;

pub use self::tally::{Refusals, Tally};
use self::{bearer::Bearer, host::Names, sas::Resource, strangers::Strangers};
pub(super) use self::{host::Called, house::House};
use super::Refusal;
use crate::event::Timestamp;

/// The header that has a SAS token, and nothing else.
const SAS: &str = "aeg-sas-token";

const UNKNOWN_HOST: &str = "The SAS token is for a host that this server does not have as a name: server.public_url or \
                            server.host_names can give it that name";

/// What the operator has set up.
#[derive(Default)]
pub struct Rules {
    /// The proxies whose `Forwarded` and `X-Forwarded-*` count.
    pub trusted_proxies: Vec<IpNet>,
    /// The names of the server: a SAS token may be for one of them.
    pub names: Names,
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

    /// Which host the request was sent to.
    ///
    /// # Errors
    /// Where a header that says so says something else.
    pub(super) fn called(&self, request: &HttpRequest) -> Result<Called, Refusal> {
        Called::of(request, &self.rules.trusted_proxies)
    }

    /// The same for whoever answers before a route is known: a host must be there, too.
    pub(super) fn check_host(&self, request: &HttpRequest) -> Result<(), Refusal> {
        host::require(request)?;
        self.called(request).map(|_| ())
    }

    /// Lets the request through, or says why not. What is refused is counted, and logged without what was shown.
    pub(super) fn check(&self, request: &HttpRequest, house: &House<'_>, now: Timestamp) -> Result<(), Refusal> {
        let called = self.called(request)?;
        let client = self.client(request);
        let checked = network::check(house, client).and_then(|()| self.check_shown(request, &called, house, now));
        if let Err(refusal) = &checked {
            self.tally.count(refusal, house, client, now);
        }
        checked
    }

    /// Where the request came from.
    pub(super) fn client(&self, request: &HttpRequest) -> Option<IpAddr> {
        network::client(request, &self.rules.trusted_proxies)
    }

    /// Holds the refusal of whoever showed what is no good back, for longer each time.
    pub(super) async fn hold(&self, request: &HttpRequest, refusal: &Refusal, now: Timestamp) {
        if refusal.status().0 == StatusCode::UNAUTHORIZED {
            self.rules.strangers.refuse(request, now).await;
        }
    }

    fn check_shown(
        &self,
        request: &HttpRequest,
        called: &Called,
        house: &House<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let headers = request.headers();
        let local = || if house.ingress.disable_local_auth { Err(no_local_auth(called)) } else { Ok(()) };
        if let Some(given) = key::shown(request) {
            return local().and_then(|()| key::check(&given, &house.keys, called));
        }
        if let Some(token) = headers.get(SAS) {
            return local().and_then(|()| self.check_sas(token.as_bytes(), request, called, house, now));
        }
        let Some(authorization) = headers.get(AUTHORIZATION) else { return Err(house.nothing_shown()) };
        let (scheme, token) = split(authorization.as_bytes());
        if scheme.eq_ignore_ascii_case(b"SharedAccessSignature") {
            return local().and_then(|()| self.check_sas(token, request, called, house, now));
        }
        if house.is_namespace() && scheme.eq_ignore_ascii_case(b"SharedAccessKey") {
            return local().and_then(|()| key::check(token, &house.keys, called));
        }
        if scheme.eq_ignore_ascii_case(b"Bearer") {
            return self.rules.bearer.check(token, now).map_err(|problem| problem.refusal(called.to_string()));
        }
        Err(house.unknown_scheme())
    }

    /// A token is for the route that was matched, at the host that was called if the server has that name, or for the
    /// same at the server's public address. Nothing that the request says is read as a path.
    fn check_sas(
        &self,
        token: &[u8],
        request: &HttpRequest,
        called: &Called,
        house: &House<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let Rules { names, .. } = &self.rules;
        let routed = called.url().map(|url| Resource::below(&url, house.routed(request)));
        let public = names.public_url.as_ref().map(|url| Resource::below(url, house.path(request)));
        let (at_known_host, elsewhere): (Vec<_>, Vec<_>) =
            routed.into_iter().partition(|_| names.have(called, request));
        let resources: Vec<_> = at_known_host.into_iter().chain(public).collect();
        sas::check(token, &house.keys, &resources, now).map_err(|problem| match problem {
            sas::Problem::Resource if sas::check(token, &house.keys, &elsewhere, now).is_ok() => {
                Refusal::NotAuthorized { host: called.to_string(), why: UNKNOWN_HOST }
            }
            problem => problem.refusal(called.to_string()),
        })
    }
}

fn no_local_auth(called: &Called) -> Refusal {
    let why = "Access keys and SAS tokens are disabled for the resource (disableLocalAuth). Use an access token";
    Refusal::NotAuthorized { host: called.to_string(), why }
}

/// The scheme of an `Authorization`, and what is behind it.
fn split(authorization: &[u8]) -> (&[u8], &[u8]) {
    let authorization = authorization.trim_ascii();
    match authorization.iter().position(|byte| *byte == b' ') {
        Some(at) => (&authorization[..at], authorization[at..].trim_ascii()),
        None => (authorization, b""),
    }
}
