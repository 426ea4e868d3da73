//! Topic actors run while there is work, and end with their topic.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use gridhook::{
    clock::Clock,
    compute::{Compute, ComputeCaller, ComputeLimits},
    control::registry::{ChangeBasis, ChaosVictim, Registry, SubscriptionHandle, TopicHandle},
    deliver::{HttpTarget, bodies::BodyBudget},
    event::{
        Event, EventRanges, PartitionId, Schema, Seq, SubscriptionId, SubscriptionKey, TextRange,
        Timestamp,
    },
    fanout::index::TopicIndex,
    journal::Journal,
    policy::{
        SubscriptionSettings,
        lane::LaneReader,
        record::{Command, Cursor, PaceRecord},
        transform::Transform,
    },
    publish::{
        PublishLimits,
        schema::{self, EventTarget, RequestContent},
    },
    record::subscription::{StartsFrom, SubscriptionRecord},
    subscription::{DeliveryPlan, SharedState},
    supervision::SupervisionHistory,
};

use crate::{
    support::chunks::sealed,
    support::{
        endpoint::{Endpoint, Step, respond},
        memory_store::MemoryStore,
        publisher::{
            computing_registry, journaled_registry, registry_with_check_interval, rules, topic,
        },
    },
};

/// Interval of the periodic check in these tests.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Time limit for waits of some milliseconds.
const LONG: Duration = Duration::from_secs(20);

async fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let waited = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, waited)
        .await
        .unwrap_or_else(|_| panic!("waited {LONG:?} for {what}"));
}

fn running_actors(registry: &Registry) -> usize {
    registry.running_actors(None).expect("all topics").len()
}

async fn put(registry: &Arc<Registry>) -> Arc<TopicHandle> {
    registry
        .put_topic(topic("orders", Schema::EventGrid))
        .await
        .expect("a topic")
}

/// Whether no topic actor runs.
fn no_topic_runs(registry: &Registry) -> bool {
    let is_topic = |victim: &ChaosVictim| matches!(victim, ChaosVictim::Topic(_));
    !registry
        .running_actors(None)
        .expect("all topics")
        .iter()
        .any(is_topic)
}

/// The subscription `audit`: one attempt, then the event is dropped.
fn subscription(endpoint: &str) -> SubscriptionRecord {
    let record = serde_json::json!({
        "number": 0, "version": 0, "name": "audit", "filter": {}, "delivery_schema": "EventGridSchema", "dead_letter": null,
        "webhook": {"endpoint_url": endpoint, "max_events_per_batch": 1, "preferred_batch_size_in_kilobytes": 64},
        "retry": {"max_delivery_attempts": 1, "event_time_to_live_in_minutes": 60}, "labels": [],
    });
    serde_json::from_value(record).expect("a record")
}

#[actix_web::test]
async fn an_idle_topic_has_no_actor_until_it_has_work() {
    let (registry, _clock, _hand) =
        registry_with_check_interval(&MemoryStore::new(), CHECK_INTERVAL);
    let topic = put(&registry).await;
    assert_eq!(running_actors(&registry), 0, "nothing is to do");
    for incarnation in 1..=3 {
        // A change is work.
        put(&registry).await;
        wait_until("an actor", || {
            topic.supervision_history().incarnation_number() == incarnation
        })
        .await;
        wait_until("its end", || running_actors(&registry) == 0).await;
    }
    let ends = topic.supervision_history().incarnation_ends();
    assert_eq!(
        (ends.panicked, ends.stopped, ends.killed, ends.orphaned),
        (0, 0, 0, 0),
        "none of them died"
    );
}

#[actix_web::test]
async fn a_command_is_answered_although_its_write_takes_many_checks() {
    let store = MemoryStore::new();
    let (registry, _clock, _hand) = registry_with_check_interval(&store, Duration::from_millis(1));
    let topic = put(&registry).await;
    registry
        .put_subscription(
            "orders",
            subscription("http://127.0.0.1:9/"),
            ChangeBasis::Any,
        )
        .await
        .expect("a subscription");
    wait_until("an actor", || {
        topic.supervision_history().incarnation_number() > 0
    })
    .await;
    wait_until("an idle topic", || no_topic_runs(&registry)).await;
    let held = store.hold();
    let mut hold = std::pin::pin!(registry.send_command("orders", "audit", Command::Hold));
    // The first poll sends the command. Fifty checks pass while its write waits.
    let early = tokio::time::timeout(Duration::from_millis(50), &mut hold).await;
    assert!(early.is_err(), "answered before it was written: {early:?}");
    drop(held);
    hold.await.expect("it is written");
    wait_until("an idle topic again", || no_topic_runs(&registry)).await;
}

/// Each change of the subscription replaces its actor. Commands arrive before, during and after
/// that.
#[actix_web::test]
async fn commands_are_answered_while_their_subscription_is_changed() {
    let (registry, _clock, _hand) =
        registry_with_check_interval(&MemoryStore::new(), Duration::from_millis(1));
    put(&registry).await;
    for attempts in 1..=30 {
        let mut record = subscription("http://127.0.0.1:9/");
        record.retry.max_delivery_attempts = attempts;
        let changed = async {
            registry
                .put_subscription("orders", record, ChangeBasis::Any)
                .await
                .expect("changed")
        };
        if attempts == 1 {
            changed.await;
            continue;
        }
        let commands = async {
            for command in [
                Command::Hold,
                Command::Resume,
                Command::Hold,
                Command::Resume,
            ] {
                registry
                    .send_command("orders", "audit", command)
                    .await
                    .expect("it is answered");
            }
        };
        tokio::join!(commands, changed);
    }
}

/// The first command is in a write that waits. The second one waits for that write. Then the actor
/// is replaced.
#[actix_web::test]
async fn commands_outlive_the_actor_that_took_them() {
    let store = MemoryStore::new();
    // No check comes, so the actor stays.
    let (registry, _clock, _hand) = registry_with_check_interval(&store, LONG);
    let topic = put(&registry).await;
    registry
        .put_subscription(
            "orders",
            subscription("http://127.0.0.1:9/"),
            ChangeBasis::Any,
        )
        .await
        .expect("a subscription");
    let shared = topic.find_shared_state("audit").expect("it is there");
    registry
        .send_command("orders", "audit", Command::Hold)
        .await
        .expect("it starts the actor");
    let held = store.hold();
    let written = store.writes();
    let mut commands = std::pin::pin!(futures_util::future::join(
        registry.send_command("orders", "audit", Command::Resume),
        registry.send_command("orders", "audit", Command::Hold),
    ));
    // The first poll sends both commands.
    assert!(futures_util::poll!(&mut commands).is_pending());
    wait_until("a write", || store.writes() > written).await;
    let before = shared.plan();
    let rules = rules();
    let edition = Arc::clone(&before.settings.edition);
    let plan = DeliveryPlan::new(
        Arc::clone(&before.record),
        Schema::EventGrid,
        edition,
        &rules.delivery,
    );
    shared.set_plan(Arc::new(plan.expect("it was valid before")));
    let mut third = std::pin::pin!(registry.send_command("orders", "audit", Command::Resume));
    assert!(futures_util::poll!(&mut third).is_pending());
    wait_until("the end of the actor", || shared.has_no_actor()).await;
    drop(held);
    let (first, second) = commands.await;
    first.expect("its write was in the journal");
    second.expect("the next actor takes it");
    third.await.expect("it arrived after the change");
}

/// The actor is stopped because its plan has changed. Where it is stopped because it was idle, the
/// same happens.
#[actix_web::test]
async fn a_client_that_comes_at_the_end_of_an_actor_starts_the_next_one() {
    let (registry, _clock, _hand) = registry_with_check_interval(&MemoryStore::new(), 10 * LONG);
    let topic = put(&registry).await;
    let name = serde_json::from_value("other".into()).expect("a name");
    let other = SubscriptionRecord {
        name,
        ..subscription("http://127.0.0.1:9/")
    };
    for record in [subscription("http://127.0.0.1:9/"), other] {
        registry
            .put_subscription("orders", record, ChangeBasis::Any)
            .await
            .expect("a subscription");
    }
    registry
        .send_command("orders", "audit", Command::Hold)
        .await
        .expect("it starts the actor");
    let shared = topic.find_shared_state("audit").expect("it is there");
    let known = Arc::clone(&topic);
    let incarnation = move || {
        let supervised = known.list_supervised();
        let of_audit = supervised.iter().filter(|(name, _, _)| name == "audit");
        of_audit
            .map(|(_, supervision, _)| supervision.incarnation)
            .sum::<u64>()
    };
    let before = incarnation();
    let plan = shared.plan();
    let edition = Arc::clone(&plan.settings.edition);
    let plan = DeliveryPlan::new(
        Arc::clone(&plan.record),
        Schema::EventGrid,
        edition,
        &rules().delivery,
    );
    shared.set_plan(Arc::new(plan.expect("it was valid before")));
    let client = actix_rt::spawn(async move {
        // The topic's actor is to start the other actor, and stops this one.
        let mut wake = std::pin::pin!(registry.send_command("orders", "other", Command::Hold));
        assert!(futures_util::poll!(&mut wake).is_pending());
        // Behind the turn of the topic's actor, and before the stopped actor is dropped.
        let mut is_later = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut is_later, true) {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
        let client = shared.receive_events(1);
        topic.ensure_actor(&shared);
        wake.await.expect("the other one takes it");
        client
    });
    let _client = client.await.expect("no panic");
    wait_until("the next actor", || incarnation() > before).await;
}

/// The actor may run at once, or some milliseconds later.
#[actix_web::test]
async fn a_new_subscription_has_its_backlog_before_its_actor_runs() {
    let (registry, journal, clock, _hand) = journaled_registry(&MemoryStore::new(), LONG);
    let topic = put(&registry).await;
    let start = clock.now();
    journal
        .append_events(topic.partition(), sealed(&[("yes", 10), ("yes", 10)]), None)
        .await
        .expect("published");
    for number in 0..20 {
        let record = SubscriptionRecord {
            name: serde_json::from_value(format!("audit{number}").into()).expect("a name"),
            starts_from: Some(Box::new(StartsFrom {
                at: start,
                made: start,
            })),
            ..subscription("http://127.0.0.1:9/")
        };
        registry
            .put_subscription("orders", record, ChangeBasis::Any)
            .await
            .expect("a subscription");
    }
    for snapshot in topic.snapshots() {
        let known = snapshot.backlog + snapshot.in_flight as u64 + snapshot.counters.passed;
        assert!(known > 0, "{} is shown as settled", snapshot.record().name);
    }
}

#[actix_web::test]
async fn a_suspect_is_kept_until_it_is_settled() {
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/", endpoint.local_addr().expect("an address"));
    let (registry, journal, _clock, _hand) =
        journaled_registry(&MemoryStore::new(), CHECK_INTERVAL);
    let topic = put(&registry).await;
    let made = registry
        .put_subscription("orders", subscription(&address), ChangeBasis::Any)
        .await
        .expect("a subscription");
    let subscription_key = SubscriptionKey {
        partition: topic.partition(),
        subscription: made.number,
    };
    let shared = registry
        .shared_state(subscription_key)
        .expect("it is there");
    registry
        .poison_event("orders", "audit", "", 2)
        .expect("it is there");
    let end = journal
        .append_events(topic.partition(), sealed(&[("yes", 10)]), None)
        .await
        .expect("published")
        .first
        .plus(1);
    // It is sent and has no response.
    wait_until("a request after two deaths", || shared.in_flight() == 1).await;
    assert_eq!(shared.suspect_count(), 1);
    drop(endpoint);
    wait_until("its end", || shared.current_state().low == end).await;
    wait_until("nothing to remember", || shared.suspect_count() == 0).await;
}

/// It has nothing to do at almost every check.
#[actix_web::test]
async fn a_subscription_with_an_event_now_and_then_keeps_its_actor() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let (registry, journal, _clock, _hand) =
        journaled_registry(&MemoryStore::new(), CHECK_INTERVAL);
    let topic = put(&registry).await;
    let record = subscription(&endpoint.url());
    registry
        .put_subscription("orders", record, ChangeBasis::Any)
        .await
        .expect("a subscription");
    let shared = topic.find_shared_state("audit").expect("it is there");
    // Two checks may fit into the time between two events only if the machine has stalled.
    let real = Clock::system();
    let mut stalls = 0;
    let mut before = real.now();
    for _ in 0..60 {
        let began = real.now();
        let published = journal
            .append_events(topic.partition(), sealed(&[("yes", 10)]), None)
            .await
            .expect("published");
        stalls += u64::from(real.now().since(before) >= CHECK_INTERVAL);
        before = began;
        let end = published.first.plus(1);
        wait_until("its end", || shared.current_state().low == end).await;
        tokio::time::sleep(CHECK_INTERVAL / 2).await;
    }
    let incarnations = topic
        .list_supervised()
        .iter()
        .map(|(_, supervision, _)| supervision.incarnation)
        .sum::<u64>();
    assert!(
        incarnations <= 1 + stalls,
        "{incarnations} actors for 60 events and {stalls} stalls"
    );
    wait_until("no actor", || shared.has_no_actor()).await;
}

#[actix_web::test]
async fn an_event_is_matched_with_many_subscriptions_in_parts() {
    let (registry, _clock, _hand) =
        registry_with_check_interval(&MemoryStore::new(), CHECK_INTERVAL);
    let topic = put(&registry).await;
    let record = subscription("http://127.0.0.1:9/");
    registry
        .put_subscription("orders", record, ChangeBasis::Any)
        .await
        .expect("a subscription");
    let plan = topic
        .find_shared_state("audit")
        .expect("it is there")
        .plan();
    let index = TopicIndex::new(vec![plan; 1_200]);
    let wire = Bytes::from_static(b"{}");
    let whole = TextRange { start: 0, len: 2 };
    let event = Event::new(
        Seq(1),
        Timestamp(0),
        Schema::EventGrid,
        wire,
        whole,
        EventRanges::default(),
    );
    let mut matching = index.begin_matching(vec![event], 2).expect("an event");
    let costs: Vec<usize> = std::iter::from_fn(|| index.match_next(&mut matching)).collect();
    assert!(
        costs.len() == 3 && costs.iter().all(|cost| *cost < 256 * 1024),
        "{costs:?}"
    );
}

/// Publishes events with these data.
async fn publish(journal: &Journal, topic: &TopicHandle, data: &[String]) {
    let event = |data: &String| {
        format!(
            r#"{{"id":"1","subject":"/s","eventType":"T","eventTime":"2026-11-20T10:00:00Z","dataVersion":"1","data":{data}}}"#
        )
    };
    let body = format!("[{}]", data.iter().map(event).collect::<Vec<_>>().join(","));
    let content = RequestContent {
        content_type: Some("application/json"),
        attributes: Vec::new(),
    };
    let target = EventTarget::for_topic(&topic.record());
    let draft = schema::read_events(&target, &content, &body.into(), &PublishLimits::default())
        .expect("events");
    journal
        .append_events(topic.partition(), draft.into_chunks(), None)
        .await
        .expect("published");
}

#[actix_web::test]
async fn a_costly_transformation_delays_no_other_subscription_of_its_thread() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let compute = Compute::new(ComputeLimits {
        threads: 1,
        ..ComputeLimits::default()
    });
    let bodies = BodyBudget::default();
    let (registry, journal, _clock, _hand) =
        computing_registry(&MemoryStore::new(), CHECK_INTERVAL, compute.clone(), bodies);
    let topic = put(&registry).await;
    for (name, expression) in [("costly", "[@, @, @, data]"), ("plain", "")] {
        let transform = Transform {
            body: Some(expression.to_owned()),
            ..Transform::default()
        };
        let record = SubscriptionRecord {
            name: serde_json::from_value(name.into()).expect("a name"),
            transform: (!expression.is_empty()).then(|| Box::new(transform)),
            ..subscription(&endpoint.url())
        };
        registry
            .put_subscription("orders", record, ChangeBasis::Any)
            .await
            .expect("a subscription");
    }
    let [costly, plain] =
        ["costly", "plain"].map(|name| topic.find_shared_state(name).expect("it is there"));
    // The only thread that computes is busy until the test ends that.
    let (free, is_free) = std::sync::mpsc::channel::<()>();
    let busy = compute.run(ComputeCaller::Operator("test".to_owned()), |_| async move {
        is_free.recv().is_ok()
    });
    let test = async {
        publish(&journal, &topic, &[format!("\"{}\"", "x".repeat(50_000))]).await;
        wait_until("the delivery without a transformation", || {
            plain.current_state().cursor.counters.delivered == 1
        })
        .await;
        assert_eq!(
            (
                costly.current_state().cursor.counters.delivered,
                costly.in_flight()
            ),
            (0, 0),
            "it is made elsewhere"
        );
        free.send(()).expect("it waits");
        wait_until("the transformed delivery", || {
            costly.current_state().cursor.counters.delivered == 1
        })
        .await;
        // A small event is transformed at once.
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        let busy = compute.run(ComputeCaller::Operator("test".to_owned()), |_| async move {
            is_free.recv().is_ok()
        });
        let small = async {
            publish(&journal, &topic, &["1".to_owned()]).await;
            wait_until("the small delivery", || {
                costly.current_state().cursor.counters.delivered == 2
            })
            .await;
            free.send(()).expect("it waits");
        };
        assert_eq!(tokio::join!(busy, small).0, Ok(true));
    };
    assert_eq!(tokio::join!(busy, test).0, Ok(true));
}

#[actix_web::test]
async fn what_many_events_are_transformed_to_is_read_and_sent_in_parts() {
    let endpoint = Endpoint::start(vec![respond(200, "", "")]);
    let (registry, journal, _clock, _hand) =
        journaled_registry(&MemoryStore::new(), CHECK_INTERVAL);
    let topic = put(&registry).await;
    let transform = Transform {
        body: Some("[@, @, @, @]".to_owned()),
        ..Transform::default()
    };
    let mut record = SubscriptionRecord {
        transform: Some(Box::new(transform)),
        ..subscription(&endpoint.url())
    };
    record.webhook.max_events_per_batch = 5000;
    record.webhook.preferred_batch_size_in_kilobytes = 1024;
    registry
        .put_subscription("orders", record, ChangeBasis::Any)
        .await
        .expect("a subscription");
    let shared = topic.find_shared_state("audit").expect("it is there");
    // 400 KiB that become 1.6 MB.
    publish(
        &journal,
        &topic,
        &vec![format!("\"{}\"", "x".repeat(4_000)); 100],
    )
    .await;
    wait_until("all deliveries", || {
        shared.current_state().cursor.counters.delivered == 100
    })
    .await;
    assert_eq!(shared.current_state().cursor.counters.filtered, 0);
    let sizes: Vec<usize> = endpoint
        .requests()
        .iter()
        .map(|request| request.body.len())
        .collect();
    assert!(
        sizes.len() >= 2 && sizes.iter().all(|bytes| *bytes <= 1024 * 1024),
        "{sizes:?}"
    );
    assert!(sizes.iter().sum::<usize>() > 1_600_000, "{sizes:?}");
}

#[actix_web::test]
async fn bodies_in_flight_are_bounded_and_identical_ones_are_one() {
    let silent = Endpoint::start(vec![vec![Step::Hang]]);
    let healthy = Endpoint::start(vec![respond(200, "", "")]);
    let bodies = BodyBudget::new(1_000_000);
    let (registry, journal, _clock, _hand) = computing_registry(
        &MemoryStore::new(),
        CHECK_INTERVAL,
        Compute::default(),
        bodies.clone(),
    );
    let topic = put(&registry).await;
    let named = |name: String, url: String| SubscriptionRecord {
        name: serde_json::from_value(name.into()).expect("a name"),
        ..subscription(&url)
    };
    for number in 0..20 {
        let record = named(format!("silent{number}"), silent.url());
        registry
            .put_subscription("orders", record, ChangeBasis::Any)
            .await
            .expect("a subscription");
    }
    registry
        .put_subscription(
            "orders",
            named("audit".to_owned(), healthy.url()),
            ChangeBasis::Any,
        )
        .await
        .expect("one");
    let shared = topic.find_shared_state("audit").expect("it is there");
    let events: Vec<String> = (0..10)
        .map(|number| format!("\"{number}{}\"", "x".repeat(200_000)))
        .collect();
    let mut most = 0;
    for event in &events {
        publish(&journal, &topic, std::slice::from_ref(event)).await;
        most = most.max(bodies.used_and_max_bytes().0);
    }
    wait_until("every delivery beside silent endpoints", || {
        most = most.max(bodies.used_and_max_bytes().0);
        shared.current_state().cursor.counters.delivered == 10
    })
    .await;
    let in_flight: usize = (0..20)
        .map(|number| {
            topic
                .find_shared_state(&format!("silent{number}"))
                .expect("it")
                .in_flight()
        })
        .sum();
    assert!(
        in_flight >= 20,
        "identical bodies are one: {in_flight} requests of 200 kB in 1 MB"
    );
    assert!(
        most <= 1_000_000 + 250_000,
        "{most} bytes; the last request may exceed the budget"
    );
}

#[actix_web::test]
async fn a_deleted_topic_leaves_no_actor() {
    let (registry, _clock, _hand) =
        registry_with_check_interval(&MemoryStore::new(), CHECK_INTERVAL);
    let mut gone: Vec<(&str, Weak<TopicHandle>)> = Vec::new();
    let fresh = put(&registry).await;
    gone.push(("one whose actor never ran", Arc::downgrade(&fresh)));
    drop(fresh);
    registry
        .delete_topic("orders")
        .await
        .expect("it is deleted");
    put(&registry).await;
    let starting = put(&registry).await;
    gone.push((
        "one whose actor is being started",
        Arc::downgrade(&starting),
    ));
    drop(starting);
    registry
        .delete_topic("orders")
        .await
        .expect("it is deleted");
    put(&registry).await;
    let running = put(&registry).await;
    wait_until("an actor", || running_actors(&registry) == 1).await;
    gone.push(("one whose actor runs", Arc::downgrade(&running)));
    drop(running);
    registry
        .delete_topic("orders")
        .await
        .expect("it is deleted");
    for (what, topic) in gone {
        wait_until(what, || topic.strong_count() == 0).await;
    }
}

#[test]
fn a_stored_wait_is_that_of_the_endpoint_that_requested_it() {
    let rules = rules();
    let plan = |record: SubscriptionRecord| {
        let edition = Arc::clone(&rules.editions["current"]);
        Arc::new(
            DeliveryPlan::new(
                Arc::new(record),
                Schema::EventGrid,
                edition,
                &rules.delivery,
            )
            .expect("a plan"),
        )
    };
    let plans = ["old", "new", "unknown"]
        .map(|path| plan(subscription(&format!("http://127.0.0.1:9/{path}"))));
    let until = Some(Timestamp(1_615_410_176_000_000));
    let old = Some(plans[0].settings.endpoint);
    for (plan, requested_by) in plans.iter().zip([old, old, None]) {
        let pace = PaceRecord {
            not_before: until,
            requested_by,
            ..PaceRecord::default()
        };
        let key = SubscriptionKey {
            partition: PartitionId(1),
            subscription: SubscriptionId(1),
        };
        SharedState::new(
            key,
            Arc::clone(plan),
            Cursor {
                pace,
                ..Cursor::default()
            },
            Seq::FIRST,
        );
    }
    let waits = plans.each_ref().map(|plan| plan.requested_wait());
    assert_eq!(
        waits,
        [until, None, until],
        "a cursor of an earlier version does not say which endpoint it was"
    );

    let queue = |account: &str, name: &str| {
        let properties = serde_json::json!({"resourceId": account, "queueName": name});
        let resource =
            serde_json::json!({"endpointType": "StorageQueue", "properties": properties});
        let resource = Some(serde_json::from_value(resource).expect("a destination"));
        plan(SubscriptionRecord {
            resource,
            ..subscription("http://127.0.0.1:9/")
        })
        .settings
        .endpoint
    };
    let relabelled = SubscriptionRecord {
        labels: Vec::new(),
        version: 7,
        ..subscription("http://127.0.0.1:9/old")
    };
    assert_eq!(Some(plan(relabelled).settings.endpoint), old);
    assert_eq!(queue("a", "one"), queue("a", "one"));
    assert_ne!(queue("a", "one"), queue("b", "one"));
    assert_ne!(queue("a", "one"), queue("a", "two"));
}

#[test]
fn what_every_subscription_has_takes_little_memory() {
    // A server with ten thousand subscriptions has as many of each. With the counts of references,
    // which are 16 bytes, they fill size classes of the allocator.
    let sizes = [
        ("record", size_of::<SubscriptionRecord>(), 496),
        ("handle", size_of::<SubscriptionHandle>(), 96),
        ("supervision history", size_of::<SupervisionHistory>(), 40),
        ("shared state", size_of::<SharedState>(), 880),
        ("plan", size_of::<DeliveryPlan>(), 176),
        ("webhook", size_of::<HttpTarget>(), 240),
        ("settings", size_of::<SubscriptionSettings>(), 208),
        ("lane", size_of::<LaneReader>(), 192),
    ];
    let large: Vec<_> = sizes
        .into_iter()
        .filter(|(_, size, bound)| size > bound)
        .collect();
    assert!(large.is_empty(), "more bytes than allowed: {large:?}");
}
