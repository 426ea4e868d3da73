//! The routes of the control plane that are not Azure Resource Manager's: path, method, role,
//! handler and description.
//!
//! The router, `Allow` of 405 responses, authorization and `/openapi.json` are built from this
//! table. Those of Azure Resource Manager are in [`super::arm::routes`].

mod administration;
mod operation;
mod shared;

use actix_web::{
    HttpRequest, Route,
    body::BoxBody,
    dev::{ServiceRequest, ServiceResponse},
    guard,
    http::Method,
    middleware::{Next, from_fn},
    web,
};

use self::{administration::ADMINISTRATION, operation::OPERATION};
use super::{
    AdminError, AdminResult, ChaosMode, ListenerRole,
    auth::{Access, authorize},
    openapi::{Description, OperationBuilder, SchemaRegistry},
    permissions::Target,
    placement::ShardScope::{self, ByTopic},
};

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const DELETE: &[Method] = &[Method::DELETE];
// Load balancers probe with either method.
const GET_OR_HEAD: &[Method] = &[Method::GET, Method::HEAD];

/// A path and its operations.
pub struct GridhookRoute {
    /// Path with parameters in braces.
    pub template: &'static str,
    listener: ListenerRole,
    needs_chaos: bool,
    concern: Concern,
    /// Tag of the operations in the OpenAPI document.
    tag: &'static str,
    /// The shards of a cluster that serve the path.
    pub(super) shards: ShardScope,
    operations: &'static [Operation],
}

#[derive(Clone, Copy)]
enum Concern {
    /// The server: only for tokens without a scope.
    Server,
    Caller,
    /// Resources, as far as the token's scopes cover them.
    Listed,
}

/// An operation of a path.
pub struct Operation {
    methods: &'static [Method],
    /// Whether HEAD is allowed like GET, although it is not described.
    has_head: bool,
    pub access: Access,
    handler: fn(Route) -> Route,
    description: Description,
}

/// A path on the operators' listener.
const fn route(
    tag: &'static str,
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    GridhookRoute {
        tag,
        template,
        listener: ListenerRole::Operators,
        needs_chaos: false,
        concern: Concern::Server,
        shards,
        operations,
    }
}

const fn operation(
    methods: &'static [Method],
    access: Access,
    handler: fn(Route) -> Route,
    description: Description,
) -> Operation {
    Operation {
        methods,
        has_head: true,
        access,
        handler,
        description,
    }
}

/// A function that answers requests, as what adds it to a route.
macro_rules! route_to {
    ($handler:path) => {
        |route| route.to($handler)
    };
}
use route_to;

/// GET, for callers who may read.
const fn get(handler: fn(Route) -> Route, description: Description) -> Operation {
    operation(GET, Access::READ, handler, description)
}

const fn post(access: Access, handler: fn(Route) -> Route, description: Description) -> Operation {
    operation(POST, access, handler, description)
}

/// A path that exists only with `chaos.enabled`.
const fn fault_route(
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    let mut route = route("chaos", template, shards, operations);
    route.needs_chaos = true;
    route
}

impl GridhookRoute {
    /// For callers with tokens of any scope.
    const fn personal(mut self) -> Self {
        self.concern = Concern::Caller;
        self
    }

    /// A list of resources, for callers with tokens of any scope.
    const fn list(mut self) -> Self {
        self.concern = Concern::Listed;
        self
    }

    /// On both listeners.
    const fn probe(mut self) -> Self {
        self.listener = ListenerRole::Both;
        self
    }

    /// For endpoints, on the publishers' listener.
    const fn endpoint(mut self) -> Self {
        self.listener = ListenerRole::Publishers;
        self
    }

    /// The paths of a server with or without fault injection.
    pub fn all_routes(chaos: ChaosMode) -> impl Iterator<Item = &'static Self> {
        OPERATION
            .iter()
            .chain(ADMINISTRATION)
            .filter(move |route| chaos == ChaosMode::Enabled || !route.needs_chaos)
    }

    pub fn operations(&self) -> impl Iterator<Item = (&'static Method, &'static Operation)> {
        self.operations.iter().flat_map(|operation| {
            operation
                .methods
                .iter()
                .map(move |method| (method, operation))
        })
    }

    /// The OpenAPI description of an operation of the path for one of its methods.
    pub(super) fn describe_operation(
        &self,
        operation: &Operation,
        method: &Method,
        schemas: &mut SchemaRegistry,
    ) -> OperationBuilder {
        let mut draft = operation
            .description
            .draft(self.tag, "", str::to_owned, schemas);
        if self.is_by_topic() {
            draft = draft.with_shard();
        }
        if *method == Method::HEAD {
            draft = draft.for_head();
        }
        draft.with_access(operation.access)
    }

    /// Whether a query may name a topic, of which one shard may be asked.
    fn is_by_topic(&self) -> bool {
        matches!(self.shards, ByTopic(_))
    }

    /// Whether a listener with this role serves the path.
    fn is_at(&self, role: ListenerRole) -> bool {
        [self.listener, role].contains(&ListenerRole::Both) || self.listener == role
    }

    /// Who may send a request with this method. The response to a method that is not allowed is for
    /// everyone who may use one.
    fn required_access(&self, method: &Method) -> Access {
        let mut operations = self.operations.iter();
        let allowed = operations.find(|operation| operation.allows_method(method));
        if let Some(operation) = allowed {
            return operation.access;
        }
        let accesses = self.operations.iter().map(|operation| operation.access);
        accesses.min().unwrap_or(Access::ADMIN)
    }

    async fn refuse_method(&self, request: HttpRequest) -> AdminResult {
        let methods = self.operations().map(|(method, _)| method.clone());
        let mut allowed: Vec<Method> = methods.collect();
        let mut operations = self.operations.iter();
        if !allowed.contains(&Method::HEAD)
            && operations.any(|operation| operation.allows_method(&Method::HEAD))
        {
            allowed.push(Method::HEAD);
        }
        Err(AdminError::Method {
            method: request.method().to_string(),
            allowed,
        })
    }

    async fn authorize_request(
        &self,
        request: ServiceRequest,
        next: Next<BoxBody>,
    ) -> actix_web::Result<ServiceResponse<BoxBody>> {
        let target = match self.concern {
            Concern::Server => Target::Server,
            Concern::Caller => Target::Caller,
            Concern::Listed => Target::Listed,
        };
        let access = self.required_access(request.method());
        authorize(access, target, request, next).await
    }
}

impl Operation {
    /// Without HEAD: the body has no end, or GET is a confirmation.
    const fn headless(mut self) -> Self {
        self.has_head = false;
        self
    }

    fn allows_method(&self, method: &Method) -> bool {
        let is_head = self.has_head && *method == Method::HEAD;
        self.methods
            .contains(if is_head { &Method::GET } else { method })
            || self.methods.contains(method)
    }
}

/// Adds the paths that a listener with this role serves.
pub(super) fn configure_routes(cfg: &mut web::ServiceConfig, chaos: ChaosMode, role: ListenerRole) {
    for path in GridhookRoute::all_routes(chaos).filter(|path| path.is_at(role)) {
        let mut resource = web::resource(path.template);
        for operation in path.operations {
            let has_method =
                guard::fn_guard(|request| operation.allows_method(&request.head().method));
            resource = resource.route((operation.handler)(web::route().guard(has_method)));
        }
        cfg.service(
            resource
                .default_service(web::to(move |request| path.refuse_method(request)))
                .wrap(from_fn(move |request, next| {
                    path.authorize_request(request, next)
                })),
        );
    }
}
