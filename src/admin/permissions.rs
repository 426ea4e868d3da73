//! The permissions of a caller: operations, and the resources that they are allowed on.

use actix_web::{HttpMessage, HttpRequest};

use super::{
    AdminError, Control,
    auth::{Access, AdminCaller, Role},
    shares::Holder,
};
use crate::AdminResult;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_record::{
    namespace::{self, NamespaceRecord},
    subscription::{SubscriptionRecord, SystemData},
    token::{Grant, ScopedResource, TokenRole},
    topic::TopicRecord,
};

/// The resources that a request concerns, which the scopes of a token must cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The caller's own session, for every caller.
    Caller,
    Server,
    /// Resources that the operation lists. It leaves out those that the caller may not see.
    Listed,
    /// A resource and what is below it.
    Resource(ScopedResource),
}

impl Target {
    fn is_covered_by(&self, grant: &Grant) -> bool {
        match self {
            Self::Caller | Self::Listed => true,
            Self::Server => grant.covers_resource(None),
            Self::Resource(resource) => grant.covers_resource(Some(resource)),
        }
    }
}

/// An authenticated caller and what the caller's token permits.
#[derive(Clone, Debug)]
pub(super) struct Permissions {
    pub(super) caller: AdminCaller,
    /// The grants of the token for the operation and its target.
    grants: Vec<Grant>,
    /// All that the token permits.
    all_grants: Vec<Grant>,
}

impl Permissions {
    pub(super) fn new(caller: AdminCaller, grants: Vec<Grant>) -> Self {
        Self {
            caller,
            all_grants: grants.clone(),
            grants,
        }
    }

    /// The highest role, in whatever part of the server.
    pub(super) fn highest_role(&self) -> Option<Role> {
        self.grants
            .iter()
            .filter_map(|grant| Role::from_token_role(grant.role))
            .max()
    }

    /// Whether the caller has the role admin for the whole server.
    pub(super) fn is_administrator(&self) -> bool {
        self.all_grants
            .iter()
            .any(|grant| grant.role == TokenRole::Admin && grant.covers_resource(None))
    }

    /// The caller, as shares are counted.
    pub(super) fn holder(&self) -> Holder {
        Holder {
            key: self.caller.identity_key(),
            is_administrator: self.is_administrator(),
        }
    }

    /// Whether the caller created the resource with these data.
    pub(super) fn has_created(&self, system_data: Option<&SystemData>) -> bool {
        let (name, kind) = self.caller.identity();
        let stamp = system_data.map(|data| data.created.as_ref().unwrap_or(&data.modified));
        stamp.is_some_and(|stamp| stamp.by == name && stamp.kind == kind)
    }

    /// The permissions of an authenticated request for its operation.
    pub(super) fn from_request(request: &HttpRequest) -> AdminResult<Self> {
        request
            .extensions()
            .get()
            .cloned()
            .ok_or(AdminError::Broken("the request has no caller"))
    }

    /// Whether the caller may use an operation as the holder of a portal link only.
    pub(super) fn is_by_portal(&self) -> bool {
        self.highest_role() == Some(Role::Portal)
    }

    /// Whether the operation is for the caller in every part of the server.
    pub(super) fn sees_everything(&self) -> bool {
        self.grants.iter().any(|grant| grant.covers_resource(None))
    }

    /// Whether the operation is for the caller on an event subscription of `topic`.
    pub(super) fn sees_subscription(
        &self,
        control: &Control,
        topic: &TopicRecord,
        subscription: &SubscriptionRecord,
    ) -> bool {
        self.sees_everything()
            || self.covers_resource(&scoped_subscription(control, topic, subscription))
    }

    /// Whether the caller may publish to a topic.
    pub(super) fn may_publish(&self, control: &Control, topic: &TopicRecord) -> bool {
        self.may_publish_to(&scoped_resource(control, topic, None))
    }

    /// Whether the caller may publish to a resource.
    pub(super) fn may_publish_to(&self, resource: &ScopedResource) -> bool {
        let may_publish =
            |grant: &Grant| matches!(grant.role, TokenRole::Publish | TokenRole::Admin);
        self.all_grants
            .iter()
            .any(|grant| may_publish(grant) && grant.covers_resource(Some(resource)))
    }

    /// Whether the operation is for the caller on a topic, or on a topic of a domain.
    pub(super) fn sees_topic(
        &self,
        control: &Control,
        topic: &TopicRecord,
        domain_topic: Option<&str>,
    ) -> bool {
        self.sees_everything()
            || self.covers_resource(&scoped_resource(control, topic, domain_topic))
    }

    /// Whether the operation is for the caller on a topic, on a topic of a domain, or on anything
    /// below it.
    pub(super) fn sees_any(
        &self,
        control: &Control,
        topic: &TopicHandle,
        domain_topic: Option<&str>,
    ) -> bool {
        let record = topic.record();
        let is_of = |of: Option<&str>| {
            domain_topic.is_none_or(|wanted| of.is_some_and(|of| of.eq_ignore_ascii_case(wanted)))
        };
        let sees_domain_topic =
            |name: &str| is_of(Some(name)) && self.sees_topic(control, &record, Some(name));
        self.sees_topic(control, &record, domain_topic)
            || topic
                .domain_topics()
                .iter()
                .any(|of| sees_domain_topic(of.name.as_str()))
            || control.registry.all_provisioned(topic).iter().any(|one| {
                is_of(one.record.filter.domain_topic.as_deref())
                    && self.sees_subscription(control, &record, &one.record)
            })
    }

    /// Whether the operation is for the caller on a namespace.
    pub(super) fn sees_namespace(&self, namespace: &NamespaceRecord) -> bool {
        let path = [namespace::PATH_SEGMENT, namespace.name.as_str()]
            .map(str::to_owned)
            .to_vec();
        let mut resource = ScopedResource {
            path,
            labels: Vec::new(),
        };
        resource.add_tags(&namespace.tags);
        self.sees_everything() || self.covers_resource(&resource)
    }

    fn covers_resource(&self, resource: &ScopedResource) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.covers_resource(Some(resource)))
    }

    /// The permissions for an operation on a target.
    pub(super) fn narrowed_to(mut self, access: Access, target: &Target) -> AdminResult<Self> {
        let Some(needed) = access.role else {
            return Ok(self);
        };
        let admits = |grant: &Grant| access.admits_role(Role::from_token_role(grant.role));
        if !self.grants.iter().any(admits) {
            let roles: Vec<&str> = self.grants.iter().map(|grant| grant.role.name()).collect();
            let roles = roles.join(", ");
            return Err(if roles.is_empty() {
                AdminError::NoRole
            } else {
                AdminError::WeakRole { roles, needed }
            });
        }
        if !self
            .grants
            .iter()
            .any(|grant| admits(grant) && target.is_covered_by(grant))
        {
            let scopes: Vec<String> = self
                .grants
                .iter()
                .flat_map(|grant| &grant.scopes)
                .map(ToString::to_string)
                .collect();
            return Err(AdminError::OutOfScope(scopes.join(", ")));
        }
        self.grants
            .retain(|grant| admits(grant) && target.is_covered_by(grant));
        Ok(self)
    }
}

/// An event subscription of a topic.
pub(super) fn scoped_subscription(
    control: &Control,
    topic: &TopicRecord,
    subscription: &SubscriptionRecord,
) -> ScopedResource {
    let mut resource = scoped_resource(control, topic, subscription.filter.domain_topic.as_deref());
    resource
        .path
        .extend(["eventSubscriptions", subscription.name.as_str()].map(str::to_owned));
    resource.labels.extend(subscription.labels.iter().cloned());
    resource
}

/// A topic, or a topic of a domain, with its tags and those of its namespace.
fn scoped_resource(
    control: &Control,
    topic: &TopicRecord,
    domain_topic: Option<&str>,
) -> ScopedResource {
    let id = topic.resource_id_of(domain_topic);
    let path = id
        .split_once("/Microsoft.EventGrid/")
        .map(|(_, path)| path)
        .unwrap_or_default();
    let mut resource = ScopedResource {
        path: path.split('/').map(str::to_owned).collect(),
        labels: Vec::new(),
    };
    let namespace = topic
        .namespace
        .as_ref()
        .and_then(|of| control.registry.find_namespace(of.name.as_str()));
    namespace
        .iter()
        .for_each(|namespace| resource.add_tags(&namespace.tags));
    resource.add_tags(&topic.tags);
    resource
}
