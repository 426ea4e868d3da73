//! Networks that are cut: between a node and NATS, between nodes, in one direction or in both; and
//! servers of NATS that are down for a while.

use std::{
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::{Cluster, START, assert_all_arrive, publish, records_by_former_owners};
use crate::{
    server::{LONG, assert_arrived, many, wait_until_settled},
    spec::shows,
    support::{
        http::{Client, Response},
        load::{self, Load, Rate},
        nats::{Nats, NatsCluster, has_nats},
        port::ReservedPort,
        server::{Server, SubscriptionSpec, events_path, operator, wait_for},
        sink::{Arrival, Behavior, Ledger, Sink},
        tcp_proxy::{Cut, Direction, TcpProxy},
    },
};

/// The messages of a node that read and write records of the cluster, without those that write to
/// the changelog.
const RECORDS: &str = "$KV.";

/// The header that makes an append of the changelog a fence, and one that NATS does not know.
pub(super) const FENCE: (&str, &str) = (
    "Nats-Expected-Last-Sequence:",
    "Nats-Unfenced-Last-Sequence:",
);

/// Longer than it takes another node to become the owner.
const ASKED: u32 = 20;

/// Three nodes whose first one reaches NATS through a proxy only, with these settings of its own.
pub(super) fn start_behind_proxy(of_first: &[(&'static str, &str)]) -> (Cluster, TcpProxy) {
    start_on_behind_proxy(NatsCluster::start(1, "always"), of_first)
}

/// The same on these servers.
fn start_on_behind_proxy(
    nats: NatsCluster,
    of_first: &[(&'static str, &str)],
) -> (Cluster, TcpProxy) {
    let servers: Vec<SocketAddr> = nats.0.iter().map(Nats::address).collect();
    let proxy = TcpProxy::start(&servers);
    let url = format!("nats://{}", proxy.address());
    let own = |index: usize| -> Vec<(&'static str, String)> {
        let settings = of_first
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let settings = settings.chain([("CLUSTER__URLS", url.clone())]);
        settings.filter(|_| index == 0).collect()
    };
    let mut cluster = Cluster::prepare_each(nats, &[], own);
    cluster.join_all();
    (cluster, proxy)
}

fn attempts(ledger: &Ledger) -> usize {
    ledger.values().map(Vec::len).sum()
}

/// How many requests the first node sends after another one owns the store, although it cannot
/// reach NATS.
fn sent_by_a_former_owner(of_first: &[(&'static str, &str)]) -> usize {
    let (cluster, proxy) = start_behind_proxy(of_first);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "failing",
        &SubscriptionSpec::new(&sink.url("/failing")).attempts(30),
    );
    // It asks for one more attempt, at a time when another node owns the store.
    sink.set("/failing", Behavior::RetryAfter(503, ASKED));
    publish(&cluster.nodes[0], &key, 0..1);
    wait_for("an attempt", LONG, || sink.look("/failing", attempts) == 1);
    let asked = Instant::now();
    let began = sink.now();
    wait_for("its outcome to be durable", LONG, || {
        let status = cluster.nodes[0].status("orders", "failing");
        status["counters"]["pending"] == 1 && status["inFlight"] == 0
    });
    proxy.cut(Cut::Both);
    let next = cluster.owner_but(Some(0));
    assert!(
        asked.elapsed() < Duration::from_secs(ASKED.into()),
        "another node owns the store before that"
    );
    // From now on only the former owner would call this endpoint.
    cluster.nodes[next].unsubscribe("orders", "failing");
    println!("another node owns the store after {:?}", asked.elapsed());
    let due = Duration::from_secs(u64::from(ASKED) + 3);
    wait_for("the time of the attempt", LONG, || asked.elapsed() > due);
    let sent = sink.look("/failing", attempts) - 1;
    sink.look("/failing", |ledger| {
        for arrival in ledger.values().flatten() {
            println!(
                "an attempt {:?} after the first one",
                arrival.at.since(began)
            );
        }
    });
    proxy.cut(Cut::Nothing);
    wait_for("the former owner to follow", LONG, || {
        cluster.nodes[0].logs().contains("standby again")
    });
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
    sent
}

#[test]
fn an_owner_that_cannot_reach_nats_sends_nothing_when_another_one_may() {
    let _rows = shows(&[
        "S004-066: At any given time at most one processor receives events from a partition.",
    ]);
    if has_nats() {
        assert_eq!(sent_by_a_former_owner(&[]), 0);
    }
}

#[test]
fn an_owner_whose_lease_is_longer_than_the_others_believe_is_seen_to_send() {
    // The control of the test above: as if the owner did not look at its lease.
    if has_nats() {
        assert!(sent_by_a_former_owner(&[("CLUSTER__EXPIRY", "5m")]) > 0);
    }
}

#[test]
fn an_owner_that_cannot_reach_nats_is_not_ready_and_forwards_to_the_next_one() {
    if !has_nats() {
        return;
    }
    let (cluster, proxy) = start_on_behind_proxy(NatsCluster::start(3, "always"), &[]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish(&cluster.nodes[0], &key, 0..10);
    // It asks the nodes that it knows.
    wait_for("the node to know the others", LONG, || {
        let output = operator(&cluster.nodes[0], &["cluster", "status"]);
        output.is_ok_and(|output| output.matches("alive").count() >= 3)
    });
    proxy.cut(Cut::Both);
    let is_ready = || {
        let asked = cluster.nodes[0].client().ask("GET", "/readyz", &[], b"");
        asked.expect("a response").status == 200
    };
    wait_for("the node to be not ready", LONG, || !is_ready());
    cluster.owner_but(Some(0));
    wait_for("a publisher to be served through the node", LONG, || {
        let response = try_publish(cluster.nodes[0].address(), &key, "forwarded");
        response.expect("a response").status == 200
    });
    assert!(!is_ready(), "it is cut off");
    let metrics = cluster.nodes[0].command("GET", "/metrics", &serde_json::Value::Null);
    let owned = "gridhook_cluster_shard_owned{shard=\"0\"} 0";
    assert!(metrics.text().contains(owned), "{}", metrics.text());
    proxy.cut(Cut::Nothing);
    wait_for("the node to be ready again", LONG, is_ready);
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
}

/// In milliseconds: more than the shortest limit of a call.
const FAR: u64 = 550;

#[test]
fn an_owner_far_away_from_nats_delivers() {
    if !has_nats() {
        return;
    }
    let (cluster, proxy) = start_on_behind_proxy(NatsCluster::start(3, "always"), &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..10);
    wait_until_settled(&cluster.nodes[0], "orders", "all");
    proxy.delay(FAR);
    for round in 1..3 {
        let began = Instant::now();
        wait_for("leases of before to end", LONG, || {
            began.elapsed() > Duration::from_secs(3)
        });
        ids.extend(publish(
            &cluster.nodes[0],
            &key,
            round * 10..round * 10 + 10,
        ));
        wait_for("events to be delivered", LONG, || {
            sink.taken("/all") == ids.len()
        });
    }
    assert_eq!(cluster.nodes[0].logs().matches("standby again").count(), 0);
}

/// The response to a publisher whom a former owner serves that cannot read the records of the
/// cluster, and the records that it wrote behind the fence of the next owner.
fn written_by_a_former_owner(is_fenced: bool) -> (Option<u16>, Vec<u64>) {
    let (cluster, proxy) = start_behind_proxy(&[]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish(&cluster.nodes[0], &key, 0..10);
    if !is_fenced {
        proxy.replace(FENCE.0, FENCE.1);
    }
    proxy.cut(Cut::Marked(RECORDS));
    let next = cluster.owner_but(Some(0));
    publish(&cluster.nodes[next], &key, 10..20);
    let body = load::body(&["late".to_owned()], "s");
    let response = cluster.nodes[0].client().ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", &key)],
        &body,
    );
    let answered = response.ok().map(|response| response.status);
    let written = records_by_former_owners(&cluster.nats);
    if is_fenced {
        proxy.cut(Cut::Nothing);
        wait_for("the former owner to follow", LONG, || {
            cluster.nodes[0].logs().contains("standby again")
        });
        assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
    }
    (answered, written)
}

#[test]
fn an_owner_that_does_not_know_that_it_was_replaced_writes_nothing() {
    if has_nats() {
        let (answered, written) = written_by_a_former_owner(true);
        assert!(
            answered != Some(200) && written.is_empty(),
            "{answered:?}, {written:?}"
        );
    }
}

#[test]
fn records_of_a_former_owner_are_seen_without_the_fence() {
    // The control of the test above.
    if has_nats() {
        let (answered, written) = written_by_a_former_owner(false);
        assert!(!written.is_empty(), "{answered:?}, {written:?}");
    }
}

#[test]
fn an_owner_that_is_cut_off_from_nats_for_a_moment_goes_on_and_for_longer_is_replaced() {
    if !has_nats() {
        return;
    }
    let (cluster, proxy) = start_behind_proxy(&[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "batched",
        &SubscriptionSpec::new(&sink.url("/batched")).batch(10),
    );
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 2,
        events_per_request: 5,
        pause: Duration::from_millis(20),
    };
    // The first of the standbys forwards its requests.
    let load = Load::start(cluster.nodes[1].address(), &rate);
    let served = |why: &str| {
        let before = load.acknowledged();
        wait_for(why, START, || load.acknowledged() > before + 20);
    };
    served("publishers to be served");
    let cuts = [
        Cut::One(Direction::ToServer),
        Cut::One(Direction::ToClient),
        Cut::Both,
    ];
    for cut in cuts {
        proxy.cut(cut);
        thread::sleep(Duration::from_millis(50));
        proxy.cut(Cut::Nothing);
        served("publishers to be served after a short cut");
    }
    let mut owner = cluster.owner();
    for cut in cuts.into_iter().take(many(2, 3)) {
        proxy.cut(cut);
        if owner == 0 {
            owner = cluster.owner_but(Some(0));
        }
        served("publishers to be served by another node");
        proxy.cut(Cut::Nothing);
        // So that the next cut concerns an owner again.
        wait_for("the first node to own the store again", START, || {
            // The owner may be changing, and a request that came too early is made again.
            let asked = operator(&cluster.nodes[owner], &["cluster", "move", "0", "a"]);
            asked.is_ok() && cluster.ready_owner(None) == Some(0)
        });
        owner = 0;
        served("publishers to be served");
    }
    let acknowledged = load.stop();
    let owner = cluster.owner();
    assert_all_arrive(&cluster.nodes[owner], &sink, &["batched"], &acknowledged);
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
}

#[test]
fn nodes_that_cannot_reach_the_owner_refuse_requests_and_forward_them_again() {
    if !has_nats() {
        return;
    }
    let ports: Vec<ReservedPort> = (0..3).map(|_| ReservedPort::new()).collect();
    let proxies: Vec<TcpProxy> = ports
        .iter()
        .map(|port| TcpProxy::start(&[port.address]))
        .collect();
    let own = |index: usize| {
        vec![
            ("CLUSTER__NODE_LISTEN", ports[index].address.to_string()),
            ("CLUSTER__ADVERTISE", proxies[index].address().to_string()),
            // Connections that are idle are not used after half of that.
            ("LIMITS__IDLE_TIMEOUT", "2s".to_owned()),
        ]
    };
    let mut cluster = Cluster::prepare_each(NatsCluster::start(1, "always"), &[], own);
    cluster.join_all();
    let key = cluster.nodes[1].topic("orders", "EventGridSchema");
    let mut sent = 0;
    let mut publish = |node: &Server| {
        sent += 1;
        let body = load::body(&[format!("e{sent}")], "s");
        let response = node.client().ask(
            "POST",
            &events_path("orders"),
            &[("aeg-sas-key", &key)],
            &body,
        );
        response.expect("a response").status
    };
    assert_eq!(publish(&cluster.nodes[1]), 200);
    for cut in [
        Cut::One(Direction::ToServer),
        Cut::One(Direction::ToClient),
        Cut::Both,
    ] {
        let idle = Instant::now();
        wait_for("connections that are kept to be used no more", LONG, || {
            idle.elapsed() > Duration::from_millis(1_100)
        });
        proxies[0].cut(cut);
        assert_eq!(publish(&cluster.nodes[1]), 503, "{cut:?}");
        assert_eq!(
            publish(&cluster.nodes[0]),
            200,
            "the owner is served by NATS"
        );
        assert_eq!(cluster.owner(), 0, "and renews its records there");
        proxies[0].cut(Cut::Nothing);
        wait_for("a request to be forwarded again", LONG, || {
            publish(&cluster.nodes[1]) == 200
        });
    }
}

/// Publishes an event alone, with a client of its own.
fn try_publish(at: SocketAddr, key: &str, id: &str) -> std::io::Result<Response> {
    let body = load::body(&[id.to_owned()], "s");
    Client::new(at).ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", key)],
        &body,
    )
}

#[test]
fn without_a_majority_of_nats_publishers_are_refused_and_nothing_is_lost() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(3, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..20);
    for (round, killed) in [1, 2, 3].into_iter().enumerate() {
        (0..killed).for_each(|index| cluster.nats.0[index].kill());
        let mut number = 0;
        let mut tried = |at: SocketAddr| {
            number += 1;
            let id = format!("{round}-{number}");
            let response = try_publish(at, &key, &id).expect("a response");
            match response.status {
                200 => ids.push(id),
                503 => assert!(
                    response.header("retry-after").is_some(),
                    "{}",
                    response.head()
                ),
                status => panic!("{status}: {}", response.text()),
            }
            response.status
        };
        let began = Instant::now();
        if killed > 1 {
            for node in &cluster.nodes {
                wait_for("publishers to be refused", LONG, || {
                    tried(node.address()) == 503
                });
                wait_for("the node not to be ready", LONG, || {
                    node.request_without_token("GET", "/readyz", &[]).status == 503
                });
            }
            println!(
                "{killed} of 3 down: publishers of all nodes were refused after {:?}",
                began.elapsed()
            );
            // Reads go on.
            let read = cluster.nodes[0].client().ask("GET", "/healthz", &[], b"");
            assert_eq!(read.expect("a response").status, 200);
        } else {
            wait_for("a publisher to be served by a majority", START, || {
                tried(cluster.nodes[1].address()) == 200
            });
            println!(
                "{killed} of 3 down: a publisher was served after {:?}",
                began.elapsed()
            );
        }
        (0..killed).for_each(|index| cluster.nats.0[index].start());
        let began = Instant::now();
        for node in &cluster.nodes {
            wait_for("publishers to be served again", START, || {
                tried(node.address()) == 200
            });
        }
        println!("served again after {:?}", began.elapsed());
    }
    let owner = cluster.owner();
    wait_until_settled(&cluster.nodes[owner], "orders", "all");
    let repeated = assert_arrived(&sink, "/all", &ids);
    println!("{} acknowledged, {} repeated", ids.len(), repeated.len());
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
    for node in &mut cluster.nodes {
        node.terminate();
        node.assert_sound();
    }
}

#[test]
fn a_paused_owner_answers_publishers_that_waited_for_it_and_stores_nothing_for_them() {
    if !has_nats() {
        return;
    }
    let cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..10);
    wait_until_settled(&cluster.nodes[0], "orders", "all");
    cluster.nodes[0].signal("STOP");
    // The system accepts connections and takes requests for a process that is paused.
    let at = cluster.nodes[0].address();
    let waiting: Vec<_> = (0..20)
        .map(|number| {
            let key = key.clone();
            let id = format!("late-{number}");
            thread::spawn(move || {
                (
                    try_publish(at, &key, &id)
                        .map(|response| response.status)
                        .ok(),
                    id,
                )
            })
        })
        .collect();
    let next = cluster.owner_but(Some(0));
    ids.extend(publish(&cluster.nodes[next], &key, 10..20));
    drop(TcpStream::connect(at).expect("it is accepted"));
    cluster.nodes[0].signal("CONT");
    for waiting in waiting {
        let (status, id) = waiting.join().expect("no panic");
        // It forwards what it has not begun to process.
        if status == Some(200) {
            ids.push(id);
        }
    }
    wait_for("the former owner to follow", LONG, || {
        cluster.nodes[0].logs().contains("standby again")
    });
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
    wait_until_settled(&cluster.nodes[next], "orders", "all");
    assert_arrived(&sink, "/all", &ids);
    sink.look("/all", |ledger| {
        let twice = |arrivals: &&Vec<Arrival>| {
            arrivals.iter().filter(|arrival| arrival.is_taken()).count() > 1
        };
        assert_eq!(
            ledger.values().filter(twice).count(),
            0,
            "nothing was in flight"
        );
    });
}
