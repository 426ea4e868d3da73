//! An idle server is small; one in a control group stays within it.

use std::{
    collections::HashMap,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use gridhook::{
    config::{Config, SettingSources},
    server::memory::{divide_budgets, fit_budgets, lowest_limit},
};
use serde_json::{Value, json};

use super::LONG;
use crate::support::{
    process,
    server::{Server, SubscriptionSpec, events_path, subscription, wait_for},
    sink::{Behavior, Sink},
};

/// The maximum memory of an idle server without the pages of the program, which the benches
/// include. With transparent huge pages it was 38 MB; without them it is 10.
const IDLE: u64 = 16_000_000;

const MIB: u64 = 1 << 20;

#[test]
fn an_idle_server_is_small() {
    let server = Server::start(&[]);
    wait_for("what its start took to be given back", LONG, || {
        process::anonymous(server.id()) < IDLE
    });
}

#[test]
fn the_lowest_limit_of_all_control_groups_counts() {
    let files: HashMap<&str, &str> = HashMap::from([
        ("/sys/fs/cgroup/memory.max", "max\n"),
        ("/sys/fs/cgroup/system.slice/memory.max", "536870912\n"),
        (
            "/sys/fs/cgroup/system.slice/gridhook.service/memory.max",
            "1073741824\n",
        ),
        (
            "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
            "268435456\n",
        ),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        ),
    ]);
    let read = |path: &Path| {
        files
            .get(path.to_str().expect("text"))
            .map(|text| (*text).to_owned())
    };
    assert_eq!(
        lowest_limit("0::/system.slice/gridhook.service\n", read),
        Some(512 * MIB)
    );
    assert_eq!(
        lowest_limit("9:name=systemd:/\n4:memory:/docker\n0::/\n", read),
        Some(256 * MIB)
    );
    // A container that does not see where its group is, and sees it as the root.
    let own = |path: &Path| {
        (path == Path::new("/sys/fs/cgroup/memory.max")).then(|| "134217728".to_owned())
    };
    assert_eq!(
        lowest_limit("0::/../../pod1/container2\n", own),
        Some(128 * MIB)
    );
    assert_eq!(lowest_limit("4:memory:/\n0::/\n", read), None);
    assert_eq!(lowest_limit("", read), None);
}

fn default_config() -> Config {
    Config::load(&SettingSources::default()).expect("the defaults")
}

#[test]
fn budgets_are_made_to_fit_and_too_little_is_refused() {
    let budgets = |config: &Config| {
        let Config {
            publish,
            topic,
            journal,
            delivery,
            limits,
            ..
        } = config;
        let cache = journal.block_cache_bytes;
        let buffers = journal.write_buffer_bytes;
        let reads = limits.read_bytes;
        let compute = limits.compute_bytes;
        let sizes = [
            publish.bytes_in_flight,
            topic.recent_events_bytes,
            cache,
            buffers,
            reads,
            compute,
        ];
        (sizes, delivery.bytes_in_flight)
    };
    let whole = budgets(&default_config());
    let mut last = ([0; 6], 0);
    for mib in [112, 128, 160, 256, 384, 512, 4096] {
        let mut config = default_config();
        fit_budgets(&mut config, mib * MIB).expect("it fits");
        let now = budgets(&config);
        let sum: usize = now.0.iter().sum::<usize>() + now.1;
        assert!((sum as u64) < mib * MIB, "{now:?} in {mib} MiB");
        assert!(
            now.0.iter().zip(last.0).all(|(now, last)| *now >= last) && now.1 >= last.1,
            "more room is more"
        );
        assert!(
            now.0.iter().zip(whole.0).all(|(now, whole)| *now <= whole),
            "never more than was asked for"
        );
        assert!(
            config.publish.bytes_in_flight >= config.publish.request_bytes,
            "the largest request is taken"
        );
        if mib == 512 {
            assert_eq!(
                now.0, whole.0,
                "bodies in flight beyond the first give way before anything else"
            );
            assert!((16 << 20..whole.1).contains(&now.1), "{now:?}");
        }
        last = now;
    }
    assert_eq!(last, whole, "where there is room nothing is changed");
    let error = fit_budgets(&mut default_config(), 64 * MIB)
        .expect_err("too little")
        .to_string();
    assert!(
        error.contains("64.0 MiB") && error.contains("MemoryMax="),
        "{error}"
    );
}

#[test]
fn the_cores_of_a_process_have_no_more_than_its_budgets_together() {
    let whole = default_config();
    for shards in [2, 4] {
        let mut part = default_config();
        divide_budgets(&mut part, shards);
        assert_eq!(
            part.publish.bytes_in_flight,
            whole.publish.bytes_in_flight / shards
        );
        // The control plane has a store, and serves reads.
        let cores = shards + 1;
        assert!(cores * part.journal.block_cache_bytes <= whole.journal.block_cache_bytes);
        assert!(cores * part.journal.write_buffer_bytes <= whole.journal.write_buffer_bytes);
        assert!(cores * part.limits.read_bytes <= whole.limits.read_bytes);
        assert_eq!(
            part.limits.compute_bytes, whole.limits.compute_bytes,
            "the cores compute on the same threads, with the same memory"
        );
    }
}

/// A control group with a limit of memory, of whichever version the machine has.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> Self {
        let name = format!("gridhook-test-{}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, file) in kinds {
            let group = Path::new(root).join(&name);
            let there =
                Path::new(root).join("cgroup.procs").exists() && fs::create_dir(&group).is_ok();
            if there && fs::write(group.join(file), bytes.to_string()).is_ok() {
                // Nothing may go to a swap instead.
                fs::write(group.join("memory.swappiness"), "0").ok();
                return Self(group);
            }
        }
        panic!("no control group can be made here: run the test as root, or leave it out by name");
    }

    fn procs(&self) -> String {
        self.0.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).ok();
    }
}

#[test]
fn in_a_small_control_group_large_events_for_a_dead_endpoint_do_not_end_the_server() {
    let group = Group::new(160 * MIB);
    let sink = Sink::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::with_data_dir(
        &folder.path().join("data"),
        &[("DELIVERY__RESPONSE_TIMEOUT", "2s")],
    );
    server.run_under(&[
        "sh",
        "-c",
        &format!("echo $$ > {} && exec \"$@\"", group.procs()),
        "--",
    ]);
    server.restart();
    assert!(
        server.logs().contains("reduced to fit"),
        "it is logged: {}",
        server.logs()
    );
    let key = server.topic("orders", "EventGridSchema");
    for hook in ["hang", "dead"] {
        server.subscribe(
            "orders",
            hook,
            &SubscriptionSpec::new(&sink.url(&format!("/{hook}"))),
        );
    }
    sink.set("/hang", Behavior::Hang);
    sink.set("/dead", Behavior::Dead);
    const EVENTS: usize = 200;
    let mut client = server.client();
    let path = events_path("orders");
    let mut taken = 0;
    wait_for("all events to be taken", 10 * LONG, || {
        let body = json!([{
            "id": taken.to_string(), "subject": "/a", "eventType": "t", "eventTime": "2026-01-01T00:00:00Z",
            "dataVersion": "1", "data": {"text": "x".repeat(1_000_000)},
        }]);
        let response = client.ask(
            "POST",
            &path,
            &[("aeg-sas-key", &key)],
            body.to_string().as_bytes(),
        );
        let response = response.expect("the server answers");
        assert!([200, 503].contains(&response.status), "{}", response.text());
        taken += usize::from(response.status == 200);
        taken == EVENTS
    });
    sink.set("/hang", Behavior::Respond(200));
    sink.set("/dead", Behavior::Respond(200));
    for hook in ["hang", "dead"] {
        wait_for("the backlog to be delivered", 10 * LONG, || {
            sink.taken(&format!("/{hook}")) == EVENTS
        });
    }
    println!("{} MiB were resident at most", server.most_resident() / MIB);
    server.terminate();
}

/// The sizing table of the manual with the settings of the test below, in MiB: bodies of publishers
/// as received and as stored, recent events, events read and not sent, bodies in flight, computing
/// with the memory of one thread, the store, and readers of `tail`.
const BUDGETS: u64 = (2 * 16 + 8 + 16 + 32 + (32 + 32) + (8 + 8) + 8) * MIB;

/// An event of a megabyte.
fn large_event(id: usize) -> Value {
    json!([{
        "id": id.to_string(), "subject": "/a", "eventType": "t", "eventTime": "2026-01-01T00:00:00Z",
        "dataVersion": "1", "data": {"text": format!("{id} {}", "x".repeat(1_000_000))},
    }])
}

/// An endpoint that accepts connections and reads nothing.
fn silent_endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let connections: Vec<_> = listener.incoming().collect();
        drop(connections);
    });
    at
}

/// Connections that have sent nearly all of a large body, as many as the server has memory for.
fn stalled_publishers(server: &Server, key: &str) -> Vec<TcpStream> {
    let body = large_event(0).to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\naeg-sas-key: {key}\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n",
        events_path("orders"),
        body.len()
    );
    let mut stalled = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("it is set");
        // A server that refuses may close before it has read all.
        let is_sent = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&body.as_bytes()[1..]));
        let mut status = [0; 12];
        if is_sent.is_err() || stream.read_exact(&mut status).is_ok() {
            break;
        }
        stalled.push(stream);
    }
    stalled
}

#[test]
fn with_all_budgets_full_memory_stays_below_their_sum() {
    let server = Server::start(&[
        ("DELIVERY__VALIDATE", "false"),
        ("PUBLISH__BYTES_IN_FLIGHT", "16MiB"),
        ("TOPIC__RECENT_EVENTS_BYTES", "8MiB"),
        ("LIMITS__READ_BYTES", "16MiB"),
        ("DELIVERY__BYTES_IN_FLIGHT", "32MiB"),
        ("LIMITS__COMPUTE_BYTES", "32MiB"),
        ("LIMITS__COMPUTE_THREADS", "1"),
        ("JOURNAL__WRITE_BUFFER_BYTES", "8MiB"),
        ("JOURNAL__BLOCK_CACHE_BYTES", "8MiB"),
    ]);
    let endpoint = silent_endpoint();
    let key = server.topic("orders", "EventGridSchema");
    let hooks: Vec<String> = (0..20).map(|number| format!("hook-{number}")).collect();
    for hook in &hooks {
        // Each sends other bodies, of which none can be shared.
        let transform = json!({"body": format!("['{hook}', @]")});
        let spec = SubscriptionSpec::new(&format!("http://{endpoint}/{hook}"));
        server.subscribe(
            "orders",
            hook,
            &spec.also(&json!({}), &json!({"transform": transform})),
        );
    }
    let before = server.resident();
    let token = fs::read_to_string(server.data_dir().join("admin-token")).expect("a token");
    let tail = TcpStream::connect(server.address()).expect("a connection");
    let request = format!(
        "GET /tail HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    (&tail).write_all(request.as_bytes()).expect("it is sent");
    for id in 0..40 {
        server.publish("orders", &key, large_event(id).to_string().as_bytes());
    }
    let in_flight = || -> u64 {
        hooks
            .iter()
            .filter_map(|hook| server.status("orders", hook)["inFlight"].as_u64())
            .sum()
    };
    wait_for("the bodies in flight", LONG, || in_flight() >= 24);
    let stalled = stalled_publishers(&server, &key);
    assert!(stalled.len() < 64, "publishers are refused at the limit");
    let path = format!("{}/testTransform", subscription("orders", &hooks[0]));
    let texts = json!({"last": 40, "transform": {"body": "data.text"}});
    let results = thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server.admin("POST", &path, &texts).status))
            .collect();
        asked
            .into_iter()
            .map(|asked| asked.join().expect("a response"))
            .collect::<Vec<_>>()
    });
    assert!(
        results.iter().all(|status| [400, 503].contains(status)),
        "their memory is bounded: {results:?}"
    );
    let grown = server.most_resident().saturating_sub(before);
    println!(
        "{} of {} MiB, {} bodies in flight",
        grown / MIB,
        BUDGETS / MIB,
        in_flight()
    );
    assert!(grown < BUDGETS, "{} of {} MiB", grown / MIB, BUDGETS / MIB);
}
