//! The table of the routes of Azure Resource Manager: path, methods, roles, handlers and
//! descriptions.
//!
//! [`super::path`] parses requests with it; `Allow` of 405 responses, authorization, `whatIf` and
//! `/openapi.json` are built from it. The first route that matches a path is used. Those of
//! gridhook itself are in `admin::routes`.

use std::sync::LazyLock;

use actix_web::{HttpResponse, http::Method};

use super::{
    account, deployments, domain_topics, event_types, namespaces,
    operation::{Operation, answer, delete, get, list, patch, post, put},
    provider, resource_groups, subscriptions, topics, unsupported,
};
use crate::{
    auth::Access,
    dead_letters, events, explain, ledger,
    merge::PartsMerge,
    metrics,
    model::subscription::PathForm,
    openapi::arm::{
        self as doc, account as account_doc, dead_letters as dead_letters_doc,
        events as events_doc, namespaces as namespaces_doc, subscriptions as subscriptions_doc,
        topics as topics_doc,
    },
    operate,
    placement::Merge,
    replay, retry, test_filter, trace,
};
use gridhook_policy::record::{Command, job::JobCommand};
use gridhook_record::topic::TopicKind;

/// A path and its operations.
pub struct Route {
    /// Path with parameters in braces, as in `/subscriptions/{subscriptionId}/…`.
    pub template: String,
    /// Operations by method.
    pub operations: &'static [Operation],
    /// Kind of the topics of a list.
    pub(super) kind: TopicKind,
    /// Form of the path of event subscriptions.
    pub(super) form: PathForm,
    /// Name of the resource type in paths, such as `topics`.
    pub(crate) resource: &'static str,
    /// Tag of the operations in the OpenAPI document.
    pub(crate) tag: &'static str,
    /// Suffix of the ids of the operations in the OpenAPI document: resource type, parent and form
    /// of the path.
    pub(crate) id: String,
}

/// All routes.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(routes);

const PROVIDER: &str = "/providers/Microsoft.EventGrid";

/// A handler of an operation on a topic.
macro_rules! on_topic {
    ($handler:path) => { answer!(call => $handler(call, &call.path.topic()?).await) };
    ($call:ident, $topic:ident => $body:expr) => {
        answer!($call => {
            let $topic = &$call.path.topic()?;
            $body
        })
    };
}

/// A handler of an operation on an event subscription.
macro_rules! on_subscription {
    ($handler:path) => { answer!(call => $handler(call, &call.path.topic()?, &call.path.subscription()?).await) };
    ($call:ident, $topic:ident, $name:ident => $body:expr) => {
        answer!($call => {
            let ($topic, $name) = (&$call.path.topic()?, &$call.path.subscription()?);
            $body
        })
    };
}

#[rustfmt::skip]
static ACCOUNT: [(&str, &[Operation]); 12] = [
    ("/tenants", &[get(answer!(_c => Ok(account::tenants())), account_doc::tenants)]),
    ("/subscriptions", &[get(answer!(c => account::subscriptions(c.control, c.request)), account_doc::subscriptions).merged(Merge::List)]),
    ("/subscriptions/{subscriptionId}", &[get(answer!(c => account::subscription(c.control, c.path.name("subscriptionId")?)), account_doc::subscription).merged(Merge::Found)]),
    ("/subscriptions/{subscriptionId}/resourceGroups", &[get(answer!(c => resource_groups::list(c.control, c.request, c.path.name("subscriptionId")?)), account_doc::resource_groups).merged(Merge::List)]),
    ("/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}", &[
        get(answer!(c => resource_groups::get(c.control, c.request, &c.path.scope()?)), account_doc::resource_group).merged(Merge::Found),
        put(answer!(c => resource_groups::put(c).await), answer!(c => resource_groups::difference(c)), account_doc::put_resource_group).merged(Merge::Each),
        patch(answer!(c => resource_groups::patch(c).await), account_doc::patch_resource_group).merged(Merge::Each),
        delete(answer!(c => resource_groups::delete(c.control, &c.path.scope()?).await), account_doc::delete_resource_group).merged(Merge::Each),
    ]),
    ("/subscriptions/{subscriptionId}/resources", &[list(answer!(c => resource_groups::resources(c, &c.path.azure_scope()?)), account_doc::resources)]),
    ("/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/resources", &[list(answer!(c => resource_groups::resources(c, &c.path.azure_scope()?)), account_doc::resources_of_group)]),
    ("/subscriptions/{subscriptionId}/tagNames", &[get(answer!(c => Ok(HttpResponse::Ok().json(resource_groups::tag_names(c.control, c.path.name("subscriptionId")?)))), account_doc::tag_names).merged(Merge::Union)]),
    ("/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/register", &[post(Access::ADMIN, answer!(c => Ok(account::provider(c.control, c.path.name("subscriptionId")?))), account_doc::register_provider).merged(Merge::Union)]),
    ("/subscriptions/{subscriptionId}/providers", &[get(answer!(c => Ok(account::providers(c.control, c.path.name("subscriptionId")?))), account_doc::providers).merged(Merge::Union)]),
    ("/subscriptions/{subscriptionId}/providers/Microsoft.EventGrid", &[get(answer!(c => Ok(account::provider(c.control, c.path.name("subscriptionId")?))), account_doc::provider).merged(Merge::Union)]),
    ("/subscriptions/{subscriptionId}/locations", &[get(answer!(c => Ok(account::locations(c.control, c.path.name("subscriptionId")?))), account_doc::locations).merged(Merge::Union)]),
];

#[rustfmt::skip]
static PROVIDERS: [(&str, &[Operation]); 4] = [
    ("/operations", &[get(answer!(_c => Ok(provider::operations())), doc::operations)]),
    ("/topicTypes", &[get(answer!(_c => Ok(provider::topic_types())), doc::topic_types)]),
    ("/topicTypes/{topicTypeName}", &[get(answer!(c => provider::topic_type(c.path.name("topicTypeName")?)), doc::topic_type)]),
    ("/topicTypes/{topicTypeName}/eventTypes", &[get(answer!(c => provider::event_types(c.path.name("topicTypeName")?)), doc::event_types)]),
];

#[rustfmt::skip]
static TOPIC_LIST: [Operation; 1] =
    [list(answer!(c => topics::list(c, &c.path.azure_scope()?)), topics_doc::list)];

#[rustfmt::skip]
static TOPIC: [Operation; 4] = [
    get(on_topic!(c, topic => topics::get(c.control, topic)), topics_doc::get),
    put(on_topic!(c, topic => topics::put(c, topic.clone()).await), answer!(c => topics::difference(c, c.path.topic()?).await), topics_doc::put),
    patch(on_topic!(topics::patch), topics_doc::patch),
    delete(on_topic!(c, topic => topics::delete(c.control, topic).await), topics_doc::delete),
];

/// Operations on every topic.
#[rustfmt::skip]
static TOPIC_ACTIONS: [(&str, &[Operation]); 8] = [
    ("/listKeys", &[post(Access::ADMIN, on_topic!(c, topic => topics::list_keys(c.control, topic)), topics_doc::list_keys)]),
    ("/regenerateKey", &[post(Access::ADMIN, on_topic!(topics::regenerate_key), topics_doc::regenerate_key)]),
    ("/status", &[get(on_topic!(c, topic => operate::topic_status(c.control, topic).await), topics_doc::status).in_parts(PartsMerge::Figures)]),
    ("/trace", &[get(on_topic!(trace::trace), topics_doc::trace).in_parts(PartsMerge::Pages)]),
    ("/events", &[get(on_topic!(events::list), events_doc::list).in_parts(PartsMerge::Events)]),
    ("/events/{sequence}", &[get(on_topic!(events::get), events_doc::get).one()]),
    ("/publish", &[post(Access::OPERATE, on_topic!(events::publish), events_doc::publish).near()]),
    ("/testFilter", &[post(Access::READ, on_topic!(c, topic => test_filter::test_filter(c, topic, None).await), subscriptions_doc::test_filter).in_parts(PartsMerge::Tests)]),
];

/// The event types of every topic.
#[rustfmt::skip]
static EVENT_TYPES: [(&str, &[Operation]); 2] = [
    ("/eventTypes", &[get(on_topic!(c, topic => event_types::list(c.control, topic)), topics_doc::list_event_types)]),
    ("/eventTypes/{eventTypeName}", &[
        get(on_topic!(c, topic => event_types::get(c.control, topic, c.path.name("eventTypeName")?)), topics_doc::get_event_type),
        put(on_topic!(c, topic => event_types::put(c, topic, c.path.name("eventTypeName")?).await), answer!(c => event_types::difference(c, &c.path.topic()?, c.path.name("eventTypeName")?).await), topics_doc::put_event_type),
        delete(on_topic!(c, topic => event_types::delete(c.input, topic, c.path.name("eventTypeName")?).await), topics_doc::delete_event_type),
    ]),
];

/// Operations on topics and domains, which topics of namespaces do not have.
#[rustfmt::skip]
static TOPIC_LISTS: [(&str, &[Operation]); 2] = [
    ("/providers/Microsoft.EventGrid/eventTypes", &[get(on_topic!(c, topic => topics::event_types(c.control, topic)), topics_doc::event_types)]),
    ("/privateEndpointConnections", &[get(on_topic!(c, topic => topics::private_endpoint_connections(c.control, topic)), topics_doc::private_endpoint_connections)]),
];

#[rustfmt::skip]
static DOMAIN_TOPICS: [(&str, &[Operation]); 2] = [
    ("", &[list(on_topic!(c, topic => domain_topics::list(c, topic)), topics_doc::list_domain_topics)]),
    ("/{domainTopicName}", &[
        get(on_topic!(c, topic => domain_topics::get(c.control, topic)), topics_doc::get_domain_topic),
        put(on_topic!(domain_topics::put), answer!(c => domain_topics::difference(c, &c.path.topic()?)), topics_doc::put_domain_topic),
        delete(on_topic!(c, topic => domain_topics::delete(c.control, topic).await), topics_doc::delete_domain_topic),
    ]),
];

#[rustfmt::skip]
static NAMESPACES: [Operation; 1] =
    [list(answer!(c => namespaces::list(c.control, c.request, &c.path.azure_scope()?)), namespaces_doc::list)];

#[rustfmt::skip]
static NAMESPACE: [(&str, &[Operation]); 3] = [
    ("", &[
        get(answer!(c => namespaces::get(c.control, &c.path.namespace()?)), namespaces_doc::get),
        put(answer!(c => namespaces::put(c, c.path.namespace()?).await), answer!(c => namespaces::difference(c, c.path.namespace()?)), namespaces_doc::put),
        patch(answer!(c => namespaces::patch(c, &c.path.namespace()?).await), namespaces_doc::patch),
        delete(answer!(c => namespaces::delete(c.control, &c.path.namespace()?).await), namespaces_doc::delete),
    ]),
    ("/listKeys", &[post(Access::ADMIN, answer!(c => namespaces::list_keys(c.control, &c.path.namespace()?)), topics_doc::list_keys)]),
    ("/regenerateKey", &[post(Access::ADMIN, answer!(c => namespaces::regenerate_key(c, &c.path.namespace()?).await), topics_doc::regenerate_key)]),
];

#[rustfmt::skip]
static NAMESPACE_TOPICS: [Operation; 1] =
    [list(answer!(c => topics::list_in_namespace(c, &c.path.namespace()?)), namespaces_doc::list_topics)];

#[rustfmt::skip]
static NAMESPACE_TOPIC: [Operation; 4] = [
    get(on_topic!(c, topic => topics::get(c.control, topic)), namespaces_doc::get_topic),
    put(on_topic!(c, topic => topics::put(c, topic.clone()).await), answer!(c => topics::difference(c, c.path.topic()?).await), namespaces_doc::put_topic),
    patch(on_topic!(topics::patch), namespaces_doc::patch_topic),
    delete(on_topic!(c, topic => topics::delete(c.control, topic).await), namespaces_doc::delete_topic),
];

#[rustfmt::skip]
static ALL_SUBSCRIPTIONS: [Operation; 1] = [list(
    answer!(c => subscriptions::list_all(c, &c.path.azure_scope()?)),
    subscriptions_doc::list_all,
)];

#[rustfmt::skip]
static SUBSCRIPTION_LIST: [Operation; 1] = [list(
    on_topic!(c, topic => subscriptions::list(c, topic)),
    subscriptions_doc::list,
)];

#[rustfmt::skip]
static NAMESPACE_SUBSCRIPTION_LIST: [Operation; 1] = [list(
    on_topic!(c, topic => subscriptions::list(c, topic)),
    namespaces_doc::list_subscriptions,
)];

#[rustfmt::skip]
static SUBSCRIPTION: [Operation; 4] = [
    get(on_subscription!(c, topic, name => subscriptions::get(c.control, topic, c.path.route.form, name)), subscriptions_doc::get).or_portal(),
    put(
        on_subscription!(subscriptions::put),
        answer!(c => subscriptions::difference(c, &c.path.topic()?, &c.path.subscription()?)),
        subscriptions_doc::put,
    ),
    patch(on_subscription!(subscriptions::patch), subscriptions_doc::patch).or_portal(),
    delete(on_subscription!(c, topic, name => subscriptions::delete(c.control, topic, name).await), subscriptions_doc::delete),
];

#[rustfmt::skip]
static NAMESPACE_SUBSCRIPTION: [Operation; 4] = [
    get(on_subscription!(c, topic, name => subscriptions::get(c.control, topic, c.path.route.form, name)), namespaces_doc::get_subscription).or_portal(),
    put(
        on_subscription!(subscriptions::put),
        answer!(c => subscriptions::difference(c, &c.path.topic()?, &c.path.subscription()?)),
        namespaces_doc::put_subscription,
    ),
    patch(on_subscription!(subscriptions::patch), namespaces_doc::patch_subscription).or_portal(),
    delete(on_subscription!(c, topic, name => subscriptions::delete(c.control, topic, name).await), subscriptions_doc::delete),
];

#[rustfmt::skip]
static SUBSCRIPTION_ACTIONS: [(&str, &[Operation]); 23] = [
    ("/getFullUrl", &[post(Access::ADMIN, on_subscription!(c, topic, name => subscriptions::full_url(c.control, topic, name)), subscriptions_doc::full_url)]),
    ("/getDeliveryAttributes", &[post(Access::ADMIN, on_subscription!(c, topic, name => subscriptions::delivery_attributes(c.control, topic, name)), subscriptions_doc::delivery_attributes)]),
    ("/testFilter", &[post(Access::READ, on_subscription!(c, topic, name => test_filter::test_filter(c, topic, Some(name)).await), subscriptions_doc::test_filter).in_parts(PartsMerge::Tests).or_portal()]),
    ("/testTransform", &[post(Access::READ, on_subscription!(test_filter::test_transform), subscriptions_doc::test_transform).in_parts(PartsMerge::Tests).or_portal()]),
    ("/status", &[get(on_subscription!(c, topic, name => operate::status(c.control, topic, name).await), subscriptions_doc::status).in_parts(PartsMerge::Figures).or_portal()]),
    ("/metrics", &[get(on_subscription!(metrics::subscription), subscriptions_doc::metrics).in_parts(PartsMerge::Figures)]),
    ("/explain", &[get(on_subscription!(explain::explain), subscriptions_doc::explain).found()]),
    ("/deadLetters", &[get(on_subscription!(dead_letters::list), dead_letters_doc::list).in_parts(PartsMerge::DeadLetters).or_portal()]),
    ("/deadLetters/redrive", &[post(Access::OPERATE, on_subscription!(dead_letters::redrive), dead_letters_doc::redrive).in_parts(PartsMerge::DeadLetters).or_portal()]),
    ("/deadLetters/purge", &[post(Access::ADMIN, on_subscription!(dead_letters::purge), dead_letters_doc::purge).in_parts(PartsMerge::DeadLetters)]),
    ("/deadLetters/{deadLetterKey}", &[get(on_subscription!(dead_letters::get), dead_letters_doc::get).one().or_portal()]),
    ("/ledger", &[get(on_subscription!(ledger::ledger), subscriptions_doc::ledger).in_parts(PartsMerge::Pages).or_portal()]),
    ("/replays", &[
        get(on_subscription!(replay::list), subscriptions_doc::list_replays).in_parts(PartsMerge::Replays).or_portal(),
        post(Access::OPERATE, on_subscription!(replay::start), subscriptions_doc::start_replay).in_parts(PartsMerge::Replays),
    ]),
    ("/replays/{replayId}", &[get(on_subscription!(replay::get), subscriptions_doc::get_replay).in_parts(PartsMerge::Replays).or_portal()]),
    ("/replays/{replayId}/pause", &[post(Access::OPERATE, on_subscription!(c, topic, name => replay::command(c, topic, name, JobCommand::Pause).await), subscriptions_doc::pause_replay).in_parts(PartsMerge::Replays)]),
    ("/replays/{replayId}/resume", &[post(Access::OPERATE, on_subscription!(c, topic, name => replay::command(c, topic, name, JobCommand::Resume).await), subscriptions_doc::resume_replay).in_parts(PartsMerge::Replays)]),
    ("/replays/{replayId}/cancel", &[post(Access::OPERATE, on_subscription!(c, topic, name => replay::command(c, topic, name, JobCommand::Cancel).await), subscriptions_doc::cancel_replay).in_parts(PartsMerge::Replays)]),
    ("/hold", &[post(Access::OPERATE, on_subscription!(c, topic, name => operate::command(c.control, topic, name, Command::Hold).await), subscriptions_doc::hold).in_parts(PartsMerge::Commands)]),
    ("/resume", &[post(Access::OPERATE, on_subscription!(c, topic, name => operate::command(c.control, topic, name, Command::Resume).await), subscriptions_doc::resume).in_parts(PartsMerge::Commands)]),
    ("/probe", &[post(Access::OPERATE, on_subscription!(c, topic, name => operate::command(c.control, topic, name, Command::Probe).await), subscriptions_doc::probe).in_parts(PartsMerge::Commands)]),
    ("/retry", &[post(Access::OPERATE, on_subscription!(retry::retry), subscriptions_doc::retry).in_parts(PartsMerge::Retries)]),
    ("/release", &[post(Access::OPERATE, on_subscription!(c, topic, name => operate::command(c.control, topic, name, Command::Release).await), subscriptions_doc::release).in_parts(PartsMerge::Commands)]),
    ("/unblock", &[post(Access::OPERATE, on_subscription!(operate::unblock), subscriptions_doc::unblock).in_parts(PartsMerge::Commands)]),
];

#[rustfmt::skip]
static UNSUPPORTED_LIST: [Operation; 1] = [get(answer!(_c => Ok(unsupported::list())), doc::list_unsupported)];

#[rustfmt::skip]
static UNASSIGNED_LIST: [Operation; 1] = [get(answer!(_c => Ok(unsupported::list())), doc::list_unsupported)];

#[rustfmt::skip]
static UNSUPPORTED_ITEM: [Operation; 1] = [get(answer!(c => unsupported::get(c.path)), doc::get_unsupported)];

#[rustfmt::skip]
static UNSUPPORTED: [Operation; 4] = [
    get(answer!(c => unsupported::get(c.path)), doc::get_unsupported),
    put(answer!(c => unsupported::refuse(c.path)), answer!(c => unsupported::refuse(c.path)), doc::put_unsupported),
    patch(answer!(c => unsupported::refuse(c.path)), doc::patch_unsupported),
    delete(answer!(_c => Ok(unsupported::delete())), doc::delete_unsupported),
];

/// What people assign to resources in Azure, of which there is nothing here: the type, its OpenAPI
/// id and its name.
const UNASSIGNED: [(&str, &str, &str); 2] = [
    ("locks", "Locks", "locks"),
    ("roleAssignments", "RoleAssignments", "role assignments"),
];

/// Event Grid's resource types that this server does not support: lists are empty, nothing can be
/// created.
const UNSUPPORTED_TYPES: [(&str, &str); 6] = [
    ("systemTopics", "systemTopicName"),
    ("partnerTopics", "partnerTopicName"),
    ("partnerNamespaces", "partnerNamespaceName"),
    ("partnerRegistrations", "partnerRegistrationName"),
    ("partnerConfigurations", "partnerConfigurationName"),
    ("partnerDestinations", "partnerDestinationName"),
];

impl Route {
    fn new(
        template: impl Into<String>,
        operations: &'static [Operation],
        tag: &'static str,
        id: String,
    ) -> Self {
        let (kind, form) = (TopicKind::Topic, PathForm::Nested);
        Self {
            template: template.into(),
            operations,
            kind,
            form,
            resource: "",
            tag,
            id,
        }
    }

    /// Whether the path is that of a resource that can be put, and not of a list or an action.
    pub(crate) fn is_resource(&self) -> bool {
        self.operation(&Method::PUT).is_some()
    }

    /// Whether the path is in a topic that may be spread.
    pub(crate) fn is_in_topic(&self) -> bool {
        let has = |parameter: &str| self.template.contains(parameter);
        has("{topicName}") && !has("{namespaceName}") && !has("{domainName}")
    }

    /// Whether it is the action that replaces an access key.
    pub(super) fn changes_keys(&self) -> bool {
        self.template.ends_with("/regenerateKey")
    }

    /// The operation with this method. HEAD is GET, whose body is not sent.
    pub(crate) fn operation(&self, method: &Method) -> Option<&'static Operation> {
        let method = if *method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        self.operations
            .iter()
            .find(|operation| operation.method == *method)
    }

    /// Allowed methods.
    pub(super) fn methods(&self) -> Vec<Method> {
        let own = self
            .operations
            .iter()
            .map(|operation| operation.method.clone());
        own.chain(self.operation(&Method::HEAD).map(|_| Method::HEAD))
            .collect()
    }

    /// The parameters of a path with these segments, if it matches; `words` are the segments in
    /// lower case.
    pub(super) fn names(
        &'static self,
        segments: &[String],
        words: &[String],
    ) -> Option<Vec<(&'static str, String)>> {
        let parts: Vec<&str> = self.template.split('/').skip(1).collect();
        if parts.len() != segments.len() {
            return None;
        }
        let mut names = Vec::new();
        for (part, (segment, word)) in parts.into_iter().zip(segments.iter().zip(words)) {
            if let Some(name) = part.strip_prefix('{') {
                names.push((name.trim_end_matches('}'), segment.clone()));
            } else if !part.eq_ignore_ascii_case(word) {
                return None;
            }
        }
        Some(names)
    }
}

fn routes() -> Vec<Route> {
    let whole = format!("/subscriptions/{{subscriptionId}}{PROVIDER}");
    let group =
        format!("/subscriptions/{{subscriptionId}}/resourceGroups/{{resourceGroupName}}{PROVIDER}");
    let mut routes = Vec::new();
    routes.extend(
        ACCOUNT
            .iter()
            .map(|(path, operations)| Route::new(*path, operations, "account", String::new())),
    );
    let resource_group = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}";
    routes.extend(deployments::ROUTES.iter().map(|(suffix, operations, id)| {
        let path = format!("{resource_group}{suffix}");
        Route::new(path, operations, "deployments", (*id).to_owned())
    }));
    let provider = |(suffix, operations): &(&str, &'static [Operation])| {
        Route::new(
            format!("{PROVIDER}{suffix}"),
            operations,
            "provider",
            String::new(),
        )
    };
    routes.extend(PROVIDERS.iter().map(provider));
    for (scope, of) in [(&whole, ""), (&group, "OfGroup")] {
        for (kind, id) in [(TopicKind::Topic, "Topics"), (TopicKind::Domain, "Domains")] {
            let (path, resource) = (
                format!("{scope}/{}", kind.path_segment()),
                kind.path_segment(),
            );
            let list = Route::new(path, &TOPIC_LIST, resource, format!("{id}{of}"));
            routes.push(Route {
                kind,
                resource,
                ..list
            });
        }
        routes.push(Route::new(
            format!("{scope}/namespaces"),
            &NAMESPACES,
            "namespaces",
            format!("Namespaces{of}"),
        ));
        for (location, by_location) in [("", ""), ("/locations/{location}", "OfLocation")] {
            for (topic_type, by_type) in [("", ""), ("/topicTypes/{topicTypeName}", "OfType")] {
                let path = format!("{scope}{location}{topic_type}/eventSubscriptions");
                let id = format!("AllSubscriptions{of}{by_location}{by_type}");
                routes.push(Route::new(
                    path,
                    &ALL_SUBSCRIPTIONS,
                    "event subscriptions",
                    id,
                ));
            }
        }
    }
    add_unsupported(&mut routes, &whole, &group);
    add_unassigned(&mut routes, &group);
    for (kind, name, id) in [
        (TopicKind::Topic, "topicName", "Topic"),
        (TopicKind::Domain, "domainName", "Domain"),
    ] {
        let topic = format!("{group}/{}/{{{name}}}", kind.path_segment());
        let suffixes = [("", &TOPIC[..])]
            .into_iter()
            .chain(TOPIC_ACTIONS)
            .chain(EVENT_TYPES)
            .chain(TOPIC_LISTS);
        let route = |(suffix, operations): (&str, &'static [Operation])| {
            let route = Route::new(
                format!("{topic}{suffix}"),
                operations,
                kind.path_segment(),
                id.to_owned(),
            );
            Route { kind, ..route }
        };
        routes.extend(suffixes.map(route));
        add_subscriptions(&mut routes, &topic, id);
    }
    let topics = format!("{group}/domains/{{domainName}}/topics");
    for ((suffix, operations), id) in DOMAIN_TOPICS
        .into_iter()
        .zip(["DomainTopics", "DomainTopic"])
    {
        routes.push(Route::new(
            format!("{topics}{suffix}"),
            operations,
            "domain topics",
            id.to_owned(),
        ));
    }
    add_subscriptions(
        &mut routes,
        &format!("{topics}/{{domainTopicName}}"),
        "DomainTopic",
    );
    add_namespaces(&mut routes, &group);
    routes
}

fn add_unsupported(routes: &mut Vec<Route>, whole: &str, group: &str) {
    let mut add =
        |path: String, operations: &'static [Operation], resource: &'static str, id: String| {
            routes.push(Route {
                resource,
                ..Route::new(path, operations, "not supported", id)
            });
        };
    for (resource, name) in UNSUPPORTED_TYPES {
        for (scope, of) in [(whole, ""), (group, "OfGroup")] {
            add(
                format!("{scope}/{resource}"),
                &UNSUPPORTED_LIST,
                resource,
                format!("Unsupported{resource}{of}"),
            );
        }
        add(
            format!("{group}/{resource}/{{{name}}}"),
            &UNSUPPORTED,
            resource,
            format!("One{resource}"),
        );
    }
    let (resource, all) = ("verifiedPartners", format!("{PROVIDER}/verifiedPartners"));
    add(
        all.clone(),
        &UNSUPPORTED_LIST,
        resource,
        format!("Unsupported{resource}"),
    );
    add(
        format!("{all}/{{verifiedPartnerName}}"),
        &UNSUPPORTED_ITEM,
        resource,
        format!("One{resource}"),
    );
}

fn add_unassigned(routes: &mut Vec<Route>, group: &str) {
    let subscription = "/subscriptions/{subscriptionId}".to_owned();
    let scopes = [
        (subscription.clone(), "OfSubscription"),
        (
            format!("{subscription}/resourceGroups/{{resourceGroupName}}"),
            "OfGroup",
        ),
        (format!("{group}/topics/{{topicName}}"), "OfTopic"),
        (format!("{group}/domains/{{domainName}}"), "OfDomain"),
        (
            format!("{group}/namespaces/{{namespaceName}}"),
            "OfNamespace",
        ),
    ];
    for (scope, of) in scopes {
        for (resource, id, name) in UNASSIGNED {
            let path = format!("{scope}/providers/Microsoft.Authorization/{resource}");
            let route = Route::new(path, &UNASSIGNED_LIST, "not supported", format!("{id}{of}"));
            routes.push(Route {
                resource: name,
                ..route
            });
        }
    }
}

fn add_namespaces(routes: &mut Vec<Route>, group: &str) {
    let namespace = format!("{group}/namespaces/{{namespaceName}}");
    for (suffix, operations) in NAMESPACE {
        routes.push(Route::new(
            format!("{namespace}{suffix}"),
            operations,
            "namespaces",
            "Namespace".to_owned(),
        ));
    }
    let (topics, kind, tag) = (
        format!("{namespace}/topics"),
        TopicKind::NamespaceTopic,
        "namespace topics",
    );
    routes.push(Route::new(
        topics.clone(),
        &NAMESPACE_TOPICS,
        tag,
        "NamespaceTopics".to_owned(),
    ));
    let topic = format!("{topics}/{{topicName}}");
    for (suffix, operations) in [("", &NAMESPACE_TOPIC[..])]
        .into_iter()
        .chain(TOPIC_ACTIONS)
        .chain(EVENT_TYPES)
    {
        let route = Route::new(
            format!("{topic}{suffix}"),
            operations,
            tag,
            "NamespaceTopic".to_owned(),
        );
        routes.push(Route { kind, ..route });
    }
    let all = format!("{topic}/eventSubscriptions");
    let lists: [&'static [Operation]; 2] = [&NAMESPACE_SUBSCRIPTION_LIST, &NAMESPACE_SUBSCRIPTION];
    add_subscriptions_at(routes, &all, PathForm::Nested, "OfNamespaceTopic", lists);
}

fn add_subscriptions(routes: &mut Vec<Route>, parent: &str, id: &str) {
    for (form, between, by) in [
        (PathForm::Nested, "", ""),
        (PathForm::Scoped, PROVIDER, "ByScope"),
    ] {
        let all = format!("{parent}{between}/eventSubscriptions");
        add_subscriptions_at(
            routes,
            &all,
            form,
            &format!("Of{id}{by}"),
            [&SUBSCRIPTION_LIST, &SUBSCRIPTION],
        );
    }
}

fn add_subscriptions_at(
    routes: &mut Vec<Route>,
    all: &str,
    form: PathForm,
    id: &str,
    [list, item]: [&'static [Operation]; 2],
) {
    let tag = "event subscriptions";
    for (suffix, operations) in [("", item)].into_iter().chain(SUBSCRIPTION_ACTIONS) {
        let path = format!("{all}/{{eventSubscriptionName}}{suffix}");
        routes.push(Route {
            form,
            ..Route::new(path, operations, tag, format!("Subscription{id}"))
        });
    }
    routes.push(Route {
        form,
        ..Route::new(all, list, tag, format!("Subscriptions{id}"))
    });
}
