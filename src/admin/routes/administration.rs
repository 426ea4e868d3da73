//! The routes to administer the server: the cluster, sessions, tokens, the store and faults.

use super::{
    DELETE, GET, GridhookRoute, fault_route, get, operation, post, route, route_to,
    shared::{AUDIT, CLUSTER, NO_NODE, SESSION, STORED_LIST, UNREAD_BODY, fault, store_job},
};
use crate::{
    audit,
    auth::Access,
    chaos, cluster,
    merge::JsonMerge,
    openapi::describe,
    placement::{
        ResponseMerge::{self, Json},
        ShardScope::{All, ByBody, Control},
    },
    session, store, tokens,
};
use gridhook_api::{
    audit::AuditPageView,
    chaos::{
        ActiveFault, ChaosClock, ChaosKill, ChaosPoison, ChaosReport, ChaosResponses, ChaosStall,
        ChaosWrites,
    },
    cluster::{ClusterView, DrainBody, ForgetBody, MoveBody, OwnershipView},
    session::{Session, SessionList},
    store::BackupBody,
    token::{Token, TokenBody, TokenList},
};

pub(super) static ADMINISTRATION: &[GridhookRoute] = &[
    route(
        "cluster",
        "/cluster/status",
        Control,
        &[get(
            route_to!(cluster::get_status),
            describe(
                "clusterStatus",
                "List the nodes of the cluster, as the node that answers sees them",
            )
            .returns::<ClusterView>(200, "The nodes")
            .fails(NO_NODE),
        )],
    ),
    route(
        "cluster",
        "/cluster/ownership",
        Control,
        &[get(
            route_to!(cluster::ownership),
            describe(
                "clusterOwnership",
                "List the ownership records of the shards",
            )
            .returns::<OwnershipView>(200, "The records")
            .fails(NO_NODE),
        )],
    ),
    route(
        "cluster",
        "/cluster/move",
        Control,
        &[post(
            Access::ADMIN,
            route_to!(cluster::move_shard),
            describe(
                "moveShard",
                "Ask the owner of a shard to finish what is in flight and give the shard up to a \
                 node",
            )
            .takes::<MoveBody>(true, r#"{"shard": 0, "node": "b"}"#)
            .returns::<OwnershipView>(202, "The records, with the request")
            .fails(CLUSTER)
            .fails(UNREAD_BODY),
        )],
    ),
    route(
        "cluster",
        "/cluster/drain",
        Control,
        &[post(
            Access::ADMIN,
            route_to!(cluster::drain_node),
            describe(
                "drainNode",
                "Ask a node to give up what it owns and take nothing, or end that",
            )
            .takes::<DrainBody>(true, r#"{"node": "b", "drain": true}"#)
            .returns::<ClusterView>(202, "The nodes")
            .fails(CLUSTER)
            .fails(UNREAD_BODY),
        )],
    ),
    route(
        "cluster",
        "/cluster/forget",
        Control,
        &[post(
            Access::ADMIN,
            route_to!(cluster::forget_node),
            describe(
                "forgetNode",
                "Remove the record of a node that is gone for good, so that the stream keeps \
                 nothing for it",
            )
            .takes::<ForgetBody>(true, r#"{"node": "b"}"#)
            .returns::<ClusterView>(200, "The nodes that are left")
            .fails(CLUSTER)
            .fails(UNREAD_BODY),
        )],
    ),
    // A session has the role of its token, so everyone with a token may start one.
    route(
        "dashboard",
        "/ui/session",
        Control,
        &[
            operation(
                GET,
                Access::READ.or_portal(),
                route_to!(session::get_session),
                describe("session", "Get the caller and the session")
                    .returns::<Session>(200, "The caller")
                    .fails(SESSION),
            ),
            post(
                Access::READ,
                route_to!(session::start),
                describe(
                    "startSession",
                    "Exchange a token for a session of the dashboard",
                )
                .returns::<Session>(200, "The session")
                .fails(SESSION),
            ),
            operation(
                DELETE,
                Access::READ,
                route_to!(session::end_session),
                describe("endSession", "End the session")
                    .returns_nothing(204, "The session has ended")
                    .fails(SESSION),
            ),
        ],
    )
    .personal(),
    route(
        "dashboard",
        "/sessions",
        Control,
        &[get(
            route_to!(session::list_sessions),
            describe("sessions", "List the sessions of the dashboard")
                .returns::<SessionList>(200, "The sessions, the newest first"),
        )],
    ),
    route(
        "dashboard",
        "/sessions/{sessionId}",
        Control,
        &[operation(
            DELETE,
            Access::ADMIN,
            route_to!(session::end_session_by_id),
            describe(
                "endSessionById",
                "End a session of the dashboard and its streams",
            )
            .returns_nothing(204, "The session has ended")
            .fails(&[(404, "No such session")]),
        )],
    ),
    route(
        "audit",
        "/audit",
        All(Json(JsonMerge::Audit)),
        &[get(
            route_to!(audit::list),
            describe(
                "audit",
                "List the operations that needed more than the role read, refused ones too",
            )
            .with(AUDIT)
            .returns::<AuditPageView>(200, "The operations, newest first")
            .fails(STORED_LIST),
        )],
    ),
    route(
        "tokens",
        "/tokens",
        Control,
        &[
            get(
                route_to!(tokens::list_tokens),
                describe("tokens", "List the named tokens")
                    .returns::<TokenList>(200, "The tokens, without their secrets"),
            ),
            post(
                Access::ADMIN,
                route_to!(tokens::create_token),
                describe(
                    "createToken",
                    "Create a named token, which is shown in this response only",
                )
                .takes::<TokenBody>(
                    true,
                    r#"{"name": "shop", "roles": ["publish"], "scopes": ["topics/orders"]}"#,
                )
                .returns::<Token>(201, "The token")
                .fails(&[
                    (400, "Invalid token"),
                    (409, "The name is taken, or there are too many tokens"),
                    (503, "Store temporarily unwritable"),
                ])
                .fails(UNREAD_BODY),
            ),
        ],
    ),
    route(
        "tokens",
        "/tokens/{tokenName}",
        Control,
        &[operation(
            DELETE,
            Access::ADMIN,
            route_to!(tokens::revoke_token),
            describe(
                "revokeToken",
                "Revoke a named token and end its streams and sessions",
            )
            .returns_nothing(204, "The token is revoked")
            .fails(&[
                (404, "No such token"),
                (503, "Store temporarily unwritable"),
            ]),
        )],
    ),
    route(
        "store",
        "/store/check",
        All(ResponseMerge::OneByOne),
        &[post(
            Access::OPERATE,
            route_to!(store::check_store),
            store_job(describe("checkStore", "Check every record of the store")),
        )],
    ),
    route(
        "store",
        "/store/backup",
        All(ResponseMerge::OneByOne),
        &[post(
            Access::ADMIN,
            route_to!(store::back_up),
            store_job(
                describe("backUpStore", "Back up the store and check the copy")
                    .takes::<BackupBody>(true, r#"{"folder": "/srv/backups/monday"}"#),
            ),
        )],
    ),
    fault_route(
        "/chaos",
        All(Json(JsonMerge::Chaos)),
        &[
            get(
                route_to!(chaos::get_report),
                describe("chaos", "List the injected faults and what they did")
                    .returns::<ChaosReport>(200, "The active faults"),
            ),
            operation(
                DELETE,
                Access::OPERATE,
                route_to!(chaos::end_all),
                describe("endChaos", "End all injected faults")
                    .returns::<ChaosReport>(200, "The active faults"),
            ),
        ],
    ),
    fault_route(
        "/chaos/kill",
        ByBody(ResponseMerge::FirstFound),
        &[post(
            Access::ADMIN,
            route_to!(chaos::kill_actor),
            fault::<ChaosKill>(
                "kill",
                "Kill an actor (with `chaos.enabled`)",
                r#"{"actor": "topic", "topic": "orders", "by": "stop"}"#,
            )
            .returns::<ChaosKill>(200, "The killed actor"),
        )],
    ),
    fault_route(
        "/chaos/poison",
        ByBody(ResponseMerge::FirstFound),
        &[post(
            Access::ADMIN,
            route_to!(chaos::poison_event),
            fault::<ChaosPoison>(
                "poison",
                "Make an event kill every actor that processes it (with `chaos.enabled`)",
                r#"{"topic": "orders", "subscription": "billing", "eventId": "1", "times": 1}"#,
            )
            .returns::<ChaosPoison>(200, "The injected fault"),
        )],
    ),
    fault_route(
        "/chaos/stall",
        ByBody(ResponseMerge::FirstResponse),
        &[post(
            Access::ADMIN,
            route_to!(chaos::stall_actor),
            fault::<ChaosStall>(
                "stall",
                "Stall an actor or the journal (with `chaos.enabled`)",
                r#"{"actor": "journal", "duration": "500ms"}"#,
            )
            .returns::<ActiveFault>(200, "The active fault"),
        )],
    ),
    fault_route(
        "/chaos/writes",
        All(ResponseMerge::FirstResponse),
        &[post(
            Access::ADMIN,
            route_to!(chaos::fail_writes),
            fault::<ChaosWrites>(
                "failWrites",
                "Fail the next writes of the journal (with `chaos.enabled`)",
                r#"{"fail": 3, "duration": "10s"}"#,
            )
            .returns::<ActiveFault>(200, "The active fault"),
        )],
    ),
    fault_route(
        "/chaos/responses",
        ByBody(ResponseMerge::FirstResponse),
        &[post(
            Access::ADMIN,
            route_to!(chaos::disturb_responses),
            fault::<ChaosResponses>(
                "disturbResponses",
                "Drop, delay or corrupt responses of endpoints (with `chaos.enabled`)",
                r#"{"fault": "drop", "rate": 0.05, "duration": "30s"}"#,
            )
            .returns::<ActiveFault>(200, "The active fault"),
        )],
    ),
    fault_route(
        "/chaos/clock",
        All(ResponseMerge::FirstResponse),
        &[post(
            Access::ADMIN,
            route_to!(chaos::step_clock),
            fault::<ChaosClock>(
                "stepClock",
                "Step the wall clock for a while (with `chaos.enabled`)",
                r#"{"step": "-1h", "duration": "10s"}"#,
            )
            .returns::<ActiveFault>(200, "The active fault"),
        )],
    ),
];
