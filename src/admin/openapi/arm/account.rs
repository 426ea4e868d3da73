//! OpenAPI descriptions of tenants, Azure subscriptions, resource groups, providers and locations.

use super::{OperationBuilder, ResourceType, Route, SchemaRegistry, draft, list, paged};
use crate::admin::model::account::{AzureSubscription, Location, Provider, ResourceGroup, Tenant};

pub(super) fn describe(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let draft = |id, summary| draft(route, id, summary);
    match route.subject {
        ResourceType::Tenants => list(draft("listTenants", "List tenants"), schemas.of::<Tenant>()),
        ResourceType::AzureSubscriptions => {
            let summary = "List the Azure subscriptions with resources";
            paged(draft("listAzureSubscriptions", summary), schemas.of::<AzureSubscription>())
        }
        ResourceType::AzureSubscription => draft("getAzureSubscription", "Get an Azure subscription").answer(
            200,
            "The Azure subscription",
            &schemas.of::<AzureSubscription>(),
        ),
        ResourceType::ResourceGroups => {
            let summary = "List the resource groups with resources";
            paged(draft("listResourceGroups", summary), schemas.of::<ResourceGroup>())
        }
        ResourceType::ResourceGroup => draft("getResourceGroup", "Get a resource group").answer(
            200,
            "The resource group",
            &schemas.of::<ResourceGroup>(),
        ),
        ResourceType::Providers => list(draft("listProviders", "List resource providers"), schemas.of::<Provider>()),
        ResourceType::Locations => list(draft("listLocations", "List locations"), schemas.of::<Location>()),
        _ => draft("getProvider", "Get the resource provider Microsoft.EventGrid").answer(
            200,
            "The resource provider",
            &schemas.of::<Provider>(),
        ),
    }
}
