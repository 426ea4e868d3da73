//! Rounds of kills, pauses and stops of owners under every kind of work, with a ledger of what was
//! acknowledged.

use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;

use gridhook::event::Timestamp;
use serde_json::{Value, json};

use super::{
    ChangelogReader, Cluster, START,
    clients::{
        Caller, Clients, LOCK, Published, Pulled, publishes, pulls, topic_without_duplicates,
    },
};
use crate::{
    server::{
        LONG, assert_arrived, end_waits, many, pull::RG, replay::replays, wait_until_settled,
    },
    spec::shows,
    support::{
        load,
        nats::{NatsCluster, has_nats},
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::{Arrival, Behavior, Ledger, Sink},
        tcp_proxy::TcpProxy,
    },
};

/// A response this long before a signal is durable: a group waits 10 ms for company, and NATS syncs
/// it, on a machine that does other things too.
const DURABLE: Duration = Duration::from_secs(1);

/// A slow endpoint responds within this time to the requests that it has at a signal.
const IN_HAND: Duration = Duration::from_millis(200);

/// The longest median times until the next owner delivers after a signal: beside other tests, and
/// on a machine that has nothing else to do. After a kill it does not wait for the end of the
/// lease, which is 2 s: where other tests delay it, its log says so.
const TAKEOVERS: [(&str, [Duration; 2]); 2] = [
    ("KILL", [Duration::from_secs(2), Duration::from_secs(1)]),
    ("STOP", [Duration::from_secs(8), Duration::from_secs(4)]),
];

/// The topic with every kind of work.
const ORDERS: &str = "orders";

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

/// Runs `gridhook dead-letters` for the subscription `Doomed`.
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

fn is_replayed(arrival: &Arrival) -> bool {
    arrival.is_taken() && arrival.job.is_some()
}

/// The times of responses to events of jobs that were accepted once more later.
fn replayed_again(ledger: &Ledger) -> Vec<Timestamp> {
    let of_event = |arrivals: &Vec<Arrival>| {
        let replays = arrivals.iter().filter(|arrival| is_replayed(arrival));
        let mut taken: Vec<Timestamp> = replays.map(|arrival| arrival.answered).collect();
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

    /// Asserts that only requests in flight at the end of an owner were repeated.
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
            |of: &str| SubscriptionSpec::new(&sink.url(&format!("/{of}/{name}"))).prefix("/load");
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
            .map(|published| published.lock().ids.len())
            .sum()
    }

    /// The ids of the acknowledged events, which the topic has no more.
    fn take_acknowledged(&mut self) -> Vec<String> {
        let mut ids = std::mem::take(&mut self.others);
        for published in &self.published {
            ids.append(&mut published.lock().ids);
        }
        ids
    }
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
        "S004-014: In the example scenario each sensor pushes its data to the event hub.",
        "S004-021: Requirement recovery: when a consumer fails (for example the virtual machine \
         hosting it stops suddenly), the other consumers take over the partitions it owned and go \
         on.",
        "S004-022: After a takeover, the continuation point is exactly the point at which the \
         failed consumer failed, or slightly before it.",
        "S004-025: No custom solution is needed for scale, load balance and recovery, because the \
         client libraries provide them.",
        "S004-029: The processor is designed to be performant and fault tolerant.",
        "S004-030: The processor offers a way to checkpoint its progress.",
        "S004-033: Processor clients distribute and balance the work automatically as instances \
         become unavailable to the group.",
        "S004-068: When an event processor is created, a function that processes errors is \
         specified.",
        "S004-090: The idea behind the event hub is at-least-once delivery at great scale.",
    ]);
    if !has_nats() {
        return;
    }
    let files = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(1, &settings(&format!("file://{}", files.path().display())));
    let sink = Sink::start();
    let topics = vec![Topic::create(&cluster.nodes[0], ORDERS, 0, &sink)];
    assert_nothing_is_lost(&mut cluster, &sink, topics, many(6, 50));
    for node in &mut cluster.nodes {
        node.terminate();
        node.assert_sound();
    }
}

/// Rounds in which the owner of the shard of one of these topics is killed, paused or stopped.
fn assert_nothing_is_lost(
    cluster: &mut Cluster,
    sink: &Sink,
    mut topics: Vec<Topic>,
    rounds: usize,
) {
    let replay = Replay::start(&cluster.nodes[0], sink, &topics[0].key);
    let balancer = TcpProxy::start(&cluster.addresses());
    let mut clients = Clients::new();
    start_publishers(&mut clients, &balancer, &mut topics);
    let pulled = pulls(&mut clients, balancer.address(), &queue(&cluster.nodes[0]));
    let mut chaos = OwnerChaos {
        cluster,
        sink,
        topics,
        balancer,
        owner: 0,
        doomed: Vec::new(),
        takeovers: BTreeMap::new(),
        has_seen_end: false,
    };
    for round in 0..rounds {
        chaos.run_round(round);
    }
    chaos.look_for_ends();
    chaos.mend_endpoints();
    assert_all_pulled(&pulled, clients);
    chaos.assert_published_arrived(rounds);
    chaos.assert_replayed(&replay);
    chaos.assert_redriven();
    chaos.assert_former_owners_wrote_nothing();
    chaos.assert_takeovers_are_fast();
}

/// A replay of events that were delivered before the first round.
struct Replay {
    ids: Vec<String>,
    path: String,
}

impl Replay {
    /// Subscribes `past`, which is replayed, and `Doomed`, whose events become dead letters.
    fn start(node: &Server, sink: &Sink, key: &str) -> Self {
        let hook = |path: &str| SubscriptionSpec::new(&sink.url(path));
        node.subscribe(ORDERS, "past", &hook("/past").batch(10).prefix("/past"));
        let doomed = hook("/doomed").prefix("/doomed").dead_letters("letters");
        node.subscribe(ORDERS, "Doomed", &doomed);
        sink.set("/doomed", Behavior::Respond(400));
        let ids: Vec<String> = (0..400).map(|number| format!("past-{number}")).collect();
        node.publish(ORDERS, key, &load::body(&ids, "/past"));
        wait_for("what is replayed later", LONG, || {
            sink.taken("/past") == ids.len()
        });
        wait_until_settled(node, ORDERS, "past");
        let body = json!({"fromSequence": 1, "eventsPerSecond": many(20, 2)});
        let replay = node
            .command("POST", &replays(ORDERS, "past", ""), &body)
            .json();
        let id = replay["id"].as_str().expect("an id");
        let path = replays(ORDERS, "past", &format!("/{id}"));
        Self { ids, path }
    }
}

/// Publishes to these topics all the time, most to the first one.
fn start_publishers(clients: &mut Clients, balancer: &TcpProxy, topics: &mut [Topic]) {
    for (index, topic) in topics.iter_mut().enumerate() {
        let publishers = if index == 0 { 3 } else { 1 };
        for publisher in 0..publishers {
            let credentials = (topic.name.as_str(), topic.key.as_str());
            let published = publishes(
                clients,
                balancer.address(),
                credentials,
                (publisher, "/load"),
            );
            topic.published.push(published);
        }
    }
}

/// Waits until each pulled event is acknowledged, and stops the clients.
fn assert_all_pulled(pulled: &Mutex<Pulled>, clients: Clients) {
    // An event is due again after its lock if the response to its receipt was lost.
    wait_for("events to be pulled", 3 * LOCK, || {
        let pulled = pulled.lock();
        assert!(pulled.wrong.is_empty(), "{:?}", pulled.wrong);
        pulled.published.len() > 100
    });
    let published = pulled.lock().published.clone();
    wait_for("all pulled events to be acknowledged", 3 * LOCK, || {
        published.is_subset(&pulled.lock().acknowledged)
    });
    clients.stop();
    let pulled = pulled.lock();
    println!(
        "pulled: {} acknowledged, {} on their way at the end",
        published.len(),
        pulled.published.difference(&pulled.acknowledged).count()
    );
    assert!(pulled.wrong.is_empty(), "{:?}", pulled.wrong);
}

/// A cluster under load whose owners are killed, paused and stopped.
struct OwnerChaos<'a> {
    cluster: &'a mut Cluster,
    sink: &'a Sink,
    topics: Vec<Topic>,
    balancer: TcpProxy,
    /// The node that took over in the last round.
    owner: usize,
    /// Published events that the endpoint refused at first.
    doomed: Vec<String>,
    /// By signal, the times until the next owner delivered.
    takeovers: BTreeMap<&'static str, Vec<Duration>>,
    /// Whether a next owner saw that the process of the killed one had ended.
    has_seen_end: bool,
}

impl OwnerChaos<'_> {
    fn run_round(&mut self, round: usize) {
        let is_down = round.is_multiple_of(2);
        self.set_endpoints(round, is_down);
        self.publish_doomed(round);
        self.wait_for_publishers();
        if !is_down {
            let node = &self.cluster.nodes[self.owner];
            dead_letters(node, "redrive", &["--all"]).expect("a job");
        }
        // Each topic has each signal.
        let signal = ["KILL", "STOP", "TERM"][(round + round / 3) % 3];
        let target = round % self.topics.len();
        let former = self.take_from_owner(target, signal, &format!("first-{round}"));
        if signal == "STOP" {
            self.wake(former);
        } else {
            self.start_again(former, signal);
        }
    }

    /// Has endpoints refuse batches, and be slow with single events, in some rounds.
    fn set_endpoints(&self, round: usize, is_down: bool) {
        let slow = Behavior::Slow(Duration::from_millis(10), 200);
        let alone = if round.is_multiple_of(3) {
            slow
        } else {
            Behavior::Respond(200)
        };
        let batched = Behavior::Respond(if is_down { 503 } else { 200 });
        for topic in &self.topics {
            self.sink.set(&topic.path("batched"), batched.clone());
            self.sink.set(&topic.path("alone"), alone.clone());
        }
        let doomed = Behavior::Respond(if is_down { 400 } else { 200 });
        self.sink.set("/doomed", doomed);
    }

    fn mend_endpoints(&self) {
        for topic in &self.topics {
            for subscription in ["batched", "alone"] {
                self.sink
                    .set(&topic.path(subscription), Behavior::Respond(200));
            }
        }
        self.sink.set("/doomed", Behavior::Respond(200));
    }

    fn publish_doomed(&mut self, round: usize) {
        let ids: Vec<String> = (0..20)
            .map(|number| format!("doomed-{round}-{number}"))
            .collect();
        let node = &self.cluster.nodes[self.owner];
        node.publish(ORDERS, &self.topics[0].key, &load::body(&ids, "/doomed"));
        self.doomed.extend(ids);
    }

    fn wait_for_publishers(&self) {
        for topic in &self.topics {
            let before = topic.acknowledged();
            wait_for("publishers to be served", LONG, || {
                topic.acknowledged() > before + 50
            });
        }
    }

    /// Sends the signal to the owner of this topic's shard, and waits until the next one serves a
    /// client and delivers. Returns the former owner.
    fn take_from_owner(&mut self, target: usize, signal: &'static str, id: &str) -> usize {
        let owners = self.owners();
        self.look_for_ends();
        let former = owners[target];
        let seen_before: Vec<usize> = self.cluster.nodes.iter().map(ends_seen).collect();
        let call = self.prepare_call(target, (former + 1) % 3, id);
        let began = self.sink.now();
        self.cluster.nodes[former].signal(signal);
        let signaled = self.sink.now();
        let call = thread::spawn(call);
        let next = self
            .cluster
            .owner_of(self.topics[target].shard, Some(former));
        self.has_seen_end |=
            signal == "KILL" && ends_seen(&self.cluster.nodes[next]) > seen_before[next];
        // A node that receives SIGTERM finishes the requests in flight.
        let ended = if signal == "TERM" {
            self.sink.now()
        } else {
            signaled
        };
        assert!(call.join().expect("no panic"), "a client is served");
        let delivered = self.wait_for_delivery(target, id);
        self.takeovers
            .entry(signal)
            .or_default()
            .push(delivered.since(began));
        self.topics[target].others.push(id.to_owned());
        for (topic, owner) in self.topics.iter_mut().zip(owners) {
            if owner == former {
                self.cluster.owner_of(topic.shard, Some(former));
                topic
                    .ends
                    .note(&self.cluster.nats, (began, ended), self.sink.now());
            }
        }
        self.owner = next;
        former
    }

    fn owners(&self) -> Vec<usize> {
        let owner = |topic: &Topic| self.cluster.owner_of(topic.shard, None);
        self.topics.iter().map(owner).collect()
    }

    /// The request of a client of another node, whom the next owner serves first.
    fn prepare_call(&self, target: usize, node: usize, id: &str) -> impl FnOnce() -> bool + use<> {
        let topic = &self.topics[target];
        let path = events_path(&topic.name);
        let key = topic.key.clone();
        let body = load::body(&[id.to_owned()], "/load");
        let mut caller = Caller::new(self.cluster.nodes[node].address());
        move || {
            caller
                .post(&path, &[("aeg-sas-key", &key)], &body)
                .is_some()
        }
    }

    fn wait_for_delivery(&self, target: usize, id: &str) -> Timestamp {
        let path = self.topics[target].path("alone");
        let mut delivered = None;
        wait_for("the next owner to deliver", LONG, || {
            delivered = self.sink.look(&path, |ledger| {
                ledger.get(id).map(|arrivals| arrivals[0].at)
            });
            delivered.is_some()
        });
        delivered.expect("it was waited for")
    }

    /// Lets a paused node run, and waits until it follows the next owner.
    fn wake(&self, node: usize) {
        let node = &self.cluster.nodes[node];
        let turns = || node.logs().matches("standby again").count();
        let before = turns();
        node.signal("CONT");
        wait_for("the former owner to follow", LONG, || turns() > before);
    }

    /// Waits for the end of a node, and starts it again.
    fn start_again(&mut self, node: usize, signal: &str) {
        let status = self.cluster.nodes[node].wait(START);
        assert_eq!(status.is_some(), signal == "TERM", "{status:?}");
        self.balancer.turn_to(&self.cluster.addresses());
        self.cluster.join(node);
        self.balancer.turn_to(&self.cluster.addresses());
    }

    fn look_for_ends(&mut self) {
        for topic in &mut self.topics {
            topic.ends.look(&self.cluster.nats, self.sink.now());
        }
    }

    /// Each acknowledged event arrived, and only what was in flight arrived again.
    fn assert_published_arrived(&mut self, rounds: usize) {
        let node = &self.cluster.nodes[self.owner];
        for topic in &mut self.topics {
            let acknowledged = topic.take_acknowledged();
            for subscription in ["alone", "batched"] {
                end_waits(node, &topic.name, subscription);
                wait_until_settled(node, &topic.name, subscription);
                let repeated = assert_arrived(self.sink, &topic.path(subscription), &acknowledged);
                println!(
                    "{}, {subscription}: {} acknowledged, 0 lost, {} repeated in {rounds} rounds",
                    topic.name,
                    acknowledged.len(),
                    repeated.len()
                );
                topic.ends.look(&self.cluster.nats, self.sink.now());
                topic.ends.assert_in_flight(subscription, &repeated);
            }
        }
    }

    fn assert_replayed(&mut self, replay: &Replay) {
        let node = &self.cluster.nodes[self.owner];
        wait_for("the replay to end", 5 * LONG, || {
            node.command("GET", &replay.path, &Value::Null).json()["state"] == "completed"
        });
        let (missing, repeated) = self.sink.look("/past", |ledger| {
            let is_missing = |id: &&String| !ledger[*id].iter().any(is_replayed);
            let missing = replay.ids.iter().filter(is_missing).count();
            (missing, replayed_again(ledger))
        });
        println!(
            "replay: {} events, {missing} missing, {} repeated",
            replay.ids.len(),
            repeated.len()
        );
        assert_eq!(missing, 0);
        self.assert_in_flight("replay", &repeated);
    }

    /// Sends dead letters again until none is left.
    fn assert_redriven(&mut self) {
        let node = &self.cluster.nodes[self.owner];
        wait_for("all dead letters to be sent again", 5 * LONG, || {
            let list = dead_letters(node, "list", &[]).expect("a list");
            let is_any_left = list["value"] != json!([]);
            let jobs = || node.command("GET", "/jobs", &Value::Null).json();
            // Two redrives at once would both send what they find.
            if is_any_left && jobs()["jobs"] == json!([]) {
                dead_letters(node, "redrive", &["--all"]).expect("a job");
            }
            self.sink.taken("/doomed") == self.doomed.len() && !is_any_left
        });
        let repeated = assert_arrived(self.sink, "/doomed", &self.doomed);
        println!(
            "redriven: {} events, {} repeated",
            self.doomed.len(),
            repeated.len()
        );
        self.assert_in_flight("doomed", &repeated);
    }

    /// Only what was in flight when an owner of the first topic ended was repeated.
    fn assert_in_flight(&mut self, what: &str, repeated: &[Timestamp]) {
        let ends = &mut self.topics[0].ends;
        ends.look(&self.cluster.nats, self.sink.now());
        ends.assert_in_flight(what, repeated);
    }

    fn assert_former_owners_wrote_nothing(&mut self) {
        self.look_for_ends();
        for topic in &self.topics {
            let records = &topic.ends.changelog.of_former;
            assert!(records.is_empty(), "{}: {records:?}", topic.name);
        }
    }

    fn assert_takeovers_are_fast(&mut self) {
        let mut medians = BTreeMap::new();
        for (signal, times) in &mut self.takeovers {
            times.sort_unstable();
            let median = times[(times.len() - 1) / 2];
            let worst = times[times.len() - 1];
            println!(
                "{signal}: {} times; until the next owner delivered: median {median:?}, worst \
                 {worst:?}",
                times.len()
            );
            medians.insert(*signal, median);
        }
        for (signal, most) in TAKEOVERS {
            let is_excused = signal == "KILL" && self.has_seen_end && many(true, false);
            let median = medians[signal];
            assert!(
                is_excused || median <= most[many(0, 1)],
                "{signal}: the next owner delivered after {median:?}"
            );
        }
    }
}
