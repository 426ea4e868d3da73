//! An endpoint for the requests of `object_store` to Google Cloud Storage: put, get, list and
//! delete of objects. There is no server on PyPI or npm that speaks this protocol, so that this one
//! is scripted.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use parking_lot::{Condvar, Mutex, MutexGuard};
use percent_encoding::percent_decode_str;

use super::http_service::HttpService;

/// The properties of every object.
const HEADERS: &str =
    "etag: \"e\"\r\nx-goog-generation: 1\r\nlast-modified: Fri, 20 Nov 2026 12:00:00 GMT\r\n";

/// Objects by bucket and path.
type Objects = BTreeMap<String, Vec<u8>>;

/// The server of buckets. It keeps its objects while it is stopped.
pub(crate) struct Bucket(HttpService, Arc<HeldPut>);

/// A put whose request has arrived, and that is not made before it is released.
#[derive(Default)]
struct HeldPut {
    state: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum HoldState {
    #[default]
    None,
    /// The next put is held.
    Wanted,
    Held,
    Released,
    Made,
}

impl HeldPut {
    fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock()
    }

    fn set(&self, state: HoldState) {
        *self.state() = state;
        self.changed.notify_all();
    }

    /// Returns whether this put was held.
    fn wait(&self) -> bool {
        let mut state = self.state();
        if *state != HoldState::Wanted {
            return false;
        }
        *state = HoldState::Held;
        self.changed
            .wait_while(&mut state, |state| *state == HoldState::Held);
        true
    }
}

impl Bucket {
    /// A server that is not started yet.
    pub(crate) fn new() -> Self {
        let objects = Mutex::new(Objects::new());
        let held = Arc::new(HeldPut::default());
        let hold = Arc::clone(&held);
        let service = HttpService::new(Arc::new(move |head, body| {
            let is_held = head.starts_with("PUT") && hold.wait();
            let (status, body) = answer(head, body, &mut objects.lock());
            if is_held {
                hold.set(HoldState::Made);
            }
            (status, HEADERS, body)
        }));
        Self(service, held)
    }

    /// Holds the next put until [`Bucket::release_put`].
    pub(crate) fn hold_put(&self) {
        self.1.set(HoldState::Wanted);
    }

    /// Whether the put to be held has arrived.
    pub(crate) fn is_put_held(&self) -> bool {
        *self.1.state() == HoldState::Held
    }

    /// Carries out the held put.
    pub(crate) fn release_put(&self) {
        self.1.set(HoldState::Released);
    }

    /// Whether the held put was carried out.
    pub(crate) fn is_put_made(&self) -> bool {
        *self.1.state() == HoldState::Made
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Starts to listen, with the objects that the server had.
    pub(crate) fn resume(&mut self) {
        self.0.resume();
    }

    pub(crate) fn stop(&mut self) {
        self.0.stop();
    }
}

fn answer(head: &str, body: &[u8], objects: &mut Objects) -> (u16, Vec<u8>) {
    let (method, target) = head.split_once(' ').unwrap_or_default();
    let target = target.split(' ').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = percent_decode_str(path.trim_matches('/'))
        .decode_utf8_lossy()
        .into_owned();
    match (method, objects.get(&path)) {
        ("PUT", _) => {
            objects.insert(path, body.to_vec());
            (200, Vec::new())
        }
        ("GET", _) if query.contains("list-type=2") => {
            (200, listing(&path, query, objects).into_bytes())
        }
        ("GET", Some(object)) => (200, object.clone()),
        ("DELETE", Some(_)) => {
            objects.remove(&path);
            (204, Vec::new())
        }
        _ => (404, Vec::new()),
    }
}

/// The objects of a bucket that a prefix asks for, behind a place.
fn listing(bucket: &str, query: &str, objects: &Objects) -> String {
    let asked = |wanted: &str| {
        let value = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == wanted);
        value
            .map(|(_, value)| value.into_owned())
            .unwrap_or_default()
    };
    let prefix = asked("prefix");
    let after = asked("start-after");
    let keys = objects
        .iter()
        .filter_map(|(path, object)| Some((path.strip_prefix(bucket)?.strip_prefix('/')?, object)));
    let contents = keys.filter(|(key, _)| key.starts_with(&prefix) && *key > after.as_str()).map(|(key, object)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-20T12:00:00.000Z</LastModified><ETag>\"e\"</ETag><Size>{}</Size></Contents>",
            object.len()
        )
    });
    format!(
        "<ListBucketResult>{}</ListBucketResult>",
        contents.collect::<String>()
    )
}
