//! A proxy that corrupts traffic on request, between a server and the test that checks it: for
//! negative controls.

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    accept::Acceptor,
    http::{Client, header, read_head},
};

/// How a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It receives 200 and goes nowhere.
    Swallow,
    /// The server receives the request twice.
    Repeat,
    /// The server receives the request with other digits in it.
    Alter,
}

/// Whether a request has events; others are passed on unchanged.
pub(crate) type Carries = fn(&str) -> bool;

struct ProxyState {
    to: SocketAddr,
    act: Act,
    carries: Carries,
    seen: AtomicUsize,
}

/// A proxy on loopback that corrupts one request.
pub(crate) struct CorruptingProxy {
    shared: Arc<ProxyState>,
    acceptor: Acceptor,
}

/// The index of the corrupted request among those with events.
const VICTIM_INDEX: usize = 20;

impl CorruptingProxy {
    /// Starts a proxy in front of `to` that corrupts one of the requests with events.
    pub(crate) fn start(to: SocketAddr, act: Act, carries: Carries) -> Self {
        let shared = Arc::new(ProxyState {
            to,
            act,
            carries,
            seen: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        Self {
            shared,
            acceptor: Acceptor::start(move |stream| serving.serve(stream)),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.acceptor.at)
    }

    /// Whether the request was corrupted.
    pub(crate) fn is_guilty(&self) -> bool {
        self.shared.seen.load(Ordering::SeqCst) > VICTIM_INDEX
    }
}

impl ProxyState {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut onward = Client::new(self.to);
        loop {
            let head = read_head(&mut stream)?;
            let length = header(&head, "content-length")
                .and_then(|length| length.parse().ok())
                .unwrap_or(0);
            let mut body = vec![0; length];
            stream.read_exact(&mut body)?;
            let meant =
                (self.carries)(&head) && self.seen.fetch_add(1, Ordering::SeqCst) == VICTIM_INDEX;
            let request = |body: &[u8]| [head.as_bytes(), body].concat();
            let response = match meant.then_some(self.act) {
                Some(Act::Swallow) => {
                    stream
                        .get_mut()
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
                    continue;
                }
                Some(Act::Repeat) => {
                    onward.exchange(&request(&body))?;
                    onward.exchange(&request(&body))?
                }
                Some(Act::Alter) => {
                    let other =
                        String::from_utf8_lossy(&body).replace("\"number\":", "\"number\":1");
                    let head = head.replace(
                        &format!("content-length: {length}"),
                        &format!("content-length: {}", other.len()),
                    );
                    onward.exchange(&[head.as_bytes(), other.as_bytes()].concat())?
                }
                None => onward.exchange(&request(&body))?,
            };
            let head = format!(
                "HTTP/1.1 {} Passed On\r\ncontent-length: {}\r\n\r\n",
                response.status,
                response.body.len()
            );
            stream
                .get_mut()
                .write_all(&[head.as_bytes(), &response.body].concat())?;
        }
    }
}
