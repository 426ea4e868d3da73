//! Rounds of kills, pauses and stops of owners under every kind of work, with a ledger of what was
//! acknowledged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use gridhook::{cluster::shard_of, event::Timestamp};
use serde_json::{Value, json};

use super::{
    ChangelogReader, Cluster, NAMES, START,
    clients::{Caller, Clients, LOCK, Published, lock, publishes, pulls, topic_without_duplicates},
    placement::states,
    shards::{SHARDS, Sharded, assert_shards_sound, names},
};
use crate::{
    server::{
        LONG, assert_arrived, end_waits, many, pull::RG, replay::replays, wait_until_settled,
    },
    spec::{fact, shows},
    support::{
        load,
        nats::{NatsCluster, has_nats},
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::{Arrival, Behavior, Ledger, Sink},
        tcp_proxy::TcpProxy,
    },
};

/// An answer this long before a signal is durable: a group waits 10 ms for company, and NATS syncs
/// it, on a machine that does other things too.
const DURABLE: Duration = Duration::from_secs(1);

/// What a slow endpoint had in hand at a signal it answers within this time.
const IN_HAND: Duration = Duration::from_millis(200);

/// The longest median times until the next owner delivers after a signal: beside other tests, and
/// on a machine that has nothing else to do. After a kill it does not wait for the end of the
/// lease, which is 2 s: where other tests delay it, its log says so.
const TAKEOVERS: [(&str, [Duration; 2]); 2] = [
    ("KILL", [Duration::from_secs(2), Duration::from_secs(1)]),
    ("STOP", [Duration::from_secs(8), Duration::from_secs(4)]),
];

/// Some turns of the nodes, in each of which one may ask another one for a shard.
const DIVIDED: Duration = Duration::from_millis(1_600);

/// The topic with every kind of work.
const ORDERS: &str = "orders";

/// The nodes that have a copy of a shard, where not all have.
const COPIES: usize = 2;

/// Makes a namespace with a queue, and returns its key.
fn queue(server: &Server) -> String {
    server.command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
    server.command("PUT", &format!("{RG}/plant/topics/heat"), &json!({}));
    let queue =
        json!({"deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": LOCK.as_secs()}});
    let queue = json!({"properties": {"deliveryConfiguration": queue}});
    server.command(
        "PUT",
        &format!("{RG}/plant/topics/heat/eventSubscriptions/work"),
        &queue,
    );
    let keys = server
        .command("POST", &format!("{RG}/plant/listKeys"), &Value::Null)
        .json();
    keys["key1"].as_str().expect("a key").to_owned()
}

/// What `gridhook dead-letters` does with those of the subscription `Doomed`.
fn dead_letters(node: &Server, verb: &str, rest: &[&str]) -> Result<Value, String> {
    let topic = format!("{SCOPE}/{ORDERS}");
    let said = operator(
        node,
        &[
            &["dead-letters", verb, &topic, "Doomed", "--output", "json"],
            rest,
        ]
        .concat(),
    )?;
    Ok(serde_json::from_str(&said).expect("JSON"))
}

/// How often a node saw that the process of an owner had ended.
fn ends_seen(node: &Server) -> usize {
    node.logs()
        .matches("the process of the owner has ended")
        .count()
}

/// When events of jobs were answered that were taken once more later.
fn replayed_again(ledger: &Ledger) -> Vec<Timestamp> {
    let of_event = |arrivals: &Vec<Arrival>| {
        let taken = arrivals
            .iter()
            .filter(|arrival| arrival.is_taken() && arrival.job.is_some());
        let mut taken: Vec<Timestamp> = taken.map(|arrival| arrival.answered).collect();
        taken.sort_unstable();
        taken.pop();
        taken
    };
    ledger.values().flat_map(of_event).collect()
}

/// The times at which owners of a shard ended: what was in flight then may be repeated.
struct OwnerEnds {
    ends: Vec<(Timestamp, Timestamp)>,
    changelog: ChangelogReader,
    /// Until when it is known that owners ended at these times only.
    known: Timestamp,
}

impl OwnerEnds {
    fn new(shard: usize, now: Timestamp) -> Self {
        Self {
            ends: Vec::new(),
            changelog: ChangelogReader::new(shard),
            known: now,
        }
    }

    /// An owner was ended between these times. Another node owns the shard now, and says so in the
    /// changelog.
    fn note(&mut self, nats: &NatsCluster, (from, to): (Timestamp, Timestamp), now: Timestamp) {
        self.ends.push((from, to));
        self.look_for(nats, now, 1);
    }

    /// Takes note of owners that lost the shard on a machine that stood still. One that gives it up
    /// finishes what is in flight.
    fn look(&mut self, nats: &NatsCluster, now: Timestamp) {
        self.look_for(nats, now, 0);
    }

    fn look_for(&mut self, nats: &NatsCluster, now: Timestamp, expected: usize) {
        let before = self.changelog.unreleased;
        self.changelog.read(nats);
        let lost = self.changelog.unreleased - before;
        if lost > expected {
            println!(
                "{} owners more than by signals did not release the shard",
                lost - expected
            );
            self.ends.push((self.known, now));
        }
        self.known = now;
    }

    /// What was in flight when an owner ended, and nothing else, was taken again.
    fn assert_in_flight(&self, what: &str, repeated: &[Timestamp]) {
        let is_in_flight = |answered: &&Timestamp| {
            let is_of = |(from, to): &(Timestamp, Timestamp)| {
                **answered <= to.after(IN_HAND) && from.since(**answered) <= DURABLE
            };
            self.ends.iter().any(is_of)
        };
        let early: Vec<_> = repeated
            .iter()
            .filter(|answered| !is_in_flight(answered))
            .collect();
        let count = early.len();
        let ends = &self.ends;
        assert!(
            early.is_empty(),
            "{what}: {count} were repeated whose answers were durable: {early:?}, ends {ends:?}"
        );
    }
}

/// A topic that publishers work at all the time, and its shard.
struct Topic {
    name: String,
    key: String,
    shard: usize,
    published: Vec<Arc<Mutex<Published>>>,
    /// Events of other clients.
    others: Vec<String>,
    ends: OwnerEnds,
}

impl Topic {
    /// Makes the topic, with an event subscription for single events and one for batches.
    fn create(node: &Server, name: &str, shard: usize, sink: &Sink) -> Self {
        let key = topic_without_duplicates(node, name);
        let hook =
            |of: &str| SubscriptionSpec::of(&sink.url(&format!("/{of}/{name}"))).prefix("/load");
        node.subscribe(name, "alone", &hook("alone"));
        node.subscribe(name, "batched", &hook("batched").batch(10));
        let ends = OwnerEnds::new(shard, sink.now());
        Self {
            name: name.to_owned(),
            key,
            shard,
            published: Vec::new(),
            others: Vec::new(),
            ends,
        }
    }

    fn path(&self, subscription: &str) -> String {
        format!("/{subscription}/{}", self.name)
    }

    fn acknowledged(&self) -> usize {
        self.published
            .iter()
            .map(|published| lock(published).ids.len())
            .sum()
    }
}

/// Waits until each shard has as many copies as it should have, and no shard moves any more.
fn wait_until_divided(node: &Server) {
    let mut before = Value::Null;
    let mut since = Instant::now();
    wait_for("shards and copies to be divided", START, || {
        let states: Vec<_> = states(node).into_iter().map(|(_, states)| states).collect();
        let is_copied = |shard: usize| {
            let in_state = |state| {
                states
                    .iter()
                    .filter(|states| states.get(shard).is_some_and(|of| of == state))
                    .count()
            };
            in_state("complete") == COPIES && in_state("none") + COPIES == states.len()
        };
        let records = node
            .command("GET", "/cluster/ownership", &Value::Null)
            .json();
        let records = records["value"].as_array().expect("records").clone();
        let owners: Value = records
            .iter()
            .map(|record| record["ownerName"].clone())
            .collect();
        let is_settled = records
            .iter()
            .all(|record| record["wantedBy"].is_null() && record["ownerName"].is_string());
        if owners != before || !is_settled || !(0..usize::from(SHARDS)).all(is_copied) {
            (before, since) = (owners, Instant::now());
        }
        since.elapsed() > DIVIDED
    });
}

/// Waits until other nodes have the copies of this one, which does not run.
fn wait_until_replaced(node: &Server, gone: &str) {
    wait_for(
        "copies in the place of those of a killed node",
        START,
        || {
            let states: Vec<Vec<String>> = states(node)
                .into_iter()
                .filter(|(name, _)| name != gone)
                .map(|(_, states)| states)
                .collect();
            states.len() == COPIES && states.iter().flatten().all(|state| state == "complete")
        },
    );
}

/// The settings of the nodes, whose dead letters are files at this address.
fn settings(url: &str) -> [(&'static str, &str); 3] {
    [
        ("JOURNAL__RETENTION", "7d"),
        ("DEAD_LETTER__STORES__SHARED__URL", url),
        ("DEAD_LETTER__STORES__SHARED__ACCOUNTS", "*"),
    ]
}

#[test]
fn nothing_acknowledged_is_lost_through_kills_pauses_and_stops_of_owners() {
    let _rows = shows(&[
        "S004-014", "S004-025", "S004-030", "S004-068", "S004-021", "S004-022", "S004-029",
        "S004-033",
    ]);
    if !has_nats() {
        return;
    }
    let files = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(1, &settings(&format!("file://{}", files.path().display())));
    let sink = Sink::start();
    let topics = vec![Topic::create(&cluster.nodes[0], ORDERS, 0, &sink)];
    assert_nothing_is_lost(&mut cluster, &sink, topics, many(6, 50), false);
    // Nothing was lost, and what was taken twice was in flight at the end of an owner.
    fact("S004-090", &json!({"guarantee": "at least once"}));
    for node in &mut cluster.nodes {
        node.terminate();
        node.assert_sound();
    }
}

#[test]
fn nothing_acknowledged_is_lost_where_two_of_three_nodes_have_a_copy_of_each_shard() {
    if !has_nats() {
        return;
    }
    let files = tempfile::tempdir().expect("a folder");
    let copies = COPIES.to_string();
    let url = format!("file://{}", files.path().display());
    // In the long form a new copy of a shard begins with the store of the owner: the stream does
    // not have the first records.
    let of_copies = [
        ("CLUSTER__COPIES", copies.as_str()),
        ("CLUSTER__REPLACE_AFTER", "4s"),
        ("CLUSTER__STREAM_KEEP_BYTES", "16 MiB"),
    ];
    let mut sharded = Sharded::start(&[&settings(&url)[..], &of_copies[..]].concat());
    let sink = Sink::start();
    // Each pair of nodes has one of these shards.
    let others = names();
    let named = [ORDERS, others[3].as_str(), others[4].as_str()];
    let create = |(index, name): (usize, &str)| {
        Topic::create(
            &sharded.cluster.nodes[index],
            name,
            shard_of(name, usize::from(SHARDS)),
            &sink,
        )
    };
    let topics: Vec<Topic> = named.into_iter().enumerate().map(create).collect();
    assert_nothing_is_lost(&mut sharded.cluster, &sink, topics, many(3, 50), true);
    for node in &mut sharded.cluster.nodes {
        node.terminate();
        assert_shards_sound(node);
    }
}

/// Rounds in which the owner of the shard of one of these topics is killed, paused or stopped. With
/// `has_few_copies`, not every node has a copy of every shard, and some killed nodes stay away
/// until others have theirs.
fn assert_nothing_is_lost(
    cluster: &mut Cluster,
    sink: &Sink,
    mut topics: Vec<Topic>,
    rounds: usize,
    has_few_copies: bool,
) {
    let first = &cluster.nodes[0];
    let key = topics[0].key.clone();
    let hook = |path: &str| SubscriptionSpec::of(&sink.url(path));
    first.subscribe(ORDERS, "past", &hook("/past").batch(10).prefix("/past"));
    first.subscribe(
        ORDERS,
        "Doomed",
        &hook("/doomed").prefix("/doomed").dead_letters("letters"),
    );
    sink.set("/doomed", Behavior::Answer(400));
    let mut doomed: Vec<String> = Vec::new();
    let past: Vec<String> = (0..400).map(|number| format!("past-{number}")).collect();
    first.publish(ORDERS, &key, &load::body(&past, "/past"));
    wait_for("what is replayed later", LONG, || {
        sink.taken("/past") == past.len()
    });
    wait_until_settled(first, ORDERS, "past");
    let replay = json!({"fromSequence": 1, "eventsPerSecond": many(20, 2)});
    let replay = first
        .command("POST", &replays(ORDERS, "past", ""), &replay)
        .json();
    let replay = replays(
        ORDERS,
        "past",
        &format!("/{}", replay["id"].as_str().expect("an id")),
    );

    let balancer = TcpProxy::start(&cluster.addresses());
    let mut clients = Clients::new();
    for (index, topic) in topics.iter_mut().enumerate() {
        let publishers = if index == 0 { 3 } else { 1 };
        let begin = |publisher| {
            publishes(
                &mut clients,
                balancer.at(),
                (&topic.name, &topic.key),
                (publisher, "/load"),
            )
        };
        topic.published = (0..publishers).map(begin).collect();
    }
    let pulled = pulls(&mut clients, balancer.at(), &queue(&cluster.nodes[0]));
    let mut last = 0;
    let mut took = BTreeMap::<&str, Vec<Duration>>::new();
    let mut is_end_seen = false;
    for round in 0..rounds {
        let is_down = round % 2 == 0;
        let slow = Behavior::Slow(Duration::from_millis(10), 200);
        for topic in &topics {
            sink.set(
                &topic.path("batched"),
                Behavior::Answer(if is_down { 503 } else { 200 }),
            );
            sink.set(
                &topic.path("alone"),
                if round % 3 == 0 {
                    slow.clone()
                } else {
                    Behavior::Answer(200)
                },
            );
        }
        let more: Vec<String> = (0..20)
            .map(|number| format!("doomed-{round}-{number}"))
            .collect();
        sink.set("/doomed", Behavior::Answer(if is_down { 400 } else { 200 }));
        cluster.nodes[last].publish(ORDERS, &key, &load::body(&more, "/doomed"));
        doomed.extend(more);
        for topic in &topics {
            let before = topic.acknowledged();
            wait_for("publishers to be served", LONG, || {
                topic.acknowledged() > before + 50
            });
        }
        if !is_down {
            dead_letters(&cluster.nodes[last], "redrive", &["--all"]).expect("a job");
        }
        if has_few_copies {
            wait_until_divided(&cluster.nodes[last]);
        }
        let owners: Vec<usize> = topics
            .iter()
            .map(|topic| cluster.owner_of(topic.shard, None))
            .collect();
        topics
            .iter_mut()
            .for_each(|topic| topic.ends.look(&cluster.nats, sink.now()));
        // Each topic has each signal.
        let target = round % topics.len();
        let how = ["KILL", "STOP", "TERM"][(round + round / 3) % 3];
        let owner = owners[target];
        let shard = topics[target].shard;
        let began = sink.now();
        // A client of another node, whom the next owner serves first.
        let id = format!("first-{round}");
        let path = events_path(&topics[target].name);
        let key = topics[target].key.clone();
        let body = load::body(std::slice::from_ref(&id), "/load");
        let mut caller = Caller::new(cluster.nodes[(owner + 1) % 3].at());
        let seen_before: Vec<usize> = cluster.nodes.iter().map(ends_seen).collect();
        cluster.nodes[owner].signal(how);
        let signaled = sink.now();
        let called = thread::spawn(move || {
            caller
                .post(&path, &[("aeg-sas-key", &key)], &body)
                .is_some()
        });
        let next = cluster.owner_of(shard, Some(owner));
        is_end_seen |= how == "KILL" && ends_seen(&cluster.nodes[next]) > seen_before[next];
        // One that is asked to stop finishes what is in flight.
        let ended = if how == "TERM" { sink.now() } else { signaled };
        assert!(called.join().expect("no panic"), "a client is served");
        let alone = topics[target].path("alone");
        let mut delivered = None;
        wait_for("the next owner to deliver", LONG, || {
            delivered = sink.look(&alone, |ledger| {
                ledger.get(&id).map(|arrivals| arrivals[0].at)
            });
            delivered.is_some()
        });
        took.entry(how)
            .or_default()
            .push(delivered.map(|at| at.since(began)).unwrap_or_default());
        topics[target].others.push(id);
        for (topic, _) in topics
            .iter_mut()
            .zip(&owners)
            .filter(|(_, of)| **of == owner)
        {
            cluster.owner_of(topic.shard, Some(owner));
            topic.ends.note(&cluster.nats, (began, ended), sink.now());
        }
        if how == "STOP" {
            let before = cluster.nodes[owner].logs().matches("standby again").count();
            cluster.nodes[owner].signal("CONT");
            wait_for("the former owner to follow", LONG, || {
                cluster.nodes[owner].logs().matches("standby again").count() > before
            });
        } else {
            let status = cluster.nodes[owner].wait(START);
            assert_eq!(status.is_some(), how == "TERM", "{status:?}");
            balancer.turn_to(&cluster.addresses());
            if has_few_copies && how == "KILL" && round / 3 % 2 == 0 {
                wait_until_replaced(&cluster.nodes[next], NAMES[owner]);
                topics
                    .iter_mut()
                    .for_each(|topic| topic.ends.look(&cluster.nats, sink.now()));
            }
            cluster.join(owner);
            balancer.turn_to(&cluster.addresses());
        }
        last = next;
    }
    topics
        .iter_mut()
        .for_each(|topic| topic.ends.look(&cluster.nats, sink.now()));
    let mut medians = BTreeMap::new();
    for (how, took) in &mut took {
        took.sort_unstable();
        let median = took[(took.len() - 1) / 2];
        let worst = took[took.len() - 1];
        println!(
            "{how}: {} times; until the next owner delivered: median {median:?}, worst {worst:?}",
            took.len()
        );
        medians.insert(*how, median);
    }

    for path in topics
        .iter()
        .flat_map(|topic| ["batched", "alone"].map(|of| topic.path(of)))
    {
        sink.set(&path, Behavior::Answer(200));
    }
    sink.set("/doomed", Behavior::Answer(200));
    // An event whose receipt was not answered comes back with its lock.
    wait_for("events to be pulled", 3 * LOCK, || {
        let pulled = lock(&pulled);
        assert!(pulled.wrong.is_empty(), "{:?}", pulled.wrong);
        pulled.published.len() > 100
    });
    let lost = || {
        let pulled = lock(&pulled);
        pulled
            .published
            .difference(&pulled.acknowledged)
            .cloned()
            .collect::<Vec<String>>()
    };
    let at_the_end = lock(&pulled).published.clone();
    wait_for("all pulled events to be acknowledged", 3 * LOCK, || {
        at_the_end.is_subset(&lock(&pulled).acknowledged)
    });
    clients.stop();
    println!(
        "pulled: {} acknowledged, {} on their way at the end",
        at_the_end.len(),
        lost().len()
    );
    assert!(lock(&pulled).wrong.is_empty(), "{:?}", lock(&pulled).wrong);

    let node = &cluster.nodes[last];
    for topic in &mut topics {
        let of_publishers = topic
            .published
            .iter()
            .flat_map(|published| std::mem::take(&mut lock(published).ids));
        let acknowledged: Vec<String> = of_publishers
            .chain(std::mem::take(&mut topic.others))
            .collect();
        for subscription in ["alone", "batched"] {
            end_waits(node, &topic.name, subscription);
            wait_until_settled(node, &topic.name, subscription);
            let repeated = assert_arrived(sink, &topic.path(subscription), &acknowledged);
            let name = &topic.name;
            let count = repeated.len();
            println!(
                "{name}, {subscription}: {} acknowledged, 0 lost, {count} repeated in {rounds} \
                 rounds",
                acknowledged.len()
            );
            topic.ends.look(&cluster.nats, sink.now());
            topic.ends.assert_in_flight(subscription, &repeated);
        }
    }
    wait_for("the replay to end", 5 * LONG, || {
        node.command("GET", &replay, &Value::Null).json()["state"] == "completed"
    });
    let (missing, repeated) = sink.look("/past", |ledger| {
        let is_again = |id: &&String| {
            ledger[*id]
                .iter()
                .any(|arrival| arrival.is_taken() && arrival.job.is_some())
        };
        let missing = past.iter().filter(|id| !is_again(id)).count();
        (missing, replayed_again(ledger))
    });
    println!(
        "replay: {} events, {missing} missing, {} repeated",
        past.len(),
        repeated.len()
    );
    assert_eq!(missing, 0);
    let ends = &mut topics[0].ends;
    ends.look(&cluster.nats, sink.now());
    ends.assert_in_flight("replay", &repeated);

    wait_for("all dead letters to be sent again", 5 * LONG, || {
        let is_any_left = dead_letters(node, "list", &[]).expect("a list")["value"] != json!([]);
        // Two redrives at once would both send what they find.
        if is_any_left && node.command("GET", "/jobs", &Value::Null).json()["jobs"] == json!([]) {
            dead_letters(node, "redrive", &["--all"]).expect("a job");
        }
        sink.taken("/doomed") == doomed.len() && !is_any_left
    });
    let repeated = assert_arrived(sink, "/doomed", &doomed);
    println!(
        "redriven: {} events, {} repeated",
        doomed.len(),
        repeated.len()
    );
    ends.look(&cluster.nats, sink.now());
    ends.assert_in_flight("doomed", &repeated);

    for topic in &mut topics {
        topic.ends.look(&cluster.nats, sink.now());
        assert_eq!(
            topic.ends.changelog.of_former,
            Vec::<u64>::new(),
            "{}: records of former owners",
            topic.name
        );
    }
    for (how, most) in TAKEOVERS {
        let is_excused = how == "KILL" && is_end_seen && many(true, false);
        assert!(
            is_excused || medians[how] <= most[many(0, 1)],
            "{how}: the next owner delivered after {:?}",
            medians[how]
        );
    }
}
