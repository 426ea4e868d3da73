//! The table of the routes of Azure Resource Manager: path, methods, roles, handlers, and
//! descriptions for the OpenAPI document.
//!
//! [`super::path`] parses requests with it; `Allow` of 405 responses, authorization, `whatIf` and
//! `/openapi.json` are built from it. The first route that matches a path is used. Those of
//! gridhook itself are in `admin::routes`.

mod account;
mod delivery;
mod deployments;
mod namespaces;
mod subscriptions;
mod topics;
mod unsupported;

use std::sync::LazyLock;

use actix_web::http::Method;

use self::{
    account::{ACCOUNT, PROVIDERS},
    delivery::DELIVERY_ACTIONS,
    deployments::{DEPLOYMENTS, SUBSCRIPTION_DEPLOYMENTS},
    namespaces::{
        NAMESPACE, NAMESPACE_SUBSCRIPTION, NAMESPACE_SUBSCRIPTION_LIST, NAMESPACE_TOPIC,
        NAMESPACE_TOPICS, NAMESPACES,
    },
    subscriptions::{ALL_SUBSCRIPTIONS, SUBSCRIPTION, SUBSCRIPTION_ACTIONS, SUBSCRIPTION_LIST},
    topics::{DOMAIN_TOPICS, EVENT_TYPES, TOPIC, TOPIC_ACTIONS, TOPIC_LIST, TOPIC_LISTS},
    unsupported::{UNASSIGNED, UNSUPPORTED, UNSUPPORTED_ITEM, UNSUPPORTED_LIST, UNSUPPORTED_TYPES},
};
use super::operation::ArmOperation;
use crate::model::subscription::PathForm;
use gridhook_record::topic::TopicKind;

/// A path and its operations.
pub struct ArmRoute {
    /// Path with parameters in braces, as in `/subscriptions/{subscriptionId}/…`.
    pub template: String,
    pub operations: &'static [ArmOperation],
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

pub static ROUTES: LazyLock<Vec<ArmRoute>> = LazyLock::new(routes);

const PROVIDER: &str = "/providers/Microsoft.EventGrid";

/// The tag of operations on event subscriptions.
const SUBSCRIPTIONS: &str = "event subscriptions";

impl ArmRoute {
    fn new(
        template: impl Into<String>,
        operations: &'static [ArmOperation],
        tag: &'static str,
        id: impl Into<String>,
    ) -> Self {
        Self {
            template: template.into(),
            operations,
            kind: TopicKind::Topic,
            form: PathForm::Nested,
            resource: "",
            tag,
            id: id.into(),
        }
    }

    fn with_kind(self, kind: TopicKind) -> Self {
        Self { kind, ..self }
    }

    fn with_form(self, form: PathForm) -> Self {
        Self { form, ..self }
    }

    fn with_resource(self, resource: &'static str) -> Self {
        Self { resource, ..self }
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

    /// A summary of an operation with the names of the resource.
    pub(super) fn name_resource(&self, summary: &str) -> String {
        let is_domain = self.kind == TopicKind::Domain;
        summary
            .replace("{noun}", if is_domain { "domain" } else { "topic" })
            .replace("{resource}", self.resource)
    }

    /// Whether the operation is the action that replaces an access key.
    pub(super) fn changes_keys(&self) -> bool {
        self.template.ends_with("/regenerateKey")
    }

    /// The operation with this method. HEAD is GET, whose body is not sent.
    pub(crate) fn operation(&self, method: &Method) -> Option<&'static ArmOperation> {
        let method = if *method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        self.operations
            .iter()
            .find(|operation| operation.method == *method)
    }

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

fn routes() -> Vec<ArmRoute> {
    let subscription = "/subscriptions/{subscriptionId}";
    let resource_group = format!("{subscription}/resourceGroups/{{resourceGroupName}}");
    let whole = format!("{subscription}{PROVIDER}");
    let group = format!("{resource_group}{PROVIDER}");
    let mut routes = Vec::new();
    for (path, operations) in ACCOUNT {
        routes.push(ArmRoute::new(path, operations, "account", ""));
    }
    for (suffix, operations, id) in DEPLOYMENTS {
        let path = format!("{resource_group}{suffix}");
        routes.push(ArmRoute::new(path, operations, "deployments", id));
    }
    for (suffix, operations) in SUBSCRIPTION_DEPLOYMENTS {
        let path = format!("{subscription}{suffix}");
        let id = if suffix == "/providers/Microsoft.Resources/deployments" {
            "DeploymentsOfSubscription"
        } else {
            "DeploymentOfSubscription"
        };
        routes.push(ArmRoute::new(path, operations, "not supported", id));
    }
    for (suffix, operations) in PROVIDERS {
        let path = format!("{PROVIDER}{suffix}");
        routes.push(ArmRoute::new(path, operations, "provider", ""));
    }
    for (scope, of) in [(&whole, ""), (&group, "OfGroup")] {
        for (kind, id) in [(TopicKind::Topic, "Topics"), (TopicKind::Domain, "Domains")] {
            let resource = kind.path_segment();
            let path = format!("{scope}/{resource}");
            let route = ArmRoute::new(path, &TOPIC_LIST, resource, format!("{id}{of}"));
            routes.push(route.with_kind(kind).with_resource(resource));
        }
        let path = format!("{scope}/namespaces");
        let id = format!("Namespaces{of}");
        routes.push(ArmRoute::new(path, &NAMESPACES, "namespaces", id));
        for (location, by_location) in [("", ""), ("/locations/{location}", "OfLocation")] {
            for (topic_type, by_type) in [("", ""), ("/topicTypes/{topicTypeName}", "OfType")] {
                let path = format!("{scope}{location}{topic_type}/eventSubscriptions");
                let id = format!("AllSubscriptions{of}{by_location}{by_type}");
                routes.push(ArmRoute::new(path, &ALL_SUBSCRIPTIONS, SUBSCRIPTIONS, id));
            }
        }
    }
    add_unsupported(&mut routes, &whole, &group);
    add_unassigned(&mut routes, &group);
    for (kind, name, id) in [
        (TopicKind::Topic, "topicName", "Topic"),
        (TopicKind::Domain, "domainName", "Domain"),
    ] {
        let tag = kind.path_segment();
        let topic = format!("{group}/{tag}/{{{name}}}");
        let suffixes = [("", &TOPIC[..])]
            .into_iter()
            .chain(TOPIC_ACTIONS)
            .chain(EVENT_TYPES)
            .chain(TOPIC_LISTS);
        for (suffix, operations) in suffixes {
            let path = format!("{topic}{suffix}");
            routes.push(ArmRoute::new(path, operations, tag, id).with_kind(kind));
        }
        add_subscriptions(&mut routes, &topic, id);
    }
    let topics = format!("{group}/domains/{{domainName}}/topics");
    let ids = ["DomainTopics", "DomainTopic"];
    for ((suffix, operations), id) in DOMAIN_TOPICS.into_iter().zip(ids) {
        let path = format!("{topics}{suffix}");
        routes.push(ArmRoute::new(path, operations, "domain topics", id));
    }
    let topic = format!("{topics}/{{domainTopicName}}");
    add_subscriptions(&mut routes, &topic, "DomainTopic");
    add_namespaces(&mut routes, &group);
    routes
}

fn add_unsupported(routes: &mut Vec<ArmRoute>, whole: &str, group: &str) {
    let mut add = |path: String, operations, resource, id: String| {
        let route = ArmRoute::new(path, operations, "not supported", id);
        routes.push(route.with_resource(resource));
    };
    for (resource, name) in UNSUPPORTED_TYPES {
        for (scope, of) in [(whole, ""), (group, "OfGroup")] {
            let id = format!("Unsupported{resource}{of}");
            add(
                format!("{scope}/{resource}"),
                &UNSUPPORTED_LIST[..],
                resource,
                id,
            );
        }
        let path = format!("{group}/{resource}/{{{name}}}");
        add(path, &UNSUPPORTED, resource, format!("One{resource}"));
    }
    let resource = "verifiedPartners";
    let all = format!("{PROVIDER}/verifiedPartners");
    let one = format!("{all}/{{verifiedPartnerName}}");
    let id = format!("Unsupported{resource}");
    add(all, &UNSUPPORTED_LIST, resource, id);
    add(one, &UNSUPPORTED_ITEM, resource, format!("One{resource}"));
}

fn add_unassigned(routes: &mut Vec<ArmRoute>, group: &str) {
    let subscription = "/subscriptions/{subscriptionId}".to_owned();
    let resource_group = format!("{subscription}/resourceGroups/{{resourceGroupName}}");
    let scopes = [
        (subscription, "OfSubscription"),
        (resource_group, "OfGroup"),
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
            let id = format!("{id}{of}");
            let route = ArmRoute::new(path, &UNSUPPORTED_LIST, "not supported", id);
            routes.push(route.with_resource(name));
        }
    }
}

fn add_namespaces(routes: &mut Vec<ArmRoute>, group: &str) {
    let namespace = format!("{group}/namespaces/{{namespaceName}}");
    for (suffix, operations) in NAMESPACE {
        let path = format!("{namespace}{suffix}");
        routes.push(ArmRoute::new(path, operations, "namespaces", "Namespace"));
    }
    let tag = "namespace topics";
    let topics = format!("{namespace}/topics");
    let topic = format!("{topics}/{{topicName}}");
    routes.push(ArmRoute::new(
        topics,
        &NAMESPACE_TOPICS,
        tag,
        "NamespaceTopics",
    ));
    for (suffix, operations) in [("", &NAMESPACE_TOPIC[..])]
        .into_iter()
        .chain(TOPIC_ACTIONS)
        .chain(EVENT_TYPES)
    {
        let path = format!("{topic}{suffix}");
        let route = ArmRoute::new(path, operations, tag, "NamespaceTopic");
        routes.push(route.with_kind(TopicKind::NamespaceTopic));
    }
    let all = format!("{topic}/eventSubscriptions");
    let lists: [&'static [ArmOperation]; 2] =
        [&NAMESPACE_SUBSCRIPTION_LIST, &NAMESPACE_SUBSCRIPTION];
    add_subscriptions_at(routes, &all, PathForm::Nested, "OfNamespaceTopic", lists);
}

fn add_subscriptions(routes: &mut Vec<ArmRoute>, parent: &str, id: &str) {
    for (form, between, by) in [
        (PathForm::Nested, "", ""),
        (PathForm::Scoped, PROVIDER, "ByScope"),
    ] {
        let all = format!("{parent}{between}/eventSubscriptions");
        let id = format!("Of{id}{by}");
        let lists: [&'static [ArmOperation]; 2] = [&SUBSCRIPTION_LIST, &SUBSCRIPTION];
        add_subscriptions_at(routes, &all, form, &id, lists);
    }
}

fn add_subscriptions_at(
    routes: &mut Vec<ArmRoute>,
    all: &str,
    form: PathForm,
    id: &str,
    [list, item]: [&'static [ArmOperation]; 2],
) {
    let actions = SUBSCRIPTION_ACTIONS.into_iter().chain(DELIVERY_ACTIONS);
    for (suffix, operations) in [("", item)].into_iter().chain(actions) {
        let path = format!("{all}/{{eventSubscriptionName}}{suffix}");
        let id = format!("Subscription{id}");
        routes.push(ArmRoute::new(path, operations, SUBSCRIPTIONS, id).with_form(form));
    }
    let id = format!("Subscriptions{id}");
    routes.push(ArmRoute::new(all, list, SUBSCRIPTIONS, id).with_form(form));
}
