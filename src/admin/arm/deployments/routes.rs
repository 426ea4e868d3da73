//! The table of the routes of deployments.

use super::super::operation::{Operation, answer, delete, get, post, put_by_call};
use crate::{auth::Access, openapi::arm::deployments as doc, placement::Merge};

#[rustfmt::skip]
static LIST: [Operation; 1] = [get(answer!(c => super::list(c)), doc::list).merged(Merge::List)];

#[rustfmt::skip]
static DEPLOYMENT: [Operation; 3] = [
    get(answer!(c => super::get(c)), doc::get),
    put_by_call(answer!(c => super::put(c).await), doc::put),
    delete(answer!(c => super::delete(c).await), doc::delete),
];

#[rustfmt::skip]
static VALIDATE: [Operation; 1] = [post(Access::ADMIN, answer!(c => super::validate(c).await), doc::validate)];

#[rustfmt::skip]
static WHAT_IF: [Operation; 1] = [post(Access::ADMIN, answer!(c => super::what_if(c).await), doc::what_if)];

#[rustfmt::skip]
static CANCEL: [Operation; 1] = [post(Access::ADMIN, answer!(c => super::cancel(c).await), doc::cancel)];

#[rustfmt::skip]
static EXPORT: [Operation; 1] = [post(Access::ADMIN, answer!(c => super::export_template(c).await), doc::export_template)];

#[rustfmt::skip]
static STATUS: [Operation; 1] = [get(answer!(c => super::status(c)), doc::status)];

#[rustfmt::skip]
static OPERATIONS: [Operation; 1] = [get(answer!(c => super::operations(c)), doc::operations)];

#[rustfmt::skip]
static OPERATION: [Operation; 1] = [get(answer!(c => super::operation(c)), doc::operation)];

/// The paths below a resource group, their operations, and the suffixes of their OpenAPI ids. Azure
/// has the operations without a provider.
#[rustfmt::skip]
pub(in crate::arm) static ROUTES: [(&str, &[Operation], &str); 11] = [
    ("/providers/Microsoft.Resources/deployments", &LIST, "Deployments"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}", &DEPLOYMENT, "Deployment"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}/validate", &VALIDATE, "Deployment"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}/whatIf", &WHAT_IF, "Deployment"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}/cancel", &CANCEL, "Deployment"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}/exportTemplate", &EXPORT, "Deployment"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}/operationStatuses/{operationStatusId}", &STATUS, "Deployment"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}/operations", &OPERATIONS, "DeploymentByProvider"),
    ("/providers/Microsoft.Resources/deployments/{deploymentName}/operations/{operationId}", &OPERATION, "DeploymentByProvider"),
    ("/deployments/{deploymentName}/operations", &OPERATIONS, "Deployment"),
    ("/deployments/{deploymentName}/operations/{operationId}", &OPERATION, "Deployment"),
];
