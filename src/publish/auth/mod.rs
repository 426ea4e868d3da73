//! Who may publish, and from where.
//!
//! | file | who comes in |
//! | --- | --- |
//! | `scope` | what is asked: the rules and the keys of a topic, or of its namespace |
//! | `network` | whose address the topic's rules let in; asked first |
//! | [`host`] | which host a request was sent to; forwarded headers count from trusted proxies only |
//! | `key` | who shows one of the topic's two keys, or of its namespace's |
//! | [`sas`] | who shows a token that one of the keys has signed, before it expires |
//! | [`bearer`] | who shows a JWT of the configured issuer, or the operator with the admin token |
//! | [`failed_auth`] | nobody: whoever showed what is no good is slowed down here |
//!
//! Invariants: a secret is compared in constant time and never logged; of several things that are shown the first counts,
//! in the order key, SAS token, `Authorization`, and nothing is tried after it; time is an argument.
//!
//! Absent on purpose: users and roles. A key, or an access token for this server, publishes to the topic.

pub mod bearer;
pub mod failed_auth;
pub mod host;
mod key;
mod network;
mod rejections;
pub mod sas;
mod scope;

use std::{net::IpAddr, sync::Arc};

use actix_web::{
    HttpRequest,
    http::{StatusCode, header::AUTHORIZATION},
};
use ipnet::IpNet;

pub use self::rejections::{RejectionCounters, RejectionCounts};
use self::{bearer::BearerAuth, failed_auth::FailedAuthLimiter, host::ServerNames, sas::SasResource};
pub(super) use self::{host::RequestAuthority, scope::KeyScope};
use super::Refusal;
use crate::event::Timestamp;

/// The header that has a SAS token, and nothing else.
const SAS: &str = "aeg-sas-token";

const UNKNOWN_HOST: &str = "The SAS token is for a host that this server does not have as a name: server.public_url or \
                            server.host_names can give it that name";

/// What the operator has set up.
#[derive(Default)]
pub struct AuthRules {
    /// The proxies whose `Forwarded` and `X-Forwarded-*` count.
    pub trusted_proxies: Vec<IpNet>,
    /// The names of the server: a SAS token may be for one of them.
    pub names: ServerNames,
    /// Who else may publish than the topic's keys.
    pub bearer: BearerAuth,
    /// Who failed before.
    pub strangers: Arc<FailedAuthLimiter>,
}

/// The door.
pub struct Authenticator {
    rules: AuthRules,
    counts: RejectionCounters,
}

impl Authenticator {
    /// A door with these rules.
    pub fn new(rules: AuthRules) -> Self {
        Self { rules, counts: RejectionCounters::default() }
    }

    /// How many were sent away.
    pub fn refusals(&self) -> RejectionCounts {
        self.counts.read()
    }

    /// Which host the request was sent to.
    ///
    /// # Errors
    /// Where a header that says so says something else.
    pub(super) fn called(&self, request: &HttpRequest) -> Result<RequestAuthority, Refusal> {
        RequestAuthority::of(request, &self.rules.trusted_proxies)
    }

    /// The same for whoever answers before a route is known: a host must be there, too.
    pub(super) fn check_host(&self, request: &HttpRequest) -> Result<(), Refusal> {
        host::require(request)?;
        self.called(request).map(|_| ())
    }

    /// Lets the request through, or says why not. What is refused is counted, and logged without what was shown.
    pub(super) fn check(&self, request: &HttpRequest, scope: &KeyScope<'_>, now: Timestamp) -> Result<(), Refusal> {
        let called = self.called(request)?;
        let client = self.client(request);
        let checked = network::check(scope, client).and_then(|()| self.check_credential(request, &called, scope, now));
        if let Err(refusal) = &checked {
            self.counts.count(refusal, scope, client, now);
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

    fn check_credential(
        &self,
        request: &HttpRequest,
        called: &RequestAuthority,
        scope: &KeyScope<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let headers = request.headers();
        let local = || if scope.ingress.disable_local_auth { Err(no_local_auth(called)) } else { Ok(()) };
        if let Some(given) = key::presented_key(request) {
            return local().and_then(|()| key::check(&given, &scope.keys, called));
        }
        if let Some(token) = headers.get(SAS) {
            return local().and_then(|()| self.check_sas(token.as_bytes(), request, called, scope, now));
        }
        let Some(authorization) = headers.get(AUTHORIZATION) else { return Err(scope.no_credential()) };
        let (scheme, token) = split(authorization.as_bytes());
        if scheme.eq_ignore_ascii_case(b"SharedAccessSignature") {
            return local().and_then(|()| self.check_sas(token, request, called, scope, now));
        }
        if scope.is_namespace() && scheme.eq_ignore_ascii_case(b"SharedAccessKey") {
            return local().and_then(|()| key::check(token, &scope.keys, called));
        }
        if scheme.eq_ignore_ascii_case(b"Bearer") {
            return self.rules.bearer.check(token, now).map_err(|problem| problem.refusal(called.to_string()));
        }
        Err(scope.unknown_scheme())
    }

    /// A token is for the route that was matched, at the host that was called if the server has that name, or for the
    /// same at the server's public address. Nothing that the request says is read as a path.
    fn check_sas(
        &self,
        token: &[u8],
        request: &HttpRequest,
        called: &RequestAuthority,
        scope: &KeyScope<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let AuthRules { names, .. } = &self.rules;
        let routed = called.url().map(|url| SasResource::below(&url, scope.routed(request)));
        let public = names.public_url.as_ref().map(|url| SasResource::below(url, scope.path(request)));
        let (at_known_host, elsewhere): (Vec<_>, Vec<_>) =
            routed.into_iter().partition(|_| names.have(called, request));
        let resources: Vec<_> = at_known_host.into_iter().chain(public).collect();
        sas::check(token, &scope.keys, &resources, now).map_err(|problem| match problem {
            sas::SasTokenProblem::Resource if sas::check(token, &scope.keys, &elsewhere, now).is_ok() => {
                Refusal::NotAuthorized { host: called.to_string(), why: UNKNOWN_HOST }
            }
            problem => problem.refusal(called.to_string()),
        })
    }
}

fn no_local_auth(called: &RequestAuthority) -> Refusal {
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
