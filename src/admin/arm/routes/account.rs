//! Routes of tenants, Azure subscriptions, resource groups and the resource provider.

use super::super::{
    account,
    operation::{PathOperations, delete, get, handler, list, patch, post, put},
    provider, resource_groups,
};
use crate::{
    auth::Access,
    openapi::{Query, QueryType, SKIP_TOKEN, TOP, any_object, describe},
};
use gridhook_api::{
    account::{
        AzureSubscription, GenericResource, Location, Provider, ResourceGroup, ResourceGroupBody,
        Tenant,
    },
    provider::{EventType, ProviderOperation, TopicType},
};

const RESOURCES: &[Query] = &[
    Query(
        "$filter",
        QueryType::Text,
        "Filter: `resourceType eq 'Microsoft.EventGrid/topics'`, `resourceGroup`, `name`, \
         `location`, `tagName`, `tagValue`, joined by `and`",
    ),
    TOP,
    SKIP_TOKEN,
];

pub(super) static ACCOUNT: PathOperations<12> = [
    (
        "/tenants",
        &[get(
            handler!(account::list_tenants),
            describe("listTenants", "List tenants").lists::<Tenant>(),
        )],
    ),
    (
        "/subscriptions",
        &[get(
            handler!(account::list_subscriptions),
            describe(
                "listAzureSubscriptions",
                "List the Azure subscriptions with resources",
            )
            .pages::<AzureSubscription>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}",
        &[get(
            handler!(account::get_subscription),
            describe("getAzureSubscription", "Get an Azure subscription")
                .returns::<AzureSubscription>(200, "The Azure subscription"),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/resourceGroups",
        &[get(
            handler!(resource_groups::list),
            describe(
                "listResourceGroups",
                "List the resource groups with resources",
            )
            .pages::<ResourceGroup>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}",
        &[
            get(
                handler!(resource_groups::get),
                describe("getResourceGroup", "Get a resource group")
                    .returns::<ResourceGroup>(200, "The resource group"),
            ),
            put(
                handler!(resource_groups::put),
                describe("putResourceGroup", "Create or change a resource group")
                    .takes::<ResourceGroupBody>(
                        true,
                        r#"{"location": "local", "tags": {"team": "shop"}}"#,
                    )
                    .returns::<ResourceGroup>(201, "The created or changed resource group"),
            )
            .with_difference(handler!(resource_groups::difference)),
            patch(
                handler!(resource_groups::patch),
                describe("patchResourceGroup", "Change the tags of a resource group")
                    .takes::<ResourceGroupBody>(true, r#"{"tags": {"team": "shop"}}"#)
                    .returns::<ResourceGroup>(200, "The resource group"),
            ),
            delete(
                handler!(resource_groups::delete),
                describe(
                    "deleteResourceGroup",
                    "Delete a resource group with all topics, domains and namespaces in it",
                )
                .returns_nothing(200, "The resource group does not exist any more"),
            ),
        ],
    ),
    (
        "/subscriptions/{subscriptionId}/resources",
        &[list(
            handler!(resource_groups::list_resources),
            describe("listResources", "List topics, domains and namespaces")
                .with(RESOURCES)
                .returns_page::<GenericResource>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/resources",
        &[list(
            handler!(resource_groups::list_resources),
            describe(
                "listResourcesOfGroup",
                "List topics, domains and namespaces of a resource group",
            )
            .with(RESOURCES)
            .returns_page::<GenericResource>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/tagNames",
        &[get(
            handler!(resource_groups::tag_names),
            describe("listTagNames", "List the names and values of tags").lists_json(any_object),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/register",
        &[post(
            Access::ADMIN,
            handler!(account::get_provider),
            describe(
                "registerProvider",
                "Register the resource provider, which always is registered (no effect)",
            )
            .returns::<Provider>(200, "The resource provider"),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/providers",
        &[get(
            handler!(account::list_providers),
            describe("listProviders", "List resource providers").lists::<Provider>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid",
        &[get(
            handler!(account::get_provider),
            describe(
                "getProvider",
                "Get the resource provider Microsoft.EventGrid",
            )
            .returns::<Provider>(200, "The resource provider"),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/locations",
        &[get(
            handler!(account::list_locations),
            describe("listLocations", "List locations").lists::<Location>(),
        )],
    ),
];

pub(super) static PROVIDERS: PathOperations<4> = [
    (
        "/operations",
        &[get(
            handler!(provider::operations),
            describe("listOperations", "List the operations of the provider")
                .lists::<ProviderOperation>(),
        )],
    ),
    (
        "/topicTypes",
        &[get(
            handler!(provider::topic_types),
            describe("listTopicTypes", "List topic types").lists::<TopicType>(),
        )],
    ),
    (
        "/topicTypes/{topicTypeName}",
        &[get(
            handler!(provider::topic_type),
            describe("getTopicType", "Get a topic type")
                .returns::<TopicType>(200, "The topic type"),
        )],
    ),
    (
        "/topicTypes/{topicTypeName}/eventTypes",
        &[get(
            handler!(provider::event_types),
            describe(
                "listEventTypes",
                "List the event types of a topic type (always empty)",
            )
            .lists::<EventType>(),
        )],
    ),
];
