//! What a client of the control plane is told when it does not get what it asked for: ARM's statuses and error body.

use std::time::Duration;

use actix_web::{
    HttpResponse, ResponseError,
    http::{
        Method, StatusCode,
        header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE},
    },
};
use serde::Serialize;
use utoipa::ToSchema;

use super::model::InvalidRequest;
use crate::control::registry::ValidationRefusal;

/// Room on a full disk is made by people: asking more often than this tells them nothing new.
const RETRY_AFTER_SECONDS: u32 = 10;

/// Why a request of the control plane was not done. Nothing was changed by it, except where it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The body, or a name, is not what is allowed.
    #[error("{0}.")]
    Invalid(#[from] InvalidRequest),
    /// The body is well formed, and what it asks for is refused.
    #[error("{0}")]
    Refused(String),
    /// There is no token.
    #[error(
        "Authentication failed: the 'Authorization' header is missing or is not of the form 'Bearer <admin token>'."
    )]
    NoToken,
    /// There is a token and it is another.
    #[error("The access token is invalid.")]
    WrongToken,
    /// There is an access token of the issuer, and it is not good.
    #[error("{0}.")]
    RefusedToken(&'static str),
    /// The access token is good, and its holder may not operate the server.
    #[error("The access token does not have the role that the setting auth.admin_role names.")]
    NoRole,
    /// No resource names this subscription of Azure's.
    #[error("The subscription '{0}' could not be found.")]
    NoSubscription(String),
    /// No resource names this resource group.
    #[error("Resource group '{0}' could not be found.")]
    NoResourceGroup(String),
    /// Nothing answers at this path.
    #[error("No HTTP resource was found that matches the request URI '{0}'.")]
    NoSuchPath(String),
    /// The path is one of ours and the resource is not there.
    #[error("{0}")]
    NotFound(String),
    /// The path is one of ours and is asked in another way.
    #[error("The method {method} is not allowed here; allowed: {}.", listed(.allowed))]
    Method {
        /// How it was asked.
        method: String,
        /// How it can be.
        allowed: &'static [Method],
    },
    /// The name is taken by a resource somewhere else.
    #[error("{0}")]
    Conflict(String),
    /// An endpoint did not agree to be called.
    #[error("{}", refused(.0))]
    Validation(Box<ValidationRefusal>),
    /// It was there, and its time has passed.
    #[error("{0}")]
    Gone(String),
    /// The body is larger than this.
    #[error("The maximum size ({0}) has been exceeded.")]
    TooLarge(usize),
    /// The body did not come in time.
    #[error("The request's body was not received within {} seconds.", .0.as_secs())]
    Slow(Duration),
    /// The body broke off.
    #[error("The body could not be read: {0}.")]
    Body(String),
    /// The store takes no changes now, and will again.
    #[error("{0}")]
    Unavailable(String),
    /// The store did not do it; whether it was done is not known.
    #[error("The change may or may not have been made: {0}.")]
    Journal(String),
    /// A mistake of ours.
    #[error("The server is not set up: {0}.")]
    Broken(&'static str),
    /// The system has no random bytes for us.
    #[error("No access key could be made: {0}.")]
    NoRandomness(#[from] std::io::Error),
}

#[derive(Serialize, ToSchema)]
#[schema(as = ControlError)]
pub(super) struct ErrorResponse<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ControlErrorBody)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
    target: Option<&'a str>,
    details: Vec<ErrorDetail<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ControlErrorDetail)]
struct ErrorDetail<'a> {
    code: &'a str,
    message: &'a str,
}

impl AdminError {
    fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::Refused(_) | Self::Body(_) => "InvalidRequest",
            Self::NoToken => "AuthenticationFailed",
            Self::WrongToken | Self::RefusedToken(_) => "InvalidAuthenticationToken",
            Self::NoRole => "AuthorizationFailed",
            Self::NoSubscription(_) => "SubscriptionNotFound",
            Self::NoResourceGroup(_) => "ResourceGroupNotFound",
            Self::NoSuchPath(_) => "NotFound",
            Self::NotFound(_) => "ResourceNotFound",
            Self::Method { .. } => "MethodNotAllowed",
            Self::Conflict(_) => "Conflict",
            Self::Validation(_) => "Url validation",
            Self::Gone(_) => "Gone",
            Self::TooLarge(_) => "RequestEntityTooLarge",
            Self::Slow(_) => "RequestTimeout",
            Self::Unavailable(_) => "ServiceUnavailable",
            Self::Journal(_) | Self::Broken(_) | Self::NoRandomness(_) => "InternalServerError",
        }
    }

    fn target(&self) -> Option<&str> {
        if let Self::Invalid(invalid) = self { Some(&invalid.target) } else { None }
    }
}

impl ResponseError for AdminError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Invalid(_) | Self::Refused(_) | Self::Body(_) | Self::Validation(_) => StatusCode::BAD_REQUEST,
            Self::NoToken | Self::WrongToken | Self::RefusedToken(_) => StatusCode::UNAUTHORIZED,
            Self::NoRole => StatusCode::FORBIDDEN,
            Self::NoSuchPath(_) | Self::NotFound(_) | Self::NoSubscription(_) | Self::NoResourceGroup(_) => {
                StatusCode::NOT_FOUND
            }
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Gone(_) => StatusCode::GONE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Journal(_) | Self::Broken(_) | Self::NoRandomness(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        let message = self.to_string();
        let mut details = Vec::new();
        let cause = if let Self::Validation(refusal) = self {
            Some((refusal.cause.code(), refusal.cause.to_string()))
        } else {
            None
        };
        details.extend(cause.as_ref().map(|(code, message)| ErrorDetail { code, message }));
        let mut response = HttpResponse::build(self.status_code());
        if let Self::NoSuchPath(_) = self {
            details.push(ErrorDetail { code: "ResourceNotFound", message: &message });
        }
        if let Self::NoToken | Self::WrongToken | Self::RefusedToken(_) = self {
            response.insert_header((WWW_AUTHENTICATE, "Bearer"));
        }
        if let Self::Method { allowed, .. } = self {
            response.insert_header((ALLOW, listed(allowed)));
        }
        if let Self::Unavailable(_) = self {
            response.insert_header((RETRY_AFTER, RETRY_AFTER_SECONDS.to_string()));
        }
        response.json(ErrorResponse {
            error: ErrorBody { code: self.code(), message: &message, target: self.target(), details },
        })
    }
}

fn listed(methods: &[Method]) -> String {
    methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ")
}

/// Begins as Azure's message, so that programs that look for it find it, and then says what happened.
fn refused(refusal: &ValidationRefusal) -> String {
    let ValidationRefusal { endpoint, handshake, status, cause, at, activity } = refusal;
    let method = handshake.method();
    let status = status.map_or("Unknown".to_owned(), |status| status.to_string());
    format!(
        "Webhook validation handshake failed for {endpoint}. Http {method} request failed with response code {status}. \
         Activity id:{activity}, timestamp: {at} (UTC). What happened: {cause}."
    )
}
