//! An operation of Azure Resource Manager's API: method, role, handler and description.

use std::{cell::Cell, sync::Arc};

use actix_web::{HttpRequest, http::Method};
use futures_util::future::LocalBoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use super::{check_seen, find_topic, no_subscription, path::ArmPath, routes::ArmRoute};
use crate::{
    AdminError, AdminResult, Control, audit,
    auth::{Access, AdminCaller},
    merge::SpreadMerge,
    model::{parse_body, read, system_data},
    openapi::{CHANGING, Description, OperationBuilder, SchemaRegistry, error_reference},
    permissions::Permissions,
    placement::{ResponseMerge, SpreadScope},
};
use gridhook_api::what_if::Difference;
use gridhook_compute::Meter;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::SubscriptionKey;
use gridhook_record::{
    proposal::Provisioned,
    subscription::{ChangeStamp, SubscriptionRecord, SystemData},
};

pub(super) type Handler = for<'a> fn(Call<'a>) -> LocalBoxFuture<'a, AdminResult>;

/// The changes that a PUT or PATCH would make.
type DifferenceHandler = for<'a> fn(Call<'a>) -> LocalBoxFuture<'a, AdminResult<Difference>>;

/// What a handler receives.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) control: &'a Control,
    pub(crate) permissions: &'a Permissions,
    pub(crate) path: &'a ArmPath,
    pub(crate) body: &'a [u8],
    /// The lock of changes of the resource.
    pub(crate) lock: &'a ChangeLock,
    /// The request; [`None`] for a resource of the configuration file.
    pub(crate) request: Option<&'a HttpRequest>,
    /// Whether the request has preconditions, which hold at this time.
    pub(crate) is_conditional: bool,
    /// The body of the resource's GET before a change.
    pub(crate) before: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    /// A call without a request.
    pub(crate) fn new(
        control: &'a Control,
        permissions: &'a Permissions,
        path: &'a ArmPath,
        body: &'a [u8],
        lock: &'a ChangeLock,
    ) -> Self {
        Self {
            control,
            permissions,
            path,
            body,
            lock,
            request: None,
            is_conditional: false,
            before: None,
        }
    }

    pub(crate) fn caller(&self) -> &'a AdminCaller {
        &self.permissions.caller
    }

    pub(crate) fn request(&self) -> AdminResult<&'a HttpRequest> {
        self.request
            .ok_or(AdminError::Broken("the operation has no request"))
    }

    /// Runs work on the threads for computations, within the caller's share.
    pub(crate) async fn compute<F>(&self, work: impl FnOnce(Meter) -> F) -> AdminResult<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.control.compute_for(self.caller(), work).await
    }

    /// The system data of a resource after a change; `before` are those of the resource, if it
    /// exists.
    pub(super) fn stamp_change(&self, before: Option<&Option<SystemData>>) -> Option<SystemData> {
        let (by, kind) = self.caller().identity();
        let stamp = ChangeStamp {
            by: by.to_owned(),
            kind,
            at: self.control.clock.now(),
        };
        Some(system_data::after_change(stamp, before.map(Option::as_ref)))
    }

    /// Reads the JSON body; an empty one is an object without keys.
    pub(crate) fn read_body<T: DeserializeOwned>(&self) -> AdminResult<T> {
        Ok(read(parse_body(self.body)?)?)
    }

    /// The topic or the domain of the path, which must exist.
    pub(crate) fn find_topic(&self) -> AdminResult<Arc<TopicHandle>> {
        find_topic(self.control, &self.path.topic()?)
    }

    /// The event subscription of the path, which must exist.
    pub(crate) fn find_subscription(&self) -> AdminResult<FoundSubscription> {
        let topic = self.find_topic()?;
        let name = self.path.subscription()?;
        match topic.find_subscription(&name) {
            Some(record) => Ok(FoundSubscription {
                topic,
                name,
                record,
            }),
            None => Err(self.no_subscription()),
        }
    }

    /// The topic or the domain of the path, of which the caller may see something.
    pub(super) fn find_visible_topic(&self) -> AdminResult<Arc<TopicHandle>> {
        let path = self.path.topic()?;
        let topic = find_topic(self.control, &path)?;
        check_seen(self.control, self.permissions, &topic, &path)?;
        Ok(topic)
    }

    /// The event subscription of the path with the state of its validation, which must exist.
    pub(super) fn find_provisioned(&self, topic: &TopicHandle) -> AdminResult<Provisioned> {
        let name = self.path.subscription()?;
        self.control
            .registry
            .find_provisioned(topic, &name)
            .ok_or_else(|| self.no_subscription())
    }

    /// The error for a missing event subscription.
    pub(crate) fn no_subscription(&self) -> AdminError {
        match (self.path.topic(), self.path.subscription()) {
            (Ok(topic), Ok(name)) => no_subscription(&topic, &name),
            (Err(error), _) | (_, Err(error)) => error,
        }
    }

    /// Sets what the audit trail has of a change: the difference from a resource whose GET will
    /// return `after`.
    pub(crate) fn plan_audit(&self, after: &impl Serialize) {
        audit::plan_change(self.before, after);
    }
}

/// An event subscription with its topic.
pub(crate) struct FoundSubscription {
    pub(crate) topic: Arc<TopicHandle>,
    /// The key: the name, prefixed with the domain topic and a slash.
    pub(crate) name: String,
    pub(crate) record: Arc<SubscriptionRecord>,
}

impl FoundSubscription {
    pub(crate) fn key(&self) -> SubscriptionKey {
        self.topic.subscription_key(self.record.number)
    }
}

/// The lock of changes of a resource, which a handler may release early.
#[derive(Default)]
pub(crate) struct ChangeLock(Cell<Option<OwnedMutexGuard<()>>>);

impl ChangeLock {
    pub(super) fn hold_lock(&self, guard: OwnedMutexGuard<()>) {
        self.0.set(Some(guard));
    }

    pub(super) fn release_lock(&self) {
        self.0.take();
    }
}

/// Operations by the end of their path.
pub(super) type PathOperations<const N: usize> = [(&'static str, &'static [ArmOperation]); N];

pub struct ArmOperation {
    pub method: Method,
    pub access: Access,
    /// Whether the operation lists resources, and leaves out those that the caller may not see.
    pub(super) is_list: bool,
    /// The shards of a cluster that serve the operation; [`None`] means the control plane.
    pub(crate) spread: Option<SpreadScope>,
    handler: Handler,
    /// The handler of `whatIf=true`.
    difference: Option<DifferenceHandler>,
    description: Description,
}

/// A function that takes a call, as a handler.
macro_rules! handler {
    ($handler:path) => {
        handler!(call => $handler(call))
    };
    ($call:ident => $future:expr) => {
        |$call| Box::pin($future)
    };
}
pub(super) use handler;

const fn operation(
    method: Method,
    access: Access,
    handler: Handler,
    description: Description,
) -> ArmOperation {
    ArmOperation {
        method,
        access,
        is_list: false,
        spread: None,
        handler,
        difference: None,
        description,
    }
}

pub(super) const fn get(handler: Handler, description: Description) -> ArmOperation {
    operation(Method::GET, Access::READ, handler, description)
}

/// GET of a list of resources.
pub(super) const fn list(handler: Handler, description: Description) -> ArmOperation {
    let mut operation = get(handler, description);
    operation.is_list = true;
    operation
}

/// POST, for callers with a role.
pub(super) const fn post(
    access: Access,
    handler: Handler,
    description: Description,
) -> ArmOperation {
    operation(Method::POST, access, handler, description)
}

pub(super) const fn put(handler: Handler, description: Description) -> ArmOperation {
    operation(Method::PUT, Access::ADMIN, handler, description)
}

pub(super) const fn patch(handler: Handler, description: Description) -> ArmOperation {
    operation(Method::PATCH, Access::ADMIN, handler, description)
}

pub(super) const fn delete(handler: Handler, description: Description) -> ArmOperation {
    operation(Method::DELETE, Access::ADMIN, handler, description)
}

impl ArmOperation {
    /// Also reports the changes with `whatIf=true`.
    pub(super) const fn with_difference(mut self, difference: DifferenceHandler) -> Self {
        self.difference = Some(difference);
        self
    }

    /// Also admits the holders of portal links.
    pub(super) const fn or_portal(mut self) -> Self {
        self.access = self.access.or_portal();
        self
    }

    /// For a spread topic, one shard with an owner serves the operation.
    pub(super) const fn served_nearby(mut self) -> Self {
        self.spread = Some(SpreadScope::Near);
        self
    }

    /// For a spread topic, the shard that the request names serves the operation.
    pub(super) const fn served_by_named_shard(mut self) -> Self {
        self.spread = Some(SpreadScope::One);
        self
    }

    /// For a spread topic, each shard serves a part of the operation.
    pub(super) const fn in_parts(mut self, merge: SpreadMerge) -> Self {
        self.spread = Some(SpreadScope::Parts(merge));
        self
    }

    /// For a spread topic, the shard that has what the request is about serves the operation.
    pub(super) const fn served_where_found(mut self) -> Self {
        self.spread = Some(SpreadScope::All(ResponseMerge::FirstFound));
        self
    }

    pub(crate) async fn handle_call(&self, call: Call<'_>) -> AdminResult {
        (self.handler)(call).await
    }

    /// The changes that a PUT or PATCH would make.
    pub(crate) async fn compute_difference(&self, call: Call<'_>) -> AdminResult<Difference> {
        match self.difference {
            Some(difference) => difference(call).await,
            None if self.method == Method::PATCH => Err(AdminError::Refused(
                "This PATCH has no whatIf=true; use PUT …?whatIf=true.".to_owned(),
            )),
            None => Err(AdminError::Refused(
                "A deployment has no whatIf=true; use POST …/whatIf.".to_owned(),
            )),
        }
    }

    /// The OpenAPI description of the operation on a route.
    pub(crate) fn describe_operation(
        &self,
        route: &ArmRoute,
        schemas: &mut SchemaRegistry,
    ) -> OperationBuilder {
        let named = |summary: &str| route.name_resource(summary);
        let mut draft = self.description.draft(route.tag, &route.id, named, schemas);
        if self.difference.is_some() {
            let what_if = "Whether to report the changes without making them";
            let changes = "The changes that would be made; only with `whatIf`";
            draft = draft
                .with_query("whatIf", what_if, &json!({"type": "boolean"}))
                .with_difference_response(changes, &schemas.reference_to::<Difference>());
        }
        if [Method::PUT, Method::PATCH, Method::DELETE].contains(&self.method) {
            draft = draft.with_errors(CHANGING, &error_reference());
        }
        match self.spread {
            Some(SpreadScope::One | SpreadScope::Parts(_) | SpreadScope::All(_))
                if route.is_in_topic() =>
            {
                draft.with_shard()
            }
            Some(_) | None => draft,
        }
    }
}
