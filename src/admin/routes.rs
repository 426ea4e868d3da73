//! The routes of the control plane that are not Azure Resource Manager's: path, method, role,
//! handler and description.
//!
//! The router, `Allow` of 405 responses, authorization and `/openapi.json` are built from this
//! table. Those of Azure Resource Manager are in [`super::arm::routes`].

use actix_web::{
    HttpRequest, HttpResponse, Route,
    body::BoxBody,
    dev::ServiceRequest,
    guard,
    http::Method,
    middleware::{Next, from_fn},
    web,
};

#[cfg(feature = "simulate")]
use super::simulate;
use super::{
    AdminError, ChaosMode, ListenerRole, audit,
    auth::{Access, authorize},
    chaos, clock, cluster, dead_letters, editions, health, history, jobs, metadata, metrics,
    openapi::{self, OperationBuilder, SchemaRegistry, own},
    permissions::Target,
    placement::{
        Merge,
        ShardScope::{self, All, Any, ByBody, ByTopic, Control},
    },
    search, server, session, store, supervision, tail, tokens, top, validate,
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
    /// Which shards of a cluster answer.
    pub(super) shards: ShardScope,
    operations: &'static [Operation],
}

/// What a path concerns.
#[derive(Clone, Copy)]
enum Concern {
    /// The server: only for tokens without a scope.
    Server,
    /// The caller.
    Caller,
    /// Resources, as far as the token's scopes cover them.
    Listed,
}

/// An operation of a path.
pub struct Operation {
    methods: &'static [Method],
    /// Whether HEAD is allowed like GET, although it is not described.
    has_head: bool,
    /// Who may use it.
    pub access: Access,
    handler: fn(Route) -> Route,
    describe: fn(&mut SchemaRegistry) -> OperationBuilder,
}

/// All paths.
#[rustfmt::skip]
static ROUTES: &[GridhookRoute] = &[
    probe("/healthz", Any, &[operation(GET_OR_HEAD, Access::OPEN, |route| route.to(health::healthz), own::healthz)]),
    probe("/readyz", Any, &[operation(GET_OR_HEAD, Access::OPEN, |route| route.to(health::readyz), own::readyz)]),
    route("/openapi.json", Any, &[operation(GET_OR_HEAD, Access::OPEN, |route| route.to(openapi::answer), own::openapi)]),
    route("/metadata/endpoints", Any, &[operation(GET, Access::OPEN, |route| route.to(metadata::endpoints), own::cloud_endpoints)]),
    // A link checker must not confirm an endpoint.
    validation("/eventsubscriptions/{eventSubscriptionName}/validate", All(Merge::Found), &[
        headless(operation(GET, Access::OPEN, |route| route.to(validate::answer), own::validate)),
        operation(POST, Access::OPEN, |route| route.to(validate::answer), own::validate_by_post),
    ]),
    route("/metrics", All(Merge::Metrics), &[operation(GET, Access::METRICS, |route| route.to(metrics::scrape), own::metrics)]),
    list("/top", ByTopic(Merge::Top), &[operation(GET, Access::READ.or_portal(), |route| route.to(top::report), own::top)]),
    route("/history", ByTopic(Merge::History), &[operation(GET, Access::READ, |route| route.to(history::report), own::history)]),
    list("/tail", ByTopic(Merge::Lines), &[headless(operation(GET, Access::READ, |route| route.to(tail::tail), own::tail))]),
    route("/supervision", ByTopic(Merge::Supervision), &[operation(GET, Access::READ, |route| route.to(supervision::report), own::supervision)]),
    route("/search", All(Merge::Union), &[operation(GET, Access::READ, |route| route.to(search::report), own::search)]),
    list("/jobs", All(Merge::Jobs), &[operation(GET, Access::READ, |route| route.to(jobs::report), own::jobs)]),
    list("/deadLetters", ByTopic(Merge::DeadLetters), &[operation(GET, Access::READ, |route| route.to(dead_letters::newest::newest), own::newest_dead_letters)]),
    route("/server", Any, &[operation(GET, Access::READ, |route| route.to(server::report), own::server)]),
    route("/editions", Any, &[operation(GET, Access::READ, |route| route.to(editions::report), own::editions)]),
    #[cfg(feature = "simulate")]
    route("/simulate", Any, &[operation(POST, Access::READ, |route| route.to(simulate::run), own::simulate)]),
    route("/clock", All(Merge::Clock), &[
        operation(GET, Access::READ, |route| route.to(clock::report), own::clock),
        operation(POST, Access::OPERATE, |route| route.to(clock::confirm), own::confirm_clock),
    ]),
    route("/cluster/status", Control, &[operation(GET, Access::READ, |route| route.to(cluster::status), own::cluster_status)]),
    route("/cluster/ownership", Control, &[operation(GET, Access::READ, |route| route.to(cluster::ownership), own::ownership)]),
    route("/cluster/move", Control, &[operation(POST, Access::ADMIN, |route| route.to(cluster::move_shard), own::move_shard)]),
    route("/cluster/drain", Control, &[operation(POST, Access::ADMIN, |route| route.to(cluster::drain), own::drain_node)]),
    route("/cluster/forget", Control, &[operation(POST, Access::ADMIN, |route| route.to(cluster::forget), own::forget_node)]),
    // A session has the role of its token, so everyone with a token may start one.
    personal("/ui/session", Control, &[
        operation(GET, Access::READ.or_portal(), |route| route.to(session::report), own::session),
        operation(POST, Access::READ, |route| route.to(session::start), own::start_session),
        operation(DELETE, Access::READ, |route| route.to(session::end), own::end_session),
    ]),
    route("/audit", All(Merge::Audit), &[operation(GET, Access::READ, |route| route.to(audit::list), own::audit)]),
    route("/tokens", Control, &[
        operation(GET, Access::READ, |route| route.to(tokens::list), own::tokens),
        operation(POST, Access::ADMIN, |route| route.to(tokens::create), own::create_token),
    ]),
    route("/tokens/{tokenName}", Control, &[operation(DELETE, Access::ADMIN, |route| route.to(tokens::revoke), own::revoke_token)]),
    route("/store/check", All(Merge::InTurn), &[operation(POST, Access::OPERATE, |route| route.to(store::check), own::check_store)]),
    route("/store/backup", All(Merge::InTurn), &[operation(POST, Access::ADMIN, |route| route.to(store::back_up), own::back_up_store)]),
    faults("/chaos", All(Merge::Sum), &[
        operation(GET, Access::READ, |route| route.to(chaos::report), own::chaos),
        operation(DELETE, Access::OPERATE, |route| route.to(chaos::end), own::end_chaos),
    ]),
    faults("/chaos/kill", ByBody(Merge::Found), &[operation(POST, Access::ADMIN, |route| route.to(chaos::kill), own::kill)]),
    faults("/chaos/poison", ByBody(Merge::Found), &[operation(POST, Access::ADMIN, |route| route.to(chaos::poison), own::poison)]),
    faults("/chaos/stall", ByBody(Merge::Each), &[operation(POST, Access::ADMIN, |route| route.to(chaos::stall), own::stall)]),
    faults("/chaos/writes", All(Merge::Each), &[operation(POST, Access::ADMIN, |route| route.to(chaos::writes), own::fail_writes)]),
    faults("/chaos/responses", ByBody(Merge::Each), &[operation(POST, Access::ADMIN, |route| route.to(chaos::responses), own::disturb_responses)]),
    faults("/chaos/clock", All(Merge::Each), &[operation(POST, Access::ADMIN, |route| route.to(chaos::clock), own::step_clock)]),
];

/// A path on the operators' listener.
const fn route(
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    GridhookRoute {
        template,
        listener: ListenerRole::Operators,
        needs_chaos: false,
        concern: Concern::Server,
        shards,
        operations,
    }
}

/// A path for callers with tokens of any scope.
const fn personal(
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    GridhookRoute {
        concern: Concern::Caller,
        ..route(template, shards, operations)
    }
}

/// A list of resources, for callers with tokens of any scope.
const fn list(
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    GridhookRoute {
        concern: Concern::Listed,
        ..route(template, shards, operations)
    }
}

/// A path that exists only with `chaos.enabled`.
const fn faults(
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    GridhookRoute {
        needs_chaos: true,
        ..route(template, shards, operations)
    }
}

/// A path on both listeners.
const fn probe(
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    GridhookRoute {
        listener: ListenerRole::Both,
        ..route(template, shards, operations)
    }
}

/// A path for endpoints, on the publishers' listener.
const fn validation(
    template: &'static str,
    shards: ShardScope,
    operations: &'static [Operation],
) -> GridhookRoute {
    GridhookRoute {
        listener: ListenerRole::Publishers,
        ..route(template, shards, operations)
    }
}

const fn operation(
    methods: &'static [Method],
    access: Access,
    handler: fn(Route) -> Route,
    describe: fn(&mut SchemaRegistry) -> OperationBuilder,
) -> Operation {
    Operation {
        methods,
        has_head: true,
        access,
        handler,
        describe,
    }
}

/// An operation without HEAD: its body has no end, or GET is a confirmation.
const fn headless(operation: Operation) -> Operation {
    Operation {
        has_head: false,
        ..operation
    }
}

impl GridhookRoute {
    /// The paths of a server with or without fault injection.
    pub fn all(chaos: ChaosMode) -> impl Iterator<Item = &'static Self> {
        ROUTES
            .iter()
            .filter(move |route| chaos == ChaosMode::Enabled || !route.needs_chaos)
    }

    /// The methods with their operations.
    pub fn operations(&self) -> impl Iterator<Item = (&'static Method, &'static Operation)> {
        self.operations.iter().flat_map(|operation| {
            operation
                .methods
                .iter()
                .map(move |method| (method, operation))
        })
    }

    /// Whether a query may name a topic, of which one shard may be asked.
    pub(super) fn is_by_topic(&self) -> bool {
        matches!(self.shards, ByTopic(_))
    }

    /// Whether a listener with this role serves the path.
    fn is_at(&self, role: ListenerRole) -> bool {
        [self.listener, role].contains(&ListenerRole::Both) || self.listener == role
    }

    /// Who may send a request with this method. The response to a method that is not allowed is for
    /// everyone who may use one.
    fn access(&self, method: &Method) -> Access {
        let allowed = self
            .operations
            .iter()
            .find(|operation| operation.allows(method))
            .map(|operation| operation.access);
        let least = || {
            self.operations
                .iter()
                .map(|operation| operation.access)
                .min()
        };
        allowed.or_else(least).unwrap_or(Access::ADMIN)
    }
}

impl Operation {
    fn allows(&self, method: &Method) -> bool {
        let is_head = self.has_head && *method == Method::HEAD;
        self.methods
            .contains(if is_head { &Method::GET } else { method })
            || self.methods.contains(method)
    }

    /// The OpenAPI description of the operation for one of its methods.
    pub(super) fn describe(
        &self,
        method: &Method,
        schemas: &mut SchemaRegistry,
    ) -> OperationBuilder {
        let draft = (self.describe)(schemas);
        if *method == Method::HEAD {
            draft.for_head()
        } else {
            draft
        }
    }
}

/// Adds the paths that a listener with this role serves.
pub(super) fn configure(cfg: &mut web::ServiceConfig, chaos: ChaosMode, role: ListenerRole) {
    for path in GridhookRoute::all(chaos).filter(|path| path.is_at(role)) {
        let mut resource = web::resource(path.template);
        for operation in path.operations {
            let has_method = guard::fn_guard(|request| operation.allows(&request.head().method));
            resource = resource.route((operation.handler)(web::route().guard(has_method)));
        }
        let not_allowed = move |request: HttpRequest| async move {
            let mut allowed: Vec<Method> = path
                .operations()
                .map(|(method, _)| method.clone())
                .collect();
            if !allowed.contains(&Method::HEAD)
                && path
                    .operations
                    .iter()
                    .any(|operation| operation.allows(&Method::HEAD))
            {
                allowed.push(Method::HEAD);
            }
            Err::<HttpResponse, _>(AdminError::Method {
                method: request.method().to_string(),
                allowed,
            })
        };
        let authorized = move |request: ServiceRequest, next: Next<BoxBody>| async move {
            let target = match path.concern {
                Concern::Server => Target::Server,
                Concern::Caller => Target::Caller,
                Concern::Listed => Target::Listed,
            };
            authorize(path.access(request.method()), target, request, next).await
        };
        cfg.service(
            resource
                .default_service(web::to(not_allowed))
                .wrap(from_fn(authorized)),
        );
    }
}
