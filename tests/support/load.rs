//! Publishers under constant load, which remember what was acknowledged.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    http::{Client, Response},
    server::events_path,
};

pub(crate) const TYPE: &str = "Load.Event";

/// A topic to publish to, its key, and the rate.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    pub(crate) topic: String,
    pub(crate) key: String,
    pub(crate) publishers: usize,
    pub(crate) events_per_request: usize,
    pub(crate) pause: Duration,
}

struct LoadState {
    at: Mutex<SocketAddr>,
    acknowledged: Mutex<Vec<String>>,
    stop: AtomicBool,
}

/// Publishers that send until they are stopped.
pub(crate) struct Load {
    shared: Arc<LoadState>,
    publishers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Sets publishers to work on the server at `at`. A request that did not succeed is never
    /// repeated: its events may arrive or not, and nothing is asked of them.
    pub(crate) fn start(at: SocketAddr, rate: &Rate) -> Self {
        let shared = Arc::new(LoadState {
            at: Mutex::new(at),
            acknowledged: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let publishers = (0..rate.publishers).map(|number| {
            let shared = Arc::clone(&shared);
            let rate = rate.clone();
            thread::spawn(move || shared.publish(number, &rate))
        });
        Self {
            publishers: publishers.collect(),
            shared,
        }
    }

    /// The server listens elsewhere now.
    pub(crate) fn turn_to(&self, at: SocketAddr) {
        *self.shared.at.lock() = at;
    }

    /// The number of events that were acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.shared.acknowledged.lock().len()
    }

    /// The ids of all events that were acknowledged by now.
    pub(crate) fn so_far(&self) -> Vec<String> {
        self.shared.acknowledged.lock().clone()
    }

    /// Waits for all publishers, and returns the ids of all events that were acknowledged.
    pub(crate) fn stop(self) -> Vec<String> {
        self.shared.stop.store(true, Ordering::SeqCst);
        for publisher in self.publishers {
            publisher.join().expect("a publisher does not panic");
        }
        std::mem::take(&mut self.shared.acknowledged.lock())
    }
}

impl LoadState {
    fn publish(&self, publisher: usize, rate: &Rate) {
        let path = events_path(&rate.topic);
        let mut client = Client::new(*self.at.lock());
        for request in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let at = *self.at.lock();
            if client.address() != at {
                client = Client::new(at);
            }
            let ids: Vec<String> = (0..rate.events_per_request)
                .map(|event| format!("{publisher}-{request}-{event}"))
                .collect();
            let body = body(&ids, "/load");
            match client.ask("POST", &path, &[("aeg-sas-key", &rate.key)], &body) {
                Ok(response) if response.status == 200 && is_of_gridhook(&response) => {
                    self.acknowledged.lock().extend(ids);
                }
                // The server is going down, or is down.
                Ok(_) | Err(_) => thread::sleep(Duration::from_millis(20)),
            }
            thread::sleep(rate.pause);
        }
    }
}

/// The port of a server that was killed may be that of another test's endpoint by now, which
/// returns 200 to every request.
fn is_of_gridhook(response: &Response) -> bool {
    response.header("x-ms-request-id").is_some()
}

/// A body of small events with these ids.
pub(crate) fn body(ids: &[String], subject: &str) -> Vec<u8> {
    let events = ids.iter().map(|id| {
        format!(
            r#"{{"id":"{id}","subject":"{subject}","eventType":"{TYPE}","eventTime":"2026-11-20T17:18:13Z","dataVersion":"1","data":{{"id":"{id}"}}}}"#
        )
    });
    format!("[{}]", events.collect::<Vec<_>>().join(",")).into_bytes()
}

/// The `data` of an event of [`body`].
pub(crate) fn data(id: &str) -> String {
    format!(r#"{{"id":"{id}"}}"#)
}
