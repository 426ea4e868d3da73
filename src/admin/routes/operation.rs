//! The routes to what the server does: health, metrics, figures, streams and the clock.

#[cfg(feature = "simulate")]
use super::shared::UNREAD_BODY;
use super::{
    GET, GET_OR_HEAD, GridhookRoute, get, operation, post, route, route_to,
    shared::{
        FIGURES, HISTORY, INVALID_QUERY, NEWEST_DEAD_LETTERS, STORED_LIST, SUPERVISION, TAIL,
        validation,
    },
};
#[cfg(feature = "simulate")]
use crate::simulate;
use crate::{
    auth::Access,
    clock, dead_letters, editions, health, history, jobs,
    merge::JsonMerge,
    metadata::{self, CloudEndpoints},
    metrics,
    openapi::{
        self, Query,
        QueryType::{Number, Text},
        SchemaRegistry, any_object, any_text, describe,
    },
    placement::{
        ResponseMerge::{self, Json},
        ShardScope::{All, Any, ByTopic, Control},
    },
    search, server, supervision, tail, top, validate,
};
#[cfg(feature = "simulate")]
use gridhook_api::editions::SimulationRequest;
use gridhook_api::{
    clock::ClockView,
    dead_letters::NewestDeadLettersView,
    editions::Editions,
    health::{Liveness, Readiness},
    history::HistoryReport,
    jobs::JobsReport,
    search::Search,
    server::ServerFacts,
    supervision::SupervisionReport,
    tail::TailLine,
    top::TopReport,
};
#[cfg(feature = "simulate")]
use gridhook_simulate::SimulationReport;

pub(super) static OPERATION: &[GridhookRoute] = &[
    route(
        "health",
        "/healthz",
        Any,
        &[operation(
            GET_OR_HEAD,
            Access::OPEN,
            route_to!(health::healthz),
            describe("healthz", "Check that the process is alive")
                .returns::<Liveness>(200, "The process is alive"),
        )],
    )
    .probe(),
    route(
        "health",
        "/readyz",
        Any,
        &[operation(
            GET_OR_HEAD,
            Access::OPEN,
            route_to!(health::readyz),
            describe("readyz", "Check that events are accepted")
                .returns::<Readiness>(200, "Events are accepted")
                .returns::<Readiness>(503, "Events are not accepted, with the causes"),
        )],
    )
    .probe(),
    route(
        "description",
        "/openapi.json",
        Any,
        &[operation(
            GET_OR_HEAD,
            Access::OPEN,
            route_to!(openapi::get_document),
            describe("openapi", "Get this OpenAPI document").returns_json(
                200,
                "The OpenAPI 3.1 document",
                any_object,
            ),
        )],
    ),
    route(
        "description",
        "/metadata/endpoints",
        Any,
        &[operation(
            GET,
            Access::OPEN,
            route_to!(metadata::get_endpoints),
            describe(
                "cloudEndpoints",
                "Get the addresses of this cloud, as Azure's clients expect them",
            )
            .returns::<CloudEndpoints>(200, "The addresses"),
        )],
    ),
    // A link checker must not confirm an endpoint.
    route(
        "validation",
        "/eventsubscriptions/{eventSubscriptionName}/validate",
        Control,
        &[
            operation(
                GET,
                Access::OPEN,
                route_to!(validate::confirm_endpoint),
                validation("validate"),
            )
            .headless(),
            post(
                Access::OPEN,
                route_to!(validate::confirm_endpoint),
                validation("validateByPost"),
            ),
        ],
    )
    .endpoint(),
    route(
        "metrics",
        "/metrics",
        All(ResponseMerge::Metrics),
        &[operation(
            GET,
            Access::METRICS,
            route_to!(metrics::get_metrics),
            describe(
                "metrics",
                "Get the metrics of the server, as Prometheus text or OpenMetrics",
            )
            .returns_types(
                "The metrics of the server",
                &[
                    ("text/plain", any_text),
                    ("application/openmetrics-text", any_text),
                ],
            ),
        )],
    ),
    route(
        "supervision",
        "/top",
        ByTopic(Json(JsonMerge::Top)),
        &[operation(
            GET,
            Access::READ.or_portal(),
            route_to!(top::get_top),
            describe("top", "List the figures of all event subscriptions")
                .with(FIGURES)
                .returns::<TopReport>(200, "The event subscriptions and their figures")
                .fails(STORED_LIST),
        )],
    )
    .list(),
    route(
        "supervision",
        "/history",
        ByTopic(Json(JsonMerge::History)),
        &[get(
            route_to!(history::get_history),
            describe(
                "history",
                "Get the course of the figures of the server or a part of it",
            )
            .with(HISTORY)
            .returns::<HistoryReport>(200, "The figures, one value for each step of time")
            .fails(INVALID_QUERY)
            .fails(&[(
                404,
                "No such topic or event subscription, or dashboard disabled",
            )]),
        )],
    ),
    route(
        "supervision",
        "/tail",
        ByTopic(ResponseMerge::Lines),
        &[get(
            route_to!(tail::stream_tail),
            describe("tail", "Stream events and outcomes as they happen")
                .with(TAIL)
                .returns_types(
                    "Endless lines of JSON; an empty line is a keep-alive",
                    &[(
                        "application/x-ndjson",
                        SchemaRegistry::reference_to::<TailLine>,
                    )],
                )
                .fails(INVALID_QUERY)
                .fails(&[
                    (404, "No such topic"),
                    (503, "Too many clients, or the server is stopping"),
                ]),
        )
        .headless()],
    )
    .list(),
    route(
        "supervision",
        "/supervision",
        ByTopic(Json(JsonMerge::Supervision)),
        &[get(
            route_to!(supervision::get_supervision),
            describe("supervision", "Get the failures and restarts of actors")
                .with(SUPERVISION)
                .returns::<SupervisionReport>(
                    200,
                    "The actors with the most failures, and the totals",
                )
                .fails(INVALID_QUERY)
                .fails(&[(404, "No such topic")]),
        )],
    ),
    route(
        "supervision",
        "/search",
        All(Json(JsonMerge::Lists)),
        &[get(
            route_to!(search::find_events),
            describe("search", "Find the events with an id in all topics")
                .with(&[Query("id", Text, "Id of the event")])
                .returns::<Search>(
                    200,
                    "The events, and the topics that were not searched to their end",
                )
                .fails(INVALID_QUERY)
                .fails(&[(503, "Store temporarily unreadable")]),
        )],
    ),
    route(
        "supervision",
        "/jobs",
        All(Json(JsonMerge::Jobs)),
        &[get(
            route_to!(jobs::list_jobs),
            describe("jobs", "List the replays and redrives that have not ended")
                .with(&[Query("top", Number, "Maximum jobs: 1 to 1,000")])
                .returns::<JobsReport>(200, "The jobs of all event subscriptions, newest first")
                .fails(INVALID_QUERY),
        )],
    )
    .list(),
    route(
        "deadLetters",
        "/deadLetters",
        ByTopic(Json(JsonMerge::DeadLetters)),
        &[get(
            route_to!(dead_letters::newest::list_newest),
            describe(
                "newestDeadLetters",
                "List the events of all event subscriptions that became dead letters",
            )
            .with(NEWEST_DEAD_LETTERS)
            .returns::<NewestDeadLettersView>(200, "Lines of the ledgers, newest first")
            .fails(STORED_LIST),
        )],
    )
    .list(),
    route(
        "supervision",
        "/server",
        Any,
        &[get(
            route_to!(server::get_server),
            describe(
                "server",
                "Get version, listeners, process and changed settings",
            )
            .returns::<ServerFacts>(200, "Facts of the server")
            .fails(&[(503, "Closed store")]),
        )],
    ),
    route(
        "policy",
        "/editions",
        Any,
        &[get(
            route_to!(editions::list_editions),
            describe(
                "editions",
                "List the editions of the delivery policy and their retry schedules",
            )
            .returns::<Editions>(200, "The editions by name"),
        )],
    ),
    #[cfg(feature = "simulate")]
    route(
        "policy",
        "/simulate",
        Any,
        &[post(
            Access::READ,
            route_to!(simulate::run),
            describe(
                "simulate",
                "Simulate an edition of the delivery policy in virtual time",
            )
            .takes::<SimulationRequest>(
                false,
                r#"{"models": ["outage:5h"], "subscriptions": 10, "days": 1}"#,
            )
            .returns::<SimulationReport>(200, "What became of the events, for each endpoint model")
            .fails(&[
                (
                    400,
                    "Invalid plan, or one that is too large or computes for too long",
                ),
                (503, "Too much is being computed, or the server is stopping"),
            ])
            .fails(UNREAD_BODY),
        )],
    ),
    route(
        "clock",
        "/clock",
        All(Json(JsonMerge::Clock)),
        &[
            get(
                route_to!(clock::get_clock),
                describe(
                    "clock",
                    "Get the time by which events age, and the system clock",
                )
                .returns::<ClockView>(200, "The current times"),
            ),
            post(
                Access::OPERATE,
                route_to!(clock::confirm_clock),
                describe(
                    "confirmClock",
                    "Confirm that the system clock is right, so that events expire again",
                )
                .returns::<ClockView>(200, "The current times"),
            ),
        ],
    ),
];
