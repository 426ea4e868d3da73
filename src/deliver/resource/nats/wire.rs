//! A connection to a NATS server, which publishes messages and waits for their acknowledgements.
//!
//! NATS' own client keeps whatever a server sends until a message is whole, so that a server can
//! fill the memory. Here a line and a message have a maximum; beyond it the connection is closed.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::{Buf as _, Bytes, BytesMut};
use rustls::{ClientConfig, pki_types::ServerName};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf},
    net::TcpStream,
    sync::{Mutex, oneshot},
};
use tokio_rustls::TlsConnector;
use url::Url;

use super::super::credentials::Credentials;

/// Maximum length of a line. Large clusters list their servers in one.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a message: an acknowledgement has some 100 bytes.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The port of a URL without one.
const PORT: u16 = 4222;

/// The status of a message without a subscriber.
const NO_RESPONDERS: &str = "503";

#[derive(Clone)]
pub(super) enum Login {
    None,
    Token(String),
    Password { user: String, password: String },
    Credentials(Rc<Credentials>),
}

/// Why there is no connection, or no acknowledgement.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("{0}")]
    Unreachable(Rc<std::io::Error>),
    #[error("the name is unknown: {0}")]
    UnknownName(Rc<std::io::Error>),
    #[error("the server refused the login: {0}")]
    Refused(String),
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("the message is larger than the server takes ({0} bytes)")]
    TooLarge(usize),
    #[error("the connection was lost before the acknowledgement")]
    Lost,
}

impl From<std::io::Error> for WireError {
    fn from(error: std::io::Error) -> Self {
        Self::Unreachable(Rc::new(error))
    }
}

pub(super) struct OutgoingMessage {
    headers: String,
    payload: Bytes,
}

impl OutgoingMessage {
    pub(super) fn new(payload: Bytes) -> Self {
        Self {
            headers: "NATS/1.0\r\n".to_owned(),
            payload,
        }
    }

    /// Adds a header. Line breaks in it become spaces.
    pub(super) fn add_header(&mut self, name: &str, value: &str) {
        let plain = |text: &str| text.replace(['\r', '\n'], " ");
        self.headers.push_str(&format!(
            "{}: {}\r\n",
            plain(name).replace(':', "-"),
            plain(value)
        ));
    }
}

/// The response to a message.
pub(super) struct Reply {
    /// Whether the message had no subscriber.
    pub(super) has_no_responders: bool,
    pub(super) payload: Bytes,
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

type BoxedStream = Box<dyn Stream>;

#[derive(Deserialize)]
struct ServerInfo {
    #[serde(default)]
    max_payload: usize,
    #[serde(default)]
    tls_required: bool,
    #[serde(default)]
    nonce: Option<String>,
}

/// An open connection. Its task ends when it is dropped.
pub(super) struct Wire {
    shared: Rc<WireState>,
    task: actix_rt::task::JoinHandle<()>,
    inbox: String,
    max_payload: usize,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct WireState {
    /// [`None`] once the connection has ended: what is not read any more is closed.
    writer: Mutex<Option<WriteHalf<BoxedStream>>>,
    /// The messages that wait, by the number in their inbox.
    waiting: RefCell<HashMap<u64, oneshot::Sender<Reply>>>,
    next: Cell<u64>,
    is_lost: Cell<bool>,
}

impl Wire {
    pub(super) async fn connect_and_log_in(
        url: &Url,
        login: &Login,
        tls: Arc<ClientConfig>,
    ) -> Result<Self, WireError> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let addresses = tokio::net::lookup_host((host, url.port().unwrap_or(PORT))).await;
        let addresses: Vec<_> = addresses
            .map_err(|error| WireError::UnknownName(Rc::new(error)))?
            .collect();
        let stream = TcpStream::connect(&*addresses).await?;
        stream.set_nodelay(true)?;
        let mut stream: BoxedStream = Box::new(stream);
        let mut buffer = BytesMut::new();
        let Op::Info(info) = read_op(&mut stream, &mut buffer).await? else {
            return Err(WireError::Protocol("it does not begin with INFO"));
        };
        if url.scheme() == "tls" || info.tls_required {
            if !buffer.is_empty() {
                return Err(WireError::Protocol("it sent more than INFO before TLS"));
            }
            let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
            stream = Box::new(TlsConnector::from(tls).connect(name, stream).await?);
        }
        let inbox = format!("_INBOX.{:032x}", fastrand::u128(..));
        let head = format!(
            "CONNECT {}\r\nSUB {inbox}.* 1\r\nPING\r\n",
            connect_options(login, &info)
        );
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        loop {
            match read_op(&mut stream, &mut buffer).await? {
                Op::Pong => break,
                Op::Error(reason) => return Err(WireError::Refused(reason)),
                Op::Ping => stream.write_all(b"PONG\r\n").await?,
                Op::Info(_) | Op::Ok | Op::Message { .. } => {}
            }
        }
        let (reader, writer) = tokio::io::split(stream);
        let state = Rc::new(WireState {
            writer: Mutex::new(Some(writer)),
            waiting: RefCell::default(),
            next: Cell::new(0),
            is_lost: Cell::new(false),
        });
        let task = actix_rt::spawn(read_replies(Rc::clone(&state), reader, buffer));
        Ok(Self {
            shared: state,
            task,
            inbox,
            max_payload: info.max_payload,
        })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.shared.is_lost.get()
    }

    /// Publishes messages to `subject`, and passes each reply to `note` with the index of its
    /// message, also if the connection is lost before the others.
    pub(super) async fn publish_and_wait(
        &self,
        subject: &str,
        messages: Vec<OutgoingMessage>,
        mut note: impl FnMut(usize, &Reply),
    ) -> Result<(), WireError> {
        let size = |message: &OutgoingMessage| message.headers.len() + 2 + message.payload.len();
        if messages
            .iter()
            .any(|message| size(message) > self.max_payload)
        {
            return Err(WireError::TooLarge(self.max_payload));
        }
        let mut waiting = WaitingReplies {
            shared: &self.shared,
            numbers: Vec::new(),
        };
        let mut replies = Vec::with_capacity(messages.len());
        {
            let mut writer = self.shared.writer.lock().await;
            let Some(writer) = writer.as_mut() else {
                return Err(WireError::Lost);
            };
            // Half a message of a caller that gave up would be the beginning of the next one.
            let mut whole = WholeWrite {
                is_lost: &self.shared.is_lost,
                has_ended: false,
            };
            for message in messages {
                replies.push(waiting.add());
                let number = waiting.numbers.last().copied().unwrap_or_default();
                let head_len = message.headers.len() + 2;
                let len = size(&message);
                let line = format!(
                    "HPUB {subject} {}.{number} {head_len} {len}\r\n{}\r\n",
                    self.inbox, message.headers
                );
                writer.write_all(line.as_bytes()).await?;
                writer.write_all(&message.payload).await?;
                writer.write_all(b"\r\n").await?;
            }
            writer.flush().await?;
            whole.has_ended = true;
        }
        if self.is_lost() {
            return Err(WireError::Lost);
        }
        let mut outcome = Ok(());
        for (index, reply) in replies.into_iter().enumerate() {
            match reply.await {
                Ok(reply) => note(index, &reply),
                Err(_) => outcome = Err(WireError::Lost),
            }
        }
        outcome
    }
}

/// Marks the connection as lost unless a write has ended.
struct WholeWrite<'a> {
    is_lost: &'a Cell<bool>,
    has_ended: bool,
}

impl Drop for WholeWrite<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.is_lost.set(true);
        }
    }
}

/// The replies that a caller waits for; a caller that gives up waits no longer.
struct WaitingReplies<'a> {
    shared: &'a WireState,
    numbers: Vec<u64>,
}

impl WaitingReplies<'_> {
    fn add(&mut self) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let number = self.shared.next.replace(self.shared.next.get() + 1);
        self.numbers.push(number);
        self.shared.waiting.borrow_mut().insert(number, sender);
        receiver
    }
}

impl Drop for WaitingReplies<'_> {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.borrow_mut();
        for number in &self.numbers {
            waiting.remove(number);
        }
    }
}

fn connect_options(login: &Login, info: &ServerInfo) -> Value {
    let mut options = json!({
        "verbose": false, "pedantic": false, "lang": "rust", "version": env!("CARGO_PKG_VERSION"), "name": "gridhook",
        "protocol": 1, "echo": false, "headers": true, "no_responders": true,
    });
    match login {
        Login::None => {}
        Login::Token(token) => options["auth_token"] = token.as_str().into(),
        Login::Password { user, password } => {
            options["user"] = user.as_str().into();
            options["pass"] = password.as_str().into();
        }
        Login::Credentials(credentials) => {
            let nonce = info.nonce.as_deref().unwrap_or_default();
            let signature = credentials.sign(nonce.as_bytes());
            options["jwt"] = credentials.jwt().into();
            options["sig"] = BASE64_URL_SAFE_NO_PAD.encode(signature).into();
        }
    }
    options
}

/// Reads until the connection ends, and hands each reply to its waiter.
async fn read_replies(
    shared: Rc<WireState>,
    mut reader: ReadHalf<BoxedStream>,
    mut buffer: BytesMut,
) {
    loop {
        match read_op(&mut reader, &mut buffer).await {
            Ok(Op::Message {
                subject,
                status,
                payload,
            }) => {
                let number = subject
                    .rsplit('.')
                    .next()
                    .and_then(|number| number.parse().ok());
                let waiter =
                    number.and_then(|number: u64| shared.waiting.borrow_mut().remove(&number));
                let reply = Reply {
                    has_no_responders: status.as_deref() == Some(NO_RESPONDERS),
                    payload,
                };
                waiter.map(|waiter| waiter.send(reply));
            }
            Ok(Op::Ping) => {
                let mut writer = shared.writer.lock().await;
                let Some(writer) = writer.as_mut() else { break };
                if writer.write_all(b"PONG\r\n").await.is_err() || writer.flush().await.is_err() {
                    break;
                }
            }
            Ok(Op::Error(reason)) => {
                tracing::debug!(reason, "a NATS server closes the connection");
                break;
            }
            Ok(Op::Info(_) | Op::Ok | Op::Pong) => {}
            Err(error) => {
                tracing::debug!(%error, "a connection to a NATS server has ended");
                break;
            }
        }
    }
    shared.is_lost.set(true);
    shared.waiting.borrow_mut().clear();
    drop(reader);
    shared.writer.lock().await.take();
}

enum Op {
    Info(ServerInfo),
    Ok,
    Ping,
    Pong,
    Error(String),
    Message {
        subject: String,
        status: Option<String>,
        payload: Bytes,
    },
}

async fn read_op(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> Result<Op, WireError> {
    let end = loop {
        if let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") {
            break end;
        }
        if buffer.len() > LINE_BYTES_MAX {
            return Err(WireError::Protocol("a line is longer than 64 KiB"));
        }
        read_more(stream, buffer).await?;
    };
    let line = buffer.split_to(end);
    buffer.advance(2);
    let line =
        std::str::from_utf8(&line).map_err(|_| WireError::Protocol("a line is not UTF-8"))?;
    let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    match verb.to_ascii_uppercase().as_str() {
        "INFO" => {
            let info =
                serde_json::from_str(rest).map_err(|_| WireError::Protocol("INFO is not JSON"))?;
            Ok(Op::Info(info))
        }
        "PING" => Ok(Op::Ping),
        "PONG" => Ok(Op::Pong),
        "+OK" => Ok(Op::Ok),
        "-ERR" => Ok(Op::Error(
            rest.trim_matches('\'').chars().take(200).collect(),
        )),
        "MSG" => read_message(stream, buffer, rest, false).await,
        "HMSG" => read_message(stream, buffer, rest, true).await,
        _ => Err(WireError::Protocol("an unknown operation")),
    }
}

/// Reads the rest of `MSG subject sid [reply] bytes`, or of `HMSG subject sid [reply] header-bytes
/// bytes`.
async fn read_message(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    line: &str,
    has_headers: bool,
) -> Result<Op, WireError> {
    const MALFORMED: WireError = WireError::Protocol("a message has a malformed head");
    let mut words = line.split_ascii_whitespace();
    let subject = words.next().ok_or(MALFORMED)?.to_owned();
    let mut numbers = words.rev().map(|number| number.parse::<usize>().ok());
    let mut next_number = || numbers.next().flatten().ok_or(MALFORMED);
    let len = next_number()?;
    let head_len = if has_headers { next_number()? } else { 0 };
    if len > MESSAGE_BYTES_MAX {
        return Err(WireError::Protocol("a message is longer than 64 KiB"));
    }
    if head_len > len {
        return Err(MALFORMED);
    }
    while buffer.len() < len + 2 {
        read_more(stream, buffer).await?;
    }
    let head = buffer.split_to(head_len);
    let payload = buffer.split_to(len - head_len).freeze();
    buffer.advance(2);
    let head = String::from_utf8_lossy(&head);
    let status = head
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("NATS/1.0"));
    let status = status
        .and_then(|status| status.split_ascii_whitespace().next())
        .map(str::to_owned);
    Ok(Op::Message {
        subject,
        status,
        payload: Bytes::copy_from_slice(&payload),
    })
}

async fn read_more(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> Result<(), WireError> {
    buffer.reserve(8 * 1024);
    match stream.read_buf(buffer).await? {
        0 => Err(WireError::Lost),
        _ => Ok(()),
    }
}
