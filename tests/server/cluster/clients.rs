//! Clients that work while nodes are killed, paused and cut off, and what they were promised.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::{
    http::{Client, Response},
    load,
    server::{Server, events_path},
};

/// The shortest lock that the control plane allows. Longer than most tests wait.
pub(super) const LOCK: Duration = Duration::from_secs(60);

/// The pause of a client after a response that is no success.
const PAUSE: Duration = Duration::from_millis(20);

const HEAT: &str = "/namespaces/plant/topics/heat";

/// A topic that stores an event once, however often it is published.
pub(super) fn topic_without_duplicates(server: &Server, name: &str) -> String {
    let window =
        json!({"inputSchema": "EventGridSchema", "duplicateDetectionHistoryTimeWindow": "PT1H"});
    server.topic_of(name, &window)
}

/// Clients that work until they are stopped. They call the nodes through a balancer, as they would
/// be called in production.
pub(super) struct Clients {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            is_over: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Calls `turn` again and again.
    pub(super) fn add(
        &mut self,
        at: SocketAddr,
        mut turn: impl FnMut(&mut Caller) + Send + 'static,
    ) {
        let is_over = Arc::clone(&self.is_over);
        self.threads.push(thread::spawn(move || {
            let mut caller = Caller {
                client: Client::new(at),
                is_over,
            };
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

/// A client that repeats a request until it succeeds.
pub(super) struct Caller {
    client: Client,
    is_over: Arc<AtomicBool>,
}

impl Caller {
    /// A client that is never stopped.
    pub(super) fn new(at: SocketAddr) -> Self {
        Self {
            client: Client::new(at),
            is_over: Arc::default(),
        }
    }

    /// The response and the number of attempts; none if it was stopped before.
    pub(super) fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<(Response, u32)> {
        for attempt in 1.. {
            match self.client.ask("POST", path, headers, body) {
                Ok(response) if response.status == 200 => return Some((response, attempt)),
                Ok(response) => assert!(
                    response.status >= 500,
                    "{}: {}",
                    response.status,
                    response.text()
                ),
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

/// The acknowledged events, and the time of each request until it succeeded.
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
    let shared = Arc::clone(&published);
    let path = events_path(topic);
    let key = key.to_owned();
    let mut request = 0;
    clients.add(at, move |caller| {
        let ids: Vec<String> = (0..5)
            .map(|event| format!("{subject}-{publisher}-{request}-{event}"))
            .collect();
        request += 1;
        let began = Instant::now();
        if caller
            .post(&path, &[("aeg-sas-key", &key)], &load::body(&ids, subject))
            .is_some()
        {
            let mut published = shared.lock();
            published.longest = published.longest.max(began.elapsed());
            published.ids.extend(ids);
        }
        thread::sleep(PAUSE);
    });
    published
}

/// The events that pull clients received and acknowledged.
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
            self.wrong
                .push(format!("{id} was received again after its acknowledgement"));
        }
        // A moment less than the lock, which began before the response.
        if self
            .held
            .insert(id.to_owned(), Instant::now())
            .is_some_and(|since| since.elapsed() < LOCK * 9 / 10)
        {
            self.wrong
                .push(format!("{id} was received while another client had it"));
        }
    }
}

/// Clients that publish to a topic of a namespace and others that receive from it and acknowledge.
pub(super) fn pulls(clients: &mut Clients, at: SocketAddr, key: &str) -> Arc<Mutex<Pulled>> {
    let pulled = Arc::<Mutex<Pulled>>::default();
    let authorization = format!("SharedAccessKey {key}");
    let shared = Arc::clone(&pulled);
    let shown = authorization.clone();
    let mut request = 0;
    clients.add(at, move |caller| {
        let ids: Vec<String> = (0..3).map(|event| format!("pulled-{request}-{event}")).collect();
        request += 1;
        let event = |id: &String| json!({"specversion": "1.0", "id": id, "source": "/oven", "type": "hot", "data": 1});
        let body = Value::Array(ids.iter().map(event).collect()).to_string();
        let headers =
            [("authorization", shown.as_str()), ("content-type", "application/cloudevents-batch+json; charset=utf-8")];
        // Once, because these topics store an event that is published again twice.
        if caller
            .client
            .ask("POST", &format!("{HEAT}:publish"), &headers, body.as_bytes())
            .is_ok_and(|response| response.status == 200)
        {
            shared.lock().published.extend(ids);
        }
        thread::sleep(2 * PAUSE);
    });
    for _ in 0..2 {
        let shared = Arc::clone(&pulled);
        let shown = authorization.clone();
        clients.add(at, move |caller| {
            let headers = [
                ("authorization", shown.as_str()),
                ("content-type", "application/json"),
            ];
            let of_queue = |verb: &str| format!("{HEAT}/eventsubscriptions/work:{verb}");
            let path = of_queue("receive?maxEvents=10&maxWaitTime=10");
            let Some((response, _)) = caller.post(&path, &headers, b"") else {
                return;
            };
            let received = response.json()["value"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let ids = received
                .iter()
                .map(|one| one["event"]["id"].as_str().expect("an id").to_owned());
            let ids: Vec<String> = ids.collect();
            ids.iter().for_each(|id| shared.lock().receive(id));
            let mut tokens: Vec<Value> = received
                .iter()
                .map(|one| one["brokerProperties"]["lockToken"].clone())
                .collect();
            let mut is_first = true;
            while !tokens.is_empty() {
                let body = json!({ "lockTokens": tokens }).to_string();
                let Some((response, attempts)) =
                    caller.post(&of_queue("acknowledge"), &headers, body.as_bytes())
                else {
                    return;
                };
                let failed = response.json()["failedLockTokens"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let (unknown, lost): (Vec<Value>, Vec<Value>) = failed
                    .into_iter()
                    .partition(|failed| failed["error"]["code"] == "InternalServerError");
                // An attempt without a response may have been the one that counts.
                if is_first && attempts == 1 && !lost.is_empty() {
                    shared
                        .lock()
                        .wrong
                        .push(format!("locks were lost: {lost:?}"));
                }
                tokens = unknown
                    .into_iter()
                    .map(|failed| failed["lockToken"].clone())
                    .collect();
                is_first = false;
            }
            let mut pulled = shared.lock();
            for id in ids {
                pulled.held.remove(&id);
                pulled.acknowledged.insert(id);
            }
        });
    }
    pulled
}
