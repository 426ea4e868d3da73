//! Machines: full disks, wrong clocks, signals at the wrong time, strangers, and a stream that is
//! full or was changed.

use std::{
    fs,
    io::{ErrorKind, Read as _},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    CALM, Cluster, START, STREAM, TAKEN, assert_all_arrive,
    copies::wait_until_synced,
    keep_token, publish, records_by_former_owners,
    tls::{node_tls, write_node_files},
};
use crate::{
    server::{LONG, assert_arrived, many, wait_until_settled},
    support::{
        certificates::Authority,
        disk::Mount,
        load,
        nats::{NatsCluster, has_nats},
        needs,
        server::{SCOPE, Server, SubscriptionSpec, events_path, operator, say, wait_for},
        sink::{Behavior, Sink},
    },
};

/// The status of a process whose store has failed: sysexits' I/O error.
const EX_IOERR: i32 = 74;

fn try_publish(node: &Server, key: &str, id: &str, subject: &str) -> u16 {
    let body = load::body(&[id.to_owned()], subject);
    let response = node.client().ask(
        "POST",
        &events_path("orders"),
        &[("aeg-sas-key", key)],
        &body,
    );
    response.map_or(0, |response| response.status)
}

#[test]
fn an_owner_with_a_full_disk_is_replaced_and_follows_when_there_is_space() {
    if !has_nats() {
        return;
    }
    let Some(disk) = Mount::tmpfs(160) else {
        return;
    };
    let mut cluster = Cluster::prepare(1, &[]);
    let sink = Sink::start();
    cluster.nodes[0].keep_data_in(&disk.path().join("data"));
    keep_token(&cluster.nodes[0]);
    cluster.join_all();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "all",
        &SubscriptionSpec::new(&sink.url("/all")).batch(10),
    );
    let mut ids = publish(&cluster.nodes[0], &key, 0..20);
    let filler = disk.fill(4 << 20);
    let subject = |number: usize| {
        format!("/{}", fastrand::Rng::with_seed(number as u64).u128(..)).repeat(2_500)
    };
    let mut number = 0;
    while !cluster.nodes[0].has_ended() && number < 4_000 {
        let id = format!("large-{number}");
        if try_publish(&cluster.nodes[1], &key, &id, &subject(number)) == 200 {
            ids.push(id);
        }
        number += 1;
    }
    assert_eq!(
        cluster.nodes[0].wait(START),
        Some(EX_IOERR),
        "{}",
        cluster.nodes[0].logs()
    );
    let next = cluster.owner_but(Some(0));
    println!(
        "replaced after {number} events of {} bytes",
        subject(0).len()
    );
    ids.extend(publish(&cluster.nodes[next], &key, 20..40));
    fs::remove_file(filler).expect("removed");
    cluster.join(0);
    ids.extend(publish(&cluster.nodes[0], &key, 40..60));
    wait_until_settled(&cluster.nodes[next], "orders", "all");
    let repeated = assert_arrived(&sink, "/all", &ids);
    println!("{} acknowledged, {} repeated", ids.len(), repeated.len());
    cluster.nodes[next].kill_9();
    cluster.owner_but(Some(next));
    for node in cluster.nodes.iter_mut().filter(|node| node.is_running()) {
        node.terminate();
    }
    cluster.nodes.iter().for_each(Server::assert_sound);
}

/// A process with another clock, as faketime has it. The monotonic clock stays.
const FAKETIME: [&str; 5] = [
    "env",
    "NO_FAKE_STAT=1",
    "faketime",
    "--exclude-monotonic",
    "-f",
];

#[test]
fn clocks_that_are_hours_apart_divide_no_cluster_and_neither_delay_nor_end_events() {
    if !has_nats()
        || !needs::can_run(
            "faketime",
            Command::new("faketime").args(["-f", "-1d", "true"]),
        )
    {
        return;
    }
    let mut cluster = Cluster::prepare(1, &[]);
    let sink = Sink::start();
    for (index, wrong) in [(1, "+5h"), (2, "-5h")] {
        cluster.nodes[index].run_under(&[&FAKETIME[..], &[wrong]].concat());
    }
    cluster.join_all();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe(
        "orders",
        "alone",
        &SubscriptionSpec::new(&sink.url("/alone")),
    );
    // Its events end after an hour.
    let retries =
        json!({"retryPolicy": {"maxDeliveryAttempts": 30, "eventTimeToLiveInMinutes": 60}});
    let retried = SubscriptionSpec::new(&sink.url("/retried")).also(&json!({}), &retries);
    cluster.nodes[0].subscribe("orders", "retried", &retried);
    let held = SubscriptionSpec::new(&sink.url("/held")).also(&json!({}), &retries);
    cluster.nodes[0].subscribe("orders", "held", &held);
    cluster.nodes[0].post_verb("orders", "held", "hold");
    let mut ids = Vec::new();
    let mut owner = 0;
    for round in 0..4_u32 {
        // Each next owner has events whose retries another clock has planned.
        sink.set("/retried", Behavior::Respond(503));
        let more = publish(&cluster.nodes[owner], &key, round * 20..round * 20 + 20);
        wait_for("first attempts", LONG, || {
            let status = cluster.nodes[owner].status("orders", "retried");
            status["counters"]["pending"] == more.len() && status["inFlight"] == 0
        });
        ids.extend(more);
        // Its time is in its record now.
        let seen = Instant::now();
        wait_for("a moment to pass", LONG, || {
            seen.elapsed() > Duration::from_secs(2)
        });
        assert_eq!(cluster.owner(), owner, "nobody else takes the store");
        cluster.nodes[owner].kill_9();
        let next = cluster.owner_but(Some(owner));
        sink.set("/retried", Behavior::Respond(200));
        // Some seconds, not hours.
        wait_for("retries that another clock has planned", 2 * LONG, || {
            sink.taken("/retried") == ids.len()
        });
        cluster.join(owner);
        println!("round {round}: {owner} was killed, {next} took over");
        owner = next;
    }
    cluster.nodes[owner].post_verb("orders", "held", "resume");
    assert_all_arrive(
        &cluster.nodes[owner],
        &sink,
        &["alone", "retried", "held"],
        &ids,
    );
    for subscription in ["alone", "retried", "held"] {
        assert_eq!(
            cluster.nodes[owner].counter("orders", subscription, "dropped"),
            0,
            "{subscription}"
        );
    }
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
}

#[test]
fn a_node_that_is_stopped_while_it_takes_the_store_ends_well_and_another_one_takes_it() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..10);
    let mut owner = 0;
    for round in 0..many(3, 20) {
        let taken: Vec<usize> = cluster
            .nodes
            .iter()
            .map(|node| node.logs().matches("the shard is claimed").count())
            .collect();
        cluster.nodes[owner].kill_9();
        let mut next = owner;
        wait_for("another node to claim the store", START, || {
            let claims = |index: &usize| {
                cluster.nodes[*index]
                    .logs()
                    .matches("the shard is claimed")
                    .count()
                    > taken[*index]
            };
            let found = (0..3).filter(|index| *index != owner).find(claims);
            next = found.unwrap_or(owner);
            found.is_some()
        });
        // At another moment of its start each time.
        thread::sleep(Duration::from_millis(15 * (round as u64 % 4)));
        cluster.nodes[next].signal("TERM");
        assert_eq!(
            cluster.nodes[next].wait(START),
            Some(0),
            "{}",
            cluster.nodes[next].logs()
        );
        let last = 3 - owner - next;
        wait_for("the last node to own the store", START, || {
            cluster.ready_owner(Some(next)) == Some(last)
        });
        ids.extend(publish(
            &cluster.nodes[last],
            &key,
            round as u32 * 10 + 10..round as u32 * 10 + 20,
        ));
        cluster.join(owner);
        cluster.join(next);
        owner = last;
    }
    assert_all_arrive(&cluster.nodes[owner], &sink, &["all"], &ids);
}

#[test]
fn a_node_that_is_fenced_while_it_starts_to_serve_is_a_standby_again() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let mut ids = publish(&cluster.nodes[0], &key, 0..10);
    let mut owner = 0;
    for round in 0..many(3, 20) {
        let count =
            |cluster: &Cluster, index: usize| cluster.nodes[index].logs().matches(TAKEN).count();
        let taken = [0, 1, 2].map(|index| count(&cluster, index));
        cluster.nodes[owner].kill_9();
        let mut next = owner;
        wait_for("another node to fence the changelog", START, || {
            let found = (0..3)
                .filter(|index| *index != owner)
                .find(|index| count(&cluster, *index) > taken[*index]);
            next = found.unwrap_or(owner);
            found.is_some()
        });
        thread::sleep(Duration::from_millis(7 * (round as u64 % 4)));
        cluster.nodes[next].signal("STOP");
        let last = 3 - owner - next;
        wait_for("the last node to own the store", START, || {
            cluster.ready_owner(Some(next)) == Some(last)
        });
        ids.extend(publish(
            &cluster.nodes[last],
            &key,
            round as u32 * 10 + 10..round as u32 * 10 + 20,
        ));
        let before = cluster.nodes[next].logs().matches("standby again").count();
        cluster.nodes[next].signal("CONT");
        wait_for("the former owner to follow", LONG, || {
            assert!(
                !cluster.nodes[next].has_ended(),
                "{}",
                cluster.nodes[next].logs()
            );
            cluster.nodes[next].logs().matches("standby again").count() > before
        });
        cluster.join(owner);
        owner = last;
    }
    assert_all_arrive(&cluster.nodes[owner], &sink, &["all"], &ids);
    assert_eq!(records_by_former_owners(&cluster.nats), Vec::<u64>::new());
}

/// A stream of this size, and the part of it that is kept.
const SMALL: [(&str, &str); 2] = [
    ("CLUSTER__STREAM_BYTES", "2MiB"),
    ("CLUSTER__STREAM_KEEP_BYTES", "256KiB"),
];

#[test]
fn a_full_stream_refuses_publishers_and_is_trimmed_by_the_next_owner() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[&SMALL[..], &[CALM]].concat());
    let sink = Sink::start();
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    cluster.nodes[0].subscribe("orders", "all", &SubscriptionSpec::new(&sink.url("/all")));
    let synced = |cluster: &Cluster| {
        let view = cluster.nodes[0]
            .command("GET", "/cluster/status", &Value::Null)
            .json();
        let nodes = view["nodes"].as_array().expect("nodes").clone();
        let node = nodes.into_iter().find(|node| node["name"] == "c");
        node.and_then(|node| node["flushed"][0].as_u64())
            .unwrap_or_default()
    };
    wait_for("a position", LONG, || synced(&cluster) > 0);
    // The stream keeps what this node needs.
    cluster.nodes[2].terminate();
    let behind = synced(&cluster);
    let subject = |number: usize| {
        format!("/{}", fastrand::Rng::with_seed(number as u64).u128(..)).repeat(1_000)
    };
    let mut ids = Vec::new();
    let mut number = 0;
    wait_for("the stream to be full", START, || {
        let id = format!("large-{number}");
        let status = try_publish(&cluster.nodes[0], &key, &id, &subject(number));
        number += 1;
        match status {
            200 => ids.push(id),
            503 => {}
            status => panic!("{status}"),
        }
        status == 503
    });
    // Otherwise the stream is kept for what the killed node never reported.
    wait_for("the owner's position to be known", START, || {
        let view = cluster.nodes[1]
            .command("GET", "/cluster/status", &Value::Null)
            .json();
        let nodes = view["nodes"].as_array().expect("nodes").clone();
        let mut owner = nodes.into_iter().filter(|node| node["name"] == "a");
        owner.any(|node| {
            node["flushed"][0].as_u64() > Some(10) && node["flushed"] == node["applied"]
        })
    });
    // Otherwise the next owner finds room below the position of the node that is down.
    wait_for("the stream to be trimmed", START, || {
        cluster.nats.0[0].first(STREAM) > behind
    });
    // Space that is too small for an event may be enough for a fence. The lease of the owner that
    // is paused has not ended yet.
    cluster.nodes[0].signal("STOP");
    cluster.nats.0[0].fill(STREAM);
    cluster.nodes[0].kill_9();
    // It is expected as long as it has a record.
    wait_for("the node to be forgotten without an owner", START, || {
        operator(&cluster.nodes[1], &["cluster", "forget", "c", "--yes"]).is_ok()
    });
    assert!(
        cluster.nodes[1].logs().contains("there is no owner"),
        "{}",
        cluster.nodes[1].logs()
    );
    let next = cluster.owner_but(Some(0));
    wait_for("publishers to be served", START, || {
        let id = format!("large-{number}");
        let status = try_publish(&cluster.nodes[next], &key, &id, &subject(number));
        number += 1;
        ids.extend((status == 200).then_some(id));
        status == 200
    });
    println!("{} events in a stream of {}", ids.len(), SMALL[0].1);
    // A node that starts refuses a stream as small as this one may be now.
    cluster.nats.0[0].change(STREAM, |config| config.max_bytes = 2 << 20);
    // Its folder is behind the stream now. It fetches the store, and may own it then.
    cluster.join(2);
    wait_for("a copy of the store", START, || {
        cluster.nodes[2]
            .logs()
            .contains("the copy of the store is in place")
    });
    wait_until_synced(&cluster, next, "c");
    cluster.nodes[next].kill_9();
    assert_eq!(cluster.owner(), 2);
    let next = 2;
    wait_until_settled(&cluster.nodes[next], "orders", "all");
    assert_arrived(&sink, "/all", &ids);
}

#[test]
fn a_node_that_ends_before_it_reports_a_position_keeps_the_stream_from_no_trim() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &SMALL);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    let flushed = |cluster: &Cluster| {
        let view = cluster.nodes[0]
            .command("GET", "/cluster/status", &Value::Null)
            .json();
        let nodes = view["nodes"].as_array().expect("nodes").clone();
        let node = nodes
            .into_iter()
            .find(|node| node["name"] == "c")
            .unwrap_or_default();
        node["flushed"][0].as_u64().unwrap_or_default()
    };
    publish(&cluster.nodes[0], &key, 0..50);
    wait_for("a position", LONG, || flushed(&cluster) > 5);
    let before = flushed(&cluster);
    let Cluster { nats, nodes, .. } = &mut cluster;
    nodes[2].terminate();
    // Its first line has the state of its store.
    let first = nats.0[0].next_message("$KV.GH_test.node.c", || nodes[2].begin());
    let first: Value = serde_json::from_slice(&first).expect("a record");
    let after = first["positions"][0]["flushed"]
        .as_u64()
        .expect("a position");
    assert!(after >= before, "{before} before, {after} after");
}

#[test]
fn a_stream_that_is_smaller_than_what_a_node_keeps_is_refused() {
    if !has_nats() {
        return;
    }
    let own = |index| match index {
        1 => vec![
            ("CLUSTER__STREAM_BYTES", "1GiB".to_owned()),
            ("CLUSTER__STREAM_KEEP_BYTES", "512MiB".to_owned()),
        ],
        _ => SMALL
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect(),
    };
    let mut cluster = Cluster::prepare_each(NatsCluster::start(1, "always"), &[], own);
    cluster.join(0);
    assert_eq!(cluster.owner(), 0);
    // The limit is that of the stream which is there, not that of these settings.
    cluster.nodes[1].begin();
    assert_eq!(cluster.nodes[1].wait(START), Some(1));
    let log = cluster.nodes[1].logs();
    assert!(
        log.contains(
            "cluster.stream_keep_bytes: 536870912 bytes, and the stream GH_test_0 takes 2097152; \
             set at most 1048576"
        ),
        "{log}"
    );
}

#[test]
fn a_new_node_is_refused_where_the_bucket_has_no_room_for_its_record() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::prepare(1, &[]);
    cluster.join(0);
    assert_eq!(cluster.owner(), 0);
    cluster.nats.0[0].put_nodes("GH_test", 800);
    cluster.nodes[1].begin();
    assert_eq!(cluster.nodes[1].wait(START), Some(1));
    let log = cluster.nodes[1].logs();
    assert!(log.contains("forget nodes that are gone"), "{log}");
    // The others go on.
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish(&cluster.nodes[0], &key, 0..10);
}

#[test]
fn a_stream_that_would_lose_records_is_refused() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::prepare(1, &[]);
    cluster.join(0);
    assert_eq!(cluster.owner(), 0);
    cluster.nats.0[0].change(STREAM, |config| {
        config.max_age = Duration::from_secs(86_400)
    });
    cluster.nodes[1].begin();
    assert_eq!(cluster.nodes[1].wait(START), Some(1));
    let log = cluster.nodes[1].logs();
    assert!(log.contains("the stream GH_test_0 has max_age"), "{log}");
}

#[test]
fn records_that_were_removed_from_the_stream_or_a_shorter_stream_are_refused() {
    if !has_nats() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish(&cluster.nodes[0], &key, 0..20);
    cluster.nodes[2].terminate();
    publish(&cluster.nodes[0], &key, 20..40);
    wait_for("the other standby to follow", LONG, || {
        let last = cluster.nats.0[0].messages(STREAM, u64::MAX - 1).1;
        let view = cluster.nodes[0]
            .command("GET", "/cluster/status", &Value::Null)
            .json();
        view["nodes"][1]["flushed"][0] == last
    });
    cluster.nats.0[0].purge(STREAM);
    publish(&cluster.nodes[0], &key, 40..60);
    // The others have what was removed, and go on. This one fetches it.
    cluster.join(2);
    wait_for("a copy of the store", START, || {
        cluster.nodes[2]
            .logs()
            .contains("the copy of the store is in place")
    });
    publish(&cluster.nodes[1], &key, 60..80);

    cluster.nats.0[0].delete(STREAM);
    cluster.nats.0[0].create(STREAM);
    // A standby notices by reading, and an owner by writing.
    let response =
        cluster.nodes[0].admin("PUT", &format!("{SCOPE}/more"), &json!({"properties": {}}));
    assert!(response.status >= 500, "{}", response.text());
    for node in &mut cluster.nodes {
        wait_for("the node to refuse the shard", START, || {
            let response = node.client().ask("GET", "/readyz", &[], b"");
            let response = response.expect("a response");
            let why = "the changelog ends at record 0, but the local store has applied";
            response.status == 503 && response.text().contains(why)
        });
        node.terminate();
        node.assert_sound();
    }
}

#[test]
fn the_next_owner_makes_backups_at_the_same_destination() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", folder.path().join("backups").display());
    let mut cluster = Cluster::start(1, &[("BACKUP__STORE__URL", &url)]);
    let key = cluster.nodes[0].topic("orders", "EventGridSchema");
    publish(&cluster.nodes[0], &key, 0..10);
    operator(&cluster.nodes[0], &["backup"]).expect("a backup");
    cluster.nodes[0].kill_9();
    let next = cluster.owner_but(Some(0));
    publish(&cluster.nodes[next], &key, 10..20);
    operator(&cluster.nodes[next], &["backup"]).expect("a backup of the next owner");
    let (status, listed) = say(&["backup", "list", &url, "--output", "json"]);
    assert!(status.success(), "{listed}");
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let backups = listed["value"].as_array().expect("a list");
    assert_eq!(backups.len(), 2, "{listed}");
}

/// Strangers at the address for nodes, more than TLS would take at once, keep neither nodes nor
/// publishers out.
fn strangers_keep_no_client_out(cluster: &Cluster) {
    let key = cluster.nodes[1].topic("orders", "EventGridSchema");
    let view = cluster.nodes[0]
        .command("GET", "/cluster/status", &Value::Null)
        .json();
    let address = view["nodes"][0]["address"]
        .as_str()
        .expect("an address")
        .to_owned();
    // They send nothing.
    let strangers: Vec<TcpStream> = (0..500)
        .map(|_| TcpStream::connect(&address).expect("a connection"))
        .collect();
    let is_open = |mut stranger: &TcpStream| {
        stranger.set_nonblocking(true).expect("a socket");
        // The greeting, and nothing else.
        let mut unread = [0; 64];
        let read = stranger.read(&mut unread);
        read.is_ok_and(|read| read > 0)
            || stranger
                .read(&mut unread)
                .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    wait_for("strangers to make room", LONG, || {
        strangers
            .iter()
            .filter(|stranger| is_open(stranger))
            .count()
            <= 64
    });
    // The owner's own listener, too.
    for (number, node) in cluster.nodes.iter().enumerate() {
        assert_eq!(try_publish(node, &key, &format!("e{number}"), "s"), 200);
    }
}

#[test]
fn strangers_at_the_address_for_nodes_keep_no_node_out() {
    if !has_nats() {
        return;
    }
    strangers_keep_no_client_out(&Cluster::start(
        1,
        &[("LIMITS__HEAD_TIMEOUT", "10m"), ("SERVER__WORKERS", "1")],
    ));
}

#[test]
fn strangers_at_the_address_for_nodes_keep_no_node_out_with_tls() {
    if !has_nats() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let own = |node: &str| {
        write_node_files(folder.path(), node, &authority, &authority);
        let mut settings = node_tls(folder.path(), node);
        settings.extend([
            ("LIMITS__HEAD_TIMEOUT", "10m".to_owned()),
            ("SERVER__WORKERS", "1".to_owned()),
        ]);
        settings
    };
    let mut cluster = Cluster::prepare_on(NatsCluster::start(1, "always"), own);
    cluster.join_all();
    strangers_keep_no_client_out(&cluster);
}

#[test]
fn a_connection_to_the_owner_that_was_idle_for_long_is_not_used() {
    if !has_nats() {
        return;
    }
    // One thread, so that all requests have the same connections.
    let others = [("SERVER__WORKERS", "1"), ("LIMITS__IDLE_TIMEOUT", "500ms")];
    let (cluster, proxy, _port) =
        Cluster::start_behind_proxy(&[("LIMITS__IDLE_TIMEOUT", "1m")], &others);
    let key = cluster.nodes[1].topic("orders", "EventGridSchema");
    let publish = || assert_eq!(try_publish(&cluster.nodes[1], &key, "e", "s"), 200);
    publish();
    let before = proxy.connections();
    let began = Instant::now();
    publish();
    assert!(
        proxy.connections() == before || began.elapsed() > Duration::from_secs(1),
        "it is used again at once"
    );
    let before = proxy.connections();
    let began = Instant::now();
    // Half of the time after which a node may close it.
    wait_for("it to be idle for long", LONG, || {
        began.elapsed() > Duration::from_millis(2_100)
    });
    publish();
    assert_eq!(proxy.connections(), before + 1);
}
