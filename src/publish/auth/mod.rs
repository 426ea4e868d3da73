//! Authentication of publishers, and the addresses that they may publish from.
//!
//! | file | content |
//! | --- | --- |
//! | `scope` | the rules and keys of a topic, or of its namespace |
//! | `network` | the topic's address rules, which are checked first |
//! | [`host`] | the host of a request; forwarded headers count from trusted proxies only |
//! | `forwarded` | what trusted proxies say of a client |
//! | `key` | the two access keys of the topic, or of its namespace |
//! | [`sas`] | tokens that one of the keys has signed |
//! | [`bearer`] | named tokens, JWTs of the configured issuer, and the admin token |
//! | [`failed_auth`] | the delay of refusals after failed authentications |
//!
//! Invariants: a secret is compared in constant time and never logged; the first credential in the
//! order key, SAS token, `Authorization` decides, and no other is tried; time is an argument.
//!
//! A valid key or SAS token may publish and consume; a bearer token needs the role for the topic.

pub mod bearer;
pub mod failed_auth;
mod forwarded;
pub mod host;
mod key;
mod network;
mod rejections;
pub mod sas;
mod scope;

use std::{net::IpAddr, sync::Arc};

use actix_web::{
    HttpMessage as _, HttpRequest,
    http::{StatusCode, header::AUTHORIZATION},
};
use ipnet::IpNet;

pub use self::rejections::{RejectionCounters, RejectionCounts};
use self::{
    bearer::BearerAuth, failed_auth::FailedAuthLimiter, host::ServerNames, network::Origin,
    sas::SasResource,
};
pub(super) use self::{host::RequestAuthority, scope::KeyScope};
use super::Refusal;
use gridhook_engine::control::tokens::{ForwardedToken, Token};
use gridhook_event::{Timestamp, WallTime};
use gridhook_record::token::TokenRole;

/// The header of a SAS token.
const SAS: &str = "aeg-sas-token";

const UNKNOWN_HOST: &str = "The SAS token is for a host that this server does not have as a name: \
    server.public_url or server.host_names can give it that name";

#[derive(Default)]
pub struct AuthRules {
    /// The proxies whose `Forwarded` and `X-Forwarded-*` headers count.
    pub trusted_proxies: Vec<IpNet>,
    /// The names of the server, which a SAS token may be for.
    pub names: ServerNames,
    pub bearer: BearerAuth,
    pub failed_auth: Arc<FailedAuthLimiter>,
}

/// The two times that a check of a credential needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckTimes {
    /// The wall clock, by which tokens expire.
    pub(super) wall: WallTime,
    /// The server's own clock, for the interval between two log lines.
    pub(super) now: Timestamp,
}

pub struct Authenticator {
    rules: AuthRules,
    counts: RejectionCounters,
}

impl Authenticator {
    pub fn new(rules: AuthRules) -> Self {
        Self {
            rules,
            counts: RejectionCounters::default(),
        }
    }

    /// The counts of rejected publishers.
    pub fn rejection_counts(&self) -> RejectionCounts {
        self.counts.read()
    }

    /// The host that the request was sent to.
    ///
    /// # Errors
    /// If a header that counts is not a valid host.
    pub(super) fn called_authority(
        &self,
        request: &HttpRequest,
    ) -> Result<RequestAuthority, Refusal> {
        RequestAuthority::from_request(request, &self.rules.trusted_proxies)
    }

    /// The host that the request was sent to, before a route is known; it must be present.
    pub(super) fn check_host(&self, request: &HttpRequest) -> Result<RequestAuthority, Refusal> {
        host::require_host(request)?;
        self.called_authority(request)
    }

    /// Authenticates the request to the host `called` of a caller who needs this role. A refusal is
    /// counted, and logged without the credential. Returns the caller's token, if it has a name.
    pub(super) fn authenticate(
        &self,
        request: &HttpRequest,
        called: &RequestAuthority,
        scope: &KeyScope<'_>,
        role: TokenRole,
        times: CheckTimes,
    ) -> Result<Option<Arc<Token>>, Refusal> {
        let client = Origin::from_request(request, &self.rules.trusted_proxies)
            .and_then(Origin::client_address);
        let result = network::check_source_address(scope, client)
            .and_then(|()| self.check_credential(request, called, (scope, role), times.wall));
        if let Err(refusal) = &result {
            self.counts.count_refusal(refusal, scope, client, times.now);
        }
        result
    }

    /// The address that counts for the request: the client's, or that of the proxy behind which it
    /// cannot be seen.
    pub(super) fn accountable_address(&self, request: &HttpRequest) -> Option<IpAddr> {
        Origin::from_request(request, &self.rules.trusted_proxies).map(|origin| origin.nearest)
    }

    /// Delays the refusal of a failed authentication.
    pub(super) async fn delay_refusal(
        &self,
        request: &HttpRequest,
        refusal: &Refusal,
        now: Timestamp,
    ) {
        if refusal.status().0 == StatusCode::UNAUTHORIZED {
            self.rules.failed_auth.delay_refusal(request, now).await;
        }
    }

    fn check_credential(
        &self,
        request: &HttpRequest,
        called: &RequestAuthority,
        (scope, role): (&KeyScope<'_>, TokenRole),
        wall: WallTime,
    ) -> Result<Option<Arc<Token>>, Refusal> {
        let headers = request.headers();
        if let Some(given) = key::presented_key(request) {
            require_local_auth(scope, called)?;
            key::check_access_key(&given, &scope.keys, called)?;
            return Ok(None);
        }
        if let Some(token) = headers.get(SAS) {
            require_local_auth(scope, called)?;
            self.check_sas(token.as_bytes(), request, called, scope, wall)?;
            return Ok(None);
        }
        let Some(authorization) = headers.get(AUTHORIZATION) else {
            return Err(scope.no_credential());
        };
        let (scheme, token) = split_scheme(authorization.as_bytes());
        if scheme.eq_ignore_ascii_case(b"SharedAccessSignature") {
            require_local_auth(scope, called)?;
            self.check_sas(token, request, called, scope, wall)?;
            return Ok(None);
        }
        if scope.is_namespace() && scheme.eq_ignore_ascii_case(b"SharedAccessKey") {
            require_local_auth(scope, called)?;
            key::check_access_key(token, &scope.keys, called)?;
            return Ok(None);
        }
        if is_bearer(scheme) {
            let token_from_peer = request.extensions().get::<ForwardedToken>().cloned();
            let result = self.rules.bearer.authenticate_token(
                token,
                token_from_peer.as_ref(),
                role,
                &scope.token_resource(request),
                wall,
            );
            return result.map_err(|problem| problem.into_refusal(called.to_string()));
        }
        Err(scope.unknown_scheme())
    }

    /// A token must cover the matched route, at the called host if it is a name of the server, or
    /// at the server's public URL. It is compared with the route that matched, not with the path of
    /// the request, which a client can write in several ways.
    fn check_sas(
        &self,
        token: &[u8],
        request: &HttpRequest,
        called: &RequestAuthority,
        scope: &KeyScope<'_>,
        wall: WallTime,
    ) -> Result<(), Refusal> {
        let AuthRules { names, .. } = &self.rules;
        let route_scope = called
            .to_url()
            .map(|url| SasResource::below_url(&url, scope.routed_path(request)));
        let public = names
            .public_url
            .as_ref()
            .map(|url| SasResource::below_url(url, scope.full_path(request)));
        let mut resources = Vec::from_iter(public);
        let mut elsewhere = Vec::new();
        if names.contains_host(called, request) {
            resources.extend(route_scope);
        } else {
            elsewhere.extend(route_scope);
        }
        sas::check_sas_token(token, &scope.keys, &resources, wall).map_err(
            |problem| match problem {
                sas::SasTokenProblem::Resource
                    if sas::check_sas_token(token, &scope.keys, &elsewhere, wall).is_ok() =>
                {
                    Refusal::NotAuthorized {
                        host: called.to_string(),
                        why: UNKNOWN_HOST,
                    }
                }
                problem => problem.into_refusal(called.to_string()),
            },
        )
    }
}

fn require_local_auth(scope: &KeyScope<'_>, called: &RequestAuthority) -> Result<(), Refusal> {
    if !scope.ingress.disable_local_auth {
        return Ok(());
    }
    let why = "Access keys and SAS tokens are disabled for the resource (disableLocalAuth). Use an \
        access token";
    Err(Refusal::NotAuthorized {
        host: called.to_string(),
        why,
    })
}

/// Whether the request has an access token in its `Authorization` header.
pub fn has_access_token(request: &HttpRequest) -> bool {
    let authorization = request.headers().get(AUTHORIZATION);
    authorization.is_some_and(|value| is_bearer(split_scheme(value.as_bytes()).0))
}

fn is_bearer(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"Bearer")
}

/// The scheme of an `Authorization` header, and its value.
fn split_scheme(authorization: &[u8]) -> (&[u8], &[u8]) {
    let authorization = authorization.trim_ascii();
    match authorization.iter().position(|byte| *byte == b' ') {
        Some(at) => (&authorization[..at], authorization[at..].trim_ascii()),
        None => (authorization, b""),
    }
}
