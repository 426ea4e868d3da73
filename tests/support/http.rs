//! A blocking HTTP client over one connection, as small as the tests need it: it sends any bytes,
//! well-formed or not.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

/// The longest time for a response of a server under test.
const WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    head: String,
}

impl Response {
    /// The body, which is JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status line and the headers.
    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The code of an error, and the code of its first detail.
    pub(crate) fn codes(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            self.status,
            text(&error["code"]),
            text(&error["details"][0]["code"]),
        )
    }
}

/// A client of one address. It keeps its connection, and makes a new one after that was closed.
#[derive(Debug)]
pub(crate) struct Client {
    at: SocketAddr,
    tls: Option<Arc<rustls::ClientConfig>>,
    stream: Option<BufReader<Stream>>,
}

/// A connection, with TLS or without.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn connect(
        at: SocketAddr,
        tls: Option<&Arc<rustls::ClientConfig>>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        let Some(tls) = tls else {
            return Ok(Self::Plain(stream));
        };
        let session = rustls::ClientConnection::new(Arc::clone(tls), at.ip().into())
            .map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(rustls::StreamOwned::new(
            session, stream,
        ))))
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buf),
            Self::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buf),
            Self::Tls(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl Client {
    pub(crate) fn new(at: SocketAddr) -> Self {
        Self::with_tls(at, None)
    }

    /// Makes a client that connects to `at`, over TLS if a configuration is given.
    pub(crate) fn with_tls(at: SocketAddr, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        Self {
            at,
            tls,
            stream: None,
        }
    }

    /// The certificate that was shown on the connection that is kept.
    pub(crate) fn certificate(&self) -> Option<Vec<u8>> {
        match self.stream.as_ref()?.get_ref() {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => Some(stream.conn.peer_certificates()?.first()?.to_vec()),
        }
    }

    /// The address that the client calls.
    pub(crate) fn address(&self) -> SocketAddr {
        self.at
    }

    /// Makes a request. It is never repeated: after an error its outcome is unknown.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n{headers}\r\n",
            self.at,
            body.len()
        );
        self.exchange(&[head.as_bytes(), body].concat())
    }

    /// Sends these bytes and reads a response.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> io::Result<Response> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(Stream::connect(self.at, self.tls.as_ref())?),
        };
        // A server may refuse before it has read everything: its response counts.
        let sent = stream
            .get_mut()
            .write_all(request)
            .and_then(|()| stream.get_mut().flush());
        let (response, keep) =
            read_answer(&mut stream).map_err(|error| sent.err().unwrap_or(error))?;
        self.stream = keep.then_some(stream);
        Ok(response)
    }
}

/// The next response, and whether the connection can be used again.
fn read_answer(stream: &mut BufReader<Stream>) -> io::Result<(Response, bool)> {
    let head = read_head(stream)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no answer: {head}")))?;
    let body = if header(&head, "transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    {
        read_chunks(stream)?
    } else {
        let length = header(&head, "content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        body
    };
    let keep = header(&head, "connection").is_none_or(|value| !value.eq_ignore_ascii_case("close"));
    Ok((Response { status, body, head }, keep))
}

/// A body in chunks, without trailers.
fn read_chunks(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; length + 2];
        stream.read_exact(&mut chunk)?;
        if length == 0 {
            return Ok(body);
        }
        body.extend_from_slice(&chunk[..length]);
    }
}

/// First line and headers of a request or a response.
pub(crate) fn read_head(stream: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    loop {
        let start = head.len();
        if stream.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if head[start..].trim().is_empty() {
            return Ok(head);
        }
    }
}

/// The value of a header.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// The bearer token of the session that a sign-in has started: the cookie and the key.
pub(crate) fn session_bearer(set_cookie: Option<&str>, body: &serde_json::Value) -> String {
    let cookie = set_cookie.expect("a cookie");
    let (_, value) = cookie.split_once('=').expect("a value");
    let (half, _) = value.split_once(';').expect("attributes");
    let key = body["key"].as_str().expect("a key");
    format!("ghs_{half}{key}")
}
