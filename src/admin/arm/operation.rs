//! An operation of Azure Resource Manager's API: method, role, handler and description.

use crate::AdminResult;
use std::cell::Cell;

use actix_web::{HttpRequest, http::Method};
use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use super::{path::ArmPath, routes::Route};
use crate::{
    AdminError, Control, audit,
    auth::{Access, AdminCaller},
    merge::SpreadMerge,
    openapi::{CHANGING, Description, OperationBuilder, SchemaRegistry, error_reference},
    permissions::Permissions,
    placement::{ResponseMerge, SpreadScope},
};
use gridhook_api::what_if::Difference;

/// The response of a handler, which borrows from its input.
pub(super) type HandlerFuture<'a> = LocalBoxFuture<'a, AdminResult>;

/// The response to a PUT with `whatIf`: the changes that it would make.
pub(super) type DifferenceFuture<'a> = LocalBoxFuture<'a, AdminResult<Difference>>;

/// A bug: only the operation of a PUT is called.
const NO_PUT: AdminError = AdminError::Broken("the operation is not a PUT");

/// The input of a handler without the request itself: a configuration file has none.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) control: &'a Control,
    pub(crate) caller: &'a AdminCaller,
    pub(crate) permissions: &'a Permissions,
    pub(crate) path: &'a ArmPath,
    pub(crate) body: &'a [u8],
    /// The lock of changes of the resource.
    pub(crate) lock: &'a ChangeLock,
    /// Whether the request has preconditions, which hold at this time.
    pub(crate) is_conditional: bool,
    /// The body of the resource's GET before a change.
    pub(crate) before: Option<&'a [u8]>,
}

impl Input<'_> {
    /// Sets what the audit trail has of a change: the difference from a resource whose GET will
    /// return `after`.
    pub(crate) fn plan_audit(&self, after: &impl Serialize) {
        audit::set_changes(|| {
            audit::recorded_changes(self.before, serde_json::to_vec(after).ok().as_deref())
        });
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

/// A request and its input.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) request: &'a HttpRequest,
    pub(crate) input: Input<'a>,
}

impl<'a> std::ops::Deref for Call<'a> {
    type Target = Input<'a>;

    fn deref(&self) -> &Input<'a> {
        &self.input
    }
}

pub struct Operation {
    pub method: Method,
    pub access: Access,
    /// Whether the operation lists resources, and leaves out those that the caller may not see.
    pub(super) is_list: bool,
    /// The shards of a cluster that serve the operation; [`None`] means the control plane.
    pub(crate) spread: Option<SpreadScope>,
    handler: Handler,
    description: Description,
}

enum Handler {
    Call(for<'a> fn(Call<'a>) -> HandlerFuture<'a>),
    /// PUT of a resource: makes the change, or reports the difference.
    Put(
        for<'a> fn(Input<'a>) -> HandlerFuture<'a>,
        for<'a> fn(Input<'a>) -> DifferenceFuture<'a>,
    ),
    /// PATCH of a resource: the same, for a handler that needs the request.
    Patch(
        for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
        for<'a> fn(Input<'a>) -> DifferenceFuture<'a>,
    ),
}

/// The handler that a closure body is.
macro_rules! handler {
    ($call:ident => $body:expr) => {
        |$call| Box::pin(async move { $body })
    };
}
pub(super) use handler;

const fn with_handler(
    method: Method,
    access: Access,
    handler: Handler,
    description: Description,
) -> Operation {
    Operation {
        method,
        access,
        is_list: false,
        spread: None,
        handler,
        description,
    }
}

pub(super) const fn get(
    handler: for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
    description: Description,
) -> Operation {
    with_handler(
        Method::GET,
        Access::READ,
        Handler::Call(handler),
        description,
    )
}

/// GET of a list of resources.
pub(super) const fn list(
    handler: for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
    description: Description,
) -> Operation {
    let mut operation = get(handler, description);
    operation.is_list = true;
    operation
}

/// POST, for callers with a role.
pub(super) const fn post(
    access: Access,
    handler: for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
    description: Description,
) -> Operation {
    with_handler(Method::POST, access, Handler::Call(handler), description)
}

/// PUT, with the difference for `whatIf`.
pub(super) const fn put(
    handler: for<'a> fn(Input<'a>) -> HandlerFuture<'a>,
    difference: for<'a> fn(Input<'a>) -> DifferenceFuture<'a>,
    description: Description,
) -> Operation {
    with_handler(
        Method::PUT,
        Access::ADMIN,
        Handler::Put(handler, difference),
        description,
    )
}

/// The PUT of a deployment, whose handler needs the request. POST …/whatIf previews it.
pub(super) const fn put_by_call(
    handler: for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
    description: Description,
) -> Operation {
    with_handler(
        Method::PUT,
        Access::ADMIN,
        Handler::Call(handler),
        description,
    )
}

pub(super) const fn patch(
    handler: for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
    description: Description,
) -> Operation {
    with_handler(
        Method::PATCH,
        Access::ADMIN,
        Handler::Call(handler),
        description,
    )
}

/// PATCH, with the difference for `whatIf`.
pub(super) const fn patch_with_difference(
    handler: for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
    difference: for<'a> fn(Input<'a>) -> DifferenceFuture<'a>,
    description: Description,
) -> Operation {
    with_handler(
        Method::PATCH,
        Access::ADMIN,
        Handler::Patch(handler, difference),
        description,
    )
}

pub(super) const fn delete(
    handler: for<'a> fn(Call<'a>) -> HandlerFuture<'a>,
    description: Description,
) -> Operation {
    with_handler(
        Method::DELETE,
        Access::ADMIN,
        Handler::Call(handler),
        description,
    )
}

impl Operation {
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
        self.spread = Some(SpreadScope::All(ResponseMerge::Found));
        self
    }

    pub(super) async fn handle_call(&self, call: Call<'_>) -> AdminResult {
        match self.handler {
            Handler::Call(handler) | Handler::Patch(handler, _) => handler(call).await,
            Handler::Put(handler, _) => handler(call.input).await,
        }
    }

    /// The changes that a PUT or PATCH would make.
    pub(crate) async fn compute_difference(&self, input: Input<'_>) -> AdminResult<Difference> {
        match self.handler {
            Handler::Call(_) if self.method == Method::PATCH => Err(AdminError::Refused(
                "This PATCH has no whatIf=true; use PUT …?whatIf=true.".to_owned(),
            )),
            Handler::Call(_) => Err(AdminError::Refused(
                "A deployment has no whatIf=true; use POST …/whatIf.".to_owned(),
            )),
            Handler::Put(_, difference) | Handler::Patch(_, difference) => difference(input).await,
        }
    }

    /// Puts a resource without a request.
    pub(crate) async fn put_resource(&self, input: Input<'_>) -> AdminResult {
        match self.handler {
            Handler::Call(_) | Handler::Patch(..) => Err(NO_PUT),
            Handler::Put(handler, _) => handler(input).await,
        }
    }

    /// The OpenAPI description of the operation on a route.
    pub(crate) fn describe_operation(
        &self,
        route: &Route,
        schemas: &mut SchemaRegistry,
    ) -> OperationBuilder {
        let named = |summary: &str| route.name_resource(summary);
        let mut draft = self.description.draft(route.tag, &route.id, named, schemas);
        if let Handler::Put(..) | Handler::Patch(..) = self.handler {
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
