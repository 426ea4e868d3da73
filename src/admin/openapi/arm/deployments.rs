//! OpenAPI descriptions of deployments of templates.

use serde_json::{Value, json};

use super::{CHANGING, OperationBuilder, Route, SchemaRegistry, draft, error, list_of};
use gridhook_api::deployment::{
    Deployment, DeploymentBody, DeploymentOperation, DeploymentStatus, ExportedTemplate,
    WhatIfResult,
};

fn with_body(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let template = json!({
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "resources": [],
    });
    let example = json!({"properties": {"mode": "Incremental", "template": template}});
    draft.body(true, &schemas.of::<DeploymentBody>(), example)
}

pub(crate) fn list(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"type": "string"});
    draft(route, "list", "List the deployments of a resource group")
        .query("$filter", "Filter: `provisioningState eq 'Running'`", &text)
        .query(
            "$top",
            "Maximum items in a page",
            &json!({"type": "integer", "minimum": 1, "maximum": 100}),
        )
        .query(
            "$skipToken",
            "Start of the page, taken from `nextLink`",
            &text,
        )
        .answer(
            200,
            "A page of the list, with the link to the next page",
            &list_of(schemas.of::<Deployment>()),
        )
}

pub(crate) fn get(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(route, "get", "Get a deployment").answer(
        200,
        "The deployment",
        &schemas.of::<Deployment>(),
    )
}

pub(crate) fn put(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view: Value = schemas.of::<Deployment>();
    let draft = draft(route, "put", "Deploy a template");
    with_body(draft, schemas)
        .answer(200, "The deployment, which existed before", &view)
        .answer(201, "The deployment", &view)
        .errors(&CHANGING, &error())
}

pub(crate) fn delete(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    super::delete(
        route,
        "Delete a deployment from the history; its resources stay",
    )
}

pub(crate) fn validate(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<Deployment>();
    let draft = draft(
        route,
        "validate",
        "Validate a template without deploying it",
    );
    with_body(draft, schemas)
        .answer(200, "The deployment that would be made", &view)
        .errors(&CHANGING, &error())
}

pub(crate) fn what_if(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<WhatIfResult>();
    let draft = draft(route, "whatIf", "Preview the changes of a deployment");
    with_body(draft, schemas)
        .answer(200, "The changes, or what is wrong", &view)
        .errors(&CHANGING, &error())
}

pub(crate) fn cancel(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Stop a running deployment before its next resource";
    draft(route, "cancel", summary)
        .done(204, "The deployment stops")
        .errors(&CHANGING, &error())
}

pub(crate) fn export_template(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(route, "exportTemplate", "Get the template of a deployment")
        .answer(200, "The template", &schemas.of::<ExportedTemplate>())
        .errors(&CHANGING, &error())
}

pub(crate) fn status(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(route, "getStatus", "Get how far a deployment is").answer(
        200,
        "The state of the deployment",
        &schemas.of::<DeploymentStatus>(),
    )
}

pub(crate) fn operations(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(
        route,
        "listOperations",
        "List the operations of a deployment",
    )
    .answer(
        200,
        "The operations, the last one first",
        &list_of(schemas.of::<DeploymentOperation>()),
    )
}

pub(crate) fn operation(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft(route, "getOperation", "Get an operation of a deployment").answer(
        200,
        "The operation",
        &schemas.of::<DeploymentOperation>(),
    )
}
