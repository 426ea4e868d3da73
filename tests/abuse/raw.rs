//! A raw connection: it sends any bytes, at any pace.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use gridhook::clock::Clock;

/// How long a look at a socket takes.
const LOOK: Duration = Duration::from_millis(20);

/// The outcome of a connection.
#[derive(Debug)]
pub(super) struct Ended {
    /// The bytes that the server sent.
    pub(super) response: String,
    /// How long it took until the server closed it; none where it did not.
    pub(super) closed: Option<Duration>,
}

impl Ended {
    /// The status of the last response.
    pub(super) fn status(&self) -> Option<u16> {
        self.response
            .rsplit("HTTP/1.1 ")
            .next()?
            .get(..3)?
            .parse()
            .ok()
    }

    /// The outcome in words.
    pub(super) fn shown(&self) -> String {
        match (self.status(), self.closed.is_some()) {
            (Some(status), _) => status.to_string(),
            (None, true) => "closed".to_owned(),
            (None, false) => "left open".to_owned(),
        }
    }
}

/// Sends `first`, then `drip` a byte at a time for as long as the server lets it, and reads what
/// comes, unless it shall not.
pub(super) struct RawRequest<'a> {
    pub(super) first: &'a [u8],
    pub(super) drip: Option<u8>,
    pub(super) reads: bool,
    /// It waits no longer.
    pub(super) most: Duration,
}

impl RawRequest<'_> {
    /// Until the server closes the connection.
    pub(super) fn with(&self, at: SocketAddr) -> Ended {
        self.until(at, |_| false)
    }

    /// The same, or until there is the head of a response.
    pub(super) fn until_answered(&self, at: SocketAddr) -> Ended {
        self.until(at, |response| {
            response.windows(4).any(|part| part == b"\r\n\r\n")
        })
    }

    fn until(&self, at: SocketAddr, is_enough: impl Fn(&[u8]) -> bool) -> Ended {
        let mut stream = TcpStream::connect(at).expect("a connection");
        stream
            .set_read_timeout(Some(LOOK))
            .expect("a stream takes its option");
        stream
            .set_write_timeout(Some(LOOK))
            .expect("a stream takes its option");
        stream.set_nodelay(true).expect("a stream takes its option");
        let clock = Clock::system();
        let begun = clock.now();
        let mut unsent = self.first;
        let mut response = Vec::new();
        let mut broken = false;
        loop {
            let past = clock.now().since(begun);
            if broken || past >= self.most || is_enough(&response) {
                let response = String::from_utf8_lossy(&response).into_owned();
                return Ended {
                    response,
                    closed: broken.then_some(past),
                };
            }
            if !unsent.is_empty() {
                match stream.write(unsent) {
                    Ok(count) => unsent = &unsent[count..],
                    Err(error) => broken = !is_pause(&error),
                }
            } else if let Some(byte) = self.drip {
                broken = stream.write(&[byte]).is_err_and(|error| !is_pause(&error));
            }
            if self.reads || broken {
                let mut part = [0; 65_536];
                match stream.read(&mut part) {
                    Ok(0) => broken = true,
                    Ok(count) => response.extend_from_slice(&part[..count]),
                    Err(error) => broken |= !is_pause(&error),
                }
            } else {
                // Without reading it shows only in a reset, which a peek tells without taking
                // anything.
                broken = stream.peek(&mut [0]).is_err_and(|error| !is_pause(&error))
                    || stream.take_error().is_ok_and(|error| error.is_some());
                std::thread::sleep(LOOK);
            }
        }
    }
}

fn is_pause(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
