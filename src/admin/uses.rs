//! What an event subscription uses besides its topic, and who may have it used.
//!
//! A body names services of `delivery.resources`, stores of dead letters, proxies, client
//! certificates, the audience of an access token of the server, and namespace topics. The server
//! acts on all of them with its own credentials, so a scope that covers the path of a request does
//! not cover them. A use is permitted
//!
//! - to a caller for whom the operation is permitted in the whole server,
//! - of a namespace topic, to a caller who may publish there,
//! - of anything else, if the operator's settings name the event subscription among its users.
//!
//! Only new uses are checked: what the record before the change has is kept by it. A webhook at
//! another origin uses again what its requests carry. A portal link makes no new use at all.

use std::collections::BTreeMap;

use url::Url;

use super::{
    AdminError, Control,
    arm::Call,
    permissions::{Permissions, scoped_subscription},
};
use crate::AdminResult;
use gridhook_deliver::resource::{Connections, Resource};
use gridhook_policy::{dead_letter_store::NamedStores, property::PropertySource};
use gridhook_record::{
    namespace,
    subscription::{SubscriptionRecord, TokenAudience},
    token::{ScopedResource, UserScopes},
    topic::{TopicRecord, key_in_namespace},
};

/// The users of what event subscriptions can refer to, as the operator has set them.
#[derive(Clone, Debug, Default)]
pub struct UseRules {
    /// The services and proxies of `delivery.resources`.
    pub connections: Connections,
    /// The stores of dead letters.
    pub stores: NamedStores,
    /// The users of each service and proxy, by its name.
    pub of_services: BTreeMap<String, UserScopes>,
    /// The users of each store, by its name.
    pub of_stores: BTreeMap<String, UserScopes>,
    /// The users of each client certificate, by its name.
    pub of_certificates: BTreeMap<String, UserScopes>,
    /// The users of access tokens of the server for an audience.
    pub of_audiences: BTreeMap<TokenAudience, UserScopes>,
}

/// Something that an event subscription uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reference<'a> {
    NamespaceTopic(&'a str),
    Service(&'a Resource),
    Store {
        resource_id: &'a str,
        container: &'a str,
    },
    Proxy(&'a str),
    Certificate(&'a str),
    Audience(&'a TokenAudience),
    /// Secret delivery properties, which a caller that may change the event subscription may also
    /// read.
    Secrets,
}

impl Reference<'_> {
    /// The property that refers to it.
    fn property_name(&self) -> &'static str {
        match self {
            Self::NamespaceTopic(_) | Self::Service(_) => "destination.properties.resourceId",
            Self::Store { .. } => "deadLetterDestination.properties.resourceId",
            Self::Proxy(_) => "destination.properties.proxy",
            Self::Certificate(_) => "destination.properties.clientCertificate",
            Self::Audience(_) => "destination.properties.azureActiveDirectoryApplicationIdOrUri",
            Self::Secrets => "destination.properties.deliveryAttributeMappings",
        }
    }

    /// What permits its use to others than operators of the whole server.
    fn permission_name(&self) -> &'static str {
        match self {
            Self::NamespaceTopic(_) => "the role publish of the token for that topic",
            Self::Service(_) | Self::Proxy(_) => "used_by of its table in delivery.resources",
            Self::Store { .. } => {
                "used_by of its table in dead_letter.stores, or dead_letter.folder_used_by"
            }
            Self::Certificate(_) => "delivery.client_certificates_used_by",
            Self::Audience(_) => "delivery.identity_audiences",
            // `permits_use` never refuses them.
            Self::Secrets => "nothing",
        }
    }

    /// Whether requests to the endpoint carry the referenced thing.
    fn is_carried(&self) -> bool {
        match self {
            Self::Proxy(_) | Self::Certificate(_) | Self::Audience(_) | Self::Secrets => true,
            Self::NamespaceTopic(_) | Self::Service(_) | Self::Store { .. } => false,
        }
    }
}

/// Lists what an event subscription refers to.
fn list_references(record: &SubscriptionRecord) -> Vec<Reference<'_>> {
    let webhook = &record.webhook;
    let destination = record.resource.as_deref().map(|resource| match resource {
        Resource::NamespaceTopic(topic) => Reference::NamespaceTopic(&topic.resource_id),
        resource => Reference::Service(resource),
    });
    let store = record
        .dead_letter
        .as_deref()
        .map(|destination| Reference::Store {
            resource_id: &destination.resource_id,
            container: &destination.container,
        });
    let mut properties = webhook.delivery_properties.iter();
    let has_secrets = properties.any(|property| is_secret(&property.source));
    let all = [
        destination,
        store,
        webhook.proxy.as_deref().map(Reference::Proxy),
        webhook
            .client_certificate
            .as_deref()
            .map(Reference::Certificate),
        webhook.token_audience.as_deref().map(Reference::Audience),
        has_secrets.then_some(Reference::Secrets),
    ];
    all.into_iter().flatten().collect()
}

/// Lists what `after` uses and `before` does not, and what requests carry to another origin.
fn new_references<'a>(
    before: Option<&'a SubscriptionRecord>,
    after: &'a SubscriptionRecord,
) -> Vec<Reference<'a>> {
    let Some(before) = before else {
        return list_references(after);
    };
    let is_moved =
        url_origin(&before.webhook.endpoint_url) != url_origin(&after.webhook.endpoint_url);
    let references_before = list_references(before);
    let is_new = |reference: &Reference<'_>| {
        !references_before.contains(reference) || is_moved && reference.is_carried()
    };
    list_references(after).into_iter().filter(is_new).collect()
}

fn url_origin(address: &str) -> Option<url::Origin> {
    Some(Url::parse(address).ok()?.origin())
}

/// Checks that the caller may have an event subscription of `topic` use what it does not use before
/// the change.
pub(super) fn check_uses(
    call: Call<'_>,
    topic: &TopicRecord,
    before: Option<&SubscriptionRecord>,
    after: &SubscriptionRecord,
) -> AdminResult<()> {
    let Call {
        control,
        permissions,
        ..
    } = call;
    if permissions.is_by_portal() {
        return check_portal(before, after);
    }
    if permissions.sees_everything() {
        return Ok(());
    }
    let user = scoped_subscription(control, topic, after);
    for reference in new_references(before, after) {
        let uses = &control.uses;
        if !uses.permits_use(control, permissions, &user, &reference) {
            return Err(AdminError::Use {
                property: reference.property_name(),
                setting: reference.permission_name(),
            });
        }
    }
    Ok(())
}

fn is_secret(source: &PropertySource) -> bool {
    match source {
        PropertySource::Static { is_secret, .. } => *is_secret,
        PropertySource::Dynamic { .. } => false,
    }
}

/// Checks that a change by the holder of a portal link makes no new use.
fn check_portal(
    before: Option<&SubscriptionRecord>,
    after: &SubscriptionRecord,
) -> AdminResult<()> {
    if new_references(before, after).is_empty() {
        return Ok(());
    }
    Err(AdminError::PortalLink(
        "the requests have a secret, an access token, a client certificate or a proxy of the \
         server, which another host would receive; an operator can change the address",
    ))
}

impl UseRules {
    /// Whether the event subscription `user` may use it. What does not exist is refused elsewhere,
    /// by its name.
    fn permits_use(
        &self,
        control: &Control,
        permissions: &Permissions,
        user: &ScopedResource,
        reference: &Reference<'_>,
    ) -> bool {
        let has_user =
            |users: Option<&UserScopes>| users.is_some_and(|users| users.covers_subscription(user));
        match reference {
            Reference::NamespaceTopic(resource_id) => {
                may_publish(control, permissions, resource_id)
            }
            Reference::Service(resource) => match self.connections.find_for(resource) {
                Ok(Some(service)) => has_user(self.of_services.get(&service.name)),
                Ok(None) | Err(_) => true,
            },
            Reference::Store {
                resource_id,
                container,
            } => match self.stores.find_destination(resource_id, container) {
                Ok(destination) => has_user(self.of_stores.get(&destination.store)),
                Err(_) => true,
            },
            Reference::Proxy(name) => has_user(self.of_services.get(*name)),
            Reference::Certificate(name) => has_user(self.of_certificates.get(*name)),
            Reference::Audience(audience) => has_user(self.of_audiences.get(audience)),
            Reference::Secrets => true,
        }
    }
}

/// Whether the caller may publish to the namespace topic with this resource id.
fn may_publish(control: &Control, permissions: &Permissions, resource_id: &str) -> bool {
    let mut segments = resource_id.rsplit('/');
    let (Some(name), Some(_), Some(namespace)) =
        (segments.next(), segments.next(), segments.next())
    else {
        return false;
    };
    if let Some(topic) = control
        .registry
        .find_topic(&key_in_namespace(namespace, name))
    {
        return permissions.may_publish(control, &topic.record());
    }
    // Another shard of a cluster may have it, with its tags.
    let path = [namespace::PATH_SEGMENT, namespace, "topics", name]
        .map(str::to_owned)
        .to_vec();
    permissions.may_publish_to(&ScopedResource {
        path,
        labels: Vec::new(),
    })
}
