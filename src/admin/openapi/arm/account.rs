//! OpenAPI descriptions of tenants, Azure subscriptions, resource groups, providers and locations.

use serde_json::json;

use super::{
    CHANGING, OperationBuilder, Route, SchemaRegistry, draft, error, list, list_of, paged, put,
};
use gridhook_api::account::{
    AzureSubscription, GenericResource, Location, Provider, ResourceGroup, ResourceGroupBody,
    Tenant,
};

pub(crate) fn tenants(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list(
        draft(route, "listTenants", "List tenants"),
        schemas.of::<Tenant>(),
    )
}

pub(crate) fn subscriptions(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the Azure subscriptions with resources";
    paged(
        draft(route, "listAzureSubscriptions", summary),
        schemas.of::<AzureSubscription>(),
    )
}

pub(crate) fn subscription(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<AzureSubscription>();
    draft(route, "getAzureSubscription", "Get an Azure subscription").answer(
        200,
        "The Azure subscription",
        &view,
    )
}

pub(crate) fn resource_groups(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the resource groups with resources";
    paged(
        draft(route, "listResourceGroups", summary),
        schemas.of::<ResourceGroup>(),
    )
}

pub(crate) fn resource_group(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<ResourceGroup>();
    draft(route, "getResourceGroup", "Get a resource group").answer(
        200,
        "The resource group",
        &view,
    )
}

pub(crate) fn put_resource_group(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let body = schemas.of::<ResourceGroupBody>();
    put(
        draft(
            route,
            "putResourceGroup",
            "Create or change a resource group",
        ),
        schemas,
    )
    .body(
        true,
        &body,
        json!({"location": "local", "tags": {"team": "shop"}}),
    )
    .answer(
        201,
        "The created or changed resource group",
        &schemas.of::<ResourceGroup>(),
    )
}

pub(crate) fn patch_resource_group(
    route: &Route,
    schemas: &mut SchemaRegistry,
) -> OperationBuilder {
    let body = schemas.of::<ResourceGroupBody>();
    draft(
        route,
        "patchResourceGroup",
        "Change the tags of a resource group",
    )
    .body(true, &body, json!({"tags": {"team": "shop"}}))
    .answer(200, "The resource group", &schemas.of::<ResourceGroup>())
    .errors(&CHANGING, &error())
}

pub(crate) fn delete_resource_group(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Delete a resource group with all topics, domains and namespaces in it";
    draft(route, "deleteResourceGroup", summary)
        .done(200, "The resource group does not exist any more")
        .errors(&CHANGING, &error())
}

pub(crate) fn resources(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list_resources(
        draft(
            route,
            "listResources",
            "List topics, domains and namespaces",
        ),
        schemas,
    )
}

pub(crate) fn resources_of_group(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List topics, domains and namespaces of a resource group";
    list_resources(draft(route, "listResourcesOfGroup", summary), schemas)
}

fn list_resources(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let text = json!({"type": "string"});
    let filter = "Filter: `resourceType eq 'Microsoft.EventGrid/topics'`, `resourceGroup`, `name`, \
        `location`, `tagName`, `tagValue`, joined by `and`";
    draft
        .query("$filter", filter, &text)
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
            &list_of(schemas.of::<GenericResource>()),
        )
}

pub(crate) fn tag_names(route: &Route, _: &mut SchemaRegistry) -> OperationBuilder {
    list(
        draft(route, "listTagNames", "List the names and values of tags"),
        json!({"type": "object"}),
    )
}

pub(crate) fn register_provider(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Register the resource provider, which always is registered (no effect)";
    draft(route, "registerProvider", summary).answer(
        200,
        "The resource provider",
        &schemas.of::<Provider>(),
    )
}

pub(crate) fn providers(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list(
        draft(route, "listProviders", "List resource providers"),
        schemas.of::<Provider>(),
    )
}

pub(crate) fn provider(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Get the resource provider Microsoft.EventGrid";
    draft(route, "getProvider", summary).answer(
        200,
        "The resource provider",
        &schemas.of::<Provider>(),
    )
}

pub(crate) fn locations(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list(
        draft(route, "listLocations", "List locations"),
        schemas.of::<Location>(),
    )
}
