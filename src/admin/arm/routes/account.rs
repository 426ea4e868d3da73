//! Routes of tenants, Azure subscriptions, resource groups and the resource provider.

use crate::respond_json;

use super::super::{
    account,
    operation::{Operation, answer, delete, get, list, patch, post, put},
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
            answer!(_c => Ok(account::list_tenants())),
            describe("listTenants", "List tenants").lists::<Tenant>(),
        )],
    ),
    (
        "/subscriptions",
        &[get(
            answer!(c => account::list_subscriptions(c.control, c.request)),
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
            answer!(c => account::get_subscription(c.control, c.path.name("subscriptionId")?)),
            describe("getAzureSubscription", "Get an Azure subscription")
                .returns::<AzureSubscription>(200, "The Azure subscription"),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/resourceGroups",
        &[get(
            answer!(c => {
                resource_groups::list(c.control, c.request, c.path.name("subscriptionId")?)
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
                answer!(c => resource_groups::get(c.control, c.request, &c.path.arm_scope()?)),
                describe("getResourceGroup", "Get a resource group")
                    .returns::<ResourceGroup>(200, "The resource group"),
            ),
            put(
                answer!(c => resource_groups::put(c).await),
                answer!(c => resource_groups::difference(c)),
                describe("putResourceGroup", "Create or change a resource group")
                    .takes::<ResourceGroupBody>(
                        true,
                        r#"{"location": "local", "tags": {"team": "shop"}}"#,
                    )
                    .returns::<ResourceGroup>(201, "The created or changed resource group"),
            ),
            patch(
                answer!(c => resource_groups::patch(c).await),
                describe("patchResourceGroup", "Change the tags of a resource group")
                    .takes::<ResourceGroupBody>(true, r#"{"tags": {"team": "shop"}}"#)
                    .returns::<ResourceGroup>(200, "The resource group"),
            ),
            delete(
                answer!(c => resource_groups::delete(c.control, &c.path.arm_scope()?).await),
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
            answer!(c => resource_groups::list_resources(c, &c.path.azure_scope()?)),
            describe("listResources", "List topics, domains and namespaces")
                .with(RESOURCES)
                .returns_page::<GenericResource>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/resources",
        &[list(
            answer!(c => resource_groups::list_resources(c, &c.path.azure_scope()?)),
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
            answer!(c => {
                let names = resource_groups::tag_names(c.control, c.path.name("subscriptionId")?);
                respond_json(&names)
            }),
            describe("listTagNames", "List the names and values of tags").lists_json(any_object),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/register",
        &[post(
            Access::ADMIN,
            answer!(c => Ok(account::get_provider(c.control, c.path.name("subscriptionId")?))),
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
            answer!(c => Ok(account::list_providers(c.control, c.path.name("subscriptionId")?))),
            describe("listProviders", "List resource providers").lists::<Provider>(),
        )],
    ),
    (
        "/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid",
        &[get(
            answer!(c => Ok(account::get_provider(c.control, c.path.name("subscriptionId")?))),
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
            answer!(c => Ok(account::list_locations(c.control, c.path.name("subscriptionId")?))),
            describe("listLocations", "List locations").lists::<Location>(),
        )],
    ),
];

pub(super) static PROVIDERS: [(&str, &[Operation]); 4] = [
    (
        "/operations",
        &[get(
            answer!(_c => Ok(provider::operations())),
            describe("listOperations", "List the operations of the provider")
                .lists::<ProviderOperation>(),
        )],
    ),
    (
        "/topicTypes",
        &[get(
            answer!(_c => Ok(provider::topic_types())),
            describe("listTopicTypes", "List topic types").lists::<TopicType>(),
        )],
    ),
    (
        "/topicTypes/{topicTypeName}",
        &[get(
            answer!(c => provider::topic_type(c.path.name("topicTypeName")?)),
            describe("getTopicType", "Get a topic type")
                .returns::<TopicType>(200, "The topic type"),
        )],
    ),
    (
        "/topicTypes/{topicTypeName}/eventTypes",
        &[get(
            answer!(c => provider::event_types(c.path.name("topicTypeName")?)),
            describe(
                "listEventTypes",
                "List the event types of a topic type (always empty)",
            )
            .lists::<EventType>(),
        )],
    ),
];
