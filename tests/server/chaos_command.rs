//! `gridhook chaos` against the real server: it finds no loss, and detects seeded bugs.

use std::{
    net::TcpListener,
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};

use super::{LONG, many};
use crate::support::{
    proxy::{Act, Carries, CorruptingProxy},
    server::{Server, wait_for},
};

/// Where the command makes its topic.
const SCOPE: &str = "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid/topics";

fn start() -> Server {
    Server::start(&[("CHAOS__ENABLED", "true")])
}

/// The command, with the admin token of `server`, asking it at `url`.
fn chaos(server: &Server, url: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhook"));
    command.args(["chaos", "--output", "json", "--server", url, "--token-file"]);
    command
        .arg(server.data_dir().join("admin-token"))
        .args(flags);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn own_url(server: &Server) -> String {
    format!("http://{}", server.address())
}

fn verdict(output: &Output) -> Value {
    let reported = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&reported)
        .unwrap_or_else(|error| panic!("{error}: {reported}{complained}"))
}

fn number(verdict: &Value, name: &str) -> u64 {
    verdict[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {verdict}"))
}

/// The topics that the command left behind.
fn left_behind(server: &Server) -> Vec<String> {
    let topics = server.command("GET", SCOPE, &Value::Null).json();
    let names = topics["value"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|topic| topic["name"].as_str());
    names
        .filter(|name| name.starts_with("chaos-"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn kills_under_load_lose_nothing_and_repeat_nothing() {
    let mut server = start();
    let seconds = format!("{}s", many(5, 60));
    let flags = [
        "--duration",
        &seconds,
        "--rate",
        "2000",
        "--kill-every",
        "20ms",
        "--seed",
        "7",
    ];
    let output = chaos(&server, &own_url(&server), &flags)
        .output()
        .expect("the binary starts");
    let verdict = verdict(&output);
    println!("{verdict:#}");
    assert!(output.status.success(), "{verdict}");
    assert_eq!(
        (
            number(&verdict, "lost"),
            number(&verdict, "repeated"),
            number(&verdict, "damaged")
        ),
        (0, 0, 0)
    );
    assert_eq!(
        number(&verdict, "arrived"),
        4 * number(&verdict, "acknowledged")
    );
    assert!(number(&verdict, "acknowledged") > 1_000, "{verdict}");
    let acts = &verdict["injected"];
    assert!(
        number(acts, "subscriptionsKilled") >= 5 && number(acts, "topicsKilled") >= 5,
        "{acts}"
    );
    assert!(number(acts, "deadLettersKilled") >= 5, "{acts}");
    assert!(
        number(&verdict["restarts"], "count") > number(acts, "topicsKilled"),
        "{verdict}"
    );
    let p99 = verdict["restarts"]["p99"].as_f64().expect("a time");
    // A short run includes the work of other processes. A long run prints it and has its own limit.
    assert!(p99 < 1_000.0, "restarts took {p99} ms");
    assert_eq!(left_behind(&server), [""; 0]);
    server.terminate();
    server.assert_sound();
}

#[test]
fn with_every_fault_at_once_nothing_is_lost_and_repeated_is_what_may_be() {
    let mut server = start();
    let seconds = format!("{}s", many(6, 60));
    let mut flags = vec![
        "--duration",
        &seconds,
        "--rate",
        "500",
        "--kill-every",
        "100ms",
        "--seed",
        "11",
    ];
    flags.extend([
        "--kill",
        "subscription,topic,dead-letter,delivery",
        "--fault-every",
        "400ms",
    ]);
    flags.extend([
        "--stall-journal",
        "200ms",
        "--stall-actors",
        "200ms",
        "--fail-writes",
        "2",
        "--skew-clock=-1h",
    ]);
    flags.extend([
        "--drop-responses",
        "0.01",
        "--corrupt-responses",
        "0.01",
        "--delay-responses",
        "0.05",
    ]);
    flags.extend(["--delay", "50ms"]);
    let output = chaos(&server, &own_url(&server), &flags)
        .output()
        .expect("the binary starts");
    let verdict = verdict(&output);
    println!("{verdict:#}");
    assert!(output.status.success(), "{verdict}");
    assert_eq!(
        (number(&verdict, "lost"), number(&verdict, "damaged")),
        (0, 0)
    );
    assert_eq!(
        number(&verdict, "refusedButArrived"),
        0,
        "what was refused was not written"
    );
    assert!(
        number(&verdict, "repeated") > 0,
        "a response that was dropped is a repeat"
    );
    assert!(number(&verdict, "repeated") <= number(&verdict, "repeatedAllowed"));
    let acts = &verdict["injected"];
    for act in [
        "journalStalls",
        "actorsStalled",
        "clockSteps",
        "writesFailed",
        "responsesDropped.responses",
        "responsesCorrupted.responses",
        "responsesDelayed.responses",
    ] {
        assert!(number(acts, act) > 0, "{act}: {acts}");
    }
    assert_eq!(left_behind(&server), [""; 0]);
    assert_eq!(
        server.command("GET", "/chaos", &Value::Null).json()["active"],
        json!([]),
        "nothing goes on"
    );
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_signal_ends_it_with_a_verdict_and_nothing_is_left_behind() {
    let server = start();
    let flags = ["--duration", "10m", "--rate", "200", "--fail-writes", "1"];
    let running = chaos(&server, &own_url(&server), &flags)
        .spawn()
        .expect("the binary starts");
    wait_for("the topic", LONG, || !left_behind(&server).is_empty());
    let topic = left_behind(&server).remove(0);
    let count = || {
        let path = format!("{SCOPE}/{topic}/eventSubscriptions/ledger-0/status");
        server.admin("GET", &path, &Value::Null).json()["counters"]["delivered"].as_u64()
    };
    wait_for("deliveries", LONG, || count() > Some(20));
    interrupt(&running);
    let output = running.wait_with_output().expect("a child is waited for");
    let verdict = verdict(&output);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(
        (number(&verdict, "lost"), number(&verdict, "repeated")),
        (0, 0)
    );
    assert_eq!(left_behind(&server), [""; 0]);
}

fn interrupt(child: &Child) {
    let sent = Command::new("sh")
        .args(["-c", "kill -INT \"$0\"", &child.id().to_string()])
        .status();
    assert!(
        sent.is_ok_and(|status| status.success()),
        "a signal is sent"
    );
}

#[test]
fn a_server_that_does_not_allow_it_is_left_alone() {
    let server = Server::start(&[]);
    let output = chaos(&server, &own_url(&server), &[])
        .output()
        .expect("the binary starts");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(complained.contains("chaos.enabled = true"), "{complained}");
    assert_eq!(left_behind(&server), [""; 0]);
}

/// A request to the webhook that is no handshake and no farewell.
fn delivers(head: &str) -> bool {
    head.starts_with("POST")
        && head
            .to_ascii_lowercase()
            .contains("aeg-event-type: notification")
}

/// A request that publishes.
fn publishes(head: &str) -> bool {
    head.starts_with("POST") && head.contains("/api/events")
}

/// The result of the command if a proxy changes the traffic between it and the server.
fn meddled(server: &Server, act: Act, before_server: bool) -> (Option<i32>, Value) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let webhook = listener.local_addr().expect("a listener has an address");
    drop(listener);
    let (to, carries): (_, Carries) = if before_server {
        (server.address(), publishes)
    } else {
        (webhook, delivers)
    };
    let proxy = CorruptingProxy::start(to, act, carries);
    let listen = webhook.to_string();
    let own = own_url(server);
    let mut flags = vec![
        "--duration",
        "2s",
        "--rate",
        "500",
        "--kill-every",
        "0s",
        "--subscriptions",
        "1",
    ];
    flags.extend(["--settle", "20s", "--listen", &listen]);
    let url = proxy.url();
    let asked = if before_server { &url } else { &own };
    if !before_server {
        flags.extend(["--endpoint", &url]);
    }
    let output = chaos(server, asked, &flags)
        .output()
        .expect("the binary starts");
    assert!(
        proxy.is_guilty(),
        "{act:?} was done: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code(), verdict(&output))
}

/// Events wait for a subscription, which is deleted and made again behind the command's back.
fn canceled(server: &Server) -> (Option<i32>, Value) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let webhook = listener
        .local_addr()
        .expect("a listener has an address")
        .to_string();
    drop(listener);
    let mut flags = vec![
        "--duration",
        "6s",
        "--rate",
        "500",
        "--kill-every",
        "0s",
        "--subscriptions",
        "1",
    ];
    flags.extend(["--settle", "20s", "--listen", &webhook]);
    let running = chaos(server, &own_url(server), &flags)
        .spawn()
        .expect("the binary starts");
    wait_for("the topic", LONG, || !left_behind(server).is_empty());
    let path = format!(
        "{SCOPE}/{}/eventSubscriptions/ledger-0",
        left_behind(server).remove(0)
    );
    let status = || {
        server
            .admin("GET", &format!("{path}/status"), &Value::Null)
            .json()
    };
    wait_for("deliveries", LONG, || {
        status()["counters"]["delivered"].as_u64() > Some(0)
    });
    server.command("POST", &format!("{path}/hold"), &Value::Null);
    wait_for("a backlog", LONG, || {
        status()["backlog"].as_u64() > Some(20)
    });
    server.command("DELETE", &path, &Value::Null);
    let endpoint = json!({"endpointUrl": format!("http://{webhook}/0"), "maxEventsPerBatch": 10});
    let destination = json!({"endpointType": "WebHook", "properties": endpoint});
    server.command(
        "PUT",
        &path,
        &json!({"properties": {"destination": destination}}),
    );
    let output = running.wait_with_output().expect("a child is waited for");
    (output.status.code(), verdict(&output))
}

/// A checker that passes everything would pass the tests above.
#[test]
fn negative_controls_of_the_verdict_are_all_caught() {
    let server = start();
    let flags = [
        "--duration",
        "1s",
        "--kill-every",
        "0s",
        "--subscriptions",
        "1",
    ];
    let honest = chaos(&server, &own_url(&server), &flags)
        .output()
        .expect("the binary starts");
    assert!(
        honest.status.success(),
        "without a bug it passes: {}",
        verdict(&honest)
    );
    let seeded = [
        (
            "an endpoint that takes a request and loses it",
            "lost",
            meddled(&server, Act::Swallow, false),
        ),
        (
            "a server that acknowledges a request and keeps none of it",
            "lost",
            meddled(&server, Act::Swallow, true),
        ),
        (
            "acknowledged events deleted behind the server's back",
            "lost",
            canceled(&server),
        ),
        (
            "a request that comes twice",
            "repeated",
            meddled(&server, Act::Repeat, false),
        ),
        (
            "a request that comes with other bytes",
            "damaged",
            meddled(&server, Act::Alter, false),
        ),
    ];
    let mut caught = 0;
    for (bug, by, (code, verdict)) in &seeded {
        let found = number(verdict, by);
        println!("{bug}: exit status {code:?}, {by} {found}");
        caught += usize::from(*code == Some(1) && found > 0 && verdict["ok"] == false);
    }
    println!("caught {caught} of {}", seeded.len());
    assert_eq!(caught, seeded.len());
    assert_eq!(left_behind(&server), [""; 0]);
}

#[test]
fn where_operators_have_an_address_of_their_own_publishers_are_played_at_the_other() {
    let server = Server::start(&[
        ("CHAOS__ENABLED", "true"),
        ("SERVER__ADMIN_LISTEN", "127.0.0.1:0"),
    ]);
    let log = server.logs();
    let admin = log
        .split("the control plane is at ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let admin = admin.expect("an address");
    let own = own_url(&server);
    let flags = [
        "--duration",
        "1s",
        "--rate",
        "200",
        "--kill-every",
        "100ms",
        "--publish-to",
        &own,
    ];
    let output = chaos(&server, admin, &flags)
        .output()
        .expect("the binary starts");
    let verdict = verdict(&output);
    assert!(
        output.status.success() && number(&verdict, "acknowledged") > 0,
        "{verdict}"
    );
}
