//! Why a request about a deployment is refused.

use actix_web::http::StatusCode;

use super::expansion::EXPANSIONS_MAX;
use crate::AdminError;
use gridhook_api::resource::ErrorDetail;
use gridhook_engine::control::deployments::{DeploymentStoreError, RUNNING_DEPLOYMENTS_MAX};
use gridhook_event::Timestamp;

/// Why a request about a deployment is refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// The template or its parameters are invalid.
    #[error("Deployment template validation failed: '{0}'.")]
    Template(#[from] gridhook_declared::DeclarationError),
    /// The expressions of the template need too many rounds of states.
    #[error(
        "Deployment template validation failed: 'the template needs the states of resources in \
         more than {EXPANSIONS_MAX} steps'."
    )]
    Steps,
    /// A resource of the template is invalid.
    #[error(
        "The template deployment '{name}' is not valid according to the validation procedure: {}",
        listed(.problems)
    )]
    Resources {
        name: String,
        /// The error of each resource.
        problems: Vec<ErrorDetail>,
    },
    #[error("Deployment '{0}' could not be found.")]
    NotFound(String),
    /// The operation does not exist.
    #[error("The deployment '{deployment}' has no operation '{operation}'.")]
    NoOperation {
        deployment: String,
        operation: String,
    },
    /// The deployment still runs.
    #[error(
        "Unable to edit, replace or delete deployment '{name}': previous deployment from \
         '{started}' is still active. Wait for its end, or cancel it."
    )]
    Active { name: String, started: Timestamp },
    /// The deployment has ended.
    #[error("The deployment '{name}' cannot be cancelled: its state is '{state}'.")]
    Ended { name: String, state: &'static str },
    /// The deployment is one to an Azure subscription.
    #[error(
        "Deployments to an Azure subscription are not supported, because nothing here belongs to \
         one except resource groups: create the resource group, and deploy to it (az group create, \
         az deployment group create)."
    )]
    SubscriptionScope,
}

impl DeploymentError {
    /// The code, as Azure has it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Template(_) | Self::Steps => "InvalidTemplate",
            Self::Resources { .. } => "InvalidTemplateDeployment",
            Self::NotFound(_) => "DeploymentNotFound",
            Self::NoOperation { .. } => "DeploymentOperationNotFound",
            Self::Active { .. } => "DeploymentActive",
            Self::Ended { .. } => "DeploymentCannotBeCancelled",
            Self::SubscriptionScope => "NotSupported",
        }
    }

    pub(crate) fn status_code(&self) -> StatusCode {
        match self {
            Self::Template(_) | Self::Steps | Self::Resources { .. } | Self::SubscriptionScope => {
                StatusCode::BAD_REQUEST
            }
            Self::NotFound(_) | Self::NoOperation { .. } => StatusCode::NOT_FOUND,
            Self::Active { .. } | Self::Ended { .. } => StatusCode::CONFLICT,
        }
    }

    pub(crate) fn details(&self) -> &[ErrorDetail] {
        match self {
            Self::Resources { problems, .. } => problems,
            _ => &[],
        }
    }
}

fn listed(problems: &[ErrorDetail]) -> String {
    let messages: Vec<&str> = problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect();
    messages.join(" ")
}

/// The error of a request for the deployment `name`.
pub(super) fn store_error(error: DeploymentStoreError, name: &str) -> AdminError {
    match error {
        DeploymentStoreError::Active(started) => DeploymentError::Active {
            name: name.to_owned(),
            started,
        }
        .into(),
        DeploymentStoreError::Busy => AdminError::Unavailable(format!(
            "{RUNNING_DEPLOYMENTS_MAX} deployments run, which is the maximum; try again later."
        )),
        DeploymentStoreError::Registry(error) => error.into(),
    }
}
