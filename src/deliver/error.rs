//! Why there is nothing to send events with, or why a destination cannot be reached.
//!
//! The messages become details of failed attempts and refusals, so they name settings and services,
//! and no credentials.

use crate::{clients::MissingPart, request::RequestError};

/// Why a destination has no sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SenderError {
    #[error("the events are pulled, not sent")]
    Pulled,
    /// The topics of this server are not known yet.
    #[error("the server is starting")]
    Starting,
    #[error(transparent)]
    MissingPart(#[from] MissingPart),
    #[error(transparent)]
    NoIdentity(#[from] NoIdentity),
    #[error(transparent)]
    UnknownService(#[from] UnknownService),
    #[error(transparent)]
    Destination(#[from] RequestError),
    #[error("{0}")]
    NoClient(&'static str),
    #[error("delivery.resources.{service} needs {needed}")]
    Credentials {
        /// The name of the service's table in the settings.
        service: String,
        /// The combinations of credentials that are allowed.
        needed: &'static str,
    },
    #[error("delivery.resources.{0}.credentials is no credentials file of NATS")]
    CredentialsFile(String),
    #[error("delivery.resources.{0} has a credential that no header can carry")]
    CredentialCharacters(String),
    #[error("access_key is not base64")]
    AccessKey,
    /// A name that the protocol cannot carry.
    #[error("{0}")]
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is \"{given}\", which no table of delivery.resources stands for; {expectation}")]
pub struct UnknownService {
    pub(crate) given: String,
    pub(crate) expectation: String,
}

/// A subscription needs a token, and the server has no identity to request it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server has no identity; set delivery.identity_token_url, delivery.identity_client_id and \
     delivery.identity_secret_file, or delivery.identity_certificate_file and \
     delivery.identity_key_file"
)]
pub struct NoIdentity;

/// The URL of tokens has a part for the tenant, and the subscription names no tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("azureActiveDirectoryTenantId is missing; delivery.identity_token_url contains {{tenant}}")]
pub struct MissingTenant;

/// Why a destination cannot be reached. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreachableError {
    #[error(transparent)]
    Sender(#[from] SenderError),
    #[error("no response within {0:?}")]
    Timeout(std::time::Duration),
    /// The reason that the client of the service reports.
    #[error("{0}")]
    Service(String),
}

/// Why the certificate of the identity cannot authenticate the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssertionError {
    #[error(transparent)]
    Certificate(#[from] crate::trust::TrustError),
    #[error("no random number")]
    Random,
    #[error(transparent)]
    Signature(#[from] rustls::Error),
}

/// Why a request on a connection of its own has no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("no response within {} s", .0.as_secs())]
    Timeout(std::time::Duration),
    #[error(transparent)]
    Address(#[from] crate::address::AddressRefused),
    #[error("{0}")]
    Request(String),
    #[error(transparent)]
    Body(#[from] awc::error::PayloadError),
}
