//! Backups of a server under load are consistent, and are restored.

use std::{fs, path::Path, thread, time::Duration};

use serde_json::{Value, json};

use super::{LONG, many, wait_until_settled};
use crate::support::{
    cloud::Cloud,
    disk::Mount,
    load::{self, Load, Rate},
    needs,
    server::{self, Server, SubscriptionSpec, wait_for},
    sink::{Behavior, Sink},
};

/// A server with three subscriptions: one whose endpoint is well, one whose endpoint fails every
/// other time and gives up, and one that is held.
fn busy(sink: &Sink) -> (Server, Load) {
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "well", &SubscriptionSpec::new(&sink.url("/well")));
    server.subscribe(
        "orders",
        "ill",
        &SubscriptionSpec::new(&sink.url("/ill"))
            .attempts(3)
            .dead_letters("ill"),
    );
    server.subscribe("orders", "held", &SubscriptionSpec::new(&sink.url("/held")));
    server.post_verb("orders", "held", "hold");
    sink.set("/ill", Behavior::Respond(503));
    let pause = Duration::from_millis(5);
    let rate = Rate {
        topic: "orders".to_owned(),
        key,
        publishers: 3,
        events_per_request: 10,
        pause,
    };
    let load = Load::start(server.address(), &rate);
    (server, load)
}

#[test]
fn events_acknowledged_before_a_backup_under_load_are_in_it() {
    let sink = Sink::start();
    let (mut server, load) = busy(&sink);
    let mut backups = Vec::new();
    let beside = tempfile::tempdir().expect("a folder");
    for round in 0..many(3, 20) {
        thread::sleep(Duration::from_millis(300));
        let acknowledged = load.so_far();
        let folder = beside.path().join(round.to_string());
        let (status, reported) = server.say(&["backup", folder.to_str().expect("text")]);
        assert!(
            status.success() && reported.contains("\nthe store is sound\nbacked up to "),
            "{reported}"
        );
        let meanwhile = load.acknowledged() - acknowledged.len();
        println!(
            "backup {round}: {} events acknowledged before it, {meanwhile} meanwhile",
            acknowledged.len()
        );
        assert!(meanwhile > 0, "publishers went on");
        backups.push((folder, acknowledged));
    }
    load.stop();
    server.terminate();
    server.assert_sound();
    sink.set("/ill", Behavior::Respond(200));
    let data_dir = server.data_dir();
    for (folder, acknowledged) in backups {
        let from = folder.to_str().expect("text");
        let (status, reported) = server::fsck(&folder);
        assert!(
            status.success(),
            "a backup is looked at as it stands: {reported}"
        );
        fs::remove_dir_all(&data_dir).expect("the disk is lost");
        let (status, reported) = server::say(&[
            "restore",
            from,
            "--data-dir",
            data_dir.to_str().expect("text"),
        ]);
        assert!(
            status.success() && reported.contains("\nthe store is sound\nrestored to "),
            "{reported}"
        );
        server.restart();
        server.post_verb("orders", "held", "resume");
        for name in ["well", "ill", "held"] {
            if server.status("orders", name)["health"]["state"] == "suspended" {
                server.post_verb_status("orders", name, "release");
            }
        }
        for name in ["well", "held"] {
            wait_until_settled(&server, "orders", name);
        }
        wait_for(
            "all that is pending to arrive or to be given up",
            LONG,
            || {
                server.post_verb_status("orders", "ill", "release");
                let status = server.status("orders", "ill");
                status["backlog"] == 0 && status["counters"]["pending"] == 0
            },
        );
        for path in ["/well", "/held"] {
            sink.look(path, |ledger| {
                let missing: Vec<_> = acknowledged
                    .iter()
                    .filter(|id| !ledger.contains_key(*id))
                    .collect();
                assert!(
                    missing.is_empty(),
                    "{path}: {} of {} are missing",
                    missing.len(),
                    acknowledged.len()
                );
            });
        }
        for name in ["well", "ill", "held"] {
            let counters = server.status("orders", name)["counters"].clone();
            let count = |counter: &str| counters[counter].as_u64().expect("a number");
            assert!(
                count("matched") >= acknowledged.len() as u64,
                "{name}: {counters}"
            );
            assert_eq!(
                count("matched"),
                count("delivered") + count("deadLettered"),
                "{name}: {counters}"
            );
        }
        server.terminate();
        server.assert_sound();
    }
}

/// A settings file for commands without a server.
fn settings_file(folder: &Path, settings: &[(String, String)]) -> String {
    let line = |(name, value): &(String, String)| {
        let key = name
            .strip_prefix("BACKUP__")?
            .to_lowercase()
            .replace("__", ".");
        let is_plain = value == "true" || value.parse::<u64>().is_ok();
        Some(if is_plain {
            format!("{key} = {value}\n")
        } else {
            format!("{key} = {value:?}\n")
        })
    };
    let path = folder.join("backup.toml");
    fs::write(
        &path,
        format!(
            "[backup]\n{}",
            settings.iter().filter_map(line).collect::<String>()
        ),
    )
    .expect("written");
    path.to_str().expect("text").to_owned()
}

fn start_with(settings: &[(String, String)]) -> Server {
    let settings: Vec<_> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    Server::start(&settings)
}

fn settings(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter()
        .map(|(name, value)| (format!("BACKUP__{name}"), (*value).to_owned()))
        .collect()
}

fn listed(config: &str) -> Vec<Value> {
    let (status, reported) =
        server::say(&["backup", "list", "--config", config, "--output", "json"]);
    assert!(status.success(), "{reported}");
    let list: Value = serde_json::from_str(&reported).expect("JSON");
    list["value"].as_array().expect("a list").clone()
}

fn metric(server: &Server, name: &str) -> f64 {
    let response = server.admin("GET", "/metrics", &Value::Null).text();
    let line = response
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    line.unwrap_or(f64::NAN)
}

#[test]
fn the_backups_of_a_cluster_are_read_by_shard() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let settings = format!(
        r#"
        [server]
        admin_token = "a-token-that-all-nodes-of-the-cluster-have"
        [cluster]
        engine = "nats"
        node = "a"
        urls = ["nats://127.0.0.1:4222"]
        durability = "unchecked"
        node_listen = "127.0.0.1:8082"
        secret_file = "{}"
        shards = 3
        [backup.store]
        url = "file://{}"
        "#,
        path("secret"),
        path("backups"),
    );
    fs::create_dir_all(folder.path().join("backups/shard-1")).expect("a folder");
    fs::write(path("gridhook.toml"), settings).expect("settings");
    let config = path("gridhook.toml");
    for command in ["list", "rehearse"] {
        let (status, reported) = server::say(&["backup", command, "--config", &config]);
        let where_they_are = format!(
            "give one of file://{0}/shard-0 to file://{0}/shard-3 as the address",
            path("backups")
        );
        assert!(!status.success(), "{reported}");
        assert!(reported.contains(&where_they_are), "{reported}");
    }
    let shard = format!("file://{}/shard-1", path("backups"));
    let (status, reported) = server::say(&["backup", "list", &shard, "--config", &config]);
    assert!(status.success(), "{reported}");
}

/// Restores the newest backup and starts a server with it, which then delivers everything of
/// `acknowledged` to `/well`.
fn assert_comes_back(server: Server, config: &str, sink: &Sink, acknowledged: &[String]) {
    // Only one server of the tests runs at a time.
    drop(server);
    let back = tempfile::tempdir().expect("a folder");
    let data_dir = back.path().join("data");
    let url = listed_url(config);
    let folder = data_dir.to_str().expect("text");
    let (status, reported) =
        server::say(&["restore", &url, "--config", config, "--data-dir", folder]);
    assert!(
        status.success() && reported.contains("\nthe store is sound\nrestored to "),
        "{reported}"
    );
    let mut server = Server::with_data_dir(&data_dir, &[]);
    server.restart();
    sink.set("/well", Behavior::Respond(200));
    wait_for("every event to arrive", LONG, || {
        if server.status("orders", "well")["health"]["state"] == "suspended" {
            server.post_verb_status("orders", "well", "release");
        }
        sink.look("/well", |ledger| {
            acknowledged.iter().all(|id| ledger.contains_key(id))
        })
    });
    server.terminate();
    server.assert_sound();
}

#[test]
fn a_backup_in_a_folder_is_rehearsed() {
    let server = Server::start(&[]);
    let key = server.topic("orders", "EventGridSchema");
    server.publish("orders", &key, &load::body(&["1".to_owned()], "/a"));
    let beside = tempfile::tempdir().expect("a folder");
    let folder = beside.path().join("monday");
    let folder = folder.to_str().expect("text");
    let (status, reported) = server.say(&["backup", folder]);
    assert!(status.success(), "{reported}");
    let parent = beside.path().to_str().expect("text");
    for place in [&[folder][..], &[parent], &[parent, "--name", folder]] {
        let (status, reported) = server::say(&[&["backup", "rehearse"], place].concat());
        assert!(
            status.success() && reported.contains(&format!("\nrehearsed {folder}: ")),
            "{place:?}: {reported}"
        );
    }
    let damaged = beside.path().join("damaged");
    fs::create_dir(&damaged).expect("a folder");
    fs::write(damaged.join("backup.json"), "{").expect("a manifest");
    let (status, reported) = server::say(&["backup", "rehearse", parent]);
    assert!(
        status.success() && reported.contains("damaged cannot be read: "),
        "{reported}"
    );
    let damaged = damaged.to_str().expect("text");
    let (status, reported) = server::say(&["backup", "rehearse", parent, "--name", damaged]);
    assert!(
        !status.success() && reported.contains("whose manifest cannot be read: "),
        "{reported}"
    );
    let (status, reported) = server::say(&["backup", "rehearse", parent, "--name", "tuesday"]);
    assert!(
        !status.success() && reported.contains("has no backup tuesday"),
        "{reported}"
    );
}

fn listed_url(config: &str) -> String {
    let text = fs::read_to_string(config).expect("settings");
    let url = text
        .lines()
        .find_map(|line| line.strip_prefix("store.url = "));
    url.expect("an address").trim_matches('"').to_owned()
}

#[test]
fn scheduled_backups_survive_kills_in_their_middle_and_the_last_one_has_what_was_acknowledged() {
    let sink = Sink::start();
    let beside = tempfile::tempdir().expect("a folder");
    sink.set("/well", Behavior::Respond(503));
    let key = beside.path().join("key");
    fs::write(&key, "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=\n").expect("written");
    let url = format!("file://{}", beside.path().join("backups").display());
    let settings = settings(&[
        ("STORE__URL", &url),
        ("SCHEDULE", "1s"),
        ("KEEP", "3"),
        ("KEEP_FOR", "0s"),
        ("KEY_FILE", key.to_str().expect("text")),
    ]);
    let config = settings_file(beside.path(), &settings);
    let mut server = start_with(&settings);
    let publisher = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "well", &SubscriptionSpec::new(&sink.url("/well")));
    wait_for("the first backup", LONG, || {
        metric(&server, "gridhook_backup_duration_seconds") > 0.0
    });
    let mut acknowledged = Vec::new();
    let mut dice = fastrand::Rng::with_seed(19);
    for round in 0..many(6, 60) {
        let ids: Vec<_> = (0..200).map(|event| format!("{round}-{event}")).collect();
        server.publish("orders", &publisher, &load::body(&ids, "/a"));
        acknowledged.extend(ids);
        thread::sleep(Duration::from_millis(dice.u64(0..50)));
        if round % 2 == 0 {
            let asked = server.admin("POST", "/store/backup", &json!({}));
            assert!([200, 409].contains(&asked.status), "{}", asked.text());
        }
        server.kill_9();
        let found = listed(&config);
        assert!(
            !found.is_empty()
                && found
                    .iter()
                    .all(|backup| backup["sound"] == true && backup["encrypted"] == true)
        );
        let (status, reported) = server::say(&[
            "backup",
            "rehearse",
            "--config",
            &config,
            "--scratch",
            beside.path().to_str().expect("text"),
            "--data-dir",
            server.data_dir().to_str().expect("text"),
        ]);
        assert!(
            status.success() && reported.contains("the store is sound\nrehearsed "),
            "{reported}"
        );
        assert!(
            reported.contains("a restore would lose ") && reported.contains(" changes of "),
            "{reported}"
        );
        server.restart();
    }
    let last_success = || metric(&server, "gridhook_backup_last_success_timestamp_seconds");
    // A server that has just started has not listed the destination yet, and has no such metric.
    wait_for("the newest backup", LONG, || !last_success().is_nan());
    let before = last_success();
    wait_for("a backup of all", LONG, || last_success() > before + 1.0);
    assert_eq!(metric(&server, "gridhook_backup_interval_seconds"), 1.0);
    assert_eq!(metric(&server, "gridhook_backup_failures_total"), 0.0);
    assert!(
        metric(&server, "gridhook_backup_written_bytes") < metric(&server, "gridhook_backup_bytes")
    );
    server.kill_9();
    assert!((1..=4).contains(&listed(&config).len()));
    assert!(
        fs::read_dir(beside.path()).expect("a folder").count() == 3,
        "a rehearsal leaves nothing"
    );
    assert_comes_back(server, &config, &sink, &acknowledged);
}

#[test]
fn a_full_or_absent_destination_is_reported_and_changes_nothing_else() {
    let Some(disk) = Mount::tmpfs(32) else { return };
    let beside = tempfile::tempdir().expect("a folder");
    let failures = "gridhook_backup_failures_total";
    for (folder, problem) in [
        (disk.path().join("backups"), "MiB of free space"),
        (beside.path().join("away/backups"), "there is no folder"),
    ] {
        let url = format!("file://{}", folder.display());
        let mut server = start_with(&settings(&[("STORE__URL", &url), ("SCHEDULE", "1s")]));
        wait_for("two failures", LONG, || metric(&server, failures) >= 2.0);
        assert!(metric(&server, "gridhook_backup_last_success_timestamp_seconds").is_nan());
        assert_eq!(
            server.request_without_token("GET", "/readyz", &[]).status,
            200
        );
        let log = server.logs();
        assert!(
            log.contains("backup failed") && log.contains(problem),
            "{log}"
        );
        let (status, reported) = server.say(&["backup"]);
        assert!(
            !status.success() && reported.contains(problem),
            "{reported}"
        );
        if problem == "there is no folder" {
            fs::create_dir(beside.path().join("away")).expect("made");
            wait_for("a backup", LONG, || {
                metric(&server, "gridhook_backup_last_success_timestamp_seconds") > 0.0
            });
        }
        server.terminate();
        server.assert_sound();
    }
    let server = Server::start(&[]);
    let (status, reported) = server.say(&["backup"]);
    assert!(
        !status.success()
            && reported.contains(
                "folder is missing; expected a folder, or none if backup.store.url is set"
            ),
        "{reported}"
    );
    assert!(
        metric(&server, failures).is_nan(),
        "without a destination there is no metric"
    );
}

#[test]
fn azure_blob_storage_has_backups_that_come_back() {
    if !needs::node() {
        return;
    }
    let (cloud, sink) = (
        Cloud::start("https://devstoreaccount1.blob.core.windows.net/letters/kept"),
        Sink::start(),
    );
    let all = cloud
        .settings()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("ACCOUNTS"));
    let all: Vec<_> = all
        .map(|(name, value)| {
            (
                name.replace("DEAD_LETTER__STORES__CLOUD", "BACKUP__STORE"),
                value,
            )
        })
        .collect();
    let beside = tempfile::tempdir().expect("a folder");
    let config = settings_file(beside.path(), &all);
    sink.set("/well", Behavior::Respond(503));
    let mut server = start_with(&all);
    let key = server.topic("orders", "EventGridSchema");
    server.subscribe("orders", "well", &SubscriptionSpec::new(&sink.url("/well")));
    let mut acknowledged = Vec::new();
    for round in 0..2 {
        let ids: Vec<_> = (0..50).map(|event| format!("{round}-{event}")).collect();
        server.publish("orders", &key, &load::body(&ids, "/a"));
        acknowledged.extend(ids);
        let (status, reported) = server.say(&["backup"]);
        assert!(
            status.success() && reported.contains("the store is sound\nbacked up to https://"),
            "{reported}"
        );
    }
    assert_eq!(listed(&config).len(), 2);
    server.terminate();
    assert_comes_back(server, &config, &sink, &acknowledged);
}

#[test]
fn a_running_server_looks_at_its_own_store() {
    let sink = Sink::start();
    let (server, load) = busy(&sink);
    wait_for("something to be pending", LONG, || {
        server.counter("orders", "ill", "pending") > 20
    });
    for round in 0..many(3, 50) {
        let (status, reported) = server.say(&["fsck", "--online"]);
        assert!(
            status.success() && reported.ends_with("\nthe store is sound\n"),
            "round {round}: {reported}"
        );
    }
    let (status, reported) = server.say(&["fsck", "--online", "--output", "json"]);
    let report: Value = serde_json::from_str(&reported).expect("JSON");
    assert!(
        status.success() && report["counts"]["cursors"] == 3,
        "{reported}"
    );
    load.stop();
    let none = server.admin(
        "POST",
        "/store/backup",
        &serde_json::json!({"folder": "relative"}),
    );
    assert!(
        none.status == 400 && none.text().contains("is not an absolute path"),
        "{}",
        none.text()
    );
    let (status, reported) = server.say(&[
        "backup",
        server.data_dir().join("inside").to_str().expect("text"),
    ]);
    assert!(
        !status.success() && reported.contains("is in the data folder"),
        "{reported}"
    );
    let stranger = server.request_without_token(
        "POST",
        "/store/check",
        &[("authorization", "Bearer guessed")],
    );
    assert_eq!(stranger.status, 401);
}
