//! Routes of tenants, Azure subscriptions, resource groups and the resource provider.

use crate::respond_json;

use super::super::{
    account,
    operation::{Operation, delete, get, handler, list, patch, post, put},
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

pub(super) static ACCOUNT: [(&str, &[Operation]); 12] = [
    (
        "/tenants",
        &[get(
            handler!(_c => Ok(account::list_tenants())),
            describe("listTenants", "List tenants").lists::<Tenant>(),
        )],
    ),
    (
        "/subscriptions",
        &[get(
            handler!(call => account::list_subscriptions(call.control, call.request)),
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
            handler!(call => {
                account::get_subscription(call.control, call.path.name("subscriptionId")?)
            }),
            describe("getAzureSubscription", "Get an Azure subscription")
                .returns::<AzureSubscription>(200, "The Azure subscription"),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/resourceGroups",
        &[get(
            handler!(call => {
                resource_groups::list(call.control, call.request, call.path.name("subscriptionId")?)
            }),
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
                handler!(call => {
                    resource_groups::get(call.control, call.request, &call.path.arm_scope()?)
                }),
                describe("getResourceGroup", "Get a resource group")
                    .returns::<ResourceGroup>(200, "The resource group"),
            ),
            put(
                handler!(call => resource_groups::put(call).await),
                handler!(call => resource_groups::difference(call)),
                describe("putResourceGroup", "Create or change a resource group")
                    .takes::<ResourceGroupBody>(
                        true,
                        r#"{"location": "local", "tags": {"team": "shop"}}"#,
                    )
                    .returns::<ResourceGroup>(201, "The created or changed resource group"),
            ),
            patch(
                handler!(call => resource_groups::patch(call).await),
                describe("patchResourceGroup", "Change the tags of a resource group")
                    .takes::<ResourceGroupBody>(true, r#"{"tags": {"team": "shop"}}"#)
                    .returns::<ResourceGroup>(200, "The resource group"),
            ),
            delete(
                handler!(call => {
                    resource_groups::delete(call.control, &call.path.arm_scope()?).await
                }),
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
            handler!(call => resource_groups::list_resources(call, &call.path.azure_scope()?)),
            describe("listResources", "List topics, domains and namespaces")
                .with(RESOURCES)
                .returns_page::<GenericResource>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/resources",
        &[list(
            handler!(call => resource_groups::list_resources(call, &call.path.azure_scope()?)),
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
            handler!(call => {
                let subscription = call.path.name("subscriptionId")?;
                let names = resource_groups::tag_names(call.control, subscription);
                respond_json(&names)
            }),
            describe("listTagNames", "List the names and values of tags").lists_json(any_object),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/register",
        &[post(
            Access::ADMIN,
            handler!(call => {
                Ok(account::get_provider(call.control, call.path.name("subscriptionId")?))
            }),
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
            handler!(call => {
                Ok(account::list_providers(call.control, call.path.name("subscriptionId")?))
            }),
            describe("listProviders", "List resource providers").lists::<Provider>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid",
        &[get(
            handler!(call => {
                Ok(account::get_provider(call.control, call.path.name("subscriptionId")?))
            }),
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
            handler!(call => {
                Ok(account::list_locations(call.control, call.path.name("subscriptionId")?))
            }),
            describe("listLocations", "List locations").lists::<Location>(),
        )],
    ),
];

pub(super) static PROVIDERS: [(&str, &[Operation]); 4] = [
    (
        "/operations",
        &[get(
            handler!(_c => Ok(provider::operations())),
            describe("listOperations", "List the operations of the provider")
                .lists::<ProviderOperation>(),
        )],
    ),
    (
        "/topicTypes",
        &[get(
            handler!(_c => Ok(provider::topic_types())),
            describe("listTopicTypes", "List topic types").lists::<TopicType>(),
        )],
    ),
    (
        "/topicTypes/{topicTypeName}",
        &[get(
            handler!(call => provider::topic_type(call.path.name("topicTypeName")?)),
            describe("getTopicType", "Get a topic type")
                .returns::<TopicType>(200, "The topic type"),
        )],
    ),
    (
        "/topicTypes/{topicTypeName}/eventTypes",
        &[get(
            handler!(call => provider::event_types(call.path.name("topicTypeName")?)),
            describe(
                "listEventTypes",
                "List the event types of a topic type (always empty)",
            )
            .lists::<EventType>(),
        )],
    ),
];
