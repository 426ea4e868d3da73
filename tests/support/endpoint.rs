//! A scripted endpoint: a raw TCP listener on loopback that does to each request what the test
//! says, well-formed or not.
//!
//! It runs on threads of its own, so that nothing it does can hold up the arbiter under test. A
//! thread ends when its client goes away or the endpoint is dropped.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

/// A step on a connection after a request was read.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Say(Vec<u8>),
    /// Write these bytes one by one, with a pause after each.
    Trickle(Vec<u8>, Duration),
    /// Write these bytes again and again until the client goes away.
    Forever(Vec<u8>),
    Pause(Duration),
    /// Wait until the test opens the gate.
    Gate(Gate),
    /// Say nothing until the client goes away.
    Hang,
    /// Read this many bytes of a body that was not read.
    Read(usize),
    /// Write nothing more, and keep the connection.
    EndWriting,
    Close,
    /// Close the connection so that the client sees a reset.
    Reset,
}

/// Closed until the test opens it. It orders what the endpoint does behind what the test has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<AtomicBool>);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Waits, but not for a test that has failed before it opened the gate.
    pub(crate) fn wait(&self) {
        for _ in 0..10_000 {
            if self.0.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The response to one request.
pub(crate) type Script = Vec<Step>;

/// A response with a status and a body of that length.
pub(crate) fn respond(status: u16, headers: &str, body: &str) -> Script {
    vec![Step::Say(
        format!(
            "HTTP/1.1 {status} Whatever\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    )]
}

/// A request as it was received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

struct EndpointState {
    scripts: Vec<Script>,
    connections: AtomicUsize,
    requests: Mutex<Vec<Received>>,
    closed: AtomicUsize,
    stop: AtomicBool,
    tls: Option<Arc<rustls::ServerConfig>>,
    wrong: Option<Wrong>,
    heads_only: bool,
}

/// An endpoint that speaks the wrong protocol for a while.
struct Wrong {
    /// The connections that are served wrongly, by their numbers.
    connections: Range<usize>,
    /// The TLS that it speaks on these connections, if it has none elsewhere.
    tls: Arc<rustls::ServerConfig>,
}

pub(crate) struct Endpoint {
    address: SocketAddr,
    shared: Arc<EndpointState>,
}

impl Endpoint {
    /// Does `scripts[n]` to the n-th request it gets, the last one to all further ones.
    pub(crate) fn start(scripts: Vec<Script>) -> Self {
        Self::listen(scripts, None, false)
    }

    /// Starts an endpoint with TLS or without; on `connections` it is the other way round.
    pub(crate) fn start_wrong(
        scripts: Vec<Script>,
        tls: Arc<rustls::ServerConfig>,
        has_tls: bool,
        connections: Range<usize>,
    ) -> Self {
        let usual = has_tls.then(|| Arc::clone(&tls));
        Self::listen_at(
            "127.0.0.1",
            scripts,
            usual,
            Some(Wrong { connections, tls }),
            false,
        )
    }

    /// Starts an endpoint that does not read bodies.
    pub(crate) fn start_impatient(scripts: Vec<Script>) -> Self {
        Self::listen(scripts, None, true)
    }

    /// Starts an endpoint with TLS.
    pub(crate) fn start_tls(scripts: Vec<Script>, tls: Arc<rustls::ServerConfig>) -> Self {
        Self::listen(scripts, Some(tls), false)
    }

    /// Starts an endpoint at this address of loopback.
    pub(crate) fn start_at(host: &str, scripts: Vec<Script>) -> Self {
        Self::listen_at(host, scripts, None, None, false)
    }

    /// Starts an endpoint with TLS at this address of loopback.
    pub(crate) fn start_tls_at(
        host: &str,
        scripts: Vec<Script>,
        tls: Arc<rustls::ServerConfig>,
    ) -> Self {
        Self::listen_at(host, scripts, Some(tls), None, false)
    }

    fn listen(
        scripts: Vec<Script>,
        tls: Option<Arc<rustls::ServerConfig>>,
        heads_only: bool,
    ) -> Self {
        Self::listen_at("127.0.0.1", scripts, tls, None, heads_only)
    }

    fn listen_at(
        host: &str,
        scripts: Vec<Script>,
        tls: Option<Arc<rustls::ServerConfig>>,
        wrong: Option<Wrong>,
        heads_only: bool,
    ) -> Self {
        let listener = TcpListener::bind((host, 0)).expect("loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(EndpointState {
            scripts,
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
            closed: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            tls,
            wrong,
            heads_only,
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if accepting.stop.load(Ordering::SeqCst) {
                    return;
                }
                let number = accepting.connections.fetch_add(1, Ordering::SeqCst);
                let shared = accepting.clone();
                thread::spawn(move || {
                    shared.welcome(stream, number);
                    shared.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The `http` URL of the endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?code=1", self.address)
    }

    /// The number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The number of closed connections.
    pub(crate) fn closed(&self) -> usize {
        self.shared.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        self.shared.requests.lock().clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, so that it sees the flag.
        drop(TcpStream::connect(self.address));
    }
}

impl EndpointState {
    fn welcome(&self, mut stream: TcpStream, number: usize) {
        stream.set_nodelay(true).expect("a stream takes its option");
        let wrong = self
            .wrong
            .as_ref()
            .filter(|wrong| wrong.connections.contains(&number));
        if let (Some(_), Some(_)) = (wrong, &self.tls) {
            // The first message of a TLS client is no request.
            let read = stream.read(&mut [0; 512]);
            read.and_then(|_| {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            })
            .ok();
            return;
        }
        let Some(tls) = wrong
            .map(|wrong| Arc::clone(&wrong.tls))
            .or_else(|| self.tls.clone())
        else {
            self.serve(&mut stream);
            return;
        };
        let session =
            rustls::ServerConnection::new(tls).expect("the server's configuration is whole");
        self.serve(&mut rustls::StreamOwned::new(session, stream));
    }

    fn serve<S: Read + Write + Raw>(&self, stream: &mut S) {
        while let Some(received) = read_request(stream, self.heads_only) {
            let number = {
                let mut requests = self.requests.lock();
                requests.push(received);
                requests.len() - 1
            };
            for step in &self.scripts[number.min(self.scripts.len() - 1)] {
                if play(step, stream).is_none() {
                    return;
                }
            }
        }
    }
}

/// Access to the socket below TLS.
trait Raw {
    fn raw(&self) -> &TcpStream;
}

impl Raw for TcpStream {
    fn raw(&self) -> &TcpStream {
        self
    }
}

impl Raw for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn raw(&self) -> &TcpStream {
        &self.sock
    }
}

/// `None` when the connection is over.
fn play<S: Read + Write + Raw>(step: &Step, stream: &mut S) -> Option<()> {
    match step {
        Step::Say(bytes) => stream.write_all(bytes).and_then(|()| stream.flush()).ok(),
        Step::Trickle(bytes, pause) => bytes.iter().try_for_each(|byte| {
            thread::sleep(*pause);
            stream
                .write_all(&[*byte])
                .and_then(|()| stream.flush())
                .ok()
        }),
        Step::Forever(bytes) => loop {
            stream.write_all(bytes).ok()?;
        },
        Step::Pause(pause) => {
            thread::sleep(*pause);
            Some(())
        }
        Step::Gate(gate) => {
            gate.wait();
            Some(())
        }
        Step::Hang => {
            let mut rest = [0; 512];
            while !matches!(stream.read(&mut rest), Ok(0) | Err(_)) {}
            None
        }
        Step::Read(bytes) => {
            let mut rest = vec![0; *bytes];
            stream.read_exact(&mut rest).ok()
        }
        Step::EndWriting => stream.raw().shutdown(Shutdown::Write).ok(),
        Step::Close => None,
        Step::Reset => {
            reset(stream.raw());
            None
        }
    }
}

/// Closes with a reset: a socket that does not linger throws away what it has.
fn reset(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    socket
        .set_linger(Some(Duration::ZERO))
        .expect("a stream takes its option");
}

fn read_request(stream: &mut impl Read, head_only: bool) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16_384];
    let head_len = loop {
        if let Some(place) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break place + 4;
        }
        let count = byte_count(stream.read(&mut chunk))?;
        bytes.extend_from_slice(&chunk[..count]);
    };
    let head = String::from_utf8_lossy(&bytes[..head_len]).into_owned();
    let mut received = Received {
        head,
        body: bytes.split_off(head_len),
    };
    let len: usize = received
        .header("content-length")
        .map_or(0, |value| value.parse().expect("a length is a number"));
    while !head_only && received.body.len() < len {
        let count = byte_count(stream.read(&mut chunk))?;
        received.body.extend_from_slice(&chunk[..count]);
    }
    Some(received)
}

/// The number of bytes that were read; [`None`] if the connection is over.
fn byte_count(read: std::io::Result<usize>) -> Option<usize> {
    match read {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::Interrupted => Some(0),
        Err(_) => None,
    }
}
