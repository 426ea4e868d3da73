//! OpenAPI descriptions of tenants, Azure subscriptions, resource groups, providers and locations.

use super::{OperationBuilder, Route, SchemaRegistry, draft, list, paged};
use gridhook_api::account::{AzureSubscription, Location, Provider, ResourceGroup, Tenant};

pub(crate) fn tenants(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list(draft(route, "listTenants", "List tenants"), schemas.of::<Tenant>())
}

pub(crate) fn subscriptions(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the Azure subscriptions with resources";
    paged(draft(route, "listAzureSubscriptions", summary), schemas.of::<AzureSubscription>())
}

pub(crate) fn subscription(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<AzureSubscription>();
    draft(route, "getAzureSubscription", "Get an Azure subscription").answer(200, "The Azure subscription", &view)
}

pub(crate) fn resource_groups(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "List the resource groups with resources";
    paged(draft(route, "listResourceGroups", summary), schemas.of::<ResourceGroup>())
}

pub(crate) fn resource_group(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let view = schemas.of::<ResourceGroup>();
    draft(route, "getResourceGroup", "Get a resource group").answer(200, "The resource group", &view)
}

pub(crate) fn providers(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list(draft(route, "listProviders", "List resource providers"), schemas.of::<Provider>())
}

pub(crate) fn provider(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let summary = "Get the resource provider Microsoft.EventGrid";
    draft(route, "getProvider", summary).answer(200, "The resource provider", &schemas.of::<Provider>())
}

pub(crate) fn locations(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    list(draft(route, "listLocations", "List locations"), schemas.of::<Location>())
}
