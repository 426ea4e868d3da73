//! A server with its topics and subscriptions, and the cost of a load on it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    endpoint::Endpoint,
    load::{SUBJECT, Sent, TYPE, Target},
    time::now,
};
use crate::support::{
    certificates::Authority,
    process,
    server::{Server, SubscriptionSpec, events_path},
};

/// Outcomes wait for company before they are written; this is longer.
const SETTLES: Duration = Duration::from_millis(50);

/// The namespace of the topic that events are pulled from.
const NAMESPACE: &str =
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.EventGrid/namespaces/plant";

/// A server of the real binary, on the disk that the build is on.
pub(crate) struct Stage {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
    /// The authorities that publishers trust, for https.
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Stage {
    /// Starts a server with the defaults, except that endpoints are not validated and rates are not
    /// limited.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with further settings.
    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        Self::speaking(folder(), None, settings, &[])
    }

    /// Starts a server below this command.
    pub(crate) fn start_under(command: &[&str]) -> Self {
        Self::speaking(folder(), None, &[], command)
    }

    /// Starts a server with https, TLS 1.3 only.
    pub(crate) fn secure(authority: &Authority) -> Self {
        let folder = folder();
        authority.issue("127.0.0.1").write(folder.path(), "server");
        let [certificate, key] =
            ["server.crt", "server.key"].map(|name| folder.path().join(name).display().to_string());
        let settings = [
            ("SERVER__TLS_CERTIFICATE", certificate.as_str()),
            ("SERVER__TLS_KEY", &key),
            ("SERVER__TLS_MINIMUM_VERSION", "1.3"),
        ];
        Self::speaking(folder, Some(authority.client()), &settings, &[])
    }

    fn speaking(
        folder: tempfile::TempDir,
        tls: Option<Arc<rustls::ClientConfig>>,
        settings: &[(&str, &str)],
        under: &[&str],
    ) -> Self {
        let usual = [
            ("DELIVERY__VALIDATE", "false"),
            ("JOURNAL__BACKLOG_MAX", "64 GiB"),
        ];
        let settings = [&usual[..], settings].concat();
        let mut server = Server::with_data_dir(&folder.path().join("data"), &settings);
        if let Some(tls) = &tls {
            server.use_tls(Arc::clone(tls));
        }
        server.run_under(under);
        server.restart();
        Self {
            server,
            folder,
            tls,
        }
    }

    /// A topic that follows an edition.
    pub(crate) fn topic(&self, name: &str, edition: &str) -> Target {
        self.topic_with(
            name,
            &json!({"inputSchema": "EventGridSchema", "edition": edition}),
        )
    }

    /// A topic with these properties.
    pub(crate) fn topic_with(&self, name: &str, properties: &Value) -> Target {
        let key = self.server.topic_of(name, properties);
        Target {
            at: self.server.address(),
            path: events_path(name),
            key,
            tls: self.tls.clone(),
        }
    }

    /// A subscription with the filter that most have: a type, and what the subject begins with.
    pub(crate) fn subscribe(
        &self,
        topic: &str,
        name: &str,
        url: &str,
        spec: impl FnOnce(SubscriptionSpec) -> SubscriptionSpec,
    ) {
        let usual = SubscriptionSpec::new(url).types(&[TYPE]).prefix(SUBJECT);
        self.server.subscribe(topic, name, &spec(usual));
    }

    /// A topic of a namespace with these queues.
    pub(crate) fn queues(&self, of: &[(&str, &str)]) -> Target {
        Target {
            tls: self.tls.clone(),
            ..queues(&self.server, &json!({}), of)
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The size of the server's data on disk, in bytes.
    pub(crate) fn on_disk(&self) -> u64 {
        let mut folders: Vec<PathBuf> = vec![self.server.data_dir()];
        let mut bytes = 0;
        while let Some(folder) = folders.pop() {
            // Files come and go while this looks.
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                    Ok(metadata) => bytes += metadata.len(),
                    Err(_) => {}
                }
            }
        }
        bytes
    }
}

/// A topic of a namespace with these queues, each with the type that it is for: where its
/// operations are, and its key.
pub(crate) fn queues(server: &Server, topic: &Value, queues: &[(&str, &str)]) -> Target {
    server.command("PUT", NAMESPACE, &json!({"location": "local"}));
    server.command("PUT", &format!("{NAMESPACE}/topics/heat"), topic);
    for (name, kind) in queues {
        let properties = json!({
            "deliveryConfiguration": {"deliveryMode": "Queue", "queue": {}},
            "filtersConfiguration": {"includedEventTypes": [kind]},
        });
        let place = format!("{NAMESPACE}/topics/heat/eventSubscriptions/{name}");
        server.command("PUT", &place, &json!({"properties": properties}));
    }
    let keys = server
        .command("POST", &format!("{NAMESPACE}/listKeys"), &Value::Null)
        .json();
    let key = keys["key1"].as_str().expect("a key").to_owned();
    Target {
        at: server.address(),
        path: "/namespaces/plant/topics/heat".to_owned(),
        key,
        tls: None,
    }
}

/// A folder on the disk that the build is on.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

/// The cost of a load.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) sent: Sent,
    /// The number of events that arrived.
    pub(crate) arrived: u64,
    /// The number of requests in which they arrived.
    pub(crate) requests: u64,
    /// The time until the last event arrived.
    pub(crate) took: Duration,
    /// Processor time of the measured process.
    pub(crate) processor: Duration,
    /// Bytes that the process had the disk write.
    pub(crate) written: Option<u64>,
    /// Flushes of the disk's cache, by any process.
    pub(crate) syncs: Option<u64>,
}

impl Cost {
    /// Measures what `load` costs a process. Each event of it arrives `times` times.
    pub(crate) fn measure(
        process: u32,
        endpoint: &Endpoint,
        times: u64,
        load: impl FnOnce() -> Sent,
    ) -> Self {
        Self::measure_all(&[process], endpoint, times, load)
    }

    /// Measures what `load` costs several processes together.
    pub(crate) fn measure_all(
        processes: &[u32],
        endpoint: &Endpoint,
        times: u64,
        load: impl FnOnce() -> Sent,
    ) -> Self {
        let before = Reading::take(processes);
        let events = endpoint.events();
        let requests = endpoint.requests();
        let began = now();
        let sent = load();
        endpoint.wait_for(events + sent.events * times);
        thread::sleep(SETTLES);
        let after = Reading::take(processes);
        let since = |(after, before): (u64, u64)| after.saturating_sub(before);
        Self {
            sent,
            arrived: endpoint.events() - events,
            requests: endpoint.requests() - requests,
            took: Duration::from_nanos(endpoint.last().saturating_sub(began)),
            processor: after.processor.saturating_sub(before.processor),
            written: after.written.zip(before.written).map(since),
            syncs: after.syncs.zip(before.syncs).map(since),
        }
    }

    /// Microseconds of processor time for each event that arrived.
    pub(crate) fn each(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.arrived as f64
    }

    /// Events that arrived in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.arrived as f64 / self.took.as_secs_f64()
    }

    pub(crate) fn beside(&self) -> Vec<(String, f64)> {
        let mut beside = vec![
            ("events/s".to_owned(), self.rate()),
            (
                "events a request".to_owned(),
                self.arrived as f64 / self.requests.max(1) as f64,
            ),
            (
                "ms to an answer, p50".to_owned(),
                self.sent.answers.value_at_quantile(0.5) as f64 / 1e6,
            ),
            (
                "ms to an answer, p99".to_owned(),
                self.sent.answers.value_at_quantile(0.99) as f64 / 1e6,
            ),
        ];
        let events = self.sent.events.max(1) as f64;
        beside.extend(
            self.written
                .map(|bytes| ("disk bytes an event".to_owned(), bytes as f64 / events)),
        );
        beside.extend(
            self.syncs
                .map(|syncs| ("syncs/s".to_owned(), syncs as f64 / self.took.as_secs_f64())),
        );
        beside
    }
}

struct Reading {
    processor: Duration,
    written: Option<u64>,
    syncs: Option<u64>,
}

impl Reading {
    fn take(processes: &[u32]) -> Self {
        let processor = processes.iter().map(|id| process::processor(*id)).sum();
        let written = processes.iter().map(|id| process::written(*id)).sum();
        Self {
            processor,
            written,
            syncs: syncs(),
        }
    }
}

/// The cache flushes of all disks that are devices since the system started, where it counts them.
fn syncs() -> Option<u64> {
    let disks = fs::read_dir("/sys/block")
        .ok()?
        .flatten()
        .filter(|disk| disk.path().join("device").exists());
    let flushes = disks.filter_map(|disk| {
        let stat = fs::read_to_string(disk.path().join("stat")).ok()?;
        stat.split_whitespace().nth(15)?.parse::<u64>().ok()
    });
    Some(flushes.sum()).filter(|flushes| *flushes > 0)
}
