//! Replays beside live traffic: complete, through kills, and as the operator commands.

use std::{
    io::Read,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use gridhook::event::Timestamp;
use serde_json::{Value, json};

use super::{LONG, assert_arrived, many, wait_until_settled};
use crate::support::{
    load::{self, Load, Rate},
    server::{Server, SubscriptionSpec, subscription, wait_for},
    sink::{Arrival, Behavior, Sink},
};

/// A log that is kept.
const KEPT: (&str, &str) = ("JOURNAL__RETENTION", "7d");

/// Few requests at once.
const FEW: (&str, &str) = ("DELIVERY__CONCURRENCY", "16");

/// In one request.
const BATCH: u32 = 50;

pub(super) fn replays(topic: &str, name: &str, rest: &str) -> String {
    format!("{}/replays{rest}", subscription(topic, name))
}

/// Begins a replay: its id.
pub(super) fn start(server: &Server, topic: &str, name: &str, body: &Value) -> String {
    let response = server.command("POST", &replays(topic, name, ""), body);
    assert_eq!(response.status, 201, "{}", response.text());
    response.json()["id"].as_str().expect("an id").to_owned()
}

fn show(server: &Server, name: &str, id: &str) -> Value {
    server
        .command(
            "GET",
            &replays("orders", name, &format!("/{id}")),
            &Value::Null,
        )
        .json()
}

fn say(server: &Server, name: &str, id: &str, word: &str) -> Value {
    server
        .command(
            "POST",
            &replays("orders", name, &format!("/{id}/{word}")),
            &Value::Null,
        )
        .json()
}

fn wait_until_ended(server: &Server, name: &str, id: &str) -> Value {
    let wait = LONG * many(1, 20) as u32;
    wait_for(&format!("replay {id}"), wait, || {
        show(server, name, id)["state"] == "completed"
    });
    show(server, name, id)
}

/// Publishes events with these numbers, in requests of up to 1,000.
pub(super) fn publish(
    server: &Server,
    key: &str,
    numbers: std::ops::Range<usize>,
    subject: &str,
) -> Vec<String> {
    let ids: Vec<String> = numbers
        .map(|number| format!("{subject}-{number}"))
        .collect();
    for ids in ids.chunks(1000) {
        server.publish("orders", key, &load::body(ids, subject));
    }
    ids
}

/// How often each event arrived for a job and was taken, at the least, and at the most.
fn taken_again(sink: &Sink, path: &str, ids: &[String]) -> (usize, usize, usize) {
    sink.look(path, |ledger| {
        let of = |id: &String| ledger.get(id).map_or(&[][..], Vec::as_slice);
        let times = |id: &String| {
            of(id)
                .iter()
                .filter(|arrival| arrival.is_taken() && arrival.job.is_some())
                .count()
        };
        let all: Vec<usize> = ids.iter().map(times).collect();
        let least = all.iter().min();
        let most = all.iter().max();
        (
            least.copied().unwrap_or(0),
            most.copied().unwrap_or(0),
            all.iter().sum(),
        )
    })
}

#[test]
fn a_replay_is_whole_through_kills_while_others_have_live_traffic() {
    let _rows = crate::spec::shows(&[
        "S004-083: It is possible to return to older data by specifying a lower offset than the \
         checkpoint.",
    ]);
    let mut server = Server::start(&[KEPT, FEW]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "past",
        &SubscriptionSpec::new(&sink.url("/past"))
            .batch(BATCH)
            .prefix("/past"),
    );
    server.subscribe(
        "orders",
        "live",
        &SubscriptionSpec::new(&sink.url("/live")).prefix("/load"),
    );
    let count = many(3_000, 1_000_000);
    let ids = publish(&server, &key, 0..count, "/past");
    wait_for("the first delivery", LONG * 10, || {
        sink.taken("/past") == count
    });
    wait_until_settled(&server, "orders", "past");
    let before = server.status("orders", "past")["counters"].clone();

    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 1,
        events_per_request: 2,
        pause: Duration::from_millis(5),
    };
    let traffic = Load::start(server.address(), &rate);
    let dry_run = server.command(
        "POST",
        &replays("orders", "past", ""),
        &json!({"toSequence": count, "dryRun": true}),
    );
    let reported = dry_run.json();
    assert_eq!(
        (dry_run.status, &reported["stored"], &reported["matching"]),
        (200, &count.into(), &count.into()),
        "{reported}"
    );
    let id = start(
        &server,
        "orders",
        "past",
        &json!({"fromSequence": 1, "toSequence": count, "eventsPerSecond": many(1_000, 20_000)}),
    );
    let from = sink.now();
    for kill in 1..=3 {
        let far = count * kill / 5;
        wait_for("a part of it", LONG * 10, || {
            taken_again(&sink, "/past", &ids).2 > far
        });
        server.kill_9();
        server.assert_sound();
        server.restart();
        traffic.turn_to(server.address());
        assert_eq!(
            show(&server, "past", &id)["state"],
            "running",
            "it goes on after a kill"
        );
    }
    let job = wait_until_ended(&server, "past", &id);
    let took = sink.now().since(from);
    let acknowledged = traffic.stop();
    wait_until_settled(&server, "orders", "live");
    assert_arrived(&sink, "/live", &acknowledged);
    let (least, most, sum) = taken_again(&sink, "/past", &ids);
    println!(
        "{count} events again in {took:?} with 3 kills: each {least} to {most} times, {} repeated",
        sum - count
    );
    assert_eq!(least, 1, "something was skipped");
    // The requests in flight at a kill, with 50 events each: a quarter of 16.
    assert!(
        sum - count <= 3 * 2 * 4 * BATCH as usize,
        "{} were repeated",
        sum - count
    );
    let counters = &job["counters"];
    assert_eq!(
        (
            &counters["matched"],
            &counters["delivered"],
            &counters["pending"]
        ),
        (&count.into(), &count.into(), &0.into()),
        "{job}"
    );
    assert_eq!(job["progress"]["passed"], job["progress"]["total"], "{job}");
    let status = server.status("orders", "past");
    assert_eq!(
        status["counters"]["delivered"], before["delivered"],
        "its own column is as it was: {status}"
    );
    assert_eq!(status["replayed"]["delivered"], count, "{status}");
    wait_until_settled(&server, "orders", "past");
    sink.look("/live", |ledger| {
        assert!(
            ledger
                .values()
                .flatten()
                .all(|arrival| arrival.job.is_none())
        )
    });
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_new_subscription_that_starts_in_the_past_gets_what_is_stored_and_then_what_comes() {
    let _rows = crate::spec::shows(&[
        "S004-080: When the processor connects, it passes the offset to the event hub to specify \
         the position at which to start reading.",
        "S004-086: A checkpoint entry holds the sequence number of the event.",
    ]);
    let mut server = Server::start(&[KEPT, FEW]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    publish(&server, &key, 0..700, "/old");
    thread::sleep(Duration::from_millis(20));
    let at = sink.now();
    thread::sleep(Duration::from_millis(20));
    let mut wanted = publish(&server, &key, 700..2_000, "/a");
    let rate = Rate {
        topic: "orders".to_owned(),
        key: key.clone(),
        publishers: 2,
        events_per_request: 5,
        pause: Duration::from_millis(5),
    };
    let traffic = Load::start(server.address(), &rate);
    wait_for("some traffic", LONG, || traffic.acknowledged() > 100);
    let past = |at: Timestamp| {
        SubscriptionSpec::new(&sink.url("/late"))
            .batch(BATCH)
            .also(&json!({}), &json!({"startsFrom": at.to_string()}))
    };
    server.subscribe("orders", "late", &past(at));
    let more = traffic.acknowledged() + 200;
    wait_for("more traffic", LONG, || traffic.acknowledged() > more);
    server.kill_9();
    server.restart();
    traffic.turn_to(server.address());
    let more = traffic.acknowledged() + 200;
    wait_for("more traffic", LONG, || traffic.acknowledged() > more);
    wanted.extend(traffic.stop());
    wait_for("all of it", LONG, || sink.taken("/late") >= wanted.len());
    wait_until_settled(&server, "orders", "late");
    let repeated = assert_arrived(&sink, "/late", &wanted);
    sink.look("/late", |ledger| {
        assert!(
            ledger.keys().all(|id| !id.starts_with("/old")),
            "something from before came"
        );
        assert!(
            ledger
                .values()
                .flatten()
                .all(|arrival| arrival.job.is_none()),
            "it is no replay"
        );
    });
    assert!(
        repeated.len() <= 2 * 16 * BATCH as usize,
        "{} were repeated by a kill",
        repeated.len()
    );
    assert_eq!(
        server.counter("orders", "late", "delivered"),
        server.counter("orders", "late", "passed")
    );
    assert_eq!(
        server.get_subscription("orders", "late").json()["properties"]["startsFrom"],
        at.to_string()
    );

    // The same again is no change; another place is refused, and so is the future.
    server.subscribe("orders", "late", &past(at));
    let refused =
        server.put_subscription("orders", "late", &past(at.before(Duration::from_secs(60))));
    assert!(
        refused.status == 400 && refused.text().contains("is there already"),
        "{}",
        refused.text()
    );
    let refused = server.put_subscription(
        "orders",
        "later",
        &past(at.after(Duration::from_secs(3600))),
    );
    assert!(
        refused.status == 400 && refused.text().contains("in the future"),
        "{}",
        refused.text()
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_replay_is_paused_goes_on_and_is_canceled_and_others_are_refused_with_a_reason() {
    let mut server = Server::start(&[KEPT]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(BATCH),
    );
    assert_eq!(
        refuse_replay(&server, json!({})).0,
        400,
        "nothing is stored"
    );
    let ids = publish(&server, &key, 0..500, "/a");
    wait_for("the first delivery", LONG, || sink.taken("/hook") == 500);
    assert_impossible_ranges_are_refused(&server);
    let id = start(&server, "orders", "hook", &json!({"eventsPerSecond": 50}));
    wait_for("a part", LONG, || taken_again(&sink, "/hook", &ids).2 > 20);
    assert_eq!(say(&server, "hook", &id, "pause")["state"], "paused");
    // Without a durable outcome a request would be sent again after the kill.
    wait_for("the outcomes", LONG, || {
        server.status("orders", "hook")["inFlight"] == 0
    });
    let paused = taken_again(&sink, "/hook", &ids).2;
    server.kill_9();
    server.restart();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(
        taken_again(&sink, "/hook", &ids).2,
        paused,
        "a paused replay sends nothing, after a kill neither"
    );
    assert_eq!(
        server
            .admin(
                "POST",
                &replays("orders", "hook", &format!("/{id}/pause")),
                &Value::Null
            )
            .status,
        409
    );
    assert_eq!(say(&server, "hook", &id, "resume")["state"], "running");
    wait_for("more of it", LONG, || {
        taken_again(&sink, "/hook", &ids).2 > paused
    });
    say(&server, "hook", &id, "cancel");
    wait_for("its end", LONG, || {
        show(&server, "hook", &id)["state"] == "canceled"
    });
    wait_for("the outcomes", LONG, || {
        server.status("orders", "hook")["inFlight"] == 0
    });
    let sent = taken_again(&sink, "/hook", &ids).2;
    thread::sleep(Duration::from_millis(200));
    assert_eq!(taken_again(&sink, "/hook", &ids).2, sent);
    start_eight_and_a_ninth(&server);
    server.terminate();
    server.assert_sound();
}

/// The status and the message of a refused replay.
fn refuse_replay(server: &Server, body: Value) -> (u16, String) {
    let response = server.admin("POST", &replays("orders", "hook", ""), &body);
    let message = response.json()["error"]["message"]
        .as_str()
        .expect("a message")
        .to_owned();
    (response.status, message)
}

fn assert_impossible_ranges_are_refused(server: &Server) {
    for (body, why) in [
        (
            json!({"from": "yesterday"}),
            "from is \"yesterday\"; expected",
        ),
        (
            json!({"from": "2026-01-01T00:00:00Z", "fromSequence": 3}),
            "are both given",
        ),
        (
            json!({"fromSequence": 501}),
            "stored events are 1 to 500, appended from",
        ),
        (
            json!({"toSequence": 0}),
            "the range contains no event; stored events are",
        ),
        (
            json!({"eventsPerSecond": 0}),
            "eventsPerSecond is 0; expected",
        ),
        (json!({"since": "x"}), "since"),
    ] {
        let (status, message) = refuse_replay(server, body);
        assert!(status == 400 && message.contains(why), "{status} {message}");
    }
}

/// An event subscription has at most eight jobs that have not ended.
fn start_eight_and_a_ninth(server: &Server) {
    server.post_verb("orders", "hook", "hold");
    let all: Vec<String> = (0..8)
        .map(|_| start(server, "orders", "hook", &json!({})))
        .collect();
    let status = server.status("orders", "hook");
    assert_eq!(status["backlog"], 0, "a replay is no backlog: {status}");
    let ninth = server.admin("POST", &replays("orders", "hook", ""), &json!({}));
    assert!(
        ninth.status == 409 && ninth.text().contains("8 jobs of this event subscription"),
        "{}",
        ninth.text()
    );
    server.post_verb("orders", "hook", "resume");
    for id in &all {
        assert_eq!(
            wait_until_ended(server, "hook", id)["counters"]["delivered"],
            500
        );
    }
    let listed = server
        .command("GET", &replays("orders", "hook", ""), &Value::Null)
        .json();
    assert_eq!(
        listed["value"].as_array().map(Vec::len),
        Some(9),
        "{listed}"
    );
    assert_eq!(
        server
            .admin("GET", &replays("orders", "hook", "/99"), &Value::Null)
            .status,
        404
    );
}

#[test]
fn a_replay_from_below_the_floor_reports_the_events_that_are_gone() {
    let server = Server::start(&[("JOURNAL__RETENTION", "1s")]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    publish(&server, &key, 0..10, "/a");
    wait_until_settled(&server, "orders", "hook");
    // A dry run holds the log while it reads: one after the other would keep it from being trimmed.
    wait_for("the log to be trimmed", LONG, || {
        publish(&server, &key, 10..11, "/a");
        server.topic_status("orders")["logFromSequence"].as_u64() > Some(1)
    });
    let from_start = json!({"fromSequence": 1, "dryRun": true});
    let response = server.admin("POST", &replays("orders", "hook", ""), &from_start);
    let message = response.text();
    assert_eq!(response.status, 400, "{message}");
    assert!(
        message.contains("the log was trimmed there; stored events are")
            || message.contains("the log is empty"),
        "{message}"
    );
}

#[test]
fn an_event_that_a_replay_gives_up_is_a_dead_letter_that_names_the_replay() {
    let mut server = Server::start(&[KEPT]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook"))
            .attempts(1)
            .dead_letters("aside"),
    );
    publish(&server, &key, 0..5, "/a");
    wait_for("the first delivery", LONG, || sink.taken("/hook") == 5);
    sink.set("/hook", Behavior::Respond(400));
    let id = start(&server, "orders", "hook", &json!({}));
    let job = wait_until_ended(&server, "hook", &id);
    assert_eq!(
        (
            &job["counters"]["deadLettered"],
            &job["counters"]["delivered"]
        ),
        (&5.into(), &0.into()),
        "{job}"
    );
    assert_eq!(
        server.counter("orders", "hook", "deadLettered"),
        0,
        "what was published was delivered"
    );
    let refused = sink.look("/hook", |ledger| {
        let all: Vec<Arrival> = ledger.values().flatten().copied().collect();
        all.iter()
            .filter(|arrival| !arrival.is_taken())
            .map(|arrival| arrival.job)
            .collect::<Vec<_>>()
    });
    assert_eq!(
        refused,
        vec![id.parse().ok(); 5],
        "each says which replay it is of"
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_replay_from_sequence_0_is_one_from_the_beginning() {
    let server = Server::start(&[KEPT]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "hook", &SubscriptionSpec::new(&sink.url("/hook")));
    publish(&server, &key, 0..3, "/a");
    let body = json!({"fromSequence": 0, "dryRun": true});
    let report = server.command("POST", &replays("orders", "hook", ""), &body);
    let report = report.json();
    assert_eq!(
        (&report["fromSequence"], &report["stored"]),
        (&json!(1), &json!(3)),
        "{report}"
    );
}

#[test]
fn the_command_starts_shows_and_lists_replays() {
    let server = Server::start(&[KEPT]);
    let sink = Sink::start();
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe(
        "orders",
        "hook",
        &SubscriptionSpec::new(&sink.url("/hook")).batch(BATCH),
    );
    publish(&server, &key, 0..100, "/a");
    wait_for("the first delivery", LONG, || sink.taken("/hook") == 100);
    let topic = subscription("orders", "").replace("/eventSubscriptions/", "");
    let run = |words: &[&str]| {
        let token = server.data_dir().join("admin-token");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridhook"));
        command
            .args(["replay", words[0], &topic, "hook"])
            .args(&words[1..]);
        command
            .args([
                "--server",
                &format!("http://{}", server.address()),
                "--token-file",
            ])
            .arg(token);
        let output = command.output().expect("the binary starts");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        (
            printed,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (printed, _) = run(&["start", "--from-sequence", "11", "--dry-run"]);
    assert_eq!(
        printed,
        "90 of 90 stored events match (sequence numbers 11 to 100); nothing was sent\n"
    );
    let (printed, bar) = run(&[
        "start",
        "--from-sequence",
        "11",
        "--rate",
        "500",
        "--watch",
        "--yes",
    ]);
    assert!(
        printed.contains("ID  STATE") && printed.contains("16  completed  11-100     90/90"),
        "{printed}"
    );
    assert!(
        bar.contains("[##############################] 90/90, 90 delivered, completed"),
        "{bar}"
    );
    assert!(
        !bar.contains(['\r', '\u{1b}']),
        "a pipe gets lines: {bar:?}"
    );
    let (printed, _) = run(&["list", "--output", "json"]);
    let listed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(listed["value"][0]["counters"]["delivered"], 90, "{printed}");
    let (printed, _) = run(&["start", "--all", "--rate", "1", "--yes"]);
    assert!(printed.contains("17  running"), "{printed}");
    assert!(run(&["pause", "17"]).0.contains("17  paused"));
    assert!(run(&["resume", "17"]).0.contains("17  running"));
    // Ctrl-C ends the command and not the replay.
    let token = server.data_dir().join("admin-token");
    let mut watching = Command::new(env!("CARGO_BIN_EXE_gridhook"));
    watching
        .args([
            "replay",
            "show",
            &topic,
            "hook",
            "17",
            "--watch",
            "--token-file",
        ])
        .arg(token);
    watching
        .args(["--server", &format!("http://{}", server.address())])
        .stderr(Stdio::piped());
    let mut watching = watching.spawn().expect("the binary starts");
    let mut bar = watching.stderr.take().expect("its standard error");
    let mut first = [0];
    bar.read_exact(&mut first).expect("a progress bar");
    let interrupt = format!("kill -INT {}", watching.id());
    assert!(
        Command::new("sh")
            .args(["-c", &interrupt])
            .status()
            .expect("a shell")
            .success()
    );
    let mut said = String::new();
    bar.read_to_string(&mut said).expect("text");
    assert_eq!(watching.wait().expect("an end").code(), Some(1));
    assert!(
        said.contains("gridhook: the replay 17 goes on; gridhook replay show ")
            && said.contains(" ends it"),
        "{said}"
    );
    assert_eq!(show(&server, "hook", "17")["state"], "running");
    assert!(run(&["cancel", "17"]).0.contains("17  cancel"));
    assert!(run(&["show", "17"]).0.contains("17  cancel"));
}
