//! Errors of the control plane, with ARM's statuses and error body.

use std::time::Duration;

use actix_web::{
    HttpResponse, ResponseError,
    error::BlockingError,
    http::{
        Method, StatusCode,
        header::{ALLOW, CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE},
    },
};

use super::{
    arm::deployments::DeploymentError,
    auth::Role,
    model::{InvalidRequest, subscription::plan::invalid_plan},
    random::NoRandomBytes,
    request_id,
};
use gridhook_api::resource::{
    AdditionalInfo, ErrorBody, ErrorDetail, ErrorResponse, RequestIdInfo,
};
use gridhook_compute::ComputeError;
use gridhook_engine::control::registry::{self, ValidationRefusal};
use gridhook_escape::count_with_noun;
use gridhook_journal as journal;

/// Retry interval. A full disk is freed by people; the other causes last seconds.
const RETRY_AFTER_SECONDS: u32 = 10;

/// Error of a request of the control plane. Nothing was changed, except where the error says
/// otherwise.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The body or a name is invalid.
    #[error("{0}.")]
    Invalid(#[from] InvalidRequest),
    /// The body is valid, and the change is refused.
    #[error("{0}")]
    Refused(String),
    #[error(
        "Authentication failed: the 'Authorization' header is missing or is not of the form \
         'Bearer <admin token>'."
    )]
    NoToken,
    #[error("The access token is invalid.")]
    WrongToken,
    /// The session has ended, or never existed.
    #[error("The session has ended; sign in again.")]
    SessionEnded,
    /// The access token of the issuer is invalid.
    #[error("{0}.")]
    RefusedToken(&'static str),
    /// The access token is valid and has no role.
    #[error("The access token has no role that the setting auth.admin_role or auth.grants names.")]
    NoRole,
    /// The roles of the token do not include the operation.
    #[error("The token has the role '{roles}'; this operation needs the role '{}'.", .needed.name())]
    WeakRole {
        /// The roles of the token.
        roles: String,
        /// The role of the operation.
        needed: Role,
    },
    /// The token is limited to a part of the server that the operation does not concern.
    #[error(
        "The token is limited to {0}; this operation concerns another resource or the whole server."
    )]
    OutOfScope(String),
    /// A portal link does not permit the request.
    #[error("A portal link does not permit this: {0}.")]
    PortalLink(&'static str),
    /// The body refers to something that the caller may not use.
    #[error(
        "The token is limited to a part of the server and may not use what {property} names; an \
         operator of the whole server, or {setting}, can permit it."
    )]
    Use {
        property: &'static str,
        /// The setting that names the users.
        setting: &'static str,
    },
    #[error("The subscription '{0}' could not be found.")]
    NoSubscription(String),
    #[error("Resource group '{0}' could not be found.")]
    NoResourceGroup(String),
    #[error("No HTTP resource was found that matches the request URI '{0}'.")]
    NoSuchPath(String),
    /// The resource does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The path does not support the method.
    #[error("The method {method} is not allowed here; allowed: {}.", join_methods(.allowed))]
    Method {
        /// The method of the request.
        method: String,
        /// The methods of the path.
        allowed: Vec<Method>,
    },
    /// The change conflicts with the present state.
    #[error("{0}")]
    Conflict(String),
    /// The resource was changed while the request was processed.
    #[error("{0}")]
    Stale(String),
    /// A precondition of the request failed.
    #[error("The condition '{condition}' failed: {}. Nothing was changed; read the resource \
        again.", describe_state(.current.as_deref()))]
    Precondition {
        /// The header of the precondition with its value.
        condition: String,
        /// The ETag of the resource; [`None`] if it does not exist.
        current: Option<String>,
    },
    #[error("{}", validation_message(.0))]
    Validation(Box<ValidationRefusal>),
    /// The request about a deployment is refused.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
    /// The code of an endpoint validation has expired.
    #[error("{0}")]
    Gone(String),
    /// The body is larger than this many bytes.
    #[error("The body exceeds {0} bytes.")]
    TooLarge(usize),
    /// The body was not received in time.
    #[error(
        "The request's body was not received within {}.",
        count_with_noun(.0.as_secs(), "second")
    )]
    Slow(Duration),
    /// The connection ended before the body did.
    #[error("The body could not be read: {0}.")]
    Body(String),
    /// The request cannot be served now; the client can repeat it later.
    #[error("{0}")]
    Unavailable(String),
    /// A record of the store is damaged or missing.
    #[error("The request failed: {0}.")]
    Store(String),
    /// A bug of the server.
    #[error("The server has a bug: {0}.")]
    Broken(&'static str),
    #[error("The system returned no random bytes: {0}.")]
    NoRandomBytes(#[from] NoRandomBytes),
}

impl AdminError {
    /// The code of the error body.
    pub(super) fn error_code(&self) -> &'static str {
        self.status_and_code().1
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Invalid(_) | Self::Refused(_) | Self::Body(_) => {
                (StatusCode::BAD_REQUEST, "InvalidRequest")
            }
            Self::Validation(_) => (StatusCode::BAD_REQUEST, "Url validation"),
            Self::NoToken => (StatusCode::UNAUTHORIZED, "AuthenticationFailed"),
            Self::WrongToken | Self::RefusedToken(_) | Self::SessionEnded => {
                (StatusCode::UNAUTHORIZED, "InvalidAuthenticationToken")
            }
            Self::NoRole
            | Self::WeakRole { .. }
            | Self::OutOfScope(_)
            | Self::PortalLink(_)
            | Self::Use { .. } => (StatusCode::FORBIDDEN, "AuthorizationFailed"),
            Self::NoSubscription(_) => (StatusCode::NOT_FOUND, "SubscriptionNotFound"),
            Self::NoResourceGroup(_) => (StatusCode::NOT_FOUND, "ResourceGroupNotFound"),
            Self::NoSuchPath(_) => (StatusCode::NOT_FOUND, "NotFound"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "ResourceNotFound"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::Conflict(_) | Self::Stale(_) => (StatusCode::CONFLICT, "Conflict"),
            Self::Precondition { .. } => (StatusCode::PRECONDITION_FAILED, "PreconditionFailed"),
            Self::Deployment(error) => (error.status_code(), error.code()),
            Self::Gone(_) => (StatusCode::GONE, "Gone"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "RequestTimeout"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::Store(_) | Self::Broken(_) | Self::NoRandomBytes(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError")
            }
        }
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status_code() == StatusCode::NOT_FOUND
    }

    fn error_target(&self) -> Option<&str> {
        match self {
            Self::Invalid(invalid) => Some(&invalid.target),
            _ => None,
        }
    }
}

impl ResponseError for AdminError {
    fn status_code(&self) -> StatusCode {
        self.status_and_code().0
    }

    fn error_response(&self) -> HttpResponse {
        let message = self.to_string();
        let mut details = Vec::new();
        if let Self::Validation(refusal) = self {
            let cause = &refusal.cause;
            details.push(ErrorDetail {
                code: cause.code().to_owned(),
                message: cause.to_string(),
            });
        }
        if let Self::Deployment(error) = self {
            details.extend_from_slice(error.details());
        }
        let mut response = HttpResponse::build(self.status_code());
        response.insert_header((CACHE_CONTROL, "no-store"));
        if let Self::NoSuchPath(_) = self {
            details.push(ErrorDetail {
                code: "ResourceNotFound".to_owned(),
                message: message.clone(),
            });
        }
        if self.status_code() == StatusCode::UNAUTHORIZED {
            response.insert_header((WWW_AUTHENTICATE, "Bearer"));
        }
        if let Self::Method { allowed, .. } = self {
            response.insert_header((ALLOW, join_methods(allowed)));
        }
        if let Self::Unavailable(_) = self {
            response.insert_header((RETRY_AFTER, RETRY_AFTER_SECONDS.to_string()));
        }
        let additional_info = request_id::current_id()
            .into_iter()
            .map(|id| AdditionalInfo {
                kind: "RequestId".to_owned(),
                info: RequestIdInfo {
                    request_id: id.to_string(),
                },
            });
        response.json(ErrorResponse {
            error: ErrorBody {
                code: self.error_code().to_owned(),
                message,
                target: self.error_target().map(str::to_owned),
                details,
                additional_info: additional_info.collect(),
            },
        })
    }
}

fn join_methods(methods: &[Method]) -> String {
    methods
        .iter()
        .map(Method::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

fn describe_state(current: Option<&str>) -> String {
    current.map_or_else(
        || "the resource does not exist".to_owned(),
        |tag| format!("the resource has the ETag {tag}"),
    )
}

impl From<ComputeError> for AdminError {
    fn from(error: ComputeError) -> Self {
        let problem = format!("The request was not answered: {error}.");
        match error {
            ComputeError::Time(_) | ComputeError::Memory(_) => Self::Refused(problem),
            ComputeError::Busy | ComputeError::Interrupted => Self::Unavailable(problem),
        }
    }
}

impl From<BlockingError> for AdminError {
    fn from(_: BlockingError) -> Self {
        Self::Unavailable("The server is stopping.".to_owned())
    }
}

impl From<registry::Error> for AdminError {
    fn from(error: registry::Error) -> Self {
        match error {
            registry::Error::Unknown(what) => Self::NotFound(what),
            registry::Error::Refused(why) => Self::Refused(why),
            registry::Error::Plan(error) => Self::Invalid(invalid_plan(&error)),
            registry::Error::Validation(refusal) => Self::Validation(refusal),
            registry::Error::Stale(why) => Self::Stale(why),
            registry::Error::CommandRefused(why) => {
                Self::Conflict(format!("Nothing was done: {why}."))
            }
            registry::Error::Full(why) => Self::Conflict(why),
            registry::Error::Journal(error) => error.into(),
            error @ registry::Error::Unreadable { .. } => Self::Store(error.to_string()),
        }
    }
}

impl From<journal::Error> for AdminError {
    fn from(error: journal::Error) -> Self {
        match error {
            journal::Error::Full => Self::Unavailable(
                "The disk of the data folder is full; nothing was changed. Try again when there \
                 is space."
                    .to_owned(),
            ),
            journal::Error::Closed => Self::Unavailable(
                "The journal is closed; a change may or may not have been made. Try again later."
                    .to_owned(),
            ),
            journal::Error::Fenced
            | journal::Error::Unknown
            | journal::Error::Backlog(_)
            | journal::Error::Damaged(_) => Self::Store(error.to_string()),
        }
    }
}

/// The message of a refused validation. It begins with Azure's message, which programs may search
/// for.
fn validation_message(refusal: &ValidationRefusal) -> String {
    let ValidationRefusal {
        endpoint,
        handshake,
        status,
        cause,
        at,
        activity,
    } = refusal;
    let method = handshake.http_method();
    let status = status.map_or("Unknown".to_owned(), |status| status.to_string());
    format!(
        "Webhook validation handshake failed for {endpoint}. Http {method} request failed with \
         response code {status}. Activity id:{activity}, timestamp: {at} (UTC). What happened: \
         {cause}."
    )
}
