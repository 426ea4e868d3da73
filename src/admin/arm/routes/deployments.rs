//! Routes of deployments of templates.

use super::super::{
    deployments,
    operation::{ArmOperation, PathOperations, delete, get, handler, post, put},
    unsupported,
};
use crate::{
    auth::Access,
    openapi::{CHANGING, Query, QueryType, SKIP_TOKEN, TOP, describe},
};
use gridhook_api::deployment::{
    Deployment, DeploymentBody, DeploymentOperation, DeploymentStatus, ExportedTemplate,
    WhatIfResult,
};

const LISTED: &[Query] = &[
    Query(
        "$filter",
        QueryType::Text,
        "Filter: `provisioningState eq 'Running'`",
    ),
    TOP,
    SKIP_TOKEN,
];

const EXAMPLE: &str = r##"{"properties": {"mode": "Incremental", "template": {
    "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
    "contentVersion": "1.0.0.0", "resources": []}}}"##;

static OPERATIONS: [ArmOperation; 1] = [get(
    handler!(deployments::operations),
    describe("listOperations", "List the operations of a deployment")
        .lists::<DeploymentOperation>(),
)];

static OPERATION: [ArmOperation; 1] = [get(
    handler!(deployments::operation),
    describe("getOperation", "Get an operation of a deployment")
        .returns::<DeploymentOperation>(200, "The operation"),
)];

/// The paths below a resource group, their operations, and the suffixes of their OpenAPI ids. Azure
/// has the operations of a deployment without a provider.
pub(super) static DEPLOYMENTS: [(&str, &[ArmOperation], &str); 11] = [
    (
        "/providers/Microsoft.Resources/deployments",
        &[get(
            handler!(deployments::list),
            describe("list", "List the deployments of a resource group")
                .with(LISTED)
                .returns_page::<Deployment>(),
        )],
        "Deployments",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}",
        &[
            get(
                handler!(deployments::get),
                describe("get", "Get a deployment").returns::<Deployment>(200, "The deployment"),
            ),
            put(
                handler!(deployments::put),
                describe("put", "Deploy a template")
                    .takes::<DeploymentBody>(true, EXAMPLE)
                    .returns::<Deployment>(200, "The deployment, which existed before")
                    .returns::<Deployment>(201, "The deployment"),
            ),
            delete(
                handler!(deployments::delete),
                describe(
                    "delete",
                    "Delete a deployment from the history; its resources stay",
                )
                .returns_nothing(204, "The deployment is deleted"),
            ),
        ],
        "Deployment",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/validate",
        &[post(
            Access::ADMIN,
            handler!(deployments::validate),
            describe("validate", "Validate a template without deploying it")
                .takes::<DeploymentBody>(true, EXAMPLE)
                .returns::<Deployment>(200, "The deployment that would be made")
                .fails(CHANGING),
        )],
        "Deployment",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/whatIf",
        &[post(
            Access::ADMIN,
            handler!(deployments::what_if),
            describe("whatIf", "Preview the changes of a deployment")
                .takes::<DeploymentBody>(true, EXAMPLE)
                .returns::<WhatIfResult>(200, "The changes, or what is wrong")
                .fails(CHANGING),
        )],
        "Deployment",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/cancel",
        &[post(
            Access::ADMIN,
            handler!(deployments::cancel),
            describe(
                "cancel",
                "Stop a running deployment before its next resource",
            )
            .returns_nothing(204, "The deployment stops")
            .fails(CHANGING),
        )],
        "Deployment",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/exportTemplate",
        &[post(
            Access::ADMIN,
            handler!(deployments::export_template),
            describe("exportTemplate", "Get the template of a deployment")
                .returns::<ExportedTemplate>(200, "The template")
                .fails(CHANGING),
        )],
        "Deployment",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/operationStatuses/{operationStatusId}",
        &[get(
            handler!(deployments::status),
            describe("getStatus", "Get how far a deployment is")
                .returns::<DeploymentStatus>(200, "The state of the deployment"),
        )],
        "Deployment",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/operations",
        &OPERATIONS,
        "DeploymentByProvider",
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/operations/{operationId}",
        &OPERATION,
        "DeploymentByProvider",
    ),
    (
        "/deployments/{deploymentName}/operations",
        &OPERATIONS,
        "Deployment",
    ),
    (
        "/deployments/{deploymentName}/operations/{operationId}",
        &OPERATION,
        "Deployment",
    ),
];

/// The paths below an Azure subscription: clients read that it has no deployments, and why.
pub(super) static SUBSCRIPTION_DEPLOYMENTS: PathOperations<4> = [
    (
        "/providers/Microsoft.Resources/deployments",
        &[get(
            handler!(unsupported::list),
            describe(
                "list",
                "List the deployments of an Azure subscription (always empty)",
            )
            .lists::<Deployment>(),
        )],
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}",
        &[
            get(
                handler!(deployments::get_in_subscription),
                describe(
                    "get",
                    "Get a deployment of an Azure subscription (always 404)",
                )
                .returns::<Deployment>(200, "Never sent: none exists"),
            ),
            put(
                handler!(deployments::refuse_in_subscription),
                describe("put", "Refuse a deployment to an Azure subscription")
                    .takes::<DeploymentBody>(false, EXAMPLE)
                    .returns::<Deployment>(201, "Never sent: none can be created"),
            ),
        ],
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/validate",
        &[post(
            Access::ADMIN,
            handler!(deployments::refuse_in_subscription),
            describe(
                "validate",
                "Refuse to validate a deployment to an Azure subscription",
            )
            .takes::<DeploymentBody>(false, EXAMPLE)
            .returns::<Deployment>(200, "Never sent: none is valid")
            .fails(CHANGING),
        )],
    ),
    (
        "/providers/Microsoft.Resources/deployments/{deploymentName}/whatIf",
        &[post(
            Access::ADMIN,
            handler!(deployments::refuse_in_subscription),
            describe(
                "whatIf",
                "Refuse to preview a deployment to an Azure subscription",
            )
            .takes::<DeploymentBody>(false, EXAMPLE)
            .returns::<WhatIfResult>(200, "Never sent: none is valid")
            .fails(CHANGING),
        )],
    ),
];
