//! A listener on loopback that serves each connection in a thread of its own.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Accepts connections until it is dropped.
pub(crate) struct Acceptor {
    pub(crate) at: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Acceptor {
    /// Calls `serve` with each connection.
    pub(crate) fn start(
        serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let at = listener.local_addr().expect("a listener has an address");
        let stop = Arc::new(AtomicBool::new(false));
        let serve = Arc::new(serve);
        let stopped = Arc::clone(&stop);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), serve) = (stream, Arc::clone(&serve)) else {
                    continue;
                };
                // An error means that the peer has disconnected.
                thread::spawn(move || serve(stream).ok());
            }
        });
        Self { at, stop }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The thread that this wakes may have ended.
        TcpStream::connect(self.at).ok();
    }
}
