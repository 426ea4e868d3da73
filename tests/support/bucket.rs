//! An endpoint that answers what `object_store` asks of Google Cloud Storage: put, get, list and delete of objects. There is no
//! server on PyPI or npm that speaks this protocol, so that this one is scripted.

use std::{
    collections::BTreeMap,
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use percent_encoding::percent_decode_str;

use super::http::{header, read_head};

/// How often it is asked whether it shall end.
const PAUSE: Duration = Duration::from_millis(5);

/// Objects by bucket and path.
type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The endpoint, while it listens.
pub(crate) struct Bucket {
    objects: Objects,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bucket {
    /// Listens at `at`, with the objects of the one that did before.
    pub(crate) fn start(at: SocketAddr, before: Option<&Self>) -> (Self, SocketAddr) {
        let listener = TcpListener::bind(at).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let at = listener.local_addr().expect("an address");
        let objects = before.map(|before| Arc::clone(&before.objects)).unwrap_or_default();
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, reported) = (Arc::clone(&objects), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !reported.load(Ordering::SeqCst) {
                match listener.accept() {
                    // A client that goes away in the middle is its own affair.
                    Ok((stream, _)) => drop(answer(&stream, &shared)),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        });
        (Self { objects, stop, thread: Some(thread) }, at)
    }

    /// Nobody listens any more.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("an endpoint does not panic");
        }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Answers one request, and closes the connection.
fn answer(stream: &TcpStream, objects: &Objects) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader)?;
    let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (method, target) = head.split_once(' ').unwrap_or_default();
    let target = target.split(' ').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = percent_decode_str(path.trim_matches('/')).decode_utf8_lossy().into_owned();
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, body) = match (method, objects.get(&path)) {
        ("PUT", _) => {
            objects.insert(path, body);
            ("200 OK", Vec::new())
        }
        ("GET", _) if query.contains("list-type=2") => ("200 OK", listing(&path, query, &objects).into_bytes()),
        ("GET", Some(object)) => ("200 OK", object.clone()),
        ("DELETE", Some(_)) => {
            objects.remove(&path);
            ("204 No Content", Vec::new())
        }
        _ => ("404 Not Found", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\netag: \"e\"\r\nlast-modified: Fri, 20 Nov 2026 12:00:00 GMT\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    stream.write_all(&[head.as_bytes(), &body].concat())
}

/// The objects of a bucket that a prefix asks for, behind a place.
fn listing(bucket: &str, query: &str, objects: &BTreeMap<String, Vec<u8>>) -> String {
    let asked = |wanted: &str| {
        let value = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == wanted);
        value.map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let (prefix, after) = (asked("prefix"), asked("start-after"));
    let keys =
        objects.iter().filter_map(|(path, object)| Some((path.strip_prefix(bucket)?.strip_prefix('/')?, object)));
    let contents = keys.filter(|(key, _)| key.starts_with(&prefix) && *key > after.as_str()).map(|(key, object)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-20T12:00:00.000Z</LastModified><ETag>\"e\"</ETag><Size>{}</Size></Contents>",
            object.len()
        )
    });
    format!("<ListBucketResult>{}</ListBucketResult>", contents.collect::<String>())
}
