//! A cluster with several shards: where a request goes, and the responses of the shards as one.
//! They are compared with those of one store that has everything.

use std::collections::BTreeSet;

use actix_web::http::Method;
use expect_test::expect;
use gridhook::{
    admin::{
        ChaosMode, GridhookRoute, Placement, ResponseMerge,
        arm::routes::{ArmRoute, ROUTES},
        merge::{
            JsonMerge, PartRequest, ShardResponse, SpreadMerge, SpreadShards, add_work,
            merge_expositions, shard_in_path, take_shard_parameter,
        },
        placement, placement_of_body,
    },
    api::store::ProgressLine,
    cluster::shard_of,
    event::Schema,
    record::topic::TopicRecord,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::control::{ControlFixture, RG, hook};
use crate::support::publisher;

/// One store with all resources, and shards with those of their names.
struct Stores {
    whole: ControlFixture,
    shards: Vec<ControlFixture>,
}

impl Stores {
    async fn new(shards: usize) -> Self {
        let fixture = || ControlFixture::new(ChaosMode::Enabled);
        let stores = Self {
            whole: fixture(),
            shards: (0..shards).map(|_| fixture()).collect(),
        };
        for (at, name) in [
            "europe", "orders", "Bills", "stock", "plant", "users", "a-1", "a-2", "a-3", "zebra",
        ]
        .iter()
        .enumerate()
        {
            let kind = ["topics", "domains", "topics", "namespaces"][at % 4];
            let group = ["rg", "other"][at / 7];
            let path = format!(
                "{}/{kind}/{name}",
                RG.replace("/rg/", &format!("/{group}/"))
            );
            stores
                .put(&path, json!({"location": format!("place-{}", at % 3)}))
                .await;
            for subscription in (0..at).filter(|_| kind != "namespaces") {
                let name = format!(
                    "{path}/eventSubscriptions/to-{}",
                    (subscription * 7 + at) % 10
                );
                stores.put(&name, hook()).await;
                if subscription % 3 == 1 {
                    stores
                        .send("POST", &format!("{name}/hold"), Value::Null)
                        .await;
                }
            }
        }
        stores
    }

    async fn put(&self, path: &str, body: Value) {
        self.send("PUT", path, body).await;
    }

    /// Sends a request to the whole store, and to the shard of its topic, as if that were the
    /// control plane, too.
    async fn send(&self, method: &str, path: &str, body: Value) {
        let mut segments = path
            .split('/')
            .skip_while(|segment| !["topics", "domains", "namespaces"].contains(segment));
        let name = segments.nth(1).expect("a resource");
        for store in [&self.whole, &self.shards[shard_of(name, self.shards.len())]] {
            let response = store.call(method, path, body.clone()).await;
            assert!(response.status < 300, "{path}: {}", response.text);
        }
    }

    /// The responses of the whole store and of all shards.
    async fn ask(&self, target: &str) -> [Value; 2] {
        let whole = self.whole.call("GET", target, Value::Null).await;
        assert_eq!(whole.status, 200, "{target}: {}", whole.text);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Placement::All(ResponseMerge::Json(merge)) = placement(&Method::GET, path, query)
        else {
            panic!("{path} is of one shard")
        };
        let mut answers = Vec::new();
        for (shard, store) in self.shards.iter().enumerate() {
            let query = merge.query_for_shard(query, shard).expect("it is asked");
            let response = store.part(&format!("{path}?{query}")).await;
            assert_eq!(response.status, 200, "{target}: {}", response.text);
            answers.push(ShardResponse {
                shard,
                body: response.text.into(),
            });
        }
        [
            whole.json(),
            merge
                .merge_responses(query, &answers, &[])
                .expect("answers of shards"),
        ]
    }
}

/// Without what differs between two servers that do the same.
fn comparable(mut answer: Value) -> Value {
    match &mut answer {
        Value::Object(object) => {
            for key in [
                "systemData",
                "metricResourceId",
                "now",
                "window_seconds",
                "windowSeconds",
            ] {
                object.remove(key);
            }
            object
                .values_mut()
                .for_each(|value| *value = comparable(value.take()));
        }
        Value::Array(list) => list
            .iter_mut()
            .for_each(|value| *value = comparable(value.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    answer
}

#[actix_web::test]
async fn reports_of_all_shards_are_those_of_one_store() {
    for shards in [1, 2, 5] {
        let stores = Stores::new(shards).await;
        for report in [
            "/jobs",
            "/jobs?top=1",
            "/supervision",
            "/deadLetters",
            "/chaos",
        ] {
            let [whole, merged] = stores.ask(report).await.map(comparable);
            assert_eq!(merged, whole, "{shards} shards: {report}");
        }
    }
}

#[actix_web::test]
async fn pages_of_the_top_of_all_shards_are_parts_of_one_order() {
    let stores = Stores::new(3).await;
    for by in ["activity", "health", "backlog", "name"] {
        let line = |line: &Value| (line["topic"].clone(), line["subscription"].clone());
        let lines = |report: &Value| {
            report["top"]
                .as_array()
                .expect("lines")
                .iter()
                .map(line)
                .collect::<Vec<_>>()
        };
        let [whole, merged] = stores.ask(&format!("/top?by={by}&top=500")).await;
        let order = lines(&merged);
        let sums =
            |report: &Value| ["subscriptions", "held", "matching"].map(|sum| report[sum].clone());
        assert_eq!(sums(&merged), sums(&whole), "{by}");
        assert!(
            sums(&whole).iter().all(|sum| sum.as_u64() > Some(5)),
            "{whole}"
        );
        let kept = |lines: Vec<(Value, Value)>| {
            let mut texts: Vec<String> =
                lines.into_iter().map(|line| format!("{line:?}")).collect();
            texts.sort();
            texts
        };
        assert_eq!(
            kept(order.clone()),
            kept(lines(&whole)),
            "{by}: each event subscription once"
        );
        let mut paged = Vec::new();
        for skip in (0..order.len()).step_by(7) {
            let [_, page] = stores.ask(&format!("/top?by={by}&top=7&skip={skip}")).await;
            paged.extend(lines(&page));
        }
        assert_eq!(paged, order, "{by}: pages");
        if by == "name" {
            assert!(
                order.iter().map(|(_, name)| name.as_str()).is_sorted(),
                "{order:?}"
            );
        }
    }
    let response = stores.shards[0].part("/top?top=500&skip=9501").await;
    assert_eq!(response.status, 400, "{}", response.text);
}

/// Shards with parts of the spread topic `wide`, each with the same event subscriptions.
async fn spread_topic(shards: usize, subscriptions: usize) -> Vec<ControlFixture> {
    let mut stores = Vec::new();
    for _ in 0..shards {
        let store = ControlFixture::new(ChaosMode::Enabled);
        let topic = TopicRecord {
            partition_count: 3,
            ..publisher::topic("wide", Schema::EventGrid)
        };
        store.registry.put_topic(topic).await.expect("a topic");
        for number in 0..subscriptions {
            put_hook(&store, &format!("to-{number}")).await;
        }
        stores.push(store);
    }
    stores
}

fn path_in_wide(store: &ControlFixture, subscription: &str) -> String {
    let topic = store.registry.find_topic("wide").expect("a topic");
    let id = topic.record().resource_id();
    format!("{id}/eventSubscriptions/{subscription}")
}

async fn put_hook(store: &ControlFixture, subscription: &str) {
    let path = path_in_wide(store, subscription);
    let response = store.call("PUT", &path, hook()).await;
    assert_eq!(response.status, 201, "{}", response.text);
}

async fn hold(store: &ControlFixture, subscription: &str) {
    let path = format!("{}/hold", path_in_wide(store, subscription));
    let response = store.call("POST", &path, Value::Null).await;
    assert_eq!(response.status, 200, "{}", response.text);
}

async fn merged_top(stores: &[ControlFixture], query: &str) -> Value {
    let mut responses = Vec::new();
    for (shard, store) in stores.iter().enumerate() {
        let response = store.part(&format!("/top?{query}")).await;
        assert_eq!(response.status, 200, "{}", response.text);
        let body = response.text.into();
        responses.push(ShardResponse { shard, body });
    }
    JsonMerge::Top
        .merge_responses(query, &responses, &[])
        .expect("a report")
}

#[actix_web::test]
async fn an_event_subscription_of_a_spread_topic_counts_once_also_beyond_the_page() {
    let stores = spread_topic(3, 5).await;
    for store in &stores {
        hold(store, "to-0").await;
    }
    // Only one shard holds this one.
    hold(&stores[2], "to-4").await;
    for (query, matching, listed) in [
        ("top=2", 5, 2),
        ("top=2&skip=4", 5, 1),
        ("top=1&health=held", 2, 1),
        ("top=5&health=idle", 3, 3),
        ("search=to-4", 1, 1),
    ] {
        let report = merged_top(&stores, query).await;
        assert_eq!(
            ["subscriptions", "held", "suspended", "matching"].map(|count| &report[count]),
            [&json!(5), &json!(2), &json!(0), &json!(matching)],
            "{query}: {report}"
        );
        let conditions = &report["conditions"];
        assert_eq!(
            (&conditions["held"], &conditions["idle"]),
            (&json!(2), &json!(3)),
            "{query}: {report}"
        );
        let lines = report["top"].as_array().expect("lines");
        assert_eq!(lines.len(), listed, "{query}: {report}");
    }
}

#[actix_web::test]
async fn the_parts_of_a_spread_topic_are_ranked_by_the_figures_that_are_shown() {
    let stores = spread_topic(2, 3).await;
    // Both are shown as held, although two parts of one are and one part of the other.
    hold(&stores[0], "to-1").await;
    for store in &stores {
        hold(store, "to-2").await;
    }
    let report = merged_top(&stores, "by=health&top=3").await;
    let lines = report["top"].as_array().expect("lines");
    let order = lines.iter().map(|line| line["subscription"].as_str());
    assert!(
        order.eq(["to-1", "to-2", "to-0"].map(Some)),
        "equal ones are in the order of their names: {report}"
    );
}

#[actix_web::test]
async fn a_report_names_the_shards_that_are_missing() {
    let stores = Stores::new(2).await;
    let response = ShardResponse {
        shard: 0,
        body: stores.shards[0].part("/jobs").await.text.into(),
    };
    let merged = JsonMerge::Jobs
        .merge_responses("", &[response], &[1])
        .expect("a response");
    assert_eq!(merged["missingShards"], json!([1]));
}

proptest! {
    #[test]
    fn pages_of_the_audit_trails_have_each_operation_once(
        trails in proptest::collection::vec(proptest::collection::vec(0_i64..50, 0..12), 1..5),
        top in 1_usize..6,
    ) {
        // Each trail is in the order of its numbers, newest first.
        let trails: Vec<Vec<(u64, i64)>> = trails.into_iter().map(|mut times| {
            times.sort_unstable();
            times.into_iter().enumerate().map(|(number, at)| (number as u64, at)).rev().collect()
        }).collect();
        let mut seen = Vec::new();
        let mut query = format!("top={top}");
        for _ in 0..100 {
            let answers: Vec<ShardResponse> = trails.iter().enumerate().filter_map(|(shard, trail)| {
                let of_shard = JsonMerge::Audit.query_for_shard(&query, shard)?;
                let before = of_shard.split('&').find_map(|pair| pair.strip_prefix("continue=")?.parse().ok());
                let rest: Vec<_> = trail.iter().filter(|(number, _)| before.is_none_or(|before: u64| *number < before)).collect();
                let entry = |(number, at): &&(u64, i64)| json!({
                    "number": number, "at": format!("2026-01-01T00:00:{at:02}Z"), "method": "PUT",
                    "path": format!("/{shard}"), "status": 200, "request_id": "", "changes": [], "suppressed": 0,
                    "requestId": "",
                });
                let value: Vec<Value> = rest.iter().take(top).map(entry).collect();
                let next = rest.get(top).map(|(number, _)| (number + 1).to_string());
                let body = json!({"value": value, "continue": next}).to_string();
                Some(ShardResponse { shard, body: body.into() })
            }).collect();
            let page = JsonMerge::Audit.merge_responses(&query, &answers, &[]).expect("answers of shards");
            let entries = page["value"].as_array().expect("entries");
            prop_assert!(entries.len() <= top);
            seen.extend(entries.iter().map(|entry| (entry["path"].to_string(), entry["number"].as_u64().expect("a number"))));
            match page["continue"].as_str() {
                Some(next) => query = format!("top={top}&continue={next}"),
                None => break,
            }
        }
        let mut expected: Vec<_> = trails.iter().enumerate()
            .flat_map(|(shard, trail)| trail.iter().map(move |(number, _)| (format!("\"/{shard}\""), *number))).collect();
        seen.sort();
        expected.sort();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn histories_are_added_where_their_times_are_the_same() {
    let report = |from: &str, counts: Value, times: Value| {
        let body = json!({
            "recorded": true, "since": from, "from": from, "stepSeconds": 5, "published": counts, "delivered": [],
            "failedRequests": [], "givenUp": [], "backlog": [], "pending": [], "responseP50Milliseconds": times,
            "responseP99Milliseconds": [],
        });
        body.to_string()
    };
    let bodies = [
        report("2026-01-01T00:00:10Z", json!([1, null, 3]), json!([2.5])),
        report("2026-01-01T00:00:05Z", json!([10, 20, null, 40, 50]), json!([null, 4.5])),
        json!({
            "recorded": false, "since": "", "from": "1970-01-01T00:00:00Z", "stepSeconds": 5, "published": [],
            "delivered": [], "failedRequests": [], "givenUp": [], "backlog": [], "pending": [],
            "responseP50Milliseconds": [], "responseP99Milliseconds": [],
        })
        .to_string(),
    ];
    let answers: Vec<_> = bodies
        .into_iter()
        .enumerate()
        .map(|(shard, body)| ShardResponse {
            shard,
            body: body.into(),
        })
        .collect();
    let merged = JsonMerge::History
        .merge_responses("", &answers, &[])
        .expect("answers of shards");
    assert_eq!(merged["from"], "2026-01-01T00:00:05Z");
    assert_eq!(merged["published"], json!([10, 21, null, 43, 50]));
    assert_eq!(merged["responseP50Milliseconds"], json!([null, 4.5]));
}

#[test]
fn metrics_of_shards_are_one_exposition() {
    let of = |delivered: u64, topic: &str| {
        format!(
            "# HELP gridhook_delivered_total Events.\n# TYPE gridhook_delivered_total counter\n\
             gridhook_delivered_total{{topic=\"{topic}\",subscription=\"s\"}} {delivered}\n\
             gridhook_delivered_total{{topic=\"_other\",subscription=\"_other\"}} 5\n\
             # HELP gridhook_topics Topics.\n# TYPE gridhook_topics gauge\ngridhook_topics 1\n\
             # HELP process_threads Threads.\n# TYPE process_threads gauge\nprocess_threads \
             {delivered}\n# HELP gridhook_rocksdb_wal_syncs_total Syncs.\n\
             gridhook_rocksdb_wal_syncs_total {delivered}\n# EOF\n"
        )
    };
    let first = of(1, "orders");
    let second = of(2, "bills");
    expect![[r#"
        # HELP gridhook_delivered_total Events.
        # TYPE gridhook_delivered_total counter
        gridhook_delivered_total{shard="0",topic="orders",subscription="s"} 1
        gridhook_delivered_total{shard="0",topic="_other",subscription="_other"} 5
        gridhook_delivered_total{shard="2",topic="bills",subscription="s"} 2
        gridhook_delivered_total{shard="2",topic="_other",subscription="_other"} 5
        # HELP gridhook_topics Topics.
        # TYPE gridhook_topics gauge
        gridhook_topics{shard="0"} 1
        gridhook_topics{shard="2"} 1
        # HELP process_threads Threads.
        # TYPE process_threads gauge
        process_threads 1
        # HELP gridhook_rocksdb_wal_syncs_total Syncs.
        gridhook_rocksdb_wal_syncs_total 1
        # EOF
    "#]]
    .assert_eq(&merge_expositions(&[(0, &first), (2, &second)]));
}

#[test]
fn a_request_goes_to_the_shard_of_its_topic_or_to_all() {
    let mut scopes = RouteScopes::default();
    for route in ROUTES.iter() {
        scopes.add_route(route);
    }
    assert_scopes_are_listed(scopes);
}

/// Where requests to a topic go, by route.
#[derive(Default)]
struct RouteScopes {
    in_topics: BTreeSet<String>,
    in_namespaces: BTreeSet<String>,
}

impl RouteScopes {
    /// Checks that the operations of a route go to the resource that its path names.
    fn add_route(&mut self, route: &ArmRoute) {
        let path = route.template.replace(['{', '}'], "");
        let name = ["namespaceName", "domainName", "topicName"]
            .into_iter()
            .find(|name| path.contains(&format!("/{name}")));
        for operation in route.operations {
            let placement = placement(&operation.method, &path, "");
            match name {
                Some(name) => {
                    assert_placement_is_of(name, &operation.method, &path, &placement);
                    self.add_scope(&operation.method, &path, &placement);
                }
                None => assert_eq!(placement, Placement::Control, "{path}"),
            }
        }
    }

    fn add_scope(&mut self, method: &Method, path: &str, placement: &Placement) {
        let Placement::Topic(topic, scope) = placement else {
            return;
        };
        if !path.contains("/resourceGroupName/") {
            return;
        }
        let end = path.rsplit_once("/topicName").map_or("", |(_, end)| end);
        let line = format!("{method} {end}: {scope:?}");
        if topic.namespace.is_some() {
            self.in_namespaces.insert(line);
        } else {
            self.in_topics.insert(line);
        }
    }
}

fn assert_placement_is_of(name: &str, method: &Method, path: &str, placement: &Placement) {
    let resource = match placement {
        Placement::Named(resource) => resource,
        Placement::Topic(topic, _) => topic.leading_name(),
        // A request that changes or returns only records.
        Placement::Control => name,
        other => panic!("{path}: {other:?}"),
    };
    assert_eq!(resource, name, "{path}");
    // Domains are never spread.
    assert!(
        name != "domainName" || !matches!(placement, Placement::Topic(..)),
        "{path}: {placement:?}"
    );
    let is_change = [Method::PUT, Method::PATCH, Method::DELETE].contains(method);
    assert!(
        !is_change || *placement == Placement::Control,
        "{path}: {placement:?}"
    );
}

fn assert_scopes_are_listed(scopes: RouteScopes) {
    let in_topics: Vec<String> = scopes
        .in_topics
        .into_iter()
        .filter(|line| !line.contains("providers"))
        .collect();
    assert_eq!(
        scopes.in_namespaces.into_iter().collect::<Vec<_>>(),
        in_topics
    );
    expect![[r#"
        GET /eventSubscriptions/eventSubscriptionName/deadLetters/deadLetterKey: One
        GET /eventSubscriptions/eventSubscriptionName/deadLetters: Parts(DeadLetters)
        GET /eventSubscriptions/eventSubscriptionName/explain: All(FirstFound)
        GET /eventSubscriptions/eventSubscriptionName/ledger: Parts(Pages)
        GET /eventSubscriptions/eventSubscriptionName/metrics: Parts(Figures)
        GET /eventSubscriptions/eventSubscriptionName/replays/replayId: Parts(Replays)
        GET /eventSubscriptions/eventSubscriptionName/replays: Parts(Replays)
        GET /eventSubscriptions/eventSubscriptionName/request: One
        GET /eventSubscriptions/eventSubscriptionName/status: Parts(Figures)
        GET /events/sequence: One
        GET /events: Parts(Events)
        GET /status: Parts(Figures)
        GET /trace: Parts(Pages)
        POST /eventSubscriptions/eventSubscriptionName/deadLetters/purge: Parts(DeadLetterChanges)
        POST /eventSubscriptions/eventSubscriptionName/deadLetters/redrive: Parts(DeadLetterChanges)
        POST /eventSubscriptions/eventSubscriptionName/hold: Parts(Commands)
        POST /eventSubscriptions/eventSubscriptionName/probe: Parts(Commands)
        POST /eventSubscriptions/eventSubscriptionName/release: Parts(Commands)
        POST /eventSubscriptions/eventSubscriptionName/replays/replayId/cancel: Parts(Replays)
        POST /eventSubscriptions/eventSubscriptionName/replays/replayId/pause: Parts(Replays)
        POST /eventSubscriptions/eventSubscriptionName/replays/replayId/resume: Parts(Replays)
        POST /eventSubscriptions/eventSubscriptionName/replays: Parts(Replays)
        POST /eventSubscriptions/eventSubscriptionName/resume: Parts(Commands)
        POST /eventSubscriptions/eventSubscriptionName/retry: Parts(Retries)
        POST /eventSubscriptions/eventSubscriptionName/testFilter: Parts(Tests)
        POST /eventSubscriptions/eventSubscriptionName/testTransform: Parts(Tests)
        POST /eventSubscriptions/eventSubscriptionName/unblock: Parts(Commands)
        POST /publish: Near
        POST /testFilter: Parts(Tests)"#]]
    .assert_eq(&in_topics.join("\n"));
}

#[test]
fn a_request_without_a_topic_in_its_path_goes_to_the_owner_of_its_topic_or_to_all() {
    let show =
        |method: &Method, path: &str, query: &str| format!("{:?}", placement(method, path, query));
    let mut lines = Vec::new();
    for route in GridhookRoute::all_routes(ChaosMode::Enabled) {
        let (method, _) = route.operations().next().expect("an operation");
        let placement = show(method, route.template, "");
        lines.push(format!("{}: {placement}", route.template));
    }
    for target in [
        "/top?by=name&topic=/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/Orders",
        "/tail?topic=/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces/plant/topics/heat",
        "/supervision?topic=namespace:plant:heat",
        "/supervision?topic=domain:shop",
        "/supervision?topic=orders",
        "/subscriptions/s/providers/microsoft.eventgrid/TOPICS",
        "/unknown",
    ] {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        lines.push(format!("{target}: {}", show(&Method::GET, path, query)));
    }
    for body in [
        r#"{"actor": "topic", "topic": "orders", "by": "panic"}"#,
        r#"{"actor": "random", "by": "panic"}"#,
        "x",
    ] {
        lines.push(format!(
            "{body}: {:?}",
            placement_of_body(ResponseMerge::FirstFound, body.as_bytes())
        ));
    }
    expect![[r#"
        /healthz: Any
        /readyz: Any
        /openapi.json: Any
        /metadata/endpoints: Any
        /eventsubscriptions/{eventSubscriptionName}/validate: Control
        /metrics: All(Metrics)
        /top: All(Json(Top))
        /history: All(Json(History))
        /tail: All(Lines)
        /supervision: All(Json(Supervision))
        /search: All(Json(Lists))
        /jobs: All(Json(Jobs))
        /deadLetters: All(Json(DeadLetters))
        /server: Any
        /editions: Any
        /simulate: Any
        /clock: All(Json(Clock))
        /cluster/status: Control
        /cluster/ownership: Control
        /cluster/move: Control
        /cluster/drain: Control
        /cluster/forget: Control
        /ui/session: Control
        /sessions: Control
        /sessions/{sessionId}: Control
        /audit: All(Json(Audit))
        /tokens: Control
        /tokens/{tokenName}: Control
        /store/check: All(OneByOne)
        /store/backup: All(OneByOne)
        /chaos: All(Json(Chaos))
        /chaos/kill: ByBody(FirstFound)
        /chaos/poison: ByBody(FirstFound)
        /chaos/stall: ByBody(FirstResponse)
        /chaos/writes: All(FirstResponse)
        /chaos/responses: ByBody(FirstResponse)
        /chaos/clock: All(FirstResponse)
        /top?by=name&topic=/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/topics/Orders: Topic(TopicName { namespace: None, name: "Orders" }, All(Json(Top)))
        /tail?topic=/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces/plant/topics/heat: Topic(TopicName { namespace: Some("plant"), name: "heat" }, All(Lines))
        /supervision?topic=namespace:plant:heat: Topic(TopicName { namespace: Some("plant"), name: "heat" }, All(Json(Supervision)))
        /supervision?topic=domain:shop: Named("shop")
        /supervision?topic=orders: Topic(TopicName { namespace: None, name: "orders" }, All(Json(Supervision)))
        /subscriptions/s/providers/microsoft.eventgrid/TOPICS: Control
        /unknown: Any
        {"actor": "topic", "topic": "orders", "by": "panic"}: Named("orders")
        {"actor": "random", "by": "panic"}: All(FirstFound)
        x: Any"#]]
    .assert_eq(&lines.join("\n"));
}

/// Requests a part from each shard, and merges the responses.
fn in_parts(
    merge: SpreadMerge,
    asked: &PartRequest,
    answer: impl Fn(usize, &PartRequest) -> Value,
) -> Value {
    let shards = SpreadShards {
        leader: 1,
        count: 3,
    };
    let of_shard = |shard| {
        let part = merge.request_for_shard(shard, shards, asked)?;
        Some(ShardResponse {
            shard,
            body: answer(shard, &part).to_string().into(),
        })
    };
    let answers: Vec<_> = (0..3).filter_map(of_shard).collect();
    merge
        .merge_parts(shards, asked, &answers, &[])
        .expect("answers of shards")
}

fn asked(path: &str, query: &str, body: &str) -> PartRequest {
    PartRequest {
        path: path.to_owned(),
        query: query.to_owned(),
        body: body.to_owned().into(),
    }
}

#[test]
fn the_figures_of_the_parts_of_a_spread_topic_are_added() {
    let healths = [
        json!({"state": "healthy", "failures": 1}),
        json!({"state": "suspended", "cause": "busy", "consecutiveSuspensions": 2}),
        json!({"state": "probing", "cause": "busy", "consecutiveSuspensions": 3}),
    ];
    let merged = in_parts(
        SpreadMerge::Figures,
        &asked("/status", "", ""),
        |shard, _| {
            json!({
                "subscription": "all", "heldBy": if shard == 2 { json!("operator") } else { Value::Null },
                "health": healths[shard], "backlog": 10 + shard, "oldestUnreadAgeSeconds": shard * 7,
                "oldestUnread": format!("2026-01-01T00:00:0{}Z", 9 - shard),
                "endpoint": {"rate": 2.5, "maxRequestsPerSecond": 8, "concurrency": 4},
                "order": {"firstBlockingSequence": 7 - shard, "blockedKeys": 1}, "counters": {"delivered": 100},
                "jobs": [{"job": 5}], "nobodyKnowsThis": 1,
            })
        },
    );
    let expected = json!({
        "subscription": "all", "heldBy": "operator", "health": healths[1], "backlog": 33, "oldestUnreadAgeSeconds": 14,
        "oldestUnread": "2026-01-01T00:00:07Z", "endpoint": {"rate": 7.5, "maxRequestsPerSecond": 8, "concurrency": 12},
        "counters": {"delivered": 300}, "order": {"firstBlockingSequence": 5, "blockedKeys": 3},
        "jobs": [{"job": 5, "shard": 0}, {"job": 5, "shard": 1}, {"job": 5, "shard": 2}], "nobodyKnowsThis": 1,
    });
    assert_eq!(merged, expected);
}

#[test]
fn each_figure_of_the_log_of_a_spread_topic_has_its_own_rule() {
    let status = in_parts(
        SpreadMerge::Figures,
        &asked("/status", "", ""),
        |shard, _| {
            json!({
                "published": 10, "full": shard == 0, "logFromSequence": 7 - shard, "logBeforeSequence": 10 + shard,
                "largestBacklog": {"subscription": format!("s{shard}"), "bytes": if shard == 1 { 9 } else { 4 }},
            })
        },
    );
    let largest = json!({"subscription": "s1", "bytes": 9});
    assert_eq!(
        status,
        json!({
            "published": 30, "full": true, "logFromSequence": 5, "logBeforeSequence": 12, "largestBacklog": largest,
        })
    );
    let trace = in_parts(
        SpreadMerge::Pages,
        &asked("/trace", "", ""),
        |shard, _| json!({"topic": "orders", "logFromSequence": 3 + 4 * shard, "logBeforeSequence": 20 - shard, "events": []}),
    );
    assert_eq!(
        trace,
        json!({"topic": "orders", "logFromSequence": 3, "logBeforeSequence": 20, "events": []})
    );
    let healthy = in_parts(
        SpreadMerge::Figures,
        &asked("/status", "", ""),
        |shard, _| json!({"subscription": "all", "health": {"state": "healthy", "failures": (7 * shard) % 8}}),
    );
    assert_eq!(
        healthy["health"],
        json!({"state": "healthy", "failures": 7})
    );
}

#[test]
fn pages_of_the_parts_of_a_spread_topic_have_each_line_once() {
    // Each shard has so many lines, two on a page.
    let lines = [5_usize, 0, 3];
    let mut seen = Vec::new();
    let mut query = "top=2".to_owned();
    loop {
        let page = in_parts(
            SpreadMerge::Pages,
            &asked("/ledger", &query, ""),
            |shard, part| {
                let from = part
                    .query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("continue=")?.parse().ok())
                    .unwrap_or(0);
                let end = lines[shard].min(from + 2);
                let of_page: Vec<_> = (from..end)
                    .map(|at| json!({"at": format!("2026-01-01T00:00:0{at}Z")}))
                    .collect();
                let mut page = json!({"lines": of_page});
                if end < lines[shard] {
                    page["continue"] = end.to_string().into();
                }
                page
            },
        );
        let of_page: Vec<&Value> = page["lines"].as_array().expect("lines").iter().collect();
        assert!(
            of_page.is_sorted_by_key(|line| line["at"].to_string()),
            "{page}"
        );
        seen.extend(
            of_page
                .iter()
                .map(|line| format!("{} {}", line["shard"], line["at"])),
        );
        match page["continue"].as_str() {
            Some(next) => query = format!("top=2&continue={next}"),
            None => break,
        }
    }
    let unique: BTreeSet<&String> = seen.iter().collect();
    assert_eq!((seen.len(), unique.len()), (8, 8), "{seen:?}");
}

#[test]
fn pages_of_the_events_of_a_spread_topic_are_in_the_order_of_time() {
    // The second at which each event was stored, by shard; that of the sequence 1 is first.
    let logs: [&[u64]; 3] = [&[1, 2, 3, 40, 41, 42, 43, 44, 45], &[], &[4, 5, 6, 7, 50]];
    let mut seen = Vec::new();
    let mut query = "top=4".to_owned();
    loop {
        let page = in_parts(
            SpreadMerge::Events,
            &asked("/events", &query, ""),
            |shard, part| {
                let log = logs[shard];
                let end = part
                    .query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("before=")?.parse().ok());
                let end = end.unwrap_or(log.len() + 1) - 1;
                let from = end.saturating_sub(4);
                let line = |at: usize| {
                    let time = format!("2026-01-01T00:00:{:02}Z", log[at]);
                    json!({"sequence": at + 1, "at": time, "id": "", "eventType": "", "subject": "", "bytes": 1})
                };
                let events: Vec<Value> = (from..end).rev().map(line).collect();
                let mut page = json!({"events": events, "logFromSequence": 1, "logBeforeSequence": log.len() + 1});
                if from > 0 {
                    page["before"] = (from + 1).to_string().into();
                }
                page
            },
        );
        let events = page["events"].as_array().expect("events");
        assert!(events.len() <= 4, "{page}");
        seen.extend(
            events
                .iter()
                .map(|event| (event["at"].to_string(), event["shard"].clone())),
        );
        match page["before"].as_str() {
            Some(next) => query = format!("top=4&before={next}"),
            None => break,
        }
    }
    assert!(
        seen.is_sorted_by(|(newer, _), (older, _)| newer > older),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 14, "{seen:?}");
}

#[test]
fn each_shard_of_a_spread_topic_tests_its_part_of_the_newest_events_and_one_tests_given_ones() {
    let shards = SpreadShards {
        leader: 1,
        count: 3,
    };
    let bodies = |body: &str| -> Vec<Option<Value>> {
        let part = |shard| {
            SpreadMerge::Tests.request_for_shard(shard, shards, &asked("/testFilter", "", body))
        };
        (0..3)
            .map(|shard| part(shard).map(|part| serde_json::from_slice(&part.body).expect("JSON")))
            .collect()
    };
    let part = Some(json!({"filter": {}, "last": 4}));
    assert_eq!(
        bodies(r#"{"filter": {}, "last": 10}"#),
        [part.clone(), part.clone(), part]
    );
    assert_eq!(
        bodies(r#"[{"id": "1"}]"#),
        [None, Some(json!([{"id": "1"}])), None]
    );
}

#[test]
fn only_the_leader_of_a_spread_topic_looks_at_files_of_dead_letters() {
    let shards = SpreadShards {
        leader: 1,
        count: 3,
    };
    let of = |merge: SpreadMerge, asked: &PartRequest| {
        let shown = |part: PartRequest| {
            format!(
                "{}?{} {}",
                part.path,
                part.query,
                String::from_utf8_lossy(&part.body)
            )
            .trim()
            .to_owned()
        };
        let parts = (0..3).map(|shard| {
            merge
                .request_for_shard(shard, shards, asked)
                .map_or_else(|| "-".to_owned(), shown)
        });
        parts.collect::<Vec<_>>().join("\n")
    };
    let letters = |query: &str| of(SpreadMerge::DeadLetters, &asked("/deadLetters", query, ""));
    let redrives = |body: &str| of(SpreadMerge::DeadLetterChanges, &asked("/redrive", "", body));
    let replays = |path: &str, body: &str| of(SpreadMerge::Replays, &asked(path, "", body));
    expect![[r#"
        /deadLetters?%24top=5&stage=waiting
        /deadLetters?%24top=5
        /deadLetters?%24top=5&stage=waiting
        -
        /deadLetters?stage=written
        -
        /redrive? {"all":true,"filter":{"stage":"waiting"},"rate":1.0}
        /redrive? {"all":true,"rate":1.0}
        /redrive? {"all":true,"filter":{"stage":"waiting"},"rate":1.0}
        -
        /redrive? {"keys":["file~1"]}
        /redrive? {"keys":["waiting~1~2~3"]}
        /replays? {"eventsPerSecond":2.0}
        /replays? {"eventsPerSecond":2.0}
        /replays? {"eventsPerSecond":2.0}
        /replays/7/pause?
        -
        /replays/5/pause?
        -
        /replays/5?
        -"#]]
    .assert_eq(
        &[
            letters("%24top=5"),
            letters("stage=written"),
            redrives(r#"{"all": true, "rate": 3}"#),
            redrives(r#"{"keys": ["file~1", "2:waiting~1~2~3"]}"#),
            replays("/replays", r#"{"eventsPerSecond": 6}"#),
            replays("/replays/2%3A5%2C0:7/pause", ""),
            replays("/replays/5", ""),
        ]
        .join("\n"),
    );
    assert_eq!(
        shard_in_path("/x/deadLetters/2:waiting~1"),
        Some((2, "/x/deadLetters/waiting~1".to_owned()))
    );
    assert_eq!(shard_in_path("/x/deadLetters/file~1"), None);
    assert_eq!(
        take_shard_parameter("id=a&shard=3"),
        Some((3, "id=a".to_owned()))
    );
}

#[test]
fn each_shard_has_a_backup_of_its_own_and_findings_name_theirs() {
    let line = |sequence: u64, findings: Value, repaired: Option<u64>| {
        let report = json!({"counts": {"events": 3}, "findings": findings, "omitted": 1, "leftoversOmitted": 2, "repaired": repaired});
        let backup = json!({"folder": format!("/b/{sequence}"), "made": "now", "sequence": sequence, "files": 2, "bytes": 9});
        serde_json::from_value(json!({"progress": "1 file", "report": report, "backup": backup}))
            .expect("a line")
    };
    let mut all = ProgressLine::default();
    add_work(&mut all, 0, line(70, json!([]), None)).expect("a report");
    add_work(
        &mut all,
        1,
        line(50, json!([{"problem": "a gap", "repair": null}]), Some(4)),
    )
    .expect("a report");
    let report = json!({"counts": {"events": 6}, "findings": [{"problem": "shard 1: a gap"}], "omitted": 2, "leftovers": [],
        "leftoversOmitted": 4, "repaired": 4});
    let backup = |sequence: u64| json!({"folder": format!("/b/{sequence}"), "made": "now", "sequence": sequence, "files": 2, "bytes": 9, "written": 0});
    assert_eq!(
        json!(all),
        json!({"report": report, "backups": [backup(70), backup(50)]})
    );
}
