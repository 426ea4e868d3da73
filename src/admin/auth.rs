//! Authentication of operators: by the admin token, by a named token, by an access token of the
//! issuer, or by a session of the dashboard that stands for one of them.
//!
//! Each operation needs a [`Role`], for the resource that it concerns or for the whole server. The
//! admin token has all of them.

use std::sync::Arc;

use actix_web::{
    HttpMessage, HttpRequest,
    body::BoxBody,
    dev::{ServiceRequest, ServiceResponse},
    http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HeaderValue},
    middleware::Next,
    web,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::Instrument as _;

use super::{
    Control,
    admin_token::AdminToken,
    arm, audit,
    error::AdminError,
    permissions::{Permissions, Target},
    request_id,
};
use crate::AdminResult;
use gridhook_dashboard::session;
use gridhook_engine::control::{
    audit::AuditedOperation,
    tokens::{self, ForwardedToken, Token, TokenProblem},
};
use gridhook_event::WallTime;
use gridhook_publish::auth::bearer::{BearerProblem, TokenHolder};
use gridhook_record::{
    subscription::IdentityType,
    token::{Grant, TokenRecord, TokenRole},
};

/// Permissions of a token. Each role has the permissions of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Use the operations for portal links.
    Portal,
    /// Read the metrics of the server. `metrics.token` has this role, and no named token.
    Metrics,
    /// Read everything except secrets.
    Read,
    /// Operate event subscriptions and the store: hold, replay, redrive, check.
    Operate,
    /// Change resources, read secrets and inject faults.
    Admin,
}

impl Role {
    /// The role of a token with this role; [`None`] for one that may not operate.
    pub(super) fn from_token_role(role: TokenRole) -> Option<Self> {
        match role {
            TokenRole::Publish | TokenRole::Consume => None,
            TokenRole::Portal => Some(Self::Portal),
            TokenRole::Read => Some(Self::Read),
            TokenRole::Operate => Some(Self::Operate),
            TokenRole::Admin => Some(Self::Admin),
        }
    }

    /// The name in settings, messages and the OpenAPI document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portal => "portal",
            Self::Metrics => "metrics",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The role that the operation needs; [`None`] if it needs no token.
    pub role: Option<Role>,
    /// Whether the role [`Role::Portal`] is enough.
    pub is_for_portals: bool,
}

impl Access {
    pub(super) const OPEN: Self = Self {
        role: None,
        is_for_portals: false,
    };
    pub(super) const METRICS: Self = Self::needing(Role::Metrics);
    pub(super) const READ: Self = Self::needing(Role::Read);
    pub(super) const OPERATE: Self = Self::needing(Role::Operate);
    pub(super) const ADMIN: Self = Self::needing(Role::Admin);

    const fn needing(role: Role) -> Self {
        Self {
            role: Some(role),
            is_for_portals: false,
        }
    }

    /// Also admits the holders of portal links.
    pub(super) const fn or_portal(self) -> Self {
        Self {
            is_for_portals: true,
            ..self
        }
    }

    /// Whether the holder of a token with this role may use the operation; [`None`] is a caller
    /// without a token.
    pub fn admits_role(self, role: Option<Role>) -> bool {
        role >= self.role || self.is_for_portals && role == Some(Role::Portal)
    }
}

/// The records of the control plane about a bearer token.
#[derive(Clone, Deserialize, Serialize)]
pub struct ForwardedIdentity {
    /// The token that a session of the dashboard stands for.
    pub stands_for: Option<String>,
    /// The record of the named token.
    pub record: Option<TokenRecord>,
}

impl ForwardedIdentity {
    /// Whether only the control plane can check a bearer token.
    pub fn is_needed(bearer: &str) -> bool {
        bearer.starts_with(tokens::PREFIX) || bearer.starts_with(session::PREFIX)
    }
}

/// The caller of a request.
#[derive(Clone, Debug)]
pub enum AdminCaller {
    /// A holder of the admin token. The channel changes when the token is replaced.
    Admin(watch::Receiver<()>),
    /// A holder of a named token.
    Named(Arc<Token>),
    /// A holder of an access token of the issuer.
    Holder(TokenHolder),
    /// The server, for the configuration file `server.apply`.
    Declared,
}

impl AdminCaller {
    /// Name and kind of the caller for `systemData`.
    pub(super) fn identity(&self) -> (&str, IdentityType) {
        match self {
            Self::Admin(_) => ("admin", IdentityType::Key),
            Self::Named(token) => (token.name(), IdentityType::Key),
            Self::Holder(TokenHolder {
                name,
                is_application: true,
                ..
            }) => (name, IdentityType::Application),
            Self::Holder(TokenHolder {
                name,
                is_application: false,
                ..
            }) => (name, IdentityType::User),
            Self::Declared => ("gridhook", IdentityType::Application),
        }
    }

    /// A key that no other caller has.
    pub(super) fn identity_key(&self) -> String {
        match self {
            Self::Admin(_) => "admin".to_owned(),
            Self::Named(token) => format!("token {}", token.name().to_ascii_lowercase()),
            Self::Holder(holder) => format!("holder {}", holder.name),
            Self::Declared => "declared".to_owned(),
        }
    }

    /// Waits until the caller's token is revoked, replaced or expires.
    pub(super) async fn wait_until_ended(&self, wall: WallTime) {
        match self {
            Self::Named(token) => token.wait_for_end(wall).await,
            Self::Admin(replacements) => {
                let mut replacements = replacements.clone();
                // It fails if the server ends.
                replacements.changed().await.ok();
            }
            Self::Holder(holder) => {
                tokio::time::sleep(holder.expires.since(wall.to_timestamp())).await
            }
            Self::Declared => std::future::pending().await,
        }
    }
}

/// Checks that the caller of a request may use an operation, before the body is read. The request's
/// extensions then have the [`Permissions`], and no cache may store the response. Neither is so for
/// an operation that needs no role, and for a scrape with the token for metrics.
pub(super) async fn authorize(
    access: Access,
    target: Target,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> actix_web::Result<ServiceResponse<BoxBody>> {
    let Some(role) = access.role else {
        return next.call(request).await;
    };
    let control = request.app_data::<web::Data<Control>>();
    let control = control
        .ok_or(AdminError::Broken("no control plane is set up"))?
        .clone();
    if role == Role::Metrics && control.exposition.may_read(bearer_token(request.request())) {
        return next.call(request).await;
    }
    let authentication = authenticate(request.request(), &control).await;
    let all_permissions = authentication.as_ref().ok().cloned();
    let authorization = authentication
        .and_then(|permissions| permissions.narrowed_to(access, &target))
        .and_then(|permissions| {
            check_announced_length(request.request())?;
            Ok(permissions)
        });
    let operation =
        audit::begin_request(&control, role, request.request(), all_permissions.as_ref());
    let is_detached = operation.is_some() || role >= Role::Operate;
    let http = operation.is_some().then(|| request.request().clone());
    let handling = async move {
        match authorization {
            Ok(permissions) => {
                let id = request_id::current_id().map(tracing::field::display);
                let operator = all_permissions
                    .as_ref()
                    .map(|permissions| permissions.caller.identity().0);
                let span = tracing::info_span!("request", id, operator);
                request.extensions_mut().insert(permissions);
                next.call(request).instrument(span).await
            }
            // Build the response here: actix renders an `Err` outside of this task, so it would
            // lack the id of the request.
            Err(error) => Ok(request.error_response(error)),
        }
    };
    let recording = record_outcome(operation, http, handling);
    let result = if is_detached {
        run_detached(recording).await?
    } else {
        recording.await
    };
    let mut response = result?;
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Refuses a body whose `Content-Length` is too large, before the client sends it.
fn check_announced_length(request: &HttpRequest) -> AdminResult<()> {
    let length = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let bytes_max = arm::body_limit(request);
    if length.is_some_and(|length| length > bytes_max) {
        return Err(AdminError::TooLarge(bytes_max));
    }
    Ok(())
}

type HandlerResult = actix_web::Result<ServiceResponse<BoxBody>>;

/// Handles a request and records how it ended.
async fn record_outcome(
    operation: Option<Arc<AuditedOperation>>,
    request: Option<HttpRequest>,
    handling: impl Future<Output = HandlerResult>,
) -> HandlerResult {
    let (Some(operation), Some(request)) = (operation, request) else {
        return handling.await;
    };
    let result = Arc::clone(&operation).execute(handling).await;
    let status = match &result {
        Ok(response) => response.status(),
        Err(error) => error.as_response_error().status_code(),
    };
    audit::finish_operation(operation, &request, status).await;
    result
}

/// Runs a task that ends although its client disconnects: a change is made with its record and
/// under its lock, or not at all.
async fn run_detached(
    handling: impl Future<Output = HandlerResult> + 'static,
) -> AdminResult<HandlerResult> {
    let task = match request_id::current_id() {
        Some(id) => actix_web::rt::spawn(request_id::with_id(id, handling)),
        None => actix_web::rt::spawn(handling),
    };
    task.await
        .map_err(|_| AdminError::Broken("the handler of the request panicked"))
}

/// Finds what the token of a request permits. A session permits what the token permits that it
/// stands for.
async fn authenticate(request: &HttpRequest, control: &Control) -> AdminResult<Permissions> {
    let text = bearer_token(request).ok_or(AdminError::NoToken)?;
    let admin_token = request
        .app_data::<web::Data<AdminToken>>()
        .ok_or(AdminError::Broken("no admin token is set up"))?;
    let now = control.clock.now();
    if control.has_dashboard && text.starts_with(session::PREFIX) {
        let sessions = control.registry.sessions();
        let (token, session) = sessions
            .find_token(text, now)
            .ok_or(AdminError::SessionEnded)?;
        request.extensions_mut().insert(session);
        let permissions = control.find_permissions(request, admin_token, &token);
        if let Err(AdminError::WrongToken | AdminError::RefusedToken(_)) = &permissions {
            sessions.end_session(text);
        }
        return permissions;
    }
    let permissions = control.find_permissions(request, admin_token, text);
    if let Err(AdminError::WrongToken | AdminError::RefusedToken(_)) = &permissions {
        control.failed_auth.delay_refusal(request, now).await;
    }
    permissions
}

impl Control {
    /// The records with which the other shards of a cluster check a bearer token; [`None`] if this
    /// store has none of it.
    pub fn forwarded_identity(&self, bearer: &str) -> Option<ForwardedIdentity> {
        let stands_for = if self.has_dashboard && bearer.starts_with(session::PREFIX) {
            let now = self.clock.now();
            Some(self.registry.sessions().find_token(bearer, now)?.0)
        } else {
            None
        };
        let token = stands_for.as_deref().unwrap_or(bearer);
        let record = if token.starts_with(tokens::PREFIX) {
            Some(
                self.registry
                    .tokens()
                    .find_token(token, self.clock.wall_time())
                    .ok()?
                    .to_record(),
            )
        } else {
            None
        };
        (stands_for.is_some() || record.is_some())
            .then_some(ForwardedIdentity { stands_for, record })
    }

    /// Finds what the admin token, a named token or an access token of the issuer permits.
    fn find_permissions(
        &self,
        request: &HttpRequest,
        admin_token: &AdminToken,
        token: &str,
    ) -> AdminResult<Permissions> {
        // Before the comparison, so that no replacement is missed.
        let replacements = admin_token.replacements();
        if admin_token.matches(token) {
            return Ok(Permissions::new(
                AdminCaller::Admin(replacements),
                vec![Grant::for_server(TokenRole::Admin)],
            ));
        }
        let wall = self.clock.wall_time();
        if token.starts_with(tokens::PREFIX) {
            let named_token = match request.extensions().get::<ForwardedToken>() {
                Some(forwarded) => forwarded.verify_text(token, wall),
                None => self.registry.tokens().find_token(token, wall),
            };
            return match named_token {
                Ok(token) => {
                    let grants = token.grants().to_vec();
                    Ok(Permissions::new(AdminCaller::Named(token), grants))
                }
                Err(TokenProblem::Unknown) => Err(AdminError::WrongToken),
                Err(TokenProblem::Expired) => {
                    Err(AdminError::RefusedToken("The token has expired"))
                }
            };
        }
        match self
            .operators
            .as_ref()
            .map(|issuer| issuer.read_grants(token, wall))
        {
            Some(Ok((holder, grants))) => Ok(Permissions::new(AdminCaller::Holder(holder), grants)),
            Some(Err(BearerProblem::Refused(why))) => Err(AdminError::RefusedToken(why)),
            Some(Err(BearerProblem::UnknownKey)) => Err(AdminError::Unavailable(
                "The access token cannot be checked: the server has no current keys of the issuer. \
                 Try again."
                    .to_owned(),
            )),
            Some(Err(BearerProblem::Forbidden(_))) => Err(AdminError::NoRole),
            Some(Err(BearerProblem::Unreadable)) | None => Err(AdminError::WrongToken),
        }
    }
}

/// The token of a header of the form `Bearer {token}`.
pub(super) fn bearer_token(request: &HttpRequest) -> Option<&str> {
    request.headers().get(AUTHORIZATION).and_then(bearer_in)
}

/// The bearer token in the value of a header.
pub fn bearer_in(authorization: &HeaderValue) -> Option<&str> {
    let (scheme, token) = authorization.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim())
}
