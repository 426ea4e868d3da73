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

impl ArmRoute {
    fn new(
        template: impl Into<String>,
        operations: &'static [ArmOperation],
        tag: &'static str,
        id: String,
    ) -> Self {
        let kind = TopicKind::Topic;
        let form = PathForm::Nested;
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
    let whole = format!("/subscriptions/{{subscriptionId}}{PROVIDER}");
    let group =
        format!("/subscriptions/{{subscriptionId}}/resourceGroups/{{resourceGroupName}}{PROVIDER}");
    let mut routes = Vec::new();
    routes.extend(
        ACCOUNT
            .iter()
            .map(|(path, operations)| ArmRoute::new(*path, operations, "account", String::new())),
    );
    let resource_group = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}";
    routes.extend(DEPLOYMENTS.iter().map(|(suffix, operations, id)| {
        let path = format!("{resource_group}{suffix}");
        ArmRoute::new(path, operations, "deployments", (*id).to_owned())
    }));
    routes.extend(SUBSCRIPTION_DEPLOYMENTS.iter().map(|(suffix, operations)| {
        let path = format!("/subscriptions/{{subscriptionId}}{suffix}");
        let id = if *suffix == "/providers/Microsoft.Resources/deployments" {
            "DeploymentsOfSubscription"
        } else {
            "DeploymentOfSubscription"
        };
        ArmRoute::new(path, operations, "not supported", id.to_owned())
    }));
    for (suffix, operations) in PROVIDERS {
        let path = format!("{PROVIDER}{suffix}");
        routes.push(ArmRoute::new(path, operations, "provider", String::new()));
    }
    for (scope, of) in [(&whole, ""), (&group, "OfGroup")] {
        for (kind, id) in [(TopicKind::Topic, "Topics"), (TopicKind::Domain, "Domains")] {
            let path = format!("{scope}/{}", kind.path_segment());
            let resource = kind.path_segment();
            let list = ArmRoute::new(path, &TOPIC_LIST, resource, format!("{id}{of}"));
            routes.push(ArmRoute {
                kind,
                resource,
                ..list
            });
        }
        routes.push(ArmRoute::new(
            format!("{scope}/namespaces"),
            &NAMESPACES,
            "namespaces",
            format!("Namespaces{of}"),
        ));
        for (location, by_location) in [("", ""), ("/locations/{location}", "OfLocation")] {
            for (topic_type, by_type) in [("", ""), ("/topicTypes/{topicTypeName}", "OfType")] {
                let path = format!("{scope}{location}{topic_type}/eventSubscriptions");
                let id = format!("AllSubscriptions{of}{by_location}{by_type}");
                routes.push(ArmRoute::new(
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
        for (suffix, operations) in suffixes {
            let path = format!("{topic}{suffix}");
            let route = ArmRoute::new(path, operations, kind.path_segment(), id.to_owned());
            routes.push(ArmRoute { kind, ..route });
        }
        add_subscriptions(&mut routes, &topic, id);
    }
    let topics = format!("{group}/domains/{{domainName}}/topics");
    for ((suffix, operations), id) in DOMAIN_TOPICS
        .into_iter()
        .zip(["DomainTopics", "DomainTopic"])
    {
        routes.push(ArmRoute::new(
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

fn add_unsupported(routes: &mut Vec<ArmRoute>, whole: &str, group: &str) {
    let mut add =
        |path: String, operations: &'static [ArmOperation], resource: &'static str, id: String| {
            routes.push(ArmRoute {
                resource,
                ..ArmRoute::new(path, operations, "not supported", id)
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
    let resource = "verifiedPartners";
    let all = format!("{PROVIDER}/verifiedPartners");
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

fn add_unassigned(routes: &mut Vec<ArmRoute>, group: &str) {
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
            let route = ArmRoute::new(
                path,
                &UNSUPPORTED_LIST,
                "not supported",
                format!("{id}{of}"),
            );
            routes.push(ArmRoute {
                resource: name,
                ..route
            });
        }
    }
}

fn add_namespaces(routes: &mut Vec<ArmRoute>, group: &str) {
    let namespace = format!("{group}/namespaces/{{namespaceName}}");
    for (suffix, operations) in NAMESPACE {
        routes.push(ArmRoute::new(
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
    routes.push(ArmRoute::new(
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
        let route = ArmRoute::new(
            format!("{topic}{suffix}"),
            operations,
            tag,
            "NamespaceTopic".to_owned(),
        );
        routes.push(ArmRoute { kind, ..route });
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
    routes: &mut Vec<ArmRoute>,
    all: &str,
    form: PathForm,
    id: &str,
    [list, item]: [&'static [ArmOperation]; 2],
) {
    let tag = "event subscriptions";
    let actions = SUBSCRIPTION_ACTIONS.into_iter().chain(DELIVERY_ACTIONS);
    for (suffix, operations) in [("", item)].into_iter().chain(actions) {
        let path = format!("{all}/{{eventSubscriptionName}}{suffix}");
        routes.push(ArmRoute {
            form,
            ..ArmRoute::new(path, operations, tag, format!("Subscription{id}"))
        });
    }
    routes.push(ArmRoute {
        form,
        ..ArmRoute::new(all, list, tag, format!("Subscriptions{id}"))
    });
}
