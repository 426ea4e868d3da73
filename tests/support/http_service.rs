//! A small HTTP server that calls a function for each request, on a port that it keeps, also while
//! it is stopped.

use std::{
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{
    http::{header, read_head},
    port::ReservedPort,
};

/// The interval in which the server looks whether to stop.
const PAUSE: Duration = Duration::from_millis(5);

/// The status, lines of headers and the body for a request, given its head and its body.
pub(crate) type Handler = dyn Fn(&str, &[u8]) -> (u16, &'static str, Vec<u8>) + Send + Sync;

/// An HTTP server on loopback that responds with a handler.
pub(crate) struct HttpService {
    port: ReservedPort,
    handler: Arc<Handler>,
    tls: Option<Arc<ServerConfig>>,
    running: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl HttpService {
    /// A service that is not started yet.
    pub(crate) fn new(handler: Arc<Handler>) -> Self {
        Self {
            port: ReservedPort::new(),
            handler,
            tls: None,
            running: None,
        }
    }

    /// Makes a server with TLS that is not started yet.
    pub(crate) fn secure(handler: Arc<Handler>, tls: Arc<ServerConfig>) -> Self {
        let mut service = Self::new(handler);
        service.tls = Some(tls);
        service
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address
    }

    /// Starts to listen.
    pub(crate) fn resume(&mut self) {
        let listener = TcpListener::bind(self.address()).expect("the port is ours");
        listener.set_nonblocking(true).expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let handler = Arc::clone(&self.handler);
        let tls = self.tls.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(PAUSE);
                    continue;
                };
                let handler = Arc::clone(&handler);
                let tls = tls.clone();
                // A client that goes away in the middle is its own affair.
                thread::spawn(move || drop(serve(stream, tls, &*handler)));
            }
        });
        self.running = Some((stop, thread));
    }

    pub(crate) fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            stop.store(true, Ordering::SeqCst);
            thread.join().expect("it does not panic");
        }
    }
}

impl Drop for HttpService {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(stream: TcpStream, tls: Option<Arc<ServerConfig>>, handler: &Handler) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let Some(tls) = tls else {
        return answer(stream, handler);
    };
    let session = ServerConnection::new(tls).map_err(io::Error::other)?;
    answer(StreamOwned::new(session, stream), handler)
}

/// Responds to one request, and closes the connection.
fn answer(stream: impl Read + Write, handler: &Handler) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let head = read_head(&mut stream)?;
    let length = header(&head, "content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let (status, headers, body) = handler(&head, &body);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Whatever\r\n{headers}content-length: {length}\r\nconnection: \
         close\r\n\r\n"
    );
    stream
        .get_mut()
        .write_all(&[head.as_bytes(), &body].concat())?;
    stream.get_mut().flush()
}
