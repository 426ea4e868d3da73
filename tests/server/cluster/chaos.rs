//! Rounds of kills, pauses and stops of owners under every kind of work, with a ledger of what was acknowledged.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gridhook::event::Timestamp;
use serde_json::{Value, json};

use super::{Cluster, START, TAKEN};
use crate::{
    server::{LONG, assert_arrived, end_waits, many, pull::RG, replay::replays, wait_until_settled},
    spec::{fact, shows},
    support::{
        http::{Answer, Client},
        load,
        nats::has_nats,
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::{Arrival, Behavior, Ledger, Sink},
        tcp_proxy::TcpProxy,
    },
};

/// An answer this long before a signal is durable: a group waits 10 ms for company, and NATS syncs it, on a machine that does
/// other things too.
const DURABLE: Duration = Duration::from_secs(1);

/// What a slow endpoint had in hand at a signal it answers within this time.
const IN_HAND: Duration = Duration::from_millis(200);

/// The longest median times until the next owner delivers after a signal: beside other tests, and on a machine that has nothing
/// else to do. After a kill it does not wait for the end of the lease, which is 2 s.
const TAKEOVERS: [(&str, [Duration; 2]); 2] = [
    ("KILL", [Duration::from_secs(2), Duration::from_secs(1)]),
    ("STOP", [Duration::from_secs(8), Duration::from_secs(4)]),
];

/// The shortest lock that the control plane allows. Longer than a test of this file waits for one.
const LOCK: Duration = Duration::from_secs(60);

/// The pause of a client after an answer that is no success.
const PAUSE: Duration = Duration::from_millis(20);

const HEAT: &str = "/namespaces/plant/topics/heat";

/// A topic that stores an event once, however often it is published.
pub(super) fn topic_without_duplicates(server: &Server, name: &str) -> String {
    let window = json!({"inputSchema": "EventGridSchema", "duplicateDetectionHistoryTimeWindow": "PT1H"});
    server.topic_of(name, &window)
}

/// Clients that work until they are stopped. They call the nodes through a balancer, as they would be called in production.
pub(super) struct Clients {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub(super) fn new() -> Self {
        Self { is_over: Arc::default(), threads: Vec::new() }
    }

    /// Calls `turn` again and again.
    pub(super) fn add(&mut self, at: SocketAddr, mut turn: impl FnMut(&mut Caller) + Send + 'static) {
        let is_over = Arc::clone(&self.is_over);
        self.threads.push(thread::spawn(move || {
            let mut caller = Caller { client: Client::new(at), is_over };
            while !caller.is_over.load(Ordering::SeqCst) {
                turn(&mut caller);
            }
        }));
    }

    pub(super) fn stop(mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().expect("a client does not panic");
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// A client that repeats a request until it is answered well.
pub(super) struct Caller {
    client: Client,
    is_over: Arc<AtomicBool>,
}

impl Caller {
    /// The answer and the number of attempts; none if it was stopped before.
    pub(super) fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<(Answer, u32)> {
        for attempt in 1.. {
            match self.client.ask("POST", path, headers, body) {
                Ok(answer) if answer.status == 200 => return Some((answer, attempt)),
                Ok(answer) => assert!(answer.status >= 500, "{}: {}", answer.status, answer.text()),
                // The node is going down.
                Err(_) => {}
            }
            if self.is_over.load(Ordering::SeqCst) {
                return None;
            }
            thread::sleep(PAUSE);
        }
        None
    }
}

/// What publishers were promised, and how long each request took until it was answered well.
#[derive(Default)]
pub(super) struct Published {
    pub(super) ids: Vec<String>,
    pub(super) longest: Duration,
}

/// Publishes events of a subject to a topic without duplicates.
pub(super) fn publishes(
    clients: &mut Clients,
    at: SocketAddr,
    (topic, key): (&str, &str),
    (publisher, subject): (usize, &'static str),
) -> Arc<Mutex<Published>> {
    let published = Arc::<Mutex<Published>>::default();
    let (shared, path, key, mut request) = (Arc::clone(&published), events_path(topic), key.to_owned(), 0);
    clients.add(at, move |caller| {
        let ids: Vec<String> = (0..5).map(|event| format!("{subject}-{publisher}-{request}-{event}")).collect();
        request += 1;
        let began = Instant::now();
        if caller.post(&path, &[("aeg-sas-key", &key)], &load::body(&ids, subject)).is_some() {
            let mut published = lock(&shared);
            published.longest = published.longest.max(began.elapsed());
            published.ids.extend(ids);
        }
        thread::sleep(PAUSE);
    });
    published
}

/// What clients that pull were promised, and have seen.
#[derive(Default)]
pub(super) struct Pulled {
    pub(super) published: BTreeSet<String>,
    /// Those with a client, and since when.
    held: BTreeMap<String, Instant>,
    pub(super) acknowledged: BTreeSet<String>,
    pub(super) wrong: Vec<String>,
}

impl Pulled {
    fn receive(&mut self, id: &str) {
        if self.acknowledged.contains(id) {
            self.wrong.push(format!("{id} was received again after its acknowledgement"));
        }
        // A moment less than the lock, which began before the answer.
        if self.held.insert(id.to_owned(), Instant::now()).is_some_and(|since| since.elapsed() < LOCK * 9 / 10) {
            self.wrong.push(format!("{id} was received while another client had it"));
        }
    }
}

/// Clients that publish to a topic of a namespace and others that receive from it and acknowledge.
pub(super) fn pulls(clients: &mut Clients, at: SocketAddr, key: &str) -> Arc<Mutex<Pulled>> {
    let pulled = Arc::<Mutex<Pulled>>::default();
    let authorization = format!("SharedAccessKey {key}");
    let (shared, shown, mut request) = (Arc::clone(&pulled), authorization.clone(), 0);
    clients.add(at, move |caller| {
        let ids: Vec<String> = (0..3).map(|event| format!("pulled-{request}-{event}")).collect();
        request += 1;
        let event = |id: &String| json!({"specversion": "1.0", "id": id, "source": "/oven", "type": "hot", "data": 1});
        let body = Value::Array(ids.iter().map(event).collect()).to_string();
        let headers =
            [("authorization", shown.as_str()), ("content-type", "application/cloudevents-batch+json; charset=utf-8")];
        // Once, because these topics store what is published again.
        if caller
            .client
            .ask("POST", &format!("{HEAT}:publish"), &headers, body.as_bytes())
            .is_ok_and(|answer| answer.status == 200)
        {
            lock(&shared).published.extend(ids);
        }
        thread::sleep(2 * PAUSE);
    });
    for _ in 0..2 {
        let (shared, shown) = (Arc::clone(&pulled), authorization.clone());
        clients.add(at, move |caller| {
            let headers = [("authorization", shown.as_str()), ("content-type", "application/json")];
            let of_queue = |verb: &str| format!("{HEAT}/eventsubscriptions/work:{verb}");
            let path = of_queue("receive?maxEvents=10&maxWaitTime=10");
            let Some((answer, _)) = caller.post(&path, &headers, b"") else { return };
            let received = answer.json()["value"].as_array().cloned().unwrap_or_default();
            let ids = received.iter().map(|one| one["event"]["id"].as_str().expect("an id").to_owned());
            let ids: Vec<String> = ids.collect();
            ids.iter().for_each(|id| lock(&shared).receive(id));
            let mut tokens: Vec<Value> =
                received.iter().map(|one| one["brokerProperties"]["lockToken"].clone()).collect();
            let mut is_first = true;
            while !tokens.is_empty() {
                let body = json!({ "lockTokens": tokens }).to_string();
                let Some((answer, attempts)) = caller.post(&of_queue("acknowledge"), &headers, body.as_bytes()) else {
                    return;
                };
                let failed = answer.json()["failedLockTokens"].as_array().cloned().unwrap_or_default();
                let (unknown, lost): (Vec<Value>, Vec<Value>) =
                    failed.into_iter().partition(|failed| failed["error"]["code"] == "InternalServerError");
                // An attempt without an answer may have been the one that counts.
                if is_first && attempts == 1 && !lost.is_empty() {
                    lock(&shared).wrong.push(format!("locks were lost: {lost:?}"));
                }
                tokens = unknown.into_iter().map(|failed| failed["lockToken"].clone()).collect();
                is_first = false;
            }
            let mut pulled = lock(&shared);
            for id in ids {
                pulled.held.remove(&id);
                pulled.acknowledged.insert(id);
            }
        });
    }
    pulled
}

/// Makes a namespace with a queue, and returns its key.
fn queue(server: &Server) -> String {
    server.command("PUT", &format!("{RG}/plant"), &json!({"location": "local"}));
    server.command("PUT", &format!("{RG}/plant/topics/heat"), &json!({}));
    let queue = json!({"deliveryMode": "Queue", "queue": {"receiveLockDurationInSeconds": LOCK.as_secs()}});
    let queue = json!({"properties": {"deliveryConfiguration": queue}});
    server.command("PUT", &format!("{RG}/plant/topics/heat/eventSubscriptions/work"), &queue);
    let keys = server.command("POST", &format!("{RG}/plant/listKeys"), &Value::Null).json();
    keys["key1"].as_str().expect("a key").to_owned()
}

/// What `gridhook dead-letters` does with those of the subscription `Doomed`.
fn dead_letters(node: &Server, verb: &str, rest: &[&str]) -> Result<Value, String> {
    let topic = format!("{SCOPE}/orders");
    let said = operator(node, &[&["dead-letters", verb, &topic, "Doomed", "--output", "json"], rest].concat())?;
    Ok(serde_json::from_str(&said).expect("JSON"))
}

/// When events of jobs were answered that were taken once more later.
fn replayed_again(ledger: &Ledger) -> Vec<Timestamp> {
    let of_event = |arrivals: &Vec<Arrival>| {
        let taken = arrivals.iter().filter(|arrival| arrival.is_taken() && arrival.job.is_some());
        let mut taken: Vec<Timestamp> = taken.map(|arrival| arrival.answered).collect();
        taken.sort_unstable();
        taken.pop();
        taken
    };
    ledger.values().flat_map(of_event).collect()
}

/// The times at which owners ended: what was in flight then may be repeated.
struct OwnerEnds {
    ends: Vec<(Timestamp, Timestamp)>,
    /// How often nodes had taken the store, and until when it is known that all of these were meant.
    takeovers: usize,
    known: Timestamp,
}

impl OwnerEnds {
    fn new(cluster: &Cluster, now: Timestamp) -> Self {
        Self { ends: Vec::new(), takeovers: Self::takeovers(cluster), known: now }
    }

    fn takeovers(cluster: &Cluster) -> usize {
        cluster.nodes.iter().map(|node| node.logs().matches(TAKEN).count()).sum()
    }

    /// An owner was ended between these times, and another node owns the store.
    fn note(&mut self, cluster: &Cluster, from: Timestamp, to: Timestamp) {
        self.ends.push((from, to));
        self.takeovers += 1;
        self.look(cluster, to);
    }

    /// Takes note of owners that lost the store on a machine that stood still.
    fn look(&mut self, cluster: &Cluster, now: Timestamp) {
        let takeovers = Self::takeovers(cluster);
        if takeovers > self.takeovers {
            println!("{} more takeovers than signals", takeovers - self.takeovers);
            self.ends.push((self.known, now));
        }
        (self.takeovers, self.known) = (takeovers, now);
    }

    /// What was in flight when an owner ended, and nothing else, was taken again.
    fn assert_in_flight(&self, what: &str, repeated: &[Timestamp]) {
        let is_in_flight = |answered: &&Timestamp| {
            let is_of = |(from, to): &(Timestamp, Timestamp)| {
                **answered <= to.after(IN_HAND) && from.since(**answered) <= DURABLE
            };
            self.ends.iter().any(is_of)
        };
        let early: Vec<_> = repeated.iter().filter(|answered| !is_in_flight(answered)).collect();
        assert!(early.is_empty(), "{what}: {} were repeated whose answers were durable: {early:?}", early.len());
    }
}

#[test]
fn nothing_acknowledged_is_lost_through_kills_pauses_and_stops_of_owners() {
    let _rows =
        shows(&["S004-014", "S004-025", "S004-030", "S004-068", "S004-021", "S004-022", "S004-029", "S004-033"]);
    if !has_nats() {
        return;
    }
    let files = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", files.path().display());
    let mut cluster = Cluster::start(
        1,
        &[
            ("JOURNAL__RETENTION", "7d"),
            ("DEAD_LETTER__STORES__SHARED__URL", &url),
            ("DEAD_LETTER__STORES__SHARED__ACCOUNTS", "*"),
        ],
    );
    let sink = Sink::start();
    let first = &cluster.nodes[0];
    let key = topic_without_duplicates(first, "orders");
    let hook = |path: &str| SubscriptionSpec::of(&sink.url(path));
    first.subscribe("orders", "alone", &hook("/alone").prefix("/load"));
    first.subscribe("orders", "batched", &hook("/batched").batch(10).prefix("/load"));
    first.subscribe("orders", "past", &hook("/past").batch(10).prefix("/past"));
    first.subscribe("orders", "Doomed", &hook("/doomed").prefix("/doomed").dead_letters("letters"));
    sink.set("/doomed", Behavior::Answer(400));
    let mut doomed: Vec<String> = Vec::new();
    let past: Vec<String> = (0..400).map(|number| format!("past-{number}")).collect();
    first.publish("orders", &key, &load::body(&past, "/past"));
    wait_for("what is replayed later", LONG, || sink.taken("/past") == past.len());
    wait_until_settled(first, "orders", "past");
    let replay = json!({"fromSequence": 1, "eventsPerSecond": many(20, 2)});
    let replay = first.command("POST", &replays("orders", "past", ""), &replay).json();
    let replay = replays("orders", "past", &format!("/{}", replay["id"].as_str().expect("an id")));

    let balancer = TcpProxy::start(&cluster.addresses());
    let mut clients = Clients::new();
    let published: Vec<_> = (0..3)
        .map(|publisher| publishes(&mut clients, balancer.at(), ("orders", &key), (publisher, "/load")))
        .collect();
    let pulled = pulls(&mut clients, balancer.at(), &queue(&cluster.nodes[0]));
    let acknowledged = || published.iter().map(|published| lock(published).ids.len()).sum::<usize>();
    let rounds = many(6, 50);
    let (mut owner, mut took, mut others) = (0, BTreeMap::<&str, Vec<Duration>>::new(), Vec::new());
    let mut ends = OwnerEnds::new(&cluster, sink.now());
    for round in 0..rounds {
        let is_down = round % 2 == 0;
        sink.set("/batched", Behavior::Answer(if is_down { 503 } else { 200 }));
        let slow = Behavior::Slow(Duration::from_millis(10), 200);
        sink.set("/alone", if round % 3 == 0 { slow } else { Behavior::Answer(200) });
        let more: Vec<String> = (0..20).map(|number| format!("doomed-{round}-{number}")).collect();
        sink.set("/doomed", Behavior::Answer(if is_down { 400 } else { 200 }));
        cluster.nodes[owner].publish("orders", &key, &load::body(&more, "/doomed"));
        doomed.extend(more);
        let before = acknowledged();
        wait_for("publishers to be served", LONG, || acknowledged() > before + 50);
        if !is_down {
            dead_letters(&cluster.nodes[owner], "redrive", &["--all"]).expect("a job");
        }
        ends.look(&cluster, sink.now());
        owner = cluster.owner();
        let how = ["KILL", "STOP", "TERM"][round % 3];
        let began = sink.now();
        // A client of another node, whom the next owner serves first.
        let id = format!("first-{round}");
        let (at, key, body) =
            (cluster.nodes[(owner + 1) % 3].at(), key.clone(), load::body(std::slice::from_ref(&id), "/load"));
        cluster.nodes[owner].signal(how);
        let signaled = sink.now();
        let mut caller = Caller { client: Client::new(at), is_over: Arc::default() };
        let called =
            thread::spawn(move || caller.post(&events_path("orders"), &[("aeg-sas-key", &key)], &body).is_some());
        let next = cluster.owner_but(Some(owner));
        // One that is asked to stop finishes what is in flight.
        ends.note(&cluster, began, if how == "TERM" { sink.now() } else { signaled });
        assert!(called.join().expect("no panic"), "a client is served");
        let mut delivered = None;
        wait_for("the next owner to deliver", LONG, || {
            delivered = sink.look("/alone", |ledger| ledger.get(&id).map(|arrivals| arrivals[0].at));
            delivered.is_some()
        });
        took.entry(how).or_default().push(delivered.map(|at| at.since(began)).unwrap_or_default());
        others.push(id);
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
            cluster.join(owner);
            balancer.turn_to(&cluster.addresses());
        }
        owner = next;
    }
    ends.look(&cluster, sink.now());
    let mut medians = BTreeMap::new();
    for (how, took) in &mut took {
        took.sort_unstable();
        let (median, worst) = (took[(took.len() - 1) / 2], took[took.len() - 1]);
        println!("{how}: {} times; until the next owner delivered: median {median:?}, worst {worst:?}", took.len());
        medians.insert(*how, median);
    }

    ["/batched", "/alone", "/doomed"].into_iter().for_each(|path| sink.set(path, Behavior::Answer(200)));
    // An event whose receipt was not answered comes back with its lock.
    wait_for("events to be pulled", 3 * LOCK, || {
        let pulled = lock(&pulled);
        assert!(pulled.wrong.is_empty(), "{:?}", pulled.wrong);
        pulled.published.len() > 100
    });
    let lost = || {
        let pulled = lock(&pulled);
        pulled.published.difference(&pulled.acknowledged).cloned().collect::<Vec<String>>()
    };
    let at_the_end = lock(&pulled).published.clone();
    wait_for("all pulled events to be acknowledged", 3 * LOCK, || at_the_end.is_subset(&lock(&pulled).acknowledged));
    clients.stop();
    println!("pulled: {} acknowledged, {} on their way at the end", at_the_end.len(), lost().len());
    assert!(lock(&pulled).wrong.is_empty(), "{:?}", lock(&pulled).wrong);

    let acknowledged: Vec<String> =
        published.iter().flat_map(|published| std::mem::take(&mut lock(published).ids)).chain(others).collect();
    for subscription in ["alone", "batched"] {
        end_waits(&cluster.nodes[owner], "orders", subscription);
        wait_until_settled(&cluster.nodes[owner], "orders", subscription);
        let repeated = assert_arrived(&sink, &format!("/{subscription}"), &acknowledged);
        let count = repeated.len();
        println!("{subscription}: {} acknowledged, 0 lost, {count} repeated in {rounds} rounds", acknowledged.len());
        ends.look(&cluster, sink.now());
        ends.assert_in_flight(subscription, &repeated);
    }
    // Nothing was lost, and what was taken twice was in flight at the end of an owner.
    fact("S004-090", &json!({"guarantee": "at least once"}));

    let node = &cluster.nodes[owner];
    wait_for("the replay to end", 5 * LONG, || {
        node.command("GET", &replay, &Value::Null).json()["state"] == "completed"
    });
    let (missing, repeated) = sink.look("/past", |ledger| {
        let is_again = |id: &&String| ledger[*id].iter().any(|arrival| arrival.is_taken() && arrival.job.is_some());
        let missing = past.iter().filter(|id| !is_again(id)).count();
        (missing, replayed_again(ledger))
    });
    println!("replay: {} events, {missing} missing, {} repeated", past.len(), repeated.len());
    assert_eq!(missing, 0);
    ends.look(&cluster, sink.now());
    ends.assert_in_flight("replay", &repeated);

    wait_for("all dead letters to be sent again", 5 * LONG, || {
        // A job that runs is one at a time.
        dead_letters(node, "redrive", &["--all"]).ok();
        let listed = dead_letters(node, "list", &[]).expect("a list");
        sink.taken("/doomed") == doomed.len() && listed["value"].as_array().is_some_and(Vec::is_empty)
    });
    let repeated = assert_arrived(&sink, "/doomed", &doomed);
    println!("redriven: {} events, {} repeated", doomed.len(), repeated.len());
    ends.look(&cluster, sink.now());
    ends.assert_in_flight("doomed", &repeated);

    assert_eq!(super::of_former_owners(&cluster.nats), Vec::<u64>::new(), "records of former owners");
    for node in &mut cluster.nodes {
        node.terminate();
        node.assert_sound();
    }
    for (how, most) in TAKEOVERS {
        assert!(medians[how] <= most[many(0, 1)], "{how}: the next owner delivered after {:?}", medians[how]);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
