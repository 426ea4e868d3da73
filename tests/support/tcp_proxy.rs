//! A TCP proxy between two processes of a test. It can be cut in one direction or in both, as a
//! network can: what is on the way waits, and goes on when the cut ends. It balances connections
//! over several servers, and changes what it passes on.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{accept::Acceptor, server::wait_for};

/// The interval in which a cut direction checks whether the cut has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// The most bytes that are passed on at once.
const BYTES: usize = 1 << 18;

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

/// The directions that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Nothing,
    One(Direction),
    Both,
    /// Both directions of the connections whose client has sent this text.
    Marked(&'static str),
}

/// A text in this direction, and the equally long one that replaces it.
type Replaced = Option<(Direction, &'static str, &'static str)>;

struct TcpProxyState {
    servers: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
    connections: AtomicUsize,
    cut: Mutex<Cut>,
    replaced: Mutex<Replaced>,
    has_marked: AtomicBool,
    /// Pieces that wait for the end of a cut.
    held: AtomicUsize,
    /// The number of times that all connections were broken.
    breaks: AtomicUsize,
    /// The delay of what clients send, in milliseconds.
    delay: AtomicU64,
    stop: AtomicBool,
}

/// A proxy on loopback that delays, cuts and changes connections.
pub(crate) struct TcpProxy {
    shared: Arc<TcpProxyState>,
    acceptor: Acceptor,
}

impl TcpProxy {
    /// Passes each connection on to one of these servers, in turn, or to the next one that accepts
    /// it.
    pub(crate) fn start(servers: &[SocketAddr]) -> Self {
        let shared = Arc::new(TcpProxyState {
            servers: Mutex::new(servers.to_vec()),
            next: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            cut: Mutex::new(Cut::Nothing),
            replaced: Mutex::default(),
            has_marked: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            breaks: AtomicUsize::new(0),
            delay: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        Self {
            shared,
            acceptor: Acceptor::start(move |stream| serving.serve(stream)),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.acceptor.at
    }

    /// The number of connections that were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Whether a connection is cut because its client has sent the mark.
    pub(crate) fn has_marked(&self) -> bool {
        self.shared.has_marked.load(Ordering::SeqCst)
    }

    /// Connects new connections to these servers.
    pub(crate) fn turn_to(&self, servers: &[SocketAddr]) {
        *self.shared.servers.lock() = servers.to_vec();
    }

    /// Cuts open and new connections, or lets everything through again.
    pub(crate) fn cut(&self, cut: Cut) {
        *self.shared.cut.lock() = cut;
    }

    /// Delays the data of clients by this number of milliseconds, also if more follows.
    pub(crate) fn delay(&self, milliseconds: u64) {
        self.shared.delay.store(milliseconds, Ordering::SeqCst);
    }

    /// Whether something waits for the end of a cut.
    pub(crate) fn is_holding(&self) -> bool {
        self.shared.held.load(Ordering::SeqCst) > 0
    }

    /// Ends the connections on which data waits for the end of a cut. That data is lost.
    pub(crate) fn break_held(&self) {
        self.shared.breaks.fetch_add(1, Ordering::SeqCst);
    }

    /// Replaces `this` by `by` in the data of clients from now on, if it is in one piece.
    pub(crate) fn replace(&self, this: &'static str, by: &'static str) {
        assert_eq!(this.len(), by.len(), "lengths are announced");
        *self.shared.replaced.lock() = Some((Direction::ToServer, this, by));
    }

    /// Replaces `this` by the equally long `by` in what servers send.
    pub(crate) fn replace_answers(&self, this: &'static str, by: &'static str) {
        assert_eq!(this.len(), by.len(), "lengths are announced");
        *self.shared.replaced.lock() = Some((Direction::ToClient, this, by));
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }
}

impl TcpProxyState {
    fn serve(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = self.connect()?;
        self.connections.fetch_add(1, Ordering::SeqCst);
        let is_marked = Arc::new(AtomicBool::new(false));
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        let shared = Arc::clone(self);
        let back = (server.try_clone()?, client.try_clone()?);
        let marked = Arc::clone(&is_marked);
        thread::spawn(move || shared.pass_on(back.0, back.1, Direction::ToClient, &marked));
        self.pass_on(client, server, Direction::ToServer, &is_marked);
        Ok(())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let servers = self.servers.lock().clone();
        let first = self.next.fetch_add(1, Ordering::SeqCst);
        let mut connected = Err(io::ErrorKind::ConnectionRefused.into());
        for at in 0..servers.len() {
            connected = TcpStream::connect(servers[(first + at) % servers.len()]);
            if connected.is_ok() {
                break;
            }
        }
        connected
    }

    fn pass_on(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        direction: Direction,
        is_marked: &AtomicBool,
    ) {
        let mut bytes = vec![0; BYTES];
        let mut late_writes = None;
        loop {
            let read = from.read(&mut bytes);
            let read = read.unwrap_or(0);
            if direction == Direction::ToServer
                && let Cut::Marked(mark) = *self.cut.lock()
                && find(&bytes[..read], mark).is_some()
            {
                is_marked.store(true, Ordering::SeqCst);
                self.has_marked.store(true, Ordering::SeqCst);
            }
            if self.is_cut(direction, is_marked) && !self.hold(direction, is_marked, read > 0) {
                for stream in [&from, &to] {
                    stream.shutdown(Shutdown::Both).ok();
                }
                return;
            }
            if let Some((of, this, by)) = *self.replaced.lock()
                && of == direction
                && this != by
            {
                while let Some(at) = find(&bytes[..read], this) {
                    bytes[at..at + by.len()].copy_from_slice(by.as_bytes());
                }
            }
            let delay = Duration::from_millis(self.delay.load(Ordering::SeqCst));
            if direction == Direction::ToServer && !delay.is_zero() && late_writes.is_none() {
                late_writes = to.try_clone().map(start_late_writer).ok();
            }
            if let Some(late_writes) = &late_writes {
                let write = (Instant::now() + delay, bytes[..read].to_vec());
                if late_writes.send(write).is_err() || read == 0 {
                    from.shutdown(Shutdown::Read).ok();
                    return;
                }
                continue;
            }
            if read == 0 || to.write_all(&bytes[..read]).is_err() {
                // The connections may be closed already.
                to.shutdown(Shutdown::Write).ok();
                from.shutdown(Shutdown::Read).ok();
                return;
            }
        }
    }

    /// Waits for the end of a cut. False: the connection is broken. The end of a connection waits,
    /// too, and does not count as held.
    fn hold(&self, direction: Direction, is_marked: &AtomicBool, has_bytes: bool) -> bool {
        let breaks = self.breaks.load(Ordering::SeqCst);
        let is_whole = || self.breaks.load(Ordering::SeqCst) == breaks;
        self.held
            .fetch_add(usize::from(has_bytes), Ordering::SeqCst);
        while self.is_cut(direction, is_marked) && !self.stop.load(Ordering::SeqCst) && is_whole() {
            thread::sleep(PAUSE);
        }
        self.held
            .fetch_sub(usize::from(has_bytes), Ordering::SeqCst);
        is_whole()
    }

    fn is_cut(&self, direction: Direction, is_marked: &AtomicBool) -> bool {
        match *self.cut.lock() {
            Cut::Nothing => false,
            Cut::One(one) => one == direction,
            Cut::Both => true,
            Cut::Marked(_) => is_marked.load(Ordering::SeqCst),
        }
    }
}

/// Starts to write each piece at its time. An empty piece ends the connection.
fn start_late_writer(mut to: TcpStream) -> mpsc::Sender<(Instant, Vec<u8>)> {
    let (sender, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if piece.is_empty() || to.write_all(&piece).is_err() {
                break;
            }
        }
        // The connection may be closed already.
        to.shutdown(Shutdown::Write).ok();
    });
    sender
}

fn find(bytes: &[u8], this: &str) -> Option<usize> {
    bytes
        .windows(this.len())
        .position(|window| window == this.as_bytes())
}

/// Sends a text and returns the next piece that arrives within `wait`.
fn exchange(client: &mut TcpStream, text: &str, wait: Duration) -> Option<String> {
    client.set_read_timeout(Some(wait)).expect("a socket");
    client.write_all(text.as_bytes()).expect("written");
    let mut bytes = [0; 64];
    let read = client.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
}

#[test]
fn a_cut_holds_one_direction_of_a_connection_and_a_replacement_changes_what_a_client_sends() {
    let echo = Acceptor::start(|mut stream| {
        let mut bytes = [0; 64];
        loop {
            let read = stream.read(&mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            stream.write_all(&bytes[..read])?;
        }
    });
    let nobody = super::port::ReservedPort::new();
    let proxy = TcpProxy::start(&[nobody.address, echo.at]);
    let mut client = TcpStream::connect(proxy.address()).expect("a connection");
    let long = Duration::from_secs(60);
    let nothing = Duration::from_millis(100);
    assert_eq!(
        exchange(&mut client, "one", long).as_deref(),
        Some("one"),
        "by the server that accepts connections"
    );
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.cut(Cut::One(direction));
        assert_eq!(exchange(&mut client, "two", nothing), None);
        proxy.cut(Cut::Nothing);
        assert_eq!(exchange(&mut client, "", long).as_deref(), Some("two"));
    }
    proxy.cut(Cut::Marked("mark"));
    assert_eq!(
        exchange(&mut client, "other", long).as_deref(),
        Some("other")
    );
    assert!(!proxy.has_marked());
    proxy.replace("mark", "MARK");
    assert_eq!(exchange(&mut client, "a mark", nothing), None);
    wait_for("the mark", long, || proxy.has_marked());
    proxy.cut(Cut::Nothing);
    assert_eq!(exchange(&mut client, "", long).as_deref(), Some("a MARK"));
    proxy.cut(Cut::One(Direction::ToClient));
    client.write_all(b"lost").expect("written");
    wait_for("the echo", long, || proxy.is_holding());
    proxy.break_held();
    assert_eq!(
        client.read(&mut [0; 64]).unwrap_or_default(),
        0,
        "the connection has ended"
    );
}
